//! Volumes of the whole cluster that are not well, for the gate after a boot.
//!
//! Without Longhorn one list finds that out, and nothing is followed. Not here: what follows (`node::gate`).

use std::collections::BTreeMap;

use futures::stream::{Stream, StreamExt};
use kubeapi::slim::longhorn::{Volume, scope};
use kubeapi::watch::{Update, follow};
use kubeapi::{ApiClient, Error, found};

use super::before::VolumesSeen;
use super::follow::follow_read;
use super::longhorn::put;

/// Volumes that are faulted or degraded.
/// Errors: those of [`ApiClient`]; without Longhorn there are none.
pub(crate) async fn troubled(cluster: &ApiClient) -> Result<VolumesSeen, Error> {
    Ok(volumes(cluster).await?.map(|all| summary(all.values())).unwrap_or_default())
}

async fn volumes(cluster: &ApiClient) -> Result<Option<BTreeMap<String, Volume>>, Error> {
    let Some(list) = found(scope("volumes").list_all::<Volume>(cluster).await)? else { return Ok(None) };
    let mut all = BTreeMap::new();
    put(&mut all, Update::Listed(list.items), |it: &Volume| &it.metadata);
    Ok(Some(all))
}

fn summary<'a>(all: impl Iterator<Item = &'a Volume>) -> VolumesSeen {
    let mut seen = VolumesSeen::default();
    for volume in all {
        let (name, shown) = (volume.name(), volume.shown());
        match volume.status.robustness.as_str() {
            "faulted" => drop(seen.faulted.insert(name, shown)),
            "degraded" => drop(seen.degraded.insert(name, shown)),
            _ => {}
        }
    }
    seen
}

/// The same, first and again whenever it has changed.
pub(crate) fn follow_troubled(
    cluster: ApiClient,
    seed: u64,
) -> impl Stream<Item = Result<VolumesSeen, Error>> + Send {
    let read = move || {
        let cluster = cluster.clone();
        async move {
            let all = volumes(&cluster).await?;
            let first = all.as_ref().map(|it| summary(it.values())).unwrap_or_default();
            let updates = || follow::<Volume>(cluster, scope("volumes"), seed).boxed();
            Ok((first, all.map(|it| (it, updates()))))
        }
    };
    let take = |all: &mut BTreeMap<_, _>, update| put(all, update, |it: &Volume| &it.metadata);
    follow_read(read, take, |all| summary(all.values()), seed)
}
