//! Volumes before an outage and after it: what a drain notes of those with a copy on its node, and which ones of the
//! cluster are not healthy.
//!
//! Not here: reading them (`health`), where the record is kept (`node`), what follows (`node::gate`). Sources: goals D14, R4.
//! Pure: no clock, no I/O, no task.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use step::{Inserted as _, Mono};

use super::guard::{VolumeFinding, VolumeState};

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
