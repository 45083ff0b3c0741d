//! Virtual machines in a whole-site operation: which one is stopped by which call, what is written down of it, and which
//! one is started again.
//!
//! What a machine had is in the record of the operation before it is stopped, and in an annotation of its own with the
//! stop or before it. It is started only where it is still as it was left: what a person has changed since stays. Source:
//! spec/vm-storage.md A8 and A9, spec/cluster-lock.md 6.3. Pure: no clock, no I/O, no task.

use serde::{Deserialize, Serialize};

/// What an object says of when its machines run: one of the three.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Strategy {
    /// A machine: the word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_strategy: Option<String>,
    /// A machine of the older form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<bool>,
    /// A replica set of machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
}

impl std::fmt::Display for Strategy {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self { run_strategy: Some(word), .. } => out.write_str(word),
            Self { running: Some(running), .. } => write!(out, "{running}"),
            Self { replicas: Some(replicas), .. } => write!(out, "{replicas}"),
            Self { .. } => Ok(()),
        }
    }
}

impl Strategy {
    /// What a stop by the spec makes of it; `None` for one that is stopped by a request, or is off.
    fn off(&self) -> Option<Self> {
        let off = Self::default();
        match self {
            Self { replicas: Some(1..), .. } => Some(Self { replicas: Some(0), ..off }),
            Self { running: Some(true), .. } => Some(Self { running: Some(false), ..off }),
            Self { run_strategy: Some(word), .. } if word == "Always" || word == "Once" => {
                Some(Self { run_strategy: Some("Halted".to_owned()), ..off })
            }
            Self { .. } => None,
        }
    }

    /// Whether it is to be off by its spec.
    fn is_off(&self) -> bool {
        self.replicas == Some(0)
            || self.running == Some(false)
            || self.run_strategy.as_deref() == Some("Halted")
    }
}

/// What the operation has written on a machine that it stops: a JSON object in an annotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// The operation.
    pub id: String,
    /// UID of the object: a copy of it under the same name is another one.
    pub uid: String,
    /// What it had before.
    pub was: Strategy,
    /// What it has once it is stopped; another one since then is somebody else's.
    pub left: Strategy,
}

/// A machine in the record of the operation; their order is that in which they are started.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Machine {
    /// `virtualmachines` or `virtualmachineinstancereplicasets`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// What it had before.
    pub was: Strategy,
}

/// A machine, or a replica set of machines, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineSeen {
    /// `virtualmachines` or `virtualmachineinstancereplicasets`.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The version that a write must name.
    pub version: String,
    /// When it was made, as the API writes it.
    pub created: String,
    /// What it says now.
    pub strategy: Strategy,
    /// What an operation has written there.
    pub mark: Option<Stopped>,
    /// A guest of it runs; of a replica set it is not asked.
    pub alive: bool,
    /// It was asked to stop, or its guest is shutting down.
    pub stopping: bool,
    /// It was asked to start.
    pub starting: bool,
}

impl MachineSeen {
    /// Namespace and name.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// All there is of virtual machines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machines {
    /// Machines and replica sets of machines.
    pub all: Vec<MachineSeen>,
    /// Guests that run, and launchers that are there without one, by name.
    pub guests: Vec<String>,
    /// Of these guests the ones that nothing stops and starts.
    pub loose: Vec<String>,
}

/// What is done with one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// Its spec is set, and what is written there, in one write.
    Set(Strategy, Option<Stopped>),
    /// This is written there, then it is asked to stop.
    Stop(Stopped),
    /// It is asked to start, then nothing is written there any more.
    Start,
    /// Nothing yet: its guest is still shutting down.
    Later,
    /// Nothing is written there any more: it runs, or somebody has changed it.
    Leave,
}

/// One that is stopped or started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineWork {
    /// It.
    pub machine: MachineSeen,
    /// What is done with it.
    pub turn: Turn,
}

/// Those that have to be stopped for the operation `id`. What was called for already is not called for again.
#[must_use]
pub fn stops(id: &str, machines: &[MachineSeen]) -> Vec<MachineWork> {
    let turn = |it: &MachineSeen| {
        let mark = |left: &Strategy| Stopped {
            id: id.to_owned(),
            uid: it.uid.clone(),
            was: it.strategy.clone(),
            left: left.clone(),
        };
        // One that ran once and is through would run once more.
        let once = it.strategy.run_strategy.as_deref() == Some("Once");
        match it.strategy.off() {
            Some(off) if it.alive || !once => Some(Turn::Set(off.clone(), Some(mark(&off)))),
            None if it.alive && !it.stopping && !it.strategy.is_off() => Some(Turn::Stop(mark(&it.strategy))),
            Some(_) | None => None,
        }
    };
    let work = |it: &MachineSeen| turn(it).map(|turn| MachineWork { machine: it.clone(), turn });
    machines.iter().filter_map(work).collect()
}

/// The record with all of `work`, if it lacks one or has another word of it. The oldest comes first.
#[must_use]
pub fn noted(record: &[Machine], work: &[MachineWork]) -> Option<Vec<Machine>> {
    let mut all = record.to_vec();
    let mut work: Vec<&MachineSeen> = work.iter().map(|it| &it.machine).collect();
    work.sort_by_key(|it| (&it.created, &it.namespace, &it.name));
    for it in work {
        let machine = Machine {
            kind: it.kind.to_owned(),
            namespace: it.namespace.clone(),
            name: it.name.clone(),
            uid: it.uid.clone(),
            was: it.strategy.clone(),
        };
        match all.iter_mut().find(|held| held.uid == it.uid) {
            Some(held) => *held = machine,
            None => all.push(machine),
        }
    }
    (all != record).then_some(all)
}

/// Those that the operation `id` has stopped, in the order of its record: what brings each back.
#[must_use]
pub fn starts(id: &str, record: &[Machine], machines: &[MachineSeen]) -> Vec<MachineWork> {
    let turn = |it: &MachineSeen| {
        let mark = it.mark.as_ref().filter(|it| it.id == id)?;
        Some(if mark.uid != it.uid || it.strategy != mark.left {
            Turn::Leave
        } else if mark.was != mark.left {
            Turn::Set(mark.was.clone(), None)
        } else if it.stopping {
            Turn::Later
        } else if it.alive || it.starting {
            Turn::Leave
        } else {
            Turn::Start
        })
    };
    let mut work: Vec<MachineWork> = machines
        .iter()
        .filter_map(|it| turn(it).map(|turn| MachineWork { machine: it.clone(), turn }))
        .collect();
    let place = |uid: &str| record.iter().position(|it| it.uid == uid).unwrap_or(record.len());
    work.sort_by_key(|it| (place(&it.machine.uid), it.machine.created.clone(), it.machine.name.clone()));
    work
}
