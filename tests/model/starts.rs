//! Starts an agent with the files on disk, as its `run` does.

use std::sync::Arc;
use std::time::Duration;

use baseosmgr::core::{Event as BaseosmgrEvent, RequiredTopic as From};
use nodeagent::core::{NodeAgent, RequiredReading, Waits};
use topics::{ContentTreeStatus, SwState};
use zedagent::core::Zedagent;
use zedkube::core::{Membership, Zedkube};

use super::effects::Gone;
use super::scenarios::Scenario;
use super::steps::Action;
use super::topics::{Fact, Leave, Link, TREE, Who};
use super::world::State;

impl State {
    /// The first state of a search and of random paths.
    pub(crate) fn first(scenario: &Scenario) -> Self {
        let mut state = Self::new(&Arc::new(scenario.clone()));
        if !scenario.from_boot {
            while let Some(next) = state.at_once() {
                state = next;
            }
        }
        if scenario.going_down {
            state = state.after(&Action::Change(0)).expect("the first change comes");
            while !state.is_going_down() {
                state = state.benign().expect("the machine goes down");
            }
        }
        state
    }

    pub(crate) fn start(&mut self, who: Who) -> Result<(), Gone> {
        let boot_id = self.boot_id();
        let now = self.now(who);
        if who != Who::Nodeagent && !self.disk.run.looked_in {
            let disk = self.disk();
            (disk.run.looked_in, disk.force) = (true, None);
        }
        match who {
            Who::Zedagent => {
                let disk = &self.disk;
                let found = zedagent::core::SavedDeviceOps {
                    counters: disk.counters.clone(),
                    pending: disk.pending.values().cloned().collect(),
                    request: disk.run.requests[0].clone(),
                    told: disk.run.zedagent.as_ref().is_some_and(|it| it.reboot_cmd || it.poweroff_cmd),
                    pause: disk.pause.clone(),
                    older: Vec::new(),
                    boot_id,
                };
                let (core, effects) =
                    Zedagent::new(&zedagent::Limits::default(), found, now, Self::booted_at(who));
                self.zedagent = Some(Arc::new(core));
                self.for_zedagent(effects)?;
                self.reads_pause(who)
            }
            Who::Nodeagent => {
                let run = &self.disk.run;
                let found = nodeagent::core::SavedNodeState {
                    said: run.nodeagent.as_deref().cloned(),
                    resumed: run.latched.clone(),
                    tested: run
                        .tested
                        .iter()
                        .filter(|(_, it)| **it)
                        .map(|(label, _)| label.to_string())
                        .collect(),
                    hv_type_kube: true,
                    question: run.question.clone().unwrap_or_default(),
                    ..nodeagent::core::SavedNodeState::default()
                };
                // nodeagent's limits for restarts of its own are not reached here.
                let waits =
                    Waits { fallback: Duration::MAX, no_controller: Duration::MAX, ..Waits::default() };
                let core = NodeAgent::new(nodeagent::Limits::default(), waits, found, now);
                self.nodeagent = Some(Arc::new(core));
                self.deliver(Fact::Nodeagent(nodeagent::core::Event::Heard(RequiredReading::Applications)))
            }
            Who::Zedkube => {
                let journal = self.disk.journal.clone();
                let answers = journal.iter().filter(|it| it.boot_id == boot_id).flat_map(|it| &it.answers);
                let resumes = answers.map(topics::Answer::id).collect();
                self.under().ghost.resumes = resumes;
                let limits = self.scenario.kube.clone();
                let (mut core, effects) = Zedkube::new(limits, journal, boot_id, now, Self::booted_at(who));
                core.answered(self.disk.run.outage.clone());
                self.zedkube = Some(Arc::new(core));
                self.for_zedkube(effects)?;
                if self.scenario.with_k3s {
                    self.hear(Link::K3sToZedkube)?;
                }
                self.reads_pause(who)?;
                if self.disk.leave == Leave::UnderWay {
                    let stands = zedkube::core::Event::Member(Membership::Leaving);
                    self.deliver(Fact::Zedkube(stands))?;
                }
                if let Some(learned) = self.scenario.learned.clone().filter(|_| !self.is_away()) {
                    let learned = zedkube::core::Event::Learned(Box::new(learned));
                    self.deliver(Fact::Zedkube(learned))?;
                }
                self.deliver(Fact::Zedkube(zedkube::core::Event::NodeKnown { name: "n1".to_owned() }))
            }
            Who::Baseosmgr => {
                let disk = &self.disk;
                let found = baseosmgr::core::SavedUpdates {
                    request: disk.run.requests[1].clone(),
                    statuses: disk.run.images.clone().into_iter().collect(),
                    counters: disk.saved,
                };
                let limits = baseosmgr::Limits::default();
                let core = baseosmgr::core::BaseOs::new(limits, disk.partitions.clone(), found);
                self.baseosmgr = Some(Arc::new(core));
                let tree = ContentTreeStatus { state: SwState::Loaded, ..Default::default() };
                [
                    BaseosmgrEvent::Tick,
                    BaseosmgrEvent::Tree { key: TREE.to_owned(), value: Some(Box::new(tree)) },
                    BaseosmgrEvent::Heard(From::Trees),
                    BaseosmgrEvent::Heard(From::LastBoot),
                    BaseosmgrEvent::Pause(self.disk.pause.clone()),
                ]
                .into_iter()
                .try_for_each(|event| self.deliver(Fact::Baseosmgr(event)))
            }
            Who::K3s => self.starts_k3s(),
        }
    }
}
