//! The pods with live containers on this machine, by UID, read from the container runtime's socket.
//!
//! Read-only. Not here: the protocol (`cri`), and how an answer is used (`kubenodeop`).

mod cri;
#[cfg(any(test, feature = "mock"))]
pub mod mock;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use pubsub::trust;

/// Usual sockets, under the root: containerd's own, that of k3s and rke2, that of EVE's kube container.
pub const SOCKETS: [&str; 3] = [
    "run/containerd/containerd.sock",
    "run/k3s/containerd/containerd.sock",
    "run/containerd-user/containerd.sock",
];

/// For fuzzing and its corpus: bytes as the answer to each call; how many it lists, or why it is refused.
pub fn trial(bytes: &[u8]) -> [Result<usize, String>; 2] {
    cri::trial(bytes).map(|it| it.map_err(|why| why.to_string()))
}

#[derive(Debug, Clone)]
pub struct Runtime {
    sockets: Vec<PathBuf>,
}

impl Runtime {
    /// With the socket `named`, or for an empty name the usual ones below `root`.
    pub fn new(root: &Path, named: &str) -> Self {
        let sockets = match named {
            "" => SOCKETS.iter().map(|it| root.join(it)).collect(),
            named => vec![PathBuf::from(named)],
        };
        Self { sockets }
    }

    /// UIDs of pods with a live container or sandbox in any runtime: all states but `EXITED` and `NOTREADY`
    /// count as alive. At most 5 s and 16 MiB per socket.
    ///
    /// Errors: why no runtime answers, or why one of several does not: it may run pods that the others do not
    /// know. A runtime without a kubelet is skipped, and so is a link to a socket that is asked anyway.
    pub async fn live_pods(&self) -> Result<BTreeSet<String>, String> {
        let SocketAnswers { live, whys, strangers } = self.ask().await;
        match (live, whys.is_empty()) {
            (Some(live), true) => Ok(live),
            (Some(_), false) => Err(format!(
                "one container runtime answers, and another that may run pods does not: {} (`runtime_socket` of the limits file \
                 names the one that counts)",
                whys.join("; ")
            )),
            (None, true) if strangers.is_empty() => Err(self.nowhere()),
            (None, _) => Err(silent(&[whys, strangers].concat())),
        }
    }

    /// What is wrong with the kubelet's runtime; `None` when one answers, and where none has a socket.
    pub async fn trouble(&self) -> Option<String> {
        let SocketAnswers { live, whys, .. } = self.ask().await;
        (live.is_none() && !whys.is_empty()).then(|| silent(&whys))
    }

    async fn ask(&self) -> SocketAnswers {
        let mut answers = SocketAnswers::default();
        for path in &self.sockets {
            match socket(path) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(_) if self.is_asked_as(path) => continue,
                Err(why) => {
                    answers.whys.push(format!("{}: {why}", path.display()));
                    continue;
                }
            }
            match cri::live_pods(path).await {
                Ok(more) => answers.live.get_or_insert_default().extend(more),
                Err(error) if error.serves_no_kubelet() => {
                    answers.strangers.push(format!("{}: {error}", path.display()));
                }
                Err(error) => answers.whys.push(format!("{}: {error}", path.display())),
            }
        }
        answers
    }

    /// Whether `path` is a link to a socket that is asked under its own name.
    fn is_asked_as(&self, path: &Path) -> bool {
        let Ok(own) = fs::canonicalize(path) else { return false };
        let is_own = |other: &Path| fs::canonicalize(other).is_ok_and(|it| it == own);
        self.sockets.iter().any(|other| other != path && socket(other) == Ok(true) && is_own(other))
    }

    fn nowhere(&self) -> String {
        let all: Vec<String> = self.sockets.iter().map(|it| it.display().to_string()).collect();
        let all = all.join(", ");
        format!("no socket of a container runtime at {all} (`runtime_socket` of the limits file names it)")
    }
}

#[derive(Default)]
struct SocketAnswers {
    /// `None` when no runtime answered.
    live: Option<BTreeSet<String>>,
    whys: Vec<String>,
    /// Runtimes without a kubelet.
    strangers: Vec<String>,
}

fn silent(whys: &[String]) -> String {
    format!("the container runtime cannot be asked: {}", whys.join("; "))
}

/// Whether there is a socket that only root, or our own user, can have put there.
fn socket(path: &Path) -> Result<bool, String> {
    // Not through a link: its target may change between two answers.
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error.to_string()),
    };
    if !found.file_type().is_socket() {
        return Err("it is no socket".to_owned());
    }
    if let Some(owner) = trust::foreign_owner(&found) {
        return Err(format!("it belongs to user {owner}, not to root"));
    }
    Ok(true)
}
