//! What the Lease of turns says: who holds a turn, who waits, the limit, a whole-cluster operation.
//!
//! The lists are JSON in annotations, so that one compare-and-swap covers grant, order and mode. Members and
//! annotations that this version does not know are written back as they were: agents of two versions may share a
//! cluster. No decision reads a time out of the record. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use kubeapi::names::{APP_NAMESPACE, NodeName};
use kubeapi::nodes::{FAILOVER_MARK, FAILOVER_STAYS};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use topics::HeldWork;

/// Words of the record, ordered as they are listed; one of another version stays as it is, and comes last.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $word:tt,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Hash, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum $name {
            $($(#[$of])* $variant,)+
            /// A word of another version, kept as it is.
            Stranger(String),
        }

        /// No word yet.
        impl Default for $name {
            fn default() -> Self {
                Self::Stranger(String::new())
            }
        }

        impl $name {
            /// The word in the record.
            pub fn text(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Stranger(word) => word,
                }
            }
        }

        impl From<String> for $name {
            fn from(word: String) -> Self {
                match word.as_str() {
                    $($word => Self::$variant,)+
                    _ => Self::Stranger(word),
                }
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.text().to_owned()
            }
        }
    };
}

pub(crate) use words;

/// Name of the Lease, in the namespace of applications.
pub const LEASE: &str = "pillar-rs-outage";
/// Annotation: the holders, a JSON list of [`Holder`].
pub const HOLDERS: &str = "pillar-rs/outage-holders";
/// Annotation: the queue, a JSON list of [`Waiter`]; the place within a class is the order.
pub const QUEUE: &str = "pillar-rs/outage-queue";
/// Annotation: the whole-cluster operation, a JSON object [`Mode`]; absent when there is none.
pub const MODE: &str = "pillar-rs/outage-mode";
/// The kind of a whole-cluster operation in which nodes reboot one after another, each in a turn.
pub const RESTART: &str = "restart";
/// Annotation: the last releases by an operator, a JSON list of [`ForcedRelease`].
pub const FORCED: &str = "pillar-rs/outage-forced";
/// Annotation: the last nodes that were declared dead, oldest first, a JSON list of [`DeclaredNode`].
pub const FAILOVER: &str = "pillar-rs/failover";
/// Annotation: how many nodes may be down at once, a number from 1; control-plane nodes are always limited to one.
pub const LIMIT: &str = "pillar-rs/outage-limit";
/// Annotation: the version of this format, a number.
pub const VERSION: &str = "pillar-rs/outage-version";
/// The version of the format that this program writes and the newest that it reads.
pub const FORMAT: u32 = 1;
/// A node that has failed so often within 24 h stays cordoned until a person lifts it.
const TOO_OFTEN: u32 = 3;
/// How many releases by an operator are remembered.
const FORCED_KEPT: usize = 8;

/// Number of a grant: greater than that of every earlier grant of the same Lease.
pub type Fence = u32;
/// No Lease of ours has counted further: a greater number was written by somebody else.
pub const FENCE_MOST: Fence = 1 << 30;

words! {
    /// What a turn is for.
    Op {
        Reboot = "reboot",
        Shutdown = "shutdown",
        OsUpdate = "os-update",
        /// An update of k3s: servers go first.
        K3sUpdate = "k3s-update",
        Drain = "drain",
        /// A restart that the node decides on itself.
        Restart = "restart",
    }
}

words! {
    /// How far a holder has come.
    Phase {
        /// The turn is its own; nothing else has been done.
        Granted = "granted",
        Cordoned = "cordoned",
        /// Its pods are gone.
        Drained = "drained",
        /// The reboot was ordered.
        GoingDown = "going-down",
        Booted = "booted",
        /// It is back and the checks after boot are not passed yet.
        Gate = "gate",
        /// What it has its turn for has failed, and its turn stays until a person has looked.
        Failed = "failed",
        /// It restarts without having waited.
        Emergency = "emergency",
    }
}

words! {
    /// The class of a waiting node; see [`super::rule::rank`].
    Class {
        /// No role in the control plane.
        Worker = "worker",
        /// An etcd voter that carries no workloads.
        TieBreaker = "tie-breaker",
        /// A server that does not lead etcd.
        Follower = "follower",
        Leader = "leader",
    }
}

impl Class {
    /// The class of a node; `leads` is `None` where that was not asked.
    pub(crate) fn of(leads: Option<bool>, tie_breaker: bool, server: bool) -> Self {
        match (leads, tie_breaker, server) {
            (Some(true), _, true) => Self::Leader,
            (_, true, _) => Self::TieBreaker,
            (_, false, false) => Self::Worker,
            (_, false, true) => Self::Follower,
        }
    }
}

/// A grant of another Lease, or of a later state of this one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EarlierGrant {
    pub fence: Fence,
    pub lease_uid: String,
}

/// A node that is down, is going down, or is not yet healthy again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    pub node: String,
    #[serde(rename = "nodeUID")]
    pub node_uid: String,
    /// Its boot at the time of the grant.
    #[serde(rename = "bootID", default)]
    pub boot_id: String,
    pub op: Op,
    /// Which request of that kind.
    #[serde(default)]
    pub counter: u64,
    pub fence: Fence,
    pub phase: Phase,
    /// It is a control-plane node or an etcd member.
    #[serde(default)]
    pub server: bool,
    /// Since when, RFC 3339, by the writer's wall clock; display only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub since: String,
    /// The grant that this entry continues, where the Lease of that was deleted or restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<EarlierGrant>,
    /// Members of another version.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A node that waits for a turn.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiter {
    pub node: String,
    #[serde(rename = "nodeUID")]
    pub node_uid: String,
    /// Its class when it was written.
    pub class: Class,
    pub op: Op,
    /// Which request of that kind.
    #[serde(default)]
    pub counter: u64,
    /// Members of another version.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A whole-cluster operation. While it is in progress, no turn is granted and none is taken over, but for
/// [`Mode::keeps_turns`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mode {
    pub id: String,
    /// `shutdown`, `reboot`, `restart`.
    pub kind: String,
    /// Everything else in it.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl Mode {
    /// Whether turns are granted and used in it: in a restart of one node after another.
    pub fn keeps_turns(&self) -> bool {
        self.kind == RESTART
    }

    /// What it waits for, a sentence or empty.
    pub fn waits(&self) -> &str {
        self.rest.get("waits").and_then(Value::as_str).unwrap_or_default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForcedRelease {
    pub node: String,
    #[serde(rename = "nodeUID")]
    pub node_uid: String,
    pub fence: Fence,
    pub who: String,
    pub why: String,
    /// When, RFC 3339; display only.
    pub when: String,
    /// The grant that the entry continued; see [`Holder::earlier`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<EarlierGrant>,
    /// Members of another version.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

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
    /// How often it failed within 24 h, with this.
    pub times: u32,
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
        format!("{FAILOVER_MARK}{}{}", self.number, if self.stays() { FAILOVER_STAYS } else { "" })
    }

    /// Whether it stays cordoned when it is back, until a person lifts that.
    pub const fn stays(&self) -> bool {
        self.times >= TOO_OFTEN
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

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TurnRecord {
    pub holders: Vec<Holder>,
    pub queue: Vec<Waiter>,
    pub mode: Option<Mode>,
    /// The last releases by an operator, oldest first.
    pub forced: Vec<ForcedRelease>,
    /// The last nodes that were declared dead, oldest first.
    pub failovers: Vec<DeclaredNode>,
    /// How many nodes may be down at once, from 1.
    pub limit: u32,
    /// Number of the last grant: `spec.leaseTransitions`.
    pub fence: Fence,
    /// Annotations of others and of other versions.
    pub others: BTreeMap<String, String>,
}

impl Default for TurnRecord {
    /// Nobody holds, nobody waits, one node at a time.
    fn default() -> Self {
        Self {
            holders: Vec::new(),
            queue: Vec::new(),
            mode: None,
            forced: Vec::new(),
            failovers: Vec::new(),
            limit: 1,
            fence: 0,
            others: BTreeMap::new(),
        }
    }
}

/// The record as it was read, and what a write must name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecordSnapshot {
    pub record: TurnRecord,
    /// UID of the Lease: another one after it was deleted and created.
    pub uid: String,
    /// Another one after every write by anybody.
    pub resource_version: String,
}

impl RecordSnapshot {
    /// What a write must name.
    pub fn version(&self) -> (String, String) {
        (self.uid.clone(), self.resource_version.clone())
    }
}

/// A write: the whole record in place of the version that was read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecordWrite {
    /// UID and resource version that the write must name; `None` creates the Lease.
    pub on: Option<(String, String)>,
    pub record: TurnRecord,
}

/// Why a Lease cannot be used as a record of turns. Nobody enters until a person has fixed it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BadRecord {
    #[error(
        "annotation {key} of Lease {APP_NAMESPACE}/{LEASE} is not usable: {why}; no node gets a turn until it is \
         fixed: kubectl -n {APP_NAMESPACE} annotate --overwrite lease {LEASE} {key}{fix}"
    )]
    Annotation { key: &'static str, why: String, fix: &'static str },
    #[error(
        "Lease {APP_NAMESPACE}/{LEASE} has format {found}, newer than {FORMAT}, the newest that this node reads \
         (annotation {VERSION}); no turn for this node until its software is updated"
    )]
    Newer { found: u32 },
    #[error(
        "spec.leaseTransitions of Lease {APP_NAMESPACE}/{LEASE} is {0}, not 0 to {FENCE_MOST}; type: kubectl -n \
         {APP_NAMESPACE} patch lease {LEASE} --type=merge -p '{{\"spec\":{{\"leaseTransitions\":0}}}}'"
    )]
    Transitions(i32),
}

/// How an unusable list is emptied by a person: cordon marks on the nodes still count.
const EMPTY_LIST: &str = "='[]'";

fn bad(key: &'static str, fix: &'static str, why: &dyn ToString) -> BadRecord {
    BadRecord::Annotation { key, why: why.to_string(), fix }
}

fn json<T: DeserializeOwned>(text: &str, key: &'static str, fix: &'static str) -> Result<T, BadRecord> {
    serde_json::from_str(text).map_err(|why| bad(key, fix, &why))
}

fn list<T: DeserializeOwned>(text: Option<String>, key: &'static str) -> Result<Vec<T>, BadRecord> {
    text.map_or(Ok(Vec::new()), |text| json(&text, key, EMPTY_LIST))
}

fn number(text: Option<String>, key: &'static str) -> Result<u32, BadRecord> {
    let parsed = text.map_or(Ok(1), |text| text.trim().parse::<u32>().map_err(|why| bad(key, "=1", &why)))?;
    if parsed == 0 { Err(bad(key, "=1", &"it must be at least 1")) } else { Ok(parsed) }
}

fn named<'a>(names: impl Iterator<Item = &'a String>, key: &'static str) -> Result<(), BadRecord> {
    let mut names = names.map(|name| NodeName::parse(name));
    names.try_for_each(|name| name.map(drop).map_err(|why| bad(key, EMPTY_LIST, &why)))
}

impl TurnRecord {
    /// Reads the record out of all annotations of the Lease and its `spec.leaseTransitions`.
    /// Errors: [`BadRecord`], which names the annotation and what to type.
    pub fn parse(
        mut annotations: BTreeMap<String, String>,
        transitions: Option<i32>,
    ) -> Result<Self, BadRecord> {
        let found = number(annotations.remove(VERSION), VERSION)?;
        if found > FORMAT {
            return Err(BadRecord::Newer { found });
        }
        let transitions = transitions.unwrap_or_default();
        let fence = u32::try_from(transitions).ok().filter(|it| *it <= FENCE_MOST);
        let fence = fence.ok_or(BadRecord::Transitions(transitions))?;
        let holders: Vec<Holder> = list(annotations.remove(HOLDERS), HOLDERS)?;
        named(holders.iter().map(|it| &it.node), HOLDERS)?;
        if let Some(it) = holders.iter().find(|it| it.fence > FENCE_MOST) {
            let why = format!("fence {} of node {} is greater than {FENCE_MOST}", it.fence, it.node);
            return Err(bad(HOLDERS, EMPTY_LIST, &why));
        }
        let queue: Vec<Waiter> = list(annotations.remove(QUEUE), QUEUE)?;
        named(queue.iter().map(|it| &it.node), QUEUE)?;
        let failovers: Vec<DeclaredNode> = list(annotations.remove(FAILOVER), FAILOVER)?;
        named(failovers.iter().map(|it| &it.node), FAILOVER)?;
        Ok(Self {
            holders,
            queue,
            mode: annotations.remove(MODE).map(|text| json(&text, MODE, "-")).transpose()?,
            forced: list(annotations.remove(FORCED), FORCED)?,
            failovers,
            limit: number(annotations.remove(LIMIT), LIMIT)?,
            fence,
            others: annotations,
        })
    }

    /// All annotations of the Lease that says this.
    /// Errors: [`serde_json::Error`] when a list cannot be written as JSON; nothing may be sent then.
    pub fn annotations(&self) -> Result<BTreeMap<String, String>, serde_json::Error> {
        let mut all = self.others.clone();
        let mut set = |key: &str, text: String| all.insert(key.to_owned(), text);
        set(VERSION, FORMAT.to_string());
        set(LIMIT, self.limit.to_string());
        set(HOLDERS, serde_json::to_string(&self.holders)?);
        set(QUEUE, serde_json::to_string(&self.queue)?);
        if let Some(mode) = &self.mode {
            set(MODE, serde_json::to_string(mode)?);
        }
        if !self.forced.is_empty() {
            set(FORCED, serde_json::to_string(&self.forced)?);
        }
        if !self.failovers.is_empty() {
            set(FAILOVER, serde_json::to_string(&self.failovers)?);
        }
        Ok(all)
    }

    /// `spec.holderIdentity`: the names of the holders, for people.
    pub fn holder_identity(&self) -> String {
        self.holders.iter().map(|it| it.node.as_str()).collect::<Vec<_>>().join(",")
    }

    /// `spec.leaseTransitions`.
    pub fn transitions(&self) -> i32 {
        i32::try_from(self.fence).unwrap_or(i32::MAX)
    }

    /// Writes `wall`, RFC 3339, as the beginning of those turns that have none yet; display only.
    pub fn stamp(&mut self, wall: &str) {
        for holder in self.holders.iter_mut().filter(|it| it.since.is_empty()) {
            wall.clone_into(&mut holder.since);
        }
    }

    /// Whether this node is in the queue.
    pub fn waits(&self, node: &str) -> bool {
        self.queue.iter().any(|it| it.node == node)
    }

    /// The entry of this node object, if it holds.
    pub fn holder(&self, node: &str, uid: &str) -> Option<&Holder> {
        self.holders.iter().find(|it| it.node == node && it.node_uid == uid)
    }

    /// Takes every entry of this node object out of the holders.
    pub fn release(&mut self, node: &str, uid: &str) {
        self.holders.retain(|it| it.node != node || it.node_uid != uid);
    }

    /// Adds a grant to `holder`, with the next fence, and takes its node out of the queue. Returns the fence. A record that
    /// was read counts no further than [`FENCE_MOST`], so the next number is there.
    pub fn grant(&mut self, mut holder: Holder) -> Fence {
        let listed = self.holders.iter().map(|it| it.fence).max().unwrap_or_default();
        self.fence = self.fence.max(listed) + 1;
        holder.fence = self.fence;
        self.queue.retain(|it| it.node != holder.node);
        self.holders.push(holder);
        self.fence
    }

    /// Whether an operator released the turn of this node object: the grant of this number, or the one that continued
    /// `earlier`.
    pub fn is_released(&self, node_uid: &str, fence: Option<Fence>, earlier: &EarlierGrant) -> bool {
        let is_it = |it: &ForcedRelease| Some(it.fence) == fence || it.earlier.as_ref() == Some(earlier);
        self.forced.iter().any(|it| it.node_uid == node_uid && is_it(it))
    }

    pub fn remember(&mut self, forced: ForcedRelease) {
        self.forced.push(forced);
        let over = self.forced.len().saturating_sub(FORCED_KEPT);
        self.forced.drain(..over);
    }
}
