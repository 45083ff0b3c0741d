//! Virtual machines that are stopped for a while: which one by which call, what is written on it, and which one is started
//! again.
//!
//! What a machine had is in an annotation of its own with the stop or before it. It is started only where it is still as it
//! was left: what a person has changed since stays. `calls` reads and writes. Not here: which ones, and when
//! (`kubenodeop::machines` for a drain, `outage::site` for a whole site). Source: spec/vm-storage.md A8 and A9. Pure: no
//! clock, no I/O, no task.

pub mod calls;

use serde::{Deserialize, Serialize};

/// Where it is written on a machine that it is stopped.
#[derive(Debug, PartialEq, Eq)]
pub struct Marking {
    /// Annotation that holds [`Stopped`].
    pub annotation: &'static str,
    /// Label that is there with it, by which such machines are found.
    pub label: Option<&'static str>,
}

/// What a drain writes.
pub static DRAIN: Marking =
    Marking { annotation: "pillar-rs/drain-stopped", label: Some("pillar-rs/drain-stopped") };
/// What a whole-site operation writes.
pub static SITE: Marking = Marking { annotation: "pillar-rs/site-stopped", label: None };

/// So many virtual machines may be on their way up before the next ones are started.
const STARTING: usize = 5;

/// How many more may be started at this look, with `starting` on their way up. One may in any case: a guest that no node can
/// take holds nobody up.
#[must_use]
pub fn room(starting: usize) -> usize {
    STARTING.saturating_sub(starting).max(1)
}

/// What an object says of when its machines run: one of the three.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStrategy {
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

impl std::fmt::Display for RunStrategy {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self { run_strategy: Some(word), .. } => out.write_str(word),
            Self { running: Some(running), .. } => write!(out, "{running}"),
            Self { replicas: Some(replicas), .. } => write!(out, "{replicas}"),
            Self { .. } => Ok(()),
        }
    }
}

impl RunStrategy {
    /// What a stop by the spec makes of it; `None` for one that is stopped by a request, or is off.
    #[must_use]
    pub fn off(&self) -> Option<Self> {
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

    /// Whether it is started again whenever it ends.
    #[must_use]
    pub fn is_always(&self) -> bool {
        self.running == Some(true) || self.run_strategy.as_deref() == Some("Always")
    }

    /// Whether it is to be off by its spec.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.replicas == Some(0)
            || self.running == Some(false)
            || self.run_strategy.as_deref() == Some("Halted")
    }
}

/// What is written on a machine that is stopped: a JSON object in an annotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// The operation or the drain that has stopped it.
    pub id: String,
    /// Node of the drain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// When a drain has stopped it, in UTC to the millisecond: they are started in this order.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// UID of the object: a copy of it under the same name is another one.
    pub uid: String,
    /// What it had before.
    pub was: RunStrategy,
    /// What it has once it is stopped; another one since then is somebody else's.
    pub left: RunStrategy,
}

/// A machine, or a replica set of machines, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineSeen {
    /// `virtualmachines` or `virtualmachineinstancereplicasets`.
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The version that a write must name.
    pub version: String,
    /// When it was made, as the API writes it.
    pub created: String,
    /// What it says now.
    pub strategy: RunStrategy,
    /// Where what is written there is.
    pub marking: &'static Marking,
    /// What is written there.
    pub mark: Option<Stopped>,
    /// A guest of it runs; of a replica set it is not asked.
    pub alive: bool,
    /// It was asked to stop, or its guest is shutting down.
    pub stopping: bool,
    /// It was asked to start.
    pub starting: bool,
}

impl MachineSeen {
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// What is done with one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineAction {
    /// Its spec is set, and what is written there, in one write.
    Set(RunStrategy, Option<Stopped>),
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
    pub machine: MachineSeen,
    /// What is done with it.
    pub turn: MachineAction,
}

impl MachineWork {
    /// The same, with `now` as the time of a stop that is not written there yet.
    #[must_use]
    pub fn stopped_at(mut self, now: &str) -> Self {
        if let MachineAction::Set(_, Some(mark)) | MachineAction::Stop(mark) = &mut self.turn
            && mark.at.is_empty()
        {
            now.clone_into(&mut mark.at);
        }
        self
    }
}

/// Those of `machines` that have to be stopped for the operation or drain `id`, of `node` where it is a drain. What was
/// called for already is not called for again.
#[must_use]
pub fn stops(id: &str, node: &str, machines: &[MachineSeen]) -> Vec<MachineWork> {
    let turn = |it: &MachineSeen| {
        let mark = |left: &RunStrategy| Stopped {
            id: id.to_owned(),
            node: node.to_owned(),
            at: it.mark.as_ref().filter(|it| it.id == id).map(|it| it.at.clone()).unwrap_or_default(),
            uid: it.uid.clone(),
            was: it.strategy.clone(),
            left: left.clone(),
        };
        // One that ran once and is through would run once more.
        let once = it.strategy.run_strategy.as_deref() == Some("Once");
        match it.strategy.off() {
            Some(off) if it.alive || !once => Some(MachineAction::Set(off.clone(), Some(mark(&off)))),
            None if it.alive && !it.stopping && !it.strategy.is_off() => {
                Some(MachineAction::Stop(mark(&it.strategy)))
            }
            Some(_) | None => None,
        }
    };
    let work = |it: &MachineSeen| turn(it).map(|turn| MachineWork { machine: it.clone(), turn });
    machines.iter().filter_map(work).collect()
}

/// Those whose mark is `ours`, in the order of the UIDs of `record`, then in that of their stops, then the oldest first:
/// what brings each back.
#[must_use]
pub fn starts(
    ours: impl Fn(&Stopped) -> bool,
    record: &[String],
    machines: &[MachineSeen],
) -> Vec<MachineWork> {
    let turn = |it: &MachineSeen| {
        let mark = it.mark.as_ref().filter(|it| ours(it))?;
        Some(if mark.uid != it.uid || it.strategy != mark.left {
            MachineAction::Leave
        } else if mark.was != mark.left {
            MachineAction::Set(mark.was.clone(), None)
        } else if it.stopping {
            MachineAction::Later
        } else if it.alive || it.starting {
            MachineAction::Leave
        } else {
            MachineAction::Start
        })
    };
    let mut work: Vec<MachineWork> = machines
        .iter()
        .filter_map(|it| turn(it).map(|turn| MachineWork { machine: it.clone(), turn }))
        .collect();
    let place = |uid: &str| record.iter().position(|it| it == uid).unwrap_or(record.len());
    let at = |it: &MachineSeen| it.mark.as_ref().map(|it| it.at.clone());
    work.sort_by_key(|MachineWork { machine: it, .. }| {
        (place(&it.uid), at(it), it.created.clone(), it.name.clone())
    });
    work
}
