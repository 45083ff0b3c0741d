//! Performs what the core asks for: publishes, stores, writes, logs.
//!
//! Not here: any decision. Words of the log are those of the reference.
//!
//! Counters that survive a boot, as plain decimal files.

use std::sync::{Arc, Mutex, PoisonError};

use agent::partitions::{Label, PartitionState, PartitionStore};
use agent::wire::{self, GLOBAL};
use agent::{AgentContext, Clock, Error, Hands, Tasks, Weight, force, publication};
use pubsub::{Publication, TopicRoot, store};
use requester::ProceedReason;
use step::LiteMap;
use tokio::sync::watch;
use topics::{
    BaseOSMgrStatus, BaseOsStatus, ContentTreeStatus, FORCE_FILE, GoTime, ImageWrite, NodeAgentStatus,
    NodeDrainRequest, Requester, ZbootStatus,
};
use tracing::{error, info, warn};

use crate::core::{
    Counter, Counters, Effect, Event, FallbackFrom, PartitionChange, PartitionWrite, SavedUpdates,
};
use crate::image::ContainerProgram;
use crate::{Limits, NAME, follow, image};

/// The partitions. The lock is held to begin work on them, not while it is done.
pub(crate) type SharedStore = Arc<Mutex<Box<dyn PartitionStore>>>;

/// The hands of the core.
pub(crate) struct Shell {
    topic_root: TopicRoot,
    clock: Clock,
    /// `None`: there are none to be had, and the core never orders anything of them.
    store: Option<SharedStore>,
    containers: Option<ContainerProgram>,
    tasks: Tasks<Event>,
    requests: Publication<NodeDrainRequest>,
    statuses: Publication<BaseOsStatus>,
    /// Which of them have an error whose time is of us, and how the clocks stood to each other then.
    timed: LiteMap<String, GoTime>,
    partitions: Publication<ZbootStatus>,
    manager: Publication<BaseOSMgrStatus>,
    writes: Publication<ImageWrite>,
    stored: u64,
}

impl Shell {
    /// Becomes the publisher of this agent's topics and begins to follow those of others. Returns what an
    /// earlier run left. Without `are_named` partitions, what one said of some is withdrawn.
    pub(crate) fn open(
        context: &AgentContext,
        limits: &Limits,
        store: Option<SharedStore>,
        are_named: bool,
        tasks: Tasks<Event>,
    ) -> Result<(Self, SavedUpdates), Error> {
        let (topic_root, clock) = (context.topic_root.clone(), context.clock);
        let mut shell = Self {
            requests: publication(&topic_root, NAME)?,
            statuses: publication(&topic_root, NAME)?,
            timed: LiteMap::new(),
            partitions: publication(&topic_root, NAME)?,
            manager: publication(&topic_root, NAME)?,
            writes: publication(&topic_root, NAME)?,
            topic_root,
            clock,
            store,
            containers: ContainerProgram::of(limits),
            tasks,
            stored: 0,
        };
        shell.partitions.clear_restarted().map_err(Error::pubsub("ZbootStatus"))?;
        wire::withdraw(&mut shell.writes, GLOBAL)?;
        if !are_named {
            // An earlier run of this boot may have had some.
            let labels: Vec<String> = shell.partitions.iter().map(|(label, _)| label.to_owned()).collect();
            for label in labels {
                shell.partitions.unpublish(&label).map_err(Error::pubsub("ZbootStatus"))?;
            }
        }
        let found = SavedUpdates {
            request: shell.requests.get(GLOBAL).cloned(),
            statuses: shell.statuses.iter().map(|(key, status)| (key.to_owned(), status.clone())).collect(),
            counters: read(&shell.topic_root)?,
        };
        follow::all(&mut shell.tasks, context);
        Ok((shell, found))
    }

    fn ask(&mut self, nth: u32, context: String) -> Result<(), Error> {
        let request =
            NodeDrainRequest { requested_at: self.clock.wall(), requested_by: Requester::Update, context };
        self.requests.publish(GLOBAL, &request).map_err(Error::pubsub("NodeDrainRequest"))?;
        self.tasks.start(format!("asked {nth}"), async move { Some(Event::Asked { nth, request }) });
        Ok(())
    }

    fn store(&self) -> Result<&SharedStore, Error> {
        self.store.as_ref().ok_or_else(|| Error::Effect {
            doing: "keep the image partitions",
            reason: "none are named, see --partitions".to_owned(),
        })
    }

    /// Begins an order; nothing else is ordered before its outcome is known. A refusal is a fact for the core.
    fn change(&mut self, order: PartitionChange) -> Result<(), Error> {
        let work = {
            let mut store = self.store()?.lock().unwrap_or_else(PoisonError::into_inner);
            match order {
                PartitionChange::Set { label, state } => store.set_state(label, state),
                PartitionChange::MarkActive => store.mark_current_active(),
            }
        };
        self.stored += 1;
        let store = self.store()?.clone();
        let containers = self.containers.clone().filter(|_| order == PartitionChange::MarkActive);
        self.tasks.events(format!("stored {}", self.stored), move |outbox| async move {
            let outcome = work.await.map_err(|cause| step::chain(&cause));
            let passed = outcome.is_ok();
            outbox.send(Event::Stored { order, outcome }).await;
            let Some(containers) = containers.filter(|_| passed) else { return };
            let read = store.lock().unwrap_or_else(PoisonError::into_inner).read();
            if let Ok(now) = read.await {
                containers.clean(&now.running().short_version).await;
            }
        });
        Ok(())
    }

    fn write(&mut self, of: PartitionWrite, tree: &ContentTreeStatus) -> Result<(), Error> {
        info!(version = of.version, partition = %of.label, key = of.key, "writes an image");
        let store = self.store()?.clone();
        let (percent, mut told) = watch::channel(0);
        let image = image::of(&self.topic_root, &of, tree);
        let containers = self.containers.clone();
        self.tasks.events("write", move |outbox| async move {
            let store = || store.lock().unwrap_or_else(PoisonError::into_inner);
            let work = async {
                if let Some(containers) = containers {
                    containers.pull(&of.version).await?;
                }
                let mut work = store().write_image(of.label, image, percent);
                loop {
                    tokio::select! {
                        biased;
                        outcome = &mut work => return outcome.map_err(|cause| step::chain(&cause)),
                        Ok(()) = told.changed() => {
                            let percent = *told.borrow_and_update();
                            outbox.send(Event::Writing { nth: of.nth, percent }).await;
                        }
                    }
                }
            };
            let outcome = work.await;
            let Err(reason) = outcome else {
                outbox.send(Event::Written { of, outcome }).await;
                return;
            };
            // It may have failed before anything was changed.
            let read = store().read();
            let event = match read.await {
                Ok(partitions) => Event::Refused { of, reason, partitions: Box::new(partitions) },
                Err(_) => Event::Written { of, outcome: Err(reason) },
            };
            outbox.send(event).await;
        });
        Ok(())
    }

    /// An error without a time is of now, unless it was published before.
    fn status(&mut self, key: &str, mut status: BaseOsStatus) -> Result<(), Error> {
        if !status.error.is_empty() && status.error_time.is_zero() {
            let before = self.statuses.get(key).filter(|before| before.error == status.error);
            if before.is_none() {
                self.timed.remove(key);
            }
            status.error_time = before.map_or_else(|| self.clock.wall(), |before| before.error_time);
            self.timed.entry(key.to_owned()).or_insert(self.clock.booted_at());
        } else {
            self.timed.remove(key);
        }
        wire::publish(&mut self.statuses, key, &status)
    }
}

/// Where the request is named among what waits.
const REQUEST: &str = "NodeDrainRequest";

impl Hands for Shell {
    type Effect = Effect;

    fn weight(&self, effect: &Effect) -> Weight {
        match effect {
            Effect::Save(counter, _) => Weight::record(path(*counter)),
            Effect::Journal(_) => Weight::record(FALLBACK_FROM),
            Effect::Ask { .. } => Weight::promise(REQUEST, "the request for a drain"),
            Effect::Withdraw => Weight::status(REQUEST),
            Effect::Store(PartitionChange::Set { label, state }) => {
                Weight::promise(format!("partition {label}"), format!("to make {label} {state}"))
            }
            Effect::Store(PartitionChange::MarkActive) => {
                Weight::promise("running partition", "to mark the running image as good")
            }
            Effect::Zboot(status) => {
                let key = format!("ZbootStatus {}", status.partition_label);
                let said = self.partitions.get(&status.partition_label);
                let switches = |it: &ZbootStatus| it.partition_state == PartitionState::Updating.word();
                if switches(status) && !said.is_some_and(switches) {
                    Weight::promise(key, "the word that the image may be booted")
                } else {
                    Weight::status(key)
                }
            }
            Effect::RemoveForce => Weight::promise(FORCE_FILE, "the removal of the used force file"),
            Effect::Write { .. } => Weight::status("image"),
            Effect::StopWriting => Weight::cancels("image"),
            Effect::ZbootReady => Weight::status("ZbootStatus restarted"),
            Effect::Status { key, .. } | Effect::Unpublish { key } => {
                Weight::status(format!("BaseOsStatus {key}"))
            }
            Effect::Manager(_) => Weight::status("BaseOSMgrStatus"),
            Effect::Writing(_) => Weight::status("ImageWrite"),
            Effect::Say(_) | Effect::Switch { .. } | Effect::AskNodeagent => Weight::plain(),
        }
    }

    fn clock_set(&mut self, now: GoTime) -> Result<(), Error> {
        for (key, before) in &mut self.timed {
            let Some(status) = self.statuses.get(key) else { continue };
            let error_time = status.error_time.moved(*before, now);
            let status = BaseOsStatus { error_time, ..status.clone() };
            self.statuses.publish(key, &status).map_err(Error::pubsub("BaseOsStatus"))?;
            *before = now;
        }
        Ok(())
    }

    async fn perform(&mut self, effect: Effect) -> Result<(), Error> {
        match effect {
            Effect::Say(message) => step::log!(message),
            Effect::Switch { context, why } => say_switch(&context, &why),
            Effect::Ask { nth, context } => self.ask(nth, context)?,
            Effect::AskNodeagent => {
                let topic_root = self.topic_root.clone();
                self.stored += 1;
                self.tasks.start(format!("asked nodeagent {}", self.stored), async move {
                    let status = wire::look::<NodeAgentStatus>(&topic_root, "nodeagent", "nodeagent").await;
                    Some(Event::GoingDown(status.is_some_and(|it| it.device_reboot || it.device_poweroff)))
                });
            }
            Effect::Withdraw => wire::withdraw(&mut self.requests, GLOBAL)?,
            Effect::Store(order) => self.change(order)?,
            Effect::Write { write, tree } => self.write(write, &tree)?,
            Effect::StopWriting => self.tasks.cancel("write"),
            Effect::Save(counter, value) => write(&self.topic_root, counter, value)?,
            Effect::Journal(journal) => write_journal(&self.topic_root, journal)?,
            Effect::RemoveForce => {
                force::remove(&self.topic_root)?;
            }
            Effect::Zboot(status) => {
                let key = status.partition_label.clone();
                wire::publish(&mut self.partitions, &key, &status)?;
            }
            Effect::ZbootReady => self.partitions.signal_restarted().map_err(Error::pubsub("ZbootStatus"))?,
            Effect::Status { key, status } => self.status(&key, *status)?,
            Effect::Unpublish { key } => wire::withdraw(&mut self.statuses, &key)?,
            Effect::Writing(Some(write)) => wire::publish(&mut self.writes, GLOBAL, &write)?,
            Effect::Writing(None) => wire::withdraw(&mut self.writes, GLOBAL)?,
            Effect::Manager(counter) => {
                let status = BaseOSMgrStatus { current_retry_update_counter: counter };
                wire::publish(&mut self.manager, GLOBAL, &status)?;
            }
        }
        Ok(())
    }
}

/// The words after `nodedrain-step:` and the EARLY line are the reference's; scripts look for them.
fn say_switch(context: &str, why: &ProceedReason) {
    match why {
        ProceedReason::Complete { skip } => {
            info!(
                context,
                "baseOsHandleStatusUpdateUUID nodedrain-step:drain-complete-handler, continuing baseosstatus update id:{context}"
            );
            info!(
                context,
                skip,
                "shouldDeferForNodeDrain nodedrain-step:handle-complete requester:eve-os-update ctx:{context}"
            );
        }
        ProceedReason::NotSupported => info!(context, "switches without a drain: the node is in no cluster"),
        ProceedReason::Early => {
            error!(context, "shouldDeferForNodeDrain EARLY boot request, zedkube not up yet");
        }
        ProceedReason::Forced(forced) => warn!(
            context, %forced, path = FORCE_FILE,
            "drain skipped: the force file says {forced}; switches {context}"
        ),
        ProceedReason::Silent { waited_secs } => warn!(
            context,
            waited_secs, "drain skipped: zedkube said nothing of use for {waited_secs} s; switches {context}"
        ),
    }
}

const CURRENT_RETRY: &str = "persist/status/current_retry_update_counter";
const CONFIG_RETRY: &str = "persist/status/config_retry_update_counter";
const FALLBACK: &str = "persist/checkpoint/forceFallbackCounter";
/// Ours: `<counter> <label>` during a fallback, see [`FallbackFrom`].
pub(crate) const FALLBACK_FROM: &str = "persist/checkpoint/forceFallbackFrom";
const LIMIT_BYTES: u64 = 128;

/// A file without a number is logged and counts as absent, as in the reference.
pub(crate) fn read(topic_root: &TopicRoot) -> Result<Counters, Error> {
    Ok(Counters {
        current_retry: parsed(topic_root, CURRENT_RETRY, |text| text.parse().ok())?.unwrap_or_default(),
        config_retry: parsed(topic_root, CONFIG_RETRY, |text| text.parse().ok())?.unwrap_or_default(),
        fallback: parsed(topic_root, FALLBACK, |text| text.parse().ok())?,
        fallback_from: parsed(topic_root, FALLBACK_FROM, |text| {
            let (counter, label) = text.split_once(' ')?;
            Some(FallbackFrom { counter: counter.parse().ok()?, from: label.parse::<Label>().ok()? })
        })?,
    })
}

/// Under the root.
pub(crate) const fn path(counter: Counter) -> &'static str {
    match counter {
        Counter::CurrentRetry => CURRENT_RETRY,
        Counter::ConfigRetry => CONFIG_RETRY,
        Counter::Fallback => FALLBACK,
    }
}

pub(crate) fn write(topic_root: &TopicRoot, counter: Counter, value: u32) -> Result<(), Error> {
    let path = path(counter);
    store::replace(&topic_root.path(path), value.to_string().as_bytes()).map_err(Error::pubsub(path))
}

pub(crate) fn write_journal(topic_root: &TopicRoot, journal: Option<FallbackFrom>) -> Result<(), Error> {
    let path = topic_root.path(FALLBACK_FROM);
    match journal {
        Some(FallbackFrom { counter, from }) => store::replace(&path, format!("{counter} {from}").as_bytes()),
        None => store::remove(&path).map(drop),
    }
    .map_err(Error::pubsub(FALLBACK_FROM))
}

fn parsed<T>(
    topic_root: &TopicRoot,
    path: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, Error> {
    let Some(bytes) = store::read(&topic_root.path(path), LIMIT_BYTES).map_err(Error::pubsub(path))? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&bytes);
    let value = parse(text.trim());
    if value.is_none() {
        warn!(path, found = text.trim(), "ignored a counter file without a counter; it is written again");
    }
    Ok(value)
}
