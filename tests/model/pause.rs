//! A person's pause: the file, its readers, and what must not start meanwhile.
//!
//! An agent is judged by what it has read. An operation starts with its drain request, or when it goes ahead
//! without one; the drain of a node starts with its cordon.

use topics::{DrainStatus, OperationPause, PauseScope, PendingState};

use super::effects::Gone;
use super::k3s::REQUEST;
use super::scenarios::{Change, Scenario};
use super::topics::{Disk, Fact, Link, Who};
use super::world::State;

impl Scenario {
    pub(crate) fn pauses(&self) -> bool {
        self.changes.iter().any(|it| matches!(it, Change::Pause(_)))
    }
}

pub(crate) fn said(scope: PauseScope) -> OperationPause {
    OperationPause {
        scope,
        by: "field".to_owned(),
        reason: "new disk".to_owned(),
        ..OperationPause::default()
    }
}

impl Link {
    /// The file as this topic's reader gets it.
    pub(crate) fn pause(self, disk: &Disk) -> Fact {
        let pause = disk.pause.clone();
        match self.who() {
            Who::Zedagent => Fact::Zedagent(zedagent::core::Event::Pause(pause)),
            Who::Zedkube => Fact::Zedkube(zedkube::core::Event::Pause(pause)),
            Who::Baseosmgr | Who::Nodeagent => Fact::Baseosmgr(baseosmgr::core::Event::Pause(pause)),
            Who::K3s => Fact::K3s(zedkube::k3s::Event::Pause(pause)),
        }
    }

    const fn pause_of(who: Who) -> Self {
        match who {
            Who::Zedagent => Self::PauseToZedagent,
            Who::Zedkube => Self::PauseToZedkube,
            Who::Baseosmgr | Who::Nodeagent => Self::PauseToBaseosmgr,
            Who::K3s => Self::PauseToK3s,
        }
    }
}

impl State {
    /// An agent reads the pause before anything else, as in its `run`.
    pub(crate) fn reads_pause(&mut self, who: Who) -> Result<(), Gone> {
        if self.scenario.pauses() { self.hear(Link::pause_of(who)) } else { Ok(()) }
    }

    fn paused(&self, who: Who) -> Option<OperationPause> {
        self.heard[Link::pause_of(who).index()].as_ref()?.iter().find_map(|fact| {
            let (Fact::Zedagent(zedagent::core::Event::Pause(pause))
            | Fact::Zedkube(zedkube::core::Event::Pause(pause))
            | Fact::Baseosmgr(baseosmgr::core::Event::Pause(pause))
            | Fact::K3s(zedkube::k3s::Event::Pause(pause))) = fact
            else {
                return None;
            };
            pause.clone()
        })
    }

    /// zedagent, baseosmgr or an update of k3s requests the drain of an operation, or goes ahead.
    pub(crate) fn judge_start(&mut self, who: Who, what: &str) {
        let nth = match who {
            Who::Zedagent | Who::Nodeagent | Who::Zedkube => 0,
            Who::Baseosmgr => 1,
            Who::K3s => REQUEST,
        };
        // A commanded operation needs the node drained until the next boot.
        let commanded = self.disk.pending.values().any(|it| it.state == PendingState::Commanded);
        let Some(pause) = self.paused(who).filter(|_| nth > 0 || !commanded) else { return };
        if pause.scope == PauseScope::Controller || self.request_of(nth).is_none() {
            self.wrong(format!("X3: {what} although {}", pause.words()));
        }
    }

    /// zedkube has read a pause: from now on nothing new begins.
    pub(crate) fn pause_is_heard(&mut self, link: Link) {
        if link != Link::PauseToZedkube {
            return;
        }
        let paused = self.paused(Who::Zedkube).is_some_and(|it| it.scope == PauseScope::Node);
        let begun = match self.disk.run.status.map(|it| it.status) {
            None
            | Some(
                DrainStatus::Unknown
                | DrainStatus::NotSupported
                | DrainStatus::NotRequested
                | DrainStatus::Requested
                | DrainStatus::Starting,
            ) => self.under.task.as_ref().is_some_and(|it| it.work == super::world::Work::Cordon),
            Some(_) => true,
        };
        let ghost = &mut self.under().ghost;
        ghost.shut = paused && (ghost.shut || !begun);
    }
}
