//! The life of NodeDrainStatus, one drain at a time, and the cordon that is given back.
//!
//! Sources: lf-edge/eve pkg/pillar/cmd/zedkube (drain, handlenodedrain). Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use agent::settings::{self, Properties};
use nodestatus::Membership;
use step::{Core, Fault, Mono, planted};
use topics::{
    Answer, Asked, CordonOwner, DrainJournal, DrainStake, DrainStatus, GoTime, NodeDrainRequest,
    NodeDrainStatus, Requester,
};

use super::care::{NodeCare, Wanted};
use super::context::NodeContext;
use super::facts::{Effect, Event, Force, RunId, Said};
use super::lost::Silence;
use super::records::{History, Published};
use super::resume::{Before, Resume, some};
use super::run::{End, Run};
use super::void::is_drained;
use crate::limits::Limits;

/// The core of zedkube.
#[derive(Debug, Clone, PartialEq)]
pub struct Zedkube {
    pub(super) node: NodeContext,
    pub(super) care: NodeCare,
    pub(super) properties: Properties,
    pub(super) requests: BTreeMap<Requester, NodeDrainRequest>,
    pub(super) read: Vec<Requester>,
    pub(super) force: Force,
    pub(super) hold: bool,
    pub(super) run: Run,
    pub(super) run_id: RunId,
    /// The API does not answer in the middle of this drain.
    pub(super) silence: Option<Silence>,
    /// Since when, over restarts of this agent.
    pub(super) silent_since: Option<Mono>,
    /// What skipping the rest of this drain would put at risk.
    pub(super) stake: DrainStake,
    /// The request in whose name the run works.
    pub(super) serves: Option<NodeDrainRequest>,
    pub(super) started_at: GoTime,
    /// Before this no drain starts for a new request.
    pub(super) next_start: Option<Mono>,
    /// When each standing request was made.
    pub(super) asked: Vec<Asked>,
    /// The attempt of an earlier run of this agent, until it is gone on with.
    pub(super) resume: Option<Resume>,
    /// What this drain had done before the task that is at work now.
    pub(super) before: Before,
    /// What rules have let pass, in attempts that are over.
    pub(super) left: Vec<String>,
    /// What was said before this agent started anew, while the run catches up.
    pub(super) floor: Option<DrainStatus>,
    pub(super) answers: Vec<Answer>,
    /// When the second of two answered requesters is named.
    pub(super) second_from: Option<Mono>,
    pub(super) second: bool,
    /// When COMPLETE was said last; after a start in the same boot, that start.
    pub(super) complete_at: Option<Mono>,
    pub(super) published: Published,
    pub(super) history: History,
}

impl Zedkube {
    /// Who may ask, in the order in which they are named.
    pub(super) const REQUESTERS: [Requester; 3] =
        [Requester::DeviceOp, Requester::Update, Requester::Operator];

    /// Starts with what an earlier run left, and says what follows from it at once. `booted_at` is when the monotonic
    /// clock started, by the wall clock as it is now.
    #[must_use]
    pub fn new(
        limits: Limits,
        journal: Option<DrainJournal>,
        boot_id: String,
        now: Mono,
        booted_at: GoTime,
    ) -> (Self, Vec<Effect>) {
        let journal = journal.unwrap_or_default();
        let same_boot = journal.boot_id == boot_id && !planted(Fault::K7);
        let mut core = Self {
            node: NodeContext {
                limits,
                boot_id,
                booted_at,
                member: Membership::default(),
                node_known: false,
            },
            care: NodeCare::new(now, same_boot.then_some(journal.cordon)),
            properties: Properties::default(),
            requests: BTreeMap::new(),
            read: Vec::new(),
            force: Force::Absent,
            hold: false,
            run: Run::Idle,
            run_id: 0,
            silence: None,
            silent_since: None,
            stake: DrainStake::default(),
            serves: None,
            started_at: GoTime::ZERO,
            next_start: None,
            asked: Vec::new(),
            resume: None,
            before: Before::default(),
            left: Vec::new(),
            floor: None,
            answers: Vec::new(),
            second_from: None,
            second: false,
            complete_at: same_boot.then_some(now),
            published: Published::beside(journal.clone()),
            history: History::default(),
        };
        if same_boot {
            core.started_at = journal.started_at;
            core.answers.clone_from(&journal.answers);
            core.left.clone_from(&journal.left);
            core.resume = Resume::from(&journal);
            if core.resume.is_some() {
                core.silent_since = some(journal.api_silent_since_ms);
                core.stake = journal.stake;
            }
            if journal.status != DrainStatus::NotRequested {
                core.run = Run::Ended(End::Resumed(journal.status));
            }
            core.second = true;
            core.asked = journal.asked;
            if !journal.booted_at.is_zero() {
                core.node.booted_at = journal.booted_at;
                core.set_clock(now, booted_at);
            }
        }
        let mut out = Vec::new();
        core.tell(now, &mut out);
        (core, out)
    }

    /// Whether this node is in a cluster as far as drains are concerned.
    pub(super) fn is_member(&self) -> bool {
        let forced_out =
            matches!(self.force, Force::Order(order) if order.status == DrainStatus::NotSupported);
        matches!(self.node.member, Membership::Member | Membership::Leaving) && !forced_out
    }

    /// Whether it is known which requests stand.
    pub(super) fn knows_requests(&self) -> bool {
        self.read.len() == Self::REQUESTERS.len()
    }

    /// Whether a request that stands is served.
    pub(super) fn can_drain(&self) -> bool {
        self.is_member()
            && self.node.member != Membership::Leaving
            && self.node.node_known
            && self.knows_requests()
    }

    /// What time alone brings.
    pub(super) fn advance(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let run = std::mem::replace(&mut self.run, Run::Idle);
        self.run = match run {
            Run::Taken { from } if now >= from => {
                self.next_start = Some(now + self.node.limits.drain_gap()).filter(|at| *at > now);
                out.push(Effect::Say(Said::Starting));
                out.push(Effect::Probe(self.run_id));
                Run::Probing { away_since: now, again: None, trouble: String::new() }
            }
            Run::Probing { away_since, again: Some(at), trouble } if now >= at => {
                out.push(Effect::Probe(self.run_id));
                Run::Probing { away_since, again: None, trouble }
            }
            Run::Cordoning { tried, again: Some(at), trouble } if now >= at => {
                self.cordon_now(out);
                Run::Cordoning { tried: tried + 1, again: None, trouble }
            }
            Run::Pausing { attempt, until, last, .. } if now >= until => {
                self.next_attempt(now, attempt + 1, &last, out)
            }
            Run::Holding { done, attempt, last, until } if now >= until => {
                self.run = Run::Holding { done, attempt, last, until };
                out.push(Effect::Say(Said::HeldTooLong));
                return self.complete(now, out);
            }
            run @ (Run::Idle
            | Run::Taken { .. }
            | Run::Probing { .. }
            | Run::Cordoning { .. }
            | Run::Draining { .. }
            | Run::Pausing { .. }
            | Run::Holding { .. }
            | Run::Ended(_)) => run,
        };
        if self.may_look() {
            self.care.advance(now, self.wanted(), out);
        }
    }

    /// How the node is to be as things are now.
    pub(super) fn wanted(&self) -> Wanted {
        if !self.keeps_cordon() {
            Wanted::Schedulable
        } else if self.answers.iter().any(is_drained) {
            Wanted::Drained
        } else {
            Wanted::Cordoned
        }
    }

    /// A cordon of ours stays while a drain runs or is complete for a request that stands.
    pub(super) fn keeps_cordon(&self) -> bool {
        if self.node.member == Membership::Leaving {
            return true;
        }
        match &self.run {
            Run::Idle | Run::Ended(End::FailedCordon(_) | End::FailedDrain { .. }) => false,
            Run::Ended(End::Resumed(status)) => {
                !matches!(status, DrainStatus::FailedCordon | DrainStatus::FailedDrain)
            }
            Run::Taken { .. }
            | Run::Probing { .. }
            | Run::Cordoning { .. }
            | Run::Draining { .. }
            | Run::Pausing { .. }
            | Run::Holding { .. }
            | Run::Ended(End::Drained { .. } | End::Skipped(_)) => true,
        }
    }

    pub(super) fn cordon_now(&mut self, out: &mut Vec<Effect>) {
        if let Some(request) = &self.serves {
            self.care.cordon_sent();
            out.push(Effect::Cordon(self.run_id, request.clone()));
        }
    }

    pub(super) fn probed(&mut self, now: Mono, result: Result<(), String>, out: &mut Vec<Effect>) {
        let Run::Probing { away_since, again: None, .. } = self.run else { return };
        let trouble = match result {
            Ok(()) => {
                self.cordon_now(out);
                self.run = Run::Cordoning { tried: 1, again: None, trouble: String::new() };
                return;
            }
            Err(trouble) => trouble,
        };
        let limit = self.properties.time(settings::DRAIN_SKIP);
        // A drain that was under way holds: an API that is away for one cause would release every draining node.
        let under_way = self.resume.is_some();
        if now.since(away_since) >= limit && !under_way && !planted(Fault::K2) {
            let skip = format!("the Kubernetes API was not reachable for {} s: {trouble}", limit.as_secs());
            self.skip(now, skip, out);
        } else {
            let pause = now + self.node.limits.probe_pause();
            let again = if under_way { pause } else { pause.min(away_since + limit) };
            self.run = Run::Probing { away_since, again: Some(again), trouble };
        }
    }

    /// Whether the node may be looked at: one that is leaving its cluster is in other hands.
    fn may_look(&self) -> bool {
        self.node.node_known && self.knows_requests() && self.node.member != Membership::Leaving
    }

    fn joined(&mut self, now: Mono, member: Membership, out: &mut Vec<Effect>) {
        let was = self.node.member;
        if member == Membership::Undecided || member == was {
            return;
        }
        self.node.member = member;
        match member {
            Membership::Leaving => self.make_way(now, out),
            Membership::Outside if was == Membership::Leaving => self.care.left_cluster(),
            Membership::Member => self.care.joined_cluster(now),
            Membership::Undecided | Membership::Outside => {}
        }
    }

    /// The node is to leave its cluster: what is under way here ends, with the cordon left where it is. What is
    /// asked for stands, and is served or told of no cluster afterwards.
    fn make_way(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let under_way = self.run.resumed().is_some_and(DrainStatus::is_under_way);
        if self.run.is_active() || under_way {
            self.end_run(out);
            self.run = Run::Idle;
            self.answers.retain(|it| it.status.is_final());
        } else {
            out.push(Effect::Cancel);
        }
        self.care.hand_over(now);
    }

    pub(super) fn skip(&mut self, now: Mono, skip: String, out: &mut Vec<Effect>) {
        out.push(Effect::Say(Said::Skipped(skip.clone())));
        self.answer(now, DrainStatus::Complete, &skip);
        self.run = Run::Ended(End::Skipped(skip));
        self.resume = None;
    }

    pub(super) fn cordoned(&mut self, now: Mono, result: Result<CordonOwner, String>, out: &mut Vec<Effect>) {
        let Run::Cordoning { tried, again: None, .. } = self.run else { return };
        match result {
            Ok(owner) if planted(Fault::K15) => {
                self.care.cordoned(owner);
                self.skip(now, "every other node is cordoned".to_owned(), out);
            }
            Ok(owner) => {
                self.care.cordoned(owner);
                self.floor = None;
                out.push(Effect::Say(Said::Cordoned(owner)));
                self.run = self.first_attempt(now, out);
            }
            Err(trouble) => {
                out.push(Effect::Say(Said::CordonFailed(tried, trouble.clone())));
                if tried < self.node.limits.cordon_tries {
                    let again = Some(now + self.node.limits.cordon_pause());
                    self.run = Run::Cordoning { tried, again, trouble };
                } else {
                    self.fail(now, DrainStatus::FailedCordon, End::FailedCordon(trouble));
                }
            }
        }
    }

    /// A cordon of ours has to go, or might.
    pub(super) fn uncordon_soon(&mut self, now: Mono) {
        if planted(Fault::K8) { self.care.rest() } else { self.care.check_at(now) }
    }

    pub(super) fn fail(&mut self, now: Mono, status: DrainStatus, end: End) {
        self.answer(now, status, "");
        self.run = Run::Ended(end);
        self.floor = None;
        self.resume = None;
        self.uncordon_soon(now);
    }
}

impl Core for Zedkube {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, now: Mono, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        match event {
            Event::Member(member) => {
                if planted(Fault::K5) && member == Membership::Member && self.run.is_active() {
                    let requested_by = Requester::None;
                    out.push(Effect::Status(NodeDrainStatus {
                        status: DrainStatus::NotRequested,
                        requested_by,
                    }));
                }
                self.joined(now, member, &mut out);
            }
            Event::NodeKnown { name } => self.node.node_known = !name.is_empty(),
            Event::Request(from, request) => {
                if planted(Fault::K3) && request.is_some() && self.run.is_active() {
                    out.push(Effect::Probe(self.run_id));
                }
                self.request(now, from, request);
            }
            Event::RequestsRead(from) => {
                if !self.read.contains(&from) {
                    self.read.push(from);
                }
            }
            Event::ForceBy(author) => self.history.hear_author(author),
            Event::Force(force) => {
                self.force = force;
                self.history.hear_force();
            }
            Event::Hold(hold) => {
                self.hold = hold;
                self.release(now, &mut out);
            }
            Event::Properties(properties) => self.properties = properties,
            Event::Probed(run, result) if run == self.run_id => self.probed(now, result, &mut out),
            Event::Cordoned(run, result) if run == self.run_id => self.cordoned(now, result, &mut out),
            Event::Draining(run, newest) if run == self.run_id => self.draining(newest),
            Event::Away(run, away) if run == self.run_id => self.heard_silence(now, away, &mut out),
            Event::LastReplica(run, volume) if run == self.run_id => self.stake.volume = volume,
            Event::Drained(run, result) if run == self.run_id => self.drained(now, result, &mut out),
            Event::BlockerChanged(run, what) if run == self.run_id => self.changed(now, what, &mut out),
            Event::Looked(nth, seen) if self.care.awaits(nth) => self.looked(now, seen, &mut out),
            Event::Stirred(what) => self.care.stirred(now, self.wanted(), what, &mut out),
            Event::Gate(report) => self.care.gate(now, report, &mut out),
            Event::Tainted(taints) => self.care.tainted(taints, &mut out),
            Event::Wall(booted_at) => self.set_clock(now, booted_at),
            Event::Probed(..)
            | Event::Cordoned(..)
            | Event::Draining(..)
            | Event::Away(..)
            | Event::LastReplica(..)
            | Event::Drained(..)
            | Event::BlockerChanged(..)
            | Event::Looked(..)
            | Event::Tick => {}
        }
        if matches!(self.run, Run::Taken { .. }) {
            // It has been said that the request was taken; now it is served.
            self.advance(now, &mut out);
        }
        self.expire(now, &mut out);
        self.settle(now, &mut out);
        if !matches!(self.run, Run::Taken { .. }) {
            self.advance(now, &mut out);
        }
        self.care.settle_gate(self.wanted(), self.run.is_active(), &self.node, &mut out);
        self.tell(now, &mut out);
        out
    }

    fn next_wake(&self) -> Option<Mono> {
        let care = self.care.due().filter(|_| self.may_look());
        [self.run.due(), care, self.second_from, self.expires(), self.published.due()]
            .into_iter()
            .flatten()
            .min()
    }

    fn tick() -> Event {
        Event::Tick
    }
}
