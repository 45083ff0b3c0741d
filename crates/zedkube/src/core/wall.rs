//! The wall clock: every time that a person reads is made from a monotonic one, and made again when the clock is set.
//!
//! No decision depends on it. Not here: who notices that it was set (`agent::Clock`). Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;
use topics::{Asked, GoTime, NodeDrainRequest};

use super::machine::Zedkube;

/// A clock that was moved by less was not set: the journal of an earlier run is not written again for that.
const SET: Duration = Duration::from_millis(500);

impl Zedkube {
    /// What the wall clock of now shows for a point in this boot.
    pub(super) fn wall(&self, at: Mono) -> GoTime {
        self.booted_at.plus(at.since_start())
    }

    /// The monotonic clock started then, by the wall clock of now. What was written by an earlier one moves with it.
    pub(super) fn set_clock(&mut self, now: Mono, booted_at: GoTime) {
        let before = self.booted_at;
        if before.apart(booted_at) < SET {
            return;
        }
        self.booted_at = booted_at;
        let answers = self.answers.iter_mut().map(|it| &mut it.at);
        let asked = self.asked.iter_mut().map(|it| &mut it.at);
        for at in [&mut self.started_at].into_iter().chain(answers).chain(asked) {
            *at = at.moved(before, booted_at);
        }
        self.history.set_clock(&self.boot_id, now.since_start(), (before, booted_at));
    }

    /// Keeps when a request was made: as it says itself where that can be, else when it was first heard of.
    pub(super) fn heard_asked(&mut self, now: Mono, request: &NodeDrainRequest) {
        if self.asked.iter().any(|it| it.id() == request.id()) {
            return;
        }
        let heard = self.wall(now);
        let said = request.requested_at;
        let at = if (self.booted_at..=heard).contains(&said) { said } else { heard };
        let (requested_by, requested_at) = (request.requested_by, said);
        self.asked.push(Asked { requested_by, requested_at, at });
        self.asked.sort_by_key(Asked::id);
    }

    /// Forgets requests that no longer stand.
    pub(super) fn forget_asked(&mut self) {
        if self.knows_requests() {
            self.asked.retain(|asked| self.requests.values().any(|it| it.id() == asked.id()));
        }
    }
}
