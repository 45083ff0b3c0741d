//! The one way out of an agent: what it publishes and stores goes through here, and a write that fails ends nothing.
//!
//! A write that fails is kept, tried again after a pause that grows to [`LONGEST_PAUSE`], logged once and once more
//! when it works again, and told in `/run/<agent>/AgentTrouble/global.json`. Only what promises something waits for its
//! record; each agent says with a [`Weight`] which of its effects is what:
//!
//! | Agent | Record: on disk before what comes after it | Promise: waits for the records before it | Status: waits for nothing, the newest is tried again |
//! |---|---|---|---|
//! | zedagent | `DeviceOpPending`, `rebootConfig`, `shutdownConfig` | the request for a drain; `ZedAgentStatus` when it commands what it did not command before; the use of a force file | the request taken back; any other `ZedAgentStatus`; the parts of the device config |
//! | zedkube | `DrainJournal`; of the leave, `NodeLeave` | cordon, drain; `NodeDrainStatus` and `NodeDrainProgress` that say COMPLETE and did not before; a step of the leave | any other status and progress, `DrainHistory`, all that the elected node reports |
//! | baseosmgr | saved counters, the journal of a fallback | the request for a drain; a change of the partitions; `ZbootStatus` `updating`; the use of a force file | the request taken back; any other status |
//! | nodeagent | none: its journal lies under `/run`, and no file may keep a device from going down | none | `NodeAgentStatus`, `ZbootConfig`, the journal, the reason of the reboot |
//!
//! Promises and records that wait keep their order. Among records that follow each other the newest of a key is
//! written; a promise or a cancellation takes an older promise of its key out of the queue, so that nothing is asked
//! for that is no longer wanted, and nothing twice. An order of a person (a force file) lets its command go ahead
//! without the record: the reboot may be the cure. What waits when the agent is killed is decided again from disk.
//!
//! Not here: what is written, and when. What can be read neither ends an agent, see [`started`].

mod effects;
mod publication;
mod queue;
mod start;
mod troubles;

pub(crate) use effects::Effects;
pub use effects::Hands;
pub use publication::{Outlet, Tries};
pub use queue::Weight;
pub use start::started;
pub use troubles::Troubles;

use std::time::Duration;

use step::Mono;

/// The pause before a write is tried for the second time.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// No pause is longer, so that all continues within five seconds of the disk's recovery (goals K2).
pub const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// When what has failed is tried next.
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
