//! Which files the view is made of, and how each is read. Nothing of what they mean is here.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use agent::wire::{self, GLOBAL, MAINTENANCE, ZEDKUBE};
use agent::{force, operator};
use pubsub::{FILE_LIMIT_BYTES, FileRule, FileState, TopicRoot, store};
use rustix::fs::Access;
use rustix::io::Errno;
use serde::Serialize;
use step::Inserted as _;
use topics::{
    AgentTrouble, BaseOsStatus, DeviceOp, DeviceOpPending, DrainHistory, DrainPreflight, NodeDrainProgress,
    NodeDrainRequest, NodeDrainStatus, NodeLeave, OutageQuestion, PAUSE_FILE, Topic, go_json, read_force,
};

/// Who asks for drains by a topic, the one whose request counts first before the others; a person does by a file.
pub(crate) const REQUESTERS: [&str; 4] = ["zedagent", "baseosmgr", ZEDKUBE, MAINTENANCE];
/// What can take the machine down.
pub(crate) const OPERATIONS: [DeviceOp; 2] = [DeviceOp::Reboot, DeviceOp::Shutdown];
/// No more OS images are looked at.
const IMAGES: usize = 64;
const TOPIC: FileRule = FileRule { limit_bytes: FILE_LIMIT_BYTES, order: false };
/// Who has troubles to report, and a touch file.
pub(crate) const AGENTS: [&str; 4] = ["zedagent", "baseosmgr", "nodeagent", ZEDKUBE];

/// Only root, or the user of this program, can have written such a file.
pub const fn order_rule(limit_bytes: u64) -> FileRule {
    FileRule { limit_bytes, order: true }
}

/// The request of a person.
pub fn operator_file(topic_root: &TopicRoot) -> PathBuf {
    topic_root.path(operator::FILE)
}

/// A force file.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ForceFileOrder {
    /// Where it is, under the root.
    pub file: &'static str,
    /// What it orders; `None` when it is refused.
    pub order: Option<NodeDrainStatus>,
    /// Why the agents refuse it, or empty.
    pub refused: String,
}

/// A file that changes the view when it changes.
pub struct Watched {
    pub path: PathBuf,
    pub rule: FileRule,
}

/// All of them but the OS images, which are a topic of many values.
pub fn watched(topic_root: &TopicRoot) -> Vec<Watched> {
    let global = |agent: &str| {
        let of_agent = [wire::path::<AgentTrouble>(topic_root, agent, GLOBAL)];
        let asks = REQUESTERS.contains(&agent);
        of_agent.into_iter().chain(asks.then(|| wire::path::<NodeDrainRequest>(topic_root, agent, GLOBAL)))
    };
    let zedkube = [
        wire::path::<NodeDrainStatus>(topic_root, ZEDKUBE, GLOBAL),
        wire::path::<NodeDrainProgress>(topic_root, ZEDKUBE, GLOBAL),
        wire::path::<DrainPreflight>(topic_root, ZEDKUBE, GLOBAL),
        wire::path::<NodeLeave>(topic_root, ZEDKUBE, GLOBAL),
        wire::path::<DrainHistory>(topic_root, ZEDKUBE, GLOBAL),
        wire::path::<OutageQuestion>(topic_root, "nodeagent", GLOBAL),
    ];
    let pending = OPERATIONS.map(|op| wire::path::<DeviceOpPending>(topic_root, "zedagent", op.word()));
    let maintenance = [wire::path::<NodeDrainRequest>(topic_root, MAINTENANCE, GLOBAL)];
    let topics = AGENTS.into_iter().flat_map(global).chain(zedkube).chain(pending).chain(maintenance);
    let words = [(operator::FILE, operator::RULE), (PAUSE_FILE, operator::WORD)];
    let forced = force::PLACES.map(|place| (place, order_rule(force::LIMIT_BYTES)));
    let orders = words.into_iter().chain(forced).map(|(file, rule)| (topic_root.path(file), rule));
    topics.map(|path| (path, TOPIC)).chain(orders).map(|(path, rule)| Watched { path, rule }).collect()
}

/// Reads files, and notes which of them cannot be used.
pub(crate) struct Reader<'a> {
    topic_root: &'a TopicRoot,
    pub(crate) broken: BTreeMap<PathBuf, String>,
    pub(crate) denied: BTreeSet<PathBuf>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(topic_root: &'a TopicRoot) -> Self {
        Self { topic_root, broken: BTreeMap::new(), denied: BTreeSet::new() }
    }

    pub(crate) fn topic<T: Topic>(&mut self, agent: &str, key: &str) -> Option<T> {
        self.value(&wire::path::<T>(self.topic_root, agent, key), TOPIC, |bytes| {
            go_json::from_slice(bytes).map_err(|cause| step::chain(&cause))
        })
    }

    /// What `decode` makes of the file, if it is there and can be used.
    pub(crate) fn value<T>(
        &mut self,
        path: &Path,
        rule: FileRule,
        decode: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Option<T> {
        let read = match FileState::now(path, rule) {
            Ok(FileState::Absent) => return None,
            Ok(FileState::Present(bytes)) => decode(&bytes),
            Ok(FileState::Bad(bad)) => Err(bad.reason),
            Err(error) => Err(step::chain(&error)),
        };
        read.map_err(|reason| {
            if is_denied(path) {
                self.denied.insert(closed(path));
            } else {
                self.broken.insert(path.to_owned(), reason);
            }
        })
        .ok()
    }

    pub(crate) fn faults(&self) -> usize {
        self.broken.len() + self.denied.len()
    }

    /// The one under /persist counts before the one under /run.
    pub(crate) fn force(&mut self) -> Option<ForceFileOrder> {
        force::PLACES.into_iter().find_map(|file| {
            let path = self.topic_root.path(file);
            let rule = order_rule(force::LIMIT_BYTES);
            match FileState::now(&path, rule) {
                Ok(FileState::Bad(bad)) if !is_denied(&path) => {
                    Some(ForceFileOrder { file, order: None, refused: bad.reason })
                }
                _ => self.value(&path, rule, |bytes| {
                    Ok(match read_force(bytes) {
                        Ok(order) => ForceFileOrder { file, order: Some(order), refused: String::new() },
                        Err(cause) => ForceFileOrder { file, order: None, refused: cause.to_string() },
                    })
                }),
            }
        })
    }

    pub(crate) fn images(&mut self) -> BTreeMap<String, BaseOsStatus> {
        let dir = wire::name::<BaseOsStatus>("baseosmgr").dir(self.topic_root.root());
        let names = store::names(&dir, IMAGES).unwrap_or_default();
        let keys = names.iter().filter_map(|it| it.strip_suffix(".json"));
        let all =
            keys.filter_map(|key| Some((key.to_owned(), self.topic::<BaseOsStatus>("baseosmgr", key)?)));
        let waits = |it: &BaseOsStatus| {
            !it.activated && (!it.error.is_empty() || !it.error_retry_condition.is_empty())
        };
        all.filter(|(_, it)| waits(it)).into_map()
    }
}

/// Whether this user may not read it, or not even see whether it is there.
fn is_denied(path: &Path) -> bool {
    rustix::fs::access(path, Access::READ_OK) == Err(Errno::ACCESS)
}

/// The uppermost directory on the way to `path` in which nothing can be looked up, or `path` itself: what is in it,
/// and whether it exists, is not known.
fn closed(path: &Path) -> PathBuf {
    let unseen =
        |it: &&Path| it.symlink_metadata().is_err_and(|cause| cause.kind() == ErrorKind::PermissionDenied);
    let below = path.ancestors().filter(unseen).last();
    below.and_then(Path::parent).unwrap_or(path).to_owned()
}
