//! A turn that is ours: what a fresh reading of the Lease says about it, and how it ends.
//!
//! Source: spec/cluster-lock.md 3.4. Pure: no clock, no I/O, no task.

use step::{Fault, Mono, planted};

use super::event::{Effect, Unconfirmed};
use super::record::{EarlierGrant, Fence, Holder, LEASE, Phase, RecordSnapshot};
use super::rule::{TurnRefusal, TurnRule};
use super::state::{DesiredTurn, KnownRecord, Turn, TurnGrant};

/// Why nobody goes on in a turn that is still ours.
pub(super) const FORGOTTEN: &str =
    "the Lease of turns was deleted or restored: this node writes its turn in again first";

impl Turn {
    /// The turn is ours.
    pub(super) fn hold(&mut self, fence: Fence, lease_uid: String, phase: Phase) {
        (self.refusal, self.paused, self.barred, self.phase) = (None, None, None, phase);
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
            (TurnGrant::Held { fence, lease_uid }, Some(entry))
                if entry.fence == *fence && *lease_uid == uid =>
            {
                self.forgotten = false;
            }
            // Written in again, by us or by somebody who knew of it.
            (TurnGrant::Held { fence, lease_uid }, Some(entry))
                if entry.earlier.is_some() && entry.boot_id == self.me.boot_id =>
            {
                out.push(Effect::Say(format!(
                    "the turn with fence {fence} continues with fence {}: the Lease was deleted or restored",
                    entry.fence
                )));
                (*fence, *lease_uid, self.forgotten) = (entry.fence, uid, false);
            }
            (TurnGrant::Held { fence, lease_uid }, _) => {
                let earlier = EarlierGrant { fence: *fence, lease_uid: lease_uid.clone() };
                // Whoever releases finds its entry missing.
                let leaves = self.paused.is_some() || self.want == DesiredTurn::Nothing;
                // Agents of a node alone grant it a turn, and this one did not.
                let took = |it: &Holder| it.boot_id == self.me.boot_id && it.fence > earlier.fence;
                self.rival = self.own().is_some_and(took);
                if !leaves && !self.is_forgotten(&earlier) {
                    let why = self.why_lost();
                    out.push(Effect::Say(why.clone()));
                    self.lose(now, why);
                } else if !leaves && !std::mem::replace(&mut self.forgotten, true) {
                    out.push(Effect::Say(self.why_lost()));
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

    /// Whether the Lease knows nothing of this grant, as it was deleted or restored; otherwise somebody has ended it.
    fn is_forgotten(&self, grant: &EarlierGrant) -> bool {
        self.held().is_none_or(|held| {
            let of_this = held.uid == grant.lease_uid;
            let released = held.record.is_released(&self.me.uid, of_this.then_some(grant.fence), grant);
            !released && (!of_this || held.record.fence < grant.fence)
        })
    }

    pub(super) fn why_lost(&self) -> String {
        let KnownRecord::There(held) = &self.seen else {
            return format!("Lease {LEASE} was deleted, and our turn with it");
        };
        if let Some(why) = self.rivals() {
            return why;
        }
        match held.record.forced.iter().rev().find(|it| it.node_uid == self.me.uid) {
            Some(it) => format!("{} released our turn with fence {}: {}", it.who, it.fence, it.why),
            None => format!(
                "Lease {LEASE} does not have our turn any more: it was deleted, restored or taken over"
            ),
        }
    }

    /// Whose turn for this node it is, where another zedkube has it.
    fn rivals(&self) -> Option<String> {
        let fence = self.own().filter(|_| self.rival)?.fence;
        Some(format!(
            "another zedkube acts for this node and has its turn (fence {fence}): one node is for one zedbox"
        ))
    }

    /// Whether `new` has a turn of this node that another zedkube took: this one wants none, and has seen the Lease without it.
    /// What a restored Lease brings back is an earlier grant.
    pub(super) fn is_rivals(&self, new: &RecordSnapshot) -> bool {
        let Some(old) = self.held().filter(|old| self.idle && old.uid == new.uid) else { return false };
        let granted_since = old.record.fence + 1..=new.record.fence;
        let entry = new.record.holder(&self.me.node, &self.me.uid);
        entry.is_some_and(|it| {
            it.boot_id == self.me.boot_id && it.earlier.is_none() && granted_since.contains(&it.fence)
        })
    }

    /// A reading of the Lease is fresh: what follows from it.
    pub(super) fn decide(&mut self, now: Mono, out: &mut Vec<Effect>) {
        self.reconcile(now, out);
        self.rival &= self.own().is_some();
        match (self.grant.clone(), self.want.clone()) {
            (TurnGrant::Lost { .. }, DesiredTurn::Nothing) => {
                self.grant = TurnGrant::None;
                self.decide(now, out);
            }
            (TurnGrant::Held { .. }, DesiredTurn::Turn(_)) if self.paused.is_some() => {
                self.leave(now, None, out);
            }
            (TurnGrant::Held { .. }, DesiredTurn::Turn(_)) if self.forgotten => self.read_cluster(out),
            (TurnGrant::None, DesiredTurn::Turn(want)) if want.emergency => {
                self.enter(now, self.record(), &want, out);
            }
            // What the other one took is not taken from it, or both would go on for ever.
            (TurnGrant::None, DesiredTurn::Nothing) if self.rival => self.idle = false,
            (TurnGrant::None, DesiredTurn::Turn(_)) if self.rivals().is_some() => {
                self.refusal = self.rivals().map(|why| TurnRefusal {
                    rule: TurnRule::Holder,
                    nodes: vec![self.me.node.clone()],
                    why,
                    next: "pgrep -a zedbox".to_owned(),
                });
            }
            (TurnGrant::None, DesiredTurn::Turn(_)) if self.is_paused(now) => {
                let until = self.paused.max(self.barred);
                if let Some(until) = until.filter(|_| self.refusal.is_none()) {
                    self.refusal = Some(TurnRefusal {
                        rule: TurnRule::Retry,
                        nodes: Vec::new(),
                        why: format!(
                            "its turn was lost {} times; the next one is in {} s",
                            self.losses,
                            until.since(now).as_secs()
                        ),
                        next: "zedbox lock status".to_owned(),
                    });
                }
                self.leave(now, until, out);
            }
            (TurnGrant::None, DesiredTurn::Turn(want)) if Self::is_unfit(&want) && self.own().is_none() => {
                self.stay_out(now, self.record(), out);
            }
            (TurnGrant::None, DesiredTurn::Turn(want)) => self.seek(now, &want, out),
            (TurnGrant::Held { .. } | TurnGrant::None, DesiredTurn::Nothing) => {
                self.leave(now, self.doubt.filter(|until| now < *until), out);
            }
            (TurnGrant::Booted { .. }, _) if self.gate == Some(true) || planted(Fault::TurnGate) => {
                self.leave(now, None, out);
            }
            (TurnGrant::Booted { .. }, DesiredTurn::Turn(want)) if want.emergency => {
                self.say_phase(now, Phase::Emergency, out);
            }
            (TurnGrant::Booted { .. }, _) => {
                let phase = if self.gate == Some(false) { Phase::Gate } else { Phase::Booted };
                self.say_phase(now, phase, out);
            }
            (TurnGrant::Held { .. }, _) => self.say_phase(now, self.phase.clone(), out),
            (TurnGrant::Lost { .. }, DesiredTurn::Turn(_) | DesiredTurn::Unknown)
            | (TurnGrant::None, DesiredTurn::Unknown) => {}
        }
    }

    /// Writes `phase` into our own entry if it says another one.
    pub(super) fn say_phase(&mut self, now: Mono, phase: Phase, out: &mut Vec<Effect>) {
        let mut record = self.record();
        let own = record.holders.iter_mut().find(|it| it.node == self.me.node && it.node_uid == self.me.uid);
        if let Some(entry) = own.filter(|it| it.phase != phase) {
            entry.phase = phase;
            self.write(now, record, false, out);
        }
    }

    /// Takes our entry and our place in the queue away; when there are none, looks again at `next`.
    pub(super) fn leave(&mut self, now: Mono, next: Option<Mono>, out: &mut Vec<Effect>) {
        let mut record = self.record();
        record.release(&self.me.node, &self.me.uid);
        record.queue.retain(|it| it.node != self.me.node);
        if record != self.record() {
            self.idle = false;
            self.write(now, record, false, out);
            return;
        }
        if let TurnGrant::Held { fence, .. } | TurnGrant::Booted { fence, .. } = self.grant {
            out.push(Effect::Say(format!("turn with fence {fence} released")));
            self.phase = Phase::Granted;
            (self.grant, self.forgotten, self.losses, self.barred) = (TurnGrant::None, false, 0, None);
            // A turn may be wanted again, after a pause or at once.
            self.dirty = matches!(self.want, DesiredTurn::Turn(_));
        }
        self.idle = next.is_none() && self.want == DesiredTurn::Nothing;
        self.due = next;
    }

    /// Answers [`Event::Confirm`] from a reading that began after it.
    pub(super) fn confirmed(&mut self, now: Mono, out: &mut Vec<Effect>) {
        self.end_in_mode(now);
        let answer = match &self.grant {
            TurnGrant::Held { .. } if self.forgotten => Err(Unconfirmed::Unknown(FORGOTTEN.to_owned())),
            TurnGrant::Held { .. } => Ok(()),
            TurnGrant::Lost { why } => Err(Unconfirmed::Lost(why.clone())),
            TurnGrant::None | TurnGrant::Booted { .. } => {
                Err(Unconfirmed::Lost("this node holds no turn".to_owned()))
            }
        };
        out.push(Effect::Confirmed(answer));
    }

    /// A whole-cluster operation ends every other turn.
    pub(super) fn end_in_mode(&mut self, now: Mono) {
        let begun = self.record().mode.is_some_and(|it| !it.keeps_turns());
        if begun && matches!(self.grant, TurnGrant::Held { .. }) {
            let why = "a whole-cluster operation has begun, and no other turn may be used in it".to_owned();
            self.lose(now, why);
        }
    }
}
