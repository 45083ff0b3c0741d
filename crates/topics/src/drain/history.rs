//! `DrainHistory`: what the last drains did and what force files did, kept through reboots for a person to read.
//!
//! Not here: how many are kept and how long a text may be; zedkube bounds both before it writes. Pure: no clock, no
//! I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::parts::cut_blockers;
use crate::{
    Blocker, DrainStatus, GoTime, Kind, Most, NodeDrainStatus, OperationPause, PodCounts, RequestId,
    Requester, SkipKind, Topic, cut_text,
};

/// The last drains and the last force files, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DrainHistory {
    /// The last ten drains.
    pub drains: Vec<DrainRecord>,
    /// The last eight force files.
    pub forced: Vec<ForceRecord>,
    /// The last eight pauses of a person.
    pub pauses: Vec<PauseRecord>,
    /// The boot in which this was written.
    #[serde(rename = "BootID")]
    pub boot_id: String,
    /// When the monotonic clock of that boot started, by the wall clock that the times of that boot were made with.
    pub booted_at: GoTime,
}

impl Topic for DrainHistory {
    const NAME: &'static str = "DrainHistory";
    const KIND: Kind = Kind::Persistent;

    fn cut(&mut self, most: Most) {
        most.list(&mut self.drains);
        most.list(&mut self.forced);
        most.list(&mut self.pauses);
        self.pauses.iter_mut().for_each(|it| it.pause.cut(most));
        for it in &mut self.drains {
            most.each([&mut it.context, &mut it.boot_id, &mut it.skip]);
            it.steps_left_out = it.steps_left_out.saturating_add(most.list(&mut it.steps));
            for step in &mut it.steps {
                most.text(&mut step.text);
            }
            it.more_blockers = it.more_blockers.saturating_add(cut_blockers(&mut it.blockers, most));
            it.more_left = it.more_left.saturating_add(most.texts(&mut it.left));
        }
        for it in &mut self.forced {
            most.each([&mut it.owner, &mut it.refused, &mut it.effect]);
        }
    }
}

/// Longest name or identity in it, on disk.
pub const NAME_BYTES: usize = 64;

/// One drain, from the request to its end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DrainRecord {
    /// Whose request was served.
    pub requested_by: Requester,
    /// When it was asked; with `RequestedBy` its identity.
    pub requested_at: GoTime,
    /// What it was for.
    pub context: String,
    /// The boot in which it began.
    #[serde(rename = "BootID")]
    pub boot_id: String,
    /// When it began.
    pub started_at: GoTime,
    /// When it ended; zero while it continues.
    pub ended_at: GoTime,
    /// How it stands or ended: 9 also for a skip.
    pub status: DrainStatus,
    /// Attempts that began.
    pub attempts: u32,
    /// What happened, oldest first.
    pub steps: Vec<DrainStep>,
    /// Steps that were left out to keep the record short.
    pub steps_left_out: u32,
    /// Pods of the last attempt.
    pub counts: PodCounts,
    /// Evictions that the server accepted, in all attempts.
    pub evicted: u32,
    /// How often the cordon was taken away and put back, in all attempts.
    pub recordons: u32,
    /// The first of what held the last attempt up.
    pub blockers: Vec<Blocker>,
    /// Blockers beyond those.
    pub more_blockers: u32,
    /// Why the drain was left out, or empty.
    pub skip: String,
    /// The same for programs.
    pub skip_kind: SkipKind,
    /// The first of what a rule let pass, as `shop/web-0: why`.
    pub left: Vec<String>,
    /// What was let pass beyond those.
    pub more_left: u32,
    /// Seconds from `StartedAt` to `EndedAt`; 0 while it goes on.
    pub seconds: u64,
}

impl DrainRecord {
    /// The request that it served.
    pub const fn id(&self) -> RequestId {
        RequestId { by: self.requested_by, at: self.requested_at }
    }

    /// Whether it began in this boot; the record keeps the first bytes of its identity.
    pub fn is_of_boot(&self, boot_id: &str) -> bool {
        self.boot_id == cut_text(boot_id, NAME_BYTES)
    }

    /// Whether it continues.
    pub fn is_open(&self) -> bool {
        self.ended_at.is_zero()
    }
}

/// Something that happened in a drain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DrainStep {
    /// When.
    pub at: GoTime,
    /// What.
    pub step: StepWord,
    /// The attempt in which it happened, from 1; 0 outside of one.
    pub attempt: u32,
    /// What is to be said about it, or empty.
    pub text: String,
}

/// What happened in a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StepWord {
    /// The request was taken.
    #[default]
    Taken,
    /// zedkube was started again and continues.
    Restarted,
    /// The Kubernetes API answered.
    ApiReached,
    /// It could not start, and asked for no turn.
    #[serde(rename = "hindered")]
    CannotStart,
    /// Findings of the preflight were passed by a person's word.
    Passed,
    /// It waits for a window to start in.
    OutsideWindow,
    /// A person's pause kept it from starting.
    Paused,
    /// A person let it start outside of the windows.
    WindowPassed,
    /// It waits until this node may be down.
    WaitsForTurn,
    /// Its turn to be down was taken from it.
    TurnLost,
    /// A hook before the cordon failed.
    HookFailed,
    /// The node is cordoned.
    Cordoned,
    /// An attempt began.
    Attempt,
    /// No pod was left, which was then to be proved.
    Proving,
    /// An attempt failed.
    AttemptFailed,
    /// Drained, with proof.
    Complete,
    /// Left out, for a reason.
    Skipped,
    /// Given up.
    Failed,
    /// Nobody waited for it any more.
    Withdrawn,
    /// A force file said something about it.
    Forced,
    /// A force file was refused.
    ForceRefused,
    /// The device went down in the middle of it.
    Interrupted,
    /// Somebody uncordoned the drained node: it counted no longer.
    Void,
}

impl StepWord {
    /// What happened, for a person.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Taken => "request accepted",
            Self::Restarted => "zedkube restarted and continues",
            Self::ApiReached => "Kubernetes API reachable",
            Self::CannotStart => "could not start",
            Self::Passed => "findings passed",
            Self::OutsideWindow => "waits for a window",
            Self::Paused => "paused",
            Self::WindowPassed => "started outside of its windows",
            Self::WaitsForTurn => "waits for its turn to be down",
            Self::TurnLost => "lost its turn to be down",
            Self::HookFailed => "failed hook",
            Self::Cordoned => "node cordoned",
            Self::Attempt => "drain attempt",
            Self::Proving => "all pods are gone; verifying",
            Self::AttemptFailed => "failed attempt",
            Self::Complete => "drained, verified",
            Self::Skipped => "drain skipped",
            Self::Failed => "gave up",
            Self::Withdrawn => "request withdrawn",
            Self::Forced => "force file",
            Self::ForceRefused => "force file refused",
            Self::Interrupted => "interrupted",
            Self::Void => "no longer drained",
        }
    }
}

/// One pause of a person: who said it, why, since when, and when it had ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct PauseRecord {
    /// What was said.
    pub pause: OperationPause,
    /// When zedkube saw that it had ended; zero while it holds.
    pub ended_at: GoTime,
}

/// One force file: who gave which order when, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ForceRecord {
    /// When zedkube saw it.
    pub seen_at: GoTime,
    /// The boot in which it saw it.
    #[serde(rename = "BootID")]
    pub boot_id: String,
    /// When the file was written, as its time stamp says; zero where that cannot be had.
    pub written_at: GoTime,
    /// Whether the owner of the file could be told; without it `OwnerUID` means nothing.
    pub owner_known: bool,
    /// User who owns the file.
    #[serde(rename = "OwnerUID")]
    pub owner_uid: u32,
    /// Name of that user, or empty.
    pub owner: String,
    /// Who wrote it by its own words, as whoever called `sudo`; empty in a file written by hand.
    pub by: String,
    /// Why, in a person's words, or empty.
    pub reason: String,
    /// What it ordered; status 0 when it was refused.
    pub order: NodeDrainStatus,
    /// Why it was refused, or empty.
    pub refused: String,
    /// What came of it, in words.
    pub effect: String,
    /// The request that it released without a proved drain; zero while it released none.
    pub released_at: GoTime,
    /// When the file was gone; zero while it stands.
    pub gone_at: GoTime,
}

impl ForceRecord {
    /// Who gave the order, as `field (file of root, uid 0)`, or `root (uid 0)` where only the owner is known.
    pub fn who(&self) -> String {
        let owner = match (self.owner_known, self.owner.as_str()) {
            (false, _) => None,
            (true, "") => Some(format!("uid {}", self.owner_uid)),
            (true, name) => Some(format!("{name}, uid {}", self.owner_uid)),
        };
        match (self.by.as_str(), owner) {
            ("", None) => "an unknown user".to_owned(),
            ("", Some(_)) if self.owner.is_empty() => format!("uid {}", self.owner_uid),
            ("", Some(_)) => format!("{} (uid {})", self.owner, self.owner_uid),
            (by, None) => by.to_owned(),
            (by, Some(owner)) => format!("{by} (file of {owner})"),
        }
    }
}
