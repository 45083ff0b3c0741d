//! The storage guard in an attempt: no proof while our node has the last healthy copy of a volume, unless a policy lets
//! it pass by name.
//!
//! Not here: which volumes those are (`crate::storage`), reading them (`drain`). Pure: no clock, no I/O, no task.
//!
//! The volumes of pods that have left: waited for until none of them is attached here, or their time is over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubeapi::names::{PASS_ANNOTATION, listed};
use step::{Inserted as _, LiteMap, Mono, SmallSort as _};
use topics::{Blocker, DrainMarks, StorageWait};

use super::words::{AttemptRules, CallFailure, Effect, Limit, LimitAction};
use crate::calls::volumes::{AttachmentFacts, ClaimName};
use crate::changes::watched::WatchedBlockers;
use crate::plan::PodFacts;
use crate::progress::{self, BlockCode};
use crate::storage::{Cause, ClosedBudget, StorageView, VolumeFinding, VolumeState, is_manager};

/// From a failed request for another copy to the next.
const ASK_AGAIN: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
enum CopyRequest {
    Flying,
    Done,
    /// It could not be asked for, for this reason; then again.
    Failed(Mono, String),
}

/// The storage as it was seen last.
#[derive(Debug, Default)]
enum KnownStorage {
    #[default]
    NotYet,
    Without,
    With(StorageView),
}

/// What is known of last copies, and how long they are waited for.
#[derive(Debug, Default)]
pub(crate) struct LastCopyGuard {
    limit: Limit,
    /// Volumes and claims that a policy lets pass.
    pass: BTreeSet<String>,
    /// Since when an attempt that was cut off has waited.
    mark: Option<Mono>,
    /// Since when this one waits for nothing else.
    pub(super) since: Option<Mono>,
    known: KnownStorage,
    /// Why what was seen last is not what is.
    pub(super) trouble: Option<CallFailure>,
    /// Volumes of which another copy was asked for in this attempt.
    asked: LiteMap<String, CopyRequest>,
    over: bool,
    moved: BTreeSet<String>,
}

impl LastCopyGuard {
    pub(crate) fn new(rules: &AttemptRules, marks: &DrainMarks) -> Self {
        Self {
            limit: rules.last_copy,
            pass: rules.last_copy_pass.clone(),
            mark: Mono::of_ms(marks.storage_ms),
            ..Self::default()
        }
    }

    /// What the storage is now, or why that could not be read: then nothing is proved by what was seen before.
    pub(crate) fn take_view(&mut self, seen: Result<Option<StorageView>, CallFailure>) {
        // What was asked for before a restart.
        for it in seen.iter().flatten().flat_map(|it| &it.findings).filter(|it| it.asked) {
            self.asked.entry(it.volume.clone()).or_insert(CopyRequest::Done);
        }
        match seen {
            Ok(look) => {
                (self.known, self.trouble) = (look.map_or(KnownStorage::Without, KnownStorage::With), None);
            }
            Err(failure) => self.trouble = Some(failure),
        }
    }

    /// The newest look, also one that is old.
    pub(super) fn look(&self) -> Option<&StorageView> {
        match &self.known {
            KnownStorage::With(look) => Some(look),
            KnownStorage::NotYet | KnownStorage::Without => None,
        }
    }

    fn is_known(&self) -> bool {
        !matches!(self.known, KnownStorage::NotYet)
    }

    /// Whether there is storage to guard, as far as is known.
    pub(super) fn is_there(&self) -> bool {
        !matches!(self.known, KnownStorage::Without)
    }

    /// All else is done (again), or not, and only the storage is waited for, with who `stays` for a claim: whether its time is
    /// over now, or no more.
    pub(crate) fn wait(&mut self, now: Mono, alone: bool, stays: impl Fn(&ClaimName) -> bool) -> bool {
        let was_over = self.over;
        self.moved = self.moved_now(stays);
        self.wait_for(now, alone);
        self.over != was_over
    }

    fn wait_for(&mut self, now: Mono, alone: bool) {
        // Once it goes on, what it lets go leaves too.
        if self.is_settled() || !(alone || self.goes_on()) {
            (self.since, self.over) = (None, false);
            return;
        }
        if self.since.is_none() {
            self.since = Some(self.mark.take().map_or(now, |mark| mark.min(now)));
        }
        self.over = self.due().is_some_and(|at| at <= now);
    }

    /// The volumes whose last healthy copy is here and which no policy lets pass by name.
    fn last(&self) -> impl Iterator<Item = &VolumeFinding> {
        self.kept().filter(|it| it.is_last())
    }

    /// These, and those that Longhorn moves away from under who uses them here.
    fn kept(&self) -> impl Iterator<Item = &VolumeFinding> {
        let all = self.look().map(|it| it.findings.as_slice()).unwrap_or_default();
        let keeps = |it: &&VolumeFinding| it.is_last() || self.moved.contains(&it.volume);
        all.iter().filter(keeps).filter(|it| !it.is_passed(&self.pass))
    }

    /// Volumes that Longhorn moves away from under who stays for them; once these go on they stay listed.
    fn moved_now(&self, stays: impl Fn(&ClaimName) -> bool) -> BTreeSet<String> {
        let Some(look) = self.look() else { return BTreeSet::new() };
        let listed = |it: &VolumeFinding| self.goes_on() && self.moved.contains(&it.volume);
        let moved = |it: &&VolumeFinding| {
            !it.is_last() && it.keeps_user(&look.policy).is_some() && (stays(&it.claim) || listed(it))
        };
        look.findings.iter().filter(moved).map(|it| it.volume.clone()).into_set()
    }

    /// What is worth another attempt when it changes.
    pub(crate) fn watched(&self) -> WatchedBlockers {
        let of = |it: &VolumeFinding| match &it.state {
            VolumeState::LastCopy(cause) => Some((it.volume.clone(), cause.clone())),
            VolumeState::Safe | VolumeState::Faulted | VolumeState::Unknown => None,
        };
        let last_copies = self.last().filter_map(of).into_lite();
        WatchedBlockers { last_copies, storage_unknown: self.trouble.is_some(), ..WatchedBlockers::default() }
    }

    fn is_proved(&self) -> bool {
        self.is_known() && self.trouble.is_none() && self.last().next().is_none()
    }

    /// Whether it keeps nothing, neither the node nor who uses a volume here.
    fn is_settled(&self) -> bool {
        self.is_proved() && self.kept().next().is_none()
    }

    /// Whether something of it is waited for.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.is_settled() && !self.goes_on()
    }

    /// Whether the time is over, and the node goes down with its last copies.
    fn goes_on(&self) -> bool {
        self.over && self.limit.then == LimitAction::GetPast
    }

    /// Whether nothing of the storage keeps the node.
    pub(super) fn is_clear(&self) -> bool {
        self.is_proved() || self.goes_on()
    }

    /// Whether it is known to keep the node, or could not be read: before the first answer it does not.
    pub(super) fn holds(&self) -> bool {
        (self.is_known() || self.trouble.is_some()) && !self.is_clear()
    }

    /// Why the attempt fails on it, if it does.
    pub(crate) fn failure(&self) -> Option<String> {
        (self.over && self.limit.then == LimitAction::GiveUp)
            .then(|| format!("{} s after everything else left, {}", self.limit_secs(), self.words()))
    }

    /// Why the storage keeps the node, a sentence without its end.
    pub(super) fn words(&self) -> String {
        let names: Vec<String> = self.last().map(ToString::to_string).collect();
        match (&self.trouble, names.is_empty()) {
            (Some(trouble), _) => format!("the state of the storage is not known: {}", trouble.text),
            (None, true) if self.is_known() => {
                let names: Vec<String> = self.kept().map(ToString::to_string).collect();
                format!("Longhorn still moves the copy away from this node of {}", listed(&names, ", "))
            }
            (None, true) => "the state of the storage is not known yet".to_owned(),
            (None, false) => {
                let deadlock = VolumeState::LastCopy(Cause::AllCordoned);
                let more = if self.last().any(|it| it.state == deadlock) {
                    ", and all other nodes are cordoned: uncordon one, this does not end by itself"
                } else {
                    ""
                };
                let what = if self.last().any(|it| it.needed > 0) {
                    "last healthy copies, or shards that cannot be spared,"
                } else {
                    "the last healthy copy"
                };
                format!("this node still has {what} of {}{more}", listed(&names, ", "))
            }
        }
    }

    /// The volumes that keep the node, and those that are worth a look, for a person.
    pub(crate) fn waits(&self) -> Vec<StorageWait> {
        let Some(look) = self.look() else { return Vec::new() };
        let shown = |it: &&VolumeFinding| it.state != VolumeState::Safe || self.moved.contains(&it.volume);
        let wait = |it: &VolumeFinding| {
            let failed = match self.asked.get(&it.volume) {
                Some(CopyRequest::Failed(_, text)) => format!("; another could not be asked for: {text}"),
                Some(CopyRequest::Flying | CopyRequest::Done) | None => String::new(),
            };
            let passed = match it.passed.as_str() {
                "" if it.is_passed(&self.pass) => "; allowed to go down by last_copy_pass".to_owned(),
                "" => String::new(),
                why => format!("; allowed to go down by a person: {why}"),
            };
            let late = if self.over && self.kept().any(|kept| kept.volume == it.volume) {
                format!("; over its {} s", self.limit_secs())
            } else {
                String::new()
            };
            StorageWait {
                volume: it.to_string(),
                node: it.attached.clone(),
                reason: format!("{}{failed}{passed}{late}", it.words(&look.policy)),
                next_step: it.next_step(),
                rebuilding: it.percent.is_some(),
                percent: it.percent.unwrap_or_default(),
            }
        };
        look.findings.iter().filter(shown).map(wait).collect()
    }

    /// The volumes that keep the node although nothing else does, and for which no other copy is under way.
    pub(super) fn blockers(&self) -> Vec<Blocker> {
        let (Some(since), Some(look)) = (self.since, self.look()) else { return Vec::new() };
        let of = |it: &VolumeFinding| {
            let VolumeState::LastCopy(cause) = &it.state else { return None };
            let code = cause.code()?;
            Some(progress::blocker(&it.subject(), code, it.sentence(&look.policy), since))
        };
        if self.is_clear() { Vec::new() } else { self.last().filter_map(of).collect() }
    }

    /// What passes although its last copy is here: by name, or as the time was over.
    pub(super) fn left(&self) -> Vec<String> {
        let Some(look) = self.look() else { return Vec::new() };
        let mut left: Vec<String> = look
            .findings
            .iter()
            .filter_map(|it| {
                let why = if !it.is_last() {
                    self.moved.get(&it.volume).filter(|_| self.goes_on())?;
                    format!(
                        "Longhorn still moved its copy away after {} s, the limit for it",
                        self.limit_secs()
                    )
                } else if !it.passed.is_empty() {
                    format!("{}, and {PASS_ANNOTATION} allows it: {}", it.loss(), it.passed)
                } else if it.is_passed(&self.pass) {
                    format!("{}, and last_copy_pass names it", it.loss())
                } else if self.goes_on() {
                    format!("{} after {} s, the limit for it", it.loss(), self.limit_secs())
                } else {
                    return None;
                };
                Some(format!("volume {it}: {why}"))
            })
            .collect();
        if self.goes_on() && (self.trouble.is_some() || !self.is_known()) {
            left.push(format!("storage: {}", self.words()));
        }
        left
    }

    /// What the drain must leave in place meanwhile.
    pub(super) fn needs(&self) -> StorageNeeds {
        let budgets = self.look().map(|it| it.managers.clone()).unwrap_or_default();
        let managers = (self.is_there() && !self.is_clear()).then(|| self.words());
        let unknown = !self.is_known() && self.trouble.is_none();
        StorageNeeds { unknown, managers, claims: self.in_use(), staying: self.staying(), budgets }
    }

    /// Instance managers whose budget only volumes keep closed that pass, each with why it stays: nothing opens it, and
    /// until the node goes down its data can be read.
    fn staying(&self) -> BTreeMap<String, String> {
        let Some(look) = self.look().filter(|_| self.is_clear() && self.trouble.is_none()) else {
            return BTreeMap::new();
        };
        let passes = |name: &String| {
            let found = look.findings.iter().find(|it| it.volume == *name);
            found.is_some_and(|it| it.is_last() && (it.is_passed(&self.pass) || self.over))
        };
        let stays = look.managers.iter().filter(|(_, it)| !it.by.is_empty() && it.by.iter().all(passes));
        let why = |it: &ClosedBudget| {
            format!(
                "left in place: only volumes that may go down need it, and Longhorn keeps its budget closed: {}",
                it.why
            )
        };
        stays.map(|(name, it)| (name.clone(), why(it))).into_map()
    }

    /// The volumes of which another copy is to be asked for now, as Longhorn makes none because of the cordon, each with how
    /// many are wanted; the answers come to [`LastCopyGuard::asked`].
    pub(crate) fn ask(&mut self, now: Mono) -> Vec<(String, u32)> {
        if self.trouble.is_some() || self.look().is_none_or(|it| it.policy.copies_by_cordon()) {
            return Vec::new();
        }
        let wants = |it: &&VolumeFinding| {
            it.state == VolumeState::LastCopy(Cause::Enough)
                && !matches!(self.asked.get(&it.volume), Some(CopyRequest::Flying | CopyRequest::Done))
                && !matches!(self.asked.get(&it.volume), Some(CopyRequest::Failed(again, _)) if now < *again)
        };
        let volumes: Vec<(String, u32)> =
            self.last().filter(wants).map(|it| (it.volume.clone(), it.wanted)).collect();
        for (volume, _) in &volumes {
            self.asked.insert(volume.clone(), CopyRequest::Flying);
        }
        volumes
    }

    /// What became of the request for another copy.
    pub(crate) fn asked(&mut self, now: Mono, volume: String, result: Result<(), CallFailure>) {
        let asked = match result {
            Ok(()) => CopyRequest::Done,
            Err(failure) => CopyRequest::Failed(now + ASK_AGAIN, failure.text),
        };
        self.asked.insert(volume, asked);
    }

    /// Claims whose users stay for now, each with why.
    fn in_use(&self) -> LiteMap<ClaimName, (BlockCode, String)> {
        let Some(look) = self.look().filter(|_| !self.goes_on()) else { return LiteMap::new() };
        let of = |it: &VolumeFinding| {
            let (code, text) = it.keeps_user(&look.policy)?;
            let refused = it.state == VolumeState::LastCopy(Cause::Enough)
                && matches!(self.asked.get(&it.volume), Some(CopyRequest::Failed(..)));
            Some((it.claim.clone(), (if refused { BlockCode::LastCopy } else { code }, text)))
        };
        look.findings.iter().filter(|it| !it.is_passed(&self.pass)).filter_map(of).into_lite()
    }

    /// Why who uses one of these claims is not ended now, in code and words; before the storage is known it waits for that.
    pub(crate) fn keeps(&self, namespace: &str, claims: &[String]) -> Option<(Option<BlockCode>, String)> {
        if !claims.is_empty() && !self.is_known() && self.trouble.is_none() {
            return Some((None, self.words()));
        }
        let kept = self.in_use();
        let why = claims.iter().find_map(|it| kept.get(&(namespace.to_owned(), it.clone())));
        why.map(|(code, text)| (Some(*code), text.clone()))
    }

    fn limit_secs(&self) -> u64 {
        self.limit.after.unwrap_or(Duration::ZERO).as_secs()
    }

    fn due(&self) -> Option<Mono> {
        Some(self.since? + self.limit.after?)
    }

    /// When its time is over, if that is still ahead.
    pub(crate) fn next_due(&self, now: Mono) -> Option<Mono> {
        let asked = self.asked.values().filter_map(|it| match it {
            CopyRequest::Flying | CopyRequest::Done => None,
            CopyRequest::Failed(again, _) => Some(*again),
        });
        asked.filter(|at| *at > now).chain(self.due().filter(|_| !self.over)).min()
    }
}

/// What the storage needs of the pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct StorageNeeds {
    /// Nothing is known of the storage yet: pods with volumes stay for the moment.
    unknown: bool,
    /// Claims whose pods stay for now, and why, in code and words.
    claims: LiteMap<ClaimName, (BlockCode, String)>,
    /// Why instance managers stay for now: copies are made from what runs in them.
    managers: Option<String>,
    /// For each instance manager: why its budget is closed, and what opens it.
    budgets: LiteMap<String, ClosedBudget>,
    /// Instance managers that stay with what passes, and why.
    staying: BTreeMap<String, String>,
}

impl StorageNeeds {
    /// Whether this pod is not to be asked now.
    pub(super) fn keeps(&self, facts: &PodFacts) -> bool {
        (self.unknown && !facts.claims.is_empty()) || self.why(facts).is_some()
    }

    /// Why it is not, in code and words; `None` before the storage is known.
    pub(super) fn why(&self, facts: &PodFacts) -> Option<(BlockCode, String)> {
        let claim = |name: &String| self.claims.get(&(facts.pod.namespace.clone(), name.clone()));
        match &self.managers {
            Some(words) if is_manager(facts) => Some((BlockCode::StorageManager, words.clone())),
            Some(_) | None if self.claims.is_empty() => None,
            Some(_) | None => facts.claims.iter().find_map(claim).cloned(),
        }
    }

    /// Why this pod stays on the node with what passes.
    pub(super) fn stays(&self, facts: &PodFacts) -> Option<&String> {
        self.staying.get(&facts.pod.name).filter(|_| is_manager(facts))
    }

    /// Why the budget of this instance manager is closed, and what opens it.
    pub(super) fn budget(&self, facts: &PodFacts) -> Option<String> {
        let ClosedBudget { why, opens, .. } =
            self.budgets.get(&facts.pod.name).filter(|_| is_manager(facts))?;
        Some(format!("Longhorn keeps its budget closed: {why}; {opens}"))
    }
}

/// How long volumes may take to be detached, from the moment that the last pod is gone; then the drain continues without
/// them and names them.
pub const VOLUMES_LIMIT: Duration = Duration::from_mins(10);

/// What is waited for between the last pod and the proof.
#[derive(Debug, Default)]
pub(super) struct Detaching {
    /// Since when an attempt that was cut off has waited.
    mark: Option<Mono>,
    /// Since when this one waits; `None` while pods leave.
    since: Option<Mono>,
    /// The claims that are waited for.
    owed: BTreeSet<ClaimName>,
    /// The claims whose attachments are followed.
    asked: BTreeSet<ClaimName>,
    /// What of them is attached, once that has been heard: the answer to the newest [`Effect::FollowVolumes`].
    pub(super) heard: Option<Vec<AttachmentFacts>>,
    over: bool,
}

impl Detaching {
    pub(super) fn new(mark: Option<Mono>) -> Self {
        Self { mark, ..Self::default() }
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
        names.order();
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
