//! What is asked of a cluster during a drain, a call or a watch a file.
//!
//! Not here: when (`engine`), and what follows from an answer.

pub(crate) mod budgets;
pub mod eviction_request;
pub mod node_maintenance;
pub mod pods;
pub(crate) mod refused;
pub mod remove;
pub mod surge;
pub mod unhealthy_pods;
pub mod volumes;
