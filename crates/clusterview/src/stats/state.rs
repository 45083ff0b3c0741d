//! `KubeStatsState`: how the statistics are made.
//!
//! When the statistics are opened, published, and withdrawn. A publication happens only while this node certainly
//! leads, at most once in [`GAP`], and only after a change.

use std::time::Duration;

use step::Mono;
use topics::{GoTime, KubeStatsPart, KubeStatsState};

use super::fold::Cut;
use crate::collections::{LAST_GOOD, Parts};
use crate::leader::Leadership;

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

/// Least time between two publications.
pub const GAP: Duration = Duration::from_secs(30);
/// How long the first publication waits for parts without news.
pub const FIRST_WAIT: Duration = Duration::from_secs(10);
/// Least time between two writes of `KubeStatsState`.
const TELL_GAP: Duration = Duration::from_secs(1);
/// When a failed withdrawal is tried again.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatsAction {
    /// This node leads: follow the cluster.
    Open,
    /// It does not: withdraw, close the watches.
    Close,
    Publish,
    /// Publish `KubeStatsState`.
    Tell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LeaderTerm {
    until: Mono,
    began: Mono,
    /// Earliest publication; `None` before the first.
    next: Option<Mono>,
    /// Something was received of every part.
    all_heard: bool,
    changed: bool,
    /// Earliest `KubeStatsState`.
    next_word: Mono,
    /// Changes since the last one.
    news: bool,
}

/// Starts as after a crash: an earlier run's value is withdrawn first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rhythm {
    term: Option<LeaderTerm>,
    /// When a withdrawal is due.
    owed: Option<Mono>,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self { term: None, owed: Some(Mono::START) }
    }
}

impl Rhythm {
    /// To be called in every turn, as only the present value counts.
    pub(super) fn lead(&mut self, now: Mono, leading: Leadership) -> Option<StatsAction> {
        let until = leading.until.filter(|_| leading.holds(now));
        match (&mut self.term, until) {
            (None, None) => None,
            (Some(term), Some(until)) => {
                term.until = until;
                None
            }
            (Some(_), None) => {
                self.term = None;
                self.owed = Some(now);
                None
            }
            // A due withdrawal comes first.
            (None, Some(_)) if self.owed.is_some() => None,
            (None, Some(until)) => {
                self.term = Some(LeaderTerm {
                    until,
                    began: now,
                    next: None,
                    all_heard: false,
                    changed: true,
                    next_word: now,
                    news: true,
                });
                Some(StatsAction::Open)
            }
        }
    }

    /// Until when this node certainly leads.
    pub(super) fn until(&self) -> Option<Mono> {
        self.term.map(|term| term.until)
    }

    pub(super) fn changed(&mut self) {
        if let Some(term) = &mut self.term {
            term.changed = true;
        }
    }

    /// The state of a part has changed.
    pub(super) fn news(&mut self, all_heard: bool) {
        if let Some(term) = &mut self.term {
            term.news = true;
            term.all_heard = all_heard;
        }
    }

    /// The withdrawal succeeded or failed.
    pub(super) fn closed(&mut self, now: Mono, done: bool) {
        self.owed = (!done).then_some(now + AGAIN);
    }

    /// To be called until there is none.
    pub(super) fn due(&mut self, now: Mono) -> Option<StatsAction> {
        if self.owed.is_some_and(|at| now >= at) {
            return Some(StatsAction::Close);
        }
        let term = self.term.as_mut()?;
        if term.publication().is_some_and(|at| now >= at) {
            term.changed = false;
            term.news = true;
            term.next = Some(now + GAP);
            return Some(StatsAction::Publish);
        }
        if now >= term.word() {
            term.news = false;
            term.next_word = now + TELL_GAP;
            return Some(StatsAction::Tell);
        }
        None
    }

    pub(super) fn next_wake(&self) -> Option<Mono> {
        let term = self.term.as_ref();
        let times = [
            self.owed,
            term.and_then(LeaderTerm::publication),
            term.map(LeaderTerm::word),
            term.map(|it| it.until),
        ];
        times.into_iter().flatten().min()
    }
}

impl LeaderTerm {
    fn publication(&self) -> Option<Mono> {
        let first = if self.all_heard { self.began } else { self.began + FIRST_WAIT };
        self.changed.then_some(self.next.unwrap_or(first))
    }

    /// Soon after a change, and now and then because the end of the term has moved.
    fn word(&self) -> Mono {
        if self.news { self.next_word } else { self.next_word + GAP }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

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

    fn due(rhythm: &mut Rhythm, now: Mono) -> Vec<StatsAction> {
        std::iter::from_fn(|| {
            let act = rhythm.due(now);
            if act == Some(StatsAction::Close) {
                rhythm.closed(now, true);
            }
            act
        })
        .collect()
    }

    fn leader() -> Rhythm {
        let mut rhythm = Rhythm::default();
        assert_eq!(
            rhythm.lead(at(0), Leadership { until: Some(at(1000)) }),
            None,
            "what an earlier run left goes first"
        );
        assert_eq!(due(&mut rhythm, at(0)), [StatsAction::Close]);
        assert_eq!(rhythm.lead(at(0), Leadership { until: Some(at(1000)) }), Some(StatsAction::Open));
        rhythm
    }

    #[test]
    fn the_first_publication_waits_for_all_parts_and_not_for_long() {
        let mut rhythm = leader();
        assert_eq!(due(&mut rhythm, at(1)), [StatsAction::Tell]);
        rhythm.news(true);
        assert_eq!(due(&mut rhythm, at(2)), [StatsAction::Publish, StatsAction::Tell]);
        let mut rhythm = leader();
        assert_eq!(due(&mut rhythm, at(9)), [StatsAction::Tell]);
        rhythm.news(false);
        assert_eq!(due(&mut rhythm, at(10)), [StatsAction::Publish, StatsAction::Tell]);
    }

    #[test]
    fn publications_are_a_gap_apart_and_come_only_after_a_change() {
        let mut rhythm = leader();
        rhythm.news(true);
        assert!(due(&mut rhythm, at(0)).contains(&StatsAction::Publish));
        assert!(!due(&mut rhythm, at(500)).contains(&StatsAction::Publish), "nothing has changed");
        rhythm.changed();
        assert!(due(&mut rhythm, at(501)).contains(&StatsAction::Publish));
        rhythm.changed();
        assert_eq!(rhythm.next_wake(), Some(at(531)));
        assert!(!due(&mut rhythm, at(530)).contains(&StatsAction::Publish));
        assert!(due(&mut rhythm, at(531)).contains(&StatsAction::Publish));
    }

    #[test]
    fn l2_the_end_of_the_certain_time_ends_the_term_and_a_failed_withdrawal_is_tried_again() {
        let mut rhythm = leader();
        assert_eq!(rhythm.lead(at(999), Leadership { until: Some(at(1000)) }), None);
        assert_eq!(rhythm.until(), Some(at(1000)));
        assert_eq!(rhythm.lead(at(1000), Leadership { until: Some(at(1000)) }), None);
        assert_eq!((rhythm.until(), rhythm.due(at(1000))), (None, Some(StatsAction::Close)));
        rhythm.closed(at(1000), false);
        assert_eq!((rhythm.due(at(1000)), rhythm.next_wake()), (None, Some(at(1001))));
        assert_eq!(
            rhythm.lead(at(1000), Leadership { until: Some(at(2000)) }),
            None,
            "no new term before that is done"
        );
        assert_eq!(rhythm.due(at(1001)), Some(StatsAction::Close));
        rhythm.closed(at(1001), true);
        assert_eq!(rhythm.lead(at(1001), Leadership { until: Some(at(2000)) }), Some(StatsAction::Open));
    }

    proptest! {
        /// For any order of facts, time and failures: nothing is published outside of a certain term, two
        /// publications are a gap apart, and a term that ends is followed by a withdrawal in the same turn.
        #[test]
        fn l2_nothing_is_published_without_the_lease(
            steps in proptest::collection::vec((0_u64..40, 0_u8..6, 0_u64..80, any::<bool>()), 1..200)
        ) {
            let (mut rhythm, mut now, mut leading) = (Rhythm::default(), at(0), Leadership::default());
            let (mut published, mut last): (bool, Option<Mono>) = (true, None);
            for (wait, what, ahead, good) in steps {
                now = now + Duration::from_secs(wait);
                match what {
                    0 => leading = Leadership::default(),
                    1 => leading = Leadership { until: Some(now + Duration::from_secs(ahead)) },
                    2 => rhythm.changed(),
                    3 => rhythm.news(good),
                    _ => {}
                }
                let certain = leading.holds(now);
                let mut acts = 0;
                loop {
                    // As the task does: leadership is read before each action.
                    if rhythm.lead(now, leading) == Some(StatsAction::Open) {
                        prop_assert!(certain && !published);
                        last = None;
                    }
                    let Some(act) = rhythm.due(now) else { break };
                    acts += 1;
                    prop_assert!(acts < 9, "it goes round");
                    match act {
                        StatsAction::Publish => {
                            prop_assert!(certain);
                            prop_assert!(last.is_none_or(|last| now >= last + GAP));
                            (published, last) = (true, Some(now));
                        }
                        StatsAction::Close => {
                            published &= !good;
                            rhythm.closed(now, good);
                        }
                        StatsAction::Tell | StatsAction::Open => {}
                    }
                }
                if !certain && published {
                    prop_assert_eq!(rhythm.next_wake().map(|at| at > now), Some(true), "it is tried again");
                    prop_assert!(rhythm.next_wake() <= Some(now + AGAIN));
                }
            }
        }
    }
}
