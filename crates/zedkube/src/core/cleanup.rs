//! What this agent takes care of on its Node object beside a drain: its own cordon, the gate after a boot, taints.
//!
//! After a boot the node is watched until it is healthy, without our cordon and without stale taints. From then on
//! the Node object alone is watched while no drain is under way; taints that come back start it again. What was fixed
//! is counted over restarts, so that what has to be fixed again and again is named. A drained node is checked again
//! and again, and watched in between. Called by the core alone, and given how the node is to be. Not here: the drain,
//! and who is answered what. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::time::Duration;

use kubeapi::listed;
use kubenodeop::node::CordonSeen;
use kubenodeop::node::boot::{GateReport, NodeAtRest};
use kubenodeop::node::gate::{GateStatus, Layer};
use nodestatus::Membership;
use step::{Fault, Inserted as _, LiteMap, Mono, SmallSort as _, planted, say};
use topics::{BootGate, CordonOwner, GateWarning, GoTime, RepairKind};

use crate::core::context::{NodeContext, Step};
use crate::core::facts::{Effect, NodeLook, UndoScope};
use crate::limits::COMPLETE_POLL;

/// What is known of the gate.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct AfterBoot {
    watching: bool,
    /// Nothing is left to do.
    settled: bool,
    /// It was so once: what comes later are taints alone.
    opened: bool,
    /// The node is watched for taints that come back.
    sentry: bool,
    /// Since when that watch has no answer.
    silent_since: Option<Mono>,
    report: Option<Box<GateReport>>,
    /// The newest one with which the gate was open.
    passed: Option<GateStatus>,
    /// A cordon of ours of an earlier boot was seen.
    earlier: bool,
    /// What the former boot has left, as it was last heard of.
    left: (String, String),
    /// The boot before this one ended in an operation whose drain was done: that its cordon is removed is no repair.
    pub(crate) carried_out: bool,
    /// What watches and we ourselves have fixed.
    pub(crate) repairs: Repairs,
}

impl AfterBoot {
    /// Whether a cordon of an earlier boot may go now.
    fn is_open(&self) -> bool {
        self.verdict().is_some_and(GateStatus::is_open)
    }

    /// Whether the gate is open, or was since this start.
    pub(crate) fn was_open(&self) -> bool {
        self.opened || self.is_open()
    }

    /// Whether degraded volumes keep the turn of the node.
    fn holds_turn(&self) -> bool {
        self.watching && self.verdict().is_some_and(|it| it.holds_turn)
    }

    /// Whether the cordon of an earlier boot that is on the node may go; `None` without one.
    pub(crate) fn earlier_cordon(&self) -> Option<bool> {
        self.earlier.then(|| self.is_open())
    }

    /// What is warned of first, once its time is over.
    pub(crate) fn warning(&self) -> Option<&GateWarning> {
        self.warnings().iter().find(|it| self.is_open() && it.failed)
    }

    fn warnings(&self) -> &[GateWarning] {
        self.verdict().map(|it| it.shown.warnings.as_slice()).unwrap_or_default()
    }

    fn verdict(&self) -> Option<&GateStatus> {
        self.report.as_ref().and_then(|it| it.verdict.as_ref())
    }

    fn is_clean(&self) -> bool {
        self.verdict().is_some_and(|it| it.is_open() && it.shown.stale_taints.is_empty() && !it.holds_turn)
    }

    /// What the former boot has left and is not cleared, and what a person can do; `None` when nothing is.
    fn pods_left(&self) -> Option<(&str, &str)> {
        (!self.left.0.is_empty()).then_some((&self.left.0, &self.left.1))
    }

    /// The node was seen Ready and without taints of an outage.
    fn is_untainted(&self) -> bool {
        let seen = |it: &GateStatus| it.layer.is_none_or(|layer| layer > Layer::Node);
        self.verdict().is_some_and(|it| it.shown.stale_taints.is_empty() && seen(it))
    }

    /// Hears how the gate is; says whether it opens with that.
    fn gate(&mut self, now: Mono, report: Box<GateReport>, out: &mut Vec<Effect>) -> bool {
        if !self.watching {
            return false;
        }
        let before = self.report.as_deref().map(fixed).unwrap_or_default();
        for (what, count) in fixed(&report) {
            let known = before.get(&what).copied().unwrap_or_default();
            for _ in known..count {
                self.repairs.add(now, &what, out);
            }
        }
        let said = |it: &GateStatus| (it.layer, it.shown.failed, it.shown.words.clone());
        if let Some(verdict) = &report.verdict
            && self.verdict().map(said) != Some(said(verdict))
            && (!self.opened || self.earlier || verdict.shown.failed)
        {
            let BootGate { open, failed, layer, words, next_step, .. } = &verdict.shown;
            match (open, failed) {
                (true, _) => say!(out, info, "the gate after the boot is open: {words}"),
                (false, true) => say!(
                    out,
                    warn,
                    "the gate after the boot has failed at {layer} and is looked at again and again: {words}; {next_step}"
                ),
                (false, false) => say!(out, info, "the gate after the boot is shut by {layer}: {words}"),
            }
        }
        for warning in report.verdict.iter().flat_map(|it| &it.shown.warnings).filter(|it| it.failed) {
            if !self.warnings().iter().any(|it| it.failed && it.layer == warning.layer) {
                let GateWarning { layer, words, next_step, .. } = warning;
                say!(out, warn, "after the boot, {layer}: {words}; {next_step}");
            }
        }
        let was_open = self.is_open();
        self.left = (report.leftovers.words.clone(), report.leftovers.next_step.clone());
        self.report = Some(report);
        self.is_open() && !was_open
    }

    /// Taints of an outage are on the node again: they go as they did after the boot.
    pub(crate) fn tainted(&mut self, taints: &[String], out: &mut Vec<Effect>) {
        if std::mem::take(&mut self.sentry) {
            self.settled = false;
            // What was seen before they came says nothing.
            self.report = None;
            say!(
                out,
                info,
                "taints keep pods away from the node; those of an outage are removed once kubelet is Ready and has \
                 renewed its lease for 60 s: {}",
                taints.join(", ")
            );
        }
    }

    /// What a check says of a cordon of an earlier boot.
    pub(crate) fn take_look(&mut self, now: Mono, seen: &NodeLook, out: &mut Vec<Effect>) {
        // With the gate shut it was somebody else.
        if *seen == NodeLook::Open && self.earlier && self.is_open() && !self.carried_out {
            self.repairs.add(now, RepairKind::OWN_CORDON, out);
            say!(out, warn, "removed after the boot: {}", RepairKind::OWN_CORDON);
        }
        self.earlier = *seen == NodeLook::NotReady;
    }

    /// Watches as long as something is to be waited for: in a cluster from each start on, elsewhere for a cordon.
    /// `checked`: no cordon of ours has to go. `busy`: a drain takes care of its node itself, and after it the machine
    /// goes down.
    fn settle(&mut self, (checked, busy): (bool, bool), step: Step<'_>) {
        let Step { now, node, out } = step;
        self.repairs.expire(now);
        if self.is_clean() {
            self.passed = self.verdict().cloned();
        }
        let clean = self.is_clean() || self.opened && self.is_untainted();
        if clean && checked && !self.earlier {
            // What is warned of is watched until it is healed, and what the former boot has left until it is cleared.
            let clears_pods = self.report.as_ref().is_some_and(|it| it.leftovers.pending);
            self.settled = (self.settled || self.warnings().is_empty()) && !clears_pods;
            self.opened = true;
        }
        let member = node.member == Membership::Member;
        let wanted = !node.name.is_empty() && (member && !self.settled || self.earlier);
        if wanted != self.watching {
            self.watching = wanted;
            if wanted {
                self.report = None;
            } else if self.settled && !self.is_open() {
                // It ends before its time, as the taints are gone: a layer that it was at says nothing from now on.
                // Of the pods that are left the newest word counts: an older one would have it watched again at once.
                if let Some(report) = &mut self.report {
                    report.verdict.clone_from(&self.passed);
                }
            }
            out.push(Effect::Gate(wanted));
        }
        let sentry = member && !node.name.is_empty() && !wanted && !busy;
        if sentry != self.sentry {
            (self.sentry, self.silent_since) = (sentry, None);
            out.push(Effect::Taints(sentry));
        }
    }

    /// Since when the API does not answer a node that is not drained; zero while it does.
    pub(crate) fn api_silent_since(&self, node: &NodeContext) -> GoTime {
        let of_gate = self.verdict().filter(|it| self.watching && it.is_api_silent);
        let of_gate = of_gate.map(|it| it.shown.since.moved(GoTime::ZERO, node.booted_at));
        self.silent_since.map(|at| node.wall(at)).or(of_gate).unwrap_or_default()
    }

    /// How the gate is, for a reader.
    pub(crate) fn shown(&self, node: &NodeContext) -> BootGate {
        let mut shown = BootGate::default();
        if let Some(verdict) = self.verdict() {
            shown.clone_from(&verdict.shown);
            for since in
                [&mut shown.since].into_iter().chain(shown.warnings.iter_mut().map(|it| &mut it.since))
            {
                *since = since.moved(GoTime::ZERO, node.booted_at);
            }
            if verdict.layer == Some(Layer::Service) && !node.known.servers.is_empty() {
                let servers = listed(&node.known.servers, ", ");
                shown.next_step = format!("{}; the other servers are {servers}", shown.next_step);
            }
        }
        shown.warnings.extend(self.repairs.warnings(node));
        shown
    }
}

/// What a watch has fixed since it began, by kind.
fn fixed(report: &GateReport) -> BTreeMap<String, u32> {
    let mut all = report.repairs.clone();
    if report.leftovers.cleared > 0 {
        all.insert(RepairKind::FORMER_POD.to_owned(), report.leftovers.cleared);
    }
    all
}

/// So many repairs of one kind within [`SPAN`] are worth a warning.
const REPEATS: usize = 3;
const SPAN: Duration = Duration::from_hours(24);
/// Repairs of one kind that are made within this time of each other are of one outage: they are one towards [`REPEATS`].
const ONE_OUTAGE: Duration = Duration::from_mins(10);
/// The word for it among the layers of the gate.
const LAYER: &str = "repairs";

/// Repairs of one kind.
#[derive(Debug, Clone, PartialEq, Default)]
struct Repaired {
    count: u32,
    /// Until when those of the last day count, the newest [`REPEATS`] of them.
    until: Vec<Mono>,
    /// Since when they are warned of.
    warned: Option<Mono>,
}

/// All of them, by kind.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Repairs(LiteMap<String, Repaired>);

impl Repairs {
    /// One more has been made.
    fn add(&mut self, now: Mono, what: &str, out: &mut Vec<Effect>) {
        self.expire(now);
        let kind = self.0.entry(what.to_owned()).or_default();
        kind.count = kind.count.saturating_add(1);
        if kind.until.last().is_none_or(|last| now + SPAN >= *last + ONE_OUTAGE) {
            kind.until.push(now + SPAN);
        }
        if kind.until.len() > REPEATS {
            kind.until.remove(0);
        }
        if kind.until.len() == REPEATS && kind.warned.is_none() {
            kind.warned = Some(now);
            say!(out, warn, "{}; {}", words(what), next_step(what));
        }
    }

    /// Repairs that are a day old count no longer.
    fn expire(&mut self, now: Mono) {
        for (_, kind) in &mut self.0 {
            kind.until.retain(|until| now < *until);
            kind.warned = kind.warned.filter(|_| kind.until.len() == REPEATS);
        }
    }

    /// Until when they count, by the wall clock.
    pub(crate) fn counted(&self, node: &NodeContext) -> BTreeMap<String, Vec<GoTime>> {
        let known = self.0.iter().filter(|(_, it)| !it.until.is_empty());
        known
            .map(|(what, it)| (what.clone(), it.until.iter().map(|until| node.wall(*until)).collect()))
            .into_map()
    }

    /// Continues with those that earlier runs have counted: of how long ago only the wall clock knows. A wrong one makes
    /// them count for a day at most, or no more.
    pub(crate) fn count_on(
        &mut self,
        now: Mono,
        earlier: &BTreeMap<String, Vec<GoTime>>,
        node: &NodeContext,
    ) {
        let wall = node.wall(now).to_timestamp();
        for (what, all) in earlier {
            let left = all.iter().map(|it| it.to_timestamp().duration_since(wall));
            let left = left.filter_map(|it| Duration::try_from(it).ok()).filter(|it| !it.is_zero());
            let mut until: Vec<Mono> = left.map(|it| now + it.min(SPAN)).collect();
            until.order();
            let until = until.split_off(until.len().saturating_sub(REPEATS));
            let warned = (until.len() == REPEATS).then_some(now);
            self.0.insert(what.clone(), Repaired { count: 0, until, warned });
        }
    }

    /// When a warning ends by time alone.
    pub(crate) fn due(&self) -> Option<Mono> {
        let warned = self.0.values().filter(|it| it.warned.is_some());
        warned.filter_map(|it| it.until.first()).copied().min()
    }

    /// How often each kind was fixed.
    pub(crate) fn counts(&self) -> BTreeMap<String, u32> {
        let made = self.0.iter().filter(|(_, it)| it.count > 0);
        made.map(|(what, it)| (what.clone(), it.count)).into_map()
    }

    /// What is warned of, for a reader.
    fn warnings(&self, node: &NodeContext) -> impl Iterator<Item = GateWarning> {
        self.0.iter().filter_map(|(what, it)| {
            Some(GateWarning {
                layer: LAYER.to_owned(),
                words: words(what),
                next_step: next_step(what),
                since: node.wall(it.warned?),
                failed: true,
            })
        })
    }
}

fn words(what: &str) -> String {
    format!("{what} had to be removed {REPEATS} times or more within {} h", SPAN.as_secs() / 3600)
}

fn next_step(what: &str) -> String {
    let next = if RepairKind::of(what) == RepairKind::Taint {
        "the control plane loses this node now and then: check the network between this node and the API server, and the \
         clocks of both; `kubectl get events -A --field-selector involvedObject.kind=Node` shows when"
    } else {
        "this node restarts now and then before its drain is withdrawn: look at `zedbox history` and at the reboot \
         reasons"
    };
    next.to_owned()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DesiredNode {
    /// Without a cordon of ours.
    Schedulable,
    /// Cordoned; no COMPLETE depends on its pods.
    Cordoned,
    /// Cordoned, and without the pods that a drain removes.
    Drained,
}

/// Why COMPLETE counts no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Voided {
    PodCame(String),
    /// Somebody uncordoned the node.
    Uncordoned,
}

#[derive(Debug, Clone, PartialEq)]
enum CordonCheck {
    /// The node is as it should be.
    NotDue,
    Due(Mono),
    /// An answer is awaited.
    Running,
}

/// Whether a cordon of ours may still be on its way to the server: its call failed, was cancelled, or an earlier
/// run of this agent made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CordonInFlight {
    No,
    Possible,
    /// The node was seen open since; one may arrive until then.
    Until(Mono),
}

/// Whether the drained node is watched between two checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CordonWatch {
    /// It is not; the next check that finds all well begins it.
    Off,
    On,
    /// Something has happened there during a check that may not have seen it.
    Active,
    /// Something has happened there and is checked. One more check in its turn comes before the next watch, so
    /// that what a rule skips, coming and going, is not checked in a circle.
    Spent,
}

/// Whether the node is cordoned by anybody.
pub(crate) const fn cordoned(owner: CordonOwner) -> bool {
    match owner {
        CordonOwner::None => false,
        CordonOwner::Ours | CordonOwner::Foreign => true,
    }
}

/// What is known of our node, and what is still to be done there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CordonCleanup {
    pub(super) cordon: CordonOwner,
    check: CordonCheck,
    /// Number of the last look, which is a check of the node.
    looks: u64,
    /// Whether that one was to remove a cordon of ours.
    uncordons: bool,
    in_flight: CordonInFlight,
    /// Why the node could not be checked, or keeps its cordon; empty when all is well.
    pub(super) trouble: String,
    guard: CordonWatch,
    /// The cordon of the node as a watch has shown it since the last look.
    pub(crate) watched: Option<CordonSeen>,
    pub(crate) after_boot: AfterBoot,
    /// What a drain has left that is not as it was before.
    pub(crate) leftovers: Leftovers,
    /// Whether the node has been checked since this start.
    seen: bool,
}

impl CordonCleanup {
    /// To be checked at once. Of a run in the same boot it is known whose cordon there was; one may be in flight.
    pub(crate) fn new(now: Mono, same_boot: Option<CordonOwner>) -> Self {
        Self {
            cordon: same_boot.unwrap_or(CordonOwner::None),
            check: CordonCheck::Due(now),
            looks: 0,
            uncordons: false,
            in_flight: if same_boot.is_some() { CordonInFlight::Possible } else { CordonInFlight::No },
            trouble: String::new(),
            guard: CordonWatch::Off,
            watched: None,
            after_boot: AfterBoot::default(),
            leftovers: Leftovers::default(),
            seen: false,
        }
    }

    /// A cordon of before this start is not known until the node has been checked.
    pub(crate) fn knows_cordon(&self) -> bool {
        self.seen || self.check == CordonCheck::NotDue
    }

    /// The gate after the boot is open, and no cordon of ours is left.
    pub(crate) fn is_healthy(&self) -> bool {
        self.after_boot.is_open() && !self.after_boot.holds_turn() && self.cordon != CordonOwner::Ours
    }

    /// When time alone brings a check.
    pub(crate) fn due(&self) -> Option<Mono> {
        if let CordonCheck::Due(at) = self.check { Some(at) } else { None }
    }

    pub(crate) fn check_at(&mut self, now: Mono) {
        self.check = CordonCheck::Due(now);
    }

    /// No check is due until something happens.
    pub(crate) fn rest(&mut self) {
        self.check = CordonCheck::NotDue;
    }

    /// In no cluster the node was not checked for good: it is checked again.
    pub(crate) fn joined_cluster(&mut self, now: Mono) {
        if self.check == CordonCheck::NotDue {
            self.check_at(now);
        }
    }

    /// The node is in other hands from now on: a check under way counts no more; the next one is when they are done.
    pub(crate) fn hand_over(&mut self, now: Mono) {
        self.guard = CordonWatch::Off;
        self.looks += 1;
        self.check_at(now);
    }

    /// A cordon was sent: the node is checked once its drain is over.
    pub(crate) fn cordon_sent(&mut self) {
        self.rest();
        self.guard_ended();
        self.in_flight = CordonInFlight::Possible;
    }

    /// The task that watches the node was cancelled.
    pub(crate) fn guard_ended(&mut self) {
        self.guard = CordonWatch::Off;
    }

    /// A watch has shown another cordon than the one that is known: somebody has cordoned or uncordoned, or one of ours is back
    /// without a drain, as after etcd was restored.
    fn is_news(&self) -> bool {
        match self.watched {
            None => false,
            Some(CordonSeen::Marked) => true,
            Some(CordonSeen::None) => self.cordon != CordonOwner::None,
            Some(CordonSeen::Ours) => self.cordon != CordonOwner::Ours,
            Some(CordonSeen::Foreign) => self.cordon != CordonOwner::Foreign,
        }
    }

    /// Checks the node when that is due.
    pub(crate) fn advance(&mut self, now: Mono, wanted: DesiredNode, out: &mut Vec<Effect>) {
        if wanted == DesiredNode::Schedulable && self.check == CordonCheck::NotDue && self.is_news() {
            self.check_at(now);
        }
        if self.due().is_some_and(|at| now >= at) {
            self.looks += 1;
            self.check = CordonCheck::Running;
            // What is shown while it runs may be newer than what it reads.
            self.watched = None;
            self.uncordons = wanted == DesiredNode::Schedulable || planted(Fault::K9);
            let gate_open = self.after_boot.is_open();
            out.push(Effect::Look { nth: self.looks, uncordon: self.uncordons, gate_open });
        }
    }

    /// Whether the check of this number is awaited.
    pub(crate) fn awaits(&self, nth: u64) -> bool {
        nth == self.looks && self.check == CordonCheck::Running
    }

    /// Hears what a check has found; says whether that voids COMPLETE.
    pub(crate) fn checked(
        &mut self,
        now: Mono,
        seen: Result<NodeLook, String>,
        wanted: DesiredNode,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<Voided> {
        let keeps = wanted != DesiredNode::Schedulable;
        let poll = now + node.limits.uncordon_poll();
        let gone = matches!(seen, Ok(NodeLook::Gone(_)));
        self.seen |= seen.is_ok() && !gone;
        self.check = match seen {
            Ok(NodeLook::HasPods(_, pods)) if keeps => {
                self.rest();
                let name = pods.first().map(|it| format!("{}/{}", it.namespace, it.name));
                return Some(Voided::PodCame(name.unwrap_or_default()));
            }
            Ok(NodeLook::Open) if keeps && !self.opened_by_us(wanted) => return Some(self.uncordoned()),
            // Ours becomes somebody else's only by an uncordon in between.
            Ok(NodeLook::Foreign) if keeps && self.cordon == CordonOwner::Ours => {
                return Some(self.uncordoned());
            }
            Ok(NodeLook::Open) => {
                if self.cordon == CordonOwner::Ours {
                    say!(out, info, "removed our own cordon");
                    out.push(Effect::CordonRemoved);
                }
                self.cordon = CordonOwner::None;
                self.trouble.clear();
                self.in_flight = match self.in_flight {
                    CordonInFlight::Possible => CordonInFlight::Until(poll),
                    CordonInFlight::Until(at) if now < at => CordonInFlight::Until(at),
                    CordonInFlight::Until(_) | CordonInFlight::No => CordonInFlight::No,
                };
                match self.in_flight {
                    // Once more, when whatever was on its way has arrived.
                    CordonInFlight::Until(at) => CordonCheck::Due(at),
                    CordonInFlight::Possible | CordonInFlight::No => CordonCheck::NotDue,
                }
            }
            Ok(NodeLook::Foreign) => {
                self.cordon = CordonOwner::Foreign;
                self.trouble.clear();
                if keeps { self.found_well(now, out) } else { CordonCheck::NotDue }
            }
            Ok(NodeLook::Ours | NodeLook::HasPods(..)) => {
                self.cordon = CordonOwner::Ours;
                self.trouble.clear();
                if keeps { self.found_well(now, out) } else { CordonCheck::Due(poll) }
            }
            Ok(NodeLook::NotReady) => {
                self.cordon = CordonOwner::Ours;
                "our cordon of the earlier boot stays until the checks after the boot pass"
                    .clone_into(&mut self.trouble);
                CordonCheck::Due(poll)
            }
            Ok(NodeLook::Gone(trouble)) | Err(trouble) => {
                if gone && !keeps {
                    self.cordon = CordonOwner::None;
                    self.in_flight = CordonInFlight::No;
                }
                if self.trouble != trouble {
                    say!(out, warn, "cannot read our Node object: {trouble}");
                    self.trouble = trouble;
                }
                // A device in no cluster need not ask for ever for a node that does not exist.
                let nobody_there = node.member == Membership::Outside && self.cordon == CordonOwner::None;
                if nobody_there || planted(Fault::K29) { CordonCheck::NotDue } else { CordonCheck::Due(poll) }
            }
        };
        None
    }

    /// Nobody else uncordoned what we have just uncordoned, or what was not cordoned: a skip and a forced COMPLETE need
    /// no cordon.
    fn opened_by_us(&self, wanted: DesiredNode) -> bool {
        wanted != DesiredNode::Drained && (self.uncordons || !cordoned(self.cordon))
    }

    fn uncordoned(&mut self) -> Voided {
        self.rest();
        self.cordon = CordonOwner::None;
        Voided::Uncordoned
    }

    /// The node was just found cordoned, and drained as far as somebody was answered so.
    fn found_well(&mut self, now: Mono, out: &mut Vec<Effect>) -> CordonCheck {
        let mut pause = COMPLETE_POLL;
        self.guard = match self.guard {
            CordonWatch::Off => {
                out.push(Effect::Guard);
                CordonWatch::On
            }
            CordonWatch::On => CordonWatch::On,
            CordonWatch::Active => {
                pause = Duration::ZERO;
                CordonWatch::Spent
            }
            CordonWatch::Spent => CordonWatch::Off,
        };
        CordonCheck::Due(now + pause)
    }

    /// Something has happened on the drained node: it is checked.
    pub(crate) fn node_changed(&mut self, now: Mono, wanted: DesiredNode, what: &str, out: &mut Vec<Effect>) {
        if self.guard != CordonWatch::On {
            return;
        }
        say!(out, info, "something has happened on the drained node: {what}");
        self.guard = if self.check == CordonCheck::Running {
            CordonWatch::Active
        } else {
            if wanted != DesiredNode::Schedulable {
                self.check_at(now);
            }
            CordonWatch::Spent
        };
    }

    /// Hears what the watch of the node at rest shows.
    pub(crate) fn at_rest(&mut self, now: Mono, seen: NodeAtRest) {
        self.watched = seen.cordon.or(self.watched);
        let since = self.after_boot.silent_since.unwrap_or(now);
        self.after_boot.silent_since = seen.is_api_silent.then_some(since);
    }

    /// Hears how the gate after the boot is.
    pub(crate) fn gate(&mut self, now: Mono, report: Box<GateReport>, out: &mut Vec<Effect>) {
        self.watched = report.cordon.or(self.watched);
        if self.after_boot.gate(now, report, out)
            && let CordonCheck::Due(at) = self.check
        {
            // What waited for it continues.
            self.check = CordonCheck::Due(at.min(now));
        }
    }

    /// Why what a drain has left is not as it was before, and what a person can do.
    pub(crate) fn leftovers_trouble(&self) -> Option<(&str, &str)> {
        self.leftovers.trouble().or_else(|| self.after_boot.pods_left())
    }

    /// Has what drains have left taken back: migrations once no drain needs our cordon and the node may be looked at
    /// (`free`), all else once the node is healthy after the boot, whoever else has cordoned it, and no drain needs it as it
    /// is (`idle`).
    pub(crate) fn settle_leftovers(
        &mut self,
        wanted: DesiredNode,
        (free, idle): (bool, bool),
        out: &mut Vec<Effect>,
    ) {
        let is_uncordoned = self.seen && self.cordon != CordonOwner::Ours && self.after_boot.was_open();
        let scope = match wanted {
            DesiredNode::Schedulable if free && idle && is_uncordoned => UndoScope::All,
            DesiredNode::Schedulable if free => UndoScope::Migrations,
            DesiredNode::Schedulable | DesiredNode::Cordoned | DesiredNode::Drained => UndoScope::Nothing,
        };
        self.leftovers.settle(scope, out);
    }

    /// Watches the gate as long as something is to be waited for. `busy`: a drain is under way.
    pub(crate) fn settle_gate(&mut self, (wanted, busy): (DesiredNode, bool), step: Step<'_>) {
        let keeps = wanted != DesiredNode::Schedulable;
        let checked = keeps || self.check == CordonCheck::NotDue;
        self.after_boot.settle((checked, busy || keeps), step);
    }
}

/// What drains of our node have asked of virtual machines and of volumes: migrations are taken back as soon as no drain needs
/// them, the rest once the node is schedulable again. The removal of our cordon does not wait for any of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Leftovers {
    wanted: UndoScope,
    /// What is in the way, and what a person can do.
    trouble: (String, String),
}

impl Leftovers {
    /// So much is to be done from now on.
    fn settle(&mut self, wanted: UndoScope, out: &mut Vec<Effect>) {
        if wanted == self.wanted {
            return;
        }
        self.wanted = wanted;
        if wanted == UndoScope::Nothing {
            self.trouble = (String::new(), String::new());
        }
        out.push(Effect::Leftovers(wanted));
    }

    /// Takes over what is in the way.
    pub(crate) fn hear(&mut self, trouble: (String, String), out: &mut Vec<Effect>) {
        if self.wanted != UndoScope::Nothing && self.trouble != trouble {
            if trouble.0.is_empty() {
                say!(out, info, "virtual machines and volumes are as before the last drain");
            } else {
                say!(
                    out,
                    warn,
                    "virtual machines and volumes are not all as before the last drain yet: {}",
                    trouble.0
                );
            }
            self.trouble = trouble;
        }
    }

    /// What is in the way, and what a person can do; `None` when all is well.
    pub(crate) fn trouble(&self) -> Option<(&str, &str)> {
        let (why, next) = &self.trouble;
        (!why.is_empty()).then_some((why, next))
    }
}
