//! The candidate, fact by fact, and what it publishes against the bytes of the reference.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use step::{CallId, Core as _, Mono, WriteOutcome};
use topics::{ConfigGetStatus, GoTime, KubeLeaderElectInfo, go_json};

use super::candidate::{Candidacy, Candidate, Effect, Event};
use crate::lease::tests::{call, held};
use crate::lease::{self, ElectionTimes};

const T0: Mono = Mono::from_start(Duration::from_secs(1_000));
const PATIENCE: Duration = Duration::from_secs(300);

struct Bench {
    core: Candidate,
    now: Mono,
    last: Vec<Effect>,
    published: Vec<KubeLeaderElectInfo>,
}

impl Bench {
    fn new() -> Self {
        let core = Candidate::new(ElectionTimes::default(), PATIENCE);
        let mut bench = Self { core, now: T0, last: Vec::new(), published: Vec::new() };
        bench.hear(Candidate::tick());
        bench
    }

    fn candidate() -> Self {
        let mut bench = Self::new();
        bench.hear(Event::Candidacy(Candidacy::Open));
        bench.hear(Event::Named("node-1".to_owned(), 7));
        bench.hear(Event::Config(Some(ConfigGetStatus::Success)));
        bench
    }

    fn leading() -> Self {
        let mut bench = Self::candidate();
        bench.read(Some(held(1, "")));
        bench.wrote(2, "node-1");
        assert!(bench.newest().is_stats_leader);
        bench
    }

    fn hear(&mut self, event: Event) {
        self.last = self.core.step(self.now, event);
        for effect in &self.last {
            if let Effect::Publish(info) = effect {
                self.published.push(info.clone());
            }
        }
    }

    fn call(&self) -> Option<(String, CallId)> {
        call(self.last.iter().filter_map(|it| if let Effect::Lease(it) = it { Some(it) } else { None }))
    }

    fn does(&self) -> String {
        self.call().unwrap_or_default().0
    }

    fn read(&mut self, found: Option<Box<Lease>>) {
        assert_eq!(self.does(), "read");
        self.hear(Event::Lease(lease::Event::Read(self.call().unwrap().1, Ok(found))));
    }

    fn wrote(&mut self, version: u64, holder: &str) {
        let (what, id) = self.call().unwrap();
        assert_ne!(what, "read");
        let wrote = WriteOutcome::Done(held(version, holder));
        self.hear(Event::Lease(lease::Event::Wrote(id, wrote)));
    }

    fn newest(&self) -> &KubeLeaderElectInfo {
        self.published.last().unwrap()
    }

    /// Time passes with its wake-ups, and no call is answered.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.core.next_wake().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.hear(Candidate::tick());
        }
        self.now = end;
    }
}

/// As the shell publishes it, at the golden time.
fn bytes(info: &KubeLeaderElectInfo) -> String {
    let at = if *info == KubeLeaderElectInfo::default() {
        GoTime::ZERO
    } else {
        "2026-03-14T09:26:53.589793238Z".parse().unwrap()
    };
    let info = KubeLeaderElectInfo { latest_change: at, ..info.clone() };
    String::from_utf8(go_json::to_vec(&info).unwrap()).unwrap()
}

#[test]
fn golden_each_state_is_published_in_the_bytes_of_the_reference() {
    let golden = |name: &str| {
        let path =
            format!("{}/../../tests/golden/KubeLeaderElectInfo/{name}.json", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    let mut bench = Bench::new();
    assert_eq!(bytes(bench.newest()), golden("zero"));
    bench = Bench::candidate();
    bench.read(None);
    assert_eq!(bytes(bench.newest()), golden("started"));
    bench.wrote(2, "node-1");
    assert_eq!(bytes(bench.newest()), golden("leader"));
    bench.hear(Event::Candidacy(Candidacy::Closed));
    bench.wrote(3, "");
    assert_eq!(bytes(bench.newest()), golden("zero"));
    let mut other = Bench::candidate();
    other.read(Some(held(5, "node-2")));
    assert_eq!(bytes(other.newest()), golden("follower"));
}

#[test]
fn a_publication_comes_only_with_another_value() {
    let mut bench = Bench::leading();
    let before = bench.published.len();
    for version in 3..50 {
        bench.pass(Duration::from_secs(45));
        bench.wrote(version, "node-1");
        // The others in this agent hear of each renewal.
        assert!(bench.last.iter().any(|it| matches!(it, Effect::Leadership(_))), "{:?}", bench.last);
    }
    bench.hear(Event::Config(Some(ConfigGetStatus::ReadSaved)));
    bench.hear(Event::Candidacy(Candidacy::Kept));
    assert_eq!(bench.published.len(), before);
}

#[test]
fn nobody_stands_before_name_config_and_drain_are_known() {
    let facts = [
        Event::Named("node-1".to_owned(), 7),
        Event::Config(Some(ConfigGetStatus::Success)),
        Event::Candidacy(Candidacy::Open),
    ];
    for left_out in 0..3 {
        let mut bench = Bench::new();
        for fact in facts.iter().enumerate().filter(|(number, _)| *number != left_out) {
            bench.hear(fact.1.clone());
            assert_eq!(bench.does(), "", "without {left_out}");
        }
        assert!(!bench.newest().in_leader_election, "without {left_out}");
        bench.hear(facts[left_out].clone());
        assert_eq!(bench.does(), "read", "{left_out} came last");
        assert!(bench.newest().in_leader_election);
    }
}

#[test]
fn l4_a_config_that_is_lost_ends_candidacy_and_one_that_comes_back_begins_it() {
    for status in
        [ConfigGetStatus::Never, ConfigGetStatus::TemporaryFail, ConfigGetStatus::Stranger(9)].map(Some)
    {
        for lost in [status, None] {
            let mut bench = Bench::leading();
            bench.hear(Event::Config(lost));
            assert_eq!(bench.does(), "release on 2 for 1 s", "{lost:?}");
            assert!(!bench.newest().is_stats_leader && !bench.newest().in_leader_election);
            bench.wrote(3, "");
            bench.hear(Event::Config(Some(ConfigGetStatus::ReadSaved)));
            bench.read(Some(held(3, "")));
            bench.wrote(4, "node-1");
            assert!(bench.newest().is_stats_leader);
        }
    }
}

#[test]
fn d_a10_a_fetch_under_way_is_no_loss_and_one_that_never_succeeds_is() {
    let mut bench = Bench::leading();
    let before = bench.published.len();
    for version in 3..30 {
        bench.hear(Event::Config(Some(ConfigGetStatus::Fail)));
        bench.pass(Duration::from_secs(45));
        bench.wrote(version, "node-1");
        bench.hear(Event::Config(Some(ConfigGetStatus::Success)));
    }
    assert_eq!(bench.published.len(), before);
    bench.hear(Event::Config(Some(ConfigGetStatus::Fail)));
    let failed = bench.now;
    let mut version = 30;
    while bench.newest().is_stats_leader {
        // Further failed fetches are the same failure.
        bench.hear(Event::Config(Some(ConfigGetStatus::Fail)));
        bench.pass(Duration::from_secs(15));
        if bench.does().starts_with("hold") {
            version += 1;
            bench.wrote(version, "node-1");
        }
        assert!(bench.now.since(failed) <= PATIENCE);
    }
    assert_eq!(bench.now.since(failed), PATIENCE);
    // Without a first config there is no wait.
    let mut bench = Bench::candidate();
    bench.hear(Event::Config(None));
    bench.hear(Event::Config(Some(ConfigGetStatus::Fail)));
    assert!(!bench.newest().in_leader_election);
}

#[test]
fn l5_a_drain_keeps_the_leader_until_it_is_done_and_makes_no_new_one() {
    let mut bench = Bench::leading();
    bench.hear(Event::Candidacy(Candidacy::Kept));
    bench.pass(Duration::from_secs(45));
    bench.wrote(3, "node-1");
    assert!(bench.newest().is_stats_leader);
    bench.hear(Event::Candidacy(Candidacy::Closed));
    // Acting parts are notified before anything is published or sent.
    assert!(matches!(&bench.last[0], Effect::Leadership(it) if it.until.is_none()), "{:?}", bench.last);
    assert_eq!((bench.does().as_str(), bench.newest().is_stats_leader), ("release on 3 for 1 s", false));
    assert!(!bench.last.contains(&Effect::Clear(true)));
    bench.wrote(4, "");
    assert!(bench.last.contains(&Effect::Clear(true)));
    // The cordon is removed, then all is as before.
    bench.hear(Event::Candidacy(Candidacy::Kept));
    bench.pass(Duration::from_secs(600));
    assert!(!bench.newest().in_leader_election);
    bench.hear(Event::Candidacy(Candidacy::Open));
    bench.read(Some(held(4, "")));
    assert_eq!(bench.does(), "hold node-1 on 4 for 300 s");
}

#[test]
fn l5_a_leader_that_loses_the_lease_in_a_drain_stands_no_more() {
    let mut bench = Bench::leading();
    bench.hear(Event::Candidacy(Candidacy::Kept));
    bench.pass(Duration::from_secs(45));
    assert_eq!(bench.does(), "hold node-1 on 2 for 300 s");
    bench.pass(Duration::from_secs(135));
    assert!(!bench.newest().is_stats_leader && !bench.newest().in_leader_election);
}

#[test]
fn whoever_leaves_gives_the_lease_back_and_an_agent_that_never_stood_leaves_at_once() {
    let mut bench = Bench::leading();
    bench.hear(Event::Leaving);
    assert_eq!(bench.does(), "release on 2 for 1 s");
    bench.wrote(3, "");
    assert!(bench.last.contains(&Effect::Clear(true)));
    let mut other = Bench::new();
    assert!(other.last.contains(&Effect::Clear(true)));
    other.hear(Event::Leaving);
    assert_eq!(other.last, []);
}

#[test]
fn l2_the_lead_is_over_for_whoever_looks_at_the_clock_before_anybody_says_so() {
    let mut bench = Bench::leading();
    let told =
        bench.last.iter().find_map(|it| if let Effect::Leadership(told) = it { Some(*told) } else { None });
    let leadership = told.unwrap();
    assert!(leadership.holds(T0 + Duration::from_secs(179)));
    assert!(!leadership.holds(T0 + Duration::from_secs(180)));
    // Awake after that time, the first effect is its end, with any event.
    bench.now = T0 + Duration::from_secs(500);
    bench.hear(Event::Config(Some(ConfigGetStatus::Success)));
    assert!(
        matches!(&bench.last[..2], [Effect::Leadership(it), Effect::Publish(info)]
        if it.until.is_none() && !info.is_stats_leader),
        "{:?}",
        bench.last
    );
}
