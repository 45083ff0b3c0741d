//! Pods of applications and the logs of their containers.
//!
//! Not here: which pod belongs to which application, and which lines were reported already; `apps` decides. Sources:
//! spec/agents.md 4.12; the Kubernetes pages "Pod Lifecycle" and "Logging Architecture".

mod follow;
mod lines;
mod log;
mod pod;

pub use follow::{Pods, PodsUpdate};
pub use lines::{LINE_LIMIT_BYTES, Line};
pub use log::{Log, LogRequest, Read, Then};
pub use pod::{AppPod, Container, State};
