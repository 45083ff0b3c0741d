//! The volumes of Longhorn that virtual machines use, and how each is.
//!
//! Read only for machines that have one and of which it matters. Not here: whether the last healthy copy is on our node
//! (`storage`). Source: spec/vm-storage.md B1.

use std::collections::BTreeMap;
use std::fmt;

use futures::future::try_join;
use kubeapi::slim::PersistentVolume;
use kubeapi::slim::longhorn::{Engine, Volume, scope};
use kubeapi::{ApiClient, Error, found};
use step::Inserted as _;

const DRIVER: &str = "driver.longhorn.io";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineDisk {
    /// As `shop/data (pvc-1)`.
    pub name: String,
    pub robustness: String,
    pub rebuilds: bool,
    pub percent: Option<u8>,
}

/// For a person: `volume shop/data (pvc-1) is degraded and being rebuilt, 42 %`.
impl fmt::Display for MachineDisk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "volume {} is {}", self.name, self.robustness)?;
        if self.rebuilds {
            out.write_str(" and being rebuilt")?;
        }
        self.percent.map_or(Ok(()), |percent| write!(out, ", {percent} %"))
    }
}

/// Names in Longhorn of the volumes of `claims`, with the claim.
pub(super) fn names(
    (namespace, claims): (&str, &[String]),
    volumes: &[PersistentVolume],
) -> Vec<(String, String)> {
    let name = |volume: &PersistentVolume| {
        let spec = volume.spec.as_ref()?;
        let claim = spec.claim_ref.as_ref()?;
        let csi = spec.csi.as_ref().filter(|it| it.driver == DRIVER)?;
        let own = claim.namespace.as_deref() == Some(namespace);
        let name = claim.name.clone().filter(|it| own && claims.contains(it))?;
        Some((csi.volume_handle.clone(), format!("{namespace}/{name} ({})", csi.volume_handle)))
    };
    volumes.iter().filter_map(name).collect()
}

/// All volumes of Longhorn, by name; none without it.
pub(super) async fn read(cluster: &ApiClient) -> Result<BTreeMap<String, MachineDisk>, Error> {
    let (volumes, engines) = (scope("volumes"), scope("engines"));
    let all = try_join(volumes.list_all::<Volume>(cluster), engines.list_all::<Engine>(cluster)).await;
    let Some((volumes, engines)) = found(all)? else { return Ok(BTreeMap::new()) };
    let disk = |volume: Volume| {
        let name = volume.metadata.name.unwrap_or_default();
        let own = || engines.items.iter().filter(|it| it.spec.volume_name == name).map(|it| &it.status);
        let rebuilt = own().flat_map(|it| it.rebuild_status.values()).filter(|it| it.is_rebuilding);
        let percent = rebuilt.map(|it| it.progress.min(100)).max();
        let disk = MachineDisk {
            name: String::new(),
            robustness: volume.status.robustness,
            rebuilds: own().any(|it| it.replica_mode_map.values().any(|mode| mode == "WO")),
            percent,
        };
        (name, disk)
    };
    Ok(volumes.items.into_iter().map(disk).into_map())
}
