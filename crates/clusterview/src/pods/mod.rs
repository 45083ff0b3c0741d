//! Pods of applications and the logs of their containers.
//!
//! Not here: which pod belongs to which application, and which lines were reported already; `apps` decides. Sources:
//! spec/agents.md 4.12; the Kubernetes pages "Pod Lifecycle" and "Logging Architecture".

mod lines;
mod log;
mod pod;

pub use lines::{LINE_LIMIT_BYTES, LogLine};
pub use log::{ContainerLog, LogChunk, LogEnd, LogRequest};
pub use pod::{AppPod, Container, ContainerState};

use kubeapi::ApiClient;
use kubeapi::names::APP_NAMESPACE;
use kubeapi::watch::{Manner, ObjectMirror, SLOT, WatchScope};

/// The pods of the namespace of applications, by name, kept up to date.
pub type Pods = ObjectMirror<AppPod, String, AppPod>;

/// Follows them. One watch is open for 30 s, so that an API server that has gone without a word is noticed soon: whoever
/// follows must say within minutes that it cannot be reached.
pub fn follow(cluster: &ApiClient, seed: u64) -> Pods {
    let path = format!("/api/v1/namespaces/{APP_NAMESPACE}/pods");
    let manner = Manner { slot: SLOT, ..Manner::default() };
    ObjectMirror::open(cluster, WatchScope::all("pods of applications", path), manner, seed, |it: AppPod| {
        (it.name.clone(), Some(it))
    })
}
