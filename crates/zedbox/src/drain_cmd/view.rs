//! What the files say about the drain of this node, read as the agents read them, once or for good.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use agent::device::kernel_boot_id;
use agent::wire::GLOBAL;
use agent::{Clock, force, operator, report, wire};
use pubsub::{BadFile, Change, FileRule, FileState, FileWatch, Subscription, TopicRoot};
use rustix::fs::Access;
use rustix::io::Errno;
use serde::Serialize;
use step::Inserted as _;
use topics::{
    AgentTrouble, BaseOsStatus, DeviceOpPending, DrainPreflight, FORCE_FILE, GoTime, NodeDrainProgress,
    NodeDrainRequest, NodeDrainStatus, NodeLeave, OperationPause, OutageQuestion, PAUSE_FILE, RequestId,
    Requester, Topic, go_json, read_force,
};

use super::orders;
use super::trouble::TroubleFollower;

/// Under whose name a person's request is published.
pub(super) const OPERATOR: &str = "zedbox";
/// Who may ask for a drain: the agents, and a person by this program.
pub(super) const REQUESTERS: [&str; 3] = ["zedagent", "baseosmgr", OPERATOR];

/// Only root, or whoever runs this program, can have written such a file.
pub(super) const fn order(limit_bytes: u64) -> FileRule {
    FileRule { limit_bytes, order: true }
}

/// The request of a person.
pub(super) fn operator_file(topic_root: &TopicRoot) -> PathBuf {
    topic_root.path(operator::FILE)
}

/// zedkube writes progress and status one after the other; longer than this they differ only when it died between.
pub(super) const SETTLING: Duration = Duration::from_millis(300);
/// The first reading of all files takes at most so long; what could not be read by then is not known.
const READING: Duration = Duration::from_secs(5);

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
    /// Whether zedkube runs.
    pub(super) live: Live,
    /// Files that cannot be used, and why.
    pub(super) broken: BTreeMap<PathBuf, String>,
    /// Files and directories that this user may not read.
    pub(super) denied: BTreeSet<PathBuf>,
}

/// The force file.
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

/// The next state of a force file, and which of the places it is.
async fn forced([first, second]: &mut [FileWatch; 2]) -> (&'static str, FileState) {
    tokio::select! {
        state = first.next() => (FORCE_FILE, state),
        state = second.next() => (force::FALLBACK, state),
    }
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

/// Follows the files for good: before zedkube runs, and while it restarts.
pub(super) struct Follow {
    topic_root: TopicRoot,
    seen: DrainView,
    status: Subscription<NodeDrainStatus>,
    progress: Subscription<NodeDrainProgress>,
    preflight: Subscription<DrainPreflight>,
    zedagent: Subscription<NodeDrainRequest>,
    baseosmgr: Subscription<NodeDrainRequest>,
    operator: FileWatch,
    pause: FileWatch,
    clock: Clock,
    pending: Subscription<DeviceOpPending>,
    updates: Subscription<BaseOsStatus>,
    leave: Subscription<NodeLeave>,
    last_look: Subscription<OutageQuestion>,
    force: [FileWatch; 2],
    /// What they say, by place.
    forced: BTreeMap<&'static str, ForceFileOrder>,
    troubles: TroubleFollower,
    /// Plain files that have not been read once.
    unread: BTreeSet<&'static str>,
}

impl Follow {
    /// Reads all files once and follows them from then on. To be called within a runtime.
    pub(super) async fn open(topic_root: &TopicRoot, clock: Clock) -> Self {
        fn topic<T: Topic>(topic_root: &TopicRoot, agent: &str) -> Subscription<T> {
            topic_root.subscription(&wire::name::<T>(agent), wire::codec::<T>())
        }
        let mut follow = Self {
            seen: DrainView { live: Live::of(topic_root), ..DrainView::default() },
            status: topic(topic_root, "zedkube"),
            progress: topic(topic_root, "zedkube"),
            preflight: topic(topic_root, "zedkube"),
            zedagent: topic(topic_root, "zedagent"),
            baseosmgr: topic(topic_root, "baseosmgr"),
            operator: operator::request(topic_root),
            pause: orders::pause::watch(topic_root),
            clock,
            pending: topic(topic_root, "zedagent"),
            updates: topic(topic_root, "baseosmgr"),
            leave: topic(topic_root, "zedkube"),
            last_look: topic(topic_root, "nodeagent"),
            force: force::PLACES
                .map(|place| topic_root.file(topic_root.path(place), order(force::LIMIT_BYTES))),
            forced: BTreeMap::new(),
            troubles: TroubleFollower::open(topic_root),
            unread: BTreeSet::from([operator::FILE, PAUSE_FILE, FORCE_FILE, force::FALLBACK]),
            topic_root: topic_root.clone(),
        };
        let until = clock.now() + READING;
        while !follow.was_read() && clock.now() < until {
            tokio::select! {
                () = follow.hear() => {}
                () = clock.sleep_until(Some(until)) => {}
            }
        }
        follow
    }

    /// Whether each file and topic was read, or a topic is known not to be readable now.
    fn was_read(&self) -> bool {
        self.status.was_tried()
            && self.progress.was_tried()
            && self.preflight.was_tried()
            && self.zedagent.was_tried()
            && self.baseosmgr.was_tried()
            && self.pending.was_tried()
            && self.updates.was_tried()
            && self.leave.was_tried()
            && self.last_look.was_tried()
            && self.troubles.were_tried()
            && self.unread.is_empty()
    }

    /// Waits for the second file of a change that zedkube is in the middle of, but not for long.
    pub(super) async fn settle(&mut self, clock: Clock) {
        let until = clock.now() + SETTLING;
        while !self.seen.settled() && clock.now() < until {
            tokio::select! {
                () = self.changed() => {}
                () = clock.sleep_until(Some(until)) => {}
            }
        }
    }

    /// What is known.
    pub(super) const fn view(&self) -> &DrainView {
        &self.seen
    }

    /// Returns once something that is known is another thing. Dropping it loses nothing.
    pub(super) async fn changed(&mut self) {
        let before = self.seen.clone();
        while self.seen == before {
            self.hear().await;
        }
    }

    /// Looks whether zedkube lives, and whether broken files are gone: neither causes an event.
    pub(super) fn look(&mut self) {
        self.seen.live = Live::of(&self.topic_root);
        let now = self.clock.wall();
        self.seen.pause.take_if(|it| !it.until.is_zero() && it.until <= now);
        self.seen.broken.retain(|path, _| path.symlink_metadata().is_ok());
    }

    async fn hear(&mut self) {
        let seen = &mut self.seen;
        let topic_root = &self.topic_root;
        tokio::select! {
            change = self.status.next() => {
                seen.status = self.status.get(GLOBAL).copied();
                seen.note(topic_root, "zedkube", change);
            }
            change = self.progress.next() => {
                seen.progress = self.progress.get(GLOBAL).cloned();
                seen.note(topic_root, "zedkube", change);
            }
            change = self.preflight.next() => {
                seen.preflight = self.preflight.get(GLOBAL).cloned();
                seen.note(topic_root, "zedkube", change);
            }
            change = self.zedagent.next() => {
                seen.requested("zedagent", self.zedagent.get(GLOBAL));
                seen.note(topic_root, "zedagent", change);
            }
            change = self.baseosmgr.next() => {
                seen.requested("baseosmgr", self.baseosmgr.get(GLOBAL));
                seen.note(topic_root, "baseosmgr", change);
            }
            change = self.pending.next() => {
                seen.pending = self.pending.iter().map(|(key, op)| (key.to_owned(), op.clone())).into_map();
                seen.note(topic_root, "zedagent", change);
            }
            change = self.updates.next() => {
                let waits = |it: &BaseOsStatus| !it.activated && !it.error_retry_condition.is_empty();
                let all = self.updates.iter().filter(|(_, it)| waits(it));
                seen.updates = all.map(|(key, it)| (key.to_owned(), it.clone())).into_map();
                seen.note(topic_root, "baseosmgr", change);
            }
            change = self.leave.next() => {
                let told = self.leave.get(GLOBAL).filter(|it| !it.phase.is_settled());
                seen.leave = told.map(|it| Box::new(NodeLeave { config: None, ..it.clone() }));
                seen.note(topic_root, "zedkube", change);
            }
            change = self.last_look.next() => {
                seen.last_look = self.last_look.get(GLOBAL).filter(|it| !it.held.is_empty()).cloned();
                seen.note(topic_root, "nodeagent", change);
            }
            state = self.operator.next() => {
                seen.asked(operator_file(topic_root), state);
                self.unread.remove(operator::FILE);
            }
            state = self.pause.next() => {
                let file = topic_root.path(PAUSE_FILE);
                seen.usable(&file);
                match orders::pause::read(&state, self.clock.wall()) {
                    Ok(pause) => seen.pause = pause,
                    Err(why) => seen.unusable(file, why),
                }
                self.unread.remove(PAUSE_FILE);
            }
            (place, state) = forced(&mut self.force) => {
                match seen.forced(place, topic_root.path(place), state) {
                    Some(it) => drop(self.forced.insert(place, it)),
                    None => drop(self.forced.remove(place)),
                }
                // The one under /persist counts before the one under /run.
                seen.force = force::PLACES.iter().find_map(|place| self.forced.get(place)).cloned();
                self.unread.remove(place);
            }
            (agent, change) = self.troubles.next() => {
                seen.troubles = self.troubles.all();
                seen.note(topic_root, agent, change);
            }
        }
    }
}

impl DrainView {
    fn requested(&mut self, agent: &'static str, request: Option<&NodeDrainRequest>) {
        match request {
            Some(request) => drop(self.requests.insert(agent, request.clone())),
            None => drop(self.requests.remove(agent)),
        }
    }

    /// The request of a person, by the rule for orders that zedkube goes by.
    fn asked(&mut self, file: PathBuf, state: FileState) {
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

    fn forced(&mut self, place: &'static str, file: PathBuf, state: FileState) -> Option<ForceFileOrder> {
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
    fn note<T: Topic>(&mut self, topic_root: &TopicRoot, agent: &str, change: Change<T>) {
        match change {
            Change::Put { key, .. } | Change::Gone { key, .. } => {
                self.usable(&wire::path::<T>(topic_root, agent, &key));
            }
            Change::Bad(BadFile { path, reason }) => self.unusable(path, reason),
            Change::Synced | Change::Restarted(_) => {}
        }
    }

    fn usable(&mut self, path: &Path) {
        self.broken.remove(path);
        self.denied.retain(|it| !path.starts_with(it));
    }

    fn unusable(&mut self, path: PathBuf, reason: String) {
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
