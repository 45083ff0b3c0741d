//! The election, fact by fact.

mod beside;
mod rival;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::json;
use step::{CallId, Core as _, Mono, WriteOutcome};

use super::{Effect, Election, ElectionState, ElectionTimes, Event, version};

const T0: Mono = Mono::from_start(Duration::from_secs(1_000));

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn held(version: u64, holder: &str) -> Box<Lease> {
    let lease = json!({
        "metadata": { "resourceVersion": version.to_string() },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 300, "leaseTransitions": 2 },
    });
    Box::new(serde_json::from_value(lease).unwrap())
}

/// The call among `effects`, as `read`, `create us for 300 s`, `hold us on 5 for 300 s` or `release on 6 for 1 s`, and
/// its number.
pub(crate) fn call<'a>(effects: impl IntoIterator<Item = &'a Effect>) -> Option<(String, CallId)> {
    effects.into_iter().find_map(|effect| match effect {
        Effect::Read(id) => Some(("read".to_owned(), *id)),
        Effect::Write(id, order) => {
            let (on, secs) = (order.on.as_deref().map(version), order.lease.as_secs());
            let what = match (on, order.is_release()) {
                (None, _) => format!("create {}", order.holder),
                (Some(on), false) => format!("hold {} on {on}", order.holder),
                (Some(on), true) => format!("release on {on}"),
            };
            Some((format!("{what} for {secs} s"), *id))
        }
        Effect::Say(_) => None,
    })
}

/// The candidate `us`, its clock, and what it did last.
struct Bench {
    election: Election,
    now: Mono,
    last: Vec<Effect>,
}

impl Bench {
    fn new() -> Self {
        Self::wanted(true)
    }

    fn wanted(wanted: bool) -> Self {
        let mut bench =
            Self { election: Election::new(ElectionTimes::default(), "us", 7), now: T0, last: Vec::new() };
        bench.hear(Event::Wanted(wanted));
        bench
    }

    /// One that leads by a write of [`T0`] that was answered three seconds later.
    fn leading() -> Self {
        let mut bench = Self::new();
        bench.read(Some(held(5, "")));
        bench.later(secs(3));
        bench.done(6, "us");
        assert_eq!(bench.state().leads, Some(T0 + secs(180)));
        bench
    }

    fn hear(&mut self, event: Event) {
        self.last = self.election.step(self.now, event);
    }

    fn later(&mut self, wait: Duration) {
        self.now = self.now + wait;
    }

    /// Lets time pass until it wants to be woken.
    fn wait(&mut self) -> Duration {
        let due = self.election.next_wake().unwrap();
        let waited = due.since(self.now);
        self.now = self.now.max(due);
        self.hear(Event::Tick);
        waited
    }

    fn does(&self) -> String {
        call(&self.last).unwrap_or_default().0
    }

    fn read(&mut self, found: Option<Box<Lease>>) {
        self.answered(Ok(found));
    }

    fn cut(&mut self, why: &str) {
        self.answered(Err(why.to_owned()));
    }

    fn answered(&mut self, read: Result<Option<Box<Lease>>, String>) {
        assert_eq!(self.does(), "read");
        self.hear(Event::Read(call(&self.last).unwrap().1, read));
    }

    fn wrote(&mut self, wrote: WriteOutcome<Lease>) {
        let (what, id) = call(&self.last).unwrap();
        assert_ne!(what, "read");
        self.hear(Event::Wrote(id, wrote));
    }

    fn done(&mut self, version: u64, holder: &str) {
        self.wrote(WriteOutcome::Done(held(version, holder)));
    }

    fn state(&self) -> ElectionState {
        self.election.state()
    }

    /// What the log was given, behind the words that each line begins with.
    fn said(&self) -> Vec<&str> {
        let said =
            self.last.iter().filter_map(|it| if let Effect::Say(it) = it { Some(&it.text) } else { None });
        said.filter_map(|it| it.strip_prefix("leader election: ")).collect()
    }
}

fn unknown() -> WriteOutcome<Lease> {
    WriteOutcome::Unknown("cut".to_owned())
}

#[test]
fn nothing_is_asked_before_it_is_known_whether_we_stand() {
    let mut election = Election::new(ElectionTimes::default(), "us", 7);
    assert_eq!(election.step(T0, Event::Tick), []);
    assert_eq!(election.state(), ElectionState { clear: true, ..ElectionState::default() });
    assert_eq!(election.next_wake(), None);
}

#[test]
fn a_lease_that_is_not_there_is_made_and_one_that_nobody_holds_is_taken() {
    let mut bench = Bench::new();
    bench.read(None);
    assert_eq!(bench.does(), "create us for 300 s");
    bench.wrote(WriteOutcome::Outdated);
    bench.read(Some(held(5, "")));
    assert_eq!(bench.does(), "hold us on 5 for 300 s");
    bench.done(6, "us");
    assert_eq!(bench.said(), ["this node leads lease eve-kube-stats-leader"]);
    assert_eq!(
        bench.state(),
        ElectionState { leads: Some(T0 + secs(180)), leader: "us".to_owned(), answers: true, clear: false }
    );
}

#[test]
fn l3_a_holder_is_left_alone_for_as_long_as_we_have_seen_it_and_any_write_begins_that_anew() {
    let mut bench = Bench::new();
    bench.read(Some(held(5, "them")));
    let mut seen = bench.now;
    assert_eq!(bench.state().leader, "them");
    let mut looks = 0;
    loop {
        let waited = bench.wait();
        assert!((secs(15)..=secs(18)).contains(&waited), "{waited:?}");
        looks += 1;
        if looks == 10 {
            seen = bench.now;
        }
        bench.read(Some(held(if looks < 10 { 5 } else { 6 }, "them")));
        let free = bench.now.since(seen) >= secs(300);
        assert_eq!(bench.does(), if free { "hold us on 6 for 300 s" } else { "" });
        if free {
            break;
        }
    }
    assert!(looks > 25, "{looks}");
}

#[test]
fn a_holder_renews_without_another_look_and_leads_from_the_start_of_its_write() {
    let mut bench = Bench::leading();
    assert_eq!(bench.wait(), secs(45));
    let started = bench.now;
    assert_eq!(bench.does(), "hold us on 6 for 300 s");
    bench.later(secs(9));
    bench.done(7, "us");
    assert_eq!(bench.state().leads, Some(started + secs(180)));
    assert_eq!(bench.said(), [""; 0]);
}

#[test]
fn l2_a_holder_that_cannot_renew_leads_no_longer_at_the_renew_deadline_whatever_is_under_way() {
    let mut bench = Bench::leading();
    let deadline = T0 + secs(180);
    bench.wait();
    loop {
        match bench.does().as_str() {
            "" => {}
            "read" => {
                bench.later(secs(10));
                bench.cut("cut");
            }
            _ => bench.wrote(unknown()),
        }
        if bench.said().iter().any(|it| it.ends_with("the lease was not renewed within the renew deadline")) {
            break;
        }
        assert!(bench.election.leads(bench.now));
        bench.wait();
    }
    assert!(bench.now >= deadline && bench.now <= deadline + secs(10));
    assert!(!bench.election.leads(deadline), "it is not for the next event to say");
    assert_eq!(bench.state().leads, None);
}

#[test]
fn whoever_stood_still_looks_at_the_clock_before_anything_else() {
    let mut bench = Bench::leading();
    bench.wait();
    // The answer to a renewal lay there while the process stood still.
    bench.later(secs(200));
    bench.done(7, "us");
    assert_eq!(bench.state().leads, None);
    assert_eq!(bench.does(), "read", "what was read before is not relied upon");
    bench.read(Some(held(9, "them")));
    assert_eq!(bench.state().leader, "them");
    assert_eq!(bench.does(), "");
}

#[test]
fn a_conflict_is_looked_at_at_once_and_only_another_holder_ends_the_lead() {
    let mut bench = Bench::leading();
    bench.wait();
    bench.wrote(WriteOutcome::Outdated);
    bench.read(Some(held(7, "us")));
    assert!(bench.state().leads.is_some());
    bench.wrote(WriteOutcome::Outdated);
    // The second time in a row there is a pause.
    assert_eq!(bench.does(), "");
    assert!(bench.wait() >= secs(15));
    bench.read(Some(held(9, "them")));
    assert_eq!(bench.said(), ["this node leads no longer: somebody else holds the lease"]);
    assert_eq!(bench.state().leads, None);
}

#[test]
fn a_record_of_ours_is_taken_up_again_after_a_restart() {
    let mut bench = Bench::new();
    bench.read(Some(held(5, "us")));
    assert_eq!(bench.state().leads, None, "reading is no right to lead");
    bench.done(6, "us");
    assert_eq!(bench.said(), ["this node leads lease eve-kube-stats-leader"]);
}

#[test]
fn l5_whoever_leaves_leads_no_longer_at_once_and_gives_the_lease_back() {
    let mut bench = Bench::leading();
    bench.hear(Event::Wanted(false));
    assert_eq!((bench.state().leads, bench.state().clear), (None, false));
    assert_eq!(bench.does(), "release on 6 for 1 s");
    bench.done(7, "");
    assert_eq!(bench.said(), ["lease released"]);
    assert!(bench.state().clear);
    bench.hear(Event::Tick);
    assert_eq!(bench.does(), "");
    // And is a candidate again.
    bench.hear(Event::Wanted(true));
    assert_eq!((bench.does().as_str(), bench.state().clear), ("read", false));
}

#[test]
fn l5_a_renewal_under_way_is_waited_for_and_given_back_too() {
    for end in [WriteOutcome::Done(held(7, "us")), unknown(), WriteOutcome::Outdated] {
        let mut bench = Bench::leading();
        bench.wait();
        let id = call(&bench.last).unwrap().1;
        bench.hear(Event::Wanted(false));
        assert!(!bench.state().clear);
        bench.hear(Event::Wrote(id, end.clone()));
        if end == unknown() {
            assert!(bench.wait() < secs(2), "whoever leaves is waited for");
        }
        if bench.does() == "read" {
            bench.read(Some(held(7, "us")));
        }
        assert_eq!(bench.does(), "release on 7 for 1 s", "{end:?}");
        bench.done(8, "");
        assert!(bench.state().clear);
    }
}

#[test]
fn what_an_earlier_run_left_is_given_back_by_one_that_does_not_stand() {
    let mut bench = Bench::wanted(false);
    bench.read(Some(held(5, "us")));
    assert!(!bench.state().clear);
    bench.done(6, "");
    assert!(bench.state().clear);
    let mut other = Bench::wanted(false);
    other.read(Some(held(5, "them")));
    assert_eq!((other.does().as_str(), other.state().clear), ("", true));
    assert_eq!(other.state().leader, "them");
}

#[test]
fn a_lease_that_cannot_be_given_back_is_let_run_out() {
    let mut bench = Bench::leading();
    bench.hear(Event::Wanted(false));
    let began = bench.now;
    while !bench.said().contains(&"lease not released, it has run out by now") {
        match bench.does().as_str() {
            "" => drop(bench.wait()),
            "read" => bench.cut("cut"),
            _ => bench.wrote(unknown()),
        }
        assert!(bench.now.since(began) <= secs(300));
    }
    assert!(bench.state().clear);
    bench.hear(Event::Tick);
    assert_eq!(bench.does(), "");
}

#[test]
fn a_cluster_that_answers_no_look_for_long_is_told_once_with_its_trouble() {
    let mut bench = Bench::new();
    bench.cut("no kubeconfig");
    assert_eq!(bench.said(), ["the cluster does not answer: no kubeconfig"]);
    bench.wait();
    bench.cut("no kubeconfig");
    assert_eq!((bench.said(), bench.state().answers), (Vec::<&str>::new(), false));
    bench.wait();
    bench.read(Some(held(5, "them")));
    let heard = bench.now;
    assert_eq!((bench.said(), bench.state().answers), (vec!["the cluster answers"], true));
    while bench.state().answers {
        bench.wait();
        if bench.does() == "read" {
            bench.cut("refused");
        }
    }
    assert_eq!(bench.now.since(heard), secs(300));
    assert!(bench.said().contains(&"the cluster does not answer: refused"), "{:?}", bench.last);
}

#[test]
fn whoever_stands_no_longer_does_not_miss_the_answers_that_nobody_asks_for() {
    let mut bench = Bench::leading();
    bench.hear(Event::Wanted(false));
    bench.done(7, "");
    while bench.state().answers {
        bench.wait();
        assert_eq!(bench.said(), [""; 0]);
    }
    bench.hear(Event::Wanted(true));
    bench.read(None);
    assert_eq!((bench.said(), bench.state().answers), (vec!["the cluster answers"], true));
}

#[test]
fn the_answer_to_another_call_is_not_listened_to() {
    let mut bench = Bench::new();
    let id = call(&bench.last).unwrap().1;
    bench.hear(Event::Read(id + 1, Ok(None)));
    bench.hear(Event::Wrote(id, WriteOutcome::Done(held(6, "us"))));
    assert_eq!((bench.does().as_str(), bench.state().leads), ("", None));
}

#[test]
fn the_lead_is_over_before_the_lease_is_whatever_the_settings_say() {
    let mut bench = Bench::new();
    let times = ElectionTimes::new(secs(100), secs(500), secs(15), secs(300));
    bench.election = Election::new(times, "us", 7);
    bench.hear(Event::Wanted(true));
    bench.read(None);
    bench.done(1, "us");
    assert_eq!(bench.state().leads, Some(T0 + secs(80)));
}
