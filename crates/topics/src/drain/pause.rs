//! The file by which a person at this node keeps operations from starting, in this boot and in later ones. Written by
//! `zedbox pause` and `zedbox drain refuse`, read by zedagent, baseosmgr and zedkube, each by itself.
//!
//! It is of the form of a topic, and held to the rule for orders. Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{GoTime, Kind, Most, Topic};

/// Where it is, under the root.
pub const PAUSE_FILE: &str = "persist/status/zedbox/OperationPause/global.json";

/// A person's word that operations wait. As a member of another value: the one that counts, or all zero without one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct OperationPause {
    /// Which ones.
    pub scope: PauseScope,
    /// Who says so, by name.
    pub by: String,
    /// Why, in a person's words.
    pub reason: String,
    /// When it was said.
    pub since: GoTime,
    /// It ends by itself then, by the wall clock; zero where a person ends it.
    pub until: GoTime,
}

impl Topic for OperationPause {
    const NAME: &'static str = "OperationPause";
    const KIND: Kind = Kind::Persistent;

    fn cut(&mut self, most: Most) {
        most.text(&mut self.by);
        most.text(&mut self.reason);
    }
}

/// Which operations wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PauseScope {
    /// All that have not started: `zedbox pause`.
    #[default]
    Node,
    /// All that the controller has ordered, started or not, until the machine is commanded down: `zedbox drain refuse`.
    Controller,
}

impl OperationPause {
    /// Whether there is one.
    pub fn is_set(&self) -> bool {
        !self.by.is_empty()
    }

    /// Who has said it, why, and since when, as `paused by field: new disk, since 2026-03-14T09:30:00Z`.
    pub fn words(&self) -> String {
        let Self { scope, by, reason, since, until } = self;
        let what = match scope {
            PauseScope::Node => "paused",
            PauseScope::Controller => "refused",
        };
        let end = if until.is_zero() { String::new() } else { format!(", until {until}") };
        format!("{what} by {by}: {reason}, since {since}{end}")
    }

    /// What ends it.
    pub const fn next_step(&self) -> &'static str {
        match self.scope {
            PauseScope::Node => "`zedbox resume` ends the pause, on this node, as root",
            PauseScope::Controller => {
                "`zedbox drain refuse --withdraw` lets it go ahead, on this node, as root"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x3_a_pause_says_who_why_since_when_and_until_when_and_what_ends_it() {
        let at = |text: &str| text.parse().unwrap();
        let pause = OperationPause {
            by: "field".to_owned(),
            reason: "new disk".to_owned(),
            since: at("2026-03-14T09:30:00Z"),
            ..OperationPause::default()
        };
        assert_eq!(pause.words(), "paused by field: new disk, since 2026-03-14T09:30:00Z");
        let refused = OperationPause {
            scope: PauseScope::Controller,
            until: at("2026-03-14T11:30:00Z"),
            ..pause.clone()
        };
        assert_eq!(
            refused.words(),
            "refused by field: new disk, since 2026-03-14T09:30:00Z, until 2026-03-14T11:30:00Z"
        );
        assert!(pause.next_step().contains("zedbox resume") && refused.next_step().contains("--withdraw"));
        assert!(pause.is_set() && !OperationPause::default().is_set());
    }
}
