//! What may keep a drain from its cordon, in this order; a drain is at the first gate that is shut.
//!
//! | Gate | Is shut by | Until | Else |
//! |---|---|---|---|
//! | (`core::context`, `core::machine`) | a whole-site operation, a node that leaves its cluster: no drain begins at all | that ends | |
//! | [`DrainGate::Start`] | the gap after the drain before it | its time | |
//! | [`DrainGate::Window`] | a person's pause | a person ends it | |
//! | [`DrainGate::Window`] | the windows, but for a person's own drain and one that a person lets start | one opens | |
//! | [`TurnGate::preflight`] | a finding: a node whose drain cannot start would hold the turn of the cluster for nothing | there is none | it fails, after as long as the tries to cordon or to drain would have taken |
//! | [`TurnGate::away`] | the Kubernetes API | it answers | the drain is skipped, where that is safe |
//! | [`TurnGate`] | the turn to be down | it is granted | |
//! | [`DrainGate::TurnAlone`] | the turn alone, for an update of k3s that needs no drain | it is confirmed | no drain |
//! | [`DrainGate::Hooks`] | the hooks before the drain | all were called | it fails, after the tries of a drain |
//!
//! A drain that continues what an earlier run of this agent was in passes windows and preflight. One that waits for its
//! turn when the window closes leaves the queue; one on its way to the cordon goes on. Without an API nobody can be
//! asked for a turn: a node waits a time by chance, that not all go together, a server goes only if etcd can spare it,
//! and nobody goes where what is known of the cluster speaks against it. Hooks are called by whoever is to cordon the
//! node; after them the turn is looked at again. Not here: when a window is open (`window`), what the preflight finds
//! (`zedkube::preflight`), whose turn it is (`outage`), the programs (`hooks`). Pure: no clock, no I/O, no task.
//!
//! Whether a drain may be skipped while the Kubernetes API is away, by what is known of the cluster.

use std::time::Duration;

use agent::settings;
use kubeapi::listed;
use kubenodeop::Progress;
use kubenodeop::node::START_THE_API;
use outage::keeper::Ask;
use step::{Dice, Fault, Mono, planted, say};
use topics::{
    Blocker, ClusterKnown, DrainPhase, DrainStatus, GoTime, NodeDrainRequest, Requester, Skip, SkipKind,
    StepWord,
};

use super::life::{CONFIRM_AGAIN, Drain, StepOutcome};
use super::run::{ApiAbsence, CordonStage, DrainEnd, DrainGate, DrainRun, Preflight, TurnGate};
use super::shown::{StateWords, words};
use crate::core::answers::Answers;
use crate::core::context::{NodeContext, Step, TURN_ALONE};
use crate::core::facts::{CordonFailure, Effect, Pass, StartObstacle, say_waits_for_turn};
use crate::limits::{PROBE_PAUSE, SKIP_SPREAD};

/// Pause before it is looked again at what was found of pods; the node is looked at as often as it is tried to cordon it.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// A gate that is shut, for a reader.
pub(super) struct Shut {
    /// Why, and what a person can do.
    pub(super) words: StateWords,
    /// When that ends, if it is known.
    pub(super) until: GoTime,
    /// What of it goes into the history.
    pub(super) steps: Vec<(StepWord, u32, String)>,
}

impl Shut {
    fn new(words: StateWords) -> Self {
        Self { words, until: GoTime::ZERO, steps: Vec::new() }
    }

    fn with_step(mut self, step: StepWord, attempt: u32, why: &str) -> Self {
        self.steps.push((step, attempt, why.to_owned()));
        self
    }
}

/// All gates: where it is and what is so.
impl Drain {
    pub(super) fn at_turn(&self) -> Option<&TurnGate> {
        if let DrainRun::AtGate(DrainGate::Turn(gate)) = &self.run { Some(gate) } else { None }
    }

    fn at_turn_mut(&mut self) -> Option<&mut TurnGate> {
        if let DrainRun::AtGate(DrainGate::Turn(gate)) = &mut self.run { Some(gate) } else { None }
    }

    /// It waits for its turn, and does not ask whether the API is there.
    pub(super) fn waits_for_turn(&self) -> Option<&TurnGate> {
        self.at_turn().filter(|it| it.away.is_none())
    }

    /// What was found of pods that would not leave.
    pub(super) fn found(&self) -> Option<&[Blocker]> {
        Some(self.at_turn()?.obstacle()?.1)
    }

    pub(super) fn shut(&self, gate: &DrainGate, answers: &Answers, node: &NodeContext) -> Shut {
        match gate {
            DrainGate::Start { .. } => Shut::new(words(DrainPhase::Checking, "request accepted", "")),
            DrainGate::Window => Self::shut_window(node),
            DrainGate::Turn(gate) => self.shut_turn(gate, answers, node),
            DrainGate::TurnAlone { .. } => Shut::new(words(
                DrainPhase::Checking,
                "has its turn, no drain is needed; confirming the turn",
                "",
            )),
            DrainGate::Hooks { running, trouble, .. } if trouble.is_empty() => {
                Shut::new(words(DrainPhase::RunningHooks, running, ""))
            }
            DrainGate::Hooks { again, trouble, .. } => {
                let (tries, all) = (self.hook_tries, node.limits.drain_tries);
                let until = again.map_or(GoTime::ZERO, |at| node.wall(at));
                let why = format!("try {tries} of {all} of the hooks before the drain failed: {trouble}");
                let next_step = "fix its cause, or remove that hook; they are tried again at Deadline, those that have run are not";
                let shut = Shut { until, ..Shut::new(words(DrainPhase::RunningHooks, why, next_step)) };
                shut.with_step(StepWord::HookFailed, tries, trouble)
            }
        }
    }

    fn shut_turn(&self, gate: &TurnGate, answers: &Answers, node: &NodeContext) -> Shut {
        let mut shut = match &gate.away {
            Some(away) if !away.trouble.is_empty() => {
                let until = away.skip_at.filter(|_| away.refused.is_none());
                let until = until.map_or(GoTime::ZERO, |at| node.wall(at));
                Shut { until, ..Shut::new(self.away_words(away, answers, node)) }
            }
            Some(_) if gate.tried == 0 => {
                let why = "checking whether the Kubernetes API is reachable";
                Shut::new(words(DrainPhase::Checking, why, ""))
            }
            // It has answered, and not about the turn: that is waited for while it is asked again.
            Some(_) | None => self.shut_fit(gate, node),
        };
        if let Some(pass) = self.window_pass(node) {
            shut.steps.insert(0, (StepWord::WindowPassed, 0, pass.by.clone()));
        }
        shut
    }

    /// The preflight, or the turn.
    fn shut_fit(&self, gate: &TurnGate, node: &NodeContext) -> Shut {
        let waiting = node.turn.waiting();
        if let Some((what, _)) = gate.obstacle() {
            let so = if node.limits.take_turns { ", so it does not wait for its turn yet" } else { " yet" };
            let why = format!("its drain cannot start{so}: {}", what.why);
            let next_step = format!("{}; it is looked at again by itself", what.next_step);
            let shut = Shut::new(words(DrainPhase::Checking, why, next_step));
            return shut.with_step(StepWord::CannotStart, 0, &what.why);
        }
        let shut = if !self.is_fit(node) {
            Shut::new(words(DrainPhase::Checking, "running the preflight checks before the drain begins", ""))
        } else if let Some(waiting) = waiting {
            let why = format!("waits for its turn to be down: {}", waiting.why);
            Shut::new(words(DrainPhase::WaitingForTurn, why, waiting.next_step()))
        } else {
            Shut::new(words(DrainPhase::WaitingForTurn, "requesting its turn to be down", ""))
        };
        let is_answered = node.turn.is_refused() || node.turn.is_unreachable();
        match waiting.filter(|_| is_answered && gate.away.is_none()) {
            Some(waiting) => shut.with_step(StepWord::WaitsForTurn, 0, &waiting.why),
            None => shut,
        }
    }
}

/// The pause and the windows.
impl Drain {
    /// Why it may not start now.
    pub(super) fn shut_out(&self, node: &NodeContext) -> Option<(StepWord, String)> {
        // REQUESTED says that it had not started when this agent restarted.
        if self.resume.is_some() || self.floor.is_some_and(|it| it != DrainStatus::Requested) {
            return None;
        }
        if let Some(pause) = node.window.paused() {
            return Some((StepWord::Paused, pause.words()));
        }
        let closed = node.window.closed.as_ref()?;
        let passes = self.serves.as_ref().is_some_and(|it| may_always(it, node));
        (!passes).then(|| (StepWord::OutsideWindow, closed.why.clone()))
    }

    /// It has to wait for a window, or `waited` already: nothing that an earlier run of this agent was in is continued, and
    /// whoever comes to wait leaves no cordon behind, as that of a COMPLETE that is void.
    pub(super) fn close(
        &mut self,
        (word, why): (StepWord, String),
        waited: bool,
        out: &mut Vec<Effect>,
    ) -> Option<StepOutcome> {
        if !waited {
            if word == StepWord::Paused {
                say!(out, warn, "the drain waits until a person ends the pause: {why}");
            } else {
                say!(out, info, "the drain waits for a window: {why}");
            }
            self.run = DrainRun::AtGate(DrainGate::Window);
        }
        let continued = self.floor.take().is_some();
        (continued || !waited).then_some(StepOutcome::TurnRefused)
    }

    /// Until it has started, the drain of a closed window works in the name of somebody who still asks, and of one who may
    /// start now before all others.
    pub(crate) fn settle_name(&mut self, answers: &Answers, node: &NodeContext) {
        if node.window.closed.is_none() || !(self.is_outside_window() || self.at_turn().is_some()) {
            return;
        }
        let is_served =
            |it: &&NodeDrainRequest| self.serves.as_ref().is_some_and(|ours| ours.id() == it.id());
        let may_start = || answers.open().filter(|it| may_always(it, node));
        let chosen = may_start().find(is_served).or_else(|| may_start().next());
        let chosen = chosen.or_else(|| answers.open().find(is_served)).or_else(|| answers.open().next());
        if let Some(chosen) = chosen.cloned() {
            self.serves = Some(chosen);
        }
    }

    /// The person's word by which it starts outside of the windows.
    pub(super) fn window_pass<'a>(&self, node: &'a NodeContext) -> Option<&'a Pass> {
        let ours = self.serves.as_ref().and_then(|it| pass_of(it, node));
        ours.filter(|_| node.window.closed.is_some())
    }

    /// It waits for a window, and nothing of it has begun.
    pub(crate) fn is_outside_window(&self) -> bool {
        self.run == DrainRun::AtGate(DrainGate::Window)
    }

    fn shut_window(node: &NodeContext) -> Shut {
        if let Some(pause) = node.window.paused() {
            let why = pause.words();
            let shut = Shut::new(words(DrainPhase::Paused, &why, pause.next_step()));
            return shut.with_step(StepWord::Paused, 0, &why);
        }
        let closed = node.window.closed.as_ref();
        let why = closed.map_or("the window is opening", |it| &it.why);
        let until = closed.and_then(|it| it.opens).unwrap_or(GoTime::ZERO);
        let first = if until.is_zero() { "fix what keeps them closed" } else { "wait" };
        let step = format!("{first}; to start it now all the same: `zedbox go --past window --reason '...'`");
        let shut = Shut { until, ..Shut::new(words(DrainPhase::OutsideWindow, why, step)) };
        shut.with_step(StepWord::OutsideWindow, 0, why)
    }
}

/// Whether windows do not keep this request waiting.
fn may_always(request: &NodeDrainRequest, node: &NodeContext) -> bool {
    request.requested_by == Requester::Operator || pass_of(request, node).is_some()
}

fn pass_of<'a>(request: &NodeDrainRequest, node: &'a NodeContext) -> Option<&'a Pass> {
    node.window.pass.as_ref().filter(|it| it.of == request.id())
}

/// The preflight. Only a node that waits for a turn, or has yet to cordon, looks; one that has its turn, or continues what
/// it was in, drains.
impl Drain {
    /// Nothing is known that would keep it from starting.
    pub(crate) fn is_fit(&self, node: &NodeContext) -> bool {
        let looks = node.limits.preflight && !self.turn_alone;
        // Whatever continues what it was in is not kept from it.
        let continues = self.resume.is_some() || self.floor.is_some();
        !looks || continues || self.at_turn().is_none_or(|it| it.preflight == Preflight::Clean)
    }

    /// When it is looked again, or given up.
    pub(super) fn preflight_due(&self) -> Option<Mono> {
        let Preflight::Found { again, until, .. } = &self.waits_for_turn()?.preflight else { return None };
        again.iter().chain(until).min().copied()
    }

    /// Looks when that is due; gives the drain up when it could not start for too long.
    pub(crate) fn settle_preflight(&mut self, step: Step<'_>) -> Option<StepOutcome> {
        let Step { now, node, out } = step;
        let has_turn = node.limits.take_turns && node.grant().is_some();
        let looks = !self.is_fit(node) && !has_turn;
        let run_id = self.run_id;
        let gate = self.at_turn_mut().filter(|it| it.away.is_none())?;
        match &mut gate.preflight {
            // What was found counts no more: nothing of it is due.
            Preflight::Found { .. } if !looks => {
                gate.preflight = Preflight::Due;
                if !node.limits.take_turns {
                    self.probe(now, out);
                }
            }
            Preflight::Found { what, blockers, until: Some(at), .. } if now >= *at => {
                let (StartObstacle { why, next_step, of_node, .. }, blockers) =
                    (what.clone(), std::mem::take(blockers));
                if of_node {
                    return Some(self.fail(DrainEnd::FailedCordon(CordonFailure { why, next_step })));
                }
                return Some(self.give_up(0, why, Progress { blockers, ..Progress::default() }, out));
            }
            Preflight::Found { again, .. } => {
                let due = again.take_if(|at| now >= *at).is_some();
                out.extend(due.then_some(Effect::Preflight(run_id)));
            }
            Preflight::Due if looks => {
                gate.preflight = Preflight::Looking;
                out.push(Effect::Preflight(run_id));
            }
            Preflight::Due | Preflight::Looking | Preflight::Clean => {}
        }
        None
    }

    /// Hears what a look has found.
    pub(crate) fn preflighted(&mut self, found: Result<Vec<Blocker>, StartObstacle>, step: Step<'_>) {
        let Step { now, node, out } = step;
        let Some(gate) = self.at_turn_mut() else { return };
        let before = match &gate.preflight {
            Preflight::Looking => None,
            Preflight::Found { what, again: None, until, .. } => Some((what.clone(), *until)),
            Preflight::Due | Preflight::Clean | Preflight::Found { .. } => return,
        };
        let (what, blockers) = match found {
            Err(what) => (what, Vec::new()),
            Ok(blockers) => {
                let Some(first) = blockers.first() else {
                    gate.preflight = Preflight::Clean;
                    if !node.limits.take_turns {
                        self.probe(now, out);
                    }
                    return;
                };
                let next_step = format!("{}: {}", first.pod, first.next_step);
                let why = first.reason.clone();
                (StartObstacle { why, next_step, away: false, of_node: false }, blockers)
            }
        };
        if before.as_ref().is_none_or(|(it, _)| it.why != what.why) {
            say!(out, warn, "the drain cannot start yet: {}", what.why);
        }
        let limits = &node.limits;
        let (pause, limit) = if what.away {
            (PROBE_PAUSE, Duration::ZERO)
        } else if what.of_node {
            (limits.cordon_retry(), limits.cordon_retry() * limits.cordon_tries.saturating_sub(1))
        } else {
            (LOOK_AGAIN, limits.drain_retry() * limits.drain_tries.saturating_sub(1))
        };
        let away = what.away;
        let same = before.filter(|(it, _)| (it.of_node, it.away) == (what.of_node, away));
        let until = same.map_or_else(|| (!away).then_some(now + limit), |(_, until)| until);
        gate.preflight = Preflight::Found { what, blockers, again: Some(now + pause), until };
        if away {
            // Whether the drain is skipped is decided by what the keeper of the turn meets, or the probe.
            if limits.take_turns {
                out.push(Effect::Turn(Ask::Look));
            } else {
                self.probe(now, out);
            }
        }
    }
}

/// The turn to be down: waited for before the cordon, looked at after it, lost.
impl Drain {
    /// What the standing of our turn means for the drain.
    pub(crate) fn turn(&mut self, step: Step<'_>) -> Option<StepOutcome> {
        let Step { now, node, out } = step;
        let active = self.run.is_under_turn();
        let under_it = active || matches!(self.run, DrainRun::Ended(DrainEnd::Drained { .. }));
        // Whoever has to wait for somebody else does not hold it, however that came.
        let refused = node.turn.waiting().filter(|_| under_it && node.turn.is_refused());
        if let Some(why) = node.turn.lost().or(refused.map(|it| it.why.as_str())) {
            let why = why.to_owned();
            if active {
                say!(
                    out,
                    warn,
                    "the turn to be down is no longer ours: the drain ends, our cordon goes, and it queues again: {why}"
                );
                self.end(None, out);
            }
            return Some(StepOutcome::TurnLost(why));
        }
        let waits = self.waits_for_turn()?.again.is_some();
        if node.grant().is_some() {
            return self.begin_cordon(now, node, out);
        }
        if node.turn.is_unreachable() {
            if !waits {
                self.probe(now, out);
            }
        } else if let Some(waiting) = node.turn.waiting().filter(|_| node.turn.is_refused()) {
            self.wait_for_turn();
            say_waits_for_turn(&waiting.why, out);
            if self.resume.take().is_some() | self.floor.take().is_some() {
                return Some(StepOutcome::TurnRefused);
            }
        }
        None
    }

    /// Nothing was tried yet; what the preflight has found counts on.
    fn wait_for_turn(&mut self) {
        if let Some(gate) = self.at_turn_mut() {
            (gate.tried, gate.again, gate.away) = (0, None, None);
        }
    }

    /// The API answers. As long as it does not about the turn, because it throttles, refuses, or lists no such node, the
    /// drain waits for that as for the API itself: nothing has been tried, and the keeper of the turn asks again.
    fn reached(&mut self, now: Mono, node: &NodeContext, out: &mut Vec<Effect>) -> Option<StepOutcome> {
        if !node.limits.take_turns && !self.is_fit(node) {
            // The API was away when it was looked.
            self.wait_for_turn();
            return None;
        }
        if node.grant().is_some() {
            return self.begin_cordon(now, node, out);
        }
        let Some(waiting) = node.turn.waiting().filter(|_| node.turn.is_unreachable()) else {
            self.wait_for_turn();
            return self.turn(Step { now, node, out });
        };
        let gate = self.at_turn_mut()?;
        if gate.tried == 0 {
            say_waits_for_turn(&waiting.why, out);
        }
        out.push(Effect::Turn(Ask::Look));
        (gate.away, gate.again) = (None, Some(now + node.limits.cordon_retry()));
        gate.tried = gate.tried.saturating_add(1);
        None
    }

    /// Hears whether the turn is still ours, after the cordon or before another try of it. That it is not is heard as its
    /// standing, too.
    pub(crate) fn turn_confirmed(&mut self, ours: bool, step: Step<'_>) -> Option<StepOutcome> {
        let Step { now, node, out } = step;
        if let DrainRun::Cordoning(CordonStage::Confirming { again })
        | DrainRun::AtGate(DrainGate::TurnAlone { again }) = &mut self.run
            && !ours
        {
            *again = now + PROBE_PAUSE;
        } else if let DrainRun::Cordoning(CordonStage::Confirming { .. }) = self.run {
            self.first_attempt(now, node, out);
        } else if let DrainRun::AtGate(DrainGate::TurnAlone { .. }) = self.run {
            self.run = DrainRun::Ended(DrainEnd::Skipped(Skip::other(TURN_ALONE)));
            return Some(StepOutcome::TurnAlone);
        } else if let DrainRun::Cordoning(CordonStage::Trying { again, .. }) = &mut self.run
            && ours
            && again.take().is_some()
        {
            return self.send_cordon(node, out);
        }
        None
    }

    /// The way to the cordon is free.
    fn begin_cordon(&mut self, now: Mono, node: &NodeContext, out: &mut Vec<Effect>) -> Option<StepOutcome> {
        // The window may have closed while it was on its way to a cordon for which the turn was missing.
        if let Some(closed) = self.shut_out(node) {
            return self.close(closed, false, out);
        }
        if self.turn_alone && node.limits.take_turns {
            out.push(Effect::Turn(Ask::Confirm));
            self.run = DrainRun::AtGate(DrainGate::TurnAlone { again: now + CONFIRM_AGAIN });
            return None;
        }
        self.run = DrainRun::Cordoning(CordonStage::first(1, None));
        // A look that removes a cordon of before must not remove this one.
        out.push(Effect::Cancel);
        self.send_cordon(node, out)
    }

    /// Whether a turn is needed as the drain is, or kept if there is one.
    pub(crate) fn wants_turn(&self, node: &NodeContext) -> bool {
        let keeps = self.is_taken() && node.turn.held().is_some();
        self.at_turn().is_some() || keeps || self.run.is_under_turn()
    }

    /// It was taken, or waits for its turn, and the node is not cordoned for it.
    pub(crate) fn waits_in_service(&self, node: &NodeContext) -> bool {
        (self.is_taken() || self.at_turn().is_some()) && !self.keeps_cordon(node)
    }
}

/// The API, before a drain has begun.
impl Drain {
    /// Asks whether the API is there.
    pub(super) fn probe(&mut self, now: Mono, out: &mut Vec<Effect>) {
        out.push(Effect::Probe(self.run_id));
        if let Some(gate) = self.at_turn_mut() {
            let away = ApiAbsence { since: now, trouble: String::new(), skip_at: None, refused: None };
            (gate.again, gate.away) = (None, Some(away));
        }
    }

    /// How the API is away, while an answer of it is awaited; and when it is asked again.
    fn probing(&mut self) -> Option<(&mut ApiAbsence, &mut Option<Mono>)> {
        let TurnGate { again, away, .. } = self.at_turn_mut().filter(|it| it.again.is_none())?;
        Some((away.as_mut()?, again))
    }

    /// Hears whether the API can be reached; and whether the drain may be skipped for anybody who waits.
    pub(crate) fn probed(
        &mut self,
        (result, may_skip_it): (Result<(), String>, bool),
        step: Step<'_>,
    ) -> Option<StepOutcome> {
        let Step { now, node, out } = step;
        let limit = node.properties.time(settings::DRAIN_SKIP);
        // A drain that was under way holds: an API that is away for one cause would release every draining node.
        let under_way = self.resume.is_some() || !may_skip_it;
        let run = self.run_id;
        let (away, again) = self.probing()?;
        let Err(trouble) = result else { return self.reached(now, node, out) };
        away.trouble = trouble;
        let pause = now + PROBE_PAUSE;
        if now.since(away.since) < limit || under_way || planted(Fault::K2) {
            *again = Some(if under_way { pause } else { pause.min(away.since + limit) });
            return None;
        }
        if !node.limits.take_turns {
            return self.skip_away("", Step { now, node, out });
        }
        let may = may_skip(&node.known);
        let at = match &may {
            May::Now => return self.skip_away("no other node is known", Step { now, node, out }),
            May::No(why) => return self.refuse_skip(now, why.clone(), out),
            May::Later | May::WithMargin { .. } => *away.skip_at.get_or_insert_with(|| {
                let later = by_chance(&node.boot_id, SKIP_SPREAD);
                say!(
                    out,
                    warn,
                    "isExtendedKubeAPIUnreachable the Kubernetes API is away: the drain is skipped in {} s, a time by chance",
                    later.as_secs()
                );
                now + later
            }),
        };
        if now < at {
            *again = Some(pause.min(at));
        } else if let May::WithMargin { lacks_etcd } = may {
            out.push(Effect::Margin { run, lacks_etcd, trouble: away.trouble.clone() });
        } else {
            return self.skip_away("", Step { now, node, out });
        }
        None
    }

    /// Hears whether etcd can spare this node, and why, when the API is away.
    pub(crate) fn spared(&mut self, result: Result<String, String>, step: Step<'_>) -> Option<StepOutcome> {
        match result {
            Ok(why) => self.skip_away(&why, step),
            Err(why) => self.refuse_skip(step.now, why, step.out),
        }
    }

    fn refuse_skip(&mut self, now: Mono, why: String, out: &mut Vec<Effect>) -> Option<StepOutcome> {
        let (away, again) = self.probing()?;
        *again = Some(now + PROBE_PAUSE);
        if away.refused.as_ref() != Some(&why) {
            say!(
                out,
                warn,
                "isExtendedKubeAPIUnreachable the Kubernetes API is away, and the drain is not skipped: {why}"
            );
            away.refused = Some(why);
        }
        None
    }

    /// The documented skip; `why` it may be, where that is not plain.
    fn skip_away(&mut self, why: &str, step: Step<'_>) -> Option<StepOutcome> {
        let Step { now, node, out } = step;
        let limit = node.properties.time(settings::DRAIN_SKIP);
        let (ApiAbsence { since, trouble, skip_at, .. }, _) = self.probing()?;
        let later = now.since(*since).saturating_sub(limit).as_secs();
        let mut parts =
            vec![format!("the Kubernetes API was not reachable for {} s: {trouble}", limit.as_secs())];
        if skip_at.is_some() {
            parts.push(format!("skipped {later} s later, so that nodes do not go together"));
        }
        if !why.is_empty() {
            parts.push(why.to_owned());
        }
        Some(self.skip(Skip { kind: SkipKind::ApiUnreachable, text: parts.join("; ") }, out))
    }

    /// What an API that is away before the drain has begun leads to.
    fn away_words(&self, away: &ApiAbsence, answers: &Answers, node: &NodeContext) -> StateWords {
        let mut reason = format!("the Kubernetes API is not reachable: {}", away.trouble);
        let secs = node.properties.time(settings::DRAIN_SKIP).as_secs();
        let after = format!("if it stays unreachable for {secs} s");
        let later = SKIP_SPREAD.as_secs();
        let may = if node.limits.take_turns { may_skip(&node.known) } else { May::Now };
        let refused = match &may {
            May::No(why) => Some(why),
            May::Now | May::Later | May::WithMargin { .. } => away.refused.as_ref(),
        };
        let spared = if may == May::Later { "" } else { ", if etcd can spare this node then" };
        let then = if self.resume.is_some() || !answers.may_go_without() {
            "the drain is not skipped and continues by itself once it answers".to_owned()
        } else if let Some(why) = refused {
            reason = format!("{reason}; the drain is not skipped for that: {why}");
            self.force_words(answers).to_owned()
        } else if may == May::Now {
            format!("{after}, the operation goes ahead WITHOUT a drain")
        } else if away.skip_at.is_none() {
            format!(
                "{after}, and up to {later} s more by chance, the operation goes ahead WITHOUT a drain{spared}"
            )
        } else {
            reason = format!(
                "{reason}; the drain is skipped at Deadline{spared}: each node waits a time by chance, up to {later} s, so \
                 that they do not go together"
            );
            "it continues by itself once the API answers".to_owned()
        };
        words(DrainPhase::Checking, reason, format!("{START_THE_API}; {then}"))
    }

    /// What a person can type who does not want to wait.
    pub(super) fn force_words(&self, answers: &Answers) -> &'static str {
        match answers.shown(self.serves.as_ref()).requested_by {
            Requester::Operator => "`zedbox undrain` withdraws your request",
            Requester::NodeMaintenance => "deleting its NodeMaintenance withdraws the request",
            Requester::K3sUpdate => {
                "k3s.version and k3s.config.override as before in the device config withdraw it"
            }
            Requester::Update
            | Requester::DeviceOp
            | Requester::Unset
            | Requester::None
            | Requester::Stranger(_) => {
                "`zedbox go --past drain --reason '...'` lets the operation go ahead without the rest of the drain"
            }
        }
    }
}

/// The hooks before the drain.
impl Drain {
    /// Hears that a hook is being called.
    pub(crate) fn hooking(&mut self, running: String) {
        if let DrainRun::Cordoning(CordonStage::Trying { again: None, .. })
        | DrainRun::AtGate(DrainGate::Hooks { .. }) = self.run
        {
            self.run = DrainRun::AtGate(DrainGate::Hooks { running, again: None, trouble: String::new() });
        }
    }

    /// Hears that all were called, or why that has to stop here.
    pub(crate) fn hooked(&mut self, result: Result<(), String>, step: Step<'_>) -> Option<StepOutcome> {
        let Step { now, node, out } = step;
        let DrainRun::AtGate(DrainGate::Hooks { .. }) = self.run else { return None };
        let Err(trouble) = result else {
            self.go_to_cordon(now);
            return None;
        };
        self.hook_tries += 1;
        let (tries, all) = (self.hook_tries, node.limits.drain_tries);
        say!(out, warn, "the hooks before the drain have failed, try {tries} of {all}: {trouble}");
        if tries < all {
            let again = Some(now + node.limits.drain_retry());
            self.run = DrainRun::AtGate(DrainGate::Hooks { running: String::new(), again, trouble });
            return None;
        }
        Some(self.give_up(0, trouble, Progress::default(), out))
    }

    /// The next step is the cordon, after another look at the turn: what came before has taken its time.
    pub(super) fn go_to_cordon(&mut self, now: Mono) {
        self.run = DrainRun::Cordoning(CordonStage::first(0, Some(now)));
    }
}

/// What is known not to be there.
const NONE: &str = "none";
/// The role of a node without control plane and etcd.
const WORKER: &str = "worker";

/// Whether the drain may be skipped, as far as this node knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum May {
    /// There is nobody to wait for.
    Now,
    /// After the time by chance.
    Later,
    /// The same, if etcd can spare this node then; `lacks_etcd`: one without etcd has no quorum to keep.
    WithMargin { lacks_etcd: bool },
    /// Not, for this reason.
    No(String),
}

pub(super) fn may_skip(known: &ClusterKnown) -> May {
    let ClusterKnown { role, alone, servers, servers_out, volume, addresses: _ } = known;
    if role.is_empty() {
        // It has never seen its cluster: whether it is a server is in its own files.
        return May::WithMargin { lacks_etcd: true };
    }
    if *alone {
        return May::Now;
    }
    if !servers_out.is_empty() && servers.iter().all(|it| servers_out.contains(it)) {
        return May::No(format!(
            "the API is away because of a turn: the Lease was last seen held by server {}, and no other server is \
             known",
            listed(servers_out, ", ")
        ));
    }
    match volume.as_str() {
        NONE => {}
        "" => {
            return May::No("it is not known whether last replicas of Longhorn volumes are here".to_owned());
        }
        name => return May::No(format!("the last healthy replica of Longhorn volume {name} is here")),
    }
    if role == WORKER { May::Later } else { May::WithMargin { lacks_etcd: servers.is_empty() } }
}

/// A time up to `longest` that differs from node to node, and stays the same over a restart in the same boot.
pub(super) fn by_chance(boot_id: &str, longest: Duration) -> Duration {
    let seed = boot_id.bytes().fold(0_u64, |seed, it| seed.wrapping_mul(31).wrapping_add(it.into()));
    let longest = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(Dice::new(seed).draw() % longest.saturating_add(1).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u8_what_is_known_of_the_cluster_decides_who_may_be_skipped() {
        let known = |role: &str, servers: &[&str], out: &[&str], volume: &str| ClusterKnown {
            role: role.to_owned(),
            alone: false,
            servers: servers.iter().map(|it| (*it).to_owned()).collect(),
            servers_out: out.iter().map(|it| (*it).to_owned()).collect(),
            volume: volume.to_owned(),
            addresses: Vec::new(),
        };
        let alone = ClusterKnown { alone: true, ..known("server", &[], &[], "pvc-1") };
        let table = [
            (known("worker", &["s1"], &[], "none"), "Later"),
            (known("worker", &["s1"], &["s1"], "none"), "held by server s1"),
            (known("worker", &["s1", "s2"], &["s1"], "none"), "Later"),
            (known("worker", &[], &["s1"], "none"), "held by server s1"),
            (known("worker", &["s1"], &[], "pvc-1"), "volume pvc-1 is here"),
            (known("worker", &["s1"], &[], ""), "not known whether last replicas"),
            (known("server", &["s2"], &[], "none"), "WithMargin { lacks_etcd: false }"),
            (known("server", &["s2"], &["s2"], "none"), "held by server s2"),
            (known("server", &["s2"], &[], ""), "not known whether last replicas"),
            (known("server", &[], &[], "none"), "WithMargin { lacks_etcd: true }"),
            (alone, "Now"),
            (ClusterKnown::default(), "WithMargin { lacks_etcd: true }"),
        ];
        for (known, expected) in table {
            let may = format!("{:?}", may_skip(&known));
            assert!(may.contains(expected), "{known:?}: {may}");
        }
    }

    #[test]
    fn the_time_by_chance_is_within_its_limit_the_same_in_a_boot_and_another_on_another_node() {
        let longest = Duration::from_mins(10);
        let drawn: Vec<Duration> = (0..50).map(|nth| by_chance(&format!("boot-{nth}"), longest)).collect();
        assert!(drawn.iter().all(|it| *it <= longest));
        assert!(drawn.iter().min() < Some(&Duration::from_mins(2)));
        assert!(drawn.iter().max() > Some(&Duration::from_mins(8)));
        assert_eq!(by_chance("boot-7", longest), drawn[7]);
        assert_eq!(by_chance("boot-7", Duration::ZERO), Duration::ZERO);
    }
}
