//! Whose cordon is on our node, and when the node is checked next.
//!
//! A drained node is checked again and again, and watched in between (goals P8). Not here: whether ours
//! goes (`NodeFacts::our_cordon_goes`), the check itself, and the calls that take back what drains have asked for
//! (`left_behind`).
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubenodeop::node::CordonSeen;
use kubenodeop::node::boot::GateReport;
use nodestatus::Membership;
use step::{Fault, Mono, planted, say};
use topics::CordonOwner;

use super::after_boot::AfterBoot;
use crate::core::context::NodeContext;
use crate::core::facts::{Effect, NodeLook, UndoScope};
use crate::limits::COMPLETE_POLL;

/// How the node is to be.
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
    /// This pod has come.
    PodCame(String),
    /// Somebody uncordoned the node.
    Uncordoned,
}

/// When the node is checked.
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
    cordon: CordonOwner,
    check: CordonCheck,
    /// Number of the last look, which is a check of the node.
    looks: u64,
    /// Whether that one was to remove a cordon of ours.
    uncordons: bool,
    in_flight: CordonInFlight,
    /// Why the node could not be checked, or keeps its cordon.
    trouble: String,
    guard: CordonWatch,
    /// The cordon of the node as a watch has shown it since the last look.
    pub(crate) watched: Option<CordonSeen>,
    /// The gate after the boot.
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

    pub(crate) fn cordon(&self) -> CordonOwner {
        self.cordon
    }

    /// A cordon of before this start is not known until the node has been checked.
    pub(crate) fn knows_cordon(&self) -> bool {
        self.seen || self.check == CordonCheck::NotDue
    }

    /// Why the node could not be checked, or keeps its cordon; empty when all is well.
    pub(crate) fn trouble(&self) -> &str {
        &self.trouble
    }

    /// The gate after the boot is open, and no cordon of ours is left.
    pub(crate) fn is_healthy(&self) -> bool {
        self.after_boot.is_open() && !self.after_boot.holds_turn() && self.cordon != CordonOwner::Ours
    }

    /// When time alone brings a check.
    pub(crate) fn due(&self) -> Option<Mono> {
        if let CordonCheck::Due(at) = self.check { Some(at) } else { None }
    }

    /// A check is due now.
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

    /// Its Node object has gone, and with it whatever cordon it had.
    pub(crate) fn left_cluster(&mut self) {
        self.cordon = CordonOwner::None;
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

    /// The node was cordoned by us, or found so.
    pub(crate) fn cordoned(&mut self, owner: CordonOwner) {
        self.cordon = owner;
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
    pub(crate) fn settle_gate(
        &mut self,
        now: Mono,
        (wanted, busy): (DesiredNode, bool),
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) {
        let keeps = wanted != DesiredNode::Schedulable;
        let checked = keeps || self.check == CordonCheck::NotDue;
        self.after_boot.settle(now, (checked, busy || keeps), node, out);
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
