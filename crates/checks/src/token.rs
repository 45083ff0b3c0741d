//! The token that a server of k3s or rke2 starts with: without it, or with another one than the cluster's, it cannot read
//! what etcd holds, and may not rejoin after a reboot.
//!
//! Only whether it is there, can be read and is the one of the node's config is said; nothing of it is shown. A worker
//! keeps none. Blocks on the disk alone. Source: seed row 2-27; the k3s page "k3s token".

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use topics::{EdgeNodeClusterStatus, Secret, go_json};

use crate::finding::unreadable;
use crate::{Finding, Severity};

/// Below the data of k3s or rke2: only a server has it.
const SERVER: &str = "server/tls";
const TOKEN: &str = "server/token";
/// What k3s of this node is started with next, where zedkube knows.
pub(crate) const STATUS: &str = "run/zedkube/EdgeNodeClusterStatus/global.json";
/// No such file is longer.
const BYTES: usize = 64 << 10;

/// What is the matter with the token of the server whose data is there; code `token`.
pub(crate) fn look(root: &Path, data: &str) -> Option<Finding> {
    let data = root.join(data);
    let (path, status) = (data.join(TOKEN), root.join(STATUS));
    if !data.join(SERVER).exists() {
        return None;
    }
    let shown = path.display();
    let found = |text: String, next: &str| Some(Finding::new("token", text, next).with(Severity::Warns));
    let copy = "copy it from another server (mode 0600), or set `token` in its config to that of the cluster";
    let own = match read(&path) {
        Ok(own) => own,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Secret::default(),
        Err(error) => {
            return Some(unreadable("token", &format!("{shown}: {error}")));
        }
    };
    if own.reveal().trim().is_empty() {
        let text = format!(
            "this node is a server, and {shown} is missing or empty: after a reboot it may not rejoin"
        );
        return found(text, copy);
    }
    // A file that is not there, or that nobody can read, says nothing.
    let wanted = read(&status)
        .ok()
        .and_then(|it| go_json::from_slice::<EdgeNodeClusterStatus>(it.reveal().as_bytes()).ok());
    let wanted = wanted.map(|it| it.encrypted_cluster_token).filter(|it| !it.reveal().is_empty())?;
    if password(&own) == password(&wanted) {
        return None;
    }
    let text = format!(
        "the token in {shown} is not the one of this node's cluster config: after a reboot it may not rejoin"
    );
    let next = "compare it with server/token of another server: after k3s token rotate each server needs the new token in its config";
    Some(Finding::new("token", text, next))
}

/// The secret part: k3s writes `K10<hash>::server:<password>`, and takes the password alone as well.
fn password(token: &Secret) -> &str {
    let token = token.reveal().trim();
    let full =
        token.strip_prefix("K10").and_then(|it| it.split_once("::")).and_then(|it| it.1.split_once(':'));
    full.map_or(token, |(_, password)| password)
}

/// What is in a file that may hold it, in memory that is wiped.
pub(crate) fn read(path: &Path) -> io::Result<Secret> {
    // In one piece: what it would be moved from is not wiped.
    let mut text = String::with_capacity(BYTES);
    File::open(path)?.take(BYTES as u64).read_to_string(&mut text)?;
    Ok(Secret::new(text))
}
