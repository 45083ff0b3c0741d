//! How far updates of Kubernetes components are: the kube container reports each step by a command, which hands the value
//! over by a file; the agent that lives publishes it.
//!
//! A command ends at once and could serve no subscriber, and two at once would be two publishers. Files are numbered,
//! and published in their order. Source: D-K27, D-V29.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use agent::outlet::Tries;
use agent::{AgentContext, Error, Troubles, publication};
use pubsub::{Codec, Name, Publication, TopicRoot, store};
use step::SmallSort as _;
use step::chain;
use topics::{
    ErrorSeverity, GoTime, KubeClusterUpdateStatus, KubeComponent, KubeComponentUpdateStatus, go_json,
};
use tracing::{info, warn};

use crate::{GLOBAL, NAME};

/// The word of the command.
pub const COMMAND: &str = "pubKubeClusterUpdateStatus";
/// The agent in the name of which it is published.
const PUBLISHER: &str = "zedagent";
/// Where commands hand values over; it survives a reboot as the topic does.
const FOLDER: &str = "KubeClusterUpdateReport";
/// More values than these do not wait for an agent that is not there.
const MOST: usize = 1000;
/// No value is longer.
const LIMIT_BYTES: u64 = 64 << 10;
/// No text of a value is longer: what is longer is cut, so that each value fits a message to subscribers.
const TEXT_BYTES: usize = 2 << 10;
/// There is no value any more.
const NONE: &[u8] = b"null";
/// Digits of a number.
const DIGITS: usize = 10;

/// What a command hands over: a value, or that there is none any more.
type Handed = Option<KubeClusterUpdateStatus>;

fn name() -> Name {
    Name::persistent(NAME, FOLDER)
}

/// The words of the command, in their order.
#[derive(Debug, Clone, Copy)]
pub struct UpdateStatusArgs<'a> {
    pub device: &'a str,
    pub component: &'a str,
    pub status: &'a str,
    /// Version of the whole set of components.
    pub version: &'a str,
    /// What failed, or empty.
    pub error: &'a str,
}

impl UpdateStatusArgs<'_> {
    /// What the words say at `now`; `None` where neither component nor status has a name.
    pub fn value(&self, now: GoTime) -> Result<Handed, String> {
        let component = match self.component {
            "containerd" => KubeComponent::Containerd,
            "k3s" => KubeComponent::K3s,
            "multus" => KubeComponent::Multus,
            "kubevirt" => KubeComponent::Kubevirt,
            "cdi" => KubeComponent::Cdi,
            "longhorn" => KubeComponent::Longhorn,
            _ => KubeComponent::Unknown,
        };
        let status = match self.status {
            "download" => KubeComponentUpdateStatus::Download,
            "download_failed" => KubeComponentUpdateStatus::DownloadFailed,
            "in_progress" => KubeComponentUpdateStatus::InProgress,
            "failed" => KubeComponentUpdateStatus::Failed,
            "completed" => KubeComponentUpdateStatus::Completed,
            _ => KubeComponentUpdateStatus::Unknown,
        };
        let version: i32 = self
            .version
            .parse()
            .map_err(|cause| format!("read the version {:?}, a number of 32 bits: {cause}", self.version))?;
        if (component, status) == (KubeComponent::Unknown, KubeComponentUpdateStatus::Unknown) {
            return Ok(None);
        }
        let mut value = KubeClusterUpdateStatus {
            current_node: cut(self.device),
            component,
            status,
            destination_kube_update_version: version.cast_unsigned(),
            ..KubeClusterUpdateStatus::default()
        };
        if status == KubeComponentUpdateStatus::Failed {
            let all = [COMMAND, self.device, self.component, self.status, self.version, self.error].join(" ");
            value.error = cut(if self.error.is_empty() { &all } else { self.error });
            value.error_time = now;
            value.error_severity = ErrorSeverity::Error;
        }
        Ok(Some(value))
    }
}

/// The beginning of a text, without half a character.
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES)].to_owned()
}

/// Hands a value over to the agent below `root`. Of several commands at once each has a number of its own.
/// Errors, as a person reads them: the folder cannot be read, a file cannot be written, or too many wait.
pub fn hand_over(root: &Path, value: &Handed) -> Result<PathBuf, String> {
    let told = |cause: &(dyn std::error::Error + 'static)| format!("hand the status over: {}", chain(cause));
    let folder = name().dir(root);
    let bytes = match value {
        Some(value) => go_json::to_vec(value).map_err(|cause| told(&cause))?,
        None => NONE.to_vec(),
    };
    loop {
        let held = numbers(&folder).map_err(|cause| told(&cause))?;
        if held.len() >= MOST {
            return Err(format!(
                "hand the status over: {MOST} wait already in {}; is zedkube running?",
                folder.display()
            ));
        }
        let next = held.last().map_or(1, |(number, _)| number + 1);
        let path = folder.join(format!("{next:0DIGITS$}.json"));
        if store::create(&path, &bytes).map_err(|cause| told(&cause))? {
            return Ok(path);
        }
    }
}

/// Numbered files, in order.
fn numbers(folder: &Path) -> Result<Vec<(u64, String)>, pubsub::Error> {
    let number = |it: String| Some((it.strip_suffix(".json")?.parse().ok()?, it));
    let mut all: Vec<(u64, String)> =
        store::names(folder, 2 * MOST)?.into_iter().filter_map(number).collect();
    all.order();
    Ok(all)
}

/// That a file was read. No two are equal, since a number is used again once its file is gone.
#[derive(Debug, Clone)]
struct ReadMarker;

impl PartialEq for ReadMarker {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

/// Publishes what commands hand over, until it is dropped. What is published stays.
pub(crate) async fn run(context: &AgentContext, troubles: &Troubles) -> Result<(), Error> {
    let mut topic: Publication<KubeClusterUpdateStatus> = publication(&context.topic_root, PUBLISHER)?;
    let mut tries = Tries::new(troubles);
    // Says that there is something; what there is, and in which order, the folder says.
    let codec = Codec { encode: |_: &ReadMarker| Err("only read".into()), decode: |_| Ok(ReadMarker) };
    let mut heard = context.topic_root.subscription(&name(), codec);
    let mut left = BTreeSet::new();
    loop {
        // Each write waits for the disk, and others run on this thread.
        tokio::task::yield_now().await;
        let result = publish_next(&context.topic_root, &mut topic, &mut left);
        let more = matches!(result, Ok(true));
        let due = if tries.ended(FOLDER, result.map(drop)) { None } else { tries.next_try() };
        if more {
            continue;
        }
        tokio::select! {
            _ = heard.next() => {}
            () = context.clock.sleep_until(due), if due.is_some() => {}
        }
    }
}

/// Publishes what the first file says, and removes it; false where there is none. `left` are names of directories:
/// their content is unknown, and they hold up nothing.
/// Errors: a file cannot be read, written or removed: it is tried again, so that all are published in their order.
fn publish_next(
    topic_root: &TopicRoot,
    topic: &mut Publication<KubeClusterUpdateStatus>,
    left: &mut BTreeSet<PathBuf>,
) -> Result<bool, Error> {
    let folder = name().dir(topic_root.root());
    let failed = || Error::pubsub(FOLDER);
    for (_, file) in numbers(&folder).map_err(failed())? {
        let path = folder.join(file);
        match publish(&path, topic) {
            Ok(()) => {}
            Err(cause @ pubsub::Error::Io { .. }) => return Err(failed()(cause)),
            Err(_) if path.symlink_metadata().is_ok_and(|it| it.is_dir()) => {
                if left.insert(path.clone()) {
                    warn!(path = %path.display(), "a directory, not a status of an update: left alone");
                }
                continue;
            }
            Err(cause) => {
                warn!(path = %path.display(), why = chain(&cause), "a status of an update that cannot be published: removed");
            }
        }
        return store::remove(&path).map(|_| true).map_err(failed());
    }
    Ok(false)
}

fn publish(path: &Path, topic: &mut Publication<KubeClusterUpdateStatus>) -> Result<(), pubsub::Error> {
    let Some(bytes) = store::read(path, LIMIT_BYTES)? else { return Ok(()) };
    if bytes == NONE {
        return match topic.unpublish(GLOBAL) {
            Err(cause) if !matches!(cause, pubsub::Error::UnknownKey { .. }) => Err(cause),
            Ok(()) | Err(_) => Ok(()),
        };
    }
    let value: KubeClusterUpdateStatus = go_json::from_slice(&bytes).map_err(|cause| {
        pubsub::Error::Refused { path: path.to_owned(), reason: format!("it is no status: {cause}") }
    })?;
    info!(
        component = value.component.number(),
        status = value.status.number(),
        version = value.destination_kube_update_version,
        error = value.error,
        "update of a Kubernetes component"
    );
    topic.publish(GLOBAL, &value).map(drop)
}

#[cfg(test)]
mod tests;
