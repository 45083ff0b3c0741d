//! Sends to the API server what the Node shows, one call after another, and nothing while the API is away.

use std::collections::VecDeque;
use std::time::Duration;

use agent::Clock;
use jiff::Timestamp;
use kubeapi::nodes::{self, DrainCondition, NodeEvent, ReportedState};
use kubeapi::{ApiClient, Error, NodeName};
use nodestatus::Membership;
use sheet::{DrainView, Live};
use step::Mono;
use tokio::sync::{mpsc, watch};
use topics::GoTime;
use tracing::{debug, warn};

use super::condition::condition;
use super::events::{EventLog, name};
use super::notices::Notice;
use super::{NodeReport, QUEUE};

/// Longest time of one call.
const CALL: Duration = Duration::from_secs(10);
/// Between two looks at what is to be shown.
const LOOK: Duration = Duration::from_secs(5);
/// Between two writes of other words for the same state.
const WORDS: Duration = Duration::from_secs(30);
/// Between two looks at what is on the Node: somebody may have removed it. The condition's heartbeat is written then.
const REFRESH: Duration = Duration::from_mins(5);
/// First and longest pause after a call that failed.
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(5));
/// So often a node that is in no cluster tries to remove what it has shown.
const REMOVALS: u32 = 5;

/// What is to be on the Node.
enum DesiredReport {
    /// Not known yet: nothing is touched.
    Wait,
    Shown(Box<DrainCondition>),
    Removed,
}

#[derive(Default)]
struct Backoff {
    failed: u32,
    until: Option<Mono>,
    /// A refusal that was logged.
    logged: bool,
}

impl Backoff {
    fn waits(&self, now: Mono) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    fn well(&mut self) {
        *self = Self::default();
    }

    fn failed(&mut self, now: Mono, what: &str, error: &Error) {
        self.failed += 1;
        let pause = step::doubled(PAUSE.0, PAUSE.1, self.failed);
        self.until = Some(now + pause);
        if error.is_retryable() || self.logged {
            debug!(error = error.line(), "cannot {what}");
        } else {
            self.logged = true;
            warn!(
                error = error.line(),
                next_step = error.next_step(),
                "cannot {what}; the drain continues without it"
            );
        }
    }
}

pub(super) struct Sender {
    report: NodeReport,
    cluster: ApiClient,
    inbox: mpsc::Receiver<(Notice, GoTime)>,
    stalled: watch::Receiver<bool>,
    queue: VecDeque<(Notice, GoTime)>,
    log: EventLog,
    node: Option<ReportedState>,
    /// What was written last, and when.
    written: Option<(DrainCondition, Mono)>,
    read_at: Option<Mono>,
    removed: bool,
    on_node: Backoff,
    on_events: Backoff,
}

impl Sender {
    pub(super) fn new(
        report: NodeReport,
        inbox: mpsc::Receiver<(Notice, GoTime)>,
        stalled: watch::Receiver<bool>,
    ) -> Self {
        Self {
            cluster: report.beside.cluster.clone().with_call_limit(CALL),
            report,
            inbox,
            stalled,
            queue: VecDeque::new(),
            log: EventLog::default(),
            node: None,
            written: None,
            read_at: None,
            removed: false,
            on_node: Backoff::default(),
            on_events: Backoff::default(),
        }
    }

    fn clock(&self) -> Clock {
        self.report.beside.context.clock
    }

    /// Runs until nobody publishes any more.
    pub(super) async fn run(mut self) {
        let (node, uuid) = self.report.beside.own_node.known().await;
        loop {
            while let Ok(notice) = self.inbox.try_recv() {
                self.queue.push_back(notice);
            }
            let wish = self.wish().await;
            let next = match wish {
                DesiredReport::Wait => None,
                DesiredReport::Removed => self.remove(&node, &uuid).await,
                DesiredReport::Shown(wanted) => {
                    self.removed = false;
                    self.show(&node, &uuid, *wanted).await
                }
            };
            let left_out = self.queue.len().saturating_sub(QUEUE);
            if left_out > 0 {
                self.queue.drain(..left_out);
                self.leave_out(left_out);
            }
            let clock = self.clock();
            clock.sleep_until(Some(clock.now() + LOOK)).await;
            tokio::select! {
                changed = self.report.published.changed() => if changed.is_err() { return },
                changed = self.report.beside.members.changed() => if changed.is_err() { return },
                changed = self.stalled.changed() => if changed.is_err() { return },
                Some(notice) = self.inbox.recv() => self.queue.push_back(notice),
                () = clock.sleep_until(next), if next.is_some() => {}
            }
        }
    }

    fn leave_out(&self, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.report.totals.send_modify(|it| it.events_left_out += count);
    }

    /// What is to be on the node by what is published now.
    async fn wish(&mut self) -> DesiredReport {
        let progress = self.report.published.borrow_and_update().progress.clone();
        let membership = self.report.beside.members.borrow_and_update().membership;
        let stalled = *self.stalled.borrow_and_update();
        match (membership, progress) {
            (Membership::Outside, _) => DesiredReport::Removed,
            (Membership::Undecided, _) | (_, None) => DesiredReport::Wait,
            (Membership::Member | Membership::Leaving, Some(progress)) => {
                let (topic_root, clock) = (self.report.beside.context.topic_root.clone(), self.clock());
                let read = tokio::task::spawn_blocking(move || {
                    // Who writes this is not silent.
                    DrainView { live: Live::default(), ..DrainView::read(&topic_root, clock) }
                });
                // The API does not answer the drain: it is not asked either. Between the two files of one change nothing
                // is written that the second one withdraws.
                match read.await {
                    Ok(view) if progress.api_silent_since.is_zero() && view.settled() => {
                        DesiredReport::Shown(Box::new(condition(&view, clock.wall(), stalled)))
                    }
                    Ok(_) | Err(_) => DesiredReport::Wait,
                }
            }
        }
    }

    /// Writes what differs, then what waits to be said. Returns when to look again.
    async fn show(&mut self, node: &NodeName, uuid: &str, wanted: DrainCondition) -> Option<Mono> {
        let now = self.clock().now();
        if self.on_node.waits(now) {
            return self.on_node.until;
        }
        let is_due = self.read_at.is_none_or(|at| now.since(at) >= REFRESH);
        if (is_due || self.node.is_none()) && !self.look(node, uuid).await {
            return self.on_node.until;
        }
        let words_at = match &self.written {
            Some((held, _)) if !is_due && *held == wanted => None,
            Some((held, at)) if !is_due && wanted.is_same_state(held) => Some(*at + WORDS),
            Some(_) | None => Some(now),
        };
        if words_at.is_some_and(|at| at <= now) && !self.write(node, Some(wanted)).await {
            return self.on_node.until;
        }
        let again = self.say_all(node).await;
        let refresh = self.read_at.map(|at| at + REFRESH);
        [words_at.filter(|at| *at > now), again, refresh].into_iter().flatten().min()
    }

    /// Reads the node; false where that failed.
    async fn look(&mut self, node: &NodeName, uuid: &str) -> bool {
        let read = nodes::read(&self.cluster, node, uuid).await;
        let now = self.clock().now();
        match read {
            Ok(found) => {
                (self.node, self.read_at) = (Some(found), Some(now));
                true
            }
            Err(error) => {
                self.node = None;
                self.on_node.failed(now, "read the Node that is to show its drain", &error);
                false
            }
        }
    }

    async fn write(&mut self, node: &NodeName, wanted: Option<DrainCondition>) -> bool {
        let Some(found) = &mut self.node else { return false };
        let now = self.report.beside.context.clock.wall().to_timestamp();
        let before = self.written.as_ref().map(|it| &it.0);
        let wrote = nodes::write(&self.cluster, node, found, (before, wanted.as_ref()), now).await;
        let at = self.report.beside.context.clock.now();
        match wrote {
            Ok(()) => {
                self.written = wanted.map(|it| (it, at));
                self.on_node.well();
                true
            }
            Err(error) => {
                // It may be another object by now.
                self.node = None;
                self.on_node.failed(at, "show the drain on the Node", &error);
                false
            }
        }
    }

    /// Says what waits, in its order. Returns when to try again.
    async fn say_all(&mut self, node: &NodeName) -> Option<Mono> {
        let uid = self.node.as_ref()?.uid.clone();
        while let Some((notice, at)) = self.queue.front().cloned() {
            let now = self.clock().now();
            if self.on_events.waits(now) {
                return self.on_events.until;
            }
            if !self.log.admits(now, notice.kind) {
                self.queue.pop_front();
                self.leave_out(1);
                continue;
            }
            let name = name(node, &self.report.beside.context.boot_id, &notice);
            let said = self.log.said(&name);
            let (count, first) = said.map_or((1, at), |(count, first)| (count + 1, first));
            let event = NodeEvent {
                name: name.clone(),
                node: node.clone(),
                uid: uid.clone(),
                warning: notice.kind.is_warning(),
                reason: notice.kind.reason(),
                message: notice.message,
                first: stamp(first),
                last: stamp(at),
                count,
            };
            match self.send(&event).await {
                Ok(is_said) => {
                    self.on_events.well();
                    self.log.note(&name, count, first);
                    if is_said {
                        self.report.totals.send_modify(|it| it.event(event.reason));
                    }
                }
                Err(error) => {
                    self.on_events.failed(now, "write an Event about the Node", &error);
                    if error.is_retryable() {
                        return self.on_events.until;
                    }
                    self.leave_out(1);
                }
            }
            self.queue.pop_front();
        }
        None
    }

    /// Counts the Event up, or creates it. False where an earlier run of this agent has said it.
    async fn send(&self, event: &NodeEvent) -> Result<bool, Error> {
        if event.count > 1 && nodes::count(&self.cluster, event).await? {
            return Ok(true);
        }
        nodes::create(&self.cluster, event).await
    }

    /// Removes what the node of a cluster that was left has shown.
    async fn remove(&mut self, node: &NodeName, uuid: &str) -> Option<Mono> {
        self.queue.clear();
        self.written = None;
        let now = self.clock().now();
        if self.removed {
            return None;
        }
        if self.on_node.waits(now) {
            return self.on_node.until;
        }
        let is_done = match nodes::read(&self.cluster, node, uuid).await {
            Ok(found) if found.conditions.is_empty() && !found.annotated => true,
            Ok(found) => {
                self.node = Some(found);
                self.write(node, None).await
            }
            Err(error) if error.is_not_found() => true,
            Err(error) => {
                self.on_node.failed(now, "remove what the Node shows of its drain", &error);
                false
            }
        };
        (self.node, self.read_at) = (None, None);
        self.removed = is_done || self.on_node.failed >= REMOVALS;
        if self.removed {
            self.on_node.well();
        }
        self.on_node.until
    }
}

fn stamp(at: GoTime) -> Timestamp {
    at.to_timestamp()
}
