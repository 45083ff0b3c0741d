//! One device with its node, as a value: the four cores, files, what each core has read, tasks under way.
//!
//! Each agent has a clock of its own, so that their timers fire in any order.

use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent::partitions::{Label, Partition, PartitionState, Partitions};
use baseosmgr::core::BaseOs;
use nodeagent::core::{MachineOrder, NodeAgent};
use outage::keeper::Ask;
use outage::turn::rule::CordonMark;
use step::{Core as _, Mono};
use topics::{CordonOwner, DeviceOp, GoTime, NodeDrainRequest};
use zedagent::core::Zedagent;
use zedkube::core::Zedkube;
use zedkube::k3s::K3s;

use super::k3s::{K3sFiles, Kubelet};
use super::print::Print;
use super::properties::Ghost;
use super::scenarios::Scenario;
use super::topics::{ALL, Disk, Fact, IMAGE, LINKS, Leave, Link, TREE, Volatile, Who, Writer};

pub(crate) const OLD: &str = "14.4.0-k-amd64";

const NEVER: Duration = Duration::from_hours(1 << 20);

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Task {
    pub(crate) run_id: u64,
    pub(crate) work: Work,
    pub(crate) mark: Option<CordonMark>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Probe,
    Cordon,
    Drain,
    /// Waits for a change of the last attempt's blockers.
    Await,
    /// Asks etcd and its members for the margin, without the API.
    Margin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) nth: u64,
    pub(crate) uncordon: bool,
    pub(crate) gate_open: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Gate {
    pub(crate) watched: bool,
    pub(crate) told: Option<bool>,
}

/// The Node object, and the truth about the node.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Node {
    pub(crate) cordon: CordonOwner,
    /// The boot of our cordon.
    pub(crate) boot: u32,
    /// Its turn, where nodes take turns. A foreign uncordon leaves it behind.
    pub(crate) mark: Option<CordonMark>,
    /// Proved empty while cordoned, and cordoned ever since.
    pub(crate) drained: bool,
    pub(crate) has_new_pods: bool,
}

/// Tasks under way, and how much trouble has happened.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Under {
    pub(crate) node: Node,
    pub(crate) task: Option<Task>,
    pub(crate) look: Option<Look>,
    pub(crate) preflight: Option<u64>,
    /// Whether zedkube watches the drained node, and whether there is news of it.
    pub(crate) guard: Option<bool>,
    pub(crate) gate: Gate,
    pub(crate) kubelet: Kubelet,
    /// Unread result of a cancelled task.
    pub(crate) late: Option<zedkube::core::Event>,
    pub(crate) results: Vec<baseosmgr::core::Event>,
    pub(crate) device: Option<MachineOrder>,
    pub(crate) boot: u32,
    pub(crate) parted: bool,
    pub(crate) left: Budget,
    pub(crate) changed: u32,
    pub(crate) ghost: Ghost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Budget {
    /// Agents that end, between two steps or within one.
    pub(crate) crashes: u8,
    /// Power cuts, between two steps or within one.
    pub(crate) cuts: u8,
    /// Failing tasks, and closed gates.
    pub(crate) failures: u8,
    pub(crate) forces: u8,
    pub(crate) unforces: u8,
    pub(crate) hands: u8,
    pub(crate) pods: u8,
    pub(crate) refusals: u8,
}

#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) zedagent: Option<Arc<Zedagent>>,
    pub(crate) nodeagent: Option<Arc<NodeAgent>>,
    pub(crate) zedkube: Option<Arc<Zedkube>>,
    pub(crate) baseosmgr: Option<Arc<BaseOs>>,
    /// Within zedkube, with its clock.
    pub(crate) k3s: Option<Arc<K3s>>,
    /// By process.
    clocks: [Mono; 4],
    pub(crate) disk: Arc<Disk>,
    pub(crate) under: Arc<Under>,
    /// Facts of each topic that were read; `None` before the first reading.
    pub(crate) heard: Arc<Vec<Option<Arc<Vec<Fact>>>>>,
    pub(crate) asked: Arc<Vec<GoTime>>,
    /// Topics with news, by [`Link::index`].
    pub(crate) news: u64,
    /// Questions for the keeper of its turn; `site` takes them at once.
    pub(crate) asks: Vec<Ask>,
    /// Of the step that is under way: after how many effects the agent or the power ends, and what was touched.
    pub(crate) fuse: Option<usize>,
    pub(crate) touched: Touched,
    /// Of its parts, each computed on demand after it was touched.
    prints: [OnceLock<Print>; 11],
    fingerprint: OnceLock<u64>,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint() == other.fingerprint()
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.fingerprint());
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Touched {
    /// The cores, in the order of [`ALL`].
    pub(crate) agents: [bool; 5],
    pub(crate) files: [bool; 5],
}

impl Touched {
    pub(crate) const ALL: Self = Self { agents: [true; 5], files: [true; 5] };

    pub(crate) fn files_of(&mut self, writer: Writer) {
        self.files[writer as usize] = true;
    }
}

impl State {
    /// An old image, an idle node, and no agent started.
    pub(crate) fn new(scenario: &Arc<Scenario>) -> Self {
        let partition = |label, state, version: &str, content: String| Partition {
            label,
            device: String::new(),
            state,
            short_version: version.to_owned(),
            long_version: String::new(),
            size_bytes: 512 << 20,
            content,
        };
        let spare = if scenario.in_test { PartitionState::Inprogress } else { PartitionState::Unused };
        let partitions = Partitions {
            current: if scenario.in_test { Label::B } else { Label::A },
            a: partition(Label::A, PartitionState::Active, OLD, String::new()),
            b: partition(Label::B, spare, IMAGE, format!("{TREE}#0")),
        };
        let counter =
            |counter| topics::DeviceOpsCmd { counter, desired_state: true, ops_time: String::new() };
        let counters = [DeviceOp::Reboot, DeviceOp::Shutdown].map(|op| (op, counter(6)));
        let saved = baseosmgr::core::Counters { fallback: Some(0), ..Default::default() };
        let disk = Disk {
            config: scenario.config,
            force: None,
            pause: None,
            counters: counters.into_iter().collect(),
            pending: std::collections::BTreeMap::new(),
            journal: None,
            saved,
            partitions,
            leave: Leave::Outside,
            k3s: K3sFiles::default(),
            run: Volatile::default(),
        };
        let under = Under {
            node: Node { cordon: scenario.cordon, ..Node::default() },
            boot: 1,
            left: scenario.budget,
            ..Under::default()
        };
        let start = Mono::from_start(Duration::from_secs(100));
        let mut state = Self {
            scenario: Arc::clone(scenario),
            zedagent: None,
            nodeagent: None,
            zedkube: None,
            baseosmgr: None,
            k3s: None,
            clocks: [start; 4],
            disk: Arc::new(disk),
            under: Arc::new(under),
            heard: Arc::new(vec![None; LINKS.len()]),
            asked: Arc::new(Vec::new()),
            news: 0,
            asks: Vec::new(),
            fuse: None,
            touched: Touched::ALL,
            prints: Default::default(),
            fingerprint: OnceLock::new(),
        };
        state.seal();
        state
    }

    pub(crate) fn boot_id(&self) -> String {
        format!("b{}", self.under.boot)
    }

    /// Wall clock of an agent; no two agents ever have the same time.
    pub(crate) fn wall(&self, who: Who) -> GoTime {
        Self::booted_at(who).plus(self.now(who).since_start())
    }

    /// Start of the boot, by that clock.
    pub(crate) fn booted_at(who: Who) -> GoTime {
        let base = match who {
            Who::Zedagent => "2026-01-01T00:00:00Z",
            Who::Nodeagent => "2027-01-01T00:00:00Z",
            Who::Zedkube => "2028-01-01T00:00:00Z",
            Who::Baseosmgr => "2029-01-01T00:00:00Z",
            Who::K3s => "2030-01-01T00:00:00Z",
        };
        base.parse().expect("it is a time")
    }

    pub(crate) fn now(&self, who: Who) -> Mono {
        self.clocks[who.process() as usize]
    }

    pub(crate) fn set_now(&mut self, who: Who, now: Mono) {
        self.clocks[who.process() as usize] = now;
    }

    pub(crate) fn runs(&self, who: Who) -> bool {
        match who {
            Who::Zedagent => self.zedagent.is_some(),
            Who::Nodeagent => self.nodeagent.is_some(),
            Who::Zedkube => self.zedkube.is_some(),
            Who::Baseosmgr => self.baseosmgr.is_some(),
            Who::K3s => self.k3s.is_some(),
        }
    }

    pub(crate) fn wake(&self, who: Who) -> Option<Mono> {
        let due = match who {
            Who::Zedagent => self.zedagent.as_ref()?.next_wake(),
            Who::Nodeagent => self.nodeagent.as_ref()?.next_wake(),
            Who::Zedkube => self.zedkube.as_ref()?.next_wake(),
            Who::Baseosmgr => self.baseosmgr.as_ref()?.next_wake(),
            Who::K3s => self.k3s.as_ref()?.next_wake(),
        };
        due.filter(|due| due.since(self.now(who)) < NEVER)
    }

    pub(crate) fn takes_part(&self, who: Who) -> bool {
        match who {
            Who::Baseosmgr => self.scenario.with_images,
            Who::K3s => self.scenario.with_k3s && self.zedkube.is_some(),
            Who::Zedagent | Who::Nodeagent | Who::Zedkube => true,
        }
    }

    pub(crate) fn is_away(&self) -> bool {
        self.scenario.away || self.under.parted
    }

    pub(crate) fn disk(&mut self) -> &mut Disk {
        Arc::make_mut(&mut self.disk)
    }

    pub(crate) fn under(&mut self) -> &mut Under {
        Arc::make_mut(&mut self.under)
    }

    pub(crate) fn request_of(&self, nth: usize) -> Option<&NodeDrainRequest> {
        self.disk.run.requests[nth].as_ref()
    }

    /// The agent ends: its memory and tasks are gone. Its call to the device continues.
    pub(crate) fn crash(&mut self, who: Who) {
        let under = Arc::make_mut(&mut self.under);
        match who {
            Who::Zedagent => self.zedagent = None,
            Who::Nodeagent => self.nodeagent = None,
            Who::Zedkube => {
                (self.zedkube, self.k3s) = (None, None);
                self.asks.clear();
                under.kubelet.forget();
                (under.task, under.look, under.guard, under.late) = (None, None, None, None);
                under.gate = Gate::default();
            }
            Who::Baseosmgr => {
                self.baseosmgr = None;
                under.results.clear();
            }
            Who::K3s => {}
        }
        let heard = Arc::make_mut(&mut self.heard);
        for link in LINKS.iter().filter(|link| link.who().process() == who) {
            heard[link.index()] = None;
        }
    }

    pub(crate) fn boot(&mut self) {
        for who in ALL {
            self.crash(who);
        }
        self.replaces_k3s();
        let commanded = |it: &&topics::DeviceOpPending| it.state == topics::PendingState::Commanded;
        // Any boot after the command fulfils it.
        let done: Vec<_> =
            self.disk.pending.values().filter(commanded).map(|it| (it.op, it.counter)).collect();
        let disk = self.disk();
        disk.run = Volatile::default();
        load(&mut disk.partitions);
        let under = self.under();
        under.boot += 1;
        under.device = None;
        (under.node.drained, under.node.has_new_pods) = (false, false);
        under.ghost.done.extend(done);
        under.ghost.boot();
    }

    /// Ends a step: computes news; touched parts get new fingerprints.
    pub(crate) fn seal(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        self.fuse = None;
        if touched.files.contains(&true) {
            let standing: Vec<_> =
                self.disk.run.requests.iter().flatten().map(NodeDrainRequest::id).collect();
            self.under().ghost.keep_only(&standing);
        }
        for link in LINKS.iter().filter(|link| touched.files[link.writer() as usize]) {
            let used = self.takes_part(link.who()) && link.is_used(&self.scenario);
            let news = used && self.runs(link.who()) && {
                let heard = self.heard[link.index()].as_ref();
                let level = link.level(&self.disk);
                let from = link.beside(&level);
                heard.is_none_or(|heard| heard[link.beside(heard)..] != level[from..])
            };
            self.news = self.news & !(1 << link.index()) | u64::from(news) << link.index();
        }
        let stale = |part: usize| match part {
            0..5 => touched.agents[part] || part == 4 && touched.agents[2],
            // zedkube's journal contains the time, too.
            5..10 => touched.files[part - 5] || part - 5 == Writer::Zedkube as usize && touched.agents[2],
            _ => true,
        };
        for part in (0..self.prints.len()).filter(|part| stale(*part)) {
            self.prints[part].take();
        }
        self.fingerprint.take();
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        let print = |part: usize| self.prints[part].get_or_init(|| self.print(part));
        *self.fingerprint.get_or_init(|| Print::all((0..self.prints.len()).map(print)))
    }

    /// The cores, the files of each [`Writer`] in order, and the rest.
    fn print(&self, part: usize) -> Print {
        let (disk, run, kube) = (&self.disk, &self.disk.run, self.now(Who::Zedkube));
        let asked = &run.requests;
        let of = |value: &dyn Debug, now| Print::of(&value, now, &self.asked);
        match part {
            0 => of(&self.zedagent, self.now(Who::Zedagent)),
            1 => of(&self.nodeagent, self.now(Who::Nodeagent)),
            2 => of(&self.zedkube, kube),
            3 => of(&self.baseosmgr, self.now(Who::Baseosmgr)),
            4 => of(&self.k3s, kube),
            5 => {
                let published = (run.member, run.image, run.k3s, &asked[0], &run.zedagent);
                of(&(&disk.counters, &disk.pending, published), kube)
            }
            6 => of(&(&run.nodeagent, &run.latched, &run.tested, &run.question), kube),
            7 => {
                let of_k3s = (&disk.k3s, &asked[3]);
                of(&(&disk.journal, disk.leave, &run.status, &run.progress, &run.outage, of_k3s), kube)
            }
            8 => of(&(&disk.saved, &disk.partitions, &asked[1], &run.zboot, &run.images), kube),
            9 => of(&(disk.config, disk.force, &disk.pause, run.looked_in, &asked[2]), kube),
            _ => {
                let first = self.heard.iter().map(Option::is_none).collect::<Vec<_>>();
                of(&(&self.under, first, self.news), Mono::START)
            }
        }
    }

    /// The fingerprint's text, for a person.
    pub(crate) fn text(&self) -> String {
        let news: Vec<_> = LINKS.iter().filter(|link| self.news >> link.index() & 1 == 1).collect();
        [
            Print::text(&self.zedagent, self.now(Who::Zedagent), &self.asked),
            Print::text(&self.nodeagent, self.now(Who::Nodeagent), &self.asked),
            Print::text(&self.zedkube, self.now(Who::Zedkube), &self.asked),
            Print::text(&self.baseosmgr, self.now(Who::Baseosmgr), &self.asked),
            Print::text(&self.k3s, self.now(Who::Zedkube), &self.asked),
            Print::text(&self.disk, self.now(Who::Zedkube), &self.asked),
            Print::text(&self.under, Mono::START, &self.asked),
            format!("news: {news:?}"),
        ]
        .join("\n")
    }

    pub(crate) fn has_news(&self, link: Link) -> bool {
        self.news >> link.index() & 1 == 1
    }
}

fn load(partitions: &mut Partitions) {
    let (before, other) = (partitions.current, partitions.current.other());
    let state = partitions.get(before).state;
    let spare = match other {
        Label::A => &mut partitions.a,
        Label::B => &mut partitions.b,
    };
    if spare.state == PartitionState::Updating {
        spare.state = PartitionState::Inprogress;
        partitions.current = other;
    } else if state != PartitionState::Active && spare.state == PartitionState::Active {
        partitions.current = other;
    }
}
