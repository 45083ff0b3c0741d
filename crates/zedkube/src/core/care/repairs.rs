//! What was fixed after a boot, how often since this agent started, and what has to be fixed again and again.
//!
//! Not here: the fixing. Source: goals O4, O7. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::time::Duration;

use step::Mono;
use topics::GateWarning;

use crate::core::context::NodeContext;
use crate::core::facts::{Effect, LogEvent};

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
    /// Those of the last day, the newest [`REPEATS`] of them.
    at: Vec<Mono>,
    /// Since when they are warned of.
    warned: Option<Mono>,
}

/// All of them, by kind.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Repairs(BTreeMap<String, Repaired>);

impl Repairs {
    /// One more has been made.
    pub(super) fn add(&mut self, now: Mono, what: &str, out: &mut Vec<Effect>) {
        self.expire(now);
        let kind = self.0.entry(what.to_owned()).or_default();
        kind.count = kind.count.saturating_add(1);
        if kind.at.last().is_none_or(|last| now >= *last + ONE_OUTAGE) {
            kind.at.push(now);
        }
        if kind.at.len() > REPEATS {
            kind.at.remove(0);
        }
        if kind.at.len() == REPEATS && kind.warned.is_none() {
            kind.warned = Some(now);
            out.push(Effect::Say(LogEvent::RepairsAgain(words(what), next_step(what))));
        }
    }

    /// Repairs that are a day old count no longer.
    pub(super) fn expire(&mut self, now: Mono) {
        for kind in self.0.values_mut() {
            kind.at.retain(|at| now < *at + SPAN);
            kind.warned = kind.warned.filter(|_| kind.at.len() == REPEATS);
        }
    }

    /// When a warning ends by time alone.
    pub(super) fn due(&self) -> Option<Mono> {
        let warned = self.0.values().filter(|it| it.warned.is_some());
        warned.filter_map(|it| it.at.first()).map(|at| *at + SPAN).min()
    }

    /// How often each kind was fixed.
    pub(super) fn counts(&self) -> BTreeMap<String, u32> {
        self.0.iter().map(|(what, it)| (what.clone(), it.count)).collect()
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
    let next = if what.contains('/') {
        "the control plane loses this node now and then: check the network between this node and the API server, and the \
         clocks of both; `kubectl get events -A --field-selector involvedObject.kind=Node` shows when"
    } else {
        "this node restarts now and then before its drain is withdrawn: look at `zedbox drain history` and at the reboot \
         reasons"
    };
    next.to_owned()
}
