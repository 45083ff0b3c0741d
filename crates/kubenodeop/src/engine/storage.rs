//! The storage guard in an attempt: no proof while our node has the last healthy copy of a volume, unless a policy lets it
//! pass by name.
//!
//! Not here: which volumes those are (`crate::storage`), reading them (`drain`). Source: goals D14, D16.
//! Pure: no clock, no I/O, no task.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use step::Mono;

use super::words::{Failure, Limit, VolumeAction};
use crate::plan::PodFacts;
use crate::progress::{Blocker, Left, Subject, VolumeWait};
use crate::storage::{Cause, Finding, Look, VolumeState};
use kubeapi::names::listed;

/// What is known of last copies, and how long they are waited for.
#[derive(Debug)]
pub(super) struct Guard {
    limit: Limit<VolumeAction>,
    /// Volumes and claims that a policy lets pass.
    pass: BTreeSet<String>,
    /// Since when an attempt that was cut off has waited.
    mark: Option<Mono>,
    /// Since when this one waits for nothing else.
    since: Option<Mono>,
    /// What was seen last; `None` before that, `Some(None)` without such storage.
    look: Option<Option<Look>>,
    /// Why what was seen last is not what is.
    trouble: Option<Failure>,
    over: bool,
}

impl Guard {
    pub(super) fn new(limit: Limit<VolumeAction>, pass: BTreeSet<String>, mark: Option<Mono>) -> Self {
        Self { limit, pass, mark, since: None, look: None, trouble: None, over: false }
    }

    /// What the storage is now, or why that could not be read: then nothing is proved by what was seen before.
    pub(super) fn heard(&mut self, seen: Result<Option<Look>, Failure>) {
        match seen {
            Ok(look) => (self.look, self.trouble) = (Some(look), None),
            Err(failure) => self.trouble = Some(failure),
        }
    }

    /// The newest look, also one that is old.
    pub(super) fn look(&self) -> Option<&Look> {
        self.look.as_ref()?.as_ref()
    }

    /// Whether there is storage to guard, as far as is known.
    pub(super) fn is_there(&self) -> bool {
        !matches!(self.look, Some(None))
    }

    /// Whether all else is done (again) and only the storage is waited for.
    pub(super) fn wait(&mut self, now: Mono, alone: bool) {
        if !alone || self.is_proved() {
            (self.since, self.over) = (None, false);
            return;
        }
        if self.since.is_none() {
            self.since = Some(self.mark.take().map_or(now, |mark| mark.min(now)));
        }
        self.over = self.due().is_some_and(|at| at <= now);
    }

    /// The volumes whose last healthy copy is here and which no policy lets pass by name.
    fn last(&self) -> impl Iterator<Item = &Finding> {
        let all = self.look().map(|it| it.findings.as_slice()).unwrap_or_default();
        all.iter().filter(|it| it.is_last() && !self.is_passed(it))
    }

    fn is_passed(&self, finding: &Finding) -> bool {
        self.pass.iter().any(|word| finding.is_named(word))
    }

    fn is_proved(&self) -> bool {
        self.look.is_some() && self.trouble.is_none() && self.last().next().is_none()
    }

    /// Whether nothing of the storage keeps the node.
    pub(super) fn is_clear(&self) -> bool {
        self.is_proved() || (self.over && self.limit.then == VolumeAction::GoOn)
    }

    /// Whether it is known to keep the node, or could not be read: before the first answer it does not.
    pub(super) fn holds(&self) -> bool {
        (self.look.is_some() || self.trouble.is_some()) && !self.is_clear()
    }

    /// Why the attempt fails on it, if it does.
    pub(super) fn failure(&self) -> Option<String> {
        (self.over && self.limit.then == VolumeAction::GiveUp)
            .then(|| format!("{} s after all else was done, {}", self.limit_secs(), self.words()))
    }

    /// Why the storage keeps the node, a sentence without its end.
    pub(super) fn words(&self) -> String {
        let names: Vec<String> = self.last().map(ToString::to_string).collect();
        match (&self.trouble, names.is_empty()) {
            (Some(trouble), _) => format!("the state of the storage is not known: {}", trouble.text),
            (None, true) => "the state of the storage is not known yet".to_owned(),
            (None, false) => {
                let deadlock = VolumeState::LastCopy(Cause::AllCordoned);
                let more = if self.last().any(|it| it.state == deadlock) {
                    ", and all other nodes are cordoned: a deadlock while they stay so"
                } else {
                    ""
                };
                format!("the last healthy copy is here of {}{more}", listed(&names, ", "))
            }
        }
    }

    /// The volumes that keep the node, and those that are worth a look, for a person.
    pub(super) fn waits(&self) -> Vec<VolumeWait> {
        let Some(look) = self.look() else { return Vec::new() };
        let shown = look.findings.iter().filter(|it| it.state != VolumeState::Safe);
        let wait = |it: &Finding| {
            let passed = if self.is_passed(it) { "; a policy lets it pass by name" } else { "" };
            let late = if self.over && it.is_last() && !self.is_passed(it) {
                format!("; over its {} s", self.limit_secs())
            } else {
                String::new()
            };
            VolumeWait {
                volume: it.to_string(),
                words: format!("{}{passed}{late}", it.words(&look.policy)),
                next_step: it.next_step(),
                percent: it.percent,
                attached: it.attached.clone(),
            }
        };
        shown.map(wait).collect()
    }

    /// The volumes that keep the node although nothing else does, and for which no other copy is under way.
    pub(super) fn blockers(&self) -> Vec<Blocker> {
        let (Some(since), Some(look)) = (self.since, self.look()) else { return Vec::new() };
        let of = |it: &Finding| {
            let VolumeState::LastCopy(cause) = &it.state else { return None };
            let code = cause.code()?;
            let subject = Subject::Volume {
                namespace: it.claim.0.clone(),
                claim: it.claim.1.clone(),
                volume: it.volume.clone(),
            };
            let reason = format!("volume {it}: {}", it.words(&look.policy));
            Some(Blocker { subject, code, reason, since })
        };
        if self.is_clear() { Vec::new() } else { self.last().filter_map(of).collect() }
    }

    /// What passes although its last copy is here: by name, or as the time was over.
    pub(super) fn left(&self) -> Vec<Left> {
        let Some(look) = self.look() else { return Vec::new() };
        let last = look.findings.iter().filter(|it| it.is_last());
        let mut left: Vec<Left> = last
            .filter_map(|it| {
                let why = if self.is_passed(it) {
                    "its last healthy copy is here, and last_copy_pass names it".to_owned()
                } else if self.over && self.limit.then == VolumeAction::GoOn {
                    format!("its last healthy copy is here after {} s, the limit for it", self.limit_secs())
                } else {
                    return None;
                };
                Some(Left { what: format!("volume {it}"), why })
            })
            .collect();
        if self.over
            && self.limit.then == VolumeAction::GoOn
            && (self.trouble.is_some() || self.look.is_none())
        {
            left.push(Left { what: "storage".to_owned(), why: self.words() });
        }
        left
    }

    /// What the drain must leave in place meanwhile.
    pub(super) fn needs(&self) -> Needs {
        let budgets = self.look().map(|it| it.managers.clone()).unwrap_or_default();
        let managers = (self.is_there() && !self.is_clear()).then(|| self.words());
        Needs { managers, budgets }
    }

    /// Since when it is waited for.
    pub(super) fn since(&self) -> Option<Mono> {
        self.since
    }

    /// Why the state of the storage is not known, when it is not.
    pub(super) fn trouble(&self) -> Option<&Failure> {
        self.trouble.as_ref()
    }

    /// The name of the volumes in which Longhorn will make no copy by itself, though it could.
    pub(super) fn wants_copies(&self) -> impl Iterator<Item = &Finding> {
        let by_itself = self.look().is_some_and(|it| it.policy.copies_by_cordon());
        let wants = |it: &&Finding| it.state == VolumeState::LastCopy(Cause::Enough);
        self.last().filter(wants).filter(move |_| !by_itself)
    }

    fn limit_secs(&self) -> u64 {
        self.limit.after.unwrap_or(Duration::ZERO).as_secs()
    }

    fn due(&self) -> Option<Mono> {
        Some(self.since? + self.limit.after?)
    }

    /// When its time is over, if that is still ahead.
    pub(super) fn next_due(&self) -> Option<Mono> {
        self.due().filter(|_| !self.over)
    }
}

/// What the storage needs of the pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Needs {
    /// Why instance managers stay for now: copies are made from what runs in them.
    managers: Option<String>,
    /// For each instance manager: why its budget is closed, and what opens it.
    budgets: BTreeMap<String, (String, String)>,
}

impl Needs {
    /// Whether this pod is not to be asked now.
    pub(super) fn keeps(&self, facts: &PodFacts) -> bool {
        self.managers.is_some() && is_manager(facts)
    }

    /// Why it is not, as the end of a sentence.
    pub(super) fn why(&self, facts: &PodFacts) -> String {
        if self.keeps(facts) { self.managers.clone().unwrap_or_default() } else { String::new() }
    }

    /// Why the budget of this instance manager is closed, and what opens it.
    pub(super) fn budget(&self, facts: &PodFacts) -> Option<String> {
        let (why, opens) = self.budgets.get(&facts.pod.name).filter(|_| is_manager(facts))?;
        Some(format!("Longhorn keeps its budget closed: {why}; {opens}"))
    }
}

fn is_manager(facts: &PodFacts) -> bool {
    facts.labels.get("longhorn.io/component").is_some_and(|it| it == "instance-manager")
}
