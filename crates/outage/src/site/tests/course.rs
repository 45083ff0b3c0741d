//! Whole courses: every order of looks, nodes cut off between any two writes, two that work for all at once, an API that
//! answers only while half of the servers are up, nodes that come back in any order or never.

use std::collections::BTreeSet;
use std::time::Duration;

use step::Dice;

use super::super::coordinate;
use super::super::member::{self, GOING_LIMIT, LeaseReading, LocalSite, SiteFacts};
use super::super::operator;
use super::super::record::{Ack, NodeStep, SiteKind, SitePhase, SiteRecord};
use super::super::record::{MachineAction, MachineSeen, Machines, RunStrategy};
use super::restart::{own, said, wish_of_all};
use crate::site::record::{Move, NODE_LIMIT, PhaseReadings, ScaledWorkload};
use crate::turn::record::TurnRecord;
use crate::turn::rule::TurnNode;

#[derive(Debug, Default)]
struct Machine {
    server: bool,
    boot: u32,
    up: bool,
    /// Its device config has ordered what the operation does. It never comes back.
    dead: bool,
    disk: Option<LocalSite>,
    cordoned: bool,
    /// What it read last, and in which version: an older one may still be acted upon.
    read: Option<(u32, TurnRecord)>,
    /// For how many looks it has waited, and for what.
    waited: (u32, bool),
    lasted: (u32, String),
}

impl Machine {
    /// It is off, or it was since it had the order to go: power that came back is the way up.
    fn went(&self) -> bool {
        let boot = format!("b{}", self.boot);
        let back = |it: &LocalSite| {
            it.step == NodeStep::Booted
                || matches!(it.step, NodeStep::Ready | NodeStep::Going) && it.boot_id != boot
        };
        !self.up || self.disk.as_ref().is_some_and(back)
    }
}

struct Site3 {
    machines: Vec<Machine>,
    record: TurnRecord,
    version: u32,
    replicas: i64,
    marked: bool,
    /// A virtual machine, and the words with which it began.
    vm: MachineSeen,
    first: RunStrategy,
    off: Vec<usize>,
    dice: Dice,
    kind: SiteKind,
}

fn name(at: usize) -> String {
    format!("n{at}")
}

impl Site3 {
    fn new(seed: u64, servers: usize, workers: usize, kind: SiteKind) -> Self {
        let machine = |server| Machine { server, boot: 1, up: true, ..Machine::default() };
        let all = (0..servers).map(|_| machine(true)).chain((0..workers).map(|_| machine(false)));
        let mut site = Self {
            machines: all.collect(),
            record: TurnRecord::default(),
            version: 0,
            replicas: 3,
            marked: false,
            vm: vm(seed),
            first: vm(seed).strategy,
            off: Vec::new(),
            dice: Dice::new(seed),
            kind: kind.clone(),
        };
        site.record = operator::begin(&site.record, &wish_of_all(kind), &site.nodes()).unwrap();
        site
    }

    fn nodes(&self) -> Vec<TurnNode> {
        let node = |(at, it): (usize, &Machine)| TurnNode {
            name: name(at),
            uid: format!("uid-n{at}"),
            boot_id: format!("b{}", it.boot),
            ready: it.up,
            unschedulable: it.cordoned,
            server: it.server,
            etcd: it.server,
            ..TurnNode::default()
        };
        self.machines.iter().enumerate().map(node).collect()
    }

    fn site(&self) -> Option<SiteRecord> {
        operator::current(&self.record).unwrap()
    }

    fn chance(&mut self, of: u64) -> bool {
        self.dice.draw().is_multiple_of(of)
    }

    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.dice.draw() % most as u64).unwrap()
    }

    fn answers(&self) -> bool {
        let servers = self.machines.iter().filter(|it| it.server);
        let up = servers.clone().filter(|it| it.up).count();
        up * 2 > servers.count()
    }

    fn write(&mut self, at: u32, record: TurnRecord) -> bool {
        if at != self.version || !self.answers() {
            return false;
        }
        (self.record, self.version) = (record, self.version + 1);
        true
    }

    fn cut(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        machine.up = false;
        (machine.read, machine.waited, machine.lasted) = (None, (0, false), (0, String::new()));
        self.off.push(at);
    }

    fn power_on(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        (machine.up, machine.boot) = (true, machine.boot + 1);
    }

    /// One look of one node. It may be cut off anywhere: the next boot finds what is on its disk.
    fn look(&mut self, at: usize, cuts: bool) {
        // A guest takes its time.
        if self.vm.stopping && self.chance(8) {
            (self.vm.alive, self.vm.stopping) = (false, false);
        }
        // Sometimes what was read before is acted upon only now.
        if self.answers() && (self.machines[at].read.is_none() || !self.chance(4)) {
            self.machines[at].read = Some((self.version, self.record.clone()));
        }
        let (word, version) = match &self.machines[at].read {
            Some((version, record)) if self.answers() => {
                let site = operator::current(record).unwrap();
                (site.map_or(LeaseReading::Over, |it| LeaseReading::Site(Box::new(it))), *version)
            }
            Some(_) | None => (LeaseReading::Silent("no quorum".to_owned()), 0),
        };
        let nodes = self.nodes();
        let own = own(&name(at), &format!("b{}", self.machines[at].boot));
        let gone: BTreeSet<String> = match &word {
            LeaseReading::Site(site) => {
                let gone = site.nodes.iter().filter(|it| coordinate::is_gone(site, it, &nodes));
                gone.map(|it| it.node.clone()).collect()
            }
            LeaseReading::Silent(_) | LeaseReading::Over => BTreeSet::new(),
        };
        let others = self.machines.iter().enumerate().filter(|(nth, it)| it.server && it.up && *nth != at);
        let silent = matches!(word, LeaseReading::Silent(_));
        let machine = &self.machines[at];
        let facts = SiteFacts {
            cordoned: machine.cordoned,
            open: !machine.cordoned,
            leads: at == 0 && machine.server,
            peers: machine.server.then(|| others.count()),
            gone,
            waited: if machine.waited.1 && machine.waited.0 > 40 { GOING_LIMIT } else { Duration::ZERO },
            ..SiteFacts::default()
        };
        let next = member::next(&own, machine.disk.as_ref(), &word, &facts);
        let machine = &mut self.machines[at];
        let key = next.local.as_ref().is_some_and(|it| it.all_ready) || silent;
        machine.waited = if machine.waited.1 == key { (machine.waited.0 + 1, key) } else { (0, key) };
        machine.disk.clone_from(&next.local);
        if cuts && self.chance(20) {
            return self.cut(at);
        }
        if next.cordon {
            assert!(!silent);
            self.machines[at].cordoned = true;
        }
        // What the gate after the boot does, once nothing holds the node.
        if next.local.as_ref().is_none_or(|it| it.released) && self.answers() {
            self.machines[at].cordoned = false;
        }
        if cuts && self.chance(20) {
            return self.cut(at);
        }
        if let (LeaseReading::Site(site), Some(step)) = (&word, next.say) {
            let mut site = (**site).clone();
            let before = site.clone();
            let leads = at == 0;
            site.hear(Ack { leads, ..Ack::of(&own.node, &own.uid, &own.boot_id, step) });
            if site != before {
                let record = TurnRecord {
                    mode: Some(site.mode().unwrap()),
                    ..self.machines[at].read.clone().unwrap().1
                };
                self.write(version, record);
            }
        }
        if next.go {
            self.cut(at);
            if self.kind == SiteKind::Reboot {
                self.power_on(at);
            }
            return;
        }
        if let LeaseReading::Site(site) = word
            && coordinate::is_coordinator(&name(at), &site, &nodes)
        {
            self.coordinate(at, &site, version, &nodes, cuts);
        }
    }

    fn coordinate(&mut self, at: usize, site: &SiteRecord, version: u32, nodes: &[TurnNode], cuts: bool) {
        let machine = &mut self.machines[at];
        let same = machine.lasted.1 == site.phase.text();
        machine.lasted = (if same { machine.lasted.0 + 1 } else { 0 }, site.phase.text().to_owned());
        let lasted = if machine.lasted.0 > 60 { NODE_LIMIT } else { Duration::ZERO };
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
        let machines = Machines { all: vec![self.vm.clone()], guests, ..Machines::default() };
        let holders = self.record.holders.iter().map(|it| it.node.clone()).collect();
        let found = PhaseReadings {
            machines,
            work: work.into_iter().collect(),
            holders,
            lasted,
            ..PhaseReadings::default()
        };
        match coordinate::next(site, nodes, &found) {
            Move::Wait(..) => {}
            Move::Scale(_) if down => (self.replicas, self.marked) = (0, true),
            Move::Scale(_) => (self.replicas, self.marked) = (3, false),
            Move::Machines(work) => self.turn(at, site, &work[0].turn, cuts),
            Move::To(site) => {
                if site.phase == SitePhase::WorkersGoing {
                    assert_eq!(self.replicas, 0, "the volumes of applications are still in use");
                    assert!(!self.vm.alive, "a machine runs");
                }
                let record = TurnRecord { mode: Some(site.mode().unwrap()), ..self.record.clone() };
                self.write(version, record);
            }
            Move::End => {
                let record = TurnRecord { mode: None, ..self.record.clone() };
                self.write(version, record);
            }
        }
    }

    fn looks(&mut self, many: usize) {
        for _ in 0..many {
            let at = self.below(self.machines.len());
            if self.machines[at].up {
                self.look(at, false);
            }
        }
    }

    /// What is done with the machine, cut off between any two writes.
    fn turn(&mut self, at: usize, site: &SiteRecord, turn: &MachineAction, cuts: bool) {
        match turn {
            MachineAction::Set(strategy, mark) => {
                let known = site.machines.iter().any(|it| it.uid == self.vm.uid && it.was == self.first);
                assert!(mark.is_none() || known, "stopped before it is in the record");
                (self.vm.strategy, self.vm.mark) = (strategy.clone(), mark.clone());
                (self.vm.alive, self.vm.stopping) = (true, mark.is_some());
            }
            MachineAction::Stop(mark) => {
                assert!(!site.machines.is_empty(), "stopped before it is in the record");
                self.vm.mark = Some(mark.clone());
                if cuts && self.chance(2) {
                    return self.cut(at);
                }
                self.vm.stopping = true;
            }
            MachineAction::Later => {}
            MachineAction::Start => {
                self.vm.alive = true;
                if cuts && self.chance(2) {
                    return self.cut(at);
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

    fn turns(&mut self, cuts: bool, done: impl Fn(&Self) -> bool) -> bool {
        (0..20_000).any(|_| {
            let is_done = done(self);
            if !is_done {
                self.turns_of(cuts, 1);
            }
            is_done
        })
    }

    /// So many looks by chance; with `cuts` a power cut now and then, and a machine that comes back from it by itself.
    fn turns_of(&mut self, cuts: bool, many: usize) {
        for _ in 0..many {
            let at = self.below(self.machines.len());
            if self.machines[at].up {
                self.look(at, cuts);
            } else if cuts && self.chance(5) {
                // A power cut, not the order to go: it comes back by itself.
                let went = self.machines[at].disk.as_ref().is_some_and(|it| it.step == NodeStep::Going);
                if !went || self.kind == SiteKind::Reboot {
                    self.power_on(at);
                }
            }
        }
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
        let mut site = Site3::new(seed, 3, 2, SiteKind::Shutdown);
        assert!(
            site.turns(false, |it| it.machines.iter().all(|it| !it.up)),
            "seed {seed}: {:?}",
            site.site()
        );
        let place = |at: usize| site.off.iter().position(|it| *it == at).unwrap();
        assert!(
            [0, 1, 2].iter().all(|it| place(*it) > place(3).max(place(4))),
            "seed {seed}: {:?}",
            site.off
        );
        assert_eq!(site.off.last(), Some(&0), "seed {seed}: {:?}", site.off);
        assert_eq!(site.off[2..], [1, 2, 0], "seed {seed}");
    }
}

#[test]
fn u13_a_site_comes_back_in_any_order_also_without_one_node() {
    for seed in 0..SEEDS {
        let mut site = Site3::new(seed, 3, 1, SiteKind::Shutdown);
        assert!(site.turns(false, |it| it.machines.iter().all(|it| !it.up)), "seed {seed}");
        let mut order = vec![0, 1, 2, 3];
        if seed % 2 == 1 {
            let at = order.remove(site.below(4));
            site.machines[at].dead = true;
        }
        while !order.is_empty() {
            let at = order.remove(site.below(order.len()));
            site.power_on(at);
            let looks = site.below(30);
            site.looks(looks);
        }
        assert!(site.turns(false, Site3::is_over), "seed {seed}: {:?}", site.site());
        site.assert_restored(&format!("seed {seed}"));
    }
}

#[test]
fn u13_power_cuts_between_any_two_writes_neither_lose_the_operation_nor_an_application() {
    for seed in 0..SEEDS {
        for kind in [SiteKind::Shutdown, SiteKind::Reboot] {
            let mut site = Site3::new(seed, 3, 1, kind.clone());
            let went =
                site.turns(true, |it| it.record.mode.is_none() || it.machines.iter().all(Machine::went));
            assert!(went, "seed {seed} {kind:?}: {:?}", site.site());
            // A cut before the order to go delays the way down only: what is switched on then goes, and once more.
            let mut over = false;
            for _ in 0..3 {
                for at in 0..4 {
                    if !site.machines[at].up {
                        site.power_on(at);
                    }
                }
                site.turns(false, |it| it.is_over() || it.machines.iter().all(|it| !it.up));
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
        let mut site = Site3::new(seed, 3, 1, SiteKind::Shutdown);
        let looks = site.below(60);
        site.looks(looks);
        let Ok(record) = operator::cancel(&site.record, &said()) else { continue };
        (site.record, site.version) = (record, site.version + 1);
        site.turns(false, |it| it.record.mode.is_none());
        for at in 0..4 {
            if !site.machines[at].up {
                assert!(!site.machines[at].server, "seed {seed}: a server went");
                site.power_on(at);
            }
        }
        assert!(site.turns(false, Site3::is_over), "seed {seed}: {:?}", site.site());
        site.assert_restored(&format!("seed {seed}"));
    }
}
