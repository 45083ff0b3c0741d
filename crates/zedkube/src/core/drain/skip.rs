//! Whether a drain may be skipped while the Kubernetes API is away, by what is known of the cluster.
//!
//! Not here: for how long it is away before that is asked (`gates`). Sources: goals U1, U3, U8; spec/cluster-lock.md 3.4.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubeapi::listed;
use step::Dice;
use topics::ClusterKnown;

/// What is known not to be there.
const NONE: &str = "none";
/// The role of a node without control plane and etcd.
const WORKER: &str = "worker";

/// Whether the drain may be skipped, as far as this node knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum May {
    /// There is nobody to wait for.
    Now,
    /// After the time by chance.
    Later,
    /// The same, if etcd can spare this node then; `lacks_etcd`: one without etcd has no quorum to keep.
    WithMargin { lacks_etcd: bool },
    /// Not, for this reason.
    No(String),
}

pub(super) fn may_skip(known: &ClusterKnown) -> May {
    let ClusterKnown { role, alone, servers, servers_out, volume, addresses: _ } = known;
    if role.is_empty() {
        // It has never seen its cluster: whether it is a server is in its own files.
        return May::WithMargin { lacks_etcd: true };
    }
    if *alone {
        return May::Now;
    }
    if !servers_out.is_empty() && servers.iter().all(|it| servers_out.contains(it)) {
        return May::No(format!(
            "the API is away because of a turn: the Lease was last seen held by server {}, and no other server is \
             known",
            listed(servers_out, ", ")
        ));
    }
    match volume.as_str() {
        NONE => {}
        "" => {
            return May::No("it is not known whether last replicas of Longhorn volumes are here".to_owned());
        }
        name => return May::No(format!("the last healthy replica of Longhorn volume {name} is here")),
    }
    if role == WORKER { May::Later } else { May::WithMargin { lacks_etcd: servers.is_empty() } }
}

/// A time up to `longest` that differs from node to node, and stays the same over a restart in the same boot.
pub(super) fn by_chance(boot_id: &str, longest: Duration) -> Duration {
    let seed = boot_id.bytes().fold(0_u64, |seed, it| seed.wrapping_mul(31).wrapping_add(it.into()));
    let longest = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(Dice::new(seed).draw() % longest.saturating_add(1).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u8_what_is_known_of_the_cluster_decides_who_may_be_skipped() {
        let known = |role: &str, servers: &[&str], out: &[&str], volume: &str| ClusterKnown {
            role: role.to_owned(),
            alone: false,
            servers: servers.iter().map(|it| (*it).to_owned()).collect(),
            servers_out: out.iter().map(|it| (*it).to_owned()).collect(),
            volume: volume.to_owned(),
            addresses: Vec::new(),
        };
        let alone = ClusterKnown { alone: true, ..known("server", &[], &[], "pvc-1") };
        let table = [
            (known("worker", &["s1"], &[], "none"), "Later"),
            (known("worker", &["s1"], &["s1"], "none"), "held by server s1"),
            (known("worker", &["s1", "s2"], &["s1"], "none"), "Later"),
            (known("worker", &[], &["s1"], "none"), "held by server s1"),
            (known("worker", &["s1"], &[], "pvc-1"), "volume pvc-1 is here"),
            (known("worker", &["s1"], &[], ""), "not known whether last replicas"),
            (known("server", &["s2"], &[], "none"), "WithMargin { lacks_etcd: false }"),
            (known("server", &["s2"], &["s2"], "none"), "held by server s2"),
            (known("server", &["s2"], &[], ""), "not known whether last replicas"),
            (known("server", &[], &[], "none"), "WithMargin { lacks_etcd: true }"),
            (alone, "Now"),
            (ClusterKnown::default(), "WithMargin { lacks_etcd: true }"),
        ];
        for (known, expected) in table {
            let may = format!("{:?}", may_skip(&known));
            assert!(may.contains(expected), "{known:?}: {may}");
        }
    }

    #[test]
    fn the_time_by_chance_is_within_its_limit_the_same_in_a_boot_and_another_on_another_node() {
        let longest = Duration::from_mins(10);
        let drawn: Vec<Duration> = (0..50).map(|nth| by_chance(&format!("boot-{nth}"), longest)).collect();
        assert!(drawn.iter().all(|it| *it <= longest));
        assert!(drawn.iter().min() < Some(&Duration::from_mins(2)));
        assert!(drawn.iter().max() > Some(&Duration::from_mins(8)));
        assert_eq!(by_chance("boot-7", longest), drawn[7]);
        assert_eq!(by_chance("boot-7", Duration::ZERO), Duration::ZERO);
    }
}
