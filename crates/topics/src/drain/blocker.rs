//! Members that several of our topics have: what blocks a drain, and the virtual machines of the node. Pure: no clock, no I/O,
//! no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{GoTime, Most};

/// A virtual machine of the node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct MachineProgress {
    /// Namespace and name, as `shop/db`.
    pub name: String,
    /// Where it is: `waiting`, `asked`, `moving`, `aborting`, `shutting-down`, `held`, `unreadable`, `failed` or `gone`.
    pub state: String,
    /// What is going on, with the phase of its migration, its target, or why it cannot be moved.
    pub reason: String,
}

/// What does not leave: a pod, a virtual machine or a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct Blocker {
    /// A pod as `shop/web-0`, a machine as `virtual machine shop/db`, a volume as `volume shop/data (pvc-1)`.
    pub pod: String,
    /// Its UID; of a volume its name.
    #[serde(rename = "UID")]
    pub uid: String,
    /// The reason for machines.
    pub code: String,
    /// The reason for a person, with names and numbers.
    pub reason: String,
    /// What a person can do about it; empty in `DrainHistory`, and of all but the first 16 where the list was cut.
    pub next_step: String,
    /// Since when.
    pub since: GoTime,
}

impl Blocker {
    /// As `pod shop/web-0`, `virtual machine shop/db`, `volume shop/data (pvc-1)`.
    pub fn subject(&self) -> String {
        if self.pod.contains(' ') { self.pod.clone() } else { format!("pod {}", self.pod) }
    }

    /// The reason, preceded by the subject where the reason does not name it.
    pub fn sentence(&self) -> String {
        if self.reason.contains(&self.pod) {
            self.reason.clone()
        } else {
            format!("{}: {}", self.subject(), self.reason)
        }
    }
}

/// Blockers that keep their next step where not all fit.
const WITH_STEP: usize = 16;

/// Cuts blockers and their texts; returns the number of omitted ones.
pub(crate) fn cut_blockers(blockers: &mut Vec<Blocker>, most: Most) -> u32 {
    let omitted = most.list(blockers);
    // More names are worth more than steps.
    for it in blockers.iter_mut().skip(WITH_STEP) {
        it.next_step.clear();
    }
    for Blocker { pod, uid, code, reason, next_step, since: _ } in blockers {
        for text in [pod, uid, code, reason, next_step] {
            most.text(text);
        }
    }
    omitted
}
