//! The wall clock: every time for a person is made from a monotonic one, and again when the clock is set.
//!
//! No decision depends on it. Not here: who notices that it was set (`agent::Clock`). Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;
use topics::GoTime;

use super::facts::Effect;
use super::machine::Zedagent;

/// A smaller move of the clock rewrites nothing.
const SET: Duration = Duration::from_millis(500);

impl Zedagent {
    /// The present wall clock's time of a point in this boot.
    pub(super) fn wall(&self, at: Mono) -> GoTime {
        self.booted_at.plus(at.since_start())
    }

    /// The wall clock was set: times of pending operations are written again.
    pub(super) fn set_clock(&mut self, booted_at: GoTime, out: &mut Vec<Effect>) {
        if booted_at.apart(self.booted_at) >= SET {
            self.booted_at = booted_at;
        }
        for pending in self.pending.values_mut() {
            let by = pending.booted_at;
            if pending.boot_id == self.boot_id && !by.is_zero() && by.apart(self.booted_at) >= SET {
                pending.since = pending.since.moved(by, self.booted_at);
                pending.booted_at = self.booted_at;
                out.push(Effect::Journal(pending.clone()));
            }
        }
    }
}
