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
pub(crate) use guard::tests::finding;
pub use guard::{Cause, VolumeFinding, VolumeState, judge};
pub(crate) use longhorn::{count, follow_looks};
pub(crate) use longhorn::{follow_troubled, troubled};
pub use longhorn::{last_of_volume, look};
pub use settings::{SettingWrite, keep_drain_policy, keep_snapshot_job, reserve};

use std::collections::{BTreeMap, BTreeSet};

use kubeapi::slim::longhorn::Volume;
use serde::{Deserialize, Serialize};
use step::{Inserted as _, Mono};

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
    pub managers: BTreeMap<String, ClosedBudget>,
    /// Volumes that are attached here, by their names in Longhorn: namespace and name of the claim of each.
    pub attached: BTreeMap<String, (String, String)>,
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
            attached: attached.map(|(name, it)| (name.clone(), claim(it))).into_map(),
            policy: facts.policy.clone(),
            managers: managers
                .map(|(name, _)| (name.clone(), guard::manager_budget(facts, own, name, &findings)))
                .into_map(),
            findings,
        }
    }

    /// The first by name of the volumes whose last healthy copy is here.
    pub fn last(&self) -> Option<&VolumeFinding> {
        self.findings.iter().find(|it| it.is_last())
    }
}

/// Volumes with a copy on a node before an outage, and whether all their copies were healthy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VolumesBefore {
    /// By name, whether all copies were healthy.
    pub volumes: BTreeMap<String, bool>,
    /// Those that a person let go down with the node: their word is used up.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub passed: BTreeSet<String>,
    /// The boot in which the cordon went, and when in it, in ms; none while the cordon is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<(String, u64)>,
}

impl VolumesBefore {
    /// Those that are not faulted; `None` without any.
    pub fn of(findings: &[VolumeFinding]) -> Option<Self> {
        let good = findings.iter().filter(|it| it.state != VolumeState::Faulted);
        let all: BTreeMap<String, bool> = good.map(|it| (it.volume.clone(), it.is_whole())).into_map();
        // Of one that has gone down with its instance manager no copy is healthy any more.
        let passed = findings.iter().filter(|it| it.state != VolumeState::Safe && !it.passed.is_empty());
        let passed: BTreeSet<String> = passed.map(|it| it.volume.clone()).into_set();
        let is_empty = all.is_empty() && passed.is_empty();
        (!is_empty).then_some(Self { volumes: all, passed, opened: None })
    }

    pub(crate) fn opened(self, boot: &str, now: Mono) -> Self {
        let at = now.since_start().as_millis();
        Self { opened: Some((boot.to_owned(), u64::try_from(at).unwrap_or(u64::MAX))), ..self }
    }

    /// Whether it says what was before this boot.
    pub(crate) fn is_before(&self, boot: &str) -> bool {
        self.opened.as_ref().is_none_or(|(of, _)| of == boot)
    }
}

/// Volumes of the cluster that are not well, by their names as a person knows them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumesSeen {
    /// No copy can be used.
    pub faulted: BTreeMap<String, String>,
    /// A copy is missing.
    pub degraded: BTreeMap<String, String>,
}
