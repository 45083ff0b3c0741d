//! What is said about the pods of an attempt as a whole and about one that does not leave (one code and one sentence, with names
//! and numbers); the limit for a pod and what is done about one that is over it; and when time alone changes any of it.
//!
//! Not here: the limits for volumes (`storage`), an attempt that fails by its own (`attempt`), a drain that does
//! (zedkube). Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;
use std::time::Duration;

use kubeapi::names::{PodRef, PodUid, listed};
use kubeapi::reply::Reply;
use step::{Inserted as _, Mono, SmallSort as _, say};
use topics::{Blocker, DrainMarks, number};

use super::pod_table::PodTable;
use super::track::{PodRefusal, PodState, PodTrack, SLACK};
use super::words::{Effect, LimitAction, limit};
use crate::calls::surge::SurgeAnswer;
use crate::calls::volumes::ClaimName;
use crate::changes::watched::{PermanentRefusal, RefusedCall};
use crate::plan::budget::BudgetFacts;
use crate::plan::held::UnhealthyPod;
use crate::plan::tier::HOLD_ANNOTATION;
use crate::plan::{PodFacts, held, tier};
use crate::progress;
use crate::progress::{BlockCode, sort};

/// From then on a pod that is still there is worth a mark.
const MARKED_AFTER: Duration = Duration::from_secs(30);
const MARKED: usize = 64;

impl PodTable {
    /// When [`PodTable::ask_due`] or [`PodTable::inspect`] has something to do, as far as time decides it.
    /// Whether pods are asked at all, is for the caller.
    pub(super) fn next_due(&self, now: Mono, asks: bool) -> Option<Mono> {
        let may_ask = asks && self.book.asking < self.rules.at_once;
        let due = may_ask.then(|| self.book.next_due(now)).flatten();
        // Of as many as are marked at most.
        let mark = self.book.asked.iter().take(MARKED).map(|(asked, _)| *asked + MARKED_AFTER);
        let all = [due, mark.filter(|at| *at > now).min(), self.spaces.next_due(), self.next_limit(now)];
        all.into_iter().flatten().min()
    }

    /// What holds the pods: the worst first, then by their names.
    pub(super) fn blockers(&self, now: Mono) -> Vec<Blocker> {
        let mut all: Vec<Blocker> = self.book.all().filter_map(|(_, it)| self.blocker(now, it)).collect();
        sort(&mut all);
        all
    }

    /// Why the attempt fails on pods that are still there, if it does.
    pub(super) fn failure(&self) -> Option<String> {
        if self.given_up.is_none() && self.book.only_refused() {
            let mut names: Vec<String> =
                self.book.in_state(&PodState::Ended).map(|it| it.facts.pod.to_string()).collect();
            names.order();
            return Some(format!("the API server refuses to evict {}", listed(&names, ", ")));
        }
        self.given_up.clone()
    }

    /// The calls that the server refused for good.
    pub(super) fn refused_calls(&self) -> Vec<PermanentRefusal> {
        let of = |track: &PodTrack| {
            let refusal = track.refusal.as_ref()?;
            let Reply::Permanent { by, .. } = refusal.reply else { return None };
            Some(PermanentRefusal { call: RefusedCall::Leave(refusal.way, track.facts.guarded()), by })
        };
        self.book.in_state(&PodState::Ended).filter_map(of).collect()
    }

    /// The pods of virtual machines that have not ended.
    pub(super) fn launchers(&self) -> Vec<PodRef> {
        let runs = |it: &&PodTrack| tier::is_machine(&it.facts.labels) && !it.facts.finished && it.is_here();
        self.book.all().map(|(_, track)| track).filter(runs).map(|it| it.facts.pod.clone()).collect()
    }

    /// Names of the pods that are to leave and are not gone.
    pub(super) fn left_names(&self) -> Vec<String> {
        let here = self.book.all().filter(|(_, track)| track.is_here());
        let mut names: Vec<String> = here.map(|(_, track)| track.facts.pod.to_string()).collect();
        names.order();
        names
    }

    /// What a rule lets stay, or had deleted.
    pub(super) fn left(&self) -> Vec<String> {
        let why = |track: &PodTrack| {
            if track.state == PodState::Left {
                return Some(format!("it stays: {}", self.why_left(track)));
            }
            let text = "no container of it runs, by the container runtime; its object is still there, past its grace period";
            (track.state == PodState::ObjectOnly).then(|| text.to_owned())
        };
        let without = |track: &PodTrack| match &track.copy {
            Some(SurgeAnswer::Without(why)) if !track.is_on_node() => {
                Some(format!("it left without a second copy elsewhere: {why}"))
            }
            Some(_) | None => None,
        };
        let of = |track: &PodTrack| {
            let pod = &track.facts.pod;
            [why(track), without(track)]
                .into_iter()
                .flatten()
                .map(|it| format!("{pod}: {it}"))
                .collect::<Vec<_>>()
        };
        let mut all: Vec<String> = self.book.all().flat_map(|(_, track)| of(track)).collect();
        all.extend(self.deleted.iter().cloned());
        let pods = || self.book.all().map(|(_, track)| &track.facts);
        all.extend(pods().filter_map(PodFacts::hold_refused));
        all.extend(tier::undisturbed(pods()));
        all.order();
        all
    }

    /// The claims of pods that are gone, without those that a pod uses which stays.
    pub(super) fn owed(&self) -> BTreeSet<ClaimName> {
        if self.book.claims.is_empty() {
            return BTreeSet::new();
        }
        let mut owed = self.book.claims.clone();
        for claim in self.stays.values().flatten() {
            owed.remove(claim);
        }
        for track in self.book.in_state(&PodState::Left) {
            for claim in &track.facts.claims {
                owed.remove(&(track.facts.pod.namespace.clone(), claim.clone()));
            }
        }
        owed
    }

    /// The pods that are worth a mark, with the time since when they are being asked to leave.
    fn marked(&self, now: Mono) -> impl Iterator<Item = &(Mono, PodUid)> {
        self.book.asked.iter().take_while(move |(asked, _)| *asked + MARKED_AFTER <= now).take(MARKED)
    }

    /// What a restart must not forget about the pods.
    pub(super) fn marks(&self, now: Mono) -> DrainMarks {
        DrainMarks {
            pods_ms: self.marked(now).map(|(asked, uid)| (uid.to_string(), asked.as_ms())).into_map(),
            returns: self.returns.marks(),
            claims: self.book.all_claims(),
            ..DrainMarks::default()
        }
    }
}

/// Why one pod does not leave.
impl PodTable {
    /// What holds the pod, when something does.
    fn blocker(&self, now: Mono, track: &PodTrack) -> Option<Blocker> {
        let (pod, (given_up, by)) = (&track.facts.pod, &self.given_up_at);
        let named = |code, reason, since| Some(progress::blocker(&pod.clone().into(), code, reason, since));
        if let (PodState::Going { since }, Some((silent, words))) = (&track.state, &self.silent) {
            let reason = format!("the kubelet of this node is silent ({words}), so pod {pod} does not end");
            return named(BlockCode::KubeletSilent, reason, *since.max(silent));
        }
        let (code, reason, since) = match (&track.state, &track.refusal) {
            (PodState::Gone | PodState::ObjectOnly | PodState::Left, _) => return None,
            (PodState::Waiting { .. } | PodState::Asking { .. }, _) if track.sticky => {
                let workload = &track.facts.workload;
                let returns = number(self.returns.count(&track.facts), "time");
                let reason =
                    format!("pod {pod} is not asked any more: its {workload} has come back here {returns}");
                return named(BlockCode::Sticky, reason, track.asked.unwrap_or(now));
            }
            (PodState::Waiting { .. } | PodState::Asking { .. }, _)
                if let Some(SurgeAnswer::UnderWay(deployment)) = &track.copy =>
            {
                let secs = self.rules.surge_limit.as_secs();
                let reason = format!(
                    "pod {pod} is not evicted yet: Deployment {deployment} makes a second copy on another node first, for {secs} s \
                     at most"
                );
                return named(BlockCode::Surge, reason, track.asked.unwrap_or(now));
            }
            (PodState::Waiting { .. }, _)
                if let (Some((since, _)), Some(hold)) = (track.held, &track.facts.hold) =>
            {
                let reason =
                    format!("pod {pod} is not evicted before {}, as {HOLD_ANNOTATION} says", hold.text);
                return named(BlockCode::HeldUntil, reason, since);
            }
            (PodState::Waiting { .. } | PodState::Ended, _) if track.kept.is_some() => {
                let (code, why) = self.needs.why(&track.facts)?;
                return named(
                    code,
                    format!("pod {pod} is not evicted yet: {why}"),
                    track.kept.unwrap_or(now),
                );
            }
            (PodState::Waiting { .. } | PodState::Asking { .. } | PodState::Ended, Some(refusal))
                if track.told =>
            {
                let (code, reason) = match self.needs.budget(&track.facts) {
                    Some(why) if track.is_held_by_budget() => {
                        (BlockCode::StorageManager, format!("pod {pod}: {why}"))
                    }
                    Some(_) | None => self.refused(track, refusal),
                };
                (code, reason, refusal.since)
            }
            (PodState::Going { since }, _) if track.overdue_at().is_some_and(|at| at <= now) => {
                let reason = match track.facts.finalizers.as_slice() {
                    [] => {
                        let grace = track.facts.grace.as_secs();
                        let runs = if track.lives { "; its containers still run" } else { "" };
                        format!("pod {pod} was asked to end and is still there after its {grace} s{runs}")
                    }
                    held => format!(
                        "pod {pod} was asked to end; its object stays for finalizer {}",
                        listed(held, ", ")
                    ),
                };
                (BlockCode::SlowToEnd, reason, *since)
            }
            (PodState::Going { since }, _) if *since + track.facts.grace > *given_up => {
                let reason = format!(
                    "pod {pod} was asked to end and may take its grace period of {} s, which passes the limit {by}",
                    track.facts.grace.as_secs()
                );
                (BlockCode::LongGrace, reason, *since)
            }
            (PodState::Going { since }, _) if track.over => {
                (BlockCode::OverTime, format!("pod {pod} was asked to end and is still there"), *since)
            }
            (_, _) if track.over => (
                BlockCode::OverTime,
                format!("pod {pod} is being asked to leave"),
                track.asked.unwrap_or(now),
            ),
            (_, _) => return None,
        };
        if !track.over || track.state == PodState::Ended {
            let found = named(code, reason, since)?;
            return Some(held::advised(found, &track.facts, &self.spaces.guards(&track.facts)));
        }
        let code = if code == BlockCode::LongGrace { code } else { BlockCode::OverTime };
        let limit = limit(self.rules.pod.after.unwrap_or_default(), "a pod");
        named(code, format!("{reason}; it is over the limit {limit}"), since)
    }

    fn refused(&self, track: &PodTrack, refusal: &PodRefusal) -> (BlockCode, String) {
        let (pod, text) = (&track.facts.pod, refusal.reply.text());
        let reason = match &refusal.reply {
            Reply::Budget { .. } | Reply::ManyBudgets { .. } => return self.by_budget(track, refusal),
            Reply::Moving { .. } => format!("pod {pod} leaves with its virtual machine: {text}"),
            Reply::CannotMove { .. } => format!("pod {pod} stays with its virtual machine: {text}"),
            Reply::Responding { .. } => format!("pod {pod} is left to its eviction responders: {text}"),
            Reply::NamespaceEnding { .. } => held::by_namespace(pod, text),
            Reply::Throttle { .. } => {
                format!("pod {pod} is retried: the API server is throttling (429): {text}")
            }
            Reply::Denied { .. } | Reply::Unanswered { .. } => {
                format!("pod {pod} is not admitted to leave yet, and asked again: {text}")
            }
            Reply::Permanent { .. } => format!("pod {pod} cannot be evicted: {text}"),
            Reply::Done
            | Reply::NotFound { .. }
            | Reply::UidChanged
            | Reply::Conflict { .. }
            | Reply::Expired
            | Reply::Transient { .. } => format!("pod {pod} is retried: its eviction failed: {text}"),
        };
        (refusal.code, reason)
    }

    fn by_budget(&self, track: &PodTrack, refusal: &PodRefusal) -> (BlockCode, String) {
        let (pod, text) = (&track.facts.pod, refusal.reply.text());
        let guards = self.spaces.guards(&track.facts);
        if guards.is_empty() {
            let many = refusal.code == BlockCode::ManyBudgets;
            let why = if many { "has more than one budget" } else { "is held by a disruption budget" };
            return (refusal.code, format!("pod {pod} {why}: {text}"));
        }
        let full = guards.iter().filter(|budget| !budget.admits(track.facts.ready));
        let hindrances: Vec<&UnhealthyPod> = full.flat_map(|budget| self.spaces.hindrances(budget)).collect();
        let (code, reason) = held::by_budgets(&track.facts, &guards, &hindrances, refusal.code);
        let behind = guards.iter().filter_map(|budget| Some((budget, self.spaces.ready(budget)?)));
        let behind: Vec<String> = behind
            .map(|(BudgetFacts { namespace, name, healthy, .. }, ready)| {
                format!(
                    "the numbers of budget {namespace}/{name} are behind: {ready} of its pods are Ready, not {healthy}; \
                     Kubernetes was made to count them again"
                )
            })
            .collect();
        if behind.is_empty() {
            (code, reason)
        } else {
            (refusal.code, format!("{reason}; {}", behind.join("; ")))
        }
    }
}

/// How long a pod that was never Ready is held by a budget, from its first eviction call, before a rule may delete it.
const NEVER_READY_HOLD: Duration = Duration::from_mins(10);

impl PodTable {
    /// Does what is due about pods that are over their time.
    pub(super) fn enforce(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        self.end_holds(now);
        if let Some(after) = self.rules.pod.after {
            while let Some((asked, uid)) = self.book.first_in_time().cloned() {
                if asked + after > now {
                    break;
                }
                let pod = self.book.change(&uid, |track| {
                    track.over = true;
                    if track.code() == Some(BlockCode::Responder) {
                        track.hurry(now);
                    }
                    track.facts.pod.clone()
                });
                if let Some(pod) = pod.filter(|_| self.rules.pod.then == LimitAction::GiveUp) {
                    let secs = after.as_secs();
                    let reason = format!("pod {pod} has not left within {secs} s, the limit for a pod");
                    self.given_up.get_or_insert(reason);
                    return;
                }
                self.settle(now, &uid, effects);
            }
        }
        self.remove_never_ready(now);
    }

    /// Keeps a pod as long as its annotation says, from how far ahead that was when it was read; the limits of a pod and of
    /// the whole drain leave it the time to end.
    pub(super) fn hold(&mut self, now: Mono, uid: &PodUid, effects: &mut Vec<Effect>) {
        let Some(track) = self.book.get(uid) else { return };
        let facts = &track.facts;
        if let Some(why) = facts.hold_refused() {
            say!(effects, warn, "{why}");
        }
        let since = track.held.map_or(now, |it| it.0);
        let ahead = facts.hold.as_ref().and_then(|it| it.ahead.ok());
        let ahead = ahead.filter(|_| !facts.finished && !tier::is_machine(&facts.labels));
        let late =
            self.drain_ends.map(|at| Mono::from_start(at.since_start().saturating_sub(facts.grace + SLACK)));
        let ends = [ahead.map(|it| now + it), self.rules.pod.after.map(|it| since + it), late];
        let ends = ends.into_iter().flatten().min().filter(|at| ahead.is_some() && *at > now);
        self.holds.retain(|it| it.1 != *uid);
        self.holds.extend(ends.map(|at| (at, uid.clone())));
        self.book.change(uid, |track| track.held = ends.map(|at| (since, at)));
    }

    /// Ends the holds that are over.
    fn end_holds(&mut self, now: Mono) {
        while let Some((_, uid)) = self.holds.first().filter(|(at, _)| *at <= now).cloned() {
            self.holds.pop_first();
            self.book.change(&uid, |track| track.held = None);
        }
    }

    /// Has the pods deleted that were never Ready and that a budget holds, when their hold time is over and the rule
    /// says so.
    fn remove_never_ready(&mut self, now: Mono) {
        if self.rules.never_ready != LimitAction::GetPast {
            return;
        }
        let over = self.book.never_ready().take_while(|(asked, _)| *asked + NEVER_READY_HOLD <= now);
        let held =
            |uid: &PodUid| self.book.get(uid).is_some_and(|it| it.is_held_by_budget() && it.may_be_deleted());
        let over: Vec<PodUid> = over.map(|(_, uid)| uid.clone()).filter(held).collect();
        for uid in over {
            let secs = NEVER_READY_HOLD.as_secs();
            let why = format!("deleted whatever its budgets say: never Ready, and held for {secs} s");
            self.book.change(&uid, |track| track.delete_by_rule(now, why));
        }
    }

    /// When [`PodTable::enforce`] has something to do.
    pub(super) fn next_limit(&self, now: Mono) -> Option<Mono> {
        let pod = self.rules.pod.after.and_then(|after| Some(self.book.first_in_time()?.0 + after));
        let deletes = self.rules.never_ready == LimitAction::GetPast;
        let over = || self.book.never_ready().map(|it| it.0 + NEVER_READY_HOLD).find(|at| *at > now);
        let held = self.holds.first().map(|it| it.0);
        [pod, deletes.then(over).flatten(), held].into_iter().flatten().min()
    }
}
