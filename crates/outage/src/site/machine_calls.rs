//! What a whole-site operation reads and writes of virtual machines.
//!
//! Not here: which one is stopped or started (`machines`), and when (`coordinate`). Without KubeVirt there are none, and
//! only that is asked. Source: spec/vm-storage.md A1 and A8.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kubeapi::machines::SITE;
pub use kubeapi::machines::calls::act;
use kubeapi::machines::calls::{GUESTS, LAUNCHERS, MACHINES, SETS, described, is_over, path};
use kubeapi::objects::{items, named, text};
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, Error};
use serde::de::DeserializeOwned;
use serde_json::Value;
use step::Inserted as _;

use super::machines::Machines;

/// All objects of a kind that may not be installed.
pub(super) async fn listed<T>(cluster: &ApiClient, what: &str, path: String) -> Result<Vec<T>, Error>
where
    T: DeserializeOwned + Send,
{
    Ok(WatchScope::all(what, path).list_installed(cluster).await?.unwrap_or_default())
}

pub(super) async fn find(cluster: &ApiClient) -> Result<Machines, Error> {
    let guests = WatchScope::all("virtual machines", path(GUESTS)).list_installed(cluster).await?;
    let Some(guests) = guests else { return Ok(Machines::default()) };
    let launchers = WatchScope {
        labels: Some(LAUNCHERS.to_owned()),
        ..WatchScope::all("launchers of virtual machines", Pod::url_path(&(), None))
    };
    let (machines, sets, launchers) = futures::try_join!(
        listed(cluster, MACHINES, path(MACHINES)),
        listed(cluster, SETS, path(SETS)),
        launchers.list_all::<Value>(cluster)
    )?;
    let guests: Vec<&Value> = guests.iter().filter(|it| !is_over(it)).collect();
    let running: BTreeSet<String> = guests.iter().map(|it| named(it)).into_set();
    let own = |machine: &Value| guests.iter().find(|it| named(it) == named(machine)).copied();
    let mut found = Machines {
        all: machines.iter().map(|it| described(MACHINES, it, own(it), &SITE)).collect(),
        guests: running.iter().cloned().collect(),
        loose: guests.iter().filter(|it| is_loose(it)).map(|it| named(it)).collect(),
        starting: guests.iter().filter(|it| it["status"]["phase"] != "Running").count(),
    };
    found.all.extend(sets.iter().map(|it| described(SETS, it, None, &SITE)));
    let guest = |pod: &Value| {
        let meta = &pod["metadata"];
        format!("{}/{}", text(&meta["namespace"]), text(&meta["annotations"]["kubevirt.io/domain"]))
    };
    let left = launchers.items.iter().filter(|it| !is_over(it) && !running.contains(&guest(it)));
    found.guests.extend(left.map(|it| format!("launcher {}", named(it))));
    Ok(found)
}

fn is_loose(guest: &Value) -> bool {
    let owner = |it: &Value| {
        matches!(it["kind"].as_str(), Some("VirtualMachine" | "VirtualMachineInstanceReplicaSet"))
    };
    !items(&guest["metadata"]["ownerReferences"]).iter().any(owner)
}
