//! The files about the drain of this node, read as the agents read them, once or for good.
//!
//! Not here: what they say together (`view`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent::wire::GLOBAL;
use agent::{Clock, force, operator, wire};
use pubsub::{FileRule, FileState, FileWatch, Subscription, TopicRoot};
use step::Inserted as _;
use topics::{
    BaseOsStatus, DeviceOpPending, DrainPreflight, FORCE_FILE, NodeDrainProgress, NodeDrainRequest,
    NodeDrainStatus, NodeLeave, OutageQuestion, PAUSE_FILE, Topic,
};

use super::trouble::TroubleFollower;
use super::view::{DrainView, ForceFileOrder, Live, operator_file};

/// zedkube writes progress and status one after the other; longer than this they differ only when it died between.
pub(super) const SETTLING: Duration = Duration::from_millis(300);
/// The first reading of all files takes at most so long; what could not be read by then is not known.
const READING: Duration = Duration::from_secs(5);

/// Only root, or whoever runs this program, can have written such a file.
pub(super) const fn order(limit_bytes: u64) -> FileRule {
    FileRule { limit_bytes, order: true }
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
            wire::subscription::<T>(topic_root, agent)
        }
        let mut follow = Self {
            seen: DrainView { live: Live::of(topic_root), ..DrainView::default() },
            status: topic(topic_root, "zedkube"),
            progress: topic(topic_root, "zedkube"),
            preflight: topic(topic_root, "zedkube"),
            zedagent: topic(topic_root, "zedagent"),
            baseosmgr: topic(topic_root, "baseosmgr"),
            operator: operator::request(topic_root),
            pause: topic_root.file(topic_root.path(PAUSE_FILE), operator::WORD),
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
                let pause = match state {
                    FileState::Absent => Ok(None),
                    FileState::Present(bytes) => operator::counting_pause(&bytes, topic_root, self.clock),
                    FileState::Bad(finding) => Err(finding.reason),
                };
                match pause {
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

/// The next state of a force file, and which of the places it is.
async fn forced([first, second]: &mut [FileWatch; 2]) -> (&'static str, FileState) {
    tokio::select! {
        state = first.next() => (FORCE_FILE, state),
        state = second.next() => (force::FALLBACK, state),
    }
}
