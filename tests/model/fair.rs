//! Nothing is stuck, nothing released waits: from every state, once the world turns benign, all wishes are fulfilled.
//!
//! Benign: agents start and read news, tasks succeed, the device obeys, a person withdraws requests and ends
//! a pause, time passes for all alike. One such run is computed from each state, always the same from the
//! same state; it must come to rest with every wish fulfilled, and an operation with a COMPLETE for its
//! request must have begun within ten seconds of that run. A run that meets a state from which another run
//! came to rest stops there, one that meets itself again, a second later or without any time, never ends.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agent::partitions::PartitionState;
use step::Mono;
use topics::{CordonOwner, DeviceOp, DrainStatus, PendingState};

use super::k3s::REQUEST;
use super::steps::{Action, How};
use super::topics::{ALL, IMAGE, LINKS, TREE, Writer};
use super::world::State;

const BEGINS_WITHIN: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
/// A run that meets a state more often within a second goes round without any time.
const MEETINGS: u32 = 20;

#[derive(Debug, Default)]
pub(crate) struct Fair {
    good: Mutex<HashSet<u64>>,
}

#[derive(Debug)]
pub(crate) struct Stuck<S = State> {
    pub(crate) why: String,
    pub(crate) at: Box<S>,
    pub(crate) steps: usize,
}

impl Fair {
    pub(crate) fn check(&self, state: &State) -> Result<(), Stuck> {
        let mut chain: Vec<u64> = Vec::new();
        // When a state was met first, and how often.
        let mut on_chain: HashMap<u64, (Duration, u32)> = HashMap::new();
        let mut passed = Duration::ZERO;
        let mut at = state.clone();
        // How long an operation with its COMPLETE has waited.
        let mut waited = Duration::ZERO;
        loop {
            if at.under.ghost.wrong.is_some() {
                // A violation that the search finds by itself or reports here.
                let why = at.under.ghost.wrong.clone().unwrap_or_default();
                return Err(Stuck { why, at: Box::new(at), steps: chain.len() });
            }
            let known = self.knows(at.fingerprint());
            // A waiting operation is followed even where another run has been.
            if known && waited.is_zero() {
                break;
            }
            // Times are told apart by seconds: what looks the same within one may not be.
            let (first, times) = on_chain.entry(at.fingerprint()).or_insert((passed, 0));
            *times += 1;
            if *times > 1 && passed >= *first + SECOND || *times > MEETINGS {
                return Err(Stuck {
                    why: format!("goes round for ever: {}", at.unfulfilled()),
                    at: Box::new(at),
                    steps: chain.len(),
                });
            }
            chain.push(at.fingerprint());
            match at.benign_in() {
                Some((next, time)) => {
                    passed += time;
                    let released = at.released();
                    waited = if released.is_some() { waited + time } else { Duration::ZERO };
                    if waited > BEGINS_WITHIN {
                        let what = released.unwrap_or_default();
                        let why =
                            format!("P4: {what} has not begun {} s after its COMPLETE", waited.as_secs());
                        return Err(Stuck { why, at: Box::new(at), steps: chain.len() });
                    }
                    at = next;
                }
                None if at.unfulfilled().is_empty() => break,
                None => {
                    let why = format!("waits for ever: {}", at.unfulfilled());
                    return Err(Stuck { why, at: Box::new(at), steps: chain.len() });
                }
            }
        }
        self.know(chain);
        Ok(())
    }

    pub(crate) fn knows(&self, fingerprint: u64) -> bool {
        self.good.lock().unwrap_or_else(PoisonError::into_inner).contains(&fingerprint)
    }

    pub(crate) fn know(&self, chain: Vec<u64>) {
        self.good.lock().unwrap_or_else(PoisonError::into_inner).extend(chain);
    }

    pub(crate) fn states(&self) -> usize {
        self.good.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl State {
    /// The next step of the benign run; `None` at rest with all wishes fulfilled, or when nothing can happen.
    pub(crate) fn benign(&self) -> Option<Self> {
        self.benign_in().map(|(next, _)| next)
    }

    /// The same, with the time that it takes.
    fn benign_in(&self) -> Option<(Self, Duration)> {
        self.at_once().map(|next| (next, Duration::ZERO)).or_else(|| {
            let rests = self.unfulfilled().is_empty();
            if rests { None } else { self.time_passes() }
        })
    }

    /// An operation that was released and has not begun: its own request is answered COMPLETE on disk, or
    /// nodeagent has the command and has not started.
    fn released(&self) -> Option<String> {
        let run = &self.disk.run;
        if self.disk.force.is_some() || self.is_going_down() {
            return None;
        }
        let complete = |nth: usize| {
            let request = self.request_of(nth)?;
            let answer = run.progress.as_ref()?.answer(request.id())?;
            (answer.status == DrainStatus::Complete).then(|| request.context.clone())
        };
        let in_test = run.nodeagent.as_ref().is_some_and(|it| it.update_inprogress);
        let waits = |word: &String| {
            let mut pending = self.disk.pending.values();
            pending.any(|it| it.op.word() == word && it.state == PendingState::Pending)
        };
        let operation = complete(0).filter(waits).filter(|_| !in_test);
        let switched = self.disk.partitions.spare().state == PartitionState::Updating;
        let image = complete(1).filter(|_| !switched);
        let k3s = complete(REQUEST).filter(|_| self.may_replace_k3s());
        let told = run.zedagent.as_ref().is_some_and(|it| it.reboot_cmd);
        operation.or(image).or(k3s).or_else(|| told.then(|| "the commanded reboot".to_owned()))
    }

    pub(crate) fn is_going_down(&self) -> bool {
        self.disk.run.nodeagent.as_ref().is_some_and(|it| it.device_reboot || it.device_poweroff)
    }

    /// The next step of the benign run, if it takes no time.
    pub(crate) fn at_once(&self) -> Option<Self> {
        if self.disk.force.is_some() || self.disk.pause.is_some() || self.request_of(2).is_some() {
            let mut next = self.clone();
            (next.disk().force, next.disk().pause) = (None, None);
            next.disk().run.requests[2] = None;
            next.touched.files_of(Writer::Person);
            return Some(next.sealed(Ok(())));
        }
        let how = if self.is_away() { How::Badly } else { How::Well };
        let step = self
            .within()
            .or_else(|| self.under.task.as_ref().map(|_| Action::Task(how)))
            .or_else(|| self.under.look.map(|_| Action::Look(how)))
            .or_else(|| self.under.preflight.map(|_| Action::Preflight(how)))
            .or_else(|| (self.under.guard == Some(true)).then_some(Action::Stir))
            .or_else(|| self.may_begin_to_leave().then_some(Action::NoticeOver))
            .or_else(|| self.may_leave().then_some(Action::Left))
            .or_else(|| self.gate_may(how).then_some(Action::Gate(how)))
            .or_else(|| self.under.device.as_ref().map(|_| Action::Device(How::Well)))
            .or_else(|| self.k3s_at_once(how));
        step.and_then(|step| self.after(&step))
    }

    /// The next step of the benign run within the agents: they start, and read news.
    pub(crate) fn within(&self) -> Option<Action> {
        let mut ready =
            ALL.into_iter().filter(|who| self.takes_part(*who) && !self.runs(*who)).map(Action::Start);
        ready
            .next()
            .or_else(|| LINKS.iter().find(|link| self.has_news(**link)).map(|link| Action::Hear(*link)))
            .or_else(|| (!self.under.results.is_empty()).then_some(Action::Result(0)))
    }

    /// All clocks advance to the next wake-up.
    fn time_passes(&self) -> Option<(Self, Duration)> {
        let ahead = |who| self.wake(who).map(|due: Mono| (due.since(self.now(who)), who));
        let (wait, who) = ALL.into_iter().filter_map(ahead).min_by_key(|(wait, _)| *wait)?;
        step::plant(self.scenario.fault);
        let mut next = self.clone();
        next.pass(wait);
        let ended = next.deliver(super::steps::tick(who));
        Some((next.sealed(ended), wait))
    }

    /// Unfulfilled wishes in words; empty when all is well.
    pub(crate) fn unfulfilled(&self) -> String {
        let disk = &self.disk;
        let mut left = Vec::new();
        let shut_down =
            disk.pending.get(&DeviceOp::Shutdown).is_some_and(|it| it.state == PendingState::Commanded)
                && disk.run.latched.as_ref().is_some_and(|it| it.done);
        let wanted = [(DeviceOp::Reboot, disk.config.reboot), (DeviceOp::Shutdown, disk.config.shutdown)];
        for (op, counter) in wanted {
            let saved = disk.counters.get(&op).map(|it| it.counter);
            let happened = counter.is_none_or(|it| it == 6 || self.under.ghost.done.contains(&(op, it)));
            let done = saved == counter && happened;
            if !(done || op == DeviceOp::Shutdown && shut_down) {
                left.push(format!("{} {counter:?}", op.word()));
            }
        }
        if self.scenario.with_images {
            let running = disk.partitions.running();
            // An image that failed its test has ended, with its reason in BaseOsStatus.
            let spare = disk.partitions.spare();
            let failed = spare.short_version == IMAGE
                && spare.state == PartitionState::Inprogress
                && disk.run.images.get(TREE).is_some_and(|it| !it.error.is_empty());
            if disk.config.image
                && !failed
                && (running.short_version != IMAGE || running.state != PartitionState::Active)
            {
                left.push("the image".to_owned());
            }
            if disk.saved.fallback != Some(disk.config.fallback) {
                left.push("the fallback".to_owned());
            }
        }
        if self.k3s_unfulfilled() {
            left.push("the update of k3s".to_owned());
        }
        let waits = disk.run.nodeagent.as_ref().is_some_and(|it| it.wait_drain_in_progress);
        if waits && disk.run.requests[0].is_none() {
            left.push("WaitDrainInProgress stays true".to_owned());
        }
        if !shut_down {
            let standing = disk.run.requests.iter().flatten().map(|it| it.context.clone());
            left.extend(standing.map(|it| format!("the request for {it} stands")));
            match disk.run.status.map(|it| it.status) {
                Some(DrainStatus::NotRequested) if disk.config.clustered => {}
                Some(DrainStatus::NotSupported) if !disk.config.clustered => {}
                other => left.push(format!("NodeDrainStatus is {other:?}")),
            }
            if self.under.node.cordon == CordonOwner::Ours {
                left.push("our cordon is on the node".to_owned());
            }
        }
        left.join(", ")
    }
}
