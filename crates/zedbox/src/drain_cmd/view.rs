//! What the files say about the drain of this node: all that is known right now, and what cannot be read.
//!
//! Not here: how they are followed (`follow`), and what that means (`state`, `words`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use agent::device::kernel_boot_id;
use agent::{Clock, operator, report, wire};
use pubsub::{BadFile, Change, FileState, TopicRoot};
use rustix::fs::Access;
use rustix::io::Errno;
use serde::Serialize;
use topics::{
    AgentTrouble, BaseOsStatus, DeviceOpPending, DrainPreflight, GoTime, NodeDrainProgress, NodeDrainRequest,
    NodeDrainStatus, NodeLeave, OperationPause, OutageQuestion, RequestId, Requester, Topic, go_json,
    read_force,
};

/// Under whose name a person's request is published.
pub(super) const OPERATOR: &str = "zedbox";
/// Who may ask for a drain: the agents, and a person by this program.
pub(super) const REQUESTERS: [&str; 3] = ["zedagent", "baseosmgr", OPERATOR];

/// The request of a person.
pub(super) fn operator_file(topic_root: &TopicRoot) -> PathBuf {
    topic_root.path(operator::FILE)
}

/// All that is known right now.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DrainView {
    /// How far the drain is.
    pub(super) status: Option<NodeDrainStatus>,
    /// The same with all that a person needs to know; a zedkube of the reference does not tell it.
    pub(super) progress: Option<NodeDrainProgress>,
    /// What the preflight of the newest drain of this boot has found.
    pub(super) preflight: Option<DrainPreflight>,
    /// The requests by the agent that publishes them.
    pub(super) requests: BTreeMap<&'static str, NodeDrainRequest>,
    /// Reboots and shutdowns that are wanted, by name.
    pub(super) pending: BTreeMap<String, DeviceOpPending>,
    /// How far this node is on its way out of its cluster, without the cluster's config; `None` where nothing is to be
    /// said of it.
    pub(super) leave: Option<Box<NodeLeave>>,
    /// Why nodeagent holds the machine back at the last moment; `None` while it does not.
    pub(super) last_look: Option<OutageQuestion>,
    /// OS images that wait for another try after an error, by content tree.
    pub(super) updates: BTreeMap<String, BaseOsStatus>,
    /// The force file; `None` without one.
    pub(super) force: Option<ForceFileOrder>,
    /// A person's pause that counts now; `None` without one.
    pub(super) pause: Option<OperationPause>,
    /// What agents cannot write or read at present.
    pub(super) troubles: BTreeMap<&'static str, AgentTrouble>,
    pub(super) live: Live,
    /// Files that cannot be used, and why.
    pub(super) broken: BTreeMap<PathBuf, String>,
    /// Files and directories that this user may not read.
    pub(super) denied: BTreeSet<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ForceFileOrder {
    /// Where it stands, under the root.
    pub(super) file: &'static str,
    /// What it orders; `None` when it is refused.
    pub(super) order: Option<NodeDrainStatus>,
    /// Why the agents refuse it, or empty.
    pub(super) refused: String,
}

impl DrainView {
    /// The same with the times of zedkube by the wall clock of now, where it has written them in the boot that runs.
    /// Ages are those of the monotonic clock then, also while zedkube is not there to hear that the clock was set.
    pub(super) fn by_clock(mut self, clock: Clock) -> Self {
        // Whoever cannot know the boot compares wall times.
        let boot_id = kernel_boot_id().unwrap_or_default();
        let same = |it: &NodeDrainProgress| it.boot_id == boot_id && !it.booted_at.is_zero();
        self.progress = self.progress.map(|it| if same(&it) { it.by_clock(clock.booted_at()) } else { it });
        self
    }

    /// When a request was made, by the clock of the other times.
    pub(super) fn asked_at(&self, id: RequestId) -> GoTime {
        self.progress.as_ref().map_or(id.at, |it| it.asked_at(id))
    }
}

/// Whether zedkube runs: topic files stay when it dies.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Live {
    /// A process, of whatever PID namespace, holds the lock of zedkube's topics; null where that cannot be told.
    pub(super) running: Option<bool>,
    /// When it last had a turn, by its touch file; zero without one.
    pub(super) last_turn: GoTime,
}

impl Live {
    /// The live zedkube of `topic_root`, as far as its lock and its touch file tell.
    pub(super) fn of(topic_root: &TopicRoot) -> Self {
        Self {
            // A lock that may not be read tells nothing.
            running: topic_root.is_published(&wire::name::<NodeDrainStatus>("zedkube")).unwrap_or_default(),
            last_turn: touched(&topic_root.path("run/zedkube.touch")),
        }
    }

    /// Certainly no process serves zedkube's topics.
    pub(super) const fn is_dead(self) -> bool {
        matches!(self.running, Some(false))
    }
}

fn touched(path: &Path) -> GoTime {
    let modified = path.symlink_metadata().and_then(|seen| seen.modified()).ok();
    let since = modified.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let nanos = since.and_then(|since| i128::try_from(since.as_nanos()).ok());
    nanos.and_then(GoTime::from_unix_nanos).unwrap_or_default()
}

impl DrainView {
    /// Why no process serves zedkube's topics, where that is certain.
    pub(super) fn zedkube_away(&self) -> Option<String> {
        let troubles = self.troubles.get("zedkube").map(|it| it.troubles.as_slice()).unwrap_or_default();
        let start = troubles.iter().find(|it| it.what == "start of zedkube");
        self.live.is_dead().then(|| match start {
            Some(it) => format!("zedkube cannot start: {}", it.error),
            None => "zedkube is not running".to_owned(),
        })
    }

    /// The request of an agent, or that there is none.
    pub(super) fn requested(&mut self, agent: &'static str, request: Option<&NodeDrainRequest>) {
        match request {
            Some(request) => drop(self.requests.insert(agent, request.clone())),
            None => drop(self.requests.remove(agent)),
        }
    }

    /// The request of a person, by the rule for orders that zedkube goes by.
    pub(super) fn asked(&mut self, file: PathBuf, state: FileState) {
        self.usable(&file);
        self.requests.remove(OPERATOR);
        match state {
            FileState::Absent => {}
            FileState::Present(bytes) => match go_json::from_slice::<NodeDrainRequest>(&bytes) {
                // Whose file it is says who asks.
                Ok(it) => {
                    let request = NodeDrainRequest { requested_by: Requester::Operator, ..it };
                    self.requests.insert(OPERATOR, request);
                }
                Err(cause) => self.unusable(file, report::chain(&cause)),
            },
            FileState::Bad(finding) => self.unusable(file, finding.reason),
        }
    }

    /// What a force file orders, or why it is refused.
    pub(super) fn forced(
        &mut self,
        place: &'static str,
        file: PathBuf,
        state: FileState,
    ) -> Option<ForceFileOrder> {
        self.usable(&file);
        let refused = |refused: String| Some(ForceFileOrder { file: place, order: None, refused });
        match state {
            FileState::Absent => None,
            FileState::Present(bytes) => match read_force(&bytes) {
                Ok(order) => Some(ForceFileOrder { file: place, order: Some(order), refused: String::new() }),
                Err(cause) => refused(cause.to_string()),
            },
            FileState::Bad(finding) if is_denied(&file) => {
                self.unusable(file, finding.reason);
                None
            }
            FileState::Bad(finding) => refused(finding.reason),
        }
    }

    /// Notes which files are broken.
    pub(super) fn note<T: Topic>(&mut self, topic_root: &TopicRoot, agent: &str, change: Change<T>) {
        match change {
            Change::Put { key, .. } | Change::Gone { key, .. } => {
                self.usable(&wire::path::<T>(topic_root, agent, &key));
            }
            Change::Bad(BadFile { path, reason }) => self.unusable(path, reason),
            Change::Synced | Change::Restarted(_) => {}
        }
    }

    /// A file can be read again.
    pub(super) fn usable(&mut self, path: &Path) {
        self.broken.remove(path);
        self.denied.retain(|it| !path.starts_with(it));
    }

    /// A file cannot be used, or not be read by this user.
    pub(super) fn unusable(&mut self, path: PathBuf, reason: String) {
        if is_denied(&path) {
            self.denied.insert(closed(&path));
        } else {
            self.broken.insert(path, reason);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn k4_what_this_boot_has_written_is_shown_by_the_clock_of_now_and_what_another_has_written_is_not() {
        let clock = Clock::new();
        // Written before the first answer of a time server, by a zedkube that has died since.
        let booted_at = GoTime::from_unix_nanos(0).unwrap_or_default();
        let began = clock.now();
        let started_at = booted_at.plus(began.since_start());
        let id = RequestId { by: Requester::DeviceOp, at: started_at };
        let asked = vec![topics::Asked { requested_by: id.by, requested_at: id.at, at: started_at }];
        let of_boot = |boot_id: String| {
            let progress = NodeDrainProgress {
                boot_id,
                booted_at,
                started_at,
                asked: asked.clone(),
                ..Default::default()
            };
            DrainView { progress: Some(progress), ..DrainView::default() }.by_clock(clock)
        };
        let seen = of_boot(kernel_boot_id().unwrap());
        let right = clock.booted_at().plus(began.since_start());
        for shown in [seen.progress.as_ref().unwrap().started_at, seen.asked_at(id)] {
            assert!(shown.apart(right) < Duration::from_secs(2), "{shown} where {right} is right");
        }
        let seen = of_boot("another".to_owned());
        assert_eq!((seen.progress.as_ref().unwrap().started_at, seen.asked_at(id)), (started_at, started_at));
    }
}
