//! The machine stage of an attempt, carried out: the calls that `machines::stage` asks for, and the watches that wake it.
//!
//! It ends before the first pod is asked: KubeVirt's own parts on this node serve until the last launcher has left. Not
//! here: any decision. Source: spec/vm-storage.md A10.

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, FuturesUnordered, StreamExt};
use jiff::Timestamp;
use step::{Core, Mono};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use super::{DrainOrder, show};
use crate::changes::machines::WatchedMachines;
use crate::changes::watched::{PermanentRefusal, RefusedCall, WatchedBlockers};
use crate::engine::{AttemptFailure, CallFailure, DrainSuccess, LastCopyGuard};
use crate::machines::MigrationSettings;
use crate::machines::follow::{MachineChange, changes};
use crate::machines::kubevirt::{self, MachineReader, perform};
use crate::machines::rules::{Action, DrainIdentity};
use crate::machines::stage::{Effect, Event, MachineStage};
use crate::machines::undo::next_step;
use crate::node::{self, Cordoned};
use crate::progress::{MachineState, Progress};
use crate::storage;
use kubeapi::ApiClient;
use kubeapi::names::PodRef;
use kubeapi::pace::Pace;
use kubeapi::watch::jitter_seed;
use topics::{DrainMarks, DrainPhase, MachineProgress};

/// What the stage leaves to the rest of the attempt.
#[derive(Debug, Clone, Default)]
pub(super) struct MachineStageResult {
    /// From when on the rest of the attempt is timed.
    pub(super) marks: DrainMarks,
    shown: Vec<MachineProgress>,
    left: Vec<String>,
    evicted: u32,
    recordons: u32,
}

impl MachineStageResult {
    /// Adds to what the pods say what was of the machines.
    pub(super) fn add(&self, progress: &mut Progress) {
        progress.machines.clone_from(&self.shown);
        progress.evicted += self.evicted;
        progress.recordons += self.recordons;
        add_left(&mut progress.left, &self.left);
    }

    /// The same to the end of the attempt.
    pub(super) fn add_to_end(&self, mut done: DrainSuccess) -> DrainSuccess {
        add_left(&mut done.left, &self.left);
        done.evicted += self.evicted;
        done.recordons += self.recordons;
        done
    }
}

fn add_left(to: &mut Vec<String>, from: &[String]) {
    to.extend(from.iter().cloned());
    to.sort_unstable();
    to.dedup();
}

/// The name of the request that is drained for.
fn drain_of(order: &DrainOrder) -> DrainIdentity {
    let owner = &order.owner;
    DrainIdentity {
        node: order.node.to_string(),
        request: format!("request {} of {}", owner.requested_by, owner.requested_at),
    }
}

/// Until no machine is left on the node; at once where there is none.
pub(super) async fn run(
    cluster: &ApiClient,
    order: &DrainOrder,
    now: &(impl Fn() -> Mono + Send),
    progress: &watch::Sender<Progress>,
) -> Result<MachineStageResult, Box<AttemptFailure>> {
    let began = Mono::of_ms(order.marks.attempt_ms).unwrap_or_else(now).min(now());
    let marks = DrainMarks { attempt_ms: began.as_ms(), ..order.marks.clone() };
    let none = || MachineStageResult { marks: order.marks.clone(), ..MachineStageResult::default() };
    let empty = Progress { phase: DrainPhase::MovingMachines, marks: marks.clone(), ..Progress::default() };
    let end = began + order.rules.attempt;
    let mut pace = Pace::new(jitter_seed());
    let mut tries = 0;
    let launchers = loop {
        let trouble = match kubevirt::running(cluster, &order.node).await {
            Ok(launchers) if launchers.is_empty() => return Ok(none()),
            Ok(launchers) => break launchers,
            Err(error) => error,
        };
        tries += 1;
        let newest = Progress { trouble: trouble.line(), trouble_step: trouble.next_step(), ..empty.clone() };
        show(progress, newest);
        if now() >= end {
            let secs = end.since(began).as_secs();
            let reason =
                format!("not done within {secs} s, its machines could not be read: {}", trouble.line());
            let (blockers, watched) = (Vec::new(), WatchedBlockers::default());
            return Err(Box::new(AttemptFailure { reason, blockers, watched, marks }));
        }
        if trouble.is_refused() {
            // Who empties the node of pods reads them too, and says why that fails.
            return Ok(none());
        }
        sleep(pace.pause(tries, trouble.reply().retry_after())).await;
    };
    let guard = LastCopyGuard::new(&order.rules, &order.marks);
    let mut stage = MachineStage::new((drain_of(order), guard), launchers, (now(), end), jitter_seed());
    let mut executor = MachineExecutor::new(cluster, order);
    loop {
        let at = now();
        let event = match stage.next_wake() {
            Some(due) => tokio::select! {
                event = executor.next() => event,
                () = sleep(due.since(at)) => Event::Tick,
            },
            None => executor.next().await,
        };
        let effects = stage.step(now(), event);
        let (evicted, recordons) = stage.sums();
        let trouble = stage.trouble().map(|it| (it.text.clone(), it.next_step.clone()));
        let (trouble, trouble_step) = trouble.unwrap_or_default();
        let (storage_since, storage) = stage.volumes();
        let now_marks = DrainMarks { storage_ms: storage_since.map_or(0, Mono::as_ms), ..marks.clone() };
        let newest = Progress {
            marks: now_marks.clone(),
            machines: stage.shown(),
            storage,
            blockers: stage.blockers(),
            left: stage.left(),
            estimate: stage.estimate(),
            evicted,
            recordons,
            trouble,
            trouble_step,
            ..empty.clone()
        };
        show(progress, newest);
        for effect in effects {
            match executor.perform(effect) {
                None => {}
                Some(Ok(())) => {
                    let (shown, left) = (stage.shown(), stage.left());
                    let storage_ms = storage_since.map_or(marks.storage_ms, Mono::as_ms);
                    let marks = DrainMarks { storage_ms, ..marks };
                    return Ok(MachineStageResult { marks, shown, left, evicted, recordons });
                }
                Some(Err(reason)) => {
                    let machines = WatchedMachines::new(order.rules.machines, stage.fates());
                    let refused =
                        stage.refused().map(|by| PermanentRefusal { call: RefusedCall::Machines, by });
                    let refused = refused.into_iter().collect();
                    let watched = WatchedBlockers { machines, refused, ..stage.watched() };
                    let (blockers, marks) = (stage.blockers(), now_marks);
                    return Err(Box::new(AttemptFailure { reason, blockers, watched, marks }));
                }
            }
        }
    }
}

/// Calls under way and the watches. Dropping it ends them all; what a call did is read back from the objects.
struct MachineExecutor<'a> {
    cluster: &'a ApiClient,
    order: &'a DrainOrder,
    /// It is on its way with the look that is under way.
    reader: Option<MachineReader>,
    /// What the reader has read once is not so any more.
    stale: bool,
    settings: MigrationSettings,
    calls: FuturesUnordered<BoxFuture<'a, (Option<MachineReader>, Event)>>,
    changes: BoxStream<'static, MachineChange>,
    storage: BoxStream<'static, Event>,
}

impl<'a> MachineExecutor<'a> {
    fn new(cluster: &'a ApiClient, order: &'a DrainOrder) -> Self {
        Self {
            cluster,
            order,
            reader: Some(MachineReader::new(order.node.clone(), order.rules.machines)),
            stale: false,
            settings: MigrationSettings::of_version((1, 0)),
            calls: FuturesUnordered::new(),
            changes: changes(cluster, &order.node, jitter_seed()),
            storage: stream::pending().boxed(),
        }
    }

    async fn next(&mut self) -> Event {
        tokio::select! {
            Some((reader, event)) = self.calls.next(), if !self.calls.is_empty() => {
                self.reader = reader.or(self.reader.take());
                if let Event::Looked(Ok(view)) = &event {
                    self.settings = view.settings;
                }
                event
            }
            Some(change) = self.changes.next() => {
                self.stale |= change == MachineChange::Once;
                Event::Changed
            }
            Some(event) = self.storage.next() => event,
            else => std::future::pending().await,
        }
    }

    fn perform(&mut self, effect: Effect) -> Option<Result<(), String>> {
        let (cluster, order, settings) = (self.cluster, self.order, self.settings);
        match effect {
            Effect::Look => {
                let fresh = || MachineReader::new(order.node.clone(), order.rules.machines);
                let stale = std::mem::take(&mut self.stale);
                let mut reader = self.reader.take().filter(|_| !stale).unwrap_or_else(fresh);
                self.calls.push(
                    async move {
                        let failed =
                            |error| CallFailure { next_step: next_step(&error), ..CallFailure::from(error) };
                        let seen = reader.look(cluster).await.map_err(failed);
                        (Some(reader), Event::Looked(seen))
                    }
                    .boxed(),
                );
            }
            Effect::Act(guest, action) => self.calls.push(
                async move {
                    let now = || format!("{:.3}", Timestamp::now());
                    let action = if let Action::Stop(work) = action {
                        Action::Stop(Box::new(work.stopped_at(&now())))
                    } else {
                        action
                    };
                    let reply = perform(cluster, &order.node, settings, &guest, &action).await;
                    (None, Event::Answered(guest.uid, action, reply))
                }
                .boxed(),
            ),
            Effect::Cordon => self.calls.push(
                async move {
                    let done = node::cordon(cluster, &order.node, &order.device_uuid, &order.owner).await;
                    let done = done.map(|it| it == Cordoned::Written).map_err(|error| error.reply());
                    (None, Event::Cordoned(done))
                }
                .boxed(),
            ),
            Effect::FollowStorage => {
                let looks = storage::follow_looks(cluster.clone(), order.node.clone(), jitter_seed());
                self.storage = looks.map(|seen| Event::Storage(seen.map_err(CallFailure::from))).boxed();
            }
            Effect::AskCopy(volume, wanted) => self.calls.push(
                async move {
                    let asked = storage::ask(cluster, &order.node, &volume, wanted).await;
                    if asked.is_ok() {
                        warn!("the last healthy copy of {volume} is here: another copy was asked for");
                    }
                    (None, Event::CopyAsked(volume, asked.map_err(CallFailure::from)))
                }
                .boxed(),
            ),
            Effect::Say(guest, state, text) => say(order, &guest, state, &text),
            Effect::End(end) => return Some(end),
        }
        None
    }
}

fn say(order: &DrainOrder, guest: &PodRef, state: MachineState, text: &str) {
    let (node, state) = (&order.node, state.text());
    if matches!(state, "held" | "failed" | "unreadable" | "aborting" | "shutting-down") {
        warn!(%node, machine = %guest, state, "virtual machine {text}");
    } else {
        info!(%node, machine = %guest, state, "virtual machine {text}");
    }
}
