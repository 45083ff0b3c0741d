//! One node taken out of service and put back into it: which pods leave it, in which order, how each is asked to; the cordon
//! and its owner; the gate after a boot; the way out of a cluster.
//!
//! `plan` says which pods leave and when, `engine` runs one attempt as a pure machine, `drain` carries it out with
//! `calls` and follows `changes`; `node` is the Node object, its cordon, its taints and the gate after a boot; `leave`
//! takes the node out of its cluster. Who may call: `zedkube`, and `zedbox plan`. Not here: requests, how often a
//! drain is tried (zedkube decides); clocks (the caller gives one).

pub mod calls;
pub mod changes;
pub mod drain;
pub mod engine;
pub mod leave;
pub mod machines;
pub mod node;
pub mod plan;
pub mod preflight;
pub mod progress;
pub mod storage;

pub use calls::pods;
pub use calls::surge::SurgeRule;
pub use changes::{WatchedBlockers, until_activity, until_changed};
pub use drain::{DrainOrder, drain};
pub use engine::containers::RuntimeQuery;
pub use engine::{
    AttemptFailure, AttemptOutcome, AttemptRules, DrainSuccess, Limit, LimitAction, STICKY_RETURNS,
    VOLUMES_LIMIT,
};
pub use kubeapi::nodes::CordonAnnotation;
pub use machines::MachinePolicy;
pub use node::{Cordoned, NodeFacts};
pub use plan::{Plan, PlanClass, PlanCounts, Planned, PlannedMachine, Tier, survey};
pub use preflight::{PreflightError, PreflightFindings, preflight};
pub use progress::{BlockCode, MachineState, Progress, Subject, blocker};
pub use storage::last_of_volume;
