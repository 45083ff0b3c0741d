//! Updates of k3s on this node: what the device config wants is held back until the turn and the drain of this node, then
//! handed to the kube container, and followed until the kubelet reports it and the node is healthy.
//!
//! zedkube is a requester here, as zedagent and baseosmgr are (`requester`, promise 1): its drain half answers it as it
//! answers them. Not here: how k3s is replaced (kube-init, which reads `KubeConfig` and the override file every 15 s).
//! The other member of `KubeConfig` is published at once.

mod rules;
mod shell;
#[cfg(test)]
mod tests;

pub use rules::{DesiredK3s, Override};
pub use rules::{Effect, Event, K3s, SavedK3sUpdate};
pub(crate) use shell::Updates;
