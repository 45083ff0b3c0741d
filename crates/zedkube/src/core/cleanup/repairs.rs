//! What was fixed after a boot, how often since this agent started, and what has to be fixed again and again, whatever was
//! started in between.
//!
//! Not here: the fixing. Source: goals O4, O7. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::time::Duration;

use step::{Inserted as _, Mono, say};
use topics::{GateWarning, GoTime, RepairKind};

use crate::core::context::NodeContext;
use crate::core::facts::Effect;

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
    /// Until when those of the last day count, the newest [`REPEATS`] of them.
    until: Vec<Mono>,
    /// Since when they are warned of.
    warned: Option<Mono>,
}

/// All of them, by kind.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Repairs(BTreeMap<String, Repaired>);

impl Repairs {
    /// One more has been made.
    pub(super) fn add(&mut self, now: Mono, what: &str, out: &mut Vec<Effect>) {
        self.expire(now);
        let kind = self.0.entry(what.to_owned()).or_default();
        kind.count = kind.count.saturating_add(1);
        if kind.until.last().is_none_or(|last| now + SPAN >= *last + ONE_OUTAGE) {
            kind.until.push(now + SPAN);
        }
        if kind.until.len() > REPEATS {
            kind.until.remove(0);
        }
        if kind.until.len() == REPEATS && kind.warned.is_none() {
            kind.warned = Some(now);
            say!(out, warn, "{}; {}", words(what), next_step(what));
        }
    }

    /// Repairs that are a day old count no longer.
    pub(super) fn expire(&mut self, now: Mono) {
        for kind in self.0.values_mut() {
            kind.until.retain(|until| now < *until);
            kind.warned = kind.warned.filter(|_| kind.until.len() == REPEATS);
        }
    }

    /// Until when they count, by the wall clock.
    pub(crate) fn counted(&self, node: &NodeContext) -> BTreeMap<String, Vec<GoTime>> {
        let known = self.0.iter().filter(|(_, it)| !it.until.is_empty());
        known
            .map(|(what, it)| (what.clone(), it.until.iter().map(|until| node.wall(*until)).collect()))
            .into_map()
    }

    /// Continues with those that earlier runs have counted: of how long ago only the wall clock knows. A wrong one makes
    /// them count for a day at most, or no more.
    pub(crate) fn count_on(
        &mut self,
        now: Mono,
        earlier: &BTreeMap<String, Vec<GoTime>>,
        node: &NodeContext,
    ) {
        let wall = node.wall(now).to_timestamp();
        for (what, all) in earlier {
            let left = all.iter().map(|it| it.to_timestamp().duration_since(wall));
            let left = left.filter_map(|it| Duration::try_from(it).ok()).filter(|it| !it.is_zero());
            let mut until: Vec<Mono> = left.map(|it| now + it.min(SPAN)).collect();
            until.sort_unstable();
            let until = until.split_off(until.len().saturating_sub(REPEATS));
            let warned = (until.len() == REPEATS).then_some(now);
            self.0.insert(what.clone(), Repaired { count: 0, until, warned });
        }
    }

    /// When a warning ends by time alone.
    pub(crate) fn due(&self) -> Option<Mono> {
        let warned = self.0.values().filter(|it| it.warned.is_some());
        warned.filter_map(|it| it.until.first()).copied().min()
    }

    /// How often each kind was fixed.
    pub(crate) fn counts(&self) -> BTreeMap<String, u32> {
        let made = self.0.iter().filter(|(_, it)| it.count > 0);
        made.map(|(what, it)| (what.clone(), it.count)).into_map()
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
    let next = if RepairKind::of(what) == RepairKind::Taint {
        "the control plane loses this node now and then: check the network between this node and the API server, and the \
         clocks of both; `kubectl get events -A --field-selector involvedObject.kind=Node` shows when"
    } else {
        "this node restarts now and then before its drain is withdrawn: look at `zedbox drain history` and at the reboot \
         reasons"
    };
    next.to_owned()
}
