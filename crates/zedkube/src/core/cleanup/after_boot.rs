//! The gate after a boot: watched over until the node is healthy, without our cordon and without stale taints. From
//! then on the Node object alone is watched while no drain is under way; taints that come back start it again.
//!
//! What was fixed is counted over restarts, so that what has to be fixed again and again is named.
//!
//! Not here: the fixing, and what the gate wants (`kubenodeop::node::gate`). Sources: goals O4, O7, R4, R5, V2. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::time::Duration;

use kubeapi::listed;
use kubenodeop::node::boot::GateReport;
use kubenodeop::node::gate::{GateStatus, Layer};
use nodestatus::Membership;
use step::{Inserted as _, Mono, say};
use topics::{BootGate, GateWarning, GoTime, RepairKind};

use crate::core::context::NodeContext;
use crate::core::facts::{Effect, NodeLook};

/// What is known of the gate.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct AfterBoot {
    /// The watch is on.
    watching: bool,
    /// Nothing is left to do.
    settled: bool,
    /// It was so once: what comes later are taints alone.
    opened: bool,
    /// The node is watched for taints that come back.
    sentry: bool,
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
    pub(super) fn is_open(&self) -> bool {
        self.verdict().is_some_and(GateStatus::is_open)
    }

    /// Whether the gate is open, or was since this start.
    pub(crate) fn was_open(&self) -> bool {
        self.opened || self.is_open()
    }

    /// Whether degraded volumes keep the turn of the node.
    pub(super) fn holds_turn(&self) -> bool {
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

    /// Nothing is left to be watched for but taints.
    fn is_at_rest(&self) -> bool {
        self.warnings().is_empty()
    }

    /// What the former boot has left and is not cleared, and what a person can do; `None` when nothing is.
    pub(super) fn pods_left(&self) -> Option<(&str, &str)> {
        (!self.left.0.is_empty()).then_some((&self.left.0, &self.left.1))
    }

    /// The node was seen Ready and without taints of an outage.
    fn is_untainted(&self) -> bool {
        let seen = |it: &GateStatus| it.layer.is_none_or(|layer| layer > Layer::Node);
        self.verdict().is_some_and(|it| it.shown.stale_taints.is_empty() && seen(it))
    }

    /// Hears how the gate is; says whether it opens with that.
    pub(super) fn gate(&mut self, now: Mono, report: Box<GateReport>, out: &mut Vec<Effect>) -> bool {
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
    pub(super) fn settle(
        &mut self,
        now: Mono,
        (checked, busy): (bool, bool),
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) {
        self.repairs.expire(now);
        if self.is_clean() {
            self.passed = self.verdict().cloned();
        }
        let clean = self.is_clean() || self.opened && self.is_untainted();
        if clean && checked && !self.earlier {
            // What is warned of is watched until it is healed, and what the former boot has left until it is cleared.
            let clears_pods = self.report.as_ref().is_some_and(|it| it.leftovers.pending);
            self.settled = (self.settled || self.is_at_rest()) && !clears_pods;
            self.opened = true;
        }
        let member = node.member == Membership::Member;
        let wanted = node.node_known && (member && !self.settled || self.earlier);
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
        let sentry = member && node.node_known && !wanted && !busy;
        if sentry != self.sentry {
            self.sentry = sentry;
            out.push(Effect::Taints(sentry));
        }
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
pub(crate) struct Repairs(BTreeMap<String, Repaired>);

impl Repairs {
    /// One more has been made.
    pub(super) fn add(&mut self, now: Mono, what: &str, out: &mut Vec<Effect>) {
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
    pub(super) fn expire(&mut self, now: Mono) {
        for kind in self.0.values_mut() {
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
            until.sort_unstable();
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
    pub(super) fn warnings(&self, node: &NodeContext) -> impl Iterator<Item = GateWarning> {
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
        "this node restarts now and then before its drain is withdrawn: look at `zedbox drain history` and at the reboot \
         reasons"
    };
    next.to_owned()
}
