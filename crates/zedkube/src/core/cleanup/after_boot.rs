//! The gate after a boot: watched over until the node is healthy, without our cordon and without stale taints. From
//! then on the Node object alone is watched while no drain is under way; taints that come back start it again.
//!
//! Not here: what the gate wants (`kubenodeop::node::gate`). Sources: goals R4, R5, V2. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use kubeapi::listed;
use kubenodeop::node::boot::GateReport;
use kubenodeop::node::gate::{GateStatus, Layer, Warning};
use nodestatus::Membership;
use step::{Mono, say};
use topics::{BootGate, GateWarning, RepairKind};

use crate::core::context::NodeContext;
use crate::core::facts::{Effect, NodeLook};

use super::repairs::Repairs;

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
    pub(crate) fn warning(&self) -> Option<&Warning> {
        self.verdict().filter(|it| it.is_open())?.warnings.iter().find(|it| it.failed)
    }

    fn verdict(&self) -> Option<&GateStatus> {
        self.report.as_ref().and_then(|it| it.verdict.as_ref())
    }

    fn is_clean(&self) -> bool {
        self.verdict().is_some_and(|it| it.is_open() && it.taints.is_empty() && !it.holds_turn)
    }

    /// Nothing is left to be watched for but taints.
    fn is_at_rest(&self) -> bool {
        self.verdict().is_none_or(|it| it.warnings.is_empty())
    }

    /// Pods that the former boot has left are still looked after.
    fn clears_pods(&self) -> bool {
        self.report.as_ref().is_some_and(|it| it.leftovers.pending)
    }

    /// What the former boot has left and is not cleared, and what a person can do; `None` when nothing is.
    pub(super) fn pods_left(&self) -> Option<(&str, &str)> {
        (!self.left.0.is_empty()).then_some((&self.left.0, &self.left.1))
    }

    /// The node was seen Ready and without taints of an outage.
    fn is_untainted(&self) -> bool {
        self.verdict().is_some_and(|it| {
            it.taints.is_empty()
                && match it.layer {
                    Some(Layer::Devices | Layer::Clock | Layer::Service | Layer::Node) => false,
                    None
                    | Some(
                        Layer::Lease
                        | Layer::Runtime
                        | Layer::Network
                        | Layer::Storage
                        | Layer::Volumes
                        | Layer::System
                        | Layer::Machines
                        | Layer::Probes
                        | Layer::Steady,
                    ) => true,
                }
        })
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
        let shown = |it: &GateStatus| (it.layer, it.failed, it.words.clone());
        if let Some(verdict) = &report.verdict
            && self.verdict().map(shown) != Some(shown(verdict))
            && (!self.opened || self.earlier || verdict.failed)
        {
            let GateStatus { words, next_step, .. } = verdict;
            match verdict.layer.map(Layer::text) {
                None => say!(out, info, "the gate after the boot is open: {words}"),
                Some(layer) if verdict.failed => say!(
                    out,
                    warn,
                    "the gate after the boot has failed at {layer} and is looked at again and again: {words}; {next_step}"
                ),
                Some(layer) => say!(out, info, "the gate after the boot is shut by {layer}: {words}"),
            }
        }
        let warned = self.verdict().map(|it| it.warnings.clone()).unwrap_or_default();
        for warning in report.verdict.iter().flat_map(|it| &it.warnings).filter(|it| it.failed) {
            if !warned.iter().any(|it| it.failed && it.layer == warning.layer) {
                let Warning { layer, words, next_step, .. } = warning;
                say!(out, warn, "after the boot, {}: {words}; {next_step}", layer.text());
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
            self.settled = (self.settled || self.is_at_rest()) && !self.clears_pods();
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
        let repeated = self.repairs.warnings(node);
        let Some(verdict) = self.verdict() else {
            return BootGate { warnings: repeated.collect(), ..BootGate::default() };
        };
        let warnings = verdict.warnings.iter().map(|it| GateWarning {
            layer: it.layer.text().to_owned(),
            words: it.words.clone(),
            next_step: it.next_step.clone(),
            since: node.wall(it.since),
            failed: it.failed,
        });
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
            warnings: warnings.chain(repeated).collect(),
        }
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
