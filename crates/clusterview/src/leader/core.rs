//! Whether this node is a candidate in the election, and what is reported of it.
//!
//! Sources: spec/agents.md 4.10; goals L4 (config), L5 (drain); D-A10 (a fetch that is under way reads as a failure),
//! D-K17 (what is reported follows from one state). Pure: no clock, no I/O, no task.

use std::time::Duration;

use crate::lease::{self, Election, ElectionLogEvent, ElectionState, ElectionTimes, ElectionWrite};
use step::{CallId, Core, Mono};
use topics::{ConfigGetStatus, GoTime, KubeLeaderElectInfo};

use super::candidacy::Candidacy;

/// Whether this node leads, and until when that is certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leadership {
    /// The first moment of the machine's monotonic clock at which it is no longer certain.
    pub until: Option<Mono>,
}

impl Leadership {
    /// Whether this node leads at `now`. To be asked in the turn of each act, with the clock read in that turn: a
    /// process may have stood still since it was reported.
    pub fn holds(self, now: Mono) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// The name of our Node object, which is our name in the election, and a number that differs from node to node.
    Named(String, u64),
    /// What zedagent says of its config; `None` when it says nothing any more.
    Config(Option<ConfigGetStatus>),
    /// What the drain leaves of the right to lead.
    Candidacy(Candidacy),
    /// The agent leaves: the lease is released.
    Leaving,
    /// Answer to [`Effect::Read`] or [`Effect::Write`], or that time has passed.
    Lease(lease::Event),
}

/// Something for the shell to do, in this order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// Tell the parts of this agent who act as the leader.
    Leadership(Leadership),
    /// Publish this, with the time of the publication.
    Publish(KubeLeaderElectInfo),
    /// Tell whoever waits for it whether anything of ours may be left in the lease.
    Clear(bool),
    Read(CallId),
    Write(CallId, Box<ElectionWrite>),
    /// Write to the log.
    Say(ElectionLogEvent),
}

/// What zedagent says of its config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConfigState {
    There,
    /// It was there, and reads as failed since then; every fetch does, for a while.
    Failing(Mono),
    Away,
}

/// This node in the election.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    times: ElectionTimes,
    config_patience: Duration,
    config: Option<ConfigState>,
    candidacy: Option<Candidacy>,
    leaving: bool,
    election: Option<Election>,
    told: Option<(Leadership, KubeLeaderElectInfo, bool)>,
}

impl Candidate {
    pub(crate) fn new(times: ElectionTimes, config_patience: Duration) -> Self {
        Self {
            times,
            config_patience,
            config: None,
            candidacy: None,
            leaving: false,
            election: None,
            told: None,
        }
    }

    fn configured(&mut self, now: Mono, status: Option<ConfigGetStatus>) {
        self.config = Some(match status {
            Some(ConfigGetStatus::Success | ConfigGetStatus::ReadSaved) => ConfigState::There,
            Some(ConfigGetStatus::Fail) => match self.config {
                Some(ConfigState::There) => ConfigState::Failing(now),
                Some(before @ ConfigState::Failing(_)) => before,
                Some(ConfigState::Away) | None => ConfigState::Away,
            },
            None
            | Some(ConfigGetStatus::Never | ConfigGetStatus::TemporaryFail | ConfigGetStatus::Stranger(_)) => {
                ConfigState::Away
            }
        });
    }

    /// When a config that reads as failed counts as lost.
    fn config_lost_at(&self) -> Option<Mono> {
        if let Some(ConfigState::Failing(since)) = self.config {
            Some(since + self.config_patience)
        } else {
            None
        }
    }

    /// Whether this node is to stand; `None` while that is not known.
    fn wanted(&self, now: Mono) -> Option<bool> {
        let leads = self.election.as_ref().is_some_and(|it| it.leads(now));
        match (self.leaving, self.candidacy, self.config) {
            (true, ..) | (_, Some(Candidacy::Closed), _) | (_, _, Some(ConfigState::Away)) => Some(false),
            (_, None, _) | (_, _, None) => None,
            (_, Some(Candidacy::Kept), _) => Some(leads),
            (_, Some(Candidacy::Open), Some(ConfigState::There | ConfigState::Failing(_))) => Some(true),
        }
    }

    /// Says what differs from what was said. What ends is said to those who act before it is published; what begins is
    /// published with the same right.
    fn publish_changes(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let nobody = ElectionState { clear: true, ..ElectionState::default() };
        let state = self.election.as_ref().map_or(nobody, |it| it.state().clone());
        let takes_part = self.election.is_some() && self.wanted(now) == Some(true);
        let runs = takes_part && state.answers;
        let leadership = Leadership { until: state.leads };
        let info = KubeLeaderElectInfo {
            in_leader_election: takes_part,
            is_stats_leader: leadership.holds(now),
            election_running: runs,
            leader_identity: if runs { state.leader } else { String::new() },
            latest_change: GoTime::ZERO,
        };
        let before = self.told.as_ref();
        if before.is_none_or(|it| it.0 != leadership) {
            out.push(Effect::Leadership(leadership));
        }
        if before.is_none_or(|it| it.1 != info) {
            out.push(Effect::Publish(info.clone()));
        }
        if before.is_none_or(|it| it.2 != state.clear) {
            out.push(Effect::Clear(state.clear));
        }
        self.told = Some((leadership, info, state.clear));
    }

    fn elect(&mut self, now: Mono, event: lease::Event, calls: &mut Vec<Effect>) {
        let Some(election) = &mut self.election else { return };
        for effect in election.step(now, event) {
            match effect {
                lease::Effect::Read(id) => calls.push(Effect::Read(id)),
                lease::Effect::Write(id, order) => calls.push(Effect::Write(id, order)),
                lease::Effect::Say(said) => calls.push(Effect::Say(said)),
                // Read from it where it is reported.
                lease::Effect::ElectionState(_) => {}
            }
        }
    }
}

impl Core for Candidate {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, now: Mono, event: Event) -> Vec<Effect> {
        let mut calls = Vec::new();
        match event {
            // A node keeps its name for a boot.
            Event::Named(name, chance) => {
                let times = self.times;
                self.election.get_or_insert_with(|| Election::new(times, name, chance));
            }
            Event::Config(status) => self.configured(now, status),
            Event::Candidacy(candidacy) => self.candidacy = Some(candidacy),
            Event::Leaving => self.leaving = true,
            Event::Lease(event) => self.elect(now, event, &mut calls),
        }
        if self.config_lost_at().is_some_and(|at| now >= at) {
            self.config = Some(ConfigState::Away);
        }
        if let Some(wanted) = self.wanted(now) {
            self.elect(now, lease::Event::Wanted(wanted), &mut calls);
        }
        let mut out = Vec::new();
        self.publish_changes(now, &mut out);
        out.append(&mut calls);
        out
    }

    fn next_wake(&self) -> Option<Mono> {
        let election = self.election.as_ref().and_then(Core::next_wake);
        [election, self.config_lost_at()].into_iter().flatten().min()
    }

    fn tick() -> Event {
        Event::Lease(lease::Event::Tick)
    }
}
