//! `AgentTrouble`: what an agent cannot write or read at present, what waits for it, and what a person can do.
//!
//! A topic of our own, one per agent. There is no value while all is well. Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{GoTime, Kind, Most, Topic};

/// Troubles that are told in full; the rest is counted.
const MOST_TROUBLES: usize = 24;
/// Things that are named as waiting for one trouble.
const MOST_HELD: usize = 4;

/// The troubles that an agent has at present, those that hold something up first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AgentTrouble {
    /// Each of them.
    pub troubles: Vec<Trouble>,
    /// How many more there are.
    pub more: u32,
}

impl Topic for AgentTrouble {
    const NAME: &'static str = "AgentTrouble";
    const KIND: Kind = Kind::Volatile;

    fn cut(&mut self, most: Most) {
        self.more = self.more.saturating_add(most.list(&mut self.troubles));
        for Trouble { what, path, error, holds, next_step, since: _ } in &mut self.troubles {
            most.each([what, path, error, next_step].into_iter().chain(holds));
        }
    }
}

/// Something that an agent cannot write or read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct Trouble {
    /// What it is, as `DeviceOpPending reboot` or `device config, member reboot.counter`.
    pub what: String,
    /// The file or directory.
    pub path: String,
    /// Why it failed, in words.
    pub error: String,
    /// Since when.
    pub since: GoTime,
    /// What waits for it, as `the request for a drain`; empty where nothing does.
    pub holds: Vec<String>,
    /// What a person can do. It continues by itself once that is done.
    pub next_step: String,
}

impl AgentTrouble {
    /// The first of these: those that hold something up, then the oldest. The rest is counted.
    pub fn of(mut all: Vec<Trouble>) -> Self {
        all.sort_by(|a, b| {
            (a.holds.is_empty(), a.since, &a.what).cmp(&(b.holds.is_empty(), b.since, &b.what))
        });
        let more = u32::try_from(all.len().saturating_sub(MOST_TROUBLES)).unwrap_or(u32::MAX);
        all.truncate(MOST_TROUBLES);
        for it in &mut all {
            it.holds.truncate(MOST_HELD);
        }
        Self { troubles: all, more }
    }

    /// Whether anything waits for one of these troubles.
    pub fn holds_something(&self) -> bool {
        self.troubles.iter().any(|it| !it.holds.is_empty())
    }
}
