//! What the files say about the drain of this node at one moment, and what cannot be read: the one reader.
//!
//! No config, so no secret, comes in here. Not here: what that means (`judge`), how changes are followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use agent::device::kernel_boot_id;
use agent::outlet::full_disk;
use agent::wire::{self, GLOBAL, ZEDKUBE};
use agent::{Clock, force, operator};
use pubsub::TopicRoot;
use serde::Serialize;
use topics::{
    AgentTrouble, BaseOsStatus, DeviceOp, DeviceOpPending, DrainHistory, DrainPreflight, DrainRecord,
    DrainStatus, GoTime, NodeDrainProgress, NodeDrainRequest, NodeDrainStatus, NodeLeave, OperationPause,
    OutageQuestion, PAUSE_FILE, PendingState, RequestId, Requester, Topic, Trouble, go_json,
};

use crate::files::{AGENTS, ForceFileOrder, OPERATIONS, REQUESTERS, Reader, operator_file};
use crate::outcome::{DrainOutcome, answered};

/// Under whose name a person's request is published.
pub const OPERATOR: &str = "zedbox";
/// An agent that had no turn for so long does not work: its watchdog's limit.
const SILENT: Duration = Duration::from_mins(3);

/// All that is known right now; what is not there, or cannot be used, is `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct DrainView {
    /// How far the drain is.
    pub status: Option<NodeDrainStatus>,
    /// The same with all that a person needs to know; a zedkube of the reference does not publish it.
    pub progress: Option<NodeDrainProgress>,
    /// What the preflight of the newest drain of this boot has found.
    pub preflight: Option<DrainPreflight>,
    /// The requests by the agent that publishes them.
    pub requests: BTreeMap<&'static str, NodeDrainRequest>,
    /// Reboots and shutdowns that are wanted, by name.
    pub pending: BTreeMap<String, DeviceOpPending>,
    /// How far this node is on its way out of its cluster, without the cluster's config; `None` where nothing is to be
    /// said of it.
    pub leave: Option<Box<NodeLeave>>,
    /// Why nodeagent holds the machine back at the last moment; `None` while it does not.
    pub last_look: Option<OutageQuestion>,
    /// OS images that wait after an error, by content tree.
    pub updates: BTreeMap<String, BaseOsStatus>,
    /// The force file; `None` without one.
    pub force: Option<ForceFileOrder>,
    /// A person's pause that counts now; `None` without one.
    pub pause: Option<OperationPause>,
    /// What agents cannot write or read at present.
    pub troubles: BTreeMap<&'static str, AgentTrouble>,
    /// Whether zedkube runs.
    pub live: Live,
    /// Files that cannot be used, and why.
    pub broken: BTreeMap<PathBuf, String>,
    /// Files and directories that this user may not read.
    pub denied: BTreeSet<PathBuf>,
    /// The same of the other agents.
    #[serde(skip)]
    pub others: BTreeMap<&'static str, Live>,
    /// The last drains.
    #[serde(skip)]
    pub history: Option<DrainHistory>,
    /// The progress was written in another boot than that of the agents.
    #[serde(skip)]
    pub earlier_boot: bool,
    /// A request, an operation or the question of nodeagent is there and cannot be used: what is wanted is not known.
    #[serde(skip)]
    pub blind: bool,
}

/// Whether an agent runs: topic files stay when it dies.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Live {
    /// A process, of whatever PID namespace, holds the lock of its topics; null where that is not known.
    pub running: Option<bool>,
    /// When it last had a turn, by its touch file; zero without one.
    pub last_turn: GoTime,
}

impl Live {
    fn of<T: Topic>(topic_root: &TopicRoot, agent: &str) -> Self {
        Self {
            // A lock that may not be read says nothing.
            running: topic_root.is_published(&wire::name::<T>(agent)).unwrap_or_default(),
            last_turn: touched(&topic_root.path(&format!("run/{agent}.touch"))),
        }
    }

    /// Certainly no process serves its topics.
    pub const fn is_dead(self) -> bool {
        matches!(self.running, Some(false))
    }

    /// It had no turn for longer than its watchdog allows.
    pub fn is_silent(self, now: GoTime) -> bool {
        !self.last_turn.is_zero() && self.last_turn < now && now.apart(self.last_turn) > SILENT
    }

    /// Its process is there and has no turns.
    pub fn hangs(self, now: GoTime) -> bool {
        self.running == Some(true) && self.is_silent(now)
    }
}

fn touched(path: &Path) -> GoTime {
    let modified = path.symlink_metadata().and_then(|seen| seen.modified()).ok();
    let since = modified.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let nanos = since.and_then(|since| i128::try_from(since.as_nanos()).ok());
    nanos.and_then(GoTime::from_unix_nanos).unwrap_or_default()
}

impl DrainView {
    /// Reads it all now. Blocks for as long as files do.
    pub fn read(topic_root: &TopicRoot, clock: Clock) -> Self {
        let mut read = Reader::new(topic_root);
        // zedkube writes the progress before its status: a COMPLETE that is read here has its answers.
        let status = read.topic(ZEDKUBE, GLOBAL);
        let progress: Option<NodeDrainProgress> = read.topic(ZEDKUBE, GLOBAL);
        let before = read.faults();
        let mut requests = BTreeMap::new();
        for agent in REQUESTERS {
            requests.extend(read.topic::<NodeDrainRequest>(agent, GLOBAL).map(|it| (agent, it)));
        }
        let persons = read.value(&operator_file(topic_root), operator::RULE, |bytes| {
            let read = go_json::from_slice::<NodeDrainRequest>(bytes).map_err(|cause| step::chain(&cause));
            // Whose file it is says who asks.
            read.map(|it| NodeDrainRequest { requested_by: Requester::Operator, ..it })
        });
        requests.extend(persons.map(|it| (OPERATOR, it)));
        let mut pending = BTreeMap::new();
        for op in OPERATIONS.map(DeviceOp::word) {
            pending.extend(read.topic::<DeviceOpPending>("zedagent", op).map(|it| (op.to_owned(), it)));
        }
        let last_look = read.topic("nodeagent", GLOBAL).filter(|it: &OutageQuestion| !it.held.is_empty());
        let blind = read.faults() > before;
        let leave = read.topic(ZEDKUBE, GLOBAL).filter(|it: &NodeLeave| !it.phase.is_settled());
        let pause = read.value(&topic_root.path(PAUSE_FILE), operator::WORD, |bytes| {
            operator::counting_pause(bytes, topic_root, clock)
        });
        let mut troubles = BTreeMap::new();
        for agent in AGENTS {
            troubles.extend(read.topic::<AgentTrouble>(agent, GLOBAL).map(|it| (agent, it)));
        }
        // Agents say it under /run, which may be full itself.
        let said: Vec<String> =
            troubles.values().flat_map(|it| &it.troubles).map(|it| it.path.clone()).collect();
        let full = ["run", "persist"].map(|it| topic_root.path(it));
        let unsaid = full.iter().filter(|top| !said.iter().any(|it| Path::new(it).starts_with(top)));
        let full: Vec<Trouble> = unsaid.filter_map(|top| full_disk(top)).collect();
        if !full.is_empty() {
            troubles.insert(OPERATOR, AgentTrouble::of(full));
        }
        let agents_boot = force::boot_of_agents(topic_root).ok().flatten();
        let of_other_boot = |it: &NodeDrainProgress| {
            agents_boot.as_ref().is_some_and(|boot| !it.boot_id.is_empty() && it.boot_id != *boot)
        };
        Self {
            earlier_boot: progress.as_ref().is_some_and(of_other_boot),
            status,
            progress,
            preflight: read.topic(ZEDKUBE, GLOBAL),
            requests,
            pending,
            leave: leave.map(|it| Box::new(NodeLeave { config: None, ..it })),
            last_look,
            updates: read.images(),
            force: read.force(),
            pause: pause.flatten(),
            troubles,
            live: Live::of::<NodeDrainStatus>(topic_root, ZEDKUBE),
            others: BTreeMap::from([
                ("zedagent", Live::of::<DeviceOpPending>(topic_root, "zedagent")),
                ("baseosmgr", Live::of::<BaseOsStatus>(topic_root, "baseosmgr")),
                ("nodeagent", Live::of::<OutageQuestion>(topic_root, "nodeagent")),
            ]),
            history: read.topic(ZEDKUBE, GLOBAL),
            broken: read.broken,
            denied: read.denied,
            blind,
        }
    }

    /// The same with the times of zedkube by the wall clock of now, where it has written them in the boot that runs.
    /// Ages are those of the monotonic clock then, also while zedkube is not there to hear that the clock was set.
    #[must_use]
    pub fn by_clock(mut self, clock: Clock) -> Self {
        // Whoever cannot know the boot compares wall times.
        let boot_id = kernel_boot_id().unwrap_or_default();
        let same = |it: &NodeDrainProgress| it.boot_id == boot_id && !it.booted_at.is_zero();
        self.progress = self.progress.map(|it| if same(&it) { it.by_clock(clock.booted_at()) } else { it });
        self
    }

    /// The same for a copy, of which the touch files alone say whether agents ran.
    #[must_use]
    pub fn as_copy(mut self) -> Self {
        self.live.running = None;
        self.others.values_mut().for_each(|it| it.running = None);
        self
    }

    /// How far the drain is: what operations go by, or else what zedkube has said beside it.
    pub fn drain_status(&self) -> Option<DrainStatus> {
        self.status.map(|it| it.status).or_else(|| self.progress.as_ref().map(|it| it.status))
    }

    /// The progress, as long as it is about what the status says: zedkube writes one after the other.
    pub fn agreed(&self) -> Option<&NodeDrainProgress> {
        self.progress.as_ref().filter(|it| self.status.is_none_or(|status| status.status == it.status))
    }

    /// Whether status and progress say the same. Between the two files of one change they do not.
    pub fn settled(&self) -> bool {
        self.progress.is_none() || self.agreed().is_some()
    }

    /// When a request was made, by the clock of the other times.
    pub fn asked_at(&self, id: RequestId) -> GoTime {
        self.progress.as_ref().map_or(id.at, |it| it.asked_at(id))
    }

    /// The request that is being served, or the first that waits for it.
    pub fn served(&self) -> Option<&NodeDrainRequest> {
        let order = REQUESTERS.iter().chain([&OPERATOR]);
        let mut requests = order.filter_map(|agent| self.requests.get(agent));
        let asked = self.agreed().map(|it| RequestId { by: it.requested_by, at: it.requested_at });
        requests.clone().find(|it| Some(it.id()) == asked).or_else(|| requests.next())
    }

    /// Nothing is drained before an operation, as the device config names no cluster; `member` is what zedagent says.
    pub fn is_outside(&self, member: Option<bool>) -> bool {
        let unsupported = self.drain_status().is_none_or(|it| it == DrainStatus::NotSupported);
        member == Some(false) && unsupported
    }

    /// Reboots and shutdowns that wait for something.
    pub fn waiting(&self) -> impl Iterator<Item = &DeviceOpPending> {
        self.pending.values().filter(|it| it.state == PendingState::Pending)
    }

    /// Whether an operation or a drain is wanted that has not come to its end.
    pub fn is_wanted(&self) -> bool {
        !self.requests.is_empty() || self.waiting().next().is_some() || !self.updates.is_empty()
    }

    /// A person's pause, as its file says it, or else as zedkube goes by it.
    pub fn pause(&self) -> Option<&OperationPause> {
        let known = || self.progress.as_ref().map(|it| &it.pause).filter(|it| it.is_set());
        self.pause.as_ref().or_else(known)
    }

    /// The last drains of this boot that have failed for `by`, the newest first, up to one that has not.
    pub fn failed(&self, by: Requester) -> impl Iterator<Item = &DrainRecord> {
        let boot = self.progress.as_ref().map_or("", |it| &it.boot_id);
        let drains = self.history.iter().flat_map(|it| &it.drains);
        drains.take_while(move |it| {
            !it.is_open() && it.status.is_failure() && it.requested_by == by && it.is_of_boot(boot)
        })
    }

    /// Whether something that this agent wants to do waits for a file.
    pub fn holds(&self, agent: &str) -> bool {
        self.troubles.get(agent).is_some_and(AgentTrouble::holds_something)
    }

    /// What the agents cannot write or read: what holds something up first.
    pub fn each_trouble(&self) -> impl Iterator<Item = (&'static str, &Trouble)> {
        let mut known = BTreeSet::new();
        let each = self.troubles.iter().flat_map(|(agent, all)| all.troubles.iter().map(|it| (*agent, it)));
        // Agents that share a disk say the same of it.
        let each = each.filter(move |(_, it)| known.insert((&it.what, &it.path, &it.error)));
        let (held, rest): (Vec<_>, Vec<_>) = each.partition(|(_, it)| !it.holds.is_empty());
        held.into_iter().chain(rest)
    }

    /// What is wrong while nothing waits for it: a file that cannot be used, as where a disk is full, or what the gate has
    /// found too long; why, and what to do.
    pub(crate) fn ill(&self) -> Option<(String, &str, &str)> {
        let gate = self.agreed().and_then(|it| it.gate.warnings.iter().find(|it| it.failed));
        let gate = gate.map(|it| (it.layer.clone(), it.words.as_str(), it.next_step.as_str()));
        let path = |agent: &str, it: &Trouble| match it.path.as_str() {
            "" => it.what.clone(),
            path => format!("{agent} cannot use {path}"),
        };
        let file = self.each_trouble().next();
        file.map(|(by, it)| (path(by, it), it.error.as_str(), it.next_step.as_str())).or(gate)
    }

    /// The first that something waits for.
    pub fn holding(&self) -> Option<&Trouble> {
        self.each_trouble().map(|(_, it)| it).find(|it| !it.holds.is_empty())
    }

    /// Why no process serves zedkube's topics, where that is certain.
    pub fn zedkube_away(&self) -> Option<String> {
        self.away("zedkube is not running", "zedkube cannot start")
    }

    pub(crate) fn away(&self, not_running: &str, cannot_start: &str) -> Option<String> {
        let troubles = self.troubles.get(ZEDKUBE).map(|it| it.troubles.as_slice()).unwrap_or_default();
        let start = troubles.iter().find(|it| it.what == "start of zedkube");
        let why =
            || start.map_or_else(|| not_running.to_owned(), |it| format!("{cannot_start}: {}", it.error));
        self.live.is_dead().then(why)
    }

    /// An agent whose process is there and has no turns, and since when.
    pub fn hung(&self, now: GoTime) -> Option<(&'static str, GoTime)> {
        let others = self.others.iter().map(|(agent, live)| (*agent, *live));
        let mut all = [(ZEDKUBE, self.live)].into_iter().chain(others);
        all.find(|(_, live)| live.hangs(now)).map(|(agent, live)| (agent, live.last_turn))
    }

    /// How one request was answered, if it was: another requester's COMPLETE is none of its business.
    pub fn answered(&self, id: RequestId) -> Option<DrainOutcome> {
        answered(self.progress.as_ref()?.answer(id)?)
    }
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
            assert!(shown.apart(right) < Duration::from_secs(2), "{shown:?} where {right:?} is right");
        }
        let seen = of_boot("another".to_owned());
        assert_eq!((seen.progress.as_ref().unwrap().started_at, seen.asked_at(id)), (started_at, started_at));
    }
}
