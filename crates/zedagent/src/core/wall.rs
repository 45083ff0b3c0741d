//! The wall clock: every time that a person reads is made from a monotonic one, and made again when the clock is set.
//!
//! No decision depends on it. Not here: who notices that it was set (`agent::Clock`). Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;
use topics::GoTime;

use super::facts::Effect;
use super::machine::Zedagent;

/// A clock that was moved by less was not set: nothing is written again for that.
const SET: Duration = Duration::from_millis(500);

impl Zedagent {
    /// What the wall clock of now shows for a point in this boot.
    pub(super) fn wall(&self, at: Mono) -> GoTime {
        self.booted_at.plus(at.since_start())
    }

    /// The monotonic clock started then, by the wall clock of now: what is pending since some point in this boot is so
    /// since another time.
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
