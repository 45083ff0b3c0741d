//! Nodes that a person has declared dead, in an annotation of the Lease of turns, so that one compare-and-swap covers
//! turns, whole-site operations and this.
//!
//! Agents without this knowledge write the annotation back as it was. No decision but that of one failover an hour reads a
//! time out of it. Pure: no clock, no I/O, no task.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use topics::HeldWork;

use crate::turn::record::{FENCE_MOST, TurnRecord, words};
use crate::turn::rule::{OperatorRefusal, TurnNode};

/// Annotation of the Lease: the last declared nodes, oldest first, a JSON list of [`DeclaredNode`].
pub const FAILOVER: &str = "pillar-rs/failover";
/// How many that have ended are remembered.
const KEPT: usize = 8;

words! {
    /// How far the failover of a node is.
    FailoverState {
        /// A person vouches that it is off; nothing else has been done.
        Declared = "declared",
        /// Its Node has the taint: Kubernetes takes its pods away.
        Tainted = "tainted",
        /// What hung on it runs elsewhere, or is named with why not.
        Moved = "moved",
        /// It came back in another boot, and takes pods again.
        Returned = "returned",
        /// Somebody removed the taint in the boot that was declared dead.
        Lifted = "lifted",
        /// It was seen to live before the taint was written: nothing was done.
        Withdrawn = "withdrawn",
        /// Its Node was deleted.
        Gone = "gone",
    }
}

impl FailoverState {
    /// Whether the node is to be taken for dead.
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Declared | Self::Tainted | Self::Moved | Self::Stranger(_))
    }

    /// Whether its Node has our taint, by the record.
    pub const fn is_tainted(&self) -> bool {
        matches!(self, Self::Tainted | Self::Moved)
    }
}

/// A node that a person has declared dead.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeclaredNode {
    /// Number of it: greater than that of every earlier one in this record.
    pub number: u32,
    /// Name of its Node object.
    pub node: String,
    #[serde(rename = "nodeUID")]
    pub node_uid: String,
    /// The boot that is dead.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    pub state: FailoverState,
    pub who: String,
    pub why: String,
    /// When, RFC 3339, by the clock of the API server.
    pub when: String,
    /// What showed that it is silent, a sentence.
    pub evidence: String,
    /// The words by which rules were passed.
    pub passed: Vec<String>,
    /// What hung on it, and where that runs by now.
    pub work: Vec<HeldWork>,
    /// Members of another version.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl DeclaredNode {
    /// The value of its taint.
    pub fn mark(&self) -> String {
        format!("{}{}", kubeapi::nodes::FAILOVER_MARK, self.number)
    }

    /// Whether this is its Node object.
    pub fn is(&self, node: &TurnNode) -> bool {
        self.node == node.name && self.node_uid == node.uid
    }

    /// Whether `node`, which is its Node object, reports the boot that is to be dead.
    pub fn is_same_boot(&self, node: &TurnNode) -> bool {
        self.boot_id.is_empty() || node.boot_id.is_empty() || self.boot_id == node.boot_id
    }

    /// What of its work does not run elsewhere and is known not to, with why.
    pub fn waiting(&self) -> impl Iterator<Item = &HeldWork> {
        self.work.iter().filter(|it| it.on.is_empty() && !it.waits.is_empty())
    }

    /// `node n2 (number 3, tainted)`.
    pub fn words(&self) -> String {
        format!("node {} (number {}, {})", self.node, self.number, self.state.text())
    }
}

/// All entries of `record`, oldest first.
/// Errors: [`OperatorRefusal::Failover`]: the annotation cannot be read.
pub fn all(record: &TurnRecord) -> Result<Vec<DeclaredNode>, OperatorRefusal> {
    let Some(text) = record.others.get(FAILOVER) else { return Ok(Vec::new()) };
    serde_json::from_str(text).map_err(|why| {
        OperatorRefusal::Failover(format!(
            "annotation {FAILOVER} of the Lease of turns is not usable: {why}; where no node has the taint \
             node.kubernetes.io/out-of-service, empty it: kubectl -n {} annotate --overwrite lease {} {FAILOVER}='[]'",
            kubeapi::names::APP_NAMESPACE,
            crate::turn::record::LEASE
        ))
    })
}

/// Those that are to be taken for dead.
pub fn open(record: &TurnRecord) -> Vec<DeclaredNode> {
    all(record).unwrap_or_default().into_iter().filter(|it| it.state.is_open()).collect()
}

fn with(record: &TurnRecord, mut entries: Vec<DeclaredNode>) -> Result<TurnRecord, OperatorRefusal> {
    let ended = entries.iter().filter(|it| !it.state.is_open()).count();
    let mut over = ended.saturating_sub(KEPT);
    entries.retain(|it| {
        let goes = over > 0 && !it.state.is_open();
        over -= usize::from(goes);
        !goes
    });
    // What has moved in earlier ones is no longer asked for, and the Lease has its limit.
    let last = entries.iter().rposition(|it| !it.state.is_open());
    let earlier = entries.iter_mut().take(last.unwrap_or_default()).filter(|it| !it.state.is_open());
    earlier.for_each(|it| it.work.clear());
    let text = serde_json::to_string(&entries)
        .map_err(|why| OperatorRefusal::Failover(format!("the entries cannot be written: {why}")))?;
    let mut record = record.clone();
    record.others.insert(FAILOVER.to_owned(), text);
    Ok(record)
}

/// Errors: [`OperatorRefusal::Failover`]: `node` is declared dead, or the annotation cannot be read.
pub fn not_open(record: &TurnRecord, node: &str) -> Result<(), OperatorRefusal> {
    let entries = all(record)?;
    let Some(is) = entries.iter().find(|it| it.state.is_open() && it.node == node) else { return Ok(()) };
    Err(OperatorRefusal::Failover(format!(
        "{} is declared dead already; how far that is: `zedbox failover status`",
        is.words()
    )))
}

/// The record in which `entry` is declared, with the next number.
/// Errors: [`OperatorRefusal`]: no reason, or an entry of this node is open.
pub fn declare(record: &TurnRecord, entry: &DeclaredNode) -> Result<TurnRecord, OperatorRefusal> {
    if entry.why.trim().is_empty() {
        return Err(OperatorRefusal::NoReason);
    }
    not_open(record, &entry.node)?;
    let mut entries = all(record)?;
    let ours = entries.iter().map(|it| it.number).filter(|it| *it < FENCE_MOST);
    let number = ours.max().unwrap_or_default() + 1;
    entries.push(DeclaredNode { number, state: FailoverState::Declared, ..entry.clone() });
    with(record, entries)
}

/// The record with `edit` made to the entry of the number of `seen`, if it still has the state that was decided upon.
/// Errors: [`OperatorRefusal::Failover`]: the annotation cannot be read or written.
pub fn edited(
    record: &TurnRecord,
    seen: &DeclaredNode,
    edit: impl FnOnce(&mut DeclaredNode),
) -> Result<TurnRecord, OperatorRefusal> {
    let mut entries = all(record)?;
    let is_it = |it: &&mut DeclaredNode| it.number == seen.number && it.state == seen.state;
    let Some(entry) = entries.iter_mut().find(is_it) else { return Ok(record.clone()) };
    edit(entry);
    with(record, entries)
}
