//! The gate after a boot: watched over until the node is sound, without our cordon and without stale taints. From
//! then on the Node object alone is watched while no drain is under way; taints that come back start it again.
//!
//! Not here: what the gate wants (`kubenodeop::node::gate`). Sources: goals R4, R5, V2. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use kubeapi::listed;
use kubenodeop::node::boot::Report;
use kubenodeop::node::gate::{Layer, Verdict};
use nodestatus::Membership;
use topics::BootGate;

use crate::core::context::NodeContext;
use crate::core::facts::{Effect, LogEvent, NodeLook};

/// The word under which the removal of a cordon of an earlier boot is counted.
const OWN_CORDON: &str = "own cordon of an earlier boot";

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
    /// The newest report.
    report: Option<Box<Report>>,
    /// A cordon of ours of an earlier boot was seen.
    earlier: bool,
    /// What earlier watches and we ourselves have fixed.
    repairs: BTreeMap<String, u32>,
}

impl AfterBoot {
    /// Whether a cordon of an earlier boot may go now.
    pub(super) fn is_open(&self) -> bool {
        self.verdict().is_some_and(Verdict::is_open)
    }

    /// Whether the gate is open, or was since this start.
    pub(super) fn was_open(&self) -> bool {
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

    fn verdict(&self) -> Option<&Verdict> {
        self.report.as_ref().and_then(|it| it.verdict.as_ref())
    }

    fn is_clean(&self) -> bool {
        self.verdict().is_some_and(|it| it.is_open() && it.taints.is_empty() && !it.holds_turn)
    }

    /// The next watch counts from zero.
    fn forget_report(&mut self) {
        if let Some(report) = self.report.take() {
            add(&mut self.repairs, &report.repairs);
        }
    }

    /// The node was seen Ready and without taints of an outage.
    fn is_untainted(&self) -> bool {
        self.verdict().is_some_and(|it| {
            it.taints.is_empty()
                && match it.layer {
                    Some(Layer::Devices | Layer::Service | Layer::Node) => false,
                    None | Some(Layer::Lease | Layer::Storage | Layer::Volumes | Layer::Steady) => true,
                }
        })
    }

    /// Hears how the gate is; says whether it opens with that.
    pub(super) fn gate(&mut self, report: Box<Report>, out: &mut Vec<Effect>) -> bool {
        if !self.watching {
            return false;
        }
        let before = self.report.as_ref();
        for (taint, count) in &report.repairs {
            let earlier = self.repairs.get(taint).copied().unwrap_or_default();
            let known = before.and_then(|it| it.repairs.get(taint)).copied().unwrap_or_default();
            if *count > known && earlier + count > 1 {
                out.push(Effect::Say(LogEvent::TaintAgain(taint.clone(), earlier + count)));
            }
        }
        let shown = |it: &Verdict| (it.layer, it.failed, it.words.clone());
        if let Some(verdict) = &report.verdict
            && self.verdict().map(shown) != Some(shown(verdict))
            && (!self.opened || self.earlier || verdict.failed)
        {
            out.push(Effect::Say(LogEvent::Gate(verdict.clone())));
        }
        let was_open = self.is_open();
        self.report = Some(report);
        self.is_open() && !was_open
    }

    /// Taints of an outage are on the node again: they go as they did after the boot.
    pub(super) fn tainted(&mut self, taints: Vec<String>, out: &mut Vec<Effect>) {
        if std::mem::take(&mut self.sentry) {
            self.settled = false;
            // What was seen before they came says nothing.
            self.forget_report();
            out.push(Effect::Say(LogEvent::Tainted(taints)));
        }
    }

    /// What a check says of a cordon of an earlier boot.
    pub(super) fn seen(&mut self, seen: &NodeLook, out: &mut Vec<Effect>) {
        // With the gate shut it was somebody else.
        if *seen == NodeLook::Open && self.earlier && self.is_open() {
            *self.repairs.entry(OWN_CORDON.to_owned()).or_default() += 1;
            out.push(Effect::Say(LogEvent::Repaired(OWN_CORDON.to_owned())));
        }
        self.earlier = *seen == NodeLook::NotReady;
    }

    /// Watches as long as something is to be waited for: in a cluster from each start on, elsewhere for a cordon.
    /// `checked`: no cordon of ours has to go. `busy`: a drain takes care of its node itself, and after it the machine
    /// goes down.
    pub(super) fn settle(&mut self, checked: bool, busy: bool, node: &NodeContext, out: &mut Vec<Effect>) {
        let clean = self.is_clean() || self.opened && self.is_untainted();
        if clean && checked && !self.earlier {
            self.settled = true;
            self.opened = true;
        }
        let member = node.member == Membership::Member;
        let wanted = node.node_known && (member && !self.settled || self.earlier);
        if wanted != self.watching {
            self.watching = wanted;
            if wanted {
                self.forget_report();
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
        let Some(verdict) = self.verdict() else { return BootGate::default() };
        let mut next_step = verdict.next_step.clone();
        if verdict.layer == Some(Layer::Service) && !node.known.servers.is_empty() {
            next_step = format!("{next_step}; the other servers are {}", listed(&node.known.servers, ", "));
        }
        BootGate {
            open: verdict.is_open(),
            layer: verdict.layer.map(|it| it.text().to_owned()).unwrap_or_default(),
            failed: verdict.failed,
            words: verdict.words.clone(),
            next_step,
            since: node.wall(verdict.since),
            stale_taints: verdict.taints.clone(),
        }
    }

    /// What was fixed after the boot, and how often, since this agent started.
    pub(crate) fn repairs(&self) -> BTreeMap<String, u32> {
        let mut all = self.repairs.clone();
        if let Some(report) = &self.report {
            add(&mut all, &report.repairs);
        }
        all
    }
}

fn add(all: &mut BTreeMap<String, u32>, more: &BTreeMap<String, u32>) {
    for (what, count) in more {
        *all.entry(what.clone()).or_default() += count;
    }
}
