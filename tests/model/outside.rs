//! What answers the agents: the cluster, the device, a person with a shell.

use std::time::Duration;

use agent::device::MachineOperation;
use kubenodeop::node::boot::GateReport;
use kubenodeop::node::gate::{GateStatus, Layer, since_boot};
use kubenodeop::{AttemptFailure, DrainSuccess, WatchedBlockers};
use nodeagent::core::Took;
use outage::turn::rule::CordonMark;
use topics::{BootGate, CordonOwner, DrainMarks, NodeDrainRequest, Requester};
use zedkube::core::{NodeLook, RemainingPod, StartObstacle};

use super::effects::Gone;
use super::steps::How;
use super::topics::{Fact, REQUESTS, Who};
use super::world::{Look, State, Task, Work};

impl State {
    pub(crate) fn fails(&mut self) {
        if !self.is_away() {
            self.under().left.failures -= 1;
        }
    }

    pub(crate) fn operator(&mut self, asks: bool) {
        let request = asks.then(|| NodeDrainRequest {
            // Nobody else asks from this clock.
            requested_at: self.wall(Who::Nodeagent).plus(Duration::from_nanos(u64::from(self.under.changed))),
            requested_by: Requester::Operator,
            context: "by hand".to_owned(),
        });
        self.request(2, request);
    }

    /// What a task changes at the node, whether anybody hears of it or not.
    fn carried_out(&mut self, work: Work, mark: Option<CordonMark>) {
        let is_open = self.under.node.cordon == CordonOwner::None;
        match work {
            Work::Cordon => {
                if is_open {
                    self.cordon(CordonOwner::Ours);
                }
                let under = self.under();
                if under.node.cordon == CordonOwner::Ours {
                    (under.node.boot, under.node.mark) = (under.boot, mark);
                }
            }
            Work::Drain => {
                if is_open {
                    // The engine puts the cordon back.
                    self.cordon(CordonOwner::Ours);
                    self.under().node.mark = mark;
                }
                let under = self.under();
                (under.node.drained, under.node.has_new_pods) = (true, false);
            }
            Work::Probe | Work::Await | Work::Margin => {}
        }
    }

    /// zedkube is stopped in the middle of a cordon or of evictions: what is under way comes to its end, and is never heard.
    pub(crate) fn stop_in_task(&mut self) {
        if let Some(Task { work, mark, .. }) = self.under().task.take() {
            self.carried_out(work, mark);
        }
        self.crash(Who::Zedkube);
    }

    pub(crate) fn task_ends(&mut self, how: How) -> Result<(), Gone> {
        use zedkube::core::Event;
        let Some(Task { run_id: run, work, mark }) = self.under().task.take() else { return Ok(()) };
        let well = how == How::Well;
        let trouble = || "trouble".to_owned();
        match how {
            How::Well => {}
            How::Badly => self.fails(),
        }
        // The requests that zedkube has heard and that still stand.
        let standing: Vec<_> = REQUESTS
            .into_iter()
            .enumerate()
            .filter(|(_, link)| {
                self.heard[link.index()].as_ref().is_some_and(|heard| **heard == link.level(&self.disk))
            })
            .filter_map(|(nth, _)| self.request_of(nth).map(NodeDrainRequest::id))
            .collect();
        let event = match work {
            Work::Probe => {
                if !well {
                    self.under().ghost.skipped.extend(standing);
                }
                Event::Probed(run, if well { Ok(()) } else { Err(trouble()) })
            }
            Work::Cordon => {
                if well {
                    self.carried_out(work, mark);
                }
                let whose = self.under.node.cordon;
                Event::Cordoned(run, if well { Ok(whose) } else { Err("trouble".into()) })
            }
            Work::Await => Event::BlockerChanged(run, "trouble".to_owned()),
            Work::Margin => {
                Event::Spared(run, if well { Ok("all are healthy".to_owned()) } else { Err(trouble()) })
            }
            Work::Drain => match how {
                How::Well => {
                    self.carried_out(work, mark);
                    self.under().ghost.drained.extend(standing);
                    Event::Drained(
                        run,
                        Ok(DrainSuccess {
                            took: Duration::from_secs(3),
                            evicted: 2,
                            recordons: 0,
                            left: Vec::new(),
                        }),
                    )
                }
                How::Badly => {
                    self.under().ghost.failed_attempts += 1;
                    let failure = AttemptFailure {
                        reason: trouble(),
                        blockers: Vec::new(),
                        watched: WatchedBlockers::default(),
                        marks: DrainMarks::default(),
                    };
                    Event::Drained(run, Err(Box::new(failure)))
                }
            },
        };
        self.deliver(Fact::Zedkube(event))
    }

    pub(crate) fn preflight_ends(&mut self, how: How) -> Result<(), Gone> {
        let Some(run) = self.under().preflight.take() else { return Ok(()) };
        let found = if how == How::Well {
            self.under().ghost.unfit = false;
            Ok(Vec::new())
        } else {
            let away = self.is_away();
            self.fails();
            let next_step = "look at the node".to_owned();
            Err(StartObstacle { why: "trouble".to_owned(), next_step, away, of_node: !away })
        };
        self.deliver(Fact::Zedkube(zedkube::core::Event::Preflighted(run, found)))
    }

    pub(crate) fn look_ends(&mut self, how: How) -> Result<(), Gone> {
        let Some(Look { nth, uncordon, gate_open }) = self.under().look.take() else { return Ok(()) };
        let node = self.under.node.clone();
        let earlier = node.boot != self.under.boot;
        let seen = if how == How::Well {
            // What is seen counts from here on, and what was proved before does not.
            self.under().ghost.undone = false;
            if node.cordon != CordonOwner::Ours {
                // Somebody has uncordoned: what was left behind goes.
                self.under().node.mark = None;
            }
            match node.cordon {
                CordonOwner::None => {
                    self.cordon(CordonOwner::None);
                    Ok(NodeLook::Open)
                }
                owner if node.has_new_pods && !uncordon => {
                    let under = self.under();
                    under.node.drained = false;
                    under.ghost.drained.clear();
                    Ok(NodeLook::HasPods(owner, vec![stayer()]))
                }
                CordonOwner::Foreign => Ok(NodeLook::Foreign),
                CordonOwner::Ours if uncordon && earlier && !gate_open => Ok(NodeLook::NotReady),
                CordonOwner::Ours if uncordon => {
                    self.cordon(CordonOwner::None);
                    Ok(NodeLook::Open)
                }
                CordonOwner::Ours => Ok(NodeLook::Ours),
            }
        } else {
            self.fails();
            if uncordon && node.cordon == CordonOwner::Ours && earlier {
                Ok(NodeLook::NotReady)
            } else {
                Err("500".to_owned())
            }
        };
        self.deliver(Fact::Zedkube(zedkube::core::Event::Looked(nth, seen)))
    }

    /// The gate after the boot opens, or something shuts it for a time.
    pub(crate) fn gate_moves(&mut self, how: How) -> Result<(), Gone> {
        let open = how == How::Well;
        if !open {
            self.fails();
        }
        self.under().gate.told = Some(open);
        let since = since_boot(self.now(Who::Zedkube));
        let verdict = GateStatus {
            layer: (!open).then_some(Layer::Service),
            shown: BootGate { open, since, ..BootGate::default() },
            is_api_silent: !open,
            holds_turn: false,
        };
        let report = GateReport { verdict: Some(verdict), ..GateReport::default() };
        self.deliver(Fact::Zedkube(zedkube::core::Event::Gate(Box::new(report))))
    }

    /// The device does what it was asked for, or refuses.
    pub(crate) fn device(&mut self, how: How) -> Result<(), Gone> {
        let Some(order) = self.under().device.take() else { return Ok(()) };
        let operation = order.operation;
        if how == How::Well && operation != MachineOperation::Shutdown {
            self.judge_done(operation);
            self.boot();
            return Ok(());
        }
        let outcome = if how == How::Well {
            Ok(Took::Machine)
        } else {
            self.under().left.refusals -= 1;
            Err("busy".to_owned())
        };
        self.deliver(Fact::Nodeagent(nodeagent::core::Event::Operated { operation, outcome }))
    }
}

fn stayer() -> RemainingPod {
    let (namespace, name) = ("shop".to_owned(), "late-0".to_owned());
    RemainingPod { namespace, name, workload: String::new(), unknown: false }
}
