//! Waits, counts and rules of zedkube. Source: lf-edge/eve pkg/pillar/cmd/zedkube, whose waits and counts are the
//! defaults; the limits of pods, tiers, volumes and returning workloads are goals D10, D13 and D15.

use std::path::Path;
use std::time::Duration;

use clusterview::lease::Times;
use kubenodeop::node::gate;
use kubenodeop::{Limit, PodAction, Rules, StickyAction, VolumeAction};
use outage::margin::calls::{Addresses, Settings, Source};
use outage::margin::paths::Paths;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Waits in milliseconds, counts bare, rules as words.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Whether this node waits for its turn before it is cordoned, so that no two nodes of the cluster are down by it.
    pub take_turns: bool,
    /// Whether it looks for what would keep the drain from ever being done, before it waits for its turn.
    pub preflight: bool,
    /// Where etcd of this node serves metrics and health, without a login.
    pub etcd_metrics: String,
    /// Where it serves JSON calls, with a client certificate.
    pub etcd_gateway: String,
    /// The data directory of k3s or rke2; empty for the usual places.
    pub etcd_data: String,
    /// Pause between two questions whether the Kubernetes API is there.
    pub probe_pause_ms: u64,
    /// How much longer than others a node waits at most, drawn by chance, before it skips a drain because the API is away.
    pub skip_spread_ms: u64,
    /// How long the API may be silent in the middle of a drain of a worker node before the rest of it is skipped; 0 for
    /// never.
    pub api_lost_skip_ms: u64,
    /// Tries to cordon before giving up.
    pub cordon_tries: u32,
    /// Pause between two tries to cordon.
    pub cordon_pause_ms: u64,
    /// Least time between the starts of two drains.
    pub drain_gap_ms: u64,
    /// Attempts to drain before giving up.
    pub drain_tries: u32,
    /// Pause between two attempts to drain.
    pub drain_pause_ms: u64,
    /// Evictions under way at the same time.
    pub evictions_at_once: u32,
    /// Least time between the two lists that prove the node empty.
    pub proof_gap_ms: u64,
    /// How often the node is looked at while a cordon of ours has to go.
    pub uncordon_poll_ms: u64,
    /// How often a drained node is looked at, as somebody may have undone it; it is watched besides.
    pub complete_poll_ms: u64,
    /// How old COMPLETE may become for an operation that does not act on it; then it is drained for again. 0 for no
    /// limit. By default twice the longest test of an image that a config may set.
    pub complete_age_ms: u64,
    /// How long the fault-injection file may hold a drain that is done.
    pub hold_limit_ms: u64,
    /// With two requests answered, when NodeDrainStatus names the second requester.
    pub answer_dwell_ms: u64,
    /// After a boot, how long device nodes may be missing before that counts as failed; it is waited for all the same.
    pub gate_devices_limit_ms: u64,
    /// The same for the Kubernetes API.
    pub gate_service_limit_ms: u64,
    /// The same for a node that is not Ready.
    pub gate_node_limit_ms: u64,
    /// The same for a lease that is not renewed.
    pub gate_lease_limit_ms: u64,
    /// The same for storage pods that are crash-looping.
    pub gate_storage_limit_ms: u64,
    /// How long all that must hold before a cordon of an earlier boot is removed.
    pub gate_hold_ms: u64,
    /// How long the lease must have been renewed before stale taints are removed.
    pub stale_taints_ms: u64,
    /// How often the gate is looked at without an event.
    pub gate_look_ms: u64,
    /// Least time between two writes of NodeDrainProgress, but for a change of status or answer.
    pub progress_gap_ms: u64,
    /// Least time between two writes of `DrainJournal` for the marks of limits alone.
    pub marks_gap_ms: u64,
    /// How long one pod may take, from its first eviction call to its end; 0 for no limit.
    pub pod_limit_ms: u64,
    /// What is done about a pod that is over its time: `wait`, `give-up` or `delete`.
    #[serde(deserialize_with = "words::pod_limit_then")]
    pub pod_limit_then: PodAction,
    /// How long one tier may take, from the end of the one before it; 0 for no limit.
    pub tier_limit_ms: u64,
    /// What is done about the pods of a tier that is over its time: `wait`, `give-up` or `delete`.
    #[serde(deserialize_with = "words::tier_limit_then")]
    pub tier_limit_then: PodAction,
    /// How long volumes may take to be detached once the last pod is gone; 0 for no limit.
    pub volumes_limit_ms: u64,
    /// What is done about volumes that are over their time: `wait`, `give-up` or `go-on`.
    #[serde(deserialize_with = "words::volumes_limit_then")]
    pub volumes_limit_then: VolumeAction,
    /// How long a leader is left alone after a sign of life.
    pub lease_ms: u64,
    /// How long a leader leads after its last renewal; never more than four fifths of `lease_ms`.
    pub lease_renew_ms: u64,
    /// Pause between two renewals, and between two looks at another's lease; up to a fifth longer by chance.
    pub lease_retry_ms: u64,
    /// How long COMPLETE, or the end of this agent, waits until the lease is given back.
    pub lease_release_ms: u64,
    /// The cluster counts as gone when no look at the lease has come through for so long.
    pub lease_silence_ms: u64,
    /// How long before the first step out of the cluster it is announced, once our zedagent has said that the config
    /// puts this node into no cluster.
    pub leave_notice_ms: u64,
    /// The same where a zedagent of the reference says so: that must stay so long, and the config be fetched all along.
    pub leave_unchanged_ms: u64,
    /// How long a cluster that is to be left may be out of reach, before its first step and at its last.
    pub leave_reach_ms: u64,
    /// Between two looks for control-plane nodes that have been replaced.
    pub prune_ms: u64,
    /// How long a config that was there may read as failed, as it does during each fetch, before it counts as lost.
    pub config_patience_ms: u64,
    /// What becomes of a workload whose pods come back to this node: `leave`, `wait` or `give-up`.
    #[serde(deserialize_with = "words::sticky_then")]
    pub sticky_then: StickyAction,
    /// Returns to this node that make a workload one of those.
    pub sticky_returns: u32,
    /// How often the Lease of turns is read while there is a whole-site operation.
    pub site_step_ms: u64,
    /// How long an update of k3s may take, from the moment that it is handed to the kube container until the kubelet reports
    /// it and the node is sound; then it counts as failed, and the turn of this node stays.
    pub k3s_update_ms: u64,
    /// How long the kube container has to take notice of what shows in no version, before the node is looked at.
    pub k3s_settle_ms: u64,
    /// TCP port of the status server; 0 for any that is free.
    pub server_port: u16,
    /// How long one request to it may take, from the start of its connection to the end.
    pub server_request_ms: u64,
    /// The same for a request that waits for other nodes.
    pub server_cluster_ms: u64,
    /// How long one of these may take to answer.
    pub server_peer_ms: u64,
    /// Connections to it at once.
    pub server_connections: u32,
    /// Connections to it at once from one address.
    pub server_connections_each: u32,
    /// Pause between two tries to listen.
    pub server_retry_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        let rules = Rules::default();
        let server = nodestatus::Limits::default();
        let ms = |it: Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX);
        let count = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
        Self {
            take_turns: true,
            preflight: true,
            etcd_metrics: Addresses::default().metrics,
            etcd_gateway: Addresses::default().gateway,
            etcd_data: String::new(),
            probe_pause_ms: 5_000,
            skip_spread_ms: 600_000,
            api_lost_skip_ms: 0,
            cordon_tries: 10,
            cordon_pause_ms: 5_000,
            drain_gap_ms: 6_000,
            drain_tries: 5,
            drain_pause_ms: 300_000,
            evictions_at_once: 32,
            proof_gap_ms: 1_000,
            uncordon_poll_ms: 15_000,
            complete_poll_ms: 30_000,
            complete_age_ms: 7_200_000,
            hold_limit_ms: 3_600_000,
            answer_dwell_ms: 2_000,
            gate_devices_limit_ms: 60_000,
            gate_service_limit_ms: 600_000,
            gate_node_limit_ms: 600_000,
            gate_lease_limit_ms: 120_000,
            gate_storage_limit_ms: 600_000,
            gate_hold_ms: 5_000,
            stale_taints_ms: 60_000,
            gate_look_ms: 120_000,
            progress_gap_ms: 200,
            marks_gap_ms: 5_000,
            pod_limit_ms: 0,
            pod_limit_then: rules.pod.then,
            tier_limit_ms: 0,
            tier_limit_then: rules.tier.then,
            volumes_limit_ms: 600_000,
            volumes_limit_then: rules.volumes.then,
            lease_ms: 300_000,
            lease_renew_ms: 180_000,
            lease_retry_ms: 15_000,
            lease_release_ms: 5_000,
            lease_silence_ms: 300_000,
            config_patience_ms: 300_000,
            leave_notice_ms: 60_000,
            leave_unchanged_ms: 600_000,
            leave_reach_ms: 600_000,
            prune_ms: 600_000,
            sticky_then: rules.sticky,
            sticky_returns: rules.sticky_returns,
            site_step_ms: 2_000,
            k3s_update_ms: 1_800_000,
            k3s_settle_ms: 60_000,
            server_port: server.port,
            server_request_ms: ms(server.request),
            server_cluster_ms: ms(server.cluster),
            server_peer_ms: ms(server.peer),
            server_connections: count(server.most),
            server_connections_each: count(server.most_of_one),
            server_retry_ms: ms(server.retry),
        }
    }
}

impl Limits {
    /// The limits of the status server.
    pub(crate) fn server(&self) -> nodestatus::Limits {
        let count = |it: u32| usize::try_from(it).unwrap_or(usize::MAX);
        nodestatus::Limits {
            port: self.server_port,
            request: Duration::from_millis(self.server_request_ms),
            cluster: Duration::from_millis(self.server_cluster_ms),
            peer: Duration::from_millis(self.server_peer_ms),
            most: count(self.server_connections),
            most_of_one: count(self.server_connections_each),
            retry: Duration::from_millis(self.server_retry_ms),
        }
    }

    /// The rules of an attempt that may last so long.
    pub(crate) fn rules(&self, attempt: Duration) -> Rules {
        Rules {
            attempt,
            at_once: usize::try_from(self.evictions_at_once).unwrap_or(usize::MAX),
            proof_gap: self.proof_gap(),
            pod: Limit { after: some(self.pod_limit_ms), then: self.pod_limit_then },
            tier: Limit { after: some(self.tier_limit_ms), then: self.tier_limit_then },
            volumes: Limit { after: some(self.volumes_limit_ms), then: self.volumes_limit_then },
            sticky: self.sticky_then,
            // A pod that has not come back once is not one that comes back.
            sticky_returns: self.sticky_returns.max(1),
        }
    }
}

impl Limits {
    /// Limits of the gate after a boot.
    pub(crate) fn gate(&self) -> gate::Limits {
        let ms = Duration::from_millis;
        gate::Limits {
            devices: ms(self.gate_devices_limit_ms),
            service: ms(self.gate_service_limit_ms),
            node: ms(self.gate_node_limit_ms),
            lease: ms(self.gate_lease_limit_ms),
            storage: ms(self.gate_storage_limit_ms),
            hold: ms(self.gate_hold_ms),
            taints: ms(self.stale_taints_ms),
            // Without a pause there would be no end of looking.
            look: ms(self.gate_look_ms.max(100)),
        }
    }

    /// The waits of what runs beside the drain.
    pub(crate) fn cluster_view(&self) -> clusterview::Limits {
        let ms = Duration::from_millis;
        clusterview::Limits {
            times: Times::new(
                ms(self.lease_ms),
                ms(self.lease_renew_ms),
                ms(self.lease_retry_ms),
                ms(self.lease_silence_ms),
            ),
            release: ms(self.lease_release_ms),
            config_patience: ms(self.config_patience_ms),
            prune: ms(self.prune_ms),
        }
    }
}

impl Limits {
    /// Where our own etcd is, if there is one; usual places are below `root`.
    pub(crate) fn etcd(&self, root: &Path) -> Source {
        Source {
            addresses: Addresses { metrics: self.etcd_metrics.clone(), gateway: self.etcd_gateway.clone() },
            paths: match self.etcd_data.as_str() {
                "" => Paths::usual(root),
                data => Paths::at(Path::new(data)),
            },
            settings: ETCD,
        }
    }
}

/// What a person sets for etcd elsewhere, as errors name it.
const ETCD: Settings = Settings { metrics: "etcd_metrics", gateway: "etcd_gateway", data: "etcd_data" };

/// A limit; 0 is none.
fn some(limit_ms: u64) -> Option<Duration> {
    (limit_ms > 0).then(|| Duration::from_millis(limit_ms))
}

/// The words of members; one that nobody knows is refused with the member and the words known.
mod words {
    use super::{Deserializer, PodAction, StickyAction, VolumeAction, word};

    const POD: [(&str, PodAction); 3] =
        [("wait", PodAction::Wait), ("give-up", PodAction::GiveUp), ("delete", PodAction::Delete)];
    const VOLUME: [(&str, VolumeAction); 3] =
        [("wait", VolumeAction::Wait), ("give-up", VolumeAction::GiveUp), ("go-on", VolumeAction::GoOn)];
    const STICKY: [(&str, StickyAction); 3] =
        [("leave", StickyAction::Leave), ("wait", StickyAction::Wait), ("give-up", StickyAction::GiveUp)];

    macro_rules! members {
        ($($member:ident: $kind:ty = $words:ident),+ $(,)?) => { $(
            pub(super) fn $member<'de, D: Deserializer<'de>>(text: D) -> Result<$kind, D::Error> {
                word(text, stringify!($member), &$words)
            }
        )+ };
    }

    members! {
        pod_limit_then: PodAction = POD,
        tier_limit_then: PodAction = POD,
        volumes_limit_then: VolumeAction = VOLUME,
        sticky_then: StickyAction = STICKY,
    }
}

fn word<'de, D: Deserializer<'de>, T: Copy>(
    text: D,
    member: &str,
    words: &[(&str, T)],
) -> Result<T, D::Error> {
    let found = String::deserialize(text)?;
    let known = words.iter().find(|(word, _)| *word == found);
    known.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        D::Error::custom(format!("{member}: found \"{found}\", expected one of {}", known.join(", ")))
    })
}

macro_rules! as_durations {
    ($($name:ident: $field:ident),+ $(,)?) => {
        impl Limits { $(
            pub(crate) const fn $name(&self) -> Duration {
                Duration::from_millis(self.$field)
            }
        )+ }
    };
}

as_durations! {
    probe_pause: probe_pause_ms,
    skip_spread: skip_spread_ms,
    api_lost_skip: api_lost_skip_ms,
    cordon_pause: cordon_pause_ms,
    drain_gap: drain_gap_ms,
    drain_pause: drain_pause_ms,
    proof_gap: proof_gap_ms,
    uncordon_poll: uncordon_poll_ms,
    complete_poll: complete_poll_ms,
    complete_age: complete_age_ms,
    hold_limit: hold_limit_ms,
    answer_dwell: answer_dwell_ms,
    progress_gap: progress_gap_ms,
    marks_gap: marks_gap_ms,
    config_patience: config_patience_ms,
    leave_notice: leave_notice_ms,
    leave_unchanged: leave_unchanged_ms,
    leave_reach: leave_reach_ms,
    site_step: site_step_ms,
    k3s_update: k3s_update_ms,
    k3s_settle: k3s_settle_ms,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTEMPT: Duration = Duration::from_hours(24);

    #[test]
    fn what_errors_of_etcd_tell_a_person_to_set_is_a_setting_and_counts() {
        let text = format!(
            r#"{{"{}": "http://h:1", "{}": "https://h:2", "{}": "/data"}}"#,
            ETCD.metrics, ETCD.gateway, ETCD.data
        );
        let etcd = serde_json::from_str::<Limits>(&text).unwrap().etcd(Path::new("/root"));
        assert_eq!(etcd.addresses, Addresses { metrics: "http://h:1".into(), gateway: "https://h:2".into() });
        assert_eq!(etcd.paths, Paths::at(Path::new("/data")));
        assert_eq!(Limits::default().etcd(Path::new("/root")).paths, Paths::usual(Path::new("/root")));
    }

    fn read(text: &str) -> Result<Limits, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn d15_what_is_left_out_keeps_the_default_and_zero_is_no_limit() {
        assert_eq!(read("{}").unwrap(), Limits::default());
        assert_eq!(Limits::default().rules(ATTEMPT), Rules::default());
        assert_eq!(Limits::default().gate(), gate::Limits::default());
        let none = read(r#"{"volumes_limit_ms":0,"sticky_returns":0}"#).unwrap().rules(ATTEMPT);
        assert_eq!((none.volumes.after, none.sticky_returns), (None, 1));
    }

    #[test]
    fn d15_each_limit_has_its_time_and_its_action() {
        let rules = read(
            r#"{"pod_limit_ms":1000,"pod_limit_then":"delete","tier_limit_ms":2000,"tier_limit_then":"give-up",
                "volumes_limit_ms":3000,"volumes_limit_then":"wait","sticky_then":"give-up","sticky_returns":5,
                "evictions_at_once":7,"proof_gap_ms":4000}"#,
        )
        .unwrap()
        .rules(ATTEMPT);
        let after = |secs| Some(Duration::from_secs(secs));
        let expected = Rules {
            attempt: ATTEMPT,
            at_once: 7,
            proof_gap: Duration::from_secs(4),
            pod: Limit { after: after(1), then: PodAction::Delete },
            tier: Limit { after: after(2), then: PodAction::GiveUp },
            volumes: Limit { after: after(3), then: VolumeAction::Wait },
            sticky: StickyAction::GiveUp,
            sticky_returns: 5,
        };
        assert_eq!(rules, expected);
    }

    #[test]
    fn a_word_that_nobody_knows_is_refused_with_its_member_and_the_words_known() {
        for (text, words) in [
            (r#"{"pod_limit_then":"kill"}"#, ["pod_limit_then", "\"kill\"", "wait, give-up, delete"]),
            (r#"{"tier_limit_then":"go-on"}"#, ["tier_limit_then", "\"go-on\"", "wait, give-up, delete"]),
            (
                r#"{"volumes_limit_then":"delete"}"#,
                ["volumes_limit_then", "\"delete\"", "wait, give-up, go-on"],
            ),
            (r#"{"sticky_then":""}"#, ["sticky_then", "\"\"", "leave, wait, give-up"]),
        ] {
            let told = read(text).unwrap_err().to_string();
            assert!(words.iter().all(|word| told.contains(word)), "{text}: {told}");
        }
    }
}
