//! One update of k3s on its way: asked for, handed over, followed until the node is healthy with it.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use requester::{DeviceClustering, DrainJudgement, Orderer, OwnRequest, Paused, ProceedReason, UNKNOWN_WAIT};
use step::{Fault, Mono, planted, say};
use topics::{FORCE_FILE, K3S_RESTART, K3sStage, K3sUpdate, NodeDrainRequest};

use super::rules::{Effect, K3s, K3sChange, Reported, millis};
use crate::limits::{K3S_SETTLE, K3S_UPDATE};

/// Between two looks at what the kubelet reports, while that is waited for.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// The same after a failure.
const LOOK_SELDOM: Duration = Duration::from_secs(60);
/// Where a person looks at the drain.
const SEE_DRAIN: &str = "zedbox drain status";

impl K3s {
    /// Something else is wanted than the kube container is told.
    pub(super) fn hold_back(&mut self, now: Mono, change: K3sChange, out: &mut Vec<Effect>) {
        let to = change.version.clone().unwrap_or_else(|| self.version.clone());
        let file = change.file.is_some();
        let known = |it: &K3sUpdate| it.stage != K3sStage::Done && it.to == to && it.changes_override == file;
        if !self.record.as_ref().is_some_and(known) {
            let applied = self.is_applied();
            let record = K3sUpdate {
                // One that was applied and is replaced continues in its place: the node is not healthy in between.
                stage: if applied { K3sStage::Applied } else { K3sStage::Waiting },
                from: self.version.clone(),
                to: to.clone(),
                changes_override: file,
                since: self.wall(now),
                boot_id: self.boot_id.clone(),
                booted_at: self.booted_at,
                ..self.record.clone().filter(|_| applied).unwrap_or_default()
            };
            self.reported = Reported::Unasked;
            let (from, to, over) =
                (named(&self.version), named(&to), if file { ", with its override file" } else { "" });
            say!(
                out,
                info,
                "k3s update requested: from {from} to {to}{over}; it waits for the turn of this node"
            );
            self.keep(record, out);
        }
        let drains = change.version.is_some();
        let context = if drains { named(&to) } else { K3S_RESTART.to_owned() };
        // The kubelet may report what is wanted already: then telling the kube container is no outage.
        if !file && !to.is_empty() {
            match &self.reported {
                Reported::Unasked => return self.look(out),
                Reported::Asked => return,
                Reported::Known(version) if *version == to => {
                    let skip = "the kubelet reports that version already: nothing restarts".to_owned();
                    return self.apply(now, change, skip, out);
                }
                Reported::Known(_) => {}
            }
        }
        // What was answered for a turn alone is no answer to a drain.
        let counts = |it: &OwnRequest| !drains || it.context != K3S_RESTART;
        let paused = self.hold.paused(self.hold.own.as_ref(), Orderer::Controller);
        if let Some(Paused { waiting_for, next_step, withdraws }) = paused {
            // One that replaces what was applied keeps its turn: the node is not healthy in between.
            if withdraws && !self.is_applied() {
                self.withdraw(out);
            }
            return self.waits(&waiting_for, next_step, out);
        }
        let own = self.hold.own.as_ref().filter(|it| counts(it));
        let words = own.map(|own| self.hold.heard.words(own)).unwrap_or_default();
        let undecided = self.hold.cluster == DeviceClustering::Undecided;
        match self.hold.judge(counts) {
            DrainJudgement::Open(why) => self.apply(now, change, why.skip(), out),
            DrainJudgement::Silent if undecided || now < self.silence.until => {
                self.waits("it is not known whether this node is in a cluster", SEE_DRAIN, out);
            }
            DrainJudgement::Silent => {
                let why = ProceedReason::Silent { waited_secs: UNKNOWN_WAIT.as_secs() };
                self.apply(now, change, why.skip(), out);
            }
            DrainJudgement::Failed(reason) if planted(Fault::K3sUndrained) => {
                self.apply(now, change, reason, out);
            }
            DrainJudgement::Failed(reason) => self.failed(now, &reason, context, out),
            DrainJudgement::Ask if self.drain_read && self.hold.rests(now, &context).is_none() => {
                self.ask(now, context, out);
            }
            DrainJudgement::Ask => {}
            DrainJudgement::Held(status) => {
                let waits = format!("the forced status {status} to end");
                self.waits(&waits, &format!("remove {FORCE_FILE}"), out);
            }
            DrainJudgement::Wait | DrainJudgement::Unanswered(_) | DrainJudgement::Stranger(_) => {
                self.reword(context, out);
                self.waits(&words, SEE_DRAIN, out);
            }
        }
    }

    /// The drain failed: it is requested again after a pause that grows. The failed request stays until then: it holds no
    /// turn, and zedkube drains for it again by itself once the cause has ended.
    fn failed(&mut self, now: Mono, reason: &str, context: String, out: &mut Vec<Effect>) {
        let Some(failure) = self.hold.fail(now, reason) else {
            if self.hold.rests(now, &context).is_none() {
                self.ask(now, context, out);
            }
            return;
        };
        let (secs, failures) = (failure.wait_secs, failure.failures);
        let waits = format!("the next try, after {failures} failed: {reason}");
        say!(out, warn, "no turn for the update of k3s, asked for again in {secs} s: {reason}");
        self.waits(&waits, SEE_DRAIN, out);
    }

    fn ask(&mut self, now: Mono, context: String, out: &mut Vec<Effect>) {
        let request = self.hold.request(self.wall(now), context);
        if let Some(record) = &self.record {
            let attempts = record.attempts.saturating_add(1);
            let waiting_for = "zedkube to take the request".to_owned();
            self.keep(
                K3sUpdate { attempts, waiting_for, next_step: SEE_DRAIN.into(), ..record.clone() },
                out,
            );
        }
        out.push(Effect::Request(request));
    }

    /// The same request, for another version now.
    fn reword(&mut self, context: String, out: &mut Vec<Effect>) {
        let Some(own) =
            self.hold.own.as_mut().filter(|it| it.context != context && it.context != K3S_RESTART)
        else {
            return;
        };
        let Some(id) = own.id.filter(|_| context != K3S_RESTART) else { return };
        own.context.clone_from(&context);
        out.push(Effect::Request(NodeDrainRequest { requested_at: id.at, requested_by: id.by, context }));
    }

    /// Tells the kube container.
    fn apply(&mut self, now: Mono, change: K3sChange, skip: String, out: &mut Vec<Effect>) {
        let Some(record) = self.record.clone() else { return };
        let to = named(&record.to);
        if skip.is_empty() {
            say!(out, info, "k3s update to {to} handed to the kube container");
        } else {
            say!(out, warn, "k3s update to {to} handed to the kube container without a drain: {skip}");
        }
        let record = K3sUpdate {
            stage: K3sStage::Applied,
            applied_at: self.wall(now),
            applied_ms: millis(now),
            boot_id: self.boot_id.clone(),
            booted_at: self.booted_at,
            skip,
            released: false,
            waiting_for: "the kube container to carry it out".to_owned(),
            next_step: String::new(),
            ..record
        };
        self.keep(record, out);
        if let Some(file) = change.file {
            out.push(Effect::File(file.clone()));
            self.file = Some(file);
        }
        if let Some(version) = change.version {
            out.push(Effect::Version(version.clone()));
            self.version = version;
        }
        self.watch_gate(false, out);
        (self.reported, self.look_at) = (Reported::Unasked, None);
    }

    /// It was handed over: until the kubelet reports it and the gate is open.
    pub(super) fn follow(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let Some(record) = self.record.clone().filter(|_| self.is_applied()) else { return };
        let began = Mono::from_start(Duration::from_millis(record.applied_ms));
        let settled = now >= began + K3S_SETTLE;
        let names = !record.to.is_empty();
        if names && self.look_at.is_none_or(|at| now >= at) {
            self.look(out);
            let failed = record.stage == K3sStage::Failed;
            self.look_at = Some(now + if failed { LOOK_SELDOM } else { LOOK_AGAIN });
        }
        let here = matches!(&self.reported, Reported::Known(version) if *version == record.to);
        // What shows in no version has had its time: the kube container looks every 15 s.
        let carried_out = (here || !names) && (settled || names && !record.changes_override);
        self.watch_gate(carried_out, out);
        if carried_out && self.shut.as_deref() == Some("") {
            return self.done(&record, out);
        }
        let waits = match (&self.reported, &self.shut) {
            _ if carried_out => {
                let shut = self.shut.clone().filter(|it| !it.is_empty());
                format!(
                    "the node to be healthy: {}",
                    shut.unwrap_or_else(|| "the first look is under way".into())
                )
            }
            (Reported::Known(version), _) if names && !version.is_empty() && !here => {
                format!("the kubelet of this node to report {}, it reports {version}", record.to)
            }
            _ => format!("the kube container to carry {} out", named(&record.to)),
        };
        if record.stage == K3sStage::Failed {
            // Whoever is on the way to a turn by a rule that was looked at has none.
            let rule = self.hold.heard.progress.as_ref().map_or("", |it| it.turn.rule.as_str());
            let lost = self.hold.own.is_some()
                && !matches!(rule, "" | "reading" | "api" | "not-listed" | "record" | "preflight");
            if lost {
                say!(out, warn, "the turn of the failed update of k3s was taken away");
                self.withdraw(out);
                let next_step = "set k3s.version in the device config again".to_owned();
                self.keep(K3sUpdate { released: true, next_step, ..record }, out);
            }
            return;
        }
        if now >= began + K3S_UPDATE {
            say!(
                out,
                error,
                "k3s update timed out: this node keeps its turn, see `zedbox lock status`; it waits for {waits}"
            );
            let next_step = format!(
                "look at the log of the kube container; then set k3s.version back to `{}` in the device config, or give \
                 the turn back: `zedbox lock status` shows its number for `zedbox lock release`",
                record.from
            );
            self.keep(K3sUpdate { stage: K3sStage::Failed, waiting_for: waits, next_step, ..record }, out);
            return;
        }
        self.waits(&waits, "nothing: it is looked at again and again", out);
    }

    fn done(&mut self, record: &K3sUpdate, out: &mut Vec<Effect>) {
        say!(out, info, "the kubelet reports {}, and the node is healthy", named(&record.to));
        let (waiting_for, next_step) = (String::new(), String::new());
        self.keep(K3sUpdate { stage: K3sStage::Done, waiting_for, next_step, ..record.clone() }, out);
        self.watch_gate(false, out);
    }

    fn watch_gate(&mut self, on: bool, out: &mut Vec<Effect>) {
        if self.gate != on {
            (self.gate, self.shut) = (on, None);
            out.push(Effect::Gate(on));
        }
    }

    fn look(&mut self, out: &mut Vec<Effect>) {
        self.looks += 1;
        if !matches!(self.reported, Reported::Known(_)) {
            self.reported = Reported::Asked;
        }
        out.push(Effect::Look(self.looks));
    }

    fn waits(&mut self, waiting_for: &str, next_step: &str, out: &mut Vec<Effect>) {
        let Some(record) = self.record.clone() else { return };
        if record.waiting_for != waiting_for || record.next_step != next_step {
            let (waiting_for, next_step) = (waiting_for.to_owned(), next_step.to_owned());
            self.keep(K3sUpdate { waiting_for, next_step, ..record }, out);
        }
    }

    pub(super) fn keep(&mut self, record: K3sUpdate, out: &mut Vec<Effect>) {
        self.record = Some(record.clone());
        out.push(Effect::Journal(Box::new(record)));
    }
}

/// The version for a person.
fn named(version: &str) -> String {
    if version.is_empty() { "k3s of the image".to_owned() } else { format!("k3s {version}") }
}
