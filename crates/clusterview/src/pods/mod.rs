//! Pods of applications and the logs of their containers.
//!
//! Not here: which pod belongs to which application, and which lines were reported already; `apps` decides. Sources:
//! spec/agents.md 4.12; the Kubernetes pages "Pod Lifecycle" and "Logging Architecture".

mod follow;
mod lines;
mod log;
mod pod;

pub use follow::{Pods, PodsUpdate};
pub use lines::{LINE_LIMIT_BYTES, LogLine};
pub use log::{ContainerLog, LogChunk, LogEnd, LogRequest};
pub use pod::{AppPod, Container, ContainerState};
