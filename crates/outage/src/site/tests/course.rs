//! Whole courses of a shutdown, a reboot and a restart: every order of looks, readings that are old, nodes cut off between any
//! two writes, two that work for all at once, an API that answers only while half of the servers are up, nodes that come
//! back in any order or never, drains that fail.

use std::time::Duration;

use step::Dice;
use topics::SiteOperation;

use super::super::coordinate::{self, is_gone, stage, works_for_all};
use super::super::member::{self, GOING_LIMIT, Next, Reboot, SiteFacts};
use super::super::operator::{self, advance, current, hear, last_restart, pass};
use super::super::record::{MachineAction, MachineSeen, Machines, NodeStep, RunStrategy};
use super::super::record::{Move, PhaseReadings, ScaledWorkload, SiteKind, SitePhase, SiteRecord};
use super::restart::{node, own, said, wish, wish_of_all};
use crate::turn::record::TurnRecord;
use crate::turn::rule::TurnNode;

#[derive(Debug, Default)]
struct Machine {
    name: &'static str,
    boot: u32,
    up: bool,
    /// Its device config has ordered what the operation does. It never comes back.
    dead: bool,
    disk: Option<SiteOperation>,
    cordoned: bool,
    /// What it read last, which others may have written since.
    read: Option<TurnRecord>,
    /// For how many looks it has waited, and for what.
    waited: (u32, bool),
    /// For how many looks it has worked for all, in which stage, and for how many of them all was well.
    lasted: (u32, String, u32),
    /// Of a restart: its agents have the order, and how far they are with it: drained at 3, ordered to reboot at 4, down at 5.
    ordered: u32,
}

impl Machine {
    fn is_at(&self, steps: &[NodeStep]) -> bool {
        self.disk.as_ref().is_some_and(|it| steps.iter().any(|step| step.text() == it.step))
    }

    /// It is off, or it was since it had the order to go: power that came back is the way up.
    fn went(&self) -> bool {
        let later = self.disk.as_ref().is_some_and(|it| it.boot_id != format!("b{}", self.boot));
        !self.up
            || self.is_at(&[NodeStep::Booted])
            || later && self.is_at(&[NodeStep::Ready, NodeStep::Going])
    }
}

/// A site in an operation; every word is written by comparison with what was read.
struct Site {
    machines: Vec<Machine>,
    record: TurnRecord,
    replicas: i64,
    marked: bool,
    /// A virtual machine, and the words with which it began.
    vm: MachineSeen,
    first: RunStrategy,
    /// Who went by its order.
    went: Vec<&'static str>,
    dice: Dice,
    kind: SiteKind,
    /// The machine of which drains fail.
    failing: Option<usize>,
    /// How often power is lost still, and one in how many times.
    cuts: (u32, usize),
}

impl Site {
    fn new(seed: u64, names: &[&'static str], kind: SiteKind) -> Self {
        let machine = |name: &&'static str| Machine { name, boot: 1, up: true, ..Machine::default() };
        let wish = if kind == SiteKind::Restart { wish() } else { wish_of_all(kind.clone()) };
        let nodes: Vec<TurnNode> = names.iter().map(|it| node(it)).collect();
        Self {
            machines: names.iter().map(machine).collect(),
            record: operator::begin(&TurnRecord::default(), &wish, &nodes).unwrap(),
            replicas: 3,
            marked: false,
            vm: vm(seed),
            first: vm(seed).strategy,
            went: Vec::new(),
            dice: Dice::new(seed),
            kind,
            failing: None,
            cuts: (0, 20),
        }
    }

    fn nodes(&self) -> Vec<TurnNode> {
        let seen = |it: &Machine| TurnNode {
            ready: it.up,
            boot_id: format!("b{}", it.boot),
            unschedulable: it.cordoned,
            ..node(it.name)
        };
        self.machines.iter().map(seen).collect()
    }

    fn site(&self) -> Option<SiteRecord> {
        current(&self.record).unwrap()
    }

    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.dice.draw() % most as u64).unwrap()
    }

    fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    fn answers(&self) -> bool {
        let nodes = self.nodes();
        let servers = nodes.iter().filter(|it| it.server);
        servers.clone().filter(|it| it.ready).count() * 2 > servers.count()
    }

    fn write(&mut self, record: TurnRecord) {
        if self.answers() {
            self.record = record;
        }
    }

    fn is_cut(&mut self) -> bool {
        let (left, of) = self.cuts;
        let is_cut = left > 0 && self.chance(of);
        self.cuts.0 -= u32::from(is_cut);
        is_cut
    }

    fn power_off(&mut self, at: usize) {
        let Machine { name, boot, dead, disk, cordoned, .. } = std::mem::take(&mut self.machines[at]);
        self.machines[at] = Machine { name, boot, dead, disk, cordoned, ..Machine::default() };
    }

    fn power_on(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        (machine.up, machine.ordered, machine.boot) = (true, 0, machine.boot + 1);
    }

    fn reads(&mut self, at: usize) {
        if self.machines[at].up && self.answers() {
            self.machines[at].read = Some(self.record.clone());
        }
    }

    /// One look of one node. Sometimes what was read before is acted upon only now.
    fn looks(&mut self, at: usize) {
        // A guest takes its time.
        if self.vm.stopping && self.chance(8) {
            (self.vm.alive, self.vm.stopping) = (false, false);
        }
        if self.machines[at].read.is_none() || !self.chance(4) {
            self.reads(at);
        }
        self.acts(at);
    }

    /// It acts by what it read last. It may be cut off anywhere: the next boot finds what is on its disk.
    fn acts(&mut self, at: usize) {
        let (nodes, machine) = (self.nodes(), &self.machines[at]);
        if !machine.up {
            return;
        }
        let own = own(machine.name, &format!("b{}", machine.boot));
        let read = machine.read.clone().filter(|_| self.answers());
        let site = read.as_ref().and_then(|record| current(record).unwrap());
        let members = site.iter().flat_map(|site| site.nodes.iter().map(move |it| (site, it)));
        let gone = members.filter(|(site, it)| is_gone(site, it, &nodes)).map(|(_, it)| it.node.clone());
        let peers = nodes.iter().filter(|it| it.server && it.ready && it.name != own.node).count();
        let failed = if self.failing == Some(at) && machine.ordered >= 2 { "its drain failed" } else { "" };
        let commanded = machine.ordered >= 4;
        let facts = SiteFacts {
            cordoned: machine.cordoned,
            open: !machine.cordoned,
            leads: own.node == "a",
            peers: nodes[at].server.then_some(peers),
            gone: gone.collect(),
            waited: if machine.waited.1 && machine.waited.0 > 40 { GOING_LIMIT } else { Duration::ZERO },
            reboot: Reboot { commanded, failed: failed.to_owned(), ..Reboot::default() },
            ..SiteFacts::default()
        };
        let disk = machine.disk.as_ref();
        let next = match (&read, &site) {
            (None, _) => member::next(&own, disk, Err("no quorum"), &facts),
            (_, None) => Next::default(),
            (_, Some(site)) => member::next(&own, disk, Ok(site), &facts),
        };
        let (restarts, is_silent) = (self.kind == SiteKind::Restart, read.is_none());
        let goes = next.disk.as_ref().is_some_and(|it| it.go);
        let released = next.disk.as_ref().is_none_or(|it| it.released);
        let machine = &mut self.machines[at];
        let key = next.disk.as_ref().is_some_and(|it| it.all_ready) || is_silent;
        machine.waited = if machine.waited.1 == key { (machine.waited.0 + 1, key) } else { (0, key) };
        machine.disk.clone_from(&next.disk);
        if self.is_cut() {
            return self.power_off(at);
        }
        let machine = &mut self.machines[at];
        if restarts && goes {
            machine.ordered = machine.ordered.max(1);
        } else if restarts && machine.ordered < 4 {
            (machine.ordered, machine.cordoned) = (0, false);
        } else if next.cordon {
            assert!(!is_silent);
            machine.cordoned = true;
        } else if !restarts && released && !is_silent {
            // What the gate after the boot does, once nothing holds the node.
            machine.cordoned = false;
        }
        if self.is_cut() {
            return self.power_off(at);
        }
        if let (Some(site), Some(ack)) = (&site, next.say) {
            // It is written into whatever the record is by then.
            self.write(hear(&self.record, site, &ack).unwrap());
        }
        if goes && !restarts {
            self.went.push(self.machines[at].name);
            self.power_off(at);
            if self.kind == SiteKind::Reboot {
                self.power_on(at);
            }
        } else if let Some(site) = site
            && works_for_all(&own.node, &site, &nodes, Duration::ZERO)
        {
            self.works_for_all(at, &site, &nodes);
        }
    }

    fn works_for_all(&mut self, at: usize, site: &SiteRecord, nodes: &[TurnNode]) {
        let restarts = self.kind == SiteKind::Restart;
        let (is_well, stage) = (!restarts || !self.chance(3), stage(site, nodes));
        let lasted = &mut self.machines[at].lasted;
        if lasted.1 != stage {
            *lasted = (0, stage, 0);
        }
        (lasted.0, lasted.2) = (lasted.0 + 1, if is_well { lasted.2 + 1 } else { 0 });
        let (looks, well) = (lasted.0, lasted.2);
        let down = site.phase == SitePhase::Stopping && self.replicas > 0;
        let up = site.phase == SitePhase::Restoring && self.marked;
        let work = (down || up).then(|| ScaledWorkload {
            kind: "deployments",
            namespace: "shop".to_owned(),
            name: "db".to_owned(),
            replicas: if down { 0 } else { 3 },
            mark: None,
            version: String::new(),
        });
        let guests = if self.vm.alive { vec!["shop/vm".to_owned()] } else { Vec::new() };
        let found = PhaseReadings {
            machines: Machines { all: vec![self.vm.clone()], guests, ..Machines::default() },
            work: work.into_iter().collect(),
            lasted: Duration::from_secs(u64::from(looks) * 15),
            well: Duration::from_secs(u64::from(well) * 3),
            blocking: if is_well { vec![] } else { vec!["nodes fail".to_owned()] },
            ..PhaseReadings::default()
        };
        let to = match coordinate::next(site, nodes, &found) {
            Move::Wait(waits, next) => Some(SiteRecord { waits, next, ..site.clone() }),
            Move::Scale(_) => {
                (self.replicas, self.marked) = if down { (0, true) } else { (3, false) };
                return;
            }
            Move::Machines(work) => return self.turn(at, &work[0].turn),
            Move::To(to) => Some(*to),
            Move::End => None,
        };
        if to.as_ref().is_some_and(|it| it.phase == SitePhase::WorkersGoing) {
            assert_eq!(self.replicas, 0, "the volumes of applications are still in use");
            assert!(!self.vm.alive, "a machine runs");
        }
        self.write(advance(&self.record, site, to.as_ref()).unwrap());
    }

    /// What is done with the machine, cut off between any two writes.
    fn turn(&mut self, at: usize, turn: &MachineAction) {
        assert_ne!(self.kind, SiteKind::Restart, "a restart stops and starts no machine");
        match turn {
            MachineAction::Set(strategy, mark) => {
                let known = mark.as_ref().is_none_or(|it| it.was == self.first);
                assert!(known, "what it had is lost");
                (self.vm.strategy, self.vm.mark) = (strategy.clone(), mark.clone());
                (self.vm.alive, self.vm.stopping) = (true, mark.is_some());
            }
            MachineAction::Stop(mark) => {
                self.vm.mark = Some(mark.clone());
                if self.cuts.0 > 0 && self.chance(2) {
                    return self.power_off(at);
                }
                self.vm.stopping = true;
            }
            MachineAction::Later => {}
            MachineAction::Start => {
                self.vm.alive = true;
                if self.cuts.0 > 0 && self.chance(2) {
                    return self.power_off(at);
                }
                self.vm.mark = None;
            }
            MachineAction::Leave => self.vm.mark = None,
        }
    }

    /// The applications and the machine are as they were at first.
    fn assert_restored(&self, what: &str) {
        assert_eq!((self.replicas, self.marked), (3, false), "{what}");
        assert_eq!((&self.vm.strategy, &self.vm.mark, self.vm.alive), (&self.first, &None, true), "{what}");
    }

    /// Nodes look by chance, until this holds. With power cuts a machine comes back from one by itself.
    fn turns(&mut self, done: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..20_000 {
            if done(self) {
                return true;
            }
            let at = self.below(self.machines.len());
            if self.machines[at].up {
                self.looks(at);
            } else if self.cuts.0 > 0 && self.chance(5) {
                // A power cut, not the order to go.
                if !self.machines[at].is_at(&[NodeStep::Going]) || self.kind == SiteKind::Reboot {
                    self.power_on(at);
                }
            }
        }
        false
    }

    /// So many looks by chance.
    fn some_turns(&mut self, many: usize) {
        let many = self.below(many);
        for _ in 0..many {
            let at = self.below(self.machines.len());
            if self.machines[at].up {
                self.looks(at);
            }
        }
    }

    /// Of a restart: the machine's own agents, and its power.
    fn lives(&mut self, at: usize) {
        if self.is_cut() {
            self.power_off(at);
        }
        let down = self.machines.iter().filter(|it| it.ordered > 2).count();
        let machine = &mut self.machines[at];
        match (machine.up, machine.ordered) {
            (false, _) => self.power_on(at),
            (true, 4..) => {
                assert!(down <= 1, "two are down");
                self.went.push(machine.name);
                self.power_off(at);
                self.machines[at].ordered = 5;
            }
            (true, 3) => machine.ordered = 4,
            (true, 2) if self.failing == Some(at) => {}
            (true, 1 | 2) => (machine.ordered, machine.cordoned) = (machine.ordered + 1, true),
            // The gate after the boot.
            (true, 0) => machine.cordoned = false,
        }
        let ordered: Vec<_> = self.machines.iter().filter(|it| it.ordered > 0).map(|it| it.name).collect();
        assert!(ordered.len() <= 1, "{ordered:?} go together");
    }

    fn is_over(&self) -> bool {
        let quiet = |it: &Machine| it.dead || it.up && it.disk.is_none() && !it.cordoned;
        self.record.mode.is_none() && self.machines.iter().all(quiet)
    }
}

/// A machine that is stopped by its spec, or by a request.
fn vm(seed: u64) -> MachineSeen {
    let word = if seed.is_multiple_of(2) { "Always" } else { "Manual" };
    MachineSeen {
        kind: "virtualmachines",
        namespace: "shop".to_owned(),
        name: "vm".to_owned(),
        uid: "vm-1".to_owned(),
        version: String::new(),
        created: String::new(),
        strategy: RunStrategy { run_strategy: Some(word.to_owned()), ..RunStrategy::default() },
        marking: &kubeapi::machines::SITE,
        mark: None,
        alive: true,
        stopping: false,
        starting: false,
    }
}

const SEEDS: u64 = 100;

#[test]
fn u13_a_site_goes_down_servers_last_and_the_leader_at_the_very_end() {
    for seed in 0..SEEDS {
        let mut site = Site::new(seed, &["a", "b", "c", "w1", "w2"], SiteKind::Shutdown);
        assert!(site.turns(|it| it.machines.iter().all(|it| !it.up)), "seed {seed}: {:?}", site.site());
        assert!(site.went[..2].iter().all(|it| it.starts_with('w')), "seed {seed}: {:?}", site.went);
        assert_eq!(site.went[2..], ["b", "c", "a"], "seed {seed}");
    }
}

#[test]
fn u13_a_site_comes_back_in_any_order_also_without_one_node() {
    for seed in 0..SEEDS {
        let mut site = Site::new(seed, &["a", "b", "c", "w1"], SiteKind::Shutdown);
        assert!(site.turns(|it| it.machines.iter().all(|it| !it.up)), "seed {seed}");
        let mut order = vec![0, 1, 2, 3];
        if seed % 2 == 1 {
            let at = order.remove(site.below(4));
            site.machines[at].dead = true;
        }
        while !order.is_empty() {
            let at = order.remove(site.below(order.len()));
            site.power_on(at);
            site.some_turns(30);
        }
        assert!(site.turns(Site::is_over), "seed {seed}: {:?}", site.site());
        site.assert_restored(&format!("seed {seed}"));
    }
}

#[test]
fn u13_power_cuts_between_any_two_writes_neither_lose_the_operation_nor_an_application() {
    for seed in 0..SEEDS {
        for kind in [SiteKind::Shutdown, SiteKind::Reboot] {
            let mut site = Site::new(seed, &["a", "b", "c", "w1"], kind.clone());
            site.cuts.0 = u32::MAX;
            let went = site.turns(|it| it.record.mode.is_none() || it.machines.iter().all(Machine::went));
            assert!(went, "seed {seed} {kind:?}: {:?}", site.site());
            site.cuts.0 = 0;
            // A cut before the order to go delays the way down only: what is switched on then goes, and once more.
            let mut over = false;
            for _ in 0..3 {
                for at in 0..4 {
                    if !site.machines[at].up {
                        site.power_on(at);
                    }
                }
                site.turns(|it| it.is_over() || it.machines.iter().all(|it| !it.up));
                over |= site.is_over();
            }
            assert!(over, "seed {seed} {kind:?}: {:?}", site.site());
            site.assert_restored(&format!("seed {seed} {kind:?}"));
        }
    }
}

#[test]
fn u13_a_withdrawal_in_any_phase_before_the_servers_go_takes_all_back() {
    for seed in 0..SEEDS {
        let mut site = Site::new(seed, &["a", "b", "c", "w1"], SiteKind::Shutdown);
        site.some_turns(60);
        let Ok(record) = operator::cancel(&site.record, &said()) else { continue };
        site.record = record;
        site.turns(|it| it.record.mode.is_none());
        for at in 0..4 {
            if !site.machines[at].up {
                assert_eq!(site.machines[at].name, "w1", "seed {seed}: a server went");
                site.power_on(at);
            }
        }
        assert!(site.turns(Site::is_over), "seed {seed}: {:?}", site.site());
        site.assert_restored(&format!("seed {seed}"));
    }
}

#[test]
fn v3_each_node_goes_once_and_alone_whatever_is_cut_off_and_the_record_is_free_afterwards() {
    std::thread::scope(|scope| {
        for seeds in [0..30, 30..60] {
            scope.spawn(|| seeds.for_each(restart_amid_cuts));
        }
    });
}

fn restart_amid_cuts(seed: u64) {
    let mut site = Site::new(seed, &["a", "b", "t", "w1", "w2"], SiteKind::Restart);
    let cuts = u32::try_from(seed % 4).unwrap();
    site.cuts = (cuts, 200);
    let failing = site.below(8);
    site.failing = Some(failing);
    let mut stopped = 0;
    for turn in 0.. {
        assert!(turn < 100_000, "seed {seed}: it never ends: {:?}", site.site());
        let at = site.below(5);
        match site.below(4) {
            0 => site.lives(at),
            1 | 2 => site.reads(at),
            _ => site.acts(at),
        }
        let Some(now) = site.site() else { break };
        if now.phase == SitePhase::Stopped && site.chance(50) {
            stopped += 1;
            site.failing = None;
            site.record = pass(&site.record, &SitePhase::Stopped, None, &said()).unwrap();
        }
    }
    let last = last_restart(&site.record).unwrap();
    let all_done = last.seen.iter().all(|it| it.step == NodeStep::Done) && last.seen.len() == 5;
    assert!(all_done, "seed {seed}: {last:?}");
    assert!(site.machines.iter().all(|it| it.boot > 1), "seed {seed}");
    let mut once = site.went.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), site.went.len(), "seed {seed}: {:?}", site.went);
    if cuts == 0 {
        assert_eq!(site.went, ["w1", "w2", "t", "b", "a"], "seed {seed}");
        assert_eq!(stopped, u32::from(failing < 5), "seed {seed}");
    }
}
