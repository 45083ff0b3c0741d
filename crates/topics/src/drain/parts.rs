//! Parts of `NodeDrainProgress`: what the node waits for before and after its drain.
//!
//! Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{GoTime, Most};

/// A volume that keeps the node, or is worth a look.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct StorageWait {
    /// As `shop/data (pvc-1)`.
    pub volume: String,
    /// The node where it is attached, or empty.
    pub node: String,
    /// What is the matter with it.
    pub reason: String,
    /// What a person can do.
    pub next_step: String,
    /// A copy elsewhere is being rebuilt.
    pub rebuilding: bool,
    /// How far, where that is known.
    pub percent: u8,
}

impl StorageWait {
    pub(crate) fn cut(&mut self, most: Most) {
        most.each([&mut self.volume, &mut self.node, &mut self.reason, &mut self.next_step]);
    }
}

/// A limit that runs, and what is done when it is over.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
#[schemars(rename = "RunningLimit")]
pub struct RunningLimit {
    /// Of what: `attempt`, `drain`, `volumes` (that pods have left) or `last-copies`.
    pub of: String,
    /// Since when it runs.
    pub since: GoTime,
    /// When it is over.
    pub until: GoTime,
    /// What is done then: `give-up`, `wait` or `go-on`.
    pub then: String,
}

impl RunningLimit {
    pub(crate) fn cut(&mut self, most: Most) {
        most.text(&mut self.of);
        most.text(&mut self.then);
    }
}

/// The turn of this node to be down: held, or waited for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
#[schemars(rename = "Turn")]
pub struct TurnShown {
    /// Number of the grant while it is held; 0 while not.
    pub fence: u32,
    /// The rule that makes it wait: `reading`, `api`, `record`, `preflight`, `retry`, `mode`, `not-listed`, `holder`, `server`, `down`, `cordoned`,
    /// `order`, `margin`; empty when it does not wait.
    pub rule: String,
    /// The nodes that it waits for.
    pub nodes: Vec<String>,
    /// Since when it waits.
    pub since: GoTime,
    /// Its place in the queue, from 1; 0 before it has one.
    pub place: u32,
}

/// The gate after a boot: the lowest layer that is not healthy, by its word, what was seen and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct BootGate {
    /// All layers are healthy, and have been for the set time.
    pub open: bool,
    /// The lowest that is not: `device-nodes`, `clock`, `kubernetes-service`, `node-ready`, `node-lease`, `network`,
    /// `storage-pods`, `storage-volumes`, or `steady` while all have to hold for the set time. Empty when open, or before the first look.
    pub layer: String,
    /// Its limit is over: it counts as failed, and is looked at again and again.
    pub failed: bool,
    /// What was seen, in one sentence.
    pub words: String,
    /// What a person can do.
    pub next_step: String,
    /// Since when it is so.
    pub since: GoTime,
    /// Stale taints on the node that are still to be removed.
    pub stale_taints: Vec<String>,
    /// What does not keep the node cordoned and is not as it should be.
    pub warnings: Vec<GateWarning>,
}

/// Something that is not as it should be after a boot, and does not keep the node cordoned.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct GateWarning {
    /// The layer of the gate that it is about, or `repairs` for one thing that had to be fixed again and again.
    pub layer: String,
    /// What was seen, in one sentence.
    pub words: String,
    /// What a person can do.
    pub next_step: String,
    /// Since when it is so.
    pub since: GoTime,
    /// The layer's limit is over; before, the turn of the node is held for it.
    pub failed: bool,
}

impl GateWarning {
    pub(crate) fn cut(&mut self, most: Most) {
        most.each([&mut self.layer, &mut self.words, &mut self.next_step]);
    }
}

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
        most.each([pod, uid, code, reason, next_step]);
    }
    omitted
}
