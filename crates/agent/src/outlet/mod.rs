//! The only way out of an agent: everything that it publishes and stores goes through here, and a failed
//! write does not end it.
//!
//! A failed write is kept, tried again after a pause that grows to [`LONGEST_PAUSE`], logged once and once
//! more when it works again, and shown in `/run/<agent>/AgentTrouble/global.json`. Only promises wait for
//! their record; each agent gives its effects a [`Weight`]:
//!
//! | Agent | Record: on disk before what comes after it | Promise: waits for the records before it | Status: waits for nothing, the newest is tried again |
//! |---|---|---|---|
//! | zedagent | `DeviceOpPending`, `rebootConfig`, `shutdownConfig` | the request for a drain; `ZedAgentStatus` when it commands what it did not command before; the use of a force file | the request taken back; any other `ZedAgentStatus`; the parts of the device config |
//! | zedkube | `DrainJournal`; of the leave, `NodeLeave` | cordon, drain; `NodeDrainStatus` and `NodeDrainProgress` that say COMPLETE and did not before; a step of the leave | any other status and progress, `DrainHistory`, all that the elected node reports |
//! | baseosmgr | saved counters, the journal of a fallback | the request for a drain; a change of the partitions; `ZbootStatus` `updating`; the use of a force file | the request taken back; any other status |
//! | nodeagent | none: its journal lies under `/run`, and no file may keep a device from going down | none | `NodeAgentStatus`, `ZbootConfig`, the journal, the reason of the reboot |
//!
//! Promises and records that wait keep their order. Among records that follow each other the newest of a key is
//! written; a promise or a cancellation removes an older promise of its key from the queue, so that no request is sent
//! twice or when no longer wanted. An order of a person (a force file) lets its command go ahead without the record:
//! the reboot may be the cure. After a kill, waiting effects are decided again from disk.
//!
//! Not here: what is written, and when; failed reads at the start ([`started`]).

mod effects;
mod publication;
mod queue;
mod troubles;

pub(crate) use effects::Effects;
pub use effects::Hands;
pub use publication::{KeptRecord, Outlet, Tries, started};
pub use queue::Weight;
pub use troubles::{Troubles, full_disk, next_step_of_io};

use std::time::Duration;

use step::Mono;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// So that everything continues within five seconds of the disk's recovery.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(4);

#[derive(Debug, Clone, Copy, Default)]
struct RetryPause {
    failed: u32,
    next: Option<Mono>,
}

impl RetryPause {
    fn failed(&mut self, now: Mono) {
        self.failed = self.failed.saturating_add(1);
        self.next = Some(now + step::doubled(FIRST_PAUSE, LONGEST_PAUSE, self.failed));
    }

    fn over(&mut self) {
        *self = Self::default();
    }
}
