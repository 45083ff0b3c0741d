//! Waits, counts and rules of zedkube. Source: lf-edge/eve pkg/pillar/cmd/zedkube; its waits and counts are the
//! defaults. The limits of pods, volumes and returning workloads are our own.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use crate::window::Windows;
use clusterview::consoles::ConsoleFiles;
use clusterview::lease::ElectionTimes;
use kubeapi::connect::webhook::Webhook;
use kubenodeop::node::gate::{self, Layer};
use kubenodeop::{AttemptRules, Limit, LimitAction, MachinePolicy, SurgeRule};
use outage::margin::calls::{Addresses, EtcdAccess, EtcdSettings};
use outage::margin::facts::Paths;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// How long one hook may take.
pub(crate) const HOOK_LIMIT: Duration = Duration::from_mins(5);
/// How old COMPLETE may become for an operation that does not act on it; then it is drained for again. Twice the longest
/// test of an image that a config may set.
pub(crate) const COMPLETE_AGE: Duration = Duration::from_hours(2);
/// How long an update of k3s may take, from when it is handed to the kube container until the kubelet reports it and the
/// node is healthy.
pub(crate) const K3S_UPDATE: Duration = Duration::from_mins(30);
/// How long the kube container has to take notice of what shows in no version, before the node is looked at.
pub(crate) const K3S_SETTLE: Duration = Duration::from_mins(1);
/// How often it is warned of a person's pause that stays.
pub(crate) const PAUSE_AGAIN: Duration = Duration::from_hours(24);
/// How long a node must be away until the node that leads starts the virtual machines again that its drain has stopped,
/// and takes back the copies of volumes that it asked for.
pub(crate) const MACHINES_RESTORE: Duration = Duration::from_hours(1);
/// Pause between two questions whether the Kubernetes API is there.
pub(crate) const PROBE_PAUSE: Duration = Duration::from_secs(5);
/// How much longer than others a node waits at most, drawn by chance, before it skips a drain because the API is away.
pub(crate) const SKIP_SPREAD: Duration = Duration::from_mins(10);
/// How often a drained node is looked at, as somebody may have undone it; it is watched besides.
pub(crate) const COMPLETE_POLL: Duration = Duration::from_secs(30);
/// How long the fault-injection file may hold a drain that is done.
pub(crate) const HOLD_LIMIT: Duration = Duration::from_hours(1);
/// With two requests answered, when NodeDrainStatus names the second requester.
pub(crate) const ANSWER_DWELL: Duration = Duration::from_secs(2);
/// How long COMPLETE, or the end of this agent, waits until the lease is given back.
const LEASE_RELEASE: Duration = Duration::from_secs(5);
/// The cluster counts as gone when no look at the lease has come through for so long.
const LEASE_SILENCE: Duration = Duration::from_mins(5);
/// How long a zedagent of the reference must say that this node is in no cluster, and the config be fetched all along,
/// before the node leaves.
pub(crate) const LEAVE_UNCHANGED: Duration = Duration::from_mins(10);
/// How long a cluster that is to be left may be out of reach, before its first step and at its last.
pub(crate) const LEAVE_REACH: Duration = Duration::from_mins(10);
/// Between two looks for control-plane nodes that have been replaced.
const PRUNE: Duration = Duration::from_mins(10);
/// How long a config that was there may read as failed, as it does during each fetch, before it counts as lost.
pub(crate) const CONFIG_PATIENCE: Duration = Duration::from_mins(5);

agent::limits! {
    /// Rules of a site and of an image; waits in milliseconds, rules as words.
    pub struct Limits;
    waits {
        /// How long a whole drain may take, from its first attempt on; 0 for no limit.
        drain_limit, drain_limit_ms = 0;
        /// How long a drain may make no progress before that is warned of; 0 for never.
        stall_after, stall_after_ms = 600_000;
    }
    others {
        /// Whether this node waits for its turn before it is cordoned, so that no two nodes of the cluster are down by it.
        take_turns: bool = true;
        /// Whether the Node shows its drain to the cluster, by Events, a condition and an annotation.
        node_report: bool = true;
        /// When drains may start; at any time without one.
        windows: Windows = Windows::default();
        /// Codes of findings that stop a drain before it begins; the others only warn.
        #[serde(deserialize_with = "words::preflight_stops")]
        preflight_stops: Vec<String> = checks::DRAIN_STOPS.map(str::to_owned).to_vec();
        /// Where etcd of this node serves metrics and health, without a login.
        etcd_metrics: String = Addresses::default().metrics;
        /// Where it serves JSON calls, with a client certificate.
        etcd_gateway: String = Addresses::default().gateway;
        /// The data directory of k3s or rke2; empty for the usual places.
        etcd_data: String = String::new();
        /// Kernel parameters that each boot should have, as `/proc/cmdline` shows them.
        kernel_parameters: Vec<String> = Vec::new();
        /// The socket of the container runtime (CRI); empty for the usual places.
        runtime_socket: String = String::new();
        /// Attempts to drain before giving up.
        drain_tries: u32 = 5;
        /// Which Deployments have a second copy made elsewhere before their only Ready pods are evicted: `never`,
        /// `annotated` or `all`.
        #[serde(deserialize_with = "words::surge")]
        surge: SurgeRule = AttemptRules::default().surge;
        /// How long one pod may take, from its first eviction call to its end; 0 for no limit.
        pod_limit_ms: u64 = 0;
        /// What is done about a pod that is over its time: `wait`, `give-up` or `delete`.
        #[serde(deserialize_with = "words::pod_limit_then")]
        pod_limit_then: LimitAction = AttemptRules::default().pod.then;
        /// What is done about it then: `wait` or `delete`.
        #[serde(deserialize_with = "words::never_ready_then")]
        never_ready_then: LimitAction = AttemptRules::default().never_ready;
        /// How long a node with the last healthy copy of a volume is kept, from when nothing else is waited for; 0 for no
        /// limit.
        last_copy_limit_ms: u64 = 0;
        /// What is done then: `wait`, `give-up` or `go-on`.
        #[serde(deserialize_with = "words::last_copy_then")]
        last_copy_then: LimitAction = AttemptRules::default().last_copy.then;
        /// Volumes (`pvc-1`) and claims (`shop/data`) of which the last healthy copy may go down with the node.
        last_copy_pass: Vec<String> = Vec::new();
        /// What becomes of a workload when its pods come back to this node: `leave`, `wait` or `give-up`.
        #[serde(deserialize_with = "words::sticky_then")]
        sticky_then: LimitAction = AttemptRules::default().sticky;
        /// What becomes of virtual machines that name no policy of their own: `migrate-or-shutdown`, `migrate-or-hold`,
        /// `shutdown` or `fail`.
        #[serde(deserialize_with = "words::machines_policy")]
        machines_policy: MachinePolicy = AttemptRules::default().machines;
        /// Where the console of a virtual machine is written: `both`, `edgeview` (`/run/edgeview/VncParams/vmiVNC.run`) or
        /// `zedkube` (`/run/zedkube/vmiVNC.run`, for older kube containers).
        console_files: ConsoleFiles = ConsoleFiles::Both;
        /// TCP port of the status server; 0 for any that is free.
        server_port: u16 = nodestatus::ServerLimits::default().port;
        /// Where the status server listens beside the node's address in the cluster, as `127.0.0.1`.
        #[serde(deserialize_with = "server_addresses")]
        server_addresses: Vec<IpAddr> = Vec::new();
    }
    fixed_waits {
        /// How long a second copy of a Deployment is waited for before its pod is evicted all the same.
        surge_limit, surge_limit_ms = 300_000;
        /// Pause between two tries to cordon.
        cordon_retry, cordon_retry_ms = 5_000;
        /// Least time between the starts of two drains.
        drain_gap, drain_gap_ms = 7_000;
        /// Pause between two attempts to drain.
        drain_retry, drain_retry_ms = 300_000;
        /// Least time between the two lists that prove the node empty.
        proof_gap, proof_gap_ms = 1_000;
        /// How often the node is looked at while a cordon of ours has to go.
        uncordon_poll, uncordon_poll_ms = 15_000;
        /// After a boot, how long device nodes may be missing before that counts as failed; it is waited for all the same.
        gate_devices_limit, gate_devices_limit_ms = 60_000;
        /// How long all that must hold before a cordon of an earlier boot is removed.
        gate_hold, gate_hold_ms = 5_000;
        /// After a boot, how long a wall clock that cannot be right keeps the gate shut.
        gate_clock_limit, gate_clock_limit_ms = 300_000;
        /// How long degraded volumes hold the turn of the node after a boot.
        gate_degraded_hold, gate_degraded_hold_ms = 600_000;
        /// How long the lease must have been renewed before stale taints are removed.
        stale_taints, stale_taints_ms = 60_000;
        /// Least time between two writes of NodeDrainProgress, but for a change of status or answer.
        progress_gap, progress_gap_ms = 200;
        /// Least time between two writes of `DrainJournal` for the marks of limits alone.
        marks_gap, marks_gap_ms = 5_000;
        /// How long a leader is left alone after a sign of life.
        lease, lease_ms = 300_000;
        /// How long a leader leads after its last renewal; never more than four fifths of `lease_ms`.
        lease_renew, lease_renew_ms = 180_000;
        /// Pause between two tries to renew while something is wrong, and between two looks at another's lease, which are up
        /// to a fifth longer by chance.
        lease_retry, lease_retry_ms = 15_000;
        /// How long before the first step out of the cluster it is announced, once our zedagent has said that the
        /// config puts this node into no cluster.
        leave_notice, leave_notice_ms = 60_000;
        /// How often the Lease of turns is read while there is a whole-site operation.
        site_step, site_step_ms = 2_000;
    }
    fixed {
        /// Whether it looks for what speaks against the drain, before it waits for its turn or cordons.
        preflight: bool = true;
        /// Tries to cordon before giving up.
        cordon_tries: u32 = 10;
        /// Where notices for people are posted too; of the settings file, as it is a secret.
        #[serde(skip)]
        notify: Option<Webhook> = None;
    }
}

impl Limits {
    /// The rules of an attempt that may last so long.
    #[must_use]
    pub fn rules(&self, attempt: Duration) -> AttemptRules {
        AttemptRules {
            attempt,
            drain: some(self.drain_limit_ms),
            surge: self.surge,
            surge_limit: self.surge_limit(),
            proof_gap: self.proof_gap(),
            pod: Limit { after: some(self.pod_limit_ms), then: self.pod_limit_then },
            never_ready: self.never_ready_then,
            last_copy: Limit { after: some(self.last_copy_limit_ms), then: self.last_copy_then },
            last_copy_pass: self.last_copy_pass.iter().cloned().collect(),
            sticky: self.sticky_then,
            machines: self.machines_policy,
            ..AttemptRules::default()
        }
    }

    /// Limits of the gate after a boot.
    pub(crate) fn gate(&self) -> gate::LayerLimits {
        let mut limits = gate::LayerLimits {
            hold: self.gate_hold(),
            degraded: self.gate_degraded_hold(),
            taints: self.stale_taints(),
            ..gate::LayerLimits::default()
        };
        for (layer, limit) in
            [(Layer::Devices, self.gate_devices_limit()), (Layer::Clock, self.gate_clock_limit())]
        {
            limits.layers[layer as usize] = limit;
        }
        limits
    }

    /// The waits of what runs beside the drain.
    pub(crate) fn cluster_view(&self) -> clusterview::DutyLimits {
        clusterview::DutyLimits {
            times: ElectionTimes::new(self.lease(), self.lease_renew(), self.lease_retry(), LEASE_SILENCE),
            release: LEASE_RELEASE,
            config_patience: CONFIG_PATIENCE,
            prune: PRUNE,
            console_files: self.console_files,
        }
    }

    /// Where our own etcd is, if there is one; usual places are below `root`.
    pub(crate) fn etcd(&self, root: &Path) -> EtcdAccess {
        EtcdAccess {
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
const ETCD: EtcdSettings =
    EtcdSettings { metrics: "etcd_metrics", gateway: "etcd_gateway", data: "etcd_data" };

/// Addresses that are one address each: a server on all addresses would listen also where it is not expected.
fn server_addresses<'de, D: Deserializer<'de>>(list: D) -> Result<Vec<IpAddr>, D::Error> {
    let list = Vec::<IpAddr>::deserialize(list)?;
    match list.iter().find(|it| it.is_unspecified() || it.is_multicast()) {
        Some(it) => Err(D::Error::custom(format!(
            "server_addresses: found {it}, expected addresses of this machine, each by itself"
        ))),
        None => Ok(list),
    }
}

/// A limit; 0 is none.
fn some(limit_ms: u64) -> Option<Duration> {
    (limit_ms > 0).then(|| Duration::from_millis(limit_ms))
}

/// The word of what is done when last copies are over their time.
pub(crate) fn volume_action(then: LimitAction) -> &'static str {
    words::VOLUME.iter().find(|(_, meaning)| *meaning == then).map_or("", |(word, _)| word)
}

/// The words of members; an unknown one is refused with the member and the known words.
mod words {
    use serde::Deserialize as _;
    use serde::de::Error as _;
    use serde_json::Value;

    use super::{Deserializer, LimitAction, MachinePolicy, SurgeRule, word};

    type Word = (&'static str, LimitAction);
    const WAIT: Word = ("wait", LimitAction::Wait);
    const GIVE_UP: Word = ("give-up", LimitAction::GiveUp);
    const DELETE: Word = ("delete", LimitAction::GetPast);
    pub(super) const POD: [Word; 3] = [WAIT, GIVE_UP, DELETE];
    pub(super) const VOLUME: [Word; 3] = [WAIT, GIVE_UP, ("go-on", LimitAction::GetPast)];
    const STICKY: [Word; 3] = [("leave", LimitAction::GetPast), WAIT, GIVE_UP];
    const NEVER_READY: [Word; 2] = [WAIT, DELETE];

    macro_rules! members {
        ($($member:ident = $words:ident),+ $(,)?) => { $(
            pub(super) fn $member<'de, D: Deserializer<'de>>(text: D) -> Result<LimitAction, D::Error> {
                word(text, stringify!($member), &$words)
            }
        )+ };
    }

    members! {
        pod_limit_then = POD,
        never_ready_then = NEVER_READY,
        last_copy_then = VOLUME,
        sticky_then = STICKY,
    }

    pub(super) fn surge<'de, D: Deserializer<'de>>(text: D) -> Result<SurgeRule, D::Error> {
        let words: Vec<_> = SurgeRule::ALL.iter().map(|it| (it.text(), *it)).collect();
        word(text, "surge", &words)
    }

    pub(super) fn preflight_stops<'de, D: Deserializer<'de>>(texts: D) -> Result<Vec<String>, D::Error> {
        let words = checks::DRAIN_CODES.map(|it| (it, it));
        let all = Vec::<Value>::deserialize(texts)?.into_iter();
        let code = |it| word(it, "preflight_stops", &words).map(str::to_owned).map_err(D::Error::custom);
        all.map(code).collect()
    }

    /// Its words are those of annotations, too.
    pub(super) fn machines_policy<'de, D: Deserializer<'de>>(text: D) -> Result<MachinePolicy, D::Error> {
        let words: Vec<_> = MachinePolicy::ALL.iter().map(|it| (it.text(), *it)).collect();
        word(text, "machines_policy", &words)
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
        assert_eq!(Limits::default().rules(ATTEMPT), AttemptRules::default());
        assert_eq!(Limits::default().gate(), gate::LayerLimits::default());
    }

    #[test]
    fn d15_each_limit_has_its_time_and_its_action() {
        let rules = read(
            r#"{"surge":"annotated","surge_limit_ms":8000,"drain_limit_ms":6000,
                "pod_limit_ms":1000,"pod_limit_then":"delete",
                "last_copy_limit_ms":4000,"last_copy_then":"go-on","never_ready_then":"delete",
                "last_copy_pass":["shop/data"],"sticky_then":"give-up",
                "machines_policy":"migrate-or-hold","proof_gap_ms":4000}"#,
        )
        .unwrap()
        .rules(ATTEMPT);
        let after = |secs| Some(Duration::from_secs(secs));
        let expected = AttemptRules {
            attempt: ATTEMPT,
            surge: SurgeRule::Annotated,
            surge_limit: Duration::from_secs(8),
            drain: after(6),
            proof_gap: Duration::from_secs(4),
            pod: Limit { after: after(1), then: LimitAction::GetPast },
            never_ready: LimitAction::GetPast,
            last_copy: Limit { after: after(4), then: LimitAction::GetPast },
            last_copy_pass: ["shop/data".to_owned()].into(),
            sticky: LimitAction::GiveUp,
            machines: MachinePolicy::MigrateOrHold,
            ..AttemptRules::default()
        };
        assert_eq!(rules, expected);
    }

    #[test]
    fn a_word_that_nobody_knows_is_refused_with_its_member_and_the_words_known() {
        for (text, words) in [
            (r#"{"pod_limit_then":"kill"}"#, ["pod_limit_then", "\"kill\"", "wait, give-up, delete"]),
            (r#"{"last_copy_then":"delete"}"#, ["last_copy_then", "\"delete\"", "wait, give-up, go-on"]),
            (
                r#"{"machines_policy":"kill"}"#,
                ["machines_policy", "\"kill\"", "migrate-or-shutdown, migrate-or-hold, shutdown, fail"],
            ),
            (r#"{"surge":"yes"}"#, ["surge", "\"yes\"", "never, annotated, all"]),
            (
                r#"{"preflight_stops":["nodes","evil"]}"#,
                ["preflight_stops", "\"evil\"", "nodes, cordons, etcd"],
            ),
            (r#"{"sticky_then":""}"#, ["sticky_then", "\"\"", "leave, wait, give-up"]),
        ] {
            let told = read(text).unwrap_err().to_string();
            assert!(words.iter().all(|word| told.contains(word)), "{text}: {told}");
        }
    }
}
