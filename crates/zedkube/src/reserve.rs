//! Keeps room on the disks of our node that Longhorn leaves to others, where a config property says how much.
//!
//! On a tie-breaker, while the node leaves its cluster or it is not known whether it has one, and before a config says
//! so, nothing is written. Not here: the write (`kubenodeop::storage`).

use std::time::Duration;

use agent::AgentContext;
use kubenodeop::storage;
use nodestatus::{ClusterMembership, Membership};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::BesideDrain;

/// Between two looks: Longhorn may have made its object of the node again.
const LOOK: Duration = Duration::from_secs(60);
/// How long an error that stays is not logged again.
const SAY_AGAIN: Duration = Duration::from_secs(1800);
const GIBIBYTE: i64 = 1 << 30;

/// Runs until nobody can say any more how this node is a member of its cluster. `gibibytes` is `None` where nothing is to
/// be written. Dropping it loses nothing.
pub(crate) async fn run(beside: BesideDrain, mut gibibytes: watch::Receiver<Option<u32>>) {
    let BesideDrain { context: AgentContext { clock, .. }, cluster, own_node, members, .. } = beside;
    let mut cluster_membership = members;
    let mut said = None;
    loop {
        let wanted = *gibibytes.borrow_and_update();
        let is_kept = {
            let cluster_membership = cluster_membership.borrow_and_update();
            let uuid = own_node.get().map(|(_, uuid)| uuid).unwrap_or_default();
            let tie_breaker = |it: &ClusterMembership| {
                let config = it.config.as_ref();
                config.is_some_and(|it| it.tie_breaker_node_id.uuid.to_string().eq_ignore_ascii_case(&uuid))
            };
            // A node in no cluster has a Longhorn of its own.
            matches!(cluster_membership.membership, Membership::Member | Membership::Outside)
                && !tie_breaker(&cluster_membership)
        };
        let mut pause = None;
        if let Some(wanted) = wanted.filter(|_| is_kept) {
            let (node, _) = own_node.known().await;
            pause = Some(LOOK);
            match storage::reserve(&cluster, &node, i64::from(wanted) * GIBIBYTE).await {
                Ok(Some(disks)) => {
                    if !disks.is_empty() {
                        info!(%node, ?disks, gibibytes = wanted, "reserved room on disks of Longhorn");
                    }
                    said = None;
                }
                Ok(None) => {}
                Err(error) => {
                    let (line, now) = (error.line(), clock.now());
                    let is_new =
                        said.as_ref().is_none_or(|(held, at)| *held != line || now.since(*at) >= SAY_AGAIN);
                    if is_new {
                        warn!(%node, error = line, "cannot reserve room on disks of Longhorn: {}", error.next_step());
                        said = Some((line, now));
                    }
                }
            }
        }
        tokio::select! {
            () = clock.sleep_until(pause.map(|pause| clock.now() + pause)), if pause.is_some() => {}
            changed = cluster_membership.changed() => if changed.is_err() { return },
            changed = gibibytes.changed() => if changed.is_err() { return },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent::Clock;
    use kubesim::{ScriptedFault, Sim};
    use pubsub::TopicRoot;
    use serde_json::Value;
    use topics::{EdgeNodeClusterConfig, UuidAndVersion};

    use super::*;

    const OURS: &str = "a5a4e5c1-0000-4000-8000-000000000001";
    const NODES: &str = "longhorn/nodes";

    fn reserved(sim: &Sim, node: &str) -> Value {
        sim.get(NODES, "longhorn-system", node).unwrap()["spec"]["disks"].clone()
    }

    /// Two nodes with Longhorn; the duty of n1, and how it is told what is wanted.
    async fn duty()
    -> (Sim, impl Future<Output = ()>, watch::Sender<Option<u32>>, watch::Sender<ClusterMembership>) {
        let sim = Sim::of_nodes(2);
        sim.add_longhorn("always-allow");
        sim.until(NODES, |all| all.len() == 2).await;
        let (wanted, gibibytes) = watch::channel(None);
        let member = ClusterMembership { membership: Membership::Member, config: None, left: None };
        let (sender, cluster_membership) = watch::channel(member);
        let root = TopicRoot::open(std::env::temp_dir()).unwrap();
        let (_, context) = AgentContext::alone(&root, Clock::new(), "b1");
        let beside = BesideDrain { members: cluster_membership, ..BesideDrain::of_test(context, &sim, OURS) };
        (sim, run(beside, gibibytes), wanted, sender)
    }

    #[tokio::test(start_paused = true)]
    async fn the_reserve_is_on_our_disks_only_again_after_a_drift_and_only_where_the_config_says_so() {
        let (sim, duty, wanted, cluster_membership) = duty().await;
        let (before, theirs) = (reserved(&sim, "n1"), reserved(&sim, "n2"));
        let is = |gibibytes: i64| {
            let sim = &sim;
            move |_: &[Arc<Value>]| reserved(sim, "n1")["default"]["storageReserved"] == gibibytes << 30
        };
        let course = async {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            assert_eq!(reserved(&sim, "n1"), before, "no property, no write");
            wanted.send_replace(Some(2));
            sim.until(NODES, |_| is(2)(&[])).await;
            assert_eq!(reserved(&sim, "n1")["default"]["path"], before["default"]["path"]);
            // Longhorn makes its object again; a race and an error are got over.
            sim.faults().script("PATCH", "nodes/n1", 1, ScriptedFault::status(409, "Conflict"));
            sim.edit(NODES, "longhorn-system", "n1", |it| {
                it["spec"]["disks"]["default"]["storageReserved"] = (30_i64 << 30).into();
            });
            sim.until(NODES, |_| is(2)(&[])).await;
            wanted.send_replace(Some(7));
            sim.until(NODES, |_| is(7)(&[])).await;
            let writes = sim.faults().count("PATCH", "nodes/n1");
            tokio::time::sleep(Duration::from_secs(3600)).await;
            assert_eq!(sim.faults().count("PATCH", "nodes/n1"), writes, "written only where it differs");
            assert_eq!(reserved(&sim, "n2"), theirs);
            // A node by itself keeps it too; one that leaves, or does not know, writes nothing.
            for (membership, gibibytes, written) in [
                (Membership::Leaving, 3, 7),
                (Membership::Outside, 4, 4),
                (Membership::Undecided, 5, 4),
                (Membership::Member, 7, 7),
            ] {
                cluster_membership.send_modify(|it| it.membership = membership);
                wanted.send_replace(Some(gibibytes));
                tokio::time::sleep(Duration::from_secs(3600)).await;
                assert!(is(written)(&[]), "{membership:?}");
            }
            // The tie-breaker has no room to keep.
            cluster_membership.send_modify(|it| {
                it.config = Some(Arc::new(EdgeNodeClusterConfig {
                    tie_breaker_node_id: UuidAndVersion {
                        uuid: serde_json::from_value(OURS.into()).unwrap(),
                        ..UuidAndVersion::default()
                    },
                    ..EdgeNodeClusterConfig::default()
                }));
            });
            wanted.send_replace(Some(9));
            tokio::time::sleep(Duration::from_secs(3600)).await;
            assert!(is(7)(&[]));
        };
        tokio::select! {
            () = duty => panic!("it has ended"),
            () = course => {}
        }
    }
}
