//! Volumes of the whole cluster that are not well, for the gate after a boot.
//!
//! Without Longhorn one list finds that out, and nothing is followed. Not here: what follows (`node::gate`).

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use futures::stream::{self, BoxStream, Stream, StreamExt};
use kubeapi::pace::Pace;
use kubeapi::slim::longhorn::{Volume, scope};
use kubeapi::watch::{Update, follow};
use kubeapi::{Cluster, Error, found};
use tokio::time::sleep;

use super::longhorn::put;
use crate::node::gate::VolumesSeen;

/// Volumes that are faulted or degraded.
///
/// # Errors
/// Those of [`Cluster`]; without Longhorn there are none.
pub(crate) async fn troubled(cluster: &Cluster) -> Result<VolumesSeen, Error> {
    Ok(volumes(cluster).await?.map(|all| seen(all.values())).unwrap_or_default())
}

async fn volumes(cluster: &Cluster) -> Result<Option<BTreeMap<String, Volume>>, Error> {
    let Some(list) = found(scope("volumes").list_all::<Volume>(cluster).await)? else { return Ok(None) };
    let mut all = BTreeMap::new();
    put(&mut all, Update::Listed(list.items), |it: &Volume| &it.metadata);
    Ok(Some(all))
}

fn seen<'a>(all: impl Iterator<Item = &'a Volume>) -> VolumesSeen {
    let mut seen = VolumesSeen::default();
    for volume in all {
        let name = volume.metadata.name.clone().unwrap_or_default();
        let claimed = &volume.status.kubernetes_status;
        let shown = match claimed.pvc_name.as_str() {
            "" => name.clone(),
            claim => format!("{}/{claim} ({name})", claimed.namespace),
        };
        match volume.status.robustness.as_str() {
            "faulted" => drop(seen.faulted.insert(name, shown)),
            "degraded" => drop(seen.degraded.insert(name, shown)),
            _ => {}
        }
    }
    seen
}

enum At {
    /// All is to be read, after a pause when it has failed before.
    Read,
    /// They were read, and are followed.
    Follow(BTreeMap<String, Volume>, BoxStream<'static, Update<Volume>>, VolumesSeen),
    /// There is nothing to follow.
    Over,
}

/// The same, first and again whenever it has changed; a failure is told, and all is read again. It never ends.
pub(crate) fn follow_troubled(
    cluster: Cluster,
    seed: u64,
) -> impl Stream<Item = Result<VolumesSeen, Error>> + Send {
    let pace = Pace::new(RandomState::new().hash_one("jitter"));
    stream::unfold((At::Read, pace, 0_u32), move |(mut at, mut pace, mut tries)| {
        let cluster = cluster.clone();
        async move {
            let item = match &mut at {
                At::Read => {
                    if tries > 0 {
                        sleep(pace.pause(tries, None)).await;
                    }
                    match volumes(&cluster).await {
                        Ok(Some(all)) => {
                            let first = seen(all.values());
                            let updates = follow::<Volume>(cluster, scope("volumes"), seed).boxed();
                            at = At::Follow(all, updates, first.clone());
                            Ok(first)
                        }
                        Ok(None) => {
                            at = At::Over;
                            Ok(VolumesSeen::default())
                        }
                        Err(error) => {
                            tries = tries.saturating_add(1);
                            Err(error)
                        }
                    }
                }
                At::Follow(all, updates, last) => loop {
                    let Some(update) = updates.next().await else { std::future::pending().await };
                    if let Some(error) = put(all, update, |it: &Volume| &it.metadata) {
                        tries = tries.saturating_add(1);
                        at = At::Read;
                        break Err(error);
                    }
                    let now = seen(all.values());
                    if now != *last {
                        tries = 0;
                        last.clone_from(&now);
                        break Ok(now);
                    }
                },
                At::Over => std::future::pending().await,
            };
            Some((item, (at, pace, tries)))
        }
    })
}
