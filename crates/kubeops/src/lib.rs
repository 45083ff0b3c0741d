//! What is done to a cluster: reading and cordoning our own node, emptying it, and the election of a leader (`lease`).
//!
//! Not here: topics, requests, how often a drain is tried (zedkube decides); clocks (the caller gives one). The
//! pure files (`reply`, `pace`, `cordon`, `plan`, `budget`, `engine`, `progress`, `names`, `tier`, `hindrance`,
//! `watched`, `held`, `placement`, `forecast`, `gate`) decide; the others (`client`, `kubeconfig`, `watch`, `node`,
//! `pods`, `ailing`, `volumes`, `evict`, `remove`, `changed`, `refused`, `stirred`, `streams`, `scheduling`, `settling`, `survey`,
//! `drain`, `boot`, `taints`, `leave`, `prune`, `replicas`) call; `apps` and `stats` have files of both kinds. Sources: design.md
//! sections 3 and 7, spec/agents.md 4.3 to 4.6.

pub mod ailing;
pub mod apps;
pub mod boot;
pub mod budget;
pub mod changed;
pub mod client;
pub mod cordon;
pub mod drain;
#[cfg(test)]
mod drain_tests;
pub mod engine;
mod error;
pub mod evict;
#[cfg(test)]
mod fake;
pub mod forecast;
#[cfg(test)]
mod forecast_tests;
pub mod gate;
#[cfg(test)]
mod gate_tests;
pub mod held;
pub mod hindrance;
mod kubeconfig;
pub mod lease;
pub mod leave;
#[cfg(test)]
mod mock;
pub mod names;
pub mod node;
#[cfg(test)]
mod node_tests;
pub mod pace;
pub mod placement;
pub mod plan;
pub mod pods;
pub mod progress;
pub mod prune;
mod refused;
pub mod remove;
mod replicas;
pub mod reply;
mod scheduling;
mod settling;
pub mod stats;
mod stirred;
mod streams;
pub mod survey;
pub mod taints;
pub mod tier;
pub mod trial;
pub mod volumes;
mod watch;
#[cfg(test)]
mod watch_tests;
pub mod watched;

pub use changed::until_changed;
pub use client::Cluster;
pub use cordon::{Cordon, CordonOwner, NodeFacts, every_peer_drains};
pub use drain::{Order, drain};
pub use engine::{Limit, PodAction, Rules, StickyAction, VolumeAction};
pub use error::Error;
pub use forecast::{Foreseen, Plan, PlanClass, PlanCounts, Planned};
pub use names::{NodeName, PodRef, PodUid, listed};
pub use node::{Cordoned, Uncordoned};
pub use progress::{BlockCode, Blocker, Counts, Left, Marks, Outcome, Phase, Progress, Remaining};
pub use replicas::last_of_volume;
pub use reply::{Reach, Reply};
pub use stirred::until_stirred;
pub use tier::Tier;
pub use watched::Watched;
