//! `KubeStatsState`: how the statistics are made.
//!
//! The two topics of the statistics. Dropping them withdraws them, so a cancelled task leaves no value.

use agent::{Error, Outlet, Troubles};
use step::Mono;
use topics::{GoTime, KubeClusterInfo, KubeStatsPart, KubeStatsState};
use tracing::error;

use super::fold::Cut;
use crate::GLOBAL;
use crate::collections::{LAST_GOOD, Parts};

/// Next step for a cut list.
const CUT_STEP: &str = "read the rest with kubectl; one message of this topic holds no more";

/// The two clocks at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: Mono,
    pub(super) wall: GoTime,
}

impl Moment {
    /// The wall clock at `at`.
    fn at(self, at: Mono) -> GoTime {
        self.wall.plus(at.since(self.now)).minus(self.now.since(at))
    }
}

/// Of a node that leads until then.
pub(super) fn leading(moment: Moment, until: Mono, parts: &Parts, cuts: &Cuts) -> KubeStatsState {
    let expired = parts.expired();
    let failing = parts.failing().map(|(part, since, error, next_step)| {
        let kept = if expired.contains(&part) {
            "left out".to_owned()
        } else {
            format!("what was last heard is kept for {} s at most", LAST_GOOD.as_secs())
        };
        KubeStatsPart {
            name: part.text().to_owned(),
            since: moment.at(since),
            error: format!("{error} ({kept})"),
            next_step: next_step.to_owned(),
        }
    });
    let cut = cuts.0.iter().map(|(since, Cut { member, kept, of })| KubeStatsPart {
        name: (*member).to_owned(),
        since: moment.at(*since),
        error: format!("{kept} of {of} fit into a message"),
        next_step: CUT_STEP.to_owned(),
    });
    KubeStatsState {
        leader: true,
        until: moment.at(until),
        requests_open: u32::try_from(parts.followed()).unwrap_or(u32::MAX),
        parts: failing.chain(cut).collect(),
    }
}

/// Cut lists, each with its start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Cuts(Vec<(Mono, Cut)>);

impl Cuts {
    /// Known ones keep their start.
    pub(super) fn set(&mut self, now: Mono, cuts: Vec<Cut>) {
        let since = |cut: &Cut| {
            let known = self.0.iter().find(|(_, known)| known.member == cut.member);
            known.map_or(now, |(since, _)| *since)
        };
        self.0 = cuts.into_iter().map(|cut| (since(&cut), cut)).collect();
    }
}

pub struct StatsPublisher {
    info: Outlet<KubeClusterInfo>,
    state: Outlet<KubeStatsState>,
}

impl StatsPublisher {
    /// Publishes both, with the values of an earlier run.
    ///
    /// Errors: another process publishes them, or their directories cannot be used.
    pub fn open(troubles: &Troubles) -> Result<Self, Error> {
        Ok(Self { info: Outlet::open(troubles)?, state: Outlet::open(troubles)? })
    }

    /// Publishes a changed value; returns whether that succeeded. The next round retries.
    pub(super) fn publish(&mut self, info: &KubeClusterInfo) -> bool {
        self.info.put(GLOBAL, info)
    }

    /// Returns whether that succeeded.
    pub(super) fn withdraw(&mut self) -> bool {
        self.info.take(GLOBAL)
    }

    pub(super) fn publish_state(&mut self, state: &KubeStatsState) {
        self.state.put(GLOBAL, state);
    }
}

impl Drop for StatsPublisher {
    fn drop(&mut self) {
        if !self.withdraw() {
            error!(
                "KubeClusterInfo stays published by a node that no longer leads; remove its file under run/zedkube"
            );
        }
        self.publish_state(&KubeStatsState::default());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(secs: u64) -> Mono {
        Mono::START + Duration::from_secs(secs)
    }

    #[test]
    fn moments_before_and_after_are_shown_by_the_wall_clock() {
        let moment = Moment { now: at(100), wall: "2026-03-14T09:30:00Z".parse().unwrap() };
        assert_eq!(moment.at(at(160)).rfc3339(), "2026-03-14T09:31:00Z");
        assert_eq!(moment.at(at(40)).rfc3339(), "2026-03-14T09:29:00Z");
    }

    #[test]
    fn a_cut_keeps_its_time_while_it_lasts() {
        let moment = Moment { now: at(100), wall: "2026-03-14T09:30:00Z".parse().unwrap() };
        let cut = |kept| Cut { member: "Nodes", kept, of: 300 };
        let mut cuts = Cuts::default();
        cuts.set(at(40), vec![cut(140)]);
        cuts.set(at(70), vec![cut(139)]);
        let told = leading(moment, at(160), &Parts::default(), &cuts);
        assert_eq!((told.leader, told.until.rfc3339().as_str()), (true, "2026-03-14T09:31:00Z"));
        let part = &told.parts[0];
        assert_eq!((part.name.as_str(), part.since.rfc3339().as_str()), ("Nodes", "2026-03-14T09:29:00Z"));
        assert_eq!(part.error, "139 of 300 fit into a message");
        cuts.set(at(80), vec![]);
        assert_eq!(leading(moment, at(160), &Parts::default(), &cuts).parts, []);
    }
}
