//! Virtual machines that are stopped for a while: by which call, with which mark, and which ones are started again.
//!
//! The former strategy is in an annotation, written with the stop or before it. A machine is started only if it is
//! still as it was left: what a person has changed since stays. `calls` reads and writes. Not here: which ones, and
//! when (`kubenodeop::machines` for a drain, `outage::site` for a whole site). Pure: no clock, no I/O, no task.

pub mod calls;

use serde::{Deserialize, Serialize};
use step::SmallSort as _;

/// The mark of a stopped machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Marking {
    /// Holds [`Stopped`].
    pub annotation: &'static str,
    /// Present with it, to find such machines.
    pub label: Option<&'static str>,
}

pub static DRAIN: Marking =
    Marking { annotation: "pillar-rs/drain-stopped", label: Some("pillar-rs/drain-stopped") };
pub static SITE: Marking = Marking { annotation: "pillar-rs/site-stopped", label: None };

/// Limit of virtual machines that start at the same time.
const STARTING: usize = 5;

/// How many more may be started now, with `starting` on their way up. Always at least one: a guest that no
/// node can take blocks no other.
#[must_use]
pub fn room(starting: usize) -> usize {
    STARTING.saturating_sub(starting).max(1)
}

/// When an object's machines run: one of the three.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStrategy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_strategy: Option<String>,
    /// Of the older form of a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<bool>,
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
    /// The strategy that stops it; `None` for one that is stopped by a request, or is off.
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

    #[must_use]
    pub fn is_always(&self) -> bool {
        self.running == Some(true) || self.run_strategy.as_deref() == Some("Always")
    }

    /// Whether KubeVirt starts it again after it has failed.
    #[must_use]
    pub fn restarts(&self) -> bool {
        !self.is_off() && !matches!(self.run_strategy.as_deref(), Some("Manual" | "Once"))
    }

    #[must_use]
    pub fn is_off(&self) -> bool {
        self.replicas == Some(0)
            || self.running == Some(false)
            || self.run_strategy.as_deref() == Some("Halted")
    }
}

/// The mark of a stopped machine: a JSON object in an annotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// The operation or drain that stopped it.
    pub id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// When a drain stopped it, in UTC to the millisecond; they are started in this order.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// UID of the object: a copy under the same name is another object.
    pub uid: String,
    /// Strategy before.
    pub was: RunStrategy,
    /// Strategy after; a different one since then was set by another client.
    pub left: RunStrategy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineSeen {
    /// `virtualmachines` or `virtualmachineinstancereplicasets`.
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The version that a write must name.
    pub version: String,
    /// As the API writes it.
    pub created: String,
    pub strategy: RunStrategy,
    pub marking: &'static Marking,
    pub mark: Option<Stopped>,
    /// A guest of it runs; unknown for a replica set.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineAction {
    /// Set spec and mark in one write.
    Set(RunStrategy, Option<Stopped>),
    /// Write the mark, then ask it to stop.
    Stop(Stopped),
    /// Ask it to start, then remove the mark.
    Start,
    /// Wait: its guest is still shutting down.
    Later,
    /// Remove the mark: it runs, or another client has changed it.
    Leave,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineWork {
    pub machine: MachineSeen,
    pub turn: MachineAction,
}

impl MachineWork {
    /// The same, with `now` as the time of a stop that is not marked yet.
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

/// Those of `machines` to stop for the operation or drain `id`, of `node` for a drain. No call is repeated.
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
        // One that has completed its single run would run once more.
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

/// What brings back those whose mark is `ours`: in the order of their stops, then the oldest first.
#[must_use]
pub fn starts(ours: impl Fn(&Stopped) -> bool, machines: &[MachineSeen]) -> Vec<MachineWork> {
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
    let at = |it: &MachineSeen| it.mark.as_ref().map(|it| it.at.clone());
    work.order_by_key(|MachineWork { machine: it, .. }| (at(it), it.created.clone(), it.name.clone()));
    work
}
