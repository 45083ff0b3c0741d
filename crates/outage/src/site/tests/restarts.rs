//! Whole courses of a restart: readings that are old, agents that are cut off, power that is lost, drains that fail.

use std::time::Duration;

use step::Dice;

use super::super::coordinate::{is_coordinator, next};
use super::super::member::{self, LeaseReading, LocalSite, Reboot, SiteFacts};
use super::super::operator::{advance, begin, current, hear, last_restart, pass};
use super::super::record::{Ack, NodeStep, SitePhase, SiteRecord};
use super::super::restart::stage;
use super::restart::{ack, node, nodes, own, said, wish};
use crate::site::record::{Move, PhaseReadings};
use crate::turn::record::TurnRecord;
use crate::turn::rule::TurnNode;

#[derive(Debug, Default)]
struct Machine {
    name: &'static str,
    boot: u32,
    up: bool,
    disk: Option<LocalSite>,
    /// Its agents have the order, and how far they are with it: drained at 3, ordered to reboot at 4.
    ordered: u32,
    went: u32,
    fails: bool,
    cordoned: bool,
    read: TurnRecord,
}

/// What happens in one course; every word is written by comparison with what was read.
struct Course {
    machines: Vec<Machine>,
    record: TurnRecord,
    version: u32,
    versions: Vec<u32>,
    dice: Dice,
    lasted: (u32, String),
    well: u32,
    went: Vec<&'static str>,
    cuts: u32,
}

impl Course {
    fn below(&mut self, of: u64) -> u64 {
        self.dice.draw() % of
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

    fn write(&mut self, on: u32, record: TurnRecord) {
        if on == self.version && record != self.record {
            (self.record, self.version) = (record, self.version + 1);
        }
    }

    fn reads(&mut self, at: usize) {
        if self.machines[at].up {
            self.machines[at].read = self.record.clone();
            self.versions[at] = self.version;
        }
    }

    /// It acts by what it read last, which others may have written since.
    fn acts(&mut self, at: usize) {
        let machine = &self.machines[at];
        if !machine.up {
            return;
        }
        let (on, read) = (self.versions[at], machine.read.clone());
        let own = own(machine.name, &format!("b{}", machine.boot));
        let site = current(&read).unwrap();
        let word = site.clone().map_or(LeaseReading::Over, |it| LeaseReading::Site(Box::new(it)));
        let failed = if machine.fails && machine.ordered >= 2 { "its drain failed" } else { "" };
        let reboot =
            Reboot { commanded: machine.ordered >= 4, failed: failed.to_owned(), waits: String::new() };
        let leads = machine.name == "a";
        let facts = SiteFacts { open: !machine.cordoned, leads, reboot, ..SiteFacts::default() };
        let next = member::next(&own, machine.disk.as_ref(), &word, &facts);
        let machine = &mut self.machines[at];
        machine.disk.clone_from(&next.local);
        if next.go {
            machine.ordered = machine.ordered.max(1);
        } else if machine.ordered < 4 {
            machine.ordered = 0;
            machine.cordoned = false;
        }
        let Some(site) = site else { return };
        if let Some(step) = next.say {
            let known = site.ack(&own.node);
            let over = known.filter(|it| next.local.is_none() && it.step != NodeStep::Seen);
            let said = Ack {
                boot_id: over.map_or_else(|| own.boot_id.clone(), |it| it.boot_id.clone()),
                leads,
                waits: next.waits,
                ..ack(&own.node, step)
            };
            let differs = known.is_none_or(|it| {
                (&it.step, &it.boot_id, it.leads, &it.waits)
                    != (&said.step, &said.boot_id, said.leads, &said.waits)
            });
            if differs {
                // A word is written into whatever the record is by then.
                let (now, record) = (self.version, hear(&self.record, &site, &said).unwrap());
                self.write(now, record);
            }
        }
        if is_coordinator(&own.node, &site, &self.nodes()) {
            self.coordinates(on, &read, &site);
        }
    }

    fn coordinates(&mut self, on: u32, read: &TurnRecord, site: &SiteRecord) {
        let stage = format!("{:?} {}", site.phase, stage(site, &self.nodes()));
        if self.lasted.1 != stage {
            (self.lasted, self.well) = ((0, stage), 0);
        }
        self.lasted.0 += 1;
        let is_well = self.below(3) > 0;
        self.well = if is_well { self.well + 1 } else { 0 };
        let found = PhaseReadings {
            lasted: Duration::from_secs(u64::from(self.lasted.0)),
            well: Duration::from_secs(u64::from(self.well) * 3),
            blocking: if is_well { vec![] } else { vec!["nodes fail".to_owned()] },
            ..PhaseReadings::default()
        };
        let to = match next(site, &self.nodes(), &found) {
            Move::Wait(waits, next) => Some(SiteRecord { waits, next, ..site.clone() }),
            Move::To(to) => Some(*to),
            Move::End => None,
            other @ (Move::Scale(_) | Move::Machines(_)) => panic!("{other:?}"),
        };
        if to.as_ref() != Some(site) {
            let record = advance(read, site, to.as_ref()).unwrap();
            self.write(on, record);
        }
    }

    /// The machine's own agents, and its power.
    fn lives(&mut self, at: usize) {
        if self.cuts > 0 && self.below(200) == 0 {
            self.cuts -= 1;
            let machine = &mut self.machines[at];
            (machine.up, machine.ordered) = (false, 0);
        }
        let down = self.machines.iter().filter(|it| !it.up && it.went > 0 || it.ordered > 2).count();
        let machine = &mut self.machines[at];
        match (machine.up, machine.ordered) {
            (false, _) => {
                (machine.up, machine.boot) = (true, machine.boot + 1);
            }
            (true, 4..) => {
                assert!(down <= 1, "two are down");
                (machine.up, machine.ordered, machine.went) = (false, 0, machine.went + 1);
                self.went.push(machine.name);
            }
            (true, 3) => machine.ordered = 4,
            (true, 2) if machine.fails => {}
            (true, 1 | 2) => (machine.ordered, machine.cordoned) = (machine.ordered + 1, true),
            // The gate after the boot.
            (true, 0) => machine.cordoned = false,
        }
        let cordoned: Vec<_> = self.machines.iter().filter(|it| it.ordered > 0).map(|it| it.name).collect();
        assert!(cordoned.len() <= 1, "{cordoned:?} go together");
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
    let names = ["a", "b", "t", "w1", "w2"];
    let machine = |name| Machine { name, boot: 1, up: true, ..Machine::default() };
    let mut course = Course {
        machines: names.map(machine).into(),
        record: begin(&TurnRecord::default(), &wish(), &nodes()).unwrap(),
        version: 1,
        versions: vec![0; 5],
        dice: Dice::new(seed),
        lasted: (0, String::new()),
        well: 0,
        went: Vec::new(),
        cuts: u32::try_from(seed % 4).unwrap(),
    };
    let cuts = course.cuts;
    let failing = usize::try_from(course.below(8)).unwrap();
    if let Some(machine) = course.machines.get_mut(failing) {
        machine.fails = true;
    }
    let mut stopped = 0;
    for turn in 0.. {
        assert!(turn < 100_000, "seed {seed}: it never ends: {:?}", current(&course.record));
        let at = usize::try_from(course.below(5)).unwrap();
        match course.below(4) {
            0 => course.lives(at),
            1 | 2 => course.reads(at),
            _ => course.acts(at),
        }
        let Some(site) = current(&course.record).unwrap() else { break };
        if site.phase == SitePhase::Stopped && course.below(50) == 0 {
            stopped += 1;
            course.machines.iter_mut().for_each(|it| it.fails = false);
            let record = pass(&course.record, &SitePhase::Stopped, None, &said()).unwrap();
            let on = course.version;
            course.write(on, record);
        }
    }
    let last = last_restart(&course.record).unwrap();
    assert!(
        last.seen.iter().all(|it| it.step == NodeStep::Done) && last.seen.len() == 5,
        "seed {seed}: {last:?}"
    );
    assert!(course.machines.iter().all(|it| it.boot > 1), "seed {seed}");
    assert!(course.machines.iter().all(|it| it.went <= 1), "seed {seed}: {:?}", course.went);
    if cuts == 0 {
        assert_eq!(course.went, ["w1", "w2", "t", "b", "a"], "seed {seed}");
        assert_eq!(stopped, u32::from(failing < 5), "seed {seed}");
    }
}
