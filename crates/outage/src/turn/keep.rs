//! A turn that is ours: what a fresh reading of the Lease says about it, and how it ends.
//!
//! Source: spec/cluster-lock.md 3.4. Pure: no clock, no I/O, no task.

use step::{Fault, Mono, planted};

use super::event::{Effect, Unconfirmed};
use super::record::{Fence, LEASE, Phase};
use super::state::{DesiredTurn, KnownRecord, Turn, TurnGrant};

impl Turn {
    /// The turn is ours.
    pub(super) fn hold(&mut self, fence: Fence, lease_uid: String, phase: Phase) {
        (self.refusal, self.paused, self.phase) = (None, None, phase);
        self.grant = TurnGrant::Held { fence, lease_uid };
    }

    /// What the record says about our turn.
    pub(super) fn reconcile(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let mine = self.own().cloned();
        let uid = match &self.seen {
            KnownRecord::There(held) => held.uid.clone(),
            KnownRecord::Absent | KnownRecord::Unknown => String::new(),
        };
        let attempted = self.attempt.take_if(|_| mine.is_some());
        match (&mut self.grant, mine) {
            (TurnGrant::None, Some(entry)) if entry.boot_id != self.me.boot_id => {
                out.push(Effect::Say(format!("back from the turn with fence {} in a new boot", entry.fence)));
                self.grant = TurnGrant::Booted { fence: entry.fence, listed: true };
            }
            (TurnGrant::None, Some(entry))
                if attempted.is_some_and(|(fence, until)| fence == entry.fence && now < until) =>
            {
                out.push(Effect::Say(format!("turn granted with fence {}", entry.fence)));
                let phase = self.phase.clone();
                self.hold(entry.fence, uid, phase);
            }
            (TurnGrant::Held { fence, lease_uid }, entry) => {
                let own = entry.is_some_and(|entry| entry.fence == *fence) && *lease_uid == uid;
                // Whoever releases finds its entry missing.
                let leaves = self.paused.is_some() || self.want == DesiredTurn::Nothing;
                if !own && !leaves {
                    let why = self.why_lost();
                    out.push(Effect::Say(why.clone()));
                    self.grant = TurnGrant::Lost { why };
                }
            }
            (TurnGrant::Booted { listed, .. }, None)
                if *listed && self.gate != Some(true) && !planted(Fault::TurnGate) =>
            {
                *listed = false;
                out.push(Effect::Say(self.why_lost()));
            }
            (TurnGrant::None | TurnGrant::Lost { .. } | TurnGrant::Booted { .. }, _) => {}
        }
    }

    pub(super) fn why_lost(&self) -> String {
        let KnownRecord::There(held) = &self.seen else {
            return format!("Lease {LEASE} was deleted, and our turn with it");
        };
        match held.record.forced.iter().rev().find(|it| it.node_uid == self.me.uid) {
            Some(it) => format!("{} released our turn with fence {}: {}", it.who, it.fence, it.why),
            None => format!(
                "Lease {LEASE} does not have our turn any more: it was deleted, restored or taken over"
            ),
        }
    }

    /// A reading of the Lease is fresh: what follows from it.
    pub(super) fn decide(&mut self, now: Mono, out: &mut Vec<Effect>) {
        self.reconcile(now, out);
        match (self.grant.clone(), self.want.clone()) {
            (TurnGrant::Lost { .. }, DesiredTurn::Nothing) => {
                self.grant = TurnGrant::None;
                self.leave(None, out);
            }
            (TurnGrant::Held { .. }, DesiredTurn::Turn(_)) if self.paused.is_some() => self.leave(None, out),
            (TurnGrant::None, DesiredTurn::Turn(want)) if want.emergency => {
                self.enter(now, self.record(), &want, out);
            }
            (TurnGrant::None, DesiredTurn::Turn(_)) if self.is_paused(now) => self.leave(self.paused, out),
            (TurnGrant::None, DesiredTurn::Turn(want)) if Self::is_unfit(&want) && self.own().is_none() => {
                self.stay_out(self.record(), out);
            }
            (TurnGrant::None, DesiredTurn::Turn(want)) => self.seek(now, &want, out),
            (TurnGrant::Held { .. } | TurnGrant::None, DesiredTurn::Nothing) => {
                self.leave(self.doubt.filter(|until| now < *until), out);
            }
            (TurnGrant::Booted { .. }, _) if self.gate == Some(true) || planted(Fault::TurnGate) => {
                self.leave(None, out);
            }
            (TurnGrant::Booted { .. }, DesiredTurn::Turn(want)) if want.emergency => {
                self.say_phase(Phase::Emergency, out);
            }
            (TurnGrant::Booted { .. }, _) => {
                let phase = if self.gate == Some(false) { Phase::Gate } else { Phase::Booted };
                self.say_phase(phase, out);
            }
            (TurnGrant::Held { .. }, _) => self.say_phase(self.phase.clone(), out),
            (TurnGrant::Lost { .. }, DesiredTurn::Turn(_) | DesiredTurn::Unknown)
            | (TurnGrant::None, DesiredTurn::Unknown) => {}
        }
    }

    /// Writes `phase` into our own entry if it says another one.
    pub(super) fn say_phase(&mut self, phase: Phase, out: &mut Vec<Effect>) {
        let mut record = self.record();
        let own = record.holders.iter_mut().find(|it| it.node == self.me.node && it.node_uid == self.me.uid);
        if let Some(entry) = own.filter(|it| it.phase != phase) {
            entry.phase = phase;
            self.write(record, false, out);
        }
    }

    /// Takes our entry and our place in the queue away; when there are none, looks again at `next`.
    pub(super) fn leave(&mut self, next: Option<Mono>, out: &mut Vec<Effect>) {
        let mut record = self.record();
        record.release(&self.me.node, &self.me.uid);
        record.queue.retain(|it| it.node != self.me.node);
        if record != self.record() {
            self.idle = false;
            self.write(record, false, out);
            return;
        }
        if let TurnGrant::Held { fence, .. } | TurnGrant::Booted { fence, .. } = self.grant {
            out.push(Effect::Say(format!("turn with fence {fence} released")));
            self.phase = Phase::Granted;
            self.grant = TurnGrant::None;
            // A turn may be wanted again, after a pause or at once.
            self.dirty = matches!(self.want, DesiredTurn::Turn(_));
        }
        self.idle = next.is_none() && self.want == DesiredTurn::Nothing;
        self.due = next;
    }

    /// Answers [`Event::Confirm`] from a reading that began after it.
    pub(super) fn confirmed(&mut self, out: &mut Vec<Effect>) {
        self.end_in_mode();
        let answer = match &self.grant {
            TurnGrant::Held { .. } => Ok(()),
            TurnGrant::Lost { why } => Err(Unconfirmed::Lost(why.clone())),
            TurnGrant::None | TurnGrant::Booted { .. } => {
                Err(Unconfirmed::Lost("this node holds no turn".to_owned()))
            }
        };
        out.push(Effect::Confirmed(answer));
    }

    /// A whole-cluster operation ends every other turn.
    pub(super) fn end_in_mode(&mut self) {
        let begun = self.record().mode.is_some_and(|it| !it.keeps_turns());
        if begun && matches!(self.grant, TurnGrant::Held { .. }) {
            let why = "a whole-cluster operation has begun, and no other turn may be used in it".to_owned();
            self.grant = TurnGrant::Lost { why };
        }
    }
}
