//! Performs what the core asks for: publishes, stores, asks the device, logs.
//!
//! Not here: any decision. Words of the log are those of the reference.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent::device::hooks::About;
use agent::device::{self, Device, MachineOperation};
use agent::force::Orders;
use agent::wire::{GLOBAL, ZEDKUBE};
use agent::{AgentContext, Error, Hands, Tasks, Troubles, Weight, publication, wire};
use pubsub::{Publication, TopicRoot};
use step::Inserted as _;
use topics::{
    BootReason, GoTime, NodeAgentStatus, NodeDrainProgress, NodeDrainStatus, OutageQuestion, ZbootConfig,
};
use tracing::{error, info, warn};

use crate::core::{Effect, Event, LABELS, LastBoot, MachineOrder, Resumed, SavedNodeState, Took};
use crate::hooks::{self, RebootHooks};
use crate::journal::{self, Journal};
use crate::{Limits, NAME, follow, plain, reasons};

/// Name of the task of what comes last: hooks, then the disks.
const LAST_SYNC: &str = "last sync";

/// The hands of the core.
pub(crate) struct Shell {
    context: AgentContext,
    /// Asked on a thread of its own: a program that hangs must not stop the clock that ends the wait for it.
    device: Arc<dyn Device>,
    tasks: Tasks<Event>,
    statuses: Publication<NodeAgentStatus>,
    verdicts: Publication<ZbootConfig>,
    questions: Publication<OutageQuestion>,
    journal: Journal,
    /// The last status, as the core has it.
    said: Option<NodeAgentStatus>,
    /// The machine was told to go down and did not.
    pub(crate) leaves: Arc<AtomicBool>,
    asked: u64,
    troubles: Troubles,
    limits: Limits,
    /// The hooks before the reboot were called in this run.
    hooked: bool,
}

impl Shell {
    /// Becomes the publisher of this agent's topics and begins to follow those of others. Returns what an earlier
    /// run of this boot, or the boot before, left.
    pub(crate) fn open(
        context: &AgentContext,
        device: &Arc<dyn Device>,
        tasks: Tasks<Event>,
        (troubles, limits): (&Troubles, Limits),
    ) -> Result<(Self, SavedNodeState), Error> {
        let topic_root = &context.topic_root;
        // First of all it must be the only one: what follows takes the traces of the last boot.
        let (statuses, verdicts, questions) =
            (publication(topic_root, NAME)?, publication(topic_root, NAME)?, publication(topic_root, NAME)?);
        let journal = match Journal::read(topic_root, &context.boot_id)? {
            Some(journal) => again(topic_root, journal)?,
            None => first(context)?,
        };
        let mut shell = Self {
            statuses,
            verdicts,
            questions,
            context: context.clone(),
            device: Arc::clone(device),
            tasks,
            journal,
            said: None,
            leaves: Arc::default(),
            asked: 0,
            troubles: troubles.clone(),
            limits,
            hooked: false,
        };
        let found = SavedNodeState {
            last_boot: shell.journal.last_boot.clone(),
            said: shell.statuses.get(NAME).cloned(),
            resumed: shell.journal.operation.clone(),
            tested: shell.tested(),
            hv_type_kube: !matches!(
                device::ImageKind::read(&shell.context.topic_root),
                device::ImageKind::Without(_)
            ),
            question: shell.questions.get(GLOBAL).cloned().unwrap_or_default(),
        };
        follow::all(&mut shell.tasks, &shell.context.topic_root);
        if limits.hold_plain_reboots {
            plain::follow(&mut shell.tasks, &shell.context.topic_root, device);
        }
        Ok((shell, found))
    }

    /// A time that was guessed as that of this boot's start follows the wall clock.
    fn by_clock(&self, status: NodeAgentStatus) -> NodeAgentStatus {
        let Journal { booted_at, last_boot: LastBoot { time, .. }, .. } = &self.journal;
        if booted_at.is_zero() || status.reboot_time != *time {
            return status;
        }
        let moved = time.moved(*booted_at, *self.context.clock.boots().borrow());
        let reboot_reason = status.reboot_reason.replace(&time.rfc3339(), &moved.rfc3339());
        NodeAgentStatus { reboot_time: moved, reboot_reason, ..status }
    }

    fn tested(&self) -> BTreeSet<String> {
        let passed = |label: &&&str| self.verdicts.get(label).is_some_and(|it| it.test_complete);
        LABELS.iter().filter(passed).map(|label| (*label).to_owned()).into_set()
    }

    fn journal(&mut self, latched: Option<Resumed>) -> Result<(), Error> {
        self.journal.operation = latched;
        self.journal.write(&self.context.topic_root)
    }

    /// Asks the device for it, without waiting for the answer.
    fn operate(&mut self, order: MachineOrder) {
        self.asked += 1;
        let (device, topic_root, boot_id) =
            (Arc::clone(&self.device), self.context.topic_root.clone(), self.context.boot_id.clone());
        let operation = order.operation;
        let call = tokio::task::spawn_blocking(move || operate(&*device, &order, &topic_root, &boot_id));
        self.tasks.start(format!("device {}", self.asked), async move {
            let outcome = call.await.unwrap_or_else(|cause| Err(format!("the call ended early: {cause}")));
            Some(Event::Operated { operation, outcome })
        });
    }

    /// Whether hooks are to be called now: before the machine goes down, once in a run of this agent.
    fn calls_hooks(&mut self) -> bool {
        let goes_down = self.journal.operation.as_ref().is_some_and(|it| it.order.goes_down());
        let calls = goes_down && !self.hooked && hooks::are_there(&self.context.topic_root);
        self.hooked |= calls;
        calls
    }

    /// What hooks are called for.
    fn about(&self) -> About {
        let operation = self.journal.operation.clone();
        let (operation, reason) =
            operation.map(|it| (it.order.operation.word().to_owned(), it.order.reason)).unwrap_or_default();
        About { operation, reason, boot_id: self.context.boot_id.clone(), ..About::default() }
    }

    /// Brings everything to the disks, on a thread of its own. A new one takes the place of one before, of which
    /// nothing is heard any more.
    fn sync(&mut self, name: &str, then: Option<Event>) {
        let device = Arc::clone(&self.device);
        let call = tokio::task::spawn_blocking(move || device.sync());
        self.tasks.start(name, async move {
            match call.await {
                Ok(Ok(())) => {}
                Ok(Err(cause)) => {
                    warn!(error = %step::chain(&cause), "cannot bring everything to the disks");
                }
                Err(cause) => warn!(error = %cause, "bringing everything to the disks ended early"),
            }
            then
        });
    }
}

impl Hands for Shell {
    type Effect = Effect;

    /// Nothing waits for a file here: a full disk must not keep a device from going down.
    fn weight(&self, effect: &Effect) -> Weight {
        match effect {
            Effect::Journal(_) | Effect::CallOff(_) => Weight::status(journal::PATH),
            Effect::Publish(_) => Weight::status("NodeAgentStatus"),
            Effect::Zboot(verdict) => Weight::status(format!("ZbootConfig {}", verdict.partition_label)),
            Effect::Question(_) => Weight::status("OutageQuestion"),
            Effect::Reason { .. } => Weight::status(agent::reasons::REASON),
            Effect::Mark { .. } => Weight::status(agent::reasons::LOG),
            Effect::Say(_)
            | Effect::Check
            | Effect::Sync
            | Effect::LastSync
            | Effect::Operate(_)
            | Effect::Exit(_) => Weight::plain(),
        }
    }

    fn clock_set(&mut self, _now: GoTime) -> Result<(), Error> {
        let Some(status) = self.said.clone() else { return Ok(()) };
        let shown = self.by_clock(status);
        wire::publish(&mut self.statuses, NAME, &shown)
    }

    async fn perform(&mut self, effect: Effect) -> Result<(), Error> {
        match effect {
            Effect::Say(message) => step::log!(message),
            Effect::Journal(latched) => self.journal(Some(latched))?,
            Effect::CallOff(order) => {
                reasons::take_back(&self.context.topic_root, &order)?;
                self.journal(None)?;
            }
            Effect::Publish(status) => {
                let shown = self.by_clock((*status).clone());
                self.said = Some(*status);
                wire::publish(&mut self.statuses, NAME, &shown)?;
            }
            Effect::Question(question) => wire::publish(&mut self.questions, GLOBAL, &question)?,
            Effect::Mark { order, why } => {
                reasons::mark(&self.context.topic_root, &order, &why, self.context.clock.wall())?;
            }
            Effect::Zboot(verdict) => {
                let label = verdict.partition_label.clone();
                wire::publish(&mut self.verdicts, &label, &verdict)?;
            }
            Effect::Reason { order, image } => {
                reasons::write(&self.context.topic_root, &order, &image, self.context.clock.wall())?;
            }
            Effect::Check => {
                let topic_root = self.context.topic_root.clone();
                let mut orders = Orders::open(&self.context);
                self.asked += 1;
                self.tasks.start(format!("check {}", self.asked), async move {
                    // The force file first: who takes it away does so once zedkube has answered by it. The answers last:
                    // zedkube writes them before the status, so they are never the older ones.
                    let (order, _) = orders.next().await;
                    // What is wrong with a force file is said by zedkube, and named in its progress.
                    let forced = order.ok().flatten();
                    let status = wire::look::<NodeDrainStatus>(&topic_root, ZEDKUBE, GLOBAL).await;
                    let progress = wire::look::<NodeDrainProgress>(&topic_root, ZEDKUBE, GLOBAL).await;
                    let ours = progress.is_some();
                    let answers = progress.map(|it| it.answers).unwrap_or_default();
                    Some(Event::Checked { status, answers, forced, ours })
                });
            }
            Effect::Sync => self.sync("sync", None),
            Effect::LastSync if self.calls_hooks() => {
                let hooks = RebootHooks::new(&self.context, &self.troubles, self.limits);
                let about = self.about();
                self.tasks.events(LAST_SYNC, move |outbox| hooks.call(about, outbox));
            }
            Effect::LastSync => {
                self.troubles.over(hooks::WHAT);
                self.sync(LAST_SYNC, Some(Event::Synced));
            }
            Effect::Operate(order) => {
                info!(operation = order.operation.word(), reason = order.reason, "asks the device");
                self.operate(order);
            }
            Effect::Exit(order) => {
                let operation = order.operation.word();
                self.leaves.store(true, Ordering::Relaxed);
                error!(
                    operation,
                    "the machine was ordered down and is still up; nodeagent leaves so that the watchdog \
                     restarts it. Without a watchdog, restart it by hand"
                );
                return Err(Error::Effect {
                    doing: "see the machine go down",
                    reason: format!("it is still up after {operation}"),
                });
            }
        }
        Ok(())
    }
}

/// The first start in a boot: the traces of the last one become the journal, then they are removed.
fn first(context: &AgentContext) -> Result<Journal, Error> {
    let topic_root = &context.topic_root;
    let before = reasons::counter(topic_root)?;
    let (now, booted_at) = (context.clock.wall(), context.clock.booted_at());
    let stored = reasons::read(topic_root)?;
    // Whole, as what is published is its end only, and the file goes.
    let stack = stored.stack.clone().filter(|_| stored.reason.is_some()).unwrap_or_default();
    let last_boot = LastBoot::from_traces(stored, reasons::evidence(topic_root)?, now, before);
    let booted_at = if last_boot.time == now { booted_at } else { GoTime::ZERO };
    warn!(reason = last_boot.reason, boot_reason = ?last_boot.boot_reason, "how the last boot ended");
    let of = if last_boot.boot_reason == BootReason::Kernel { "dmesg" } else { "stack" };
    for (number, line) in stack.lines().enumerate() {
        warn!("[{of} #{number}]: {line}");
    }
    let journal = Journal { boot_id: context.boot_id.clone(), last_boot, booted_at, operation: None };
    journal.write(topic_root)?;
    reasons::count(topic_root, before);
    reasons::forget(topic_root);
    reasons::forget_first_boot(topic_root);
    Ok(journal)
}

/// A later start in the same boot. An earlier run may have ended between writing the journal and its next steps;
/// a reason of another time than the one in the journal is of this boot and stays.
fn again(topic_root: &TopicRoot, journal: Journal) -> Result<Journal, Error> {
    let before = journal.last_boot.restart_counter;
    if reasons::counter(topic_root)? == before {
        reasons::count(topic_root, before);
    }
    if reasons::read(topic_root)?.time == Some(journal.last_boot.time) {
        reasons::forget(topic_root);
    }
    reasons::forget_first_boot(topic_root);
    Ok(journal)
}

fn operate(
    device: &dyn Device,
    order: &MachineOrder,
    topic_root: &TopicRoot,
    boot_id: &str,
) -> Result<Took, String> {
    // An earlier run of this agent may have ended while its call went on.
    if stood_in(topic_root, boot_id, order.operation) {
        return Ok(Took::StandIn);
    }
    device.operate(order.operation, &order.reason).map_err(|cause| step::chain(&cause))?;
    Ok(if stood_in(topic_root, boot_id, order.operation) { Took::StandIn } else { Took::Machine })
}

/// Whether a stand-in was asked for `operation` in this boot: it writes down what a machine would do.
fn stood_in(topic_root: &TopicRoot, boot_id: &str, operation: MachineOperation) -> bool {
    match device::recorded(topic_root) {
        Ok(all) => all.iter().any(|it| it.boot_id == boot_id && it.operation == operation),
        Err(cause) => {
            warn!(error = %step::chain(&cause), "cannot tell whether the device is a stand-in");
            false
        }
    }
}
