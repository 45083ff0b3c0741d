//! What a drain has to do, told from what was read: which pods leave and in which tier, what holds them, where they
//! could go, all that as a forecast for a person, and what hangs on a node that is dead.
//!
//! Not here: asking anything of a cluster, but for `survey` and `failover`, which read a node for that; order in time (`engine`).

pub mod budget;
mod copies;
pub mod failover;
pub mod forecast;
pub mod held;
pub mod placement;
pub mod residents;
pub mod survey;
pub mod tier;

pub use copies::PlannedMachine;
pub use forecast::{Plan, PlanClass, PlanCounts, Planned, PlannedPeer, PlannedTier};
pub use tier::Tier;
pub use tier::{KEPT_APPS, KEPT_APPS_SELECTOR, KeepReason, PodClass, PodFacts, PodOwner};
