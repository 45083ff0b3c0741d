//! Which pods leave a node in a drain, and which stay.
//!
//! Not here: reading pods, asking the server, order in time. Sources: spec/agents.md 4.4; `kubectl drain
//! --force --ignore-daemonsets --delete-emptydir-data`.
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::plan::budget::{BudgetFacts, GuardedPod};
use crate::plan::tier::Tier;
use kubeapi::names::PodRef;

/// Values of the label `app` that a drain leaves alone: Longhorn's own parts, which must serve the volumes of
/// the pods that leave (spec/agents.md 4.4).
pub const KEPT_APPS: [&str; 5] = [
    "csi-attacher",
    "csi-provisioner",
    "longhorn-admission-webhook",
    "longhorn-conversion-webhook",
    "longhorn-driver-deployer",
];

/// The same as a label selector for the server.
pub const KEPT_APPS_SELECTOR: &str = "app!=csi-attacher,app!=csi-provisioner,app!=longhorn-admission-webhook,\
     app!=longhorn-conversion-webhook,app!=longhorn-driver-deployer";

/// The facts about a pod that a drain needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFacts {
    pub pod: PodRef,
    /// Its labels; budgets select by them.
    pub labels: BTreeMap<String, String>,
    /// Phase Succeeded or Failed.
    pub finished: bool,
    /// Its phase is Pending.
    pub pending: bool,
    /// Its condition Ready is True.
    pub ready: bool,
    pub terminating: bool,
    /// It runs, or tries to, and has never been Ready.
    pub never_ready: bool,
    /// The time that it may take to end, once asked.
    pub grace: Duration,
    pub owner: PodOwner,
    /// The controller's kind and name, as `ReplicaSet/web-5f7d`; a pod with the same one in the same namespace is
    /// the same workload come back. Empty without a controller.
    pub workload: String,
    /// The API group of the `DaemonSet` that made it, where that is not Kubernetes' own; else empty.
    pub daemon_group: String,
    pub tier: Tier,
    /// Its priority; lower ones leave first within a tier.
    pub priority: i32,
    /// Names of the PersistentVolumeClaims that it mounts, within its namespace.
    pub claims: Vec<String>,
    /// It tolerates the taint of a cordon, so a replacement pod may be scheduled here again.
    pub tolerates_cordon: bool,
    /// Who has to agree before its object goes.
    pub finalizers: Vec<String>,
}

/// The controller of a pod: what a drain distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodOwner {
    /// None: nothing makes the pod again.
    Nobody,
    /// The kubelet: this is an image of its static pod, so deleting it stops nothing.
    Kubelet,
    /// A `DaemonSet` that is there, or one of another API group, which is not looked for: it would put the pod back
    /// at once.
    DaemonSet,
    /// A `DaemonSet` that is gone, so that nothing makes the pod anew.
    VanishedDaemonSet,
    Other,
}

/// What a drain does with a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodClass {
    /// Not touched, not waited for.
    Keep(KeepReason),
    Leave,
    /// Already leaving: waited for.
    Await,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepReason {
    /// One of [`KEPT_APPS`].
    KeptApp,
    /// Its `DaemonSet` would put it back.
    DaemonSet,
    Mirror,
}

impl PodFacts {
    /// It holds disks of a running virtual machine, and goes with its launcher: evicted, it takes them from the guest.
    pub(crate) fn is_hotplug(&self) -> bool {
        self.labels.get("kubevirt.io").is_some_and(|it| it == "hotplug-disk")
    }

    pub(crate) fn guarded(&self) -> GuardedPod {
        GuardedPod { pod: self.pod.clone(), labels: self.labels.clone(), ready: self.ready }
    }

    /// Whether each of more than one budget among `guards` has a say in its end. The eviction API asks none about a pod
    /// that has not run yet or has run to its end.
    pub(crate) fn has_many(&self, guards: &[&BudgetFacts]) -> bool {
        guards.len() > 1 && !self.finished && !self.pending
    }

    /// What a drain does with this pod. Forced as the reference forces it: pods without a controller leave too,
    /// and emptyDir data is lost.
    pub fn class(&self) -> PodClass {
        let kept_app = self.labels.get("app").is_some_and(|app| KEPT_APPS.contains(&app.as_str()));
        if kept_app {
            PodClass::Keep(KeepReason::KeptApp)
        } else if self.owner == PodOwner::DaemonSet && !self.finished {
            PodClass::Keep(KeepReason::DaemonSet)
        } else if self.owner == PodOwner::Kubelet {
            PodClass::Keep(KeepReason::Mirror)
        } else if self.terminating || (self.is_hotplug() && !self.finished) {
            PodClass::Await
        } else {
            PodClass::Leave
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use kubeapi::names::PodUid;

    /// A running pod of a replica set.
    pub(crate) fn pod(name: &str) -> PodFacts {
        PodFacts {
            pod: PodRef {
                namespace: "shop".to_owned(),
                name: name.to_owned(),
                uid: PodUid::new(format!("uid-{name}")),
            },
            labels: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
            finished: false,
            pending: false,
            ready: true,
            terminating: false,
            never_ready: false,
            grace: Duration::from_secs(30),
            owner: PodOwner::Other,
            workload: format!("ReplicaSet/{name}"),
            daemon_group: String::new(),
            tier: Tier::Application,
            priority: 0,
            claims: Vec::new(),
            tolerates_cordon: false,
            finalizers: Vec::new(),
        }
    }

    #[test]
    fn the_classes_are_those_of_a_forced_kubectl_drain() {
        let plain = pod("a");
        let table = [
            (plain.clone(), PodClass::Leave),
            (PodFacts { owner: PodOwner::Nobody, ..plain.clone() }, PodClass::Leave),
            (PodFacts { finished: true, ..plain.clone() }, PodClass::Leave),
            (PodFacts { terminating: true, ..plain.clone() }, PodClass::Await),
            (PodFacts { owner: PodOwner::Kubelet, ..plain.clone() }, PodClass::Keep(KeepReason::Mirror)),
            (
                PodFacts { owner: PodOwner::Kubelet, finished: true, ..plain.clone() },
                PodClass::Keep(KeepReason::Mirror),
            ),
            (PodFacts { owner: PodOwner::DaemonSet, ..plain.clone() }, PodClass::Keep(KeepReason::DaemonSet)),
            (
                PodFacts { owner: PodOwner::DaemonSet, terminating: true, ..plain.clone() },
                PodClass::Keep(KeepReason::DaemonSet),
            ),
            (PodFacts { owner: PodOwner::DaemonSet, finished: true, ..plain.clone() }, PodClass::Leave),
            (PodFacts { owner: PodOwner::VanishedDaemonSet, ..plain }, PodClass::Leave),
        ];
        for (given, class) in table {
            assert_eq!(given.class(), class, "{given:?}");
        }
    }

    #[test]
    fn longhorns_own_parts_stay_by_rule_and_by_selector() {
        for app in KEPT_APPS {
            let kept = PodFacts { labels: BTreeMap::from([("app".to_owned(), app.to_owned())]), ..pod("a") };
            assert_eq!(kept.class(), PodClass::Keep(KeepReason::KeptApp), "{app}");
        }
        let selector: Vec<String> = KEPT_APPS.iter().map(|app| format!("app!={app}")).collect();
        assert_eq!(KEPT_APPS_SELECTOR, selector.join(","));
    }

    #[test]
    fn a_pod_that_holds_disks_of_a_running_machine_is_waited_for_and_never_asked() {
        let labels = BTreeMap::from([("kubevirt.io".to_owned(), "hotplug-disk".to_owned())]);
        let disks = PodFacts { labels, ..pod("hp-volume-x") };
        assert_eq!(disks.class(), PodClass::Await);
        assert_eq!(PodFacts { finished: true, ..disks }.class(), PodClass::Leave);
    }
}
