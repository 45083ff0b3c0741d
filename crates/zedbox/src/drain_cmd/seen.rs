//! What the files say about the drain of this node, read as the agents read them, once or for good.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use agent::device::kernel_boot_id;
use agent::{Clock, force, operator, pid, report, wire};
use pubsub::{Bus, Change, FileRule, FileState, FileWatch, Finding, Subscription};
use serde::Serialize;
use topics::{
    DeviceOpPending, FORCE_FILE, GoTime, NodeDrainProgress, NodeDrainRequest, NodeDrainStatus, RequestId,
    Requester, Topic, go_json, read_force,
};

/// Key of topics that have one value.
pub(super) const GLOBAL: &str = "global";
/// Under whose name a person's request is published.
pub(super) const OPERATOR: &str = "zedbox";
/// Who may ask for a drain: the agents, and a person by this program.
pub(super) const REQUESTERS: [&str; 3] = ["zedagent", "baseosmgr", OPERATOR];

/// Only root, or whoever runs this program, can have written such a file.
pub(super) const fn order(limit_bytes: u64) -> FileRule {
    FileRule { limit_bytes, order: true }
}

/// The request of a person.
pub(super) fn operator_file(bus: &Bus) -> PathBuf {
    bus.path(operator::FILE)
}

/// zedkube writes progress and status one after the other; longer than this they differ only when it died between.
pub(super) const SETTLING: Duration = Duration::from_millis(300);

/// All that is known right now.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Seen {
    /// How far the drain is.
    pub(super) status: Option<NodeDrainStatus>,
    /// The same with all that a person needs to know; a zedkube of the reference does not tell it.
    pub(super) progress: Option<NodeDrainProgress>,
    /// The standing requests by the agent that publishes them.
    pub(super) requests: BTreeMap<&'static str, NodeDrainRequest>,
    /// Reboots and shutdowns that are wanted, by name.
    pub(super) pending: BTreeMap<String, DeviceOpPending>,
    /// The force file; `None` without one.
    pub(super) force: Option<Forced>,
    /// Whether zedkube runs.
    pub(super) live: Live,
    /// Files that cannot be used, and why.
    pub(super) broken: BTreeMap<PathBuf, String>,
}

/// The force file.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Forced {
    /// What it orders; `None` when it is refused.
    pub(super) order: Option<NodeDrainStatus>,
    /// Why the agents refuse it, or empty.
    pub(super) refused: String,
}

impl Seen {
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
    /// The process that its pid file names is alive on this machine.
    pub(super) running: bool,
    /// That process; 0 when none runs.
    #[serde(rename = "PID")]
    pub(super) pid: u32,
    /// When it last had a turn, by its touch file; zero without one.
    pub(super) last_turn: GoTime,
}

impl Live {
    /// The live zedkube of `bus`, as far as its files tell.
    pub(super) fn of(bus: &Bus) -> Self {
        // A link or an unreadable file names no process that could be trusted.
        let pid = pid::running(&bus.path("run/zedkube.pid"), "zedkube").unwrap_or_default();
        Self {
            running: pid.is_some(),
            pid: pid.unwrap_or_default(),
            last_turn: touched(&bus.path("run/zedkube.touch")),
        }
    }
}

fn touched(path: &Path) -> GoTime {
    let modified = path.symlink_metadata().and_then(|seen| seen.modified()).ok();
    let since = modified.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let nanos = since.and_then(|since| i128::try_from(since.as_nanos()).ok());
    nanos.and_then(GoTime::from_unix_nanos).unwrap_or_default()
}

/// Follows the files for good: before zedkube runs, and while it starts anew.
pub(super) struct Follow {
    bus: Bus,
    seen: Seen,
    status: Subscription<NodeDrainStatus>,
    progress: Subscription<NodeDrainProgress>,
    zedagent: Subscription<NodeDrainRequest>,
    baseosmgr: Subscription<NodeDrainRequest>,
    operator: FileWatch,
    pending: Subscription<DeviceOpPending>,
    force: FileWatch,
    /// Readings of topics that are not through yet.
    unread: usize,
}

impl Follow {
    /// Reads all files once and follows them from then on. To be called within a runtime.
    pub(super) async fn open(bus: &Bus) -> Self {
        fn topic<T: Topic>(bus: &Bus, agent: &str) -> Subscription<T> {
            bus.subscription(&wire::name::<T>(agent), wire::codec::<T>())
        }
        let mut follow = Self {
            seen: Seen { live: Live::of(bus), ..Seen::default() },
            status: topic(bus, "zedkube"),
            progress: topic(bus, "zedkube"),
            zedagent: topic(bus, "zedagent"),
            baseosmgr: topic(bus, "baseosmgr"),
            operator: operator::request(bus),
            pending: topic(bus, "zedagent"),
            force: bus.file(bus.path(FORCE_FILE), order(force::LIMIT_BYTES)),
            unread: 5,
            bus: bus.clone(),
        };
        let force = follow.force.next().await;
        follow.forced(force);
        let operator = follow.operator.next().await;
        follow.asked(operator);
        while follow.unread > 0 {
            follow.hear().await;
        }
        follow
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
    pub(super) const fn seen(&self) -> &Seen {
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
        self.seen.live = Live::of(&self.bus);
        self.seen.broken.retain(|path, _| path.symlink_metadata().is_ok());
    }

    async fn hear(&mut self) {
        let seen = &mut self.seen;
        let broken = &mut seen.broken;
        let bus = &self.bus;
        let through = tokio::select! {
            change = self.status.next() => {
                let through = note(bus, "zedkube", &change, broken);
                seen.status = self.status.get(GLOBAL).copied();
                through
            }
            change = self.progress.next() => {
                let through = note(bus, "zedkube", &change, broken);
                seen.progress = self.progress.get(GLOBAL).cloned();
                through
            }
            change = self.zedagent.next() => request(bus, "zedagent", &self.zedagent, &change, seen),
            change = self.baseosmgr.next() => request(bus, "baseosmgr", &self.baseosmgr, &change, seen),
            state = self.operator.next() => {
                self.asked(state);
                false
            }
            change = self.pending.next() => {
                let through = note(bus, "zedagent", &change, broken);
                seen.pending = self.pending.iter().map(|(key, op)| (key.to_owned(), op.clone())).collect();
                through
            }
            state = self.force.next() => {
                self.forced(state);
                false
            }
        };
        if through {
            self.unread = self.unread.saturating_sub(1);
        }
    }

    /// The request of a person, by the rule for orders that zedkube goes by.
    fn asked(&mut self, state: FileState) {
        let file = operator_file(&self.bus);
        let read = match state {
            FileState::Absent => Ok(None),
            FileState::Present(bytes) => go_json::from_slice::<NodeDrainRequest>(&bytes)
                .map(Some)
                .map_err(|cause| report::chain(&cause)),
            FileState::Bad(finding) => Err(finding.reason),
        };
        self.seen.broken.remove(&file);
        self.seen.requests.remove(OPERATOR);
        match read {
            // Whose file it is says who asks.
            Ok(request) => self.seen.requests.extend(
                request.map(|it| (OPERATOR, NodeDrainRequest { requested_by: Requester::Operator, ..it })),
            ),
            Err(reason) => drop(self.seen.broken.insert(file, reason)),
        }
    }

    fn forced(&mut self, state: FileState) {
        let refused = |refused: String| Some(Forced { order: None, refused });
        self.seen.force = match state {
            FileState::Absent => None,
            FileState::Present(bytes) => match read_force(&bytes) {
                Ok(order) => Some(Forced { order: Some(order), refused: String::new() }),
                Err(cause) => refused(cause.to_string()),
            },
            FileState::Bad(finding) => refused(finding.reason),
        };
    }
}

fn request(
    bus: &Bus,
    agent: &'static str,
    topic: &Subscription<NodeDrainRequest>,
    change: &Change<NodeDrainRequest>,
    seen: &mut Seen,
) -> bool {
    match topic.get(GLOBAL) {
        Some(request) => drop(seen.requests.insert(agent, request.clone())),
        None => drop(seen.requests.remove(agent)),
    }
    note(bus, agent, change, &mut seen.broken)
}

/// Notes which files are broken; true when the first reading of the topic is through.
fn note<T: Topic>(
    bus: &Bus,
    agent: &str,
    change: &Change<T>,
    broken: &mut BTreeMap<PathBuf, String>,
) -> bool {
    match change {
        Change::Put { key, .. } | Change::Gone { key, .. } => {
            broken.remove(&wire::path::<T>(bus, agent, key));
            false
        }
        Change::Bad(Finding { path, reason }) => {
            broken.insert(path.clone(), reason.clone());
            false
        }
        Change::Synced => true,
        Change::Restarted(_) => false,
    }
}
