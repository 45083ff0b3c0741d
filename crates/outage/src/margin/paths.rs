//! Where k3s and rke2 keep etcd's data and the files of its login.
//!
//! Not here: what is in them. Source: spec/cluster-lock.md 5.1 and 5.7.

use std::path::{Path, PathBuf};

use kubeapi::connect::endpoint::CertificateLogin;

use super::facts::Data;

/// Data directories of k3s and rke2, below the root: in the reference's image the first is `/var/lib/rancher/k3s` of the
/// container that k3s runs in.
const PLACES: [&str; 3] = ["persist/vault/kube/rancher/k3s", "var/lib/rancher/k3s", "var/lib/rancher/rke2"];
/// Below one of them: etcd's data.
const DATABASE: &str = "server/db/etcd";

/// The data directories that may be the right one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths(Vec<PathBuf>);

impl Paths {
    /// The usual places below `root`, which is `/` on a device.
    pub fn usual(root: &Path) -> Self {
        Self(PLACES.iter().map(|it| root.join(it)).collect())
    }

    /// This data directory only, as `/var/lib/rancher/k3s`.
    pub fn at(data: &Path) -> Self {
        Self(vec![data.to_owned()])
    }

    /// Whether etcd keeps data in one of them.
    /// Errors: one of them cannot be looked at. `setting` is named as what to set for another place.
    pub fn data(&self, setting: &str) -> Result<Data, String> {
        for place in &self.0 {
            let database = place.join(DATABASE);
            match database.try_exists() {
                Ok(true) => return Ok(Data::Present),
                Ok(false) => {}
                Err(error) => {
                    return Err(format!("cannot look at {}: {error}; run as root", database.display()));
                }
            }
        }
        let places: Vec<String> = self.0.iter().map(|it| it.join(DATABASE).display().to_string()).collect();
        Ok(Data::Absent {
            looked: format!(
                "no {}; if the data directory of k3s or rke2 is elsewhere, set {setting}",
                places.join(", no ")
            ),
        })
    }

    /// The login for port 2382: the files of the first place that has etcd's data, else of the first.
    pub fn login(&self) -> CertificateLogin {
        let with_data = self.0.iter().find(|it| it.join(DATABASE).exists());
        let place = with_data.or_else(|| self.0.first()).map_or_else(|| Path::new("/"), PathBuf::as_path);
        let file = |name: &str| place.join("server/tls/etcd").join(name);
        CertificateLogin {
            ca: file("server-ca.crt"),
            certificate: file("client.crt"),
            key: file("client.key"),
        }
    }
}
