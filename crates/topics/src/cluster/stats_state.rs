//! The state of the cluster's statistics: the node that makes them, until when, and missing parts.
//!
//! `KubeClusterInfo` has the reference's shape, which has no place for this. A topic of our own, as in `drain::progress`.
//! Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{GoTime, Kind, Most, Topic};

/// Whether this node publishes `KubeClusterInfo`, and which of its parts are not what the cluster has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeStatsState {
    /// This node leads: it alone publishes `KubeClusterInfo`.
    pub leader: bool,
    /// Until when that is certain, renewed while the lease is; zero while another node leads.
    pub until: GoTime,
    /// Requests to the API server that are open: one watch for each resource that is followed.
    pub requests_open: u32,
    /// Parts of `KubeClusterInfo` that are not what the cluster has; empty when all is well. A resource that is not
    /// installed is none of them.
    pub parts: Vec<KubeStatsPart>,
}

impl Topic for KubeStatsState {
    const NAME: &'static str = "KubeStatsState";
    const KIND: Kind = Kind::Volatile;

    fn cut(&mut self, most: Most) {
        for KubeStatsPart { name, error, next_step, since: _ } in &mut self.parts {
            for text in [name, error, next_step] {
                most.text(text);
            }
        }
    }
}

/// A part of `KubeClusterInfo` that is old, empty or cut short.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeStatsPart {
    /// The resource that cannot be read, as `volumes.longhorn.io`, or the member that was cut short, as `AppPods`.
    pub name: String,
    /// Since when.
    pub since: GoTime,
    /// Why, in words.
    pub error: String,
    /// What a person can do.
    pub next_step: String,
}
