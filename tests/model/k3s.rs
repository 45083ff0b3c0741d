//! Updates of k3s, the fourth user of `requester::Hold`: the core that runs inside zedkube, the kube container that replaces
//! k3s as it is told, the kubelet that reports what runs.
//!
//! Never early: the kube container is told another version only for a request of which the node is proved empty, or for a
//! documented skip. Never stuck: what is wanted comes to run, and its request goes.

use std::sync::Arc;

use requester::{DeviceClustering, DrainTopicUpdate, ProceedReason, UNKNOWN_WAIT};
use topics::{K3sStage, K3sUpdate, NodeDrainRequest, Requester};
use zedkube::core::Membership;
use zedkube::k3s::{DesiredK3s, Effect, Event, K3s, Override, SavedK3sUpdate};

use super::effects::Gone;
use super::steps::{Action, How};
use super::topics::{Config, Disk, Fact, Volatile, Who, Writer};
use super::world::{Gate, State};

pub(crate) const REQUEST: usize = 3;
const OLD: &str = "v1.33.1+k3s1";
const NEW: &str = "v1.34.2+k3s1";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct K3sFiles {
    /// What the kube container is told.
    told: String,
    record: Option<K3sUpdate>,
}

impl Default for K3sFiles {
    fn default() -> Self {
        Self { told: OLD.to_owned(), record: None }
    }
}

/// Of the node and of what its core waits for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kubelet {
    reports: String,
    /// The number of the last look at it, and whether that is under way.
    looks: u64,
    is_looked_at: bool,
    gate: Gate,
}

impl Default for Kubelet {
    fn default() -> Self {
        Self { reports: OLD.to_owned(), looks: 0, is_looked_at: false, gate: Gate::default() }
    }
}

impl Kubelet {
    pub(crate) fn forget(&mut self) {
        (self.is_looked_at, self.gate) = (false, Gate::default());
    }
}

impl Config {
    pub(crate) fn version(self) -> &'static str {
        if self.k3s { NEW } else { OLD }
    }
}

/// What the core hears of a drain; the shell reads the progress right before the status.
pub(crate) fn heard(run: &Volatile, with_status: bool) -> Vec<Fact> {
    let topic = |it| Fact::K3s(Event::Drain(it));
    let progress = topic(DrainTopicUpdate::Progress(run.progress.clone()));
    let status = with_status.then(|| topic(DrainTopicUpdate::Status(run.status)));
    std::iter::once(progress).chain(status).collect()
}

pub(crate) fn wanted(version: &str) -> Fact {
    Fact::K3s(Event::Wanted(DesiredK3s { version: Some(version.to_owned()), ..DesiredK3s::default() }))
}

pub(crate) fn member(membership: Membership) -> Fact {
    let (cluster, leaves) = match membership {
        Membership::Undecided => (DeviceClustering::Undecided, false),
        Membership::Member => (DeviceClustering::Clustered, false),
        Membership::Leaving => (DeviceClustering::Single, true),
        Membership::Outside => (DeviceClustering::Single, false),
    };
    Fact::K3s(Event::Member(cluster, leaves))
}

/// Both topics of the drain were read.
pub(crate) fn read() -> Vec<Fact> {
    vec![Fact::K3s(Event::Drain(DrainTopicUpdate::Read))]
}

/// What its update says of the node.
pub(crate) fn hold(disk: &Disk) -> Fact {
    let hold = zedkube::core::K3sHold::of(disk.k3s.record.as_ref());
    Fact::Zedkube(zedkube::core::Event::K3s(hold))
}

impl State {
    pub(crate) fn starts_k3s(&mut self) -> Result<(), Gone> {
        let who = Who::K3s;
        let found = SavedK3sUpdate {
            version: self.disk.k3s.told.clone(),
            on_boot: false,
            record: self.disk.k3s.record.clone(),
            request: self.request_of(REQUEST).cloned(),
            pause: self.disk.pause.clone(),
            boot_id: self.boot_id(),
            booted_at: Self::booted_at(who),
        };
        let (core, effects) = K3s::new(found, self.now(who));
        self.k3s = Some(Arc::new(core));
        self.for_k3s(effects)?;
        self.reads_pause(who)
    }

    pub(crate) fn for_k3s(&mut self, effects: Vec<Effect>) -> Result<(), Gone> {
        let mut reads = false;
        for effect in effects {
            if !matches!(effect, Effect::Say(_) | Effect::Look(_) | Effect::Gate(_) | Effect::ReadFile) {
                self.burn()?;
                self.touched.files_of(Writer::Zedkube);
            }
            match effect {
                Effect::Journal(record) => self.disk().k3s.record = Some(*record),
                Effect::Forget => self.disk().k3s.record = None,
                Effect::Request(request) => {
                    self.judge_start(Who::K3s, "a drain is asked for");
                    self.request(REQUEST, Some(request));
                }
                Effect::Withdraw => self.request(REQUEST, None),
                Effect::Version(version) => {
                    self.judge_version(&version);
                    self.disk().k3s.told = version;
                }
                Effect::Look(number) => {
                    let kubelet = &mut self.under().kubelet;
                    (kubelet.looks, kubelet.is_looked_at) = (number, true);
                }
                Effect::Gate(on) => self.under().kubelet.gate = Gate { watched: on, told: None },
                Effect::ReadFile => reads = true,
                Effect::OnBoot(_) | Effect::File(_) | Effect::Say(_) => {}
            }
        }
        // There is no override file, here or in the config.
        let none = Fact::K3s(Event::File(Some(Override::default())));
        if reads { self.deliver(none) } else { Ok(()) }
    }

    /// What of it may happen next.
    pub(crate) fn k3s_actions(&self, out: &mut Vec<Action>) {
        let kubelet = &self.under.kubelet;
        if kubelet.is_looked_at {
            out.extend(self.hows().map(Action::Kubelet));
        }
        if kubelet.gate.watched {
            let news = |how: &How| kubelet.gate.told != Some(*how == How::Well);
            out.extend(self.hows().filter(news).map(Action::K3sGate));
        }
        if kubelet.reports != self.disk.k3s.told {
            out.push(Action::Replace);
        }
    }

    /// The first of these that goes well, or badly.
    pub(crate) fn k3s_at_once(&self, how: How) -> Option<Action> {
        let mut actions = Vec::new();
        if self.k3s.is_some() {
            self.k3s_actions(&mut actions);
        }
        let wanted = [Action::Kubelet(how), Action::K3sGate(how), Action::Replace];
        actions.into_iter().find(|it| wanted.contains(it))
    }

    /// The kube container replaces k3s; so does a boot.
    pub(crate) fn replaces_k3s(&mut self) {
        let told = self.disk.k3s.told.clone();
        self.under().kubelet.reports = told;
    }

    /// A look at the kubelet ends, or one at the gate.
    pub(crate) fn k3s_sees(&mut self, (how, gate): (How, bool)) -> Result<(), Gone> {
        let well = how == How::Well;
        if !well {
            self.fails();
        }
        let event = if gate {
            self.under().kubelet.gate.told = Some(well);
            Event::Gate((!well).then(|| "trouble".to_owned()))
        } else {
            let kubelet = &mut self.under().kubelet;
            kubelet.is_looked_at = false;
            let reports = if well { Ok(kubelet.reports.clone()) } else { Err("trouble".to_owned()) };
            Event::Reported(kubelet.looks, reports)
        };
        self.deliver(Fact::K3s(event))
    }

    /// The kube container is told this version.
    fn judge_version(&mut self, version: &str) {
        let skip = self.disk.k3s.record.as_ref().map(|it| it.skip.clone()).unwrap_or_default();
        let id = self.request_of(REQUEST).map(NodeDrainRequest::id);
        let ghost = &self.under.ghost;
        let forced = self.forced(Requester::K3sUpdate);
        let here = version == self.under.kubelet.reports;
        let may = if skip.is_empty() {
            // One that replaces what was handed over has its turn, and its node, already.
            id.is_some_and(|id| ghost.drained.contains(&id)) && (self.under.node.drained || ghost.undone)
                || !self.disk.run.member.is_some_and(|it| it.0)
        } else {
            let silent = skip == ProceedReason::Silent { waited_secs: UNKNOWN_WAIT.as_secs() }.skip();
            here || forced || ghost.excused || silent || id.is_some_and(|id| ghost.skipped.contains(&id))
        };
        if !forced && !here {
            self.judge_start(Who::K3s, "k3s is replaced");
        }
        if !may {
            self.wrong(format!("P3: k3s is replaced undrained (skip {skip:?})"));
        }
    }

    /// It was let go ahead, and the kube container is not told.
    pub(crate) fn may_replace_k3s(&self) -> bool {
        self.disk.k3s.told != self.disk.config.version()
            && self.disk.run.k3s == Some(self.disk.config.version())
    }

    pub(crate) fn k3s_unfulfilled(&self) -> bool {
        let (disk, wanted) = (&self.disk, self.disk.config.version());
        let done = disk.k3s.record.as_ref().is_none_or(|it| it.stage == K3sStage::Done);
        self.scenario.with_k3s && !(done && disk.k3s.told == wanted && self.under.kubelet.reports == wanted)
    }
}
