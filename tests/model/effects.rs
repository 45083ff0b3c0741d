//! What the cores ask for, performed as their shells do: in the order given, up to the moment in which the agent or
//! the power may end.

use std::sync::Arc;

use baseosmgr::core::{Counter, PartitionChange};
use outage::turn::rule::CordonMark;
use topics::{CordonOwner, NodeDrainRequest, Requester};
use zedkube::core::CordonTurn;

use super::topics::{Disk, Fact, Who, Writer};
use super::world::{Gate, Look, State, Task, Work};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Gone;

impl State {
    pub(crate) fn burn(&mut self) -> Result<(), Gone> {
        if let Some(left) = &mut self.fuse {
            *left = left.checked_sub(1).ok_or(Gone)?;
        }
        Ok(())
    }

    pub(crate) fn deliver(&mut self, fact: Fact) -> Result<(), Gone> {
        use step::Core as _;
        macro_rules! step {
            ($agent:ident, $who:ident, $event:expr, $perform:ident) => {{
                let now = self.now(Who::$who) + std::time::Duration::from_millis(1);
                self.set_now(Who::$who, now);
                for who in [Who::$who, Who::$who.process()] {
                    self.touched.agents[who as usize] = true;
                }
                let Some(core) = &mut self.$agent else { return Ok(()) };
                let effects = Arc::make_mut(core).step(now, $event);
                self.$perform(effects)
            }};
        }
        match fact {
            Fact::Zedagent(event) => step!(zedagent, Zedagent, event, for_zedagent),
            Fact::Nodeagent(event) => step!(nodeagent, Nodeagent, event, for_nodeagent),
            Fact::Zedkube(event) => {
                step!(zedkube, Zedkube, event, for_zedkube)?;
                self.judge_order();
                Ok(())
            }
            Fact::Baseosmgr(event) => step!(baseosmgr, Baseosmgr, event, for_baseosmgr),
            Fact::K3s(event) => step!(k3s, K3s, event, for_k3s),
            Fact::Detail(_) => Ok(()),
        }
    }

    pub(crate) fn for_zedagent(&mut self, effects: Vec<zedagent::core::Effect>) -> Result<(), Gone> {
        use zedagent::core::Effect;
        for effect in effects {
            if !matches!(effect, Effect::Say(_)) {
                self.burn()?;
                self.touched.files_of(Writer::Zedagent);
            }
            match effect {
                Effect::Journal(pending) => drop(self.disk().pending.insert(pending.op, pending)),
                Effect::Forget(op) => drop(self.disk().pending.remove(&op)),
                Effect::SaveCounter(op, command) => drop(self.disk().counters.insert(op, command)),
                Effect::DropCounter(op) => drop(self.disk().counters.remove(&op)),
                Effect::Request(request) => {
                    self.judge_start(Who::Zedagent, "a drain is asked for");
                    self.request(0, Some(request));
                }
                Effect::Withdraw => self.request(0, None),
                Effect::Publish(status) => {
                    let newly = [
                        (topics::DeviceOp::Reboot, status.reboot_cmd),
                        (topics::DeviceOp::Shutdown, status.shutdown_cmd),
                    ];
                    for (op, commanded) in newly {
                        if commanded {
                            self.judge_command(op);
                        }
                    }
                    self.disk().run.zedagent = Some(status);
                }
                Effect::UseForce => {
                    self.touched.files_of(Writer::Person);
                    self.judge_used_order(Requester::DeviceOp);
                    self.disk().force = None;
                }
                Effect::Say(_) => {}
            }
        }
        Ok(())
    }

    pub(crate) fn for_nodeagent(&mut self, effects: Vec<nodeagent::core::Effect>) -> Result<(), Gone> {
        use nodeagent::core::{Effect, Event};
        let (mut synced, mut checks) = (false, false);
        for effect in effects {
            if !matches!(
                effect,
                Effect::Say(_) | Effect::Reason { .. } | Effect::Sync | Effect::LastSync | Effect::Check
            ) {
                self.burn()?;
            }
            match effect {
                Effect::Journal(latched) => {
                    self.touched.files_of(Writer::Nodeagent);
                    self.disk().run.latched = Some(latched);
                }
                Effect::CallOff(_) => {
                    self.touched.files_of(Writer::Nodeagent);
                    self.disk().run.latched = None;
                }
                Effect::Publish(status) => {
                    self.touched.files_of(Writer::Nodeagent);
                    self.disk().run.nodeagent = Some(status);
                }
                Effect::Zboot(verdict) => {
                    self.touched.files_of(Writer::Nodeagent);
                    let label = verdict.partition_label.parse().expect("a label");
                    self.disk().run.tested.insert(label, verdict.test_complete);
                }
                Effect::Operate(order) => {
                    self.judge_operation(order.operation);
                    self.under().device = Some(order);
                }
                Effect::LastSync => synced = true,
                Effect::Check => checks = true,
                Effect::Question(question) => {
                    self.touched.files_of(Writer::Nodeagent);
                    self.disk().run.question = Some(*question);
                }
                Effect::Say(_) | Effect::Reason { .. } | Effect::Mark { .. } | Effect::Sync => {}
                // The machine's watchdog does what the device did not.
                Effect::Exit(_) => return Err(Gone),
            }
        }
        if synced {
            return self.deliver(Fact::Nodeagent(Event::Synced));
        }
        if checks {
            // It reads the files itself, and nothing lies between that and the device.
            let answers = self.disk.run.progress.as_ref().map(|it| it.answers.clone()).unwrap_or_default();
            // Where nodes take no turns, zedkube has nothing to be asked.
            let ours = self.scenario.kube.take_turns && self.disk.run.progress.is_some();
            let (status, forced) = (self.disk.run.status, self.disk.force);
            let checked = Event::Checked { status, answers, forced, ours };
            return self.deliver(Fact::Nodeagent(checked));
        }
        Ok(())
    }

    pub(crate) fn for_zedkube(&mut self, effects: Vec<zedkube::core::Effect>) -> Result<(), Gone> {
        use zedkube::core::Effect;
        for effect in effects {
            // Nobody decides by the history, by what is said, or by who leads.
            let idle = matches!(
                effect,
                Effect::Say(_) | Effect::CordonRemoved | Effect::History(_) | Effect::Candidacy(_)
            );
            if !idle && (self.scenario.kube.take_turns || !matches!(effect, Effect::OutageAnswer(_))) {
                self.burn()?;
            }
            match effect {
                Effect::Journal(journal) => {
                    self.touched.files_of(Writer::Zedkube);
                    self.disk().journal = Some(*journal);
                }
                Effect::Progress(progress) => {
                    self.touched.files_of(Writer::Zedkube);
                    for answer in &progress.answers {
                        self.judge_answer(answer);
                    }
                    self.disk().run.progress = Some(progress);
                }
                Effect::Status(status) => {
                    self.touched.files_of(Writer::Zedkube);
                    self.judge_status(status);
                    self.disk().run.status = Some(status);
                }
                Effect::Probe(run) => self.begin(run, Work::Probe, None),
                Effect::Cordon(run, _, grant) => {
                    if self.under.ghost.shut {
                        self.wrong("X3: a cordon begins although the node is paused");
                    }
                    self.begin(run, Work::Cordon, Some(grant));
                }
                Effect::Drain(run, (_, grant), ..) => self.begin(run, Work::Drain, Some(grant)),
                Effect::Await(run, _) => self.begin(run, Work::Await, None),
                Effect::Margin { run, .. } => self.begin(run, Work::Margin, None),
                Effect::Turn(ask) => self.asks.push(ask),
                Effect::OutageAnswer(answer) if self.scenario.kube.take_turns => {
                    self.touched.files_of(Writer::Zedkube);
                    self.disk().run.outage = Some(*answer);
                }
                Effect::Cancel => {
                    let under = self.under();
                    (under.look, under.preflight, under.guard, under.task) = (None, None, None, None);
                    under.ghost.unfit = false;
                }
                Effect::Look { nth, uncordon, gate_open } => {
                    // A turn that is lost twice begins a second one, which takes the place of the first.
                    if self.under.look.is_some() && !self.scenario.kube.take_turns {
                        self.wrong("two looks at once");
                    }
                    if gate_open != (self.under.gate.told == Some(true)) {
                        self.wrong("R4: the gate after the boot is not what it was said to be");
                    }
                    self.under().look = Some(Look { nth, uncordon, gate_open });
                }
                Effect::Gate(true) => self.under().gate = Gate { watched: true, told: None },
                Effect::Gate(false) => self.under().gate.watched = false,
                Effect::Guard => self.under().guard = Some(false),
                Effect::Preflight(run) => {
                    let under = self.under();
                    (under.preflight, under.ghost.unfit) = (Some(run), true);
                }
                // The model has no virtual machines.
                Effect::OutageAnswer(_)
                | Effect::Leftovers(_)
                | Effect::UndoHooks
                | Effect::HooksAfterBoot
                | Effect::CordonRemoved
                | Effect::Say(_)
                | Effect::History(_)
                | Effect::Candidacy(_)
                | Effect::Taints(_) => {}
            }
        }
        Ok(())
    }

    fn begin(&mut self, run_id: u64, work: Work, grant: Option<CordonTurn>) {
        let boot_id = self.boot_id();
        // A cordon without a turn says nothing of one.
        let mark = grant.filter(|it| it.fence > 0).map(|CordonTurn { fence, lease_uid }| CordonMark {
            fence,
            lease_uid,
            boot_id,
        });
        let task = Task { run_id, work, mark };
        // A wait for a change gives way to whatever comes next, and a probe to another one, as after a pause.
        let gives_way = |it: &&Task| it.work == Work::Await || (it.work, work) == (Work::Probe, Work::Probe);
        if let Some(other) = self.under.task.as_ref().filter(|it| !gives_way(it)) {
            let both = format!("two tasks: {task:?} beside {other:?}");
            self.wrong(both);
        }
        let first = if self.scenario.kube.take_turns { Work::Cordon } else { Work::Probe };
        if work == first {
            self.under().ghost.failed_attempts = 0;
        }
        self.under().task = Some(task);
    }

    pub(crate) fn request(&mut self, nth: usize, request: Option<NodeDrainRequest>) {
        if let Some(request) = &request {
            let asked = Arc::make_mut(&mut self.asked);
            if !asked.contains(&request.requested_at) {
                asked.push(request.requested_at);
            }
        }
        self.disk().run.requests[nth] = request;
    }

    pub(crate) fn for_baseosmgr(&mut self, effects: Vec<baseosmgr::core::Effect>) -> Result<(), Gone> {
        use baseosmgr::core::{Effect, Event};
        let mut why = None;
        for effect in effects {
            if !matches!(
                effect,
                Effect::Say(_)
                    | Effect::Switch { .. }
                    | Effect::ZbootReady
                    | Effect::Manager(_)
                    | Effect::Writing(_)
                    | Effect::AskNodeagent
            ) {
                self.burn()?;
                self.touched.files_of(Writer::Baseosmgr);
            }
            match effect {
                Effect::Switch { why: said, .. } => why = Some(said),
                Effect::Say(_) | Effect::ZbootReady | Effect::Manager(_) | Effect::Writing(_) => {}
                Effect::Ask { nth, context } => {
                    self.judge_start(Who::Baseosmgr, "a drain is asked for");
                    let requested_at = self.wall(Who::Baseosmgr);
                    let request = NodeDrainRequest { requested_at, requested_by: Requester::Update, context };
                    self.request(1, Some(request.clone()));
                    self.under().results.push(Event::Asked { nth, request });
                }
                Effect::AskNodeagent => {
                    let going_down = self.is_going_down();
                    self.under().results.push(Event::GoingDown(going_down));
                }
                Effect::Withdraw => self.request(1, None),
                Effect::Store(order) => {
                    if let PartitionChange::Set {
                        state: agent::partitions::PartitionState::Updating, ..
                    } = order
                    {
                        self.judge_switch(why.as_ref());
                    }
                    store(self.disk(), order);
                    self.under().results.push(Event::Stored { order, outcome: Ok(()) });
                }
                Effect::Write { write, .. } => {
                    let outcome = Ok(write.version.clone());
                    self.under().results.push(Event::Written { of: write, outcome });
                }
                Effect::StopWriting => {
                    self.under().results.retain(|it| !matches!(it, Event::Written { .. }));
                }
                Effect::Save(counter, value) => {
                    let saved = &mut self.disk().saved;
                    match counter {
                        Counter::CurrentRetry => saved.current_retry = value,
                        Counter::ConfigRetry => saved.config_retry = value,
                        Counter::Fallback => saved.fallback = Some(value),
                    }
                }
                Effect::Journal(begun) => self.disk().saved.fallback_from = begun,
                Effect::RemoveForce => {
                    self.touched.files_of(Writer::Person);
                    self.judge_used_order(Requester::Update);
                    self.disk().force = None;
                }
                Effect::Zboot(status) => {
                    let label = status.partition_label.parse().expect("a label");
                    self.disk().run.zboot.insert(label, status);
                }
                Effect::Status { key, status } => drop(self.disk().run.images.insert(key, *status)),
                Effect::Unpublish { key } => drop(self.disk().run.images.remove(&key)),
            }
        }
        Ok(())
    }

    /// The cordon of ours is taken off the node, or one is found there; whatever was proved goes with it.
    pub(crate) fn cordon(&mut self, cordon: CordonOwner) {
        let under = self.under();
        under.node.cordon = cordon;
        under.node.boot = under.boot;
        if cordon == CordonOwner::None {
            (under.node.drained, under.node.mark) = (false, None);
            under.ghost.open();
        }
    }
}

fn store(disk: &mut Disk, order: PartitionChange) {
    use agent::partitions::{Label, PartitionState};
    let running = disk.partitions.current;
    let mut set = |label, state| match label {
        Label::A => disk.partitions.a.state = state,
        Label::B => disk.partitions.b.state = state,
    };
    match order {
        PartitionChange::Set { label, state } => set(label, state),
        PartitionChange::MarkActive => {
            set(running, PartitionState::Active);
            set(running.other(), PartitionState::Unused);
        }
    }
}
