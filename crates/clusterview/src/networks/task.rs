//! The task that keeps the network attachments of this node's applications. Not here: what they are (`attachment`).

use std::collections::BTreeSet;
use std::time::Duration;

use agent::{Clock, Error};
use kube::api::{DeleteParams, GetParams, Patch, PostParams, Preconditions};
use kube::core::Request;
use kubeapi::names::APP_NAMESPACE;
use kubeapi::nodes::{FIELD_MANAGER, signed};
use kubeapi::watch::Scope;
use kubeapi::{Cluster, Target, found};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::attachment::{Attachment, MANAGED, Write, name, needed, not_needed};
use crate::apps::Wanted;

/// Between two looks: somebody may have changed or deleted an object.
const LOOK: Duration = Duration::from_mins(10);
/// The same after a failure.
const LOOK_FAILED: Duration = Duration::from_secs(15);

/// Keeps them until nobody can say any more what is wanted. While no application wants one, and none did since the start,
/// nothing is asked for. Dropping it loses nothing.
///
/// # Errors
/// None; a call that fails is tried again.
pub async fn run(
    cluster: Cluster,
    clock: Clock,
    target: Target,
    mut wanted: watch::Receiver<Wanted>,
) -> Result<(), Error> {
    let (node, device) = target.known().await;
    let keeper = Keeper { cluster, node: node.to_string(), device };
    let (mut said, mut any) = (BTreeSet::new(), false);
    let mut before = None;
    loop {
        let ports = wanted.borrow_and_update().ports.clone();
        any |= ports.as_ref().is_some_and(|it| !it.is_empty());
        let mut pause = None;
        if let Some(ports) = ports.filter(|_| any) {
            let now = keeper.look(&ports).await;
            pause = Some(if now.is_empty() { LOOK } else { LOOK_FAILED });
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
                    // Consoles and the like.
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

struct Keeper {
    cluster: Cluster,
    node: String,
    device: String,
}

fn request() -> Request {
    Request::new(format!(
        "/apis/k8s.cni.cncf.io/v1/namespaces/{APP_NAMESPACE}/network-attachment-definitions"
    ))
}

impl Keeper {
    /// Compares and writes what differs; what could not be done, in words.
    async fn look(&self, ports: &BTreeSet<String>) -> BTreeSet<String> {
        let mut failed = BTreeSet::new();
        let mut names = BTreeSet::new();
        for port in ports {
            let Some(name) = name(port) else {
                failed.insert(format!(
                    "{port:?} names no interface that an object can be named after; it is left out"
                ));
                continue;
            };
            if let Err(why) = self.serve(port, &name).await {
                failed.insert(why);
            }
            names.insert(name);
        }
        if let Err(error) = self.sweep(&names).await {
            failed.insert(format!("{} ({})", error.line(), error.next_step()));
        }
        failed
    }

    async fn serve(&self, port: &str, name: &str) -> Result<(), String> {
        let told = |error: kubeapi::Error| format!("{} ({})", error.line(), error.next_step());
        let what = format!("read network attachment {APP_NAMESPACE}/{name}");
        let read = self.cluster.ask::<Attachment>(&what, request().get(name, &GetParams::default())).await;
        let now = found(read).map_err(told)?;
        match needed(now.as_ref(), port, (&self.node, &self.device)) {
            Ok(None) => Ok(()),
            Ok(Some(write)) => self.write(name, write).await.map_err(told),
            Err(why) => Err(format!(
                "{APP_NAMESPACE}/{name} is left as it is: {why}; delete it, and it is made again: \
                 `kubectl -n {APP_NAMESPACE} delete network-attachment-definitions {name}`"
            )),
        }
    }

    /// Objects of ours that no application of this node needs.
    async fn sweep(&self, needed: &BTreeSet<String>) -> Result<(), kubeapi::Error> {
        let scope = Scope {
            what: "network attachments".to_owned(),
            path: format!(
                "/apis/k8s.cni.cncf.io/v1/namespaces/{APP_NAMESPACE}/network-attachment-definitions"
            ),
            fields: None,
            labels: Some(format!("{MANAGED}={FIELD_MANAGER}")),
        };
        let Some(all) = found(scope.list_all::<Attachment>(&self.cluster).await)? else { return Ok(()) };
        for one in all.items.iter().filter(|it| !needed.contains(&it.metadata.name)) {
            if let Some(write) = not_needed(one, &self.device) {
                self.write(&one.metadata.name, write).await?;
            }
        }
        Ok(())
    }

    async fn write(&self, name: &str, write: Write) -> Result<(), kubeapi::Error> {
        let (verb, request) = match write {
            Write::Create(object) => {
                let how =
                    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
                ("create", request().create(&how, object.to_string().into_bytes()))
            }
            Write::Patch(body) => ("change", request().patch(name, &signed(), &Patch::Merge(body))),
            Write::Delete(version) => {
                let exactly = Preconditions { resource_version: Some(version), uid: None };
                let how = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
                ("delete", request().delete(name, &how))
            }
        };
        let what = format!("{verb} network attachment {APP_NAMESPACE}/{name}");
        match self.cluster.order(&what, request).await {
            Ok(()) => info!(name, "{verb} network attachment"),
            // Another node was first: the next look, soon, finds it.
            Err(error) if error.is_conflict() || error.is_not_found() && verb == "delete" => {
                debug!(name, error = error.line(), "{verb} network attachment");
                if verb != "delete" {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
