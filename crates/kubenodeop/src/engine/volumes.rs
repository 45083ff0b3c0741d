//! The volumes of pods that have left: waited for until none of them is attached here, or their time is over.
//!
//! Not here: which pods leave (`pod_table`), reading attachments. Sources: goals D13, D15.
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;
use std::time::Duration;

use step::Mono;

use super::words::Effect;
use crate::calls::volumes::{AttachmentFacts, ClaimName};

/// How long volumes may take to be detached, from the moment that the last pod is gone; then the drain continues without
/// them and names them.
pub const VOLUMES_LIMIT: Duration = Duration::from_mins(10);

/// What is waited for between the last pod and the proof.
#[derive(Debug)]
pub(super) struct Detaching {
    /// Since when an attempt that was cut off has waited.
    mark: Option<Mono>,
    /// Since when this one waits; `None` while pods leave.
    since: Option<Mono>,
    /// The claims that are waited for.
    owed: BTreeSet<ClaimName>,
    /// The claims whose attachments are followed.
    asked: BTreeSet<ClaimName>,
    /// What of them is attached, once that has been heard.
    heard: Option<Vec<AttachmentFacts>>,
    over: bool,
}

impl Detaching {
    pub(super) fn new(mark: Option<Mono>) -> Self {
        Self { mark, since: None, owed: BTreeSet::new(), asked: BTreeSet::new(), heard: None, over: false }
    }

    /// Pods leave (again): volumes have their whole time from the last of them.
    pub(super) fn pause(&mut self) {
        self.since = None;
        self.over = false;
    }

    /// No pod is left, and of those that left these claims are not used by one that stays.
    pub(super) fn wait(&mut self, now: Mono, owed: BTreeSet<ClaimName>, effects: &mut Vec<Effect>) {
        self.owed = owed;
        if self.owed.is_empty() {
            return;
        }
        if self.since.is_none() {
            self.since = Some(self.mark.take().map_or(now, |mark| mark.min(now)));
        }
        if !self.owed.is_subset(&self.asked) {
            self.asked = self.owed.clone();
            self.heard = None;
            effects.push(Effect::FollowVolumes(self.asked.clone()));
        }
        self.over = self.due().is_some_and(|at| at <= now);
    }

    /// The answer to the newest [`Effect::FollowVolumes`].
    pub(super) fn take_attachments(&mut self, attached: Vec<AttachmentFacts>) {
        self.heard = Some(attached);
    }

    /// Whether nothing of them has to be waited for any more.
    pub(super) fn is_over(&self) -> bool {
        self.owed.is_empty() || self.over || (self.heard.is_some() && self.attached().next().is_none())
    }

    /// Since when they are waited for.
    pub(super) fn since(&self) -> Option<Mono> {
        self.since.filter(|_| !self.owed.is_empty())
    }

    /// What is waited for, for a person.
    pub(super) fn waited_for(&self) -> Vec<String> {
        if self.since.is_none() || self.is_over() {
            return Vec::new();
        }
        self.names()
    }

    /// What is let pass: still attached, or never heard of, when its time was over.
    pub(super) fn left(&self) -> Vec<String> {
        if !self.over {
            return Vec::new();
        }
        let why = match self.heard {
            Some(_) => format!("still attached after {} s, the limit for volumes", VOLUMES_LIMIT.as_secs()),
            None => {
                format!(
                    "not known within {} s, the limit for volumes, to be detached",
                    VOLUMES_LIMIT.as_secs()
                )
            }
        };
        self.names().into_iter().map(|what| format!("{what}: {why}")).collect()
    }

    /// What was last heard to be attached.
    pub(super) fn attached(&self) -> impl Iterator<Item = &AttachmentFacts> {
        self.heard.iter().flatten().filter(|it| self.owed.contains(&it.claim))
    }

    /// The attachments by name; the claims, while attachments have not been heard of.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = match self.heard {
            Some(_) => self.attached().map(ToString::to_string).collect(),
            None => self.owed.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect(),
        };
        names.sort_unstable();
        names
    }

    fn due(&self) -> Option<Mono> {
        Some(self.since? + VOLUMES_LIMIT)
    }

    /// When their time is over, if that is still ahead.
    pub(super) fn next_due(&self) -> Option<Mono> {
        self.due().filter(|_| !self.over && !self.is_over())
    }
}
