//! Keeps the network attachments of this node's applications. Not here: what they are (`attachment`).

use std::collections::BTreeSet;
use std::time::Duration;

use agent::{Clock, Error};
use kube::api::{DeleteParams, GetParams, Patch, PostParams, Preconditions};
use kube::core::Request;
use kubeapi::names::APP_NAMESPACE;
use kubeapi::nodes::{FIELD_MANAGER, signed};
use kubeapi::objects::RawObject;
use kubeapi::pace::Pace;
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, OwnNode, found};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::attachment::{AttachmentWrite, MANAGED, name, needed, not_needed};
use crate::apps::AppRequirements;

/// Between two looks: another client may have changed or deleted an object.
const LOOK: Duration = Duration::from_mins(10);
/// After a failed look: half to all of 8, 16, 32, 64, 120, 120, … s.
const FAILED_TIMES: u32 = 8;

/// Keeps them until the sender of `wanted` is gone. Without a wanted one since the start, makes no call.
/// Failed calls are retried. Dropping it loses nothing.
pub async fn run(
    cluster: ApiClient,
    clock: Clock,
    own_node: OwnNode,
    mut wanted: watch::Receiver<AppRequirements>,
) -> Result<(), Error> {
    let (node, device) = own_node.known().await;
    let mut keeper = NetworkKeeper { cluster, node: node.to_string(), device, swept: None };
    let (mut said, mut any) = (BTreeSet::new(), false);
    // Nodes do not ask in step.
    let seed = u64::try_from(clock.now().since_start().as_nanos()).unwrap_or_default();
    let (mut pace, mut tries) = (Pace::new(seed), 0_u32);
    let mut before = None;
    loop {
        let ports = wanted.borrow_and_update().ports.clone();
        any |= ports.as_ref().is_some_and(|it| !it.is_empty());
        let mut pause = None;
        if let Some(ports) = ports.filter(|_| any) {
            let SweepResult { lines: now, failed } = keeper.look(&ports).await;
            tries = if failed { tries.saturating_add(1) } else { 0 };
            pause = Some(if failed { pace.pause(tries, None) * FAILED_TIMES } else { LOOK });
            for line in now.difference(&said) {
                warn!("network attachments: {line}");
            }
            said = now;
            before = Some(ports);
        }
        let due = pause.map(|it| clock.now() + it);
        loop {
            tokio::select! {
                changed = wanted.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    if wanted.borrow_and_update().ports == before {
                        continue;
                    }
                }
                () = clock.sleep_until(due), if due.is_some() => {}
            }
            break;
        }
    }
}

struct NetworkKeeper {
    cluster: ApiClient,
    node: String,
    device: String,
    /// The interfaces at the last clean sweep: objects are listed only where these have changed.
    swept: Option<BTreeSet<String>>,
}

struct SweepResult {
    /// Differences from the wanted state, in words.
    lines: BTreeSet<String>,
    /// A call has failed; other lines are for a person.
    failed: bool,
}

fn request() -> Request {
    Request::new(format!(
        "/apis/k8s.cni.cncf.io/v1/namespaces/{APP_NAMESPACE}/network-attachment-definitions"
    ))
}

impl NetworkKeeper {
    async fn look(&mut self, ports: &BTreeSet<String>) -> SweepResult {
        let (mut lines, mut failed) = (BTreeSet::new(), false);
        let mut names = BTreeSet::new();
        for port in ports {
            let Some(name) = name(port) else {
                lines.insert(format!(
                    "{port:?} names no interface that an object can be named after; it is left out"
                ));
                continue;
            };
            match self.serve(port, &name).await {
                Ok(left) => lines.extend(left),
                Err(error) => {
                    failed = true;
                    lines.insert(error.advice());
                }
            }
            names.insert(name);
        }
        if self.swept.as_ref() != Some(ports) {
            match self.sweep(&names).await {
                Ok(()) => self.swept = Some(ports.clone()),
                Err(error) => {
                    failed = true;
                    lines.insert(error.advice());
                }
            }
        }
        SweepResult { lines, failed }
    }

    /// Why the object is left unchanged, if it is.
    async fn serve(&self, port: &str, name: &str) -> Result<Option<String>, kubeapi::Error> {
        let what = format!("read network attachment {APP_NAMESPACE}/{name}");
        let read = self.cluster.ask::<RawObject>(&what, request().get(name, &GetParams::default())).await;
        match needed(found(read)?.as_ref(), port, (&self.node, &self.device)) {
            Ok(None) => Ok(None),
            Ok(Some(write)) => self.write(name, write).await.map(|()| None),
            Err(why) => Ok(Some(format!(
                "{APP_NAMESPACE}/{name} is left as it is: {why}; delete it, and it is made again: \
                 `kubectl -n {APP_NAMESPACE} delete network-attachment-definitions {name}`"
            ))),
        }
    }

    /// Removes objects of ours that no application of this node needs.
    async fn sweep(&self, needed: &BTreeSet<String>) -> Result<(), kubeapi::Error> {
        let scope = WatchScope {
            what: "network attachments".to_owned(),
            path: format!(
                "/apis/k8s.cni.cncf.io/v1/namespaces/{APP_NAMESPACE}/network-attachment-definitions"
            ),
            fields: None,
            labels: Some(format!("{MANAGED}={FIELD_MANAGER}")),
        };
        let Some(all) = found(scope.list_all::<RawObject>(&self.cluster).await)? else { return Ok(()) };
        for one in &all.items {
            let Some(name) = one.metadata.name.as_ref().filter(|it| !needed.contains(*it)) else { continue };
            if let Some(write) = not_needed(one, &self.device) {
                self.write(name, write).await?;
            }
        }
        Ok(())
    }

    async fn write(&self, name: &str, write: AttachmentWrite) -> Result<(), kubeapi::Error> {
        let (verb, request) = match write {
            AttachmentWrite::Create(object) => {
                let how =
                    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
                ("create", request().create(&how, object.to_string().into_bytes()))
            }
            AttachmentWrite::Patch(body) => ("change", request().patch(name, &signed(), &Patch::Merge(body))),
            AttachmentWrite::Delete(version) => {
                let exactly = Preconditions { resource_version: Some(version), uid: None };
                let how = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
                ("delete", request().delete(name, &how))
            }
        };
        let what = format!("{verb} network attachment {APP_NAMESPACE}/{name}");
        match self.cluster.order(&what, request).await {
            Ok(()) => info!(name, "{verb} network attachment"),
            Err(error) if error.is_not_found() && verb == "delete" => {
                debug!(name, error = error.line(), "{verb} network attachment");
            }
            // Also when another node has changed it: the next look, soon, finds it.
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
