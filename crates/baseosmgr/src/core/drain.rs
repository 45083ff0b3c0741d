//! From a whole image to the switch: the request of our own, the waits, the growing pauses, and `updating`.
//!
//! A request lives as long as the operation is wanted, up to the reboot. When another image is wanted in the
//! middle of a drain, the request is replaced by a new one that names the new image, with an identity of its own:
//! what was drained stays drained, and COMPLETE is said to the image that is really switched.
//! Pure: no clock, no I/O, no task.

use agent::partitions::PartitionState;
use requester::{DrainJudgement, Orderer, OwnRequest, Paused, ProceedReason, UNKNOWN_WAIT};
use step::{FailurePause, Fault, Mono, planted, say};

use super::event::{Effect, FallbackFrom, PartitionChange};
use super::machine::{BaseOs, WaitReason, WithdrawState};
use super::stage::ImageStage;
use crate::limits::UNANSWERED_WAIT;

#[derive(Debug, Clone, PartialEq, Eq)]
struct WantedSwitch {
    /// What the drain request names: the key of the image, or the version that is fallen back to.
    context: String,
    /// The counter of a fallback.
    fallback: Option<u32>,
}

impl BaseOs {
    /// Switches what is ready and may be; asks for the drain that is missing.
    pub(super) fn switch(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        let want = self.want();
        let switched = self.facts.spare().state == PartitionState::Updating;
        self.keep_or_withdraw(now, want.as_ref(), effects);
        let kept = self.facts.hold.own.as_ref().filter(|_| self.is_leaving());
        let context = want.as_ref().map(|want| &want.context).or(kept.map(|own| &own.context)).cloned();
        let hold = &mut self.facts.hold;
        hold.failure.take_if(|failure| Some(&failure.of) != context.as_ref());
        if switched && hold.is_used() && !std::mem::replace(&mut self.force_used, true) {
            effects.push(Effect::RemoveForce);
        }
        let Some(want) = want.filter(|_| self.ordered.is_none()) else {
            self.waiting = None;
            self.stay_drained(now, effects);
            return;
        };
        if let Some(Paused { withdraws, .. }) = self.paused() {
            self.waiting = None;
            if withdraws {
                self.withdraw(effects);
            }
            return;
        }
        let verdict = self.patient(now, &want, effects);
        if verdict != DrainJudgement::Ask
            && self.facts.hold.own.as_ref().is_some_and(|own| own.context != want.context)
        {
            // It names another image; nothing is switched under a name that is not its own.
            self.withdraw(effects);
        }
        match verdict {
            DrainJudgement::Open(why) => self.go(now, &want, why, effects),
            DrainJudgement::Ask => self.ask(now, want, effects),
            DrainJudgement::Failed(reason) => self.failed(now, want, &reason, effects),
            DrainJudgement::Wait
            | DrainJudgement::Stranger(_)
            | DrainJudgement::Held(_)
            | DrainJudgement::Silent
            | DrainJudgement::Unanswered(_) => {}
        }
    }

    /// Whether a person's pause keeps the switch waiting.
    fn paused(&self) -> Option<Paused> {
        self.facts.hold.paused(self.facts.hold.own.as_ref(), Orderer::Controller)
    }

    /// What the gate says, once it has said the same for as long as it may.
    fn patient(&mut self, now: Mono, want: &WantedSwitch, effects: &mut Vec<Effect>) -> DrainJudgement {
        let verdict = self.judge(want);
        let (kind, limit) = if matches!(verdict, DrainJudgement::Silent) {
            (WaitReason::Silent, UNKNOWN_WAIT)
        } else if matches!(verdict, DrainJudgement::Unanswered(_)) {
            (WaitReason::Unanswered, UNANSWERED_WAIT)
        } else {
            self.waiting = None;
            return verdict;
        };
        self.waiting.take_if(|(waited, context, _)| *waited != kind || *context != want.context);
        let since = self.waiting.get_or_insert_with(|| (kind, want.context.clone(), now)).2;
        if now.since(since) < limit {
            self.wake_at(since + limit);
            return verdict;
        }
        let waited_secs = limit.as_secs();
        let DrainJudgement::Unanswered(status) = verdict else {
            return DrainJudgement::Open(ProceedReason::Silent { waited_secs });
        };
        let reason = format!(
            "zedkube did not take up the request within {waited_secs} s and says {}; see that it runs",
            status.text()
        );
        self.facts.hold.count_failure(now, want.context.clone(), &reason);
        self.tell_failure(effects);
        effects.push(Effect::Withdraw);
        (self.facts.hold.own, self.waiting) = (None, None);
        DrainJudgement::Ask
    }

    /// Which image the gate holds back, why, and what opens it again, where others would not show that.
    pub(super) fn held(&self) -> Option<(String, String, &'static str)> {
        let want = self.want()?;
        if let Some(Paused { waiting_for, next_step, .. }) = self.paused() {
            return Some((want.context, format!("waits for {waiting_for}"), next_step));
        }
        let verdict = self.verdict(&want);
        if let DrainJudgement::Stranger(number) = verdict {
            let text = format!("zedkube says NodeDrainStatus {number}, which this version does not know");
            return Some((want.context, text, "another NodeDrainStatus, or the force file"));
        }
        let DrainJudgement::Held(forced) = verdict else { return None };
        let text = format!("the force file holds it back: it says {forced}");
        Some((want.context, text, "another force file, or none"))
    }

    /// As in the reference, where only some ways to a switch lead through the gate (D-B1).
    pub(super) fn switch_unasked(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if let Some(want) = self.want().filter(|_| self.facts.all_heard()) {
            self.go(now, &want, ProceedReason::Complete { skip: String::new() }, effects);
        }
    }

    fn verdict(&self, want: &WantedSwitch) -> DrainJudgement {
        if planted(Fault::N3) && want.fallback.is_some() {
            return DrainJudgement::Open(ProceedReason::Complete { skip: String::new() });
        }
        self.facts.hold.verdict(|own| own.context == want.context)
    }

    fn judge(&mut self, want: &WantedSwitch) -> DrainJudgement {
        let verdict = self.verdict(want);
        self.facts.hold.judged(|own| own.context == want.context, &verdict);
        verdict
    }

    /// The partition that is ready to be switched to, whatever made it so.
    fn want(&self) -> Option<WantedSwitch> {
        if self.writing.is_some() || self.facts.spare().state == PartitionState::Updating {
            return None;
        }
        if planted(Fault::B2)
            && let Some(own) = &self.facts.hold.own
        {
            return Some(WantedSwitch { context: own.context.clone(), fallback: None });
        }
        let is_ready = |stage: &ImageStage| {
            matches!(stage, ImageStage::Written | ImageStage::FailedBefore { retry: Some(_) })
        };
        let ready = self.facts.stages().into_iter().find(|(_, _, stage)| is_ready(stage));
        let fallback = self.facts.fallback_due();
        match (ready, fallback) {
            // A fallback to the very image that is ready is the same switch.
            (Some((key, _, _)), fallback) => Some(WantedSwitch { context: key.clone(), fallback }),
            (None, Some(_)) => Some(WantedSwitch {
                context: format!("fallback {}", self.facts.spare().short_version),
                fallback,
            }),
            (None, None) => None,
        }
    }

    /// Takes our request back when nothing wants it any more.
    fn keep_or_withdraw(&mut self, now: Mono, want: Option<&WantedSwitch>, effects: &mut Vec<Effect>) {
        let switched = self.facts.spare().state == PartitionState::Updating;
        let stages = self.facts.stages();
        // The next image is as good as here; what is drained by then need not be drained again.
        let coming =
            self.write_trouble.is_none() && stages.iter().any(|(_, _, stage)| *stage == ImageStage::ToWrite);
        // Rivals are most often the old and the new image in the moment of a change.
        let rivals = stages.iter().any(|(_, _, stage)| *stage == ImageStage::Rival);
        let since = rivals.then(|| self.rivals_since.unwrap_or(now));
        self.rivals_since = since;
        let changing = match since.map(|since| since + UNANSWERED_WAIT) {
            Some(end) if now < end => {
                self.wake_at(end);
                true
            }
            Some(_) | None => false,
        };
        // A switch that was ordered may have come about: until that is known, the node stays drained.
        let ordered = self.ordered.is_some();
        if !(switched || ordered || want.is_some() || coming || changing) {
            self.withdraw(effects);
        }
    }

    pub(super) fn withdraw(&mut self, effects: &mut Vec<Effect>) {
        match self.withdraw {
            WithdrawState::Unasked if self.facts.hold.own.is_some() && !planted(Fault::WithdrawUnasked) => {
                self.withdraw = WithdrawState::Due;
            }
            WithdrawState::Unasked | WithdrawState::Granted => {
                if let Some(own) = self.facts.hold.own.take() {
                    say!(
                        effects,
                        info,
                        "NodeDrainRequest withdrawn: nothing waits for {} any more",
                        own.context
                    );
                    effects.push(Effect::Withdraw);
                }
            }
            WithdrawState::Due | WithdrawState::Asked | WithdrawState::Refused => {}
        }
    }

    /// After all else of a step: what nodeagent acts on has been published.
    pub(super) fn part(&mut self, effects: &mut Vec<Effect>) {
        match self.withdraw {
            WithdrawState::Due => {
                effects.push(Effect::AskNodeagent);
                self.withdraw = WithdrawState::Asked;
            }
            // Used, or not wanted any more.
            WithdrawState::Granted => self.withdraw = WithdrawState::Unasked,
            WithdrawState::Unasked | WithdrawState::Asked | WithdrawState::Refused => {}
        }
    }

    pub(super) fn parted(&mut self, going_down: bool, effects: &mut Vec<Effect>) {
        self.withdraw = if going_down { WithdrawState::Refused } else { WithdrawState::Granted };
        if let Some(own) = self.facts.hold.own.as_ref().filter(|_| going_down) {
            say!(
                effects,
                info,
                "NodeDrainRequest stays although nothing waits for {}: nodeagent restarts the machine",
                own.context
            );
        }
    }

    /// Whether the machine is to restart because of us.
    fn is_leaving(&self) -> bool {
        self.facts.spare().state == PartitionState::Updating || self.withdraw == WithdrawState::Refused
    }

    /// The machine is to restart: until it does, the node stays drained. zedkube drains again by itself when COMPLETE
    /// does not hold any more.
    fn stay_drained(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if self.ordered.is_some() || !self.is_leaving() {
            return;
        }
        let Some(own) = &self.facts.hold.own else { return };
        let want = WantedSwitch { context: own.context.clone(), fallback: None };
        if let DrainJudgement::Failed(reason) = self.judge(&want) {
            self.failed(now, want, &reason, effects);
        }
    }

    fn go(&mut self, now: Mono, want: &WantedSwitch, why: ProceedReason, effects: &mut Vec<Effect>) {
        let order = PartitionChange::Set { label: self.facts.spare().label, state: PartitionState::Updating };
        if !self.may_order(now, order) {
            return;
        }
        effects.push(Effect::Switch { context: want.context.clone(), why });
        if let Some(counter) = want.fallback {
            self.journal(Some(FallbackFrom { counter, from: self.facts.partitions.current }), effects);
        }
        self.order(now, order, effects);
        self.waiting = None;
        self.facts.hold.failure = None;
    }

    fn ask(&mut self, now: Mono, want: WantedSwitch, effects: &mut Vec<Effect>) {
        if let Some(until) = self.facts.hold.rests(now, &want.context) {
            self.wake_at(until);
            return;
        }
        // The words after `nodedrain-step:` here and below are the reference's; scripts look for them.
        say!(
            effects,
            info,
            "baseOsHandleStatusUpdateUUID shouldDeferForNodeDrain nodedrain-step:request requester:eve-os-update ctx:{}",
            want.context
        );
        self.asks += 1;
        effects.push(Effect::Ask { nth: self.asks, context: want.context.clone() });
        self.facts.hold.own = Some(OwnRequest::new(want.context, None, &self.facts.hold.heard));
    }

    /// The drain failed: it is requested again after a pause. The failed request stays until then: zedkube drains for it
    /// again by itself once the cause has ended, and nodeagent continues waiting.
    fn failed(&mut self, now: Mono, want: WantedSwitch, reason: &str, effects: &mut Vec<Effect>) {
        self.waiting = None;
        if self.facts.hold.fail(now, reason).is_some() {
            self.tell_failure(effects);
        } else {
            self.ask(now, want, effects);
        }
    }

    fn tell_failure(&mut self, effects: &mut Vec<Effect>) {
        let Some(FailurePause { of, reason, wait_secs, until, .. }) = &self.facts.hold.failure else {
            return;
        };
        say!(
            effects,
            error,
            "nodedrain-step:drain-failed-handler unpublish NodeDrainRequest due to NodeDrainStatus:{reason}; asked for \
             again in {wait_secs} s, ctx:{of}"
        );
        let until = *until;
        self.wake_at(until);
    }
}
