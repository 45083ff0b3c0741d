//! `DrainJournal`: what zedkube must know of a drain after a crash. A topic of our own, as in `drain::progress`.
//!
//! Pure: no clock, no I/O, no task.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Answer, Asked, CordonOwner, DrainStatus, GoTime, Kind, Most, Requester, Topic};

/// What zedkube must know after a crash: where it was, in which boot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DrainJournal {
    /// The boot in which this was written.
    #[serde(rename = "BootID")]
    pub boot_id: String,
    /// Whose request was being served.
    pub requested_by: Requester,
    /// When it was asked.
    pub requested_at: GoTime,
    /// What it is for.
    pub context: String,
    /// How far the drain was.
    pub status: DrainStatus,
    /// The attempt, from 1.
    pub attempt: u32,
    /// When the pause after this attempt ends, on the monotonic clock of the boot, in milliseconds; 0 without one.
    pub pause_end_ms: u64,
    /// Since when the limits of this attempt run.
    pub marks: DrainMarks,
    /// What was known of the cluster; kept over boots.
    pub known: ClusterKnown,
    /// Whose cordon was on the node.
    pub cordon: CordonOwner,
    /// When the drain began.
    pub started_at: GoTime,
    /// Why the drain was left out, or empty.
    pub skip: String,
    /// Why things were as they were.
    pub reason: String,
    /// What a rule has let pass in this drain so far, as `shop/web-0: why`.
    pub left: Vec<String>,
    /// What a rule has let pass beyond those.
    pub left_omitted: u32,
    /// The answers given so far.
    pub answers: Vec<Answer>,
    /// When each standing request was made.
    pub asked: Vec<Asked>,
    /// When the monotonic clock of the boot started, by the wall clock that the times here were made with.
    pub booted_at: GoTime,
    /// Until when each repair of the last day counts towards a warning, by its kind; kept over boots.
    pub repairs: BTreeMap<String, Vec<GoTime>>,
}

/// What this node knew of its cluster when the API answered last: it decides what may be done without the API.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ClusterKnown {
    /// `worker`, or `server` for a node that has the control plane or etcd; empty if that was never read.
    pub role: String,
    /// There was no other node.
    pub alone: bool,
    /// The other servers.
    pub servers: Vec<String>,
    /// Those of them that had a turn to be down when the Lease of turns was seen last.
    pub servers_out: Vec<String>,
    /// A Longhorn volume whose last healthy replica was here, or `none`; empty where that could not be read.
    pub volume: String,
    /// The addresses of this node, of the type `InternalIP`.
    pub addresses: Vec<String>,
}

/// Since when the limits of an attempt run: milliseconds on the monotonic clock of the boot (`CLOCK_MONOTONIC`), 0
/// for one that does not run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DrainMarks {
    /// When the attempt began.
    pub attempt_ms: u64,
    /// When the first attempt of the drain began.
    pub drain_ms: u64,
    /// Since when volumes are waited for.
    pub volumes_ms: u64,
    /// Since when nothing but the storage is waited for.
    pub storage_ms: u64,
    /// Since when pods that are held are being asked to leave, by UID.
    pub pods_ms: BTreeMap<String, u64>,
    /// How often pods of a workload have come back to this node, by `namespace/kind/name`.
    pub returns: BTreeMap<String, u32>,
    /// Claims of pods that leave or have left, whose volumes have to be detached, as `shop/data`.
    pub claims: BTreeSet<String>,
    /// Claims beyond those: a restart does not wait for their volumes.
    pub claims_omitted: u32,
}

impl DrainMarks {
    pub(crate) fn cut(&mut self, most: Most) {
        most.map(&mut self.pods_ms);
        most.map(&mut self.returns);
        self.claims_omitted = self.claims_omitted.saturating_add(most.set(&mut self.claims));
    }
}

impl Topic for DrainJournal {
    const NAME: &'static str = "DrainJournal";
    const KIND: Kind = Kind::Persistent;

    fn cut(&mut self, most: Most) {
        most.each([&mut self.boot_id, &mut self.context, &mut self.skip, &mut self.reason]);
        self.left_omitted = self.left_omitted.saturating_add(most.texts(&mut self.left));
        for answer in &mut self.answers {
            answer.cut(most);
        }
        self.marks.cut(most);
        most.text(&mut self.known.volume);
    }
}
