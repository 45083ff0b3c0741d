//! The gate after a boot: watched over until the node is sound, without our cordon and without stale taints. From
//! then on the Node object alone is watched while no drain is under way; taints that come back start it anew.
//!
//! Not here: what the gate wants (`kubenodeop::node::gate`). Sources: goals R4, R5, V2. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use kubenodeop::node::boot::Report;
use kubenodeop::node::gate::Layer;
use nodestatus::Membership;
use step::Mono;
use topics::BootGate;

use super::facts::{Effect, Said, Seen};
use super::machine::Zedkube;
use super::run::Care;

/// The word under which the removal of a cordon of an earlier boot is counted.
const OWN_CORDON: &str = "own cordon of an earlier boot";

/// What is known of the gate.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct AfterBoot {
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
    pub(super) earlier: bool,
    /// What earlier watches and we ourselves have mended.
    repairs: BTreeMap<String, u32>,
}

impl AfterBoot {
    /// Whether a cordon of an earlier boot may go now.
    pub(super) fn is_open(&self) -> bool {
        let verdict = self.report.as_ref().and_then(|it| it.verdict.as_ref());
        verdict.is_some_and(kubenodeop::node::gate::Verdict::is_open)
    }

    fn is_clean(&self) -> bool {
        let verdict = self.report.as_ref().and_then(|it| it.verdict.as_ref());
        verdict.is_some_and(|it| it.is_open() && it.taints.is_empty())
    }

    /// The next watch counts from zero.
    fn forget_report(&mut self) {
        if let Some(report) = self.report.take() {
            add(&mut self.repairs, &report.repairs);
        }
    }

    /// The node was seen Ready and without taints of an outage.
    fn is_untainted(&self) -> bool {
        let verdict = self.report.as_ref().and_then(|it| it.verdict.as_ref());
        verdict.is_some_and(|it| {
            it.taints.is_empty()
                && match it.layer {
                    Some(Layer::Devices | Layer::Service | Layer::Node) => false,
                    None | Some(Layer::Lease | Layer::Storage | Layer::Steady) => true,
                }
        })
    }
}

impl Zedkube {
    /// Hears how the gate stands.
    pub(super) fn gate(&mut self, now: Mono, report: Box<Report>, out: &mut Vec<Effect>) {
        if !self.after_boot.watching {
            return;
        }
        let before = self.after_boot.report.as_ref();
        let seen = |it: &Report| it.verdict.as_ref().map(|it| (it.layer, it.failed, it.words.clone()));
        for (taint, count) in &report.repairs {
            let earlier = self.after_boot.repairs.get(taint).copied().unwrap_or_default();
            let known = before.and_then(|it| it.repairs.get(taint)).copied().unwrap_or_default();
            if *count > known && earlier + count > 1 {
                out.push(Effect::Say(Said::TaintAgain(taint.clone(), earlier + count)));
            }
        }
        let told = !self.after_boot.opened || self.after_boot.earlier;
        if before.and_then(|it| seen(it)) != seen(&report)
            && let Some(verdict) = &report.verdict
            && (told || verdict.failed)
        {
            out.push(Effect::Say(Said::Gate(verdict.clone())));
        }
        let was_open = self.after_boot.is_open();
        self.after_boot.report = Some(report);
        if self.after_boot.is_open()
            && !was_open
            && let Care::Due(at) = self.care
        {
            // What waited for it goes on.
            self.care = Care::Due(at.min(now));
        }
    }

    /// Taints of an outage are on the node again: they go as they did after the boot.
    pub(super) fn tainted(&mut self, taints: Vec<String>, out: &mut Vec<Effect>) {
        if std::mem::take(&mut self.after_boot.sentry) {
            self.after_boot.settled = false;
            // What was seen before they came says nothing.
            self.after_boot.forget_report();
            out.push(Effect::Say(Said::Tainted(taints)));
        }
    }

    /// What a look says of a cordon of an earlier boot.
    pub(super) fn seen_after_boot(&mut self, seen: &Seen, out: &mut Vec<Effect>) {
        let after_boot = &mut self.after_boot;
        // With the gate shut it was somebody else.
        if *seen == Seen::Open && after_boot.earlier && after_boot.is_open() {
            *after_boot.repairs.entry(OWN_CORDON.to_owned()).or_default() += 1;
            out.push(Effect::Say(Said::Repaired(OWN_CORDON.to_owned())));
        }
        after_boot.earlier = *seen == Seen::NotReady;
    }

    /// Watches as long as something is to be waited for: in a cluster from each start on, elsewhere for a cordon.
    pub(super) fn settle_gate(&mut self, out: &mut Vec<Effect>) {
        let looked = self.keeps_cordon() || self.care == Care::Done;
        // A drain takes care of its node itself, and after it the machine goes down.
        let busy = self.run.is_active() || self.keeps_cordon();
        let after_boot = &mut self.after_boot;
        let clean = after_boot.is_clean() || after_boot.opened && after_boot.is_untainted();
        if clean && looked && !after_boot.earlier {
            after_boot.settled = true;
            after_boot.opened = true;
        }
        let unsettled = self.member == Membership::Member && !after_boot.settled;
        let wanted = self.node_known && (unsettled || after_boot.earlier);
        if wanted != after_boot.watching {
            after_boot.watching = wanted;
            if wanted {
                after_boot.forget_report();
            }
            out.push(Effect::Gate(wanted));
        }
        let sentry = self.member == Membership::Member && self.node_known && !wanted && !busy;
        if sentry != after_boot.sentry {
            after_boot.sentry = sentry;
            out.push(Effect::Taints(sentry));
        }
    }

    /// How the gate stands, for a reader.
    pub(super) fn told_gate(&self) -> BootGate {
        let verdict = self.after_boot.report.as_ref().and_then(|it| it.verdict.as_ref());
        let Some(verdict) = verdict else { return BootGate::default() };
        BootGate {
            open: verdict.is_open(),
            layer: verdict.layer.map(|it| it.text().to_owned()).unwrap_or_default(),
            failed: verdict.failed,
            words: verdict.words.clone(),
            next_step: verdict.next_step.clone(),
            since: self.wall(verdict.since),
            stale_taints: verdict.taints.clone(),
        }
    }

    /// What was mended after the boot, and how often, since this agent started.
    pub(super) fn repairs(&self) -> BTreeMap<String, u32> {
        let mut all = self.after_boot.repairs.clone();
        if let Some(report) = &self.after_boot.report {
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
