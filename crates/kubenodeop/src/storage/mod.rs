//! Storage of the cluster as far as a node that leaves service must care: which volumes have their last healthy copy
//! here, why the budget of an instance manager is closed.
//!
//! An adapter gives a [`StorageView`], or `None` where its storage is not installed: `longhorn` is the one that is there, and a
//! cluster without it has no copies to guard. Volumes are detached by `VolumeAttachment`, whatever stores them (`engine`). One pure rule judges (`guard`). Who may
//! call: `engine` and `drain` for an attempt, `leave`, and zedkube while the API is lost. Not here: how long is waited
//! and by which policy (`engine`).

mod copies;
mod facts;
mod guard;
mod longhorn;
mod settings;

pub use copies::{ask, asked_for, take_back, withdraw_all};
pub use facts::{NodeDrainPolicy, NodeReadiness, StorageFacts};
#[cfg(test)]
pub(crate) use guard::tests::{cluster, copy, finding};
pub use guard::{Cause, VolumeFinding, VolumeState, VolumesBefore, VolumesSeen, judge};
pub(crate) use longhorn::{count, follow_looks, follow_troubled};
pub use longhorn::{last_of_volume, look};
pub use settings::{SettingWrite, keep_setting, keep_snapshot_job, reserve};

use kubeapi::slim::longhorn::Volume;
use step::{Inserted as _, LiteMap};

use crate::plan::PodFacts;

/// Whether a pod is an instance manager of Longhorn.
pub(crate) fn is_manager(facts: &PodFacts) -> bool {
    facts.labels.get("longhorn.io/component").is_some_and(|it| it == "instance-manager")
}

/// The storage of a cluster as seen from our node at one moment. Equal values mean that nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StorageView {
    /// What Longhorn does about a cordoned node.
    pub policy: NodeDrainPolicy,
    /// Volumes with a copy here, by name.
    pub findings: Vec<VolumeFinding>,
    /// The budget of each instance manager of our node.
    pub managers: LiteMap<String, ClosedBudget>,
    /// Volumes that are attached here, by their names in Longhorn: namespace and name of the claim of each.
    pub attached: LiteMap<String, (String, String)>,
}

/// Why the budget of an instance manager is closed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClosedBudget {
    pub why: String,
    pub opens: String,
    /// The volumes of which copies on the node keep it, by their names in Longhorn, where nothing else does.
    pub by: Vec<String>,
}

impl StorageView {
    /// What `facts` mean for the node `own`.
    pub fn of(facts: &StorageFacts, own: &str) -> Self {
        let managers = facts.managers.iter().filter(|(_, it)| it.spec.node == own);
        let findings = judge(facts, own);
        let attached = facts.volumes.iter().filter(|(_, it)| it.status.current_node == own);
        let claim = |it: &Volume| {
            let claimed = &it.status.kubernetes_status;
            (claimed.namespace.clone(), claimed.pvc_name.clone())
        };
        Self {
            attached: attached.map(|(name, it)| (name.clone(), claim(it))).into_lite(),
            policy: facts.policy.clone(),
            managers: managers
                .map(|(name, _)| (name.clone(), guard::manager_budget(facts, own, name, &findings)))
                .into_lite(),
            findings,
        }
    }

    /// The first by name of the volumes whose last healthy copy is here.
    pub fn last(&self) -> Option<&VolumeFinding> {
        self.findings.iter().find(|it| it.is_last())
    }
}
