//! The last look before the machine goes down: the Lease, the nodes, on a server the margin of etcd, each read after the
//! question; then our entry says that it goes down.
//!
//! The nodes are read because a Lease that was restored from an older state may have our entry again after an operator
//! released it: the marks of the others show that. Not here: what follows from an API that cannot be reached.
//! Source: spec/cluster-lock.md 3.4. Pure: no clock, no I/O, no task.

use step::Mono;

use super::event::{Effect, ReadError, RecordWritten, Unconfirmed};
use super::keep::FORGOTTEN;
use super::rebuild::marked;
use super::record::{LEASE, Phase, RecordSnapshot};
use super::rule::{self, TurnNode, TurnReading};
use super::state::{LookStep, Turn, TurnCall, TurnGrant};

impl Turn {
    pub(super) fn look_at_lease(
        &mut self,
        now: Mono,
        number: u64,
        read: Result<Option<Box<RecordSnapshot>>, ReadError>,
        out: &mut Vec<Effect>,
    ) {
        match read {
            Ok(found) => {
                self.troubles = 0;
                self.take_record(found);
                self.reconcile(now, out);
                self.end_in_mode(now);
                let refused = match &self.grant {
                    TurnGrant::Held { .. } if self.forgotten => {
                        Some(Unconfirmed::Unknown(FORGOTTEN.to_owned()))
                    }
                    TurnGrant::Held { .. } | TurnGrant::Booted { listed: true, .. } => None,
                    TurnGrant::Lost { why } => Some(Unconfirmed::Lost(why.clone())),
                    TurnGrant::Booted { listed: false, .. } => Some(Unconfirmed::Lost(self.why_lost())),
                    // After a restart of the agent, until the nodes were read.
                    TurnGrant::None if self.own().is_some() => {
                        Some(Unconfirmed::Unknown("the turn of this node is being checked".to_owned()))
                    }
                    TurnGrant::None => Some(Unconfirmed::Lost("this node holds no turn".to_owned())),
                };
                match refused {
                    None => self.look_on(number, LookStep::Nodes { unread: None }, out),
                    Some(refused) => {
                        out.push(Effect::LookedLast(number, Err(refused)));
                        self.decide(now, out);
                    }
                }
            }
            Err(ReadError::NoAnswer(why)) if self.me.server => {
                self.look_on(number, LookStep::Nodes { unread: Some(why) }, out);
            }
            Err(trouble) => self.look_failed(now, number, trouble, out),
        }
    }

    pub(super) fn look_at_nodes(
        &mut self,
        now: Mono,
        number: u64,
        step: LookStep,
        read: Result<Vec<TurnNode>, ReadError>,
        out: &mut Vec<Effect>,
    ) {
        let unread = if let LookStep::Nodes { unread } = step { unread } else { None };
        match (read, unread) {
            // It answers again.
            (Ok(_), Some(why)) => self.look_failed(now, number, ReadError::Refused(why), out),
            (Ok(nodes), None) => {
                let reading = TurnReading { held: self.held().cloned(), nodes };
                let marked = marked(&reading, &self.memory).any(|(it, _)| it.uid != self.me.uid);
                let alone = rule::is_alone(&self.me, &reading.nodes);
                if marked {
                    let why = format!(
                        "Lease {LEASE} was deleted or restored: nodes have marks of turns that it does not know"
                    );
                    out.push(Effect::Say(why.clone()));
                    self.lose(now, why.clone());
                    out.push(Effect::LookedLast(number, Err(Unconfirmed::Lost(why))));
                    self.decide(now, out);
                } else if !alone && !rule::unseen(&self.me, &self.record(), &reading.nodes).is_empty() {
                    // Another machine may have gone down a moment ago; that is known after 40 s.
                    let pause = self.unseen_pause();
                    self.look_again = Some((number, now + pause));
                } else if self.me.server && !alone {
                    self.unseen = 0;
                    self.look_on(number, LookStep::Margin { unread: None }, out);
                } else {
                    self.unseen = 0;
                    self.say_going_down(now, number, out);
                }
            }
            (Err(ReadError::NoAnswer(why)), unread) if self.me.server => {
                self.look_on(number, LookStep::Margin { unread: Some(unread.unwrap_or(why)) }, out);
            }
            (Err(trouble), _) => self.look_failed(now, number, trouble, out),
        }
    }

    pub(super) fn look_at_margin(
        &mut self,
        now: Mono,
        number: u64,
        step: LookStep,
        margin: Result<(), String>,
        out: &mut Vec<Effect>,
    ) {
        let unread = if let LookStep::Margin { unread } = step { unread } else { None };
        match (unread, margin) {
            (Some(why), margin) => {
                let refused = Unconfirmed::Unreachable { why: why.clone(), margin };
                out.push(Effect::LookedLast(number, Err(refused)));
                self.failed(now, ReadError::NoAnswer(why));
            }
            (None, Ok(())) => self.say_going_down(now, number, out),
            (None, Err(why)) => {
                out.push(Effect::LookedLast(number, Err(Unconfirmed::NoMargin(why))));
                self.decide(now, out);
            }
        }
    }

    /// What became of our entry. Only another writer is a reason to look again.
    pub(super) fn said_going_down(
        &mut self,
        now: Mono,
        number: u64,
        wrote: RecordWritten,
        out: &mut Vec<Effect>,
    ) {
        match wrote {
            RecordWritten::Outdated => self.look = self.look.or(Some(number)),
            RecordWritten::Done(held) => {
                self.take_record(Some(held));
                out.push(Effect::LookedLast(number, Ok(())));
                self.decide(now, out);
            }
            RecordWritten::Unknown(why) => {
                out.push(Effect::LookedLast(number, Ok(())));
                self.failed(now, ReadError::NoAnswer(why));
            }
        }
    }

    fn look_on(&mut self, number: u64, step: LookStep, out: &mut Vec<Effect>) {
        let margin = matches!(step, LookStep::Margin { .. });
        let id = self.begin(TurnCall::Look(number, step));
        out.push(if margin { Effect::ReadMargin(id) } else { Effect::ReadCluster(id) });
    }

    fn say_going_down(&mut self, now: Mono, number: u64, out: &mut Vec<Effect>) {
        let before = self.calls;
        // Of a boot before, or of an emergency, the entry says enough.
        if matches!(self.grant, TurnGrant::Held { .. }) && self.phase != Phase::Emergency {
            self.phase = Phase::GoingDown;
            self.say_phase(now, Phase::GoingDown, out);
        }
        if self.calls == before {
            out.push(Effect::LookedLast(number, Ok(())));
        } else {
            self.call = Some(TurnCall::Look(number, LookStep::GoingDown));
        }
    }

    fn look_failed(&mut self, now: Mono, number: u64, trouble: ReadError, out: &mut Vec<Effect>) {
        let refused = match &trouble {
            ReadError::NoAnswer(why) => Unconfirmed::Unreachable { why: why.clone(), margin: Ok(()) },
            ReadError::Refused(_) | ReadError::BadRecord(_) => Unconfirmed::Unknown(trouble.to_string()),
        };
        out.push(Effect::LookedLast(number, Err(refused)));
        self.failed(now, trouble);
    }
}
