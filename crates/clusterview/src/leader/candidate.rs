//! Whether this node is a candidate in the election, and what it publishes.
//!
//! Sources: D-A10 (a config fetch under way reads as a failure), D-K17 (all reports
//! follow from one state). Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::{Core, Mono};
use topics::{ConfigGetStatus, KubeLeaderElectInfo};

use crate::lease::{self, Election, ElectionState, ElectionTimes};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leadership {
    /// Monotonic time at which leadership is no longer certain.
    pub until: Option<Mono>,
}

impl Leadership {
    /// Whether this node leads at `now`. To be called in the turn of each act, with the clock of that turn:
    /// the process may have been suspended.
    pub fn holds(self, now: Mono) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// The name of our Node object, used as identity, and a number that differs between nodes.
    Named(String, u64),
    /// `None` when zedagent publishes none any more.
    Config(Option<ConfigGetStatus>),
    Candidacy(Candidacy),
    /// The agent ends: release the lease.
    Leaving,
    /// Answer to what the election asked for, or a tick.
    Lease(lease::Event),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// Notify the parts of this agent that act as the leader.
    Leadership(Leadership),
    /// Publish this, with the time of the publication.
    Publish(KubeLeaderElectInfo),
    /// Notify waiting tasks whether our record may be in the lease.
    Clear(bool),
    /// What the election asks for and says.
    Lease(lease::Effect),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConfigState {
    There,
    /// It existed, and reads as failed since then; every fetch does, for a while.
    Failing(Mono),
    Away,
}

#[derive(Debug, Clone, PartialEq, Default)]
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
        Self { times, config_patience, ..Self::default() }
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

    fn config_lost_at(&self) -> Option<Mono> {
        if let Some(ConfigState::Failing(since)) = self.config {
            Some(since + self.config_patience)
        } else {
            None
        }
    }

    /// Whether this node is a candidate; `None` while unknown.
    fn wanted(&self, now: Mono) -> Option<bool> {
        let leads = self.election.as_ref().is_some_and(|it| it.leads(now));
        match (self.leaving, self.candidacy, self.config) {
            (true, ..) | (_, Some(Candidacy::Closed), _) | (_, _, Some(ConfigState::Away)) => Some(false),
            (_, None, _) | (_, _, None) => None,
            (_, Some(Candidacy::Kept), _) => Some(leads),
            (_, Some(Candidacy::Open), Some(ConfigState::There | ConfigState::Failing(_))) => Some(true),
        }
    }

    /// Sends differences from the last values. An end is sent to acting parts before it is published; a
    /// beginning is published with the same right.
    fn publish_changes(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let nobody = ElectionState { clear: true, ..ElectionState::default() };
        let state = self.election.as_ref().map_or(nobody, Election::state);
        let takes_part = self.election.is_some() && self.wanted(now) == Some(true);
        let runs = takes_part && state.answers;
        let leadership = Leadership { until: state.leads };
        let info = KubeLeaderElectInfo {
            in_leader_election: takes_part,
            is_stats_leader: leadership.holds(now),
            election_running: runs,
            leader_identity: if runs { state.leader } else { String::new() },
            ..KubeLeaderElectInfo::default()
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
        calls.extend(election.step(now, event).into_iter().map(Effect::Lease));
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidacy {
    Open,
    /// A leader stays leader, others do not become candidates: the node is about to be drained, or
    /// uncordoned.
    Kept,
    /// No candidate: the operation goes ahead, or the node leaves its cluster.
    Closed,
}
