//! Rules of the drain, each tried in a sentence; faults of the reference by their names.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::{Core as _, Mono};
use topics::{CordonOwner, DrainJournal, DrainStatus, GoTime, NodeDrainRequest, NodeDrainStatus, Requester};

use super::{Done, Effect, Event, Failure, Force, RunId, Seen, Zedkube};
use crate::limits::Limits;

const T0: Mono = Mono::from_start(Duration::from_secs(100));

fn wall() -> GoTime {
    "2026-03-14T09:26:53Z".parse().unwrap()
}

fn request(by: Requester, secs: u64) -> NodeDrainRequest {
    NodeDrainRequest {
        requested_at: wall().plus(Duration::from_secs(secs)),
        requested_by: by,
        context: "reboot".into(),
    }
}

/// A core with the effects of its last step, and what was ever said.
struct Bench {
    core: Zedkube,
    now: Mono,
    last: Vec<Effect>,
    statuses: Vec<(u8, u8)>,
}

impl Bench {
    fn with(journal: Option<DrainJournal>) -> Self {
        let (core, effects) = Zedkube::new(Limits::default(), journal, "b1".into(), T0, wall());
        let mut bench = Self { core, now: T0, last: Vec::new(), statuses: Vec::new() };
        bench.take(effects);
        bench
    }

    /// A member of a cluster, idle.
    fn idle() -> Self {
        let mut bench = Self::with(None);
        bench.join();
        bench.look(Seen::Open);
        bench
    }

    fn join(&mut self) {
        for event in [
            Event::NodeKnown { name: "n1".into() },
            Event::Member(Some(true)),
            Event::RequestsRead(Requester::DeviceOp),
            Event::RequestsRead(Requester::Update),
        ] {
            self.hear(event);
        }
    }

    fn take(&mut self, effects: Vec<Effect>) {
        for effect in &effects {
            if let Effect::Status(NodeDrainStatus { status, requested_by }) = effect {
                self.statuses.push((status.number(), requested_by.number()));
            }
        }
        self.last = effects;
    }

    /// Hears a fact, and lets pass what is due at once.
    fn hear(&mut self, event: Event) {
        let effects = self.core.step(self.now, event);
        self.take(effects);
        let mut all = std::mem::take(&mut self.last);
        while self.core.next_wake().is_some_and(|at| at <= self.now) {
            let effects = self.core.step(self.now, Event::Tick);
            self.take(effects);
            all.append(&mut self.last);
        }
        self.last = all;
    }

    /// Lets time pass until the core wants to be woken.
    fn wait(&mut self) -> Duration {
        let due = self.core.next_wake().expect("the core waits for nothing");
        let waited = due.since(self.now);
        self.now = due;
        self.hear(Event::Tick);
        waited
    }

    fn look(&mut self, seen: Seen) {
        let nth =
            self.last.iter().find_map(|it| if let Effect::Look { nth, .. } = it { Some(*nth) } else { None });
        self.hear(Event::Looked(nth.expect("no look was asked for"), Ok(seen)));
    }

    fn ask(&mut self, request: &NodeDrainRequest) {
        self.hear(Event::Request(request.requested_by, Some(request.clone())));
    }

    fn run(&self) -> RunId {
        let of = |it: &Effect| {
            let (Effect::Probe(run) | Effect::Cordon(run, _) | Effect::Drain(run, ..)) = it else {
                return None;
            };
            Some(*run)
        };
        self.last.iter().find_map(of).expect("no call was asked for")
    }

    /// Goes on to the first attempt.
    fn until_draining(&mut self) -> RunId {
        let run = self.run();
        self.hear(Event::Probed(run, Ok(())));
        self.hear(Event::Cordoned(run, Ok(CordonOwner::Ours)));
        assert!(self.last.iter().any(|it| matches!(it, Effect::Drain(..))));
        run
    }

    fn fail(&mut self, run: RunId, all_drain: bool) {
        let failure = Failure { reason: "budget shop/web".into(), blockers: Vec::new(), all_drain };
        self.hear(Event::Drained(run, Err(failure)));
    }

    fn done(&mut self, run: RunId) {
        self.hear(Event::Drained(run, Ok(Done { took: Duration::from_secs(3), evicted: 2 })));
    }

    fn status(&self) -> (u8, u8) {
        *self.statuses.last().unwrap()
    }

    fn gives_back(&self) -> bool {
        self.last.iter().any(|it| matches!(it, Effect::Look { give_back: true, .. }))
    }
}

#[test]
fn a_request_goes_from_taken_to_complete() {
    let mut bench = Bench::idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    let run = bench.until_draining();
    bench.done(run);
    assert_eq!(bench.statuses, [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (9, 2)]);
}

#[test]
fn nine_conflicts_then_cordoned_and_ten_then_failed_cordon() {
    for (conflicts, expected) in [(9, 5), (10, 6)] {
        let mut bench = Bench::idle();
        bench.ask(&request(Requester::DeviceOp, 1));
        let run = bench.run();
        bench.hear(Event::Probed(run, Ok(())));
        for conflict in 0..conflicts {
            if conflict > 0 {
                assert_eq!(bench.wait(), Duration::from_secs(5));
                assert!(matches!(bench.last.last(), Some(Effect::Cordon(..))));
            }
            bench.hear(Event::Cordoned(run, Err("409 Conflict".into())));
        }
        if conflicts == 9 {
            bench.wait();
            bench.hear(Event::Cordoned(run, Ok(CordonOwner::Ours)));
        }
        assert_eq!(bench.status(), (expected, 2));
    }
}

#[test]
fn d_k1_five_attempts_300_s_apart_then_failed_drain() {
    let mut bench = Bench::idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    let run = bench.until_draining();
    for attempt in 1..=5 {
        bench.fail(run, false);
        if attempt < 5 {
            assert_eq!(bench.status(), (7, 2), "after attempt {attempt}");
            assert_eq!(bench.wait(), Duration::from_secs(300));
            assert!(bench.last.iter().any(|it| matches!(it, Effect::Drain(..))));
        }
    }
    assert_eq!(bench.status(), (8, 2));
    // D-K8: the own cordon is given back.
    assert!(bench.gives_back());
}

#[test]
fn d_k3_a_second_requester_joins_the_one_drain_and_each_gets_its_answer() {
    let mut bench = Bench::idle();
    let (reboot, update) = (request(Requester::DeviceOp, 1), request(Requester::Update, 2));
    bench.ask(&reboot);
    let run = bench.until_draining();
    bench.ask(&update);
    assert!(
        !bench.last.iter().any(|it| matches!(it, Effect::Probe(_) | Effect::Cordon(..) | Effect::Drain(..)))
    );
    bench.done(run);
    let answered = |effects: &[Effect]| {
        effects.iter().any(|it| {
            matches!(it, Effect::Progress(progress) if [&reboot, &update].iter().all(|request| {
                progress.answer(request.id()).is_some_and(|answer| answer.status == DrainStatus::Complete)
            }))
        })
    };
    assert!(answered(&bench.last));
    assert_eq!(bench.status(), (9, 2));
    // A Go reader of the second requester sees its own number a little later.
    assert_eq!(bench.wait(), Duration::from_secs(2));
    assert_eq!(bench.status(), (9, 3));
}

#[test]
fn d_k5_a_config_change_that_keeps_membership_leaves_the_drain_alone() {
    let mut bench = Bench::idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    bench.until_draining();
    bench.hear(Event::Member(Some(true)));
    assert_eq!(bench.last, []);
    assert_eq!(bench.status(), (5, 2));
}

#[test]
fn d_k6_a_request_taken_back_in_any_state_cancels_and_gives_the_node_back() {
    for steps in 0..6 {
        let mut bench = Bench::idle();
        bench.ask(&request(Requester::DeviceOp, 1));
        let run = bench.run();
        if steps > 0 {
            bench.hear(Event::Probed(run, if steps == 1 { Err("refused".into()) } else { Ok(()) }));
        }
        if steps > 2 {
            bench.hear(Event::Cordoned(run, Ok(CordonOwner::Ours)));
        }
        match steps {
            4 => bench.fail(run, false),
            5 => bench.done(run),
            _ => {}
        }
        bench.hear(Event::Request(Requester::DeviceOp, None));
        assert!(bench.last.contains(&Effect::Cancel), "step {steps}");
        assert!(bench.gives_back(), "step {steps}");
        assert_eq!(bench.status(), (2, 1), "step {steps}");
        // A late result of the cancelled run changes nothing.
        bench.done(run);
        assert_eq!(bench.status(), (2, 1), "step {steps}");
    }
}

#[test]
fn d_k7_a_restart_goes_on_and_never_says_idle_in_between() {
    let mut bench = Bench::idle();
    let reboot = request(Requester::DeviceOp, 1);
    bench.ask(&reboot);
    bench.until_draining();
    let journal = bench.core.journal();
    let mut bench = Bench::with(Some(journal));
    assert_eq!(bench.status(), (5, 2));
    bench.hear(Event::Request(Requester::DeviceOp, Some(reboot.clone())));
    bench.join();
    assert!(!bench.gives_back());
    let run = bench.until_draining();
    bench.done(run);
    assert!(bench.statuses.iter().all(|(status, _)| [5, 9].contains(status)), "{:?}", bench.statuses);
    // Once complete, a restart says so and drains no second time.
    let mut bench = Bench::with(Some(bench.core.journal()));
    bench.hear(Event::Request(Requester::DeviceOp, Some(reboot)));
    bench.join();
    assert_eq!(bench.status(), (9, 2));
    assert!(!bench.last.iter().any(|it| matches!(it, Effect::Probe(_))));
}

#[test]
fn after_another_boot_nothing_is_complete_and_an_own_cordon_goes_when_the_node_is_ready() {
    let journal =
        DrainJournal { boot_id: "b0".into(), status: DrainStatus::Complete, ..DrainJournal::default() };
    let mut bench = Bench::with(Some(journal));
    assert!(bench.last.contains(&Effect::DropForce));
    assert_eq!(bench.status(), (1, 1));
    bench.join();
    assert_eq!(bench.status(), (2, 1));
    assert!(bench.gives_back());
    bench.look(Seen::NotReady);
    assert_eq!(bench.wait(), Duration::from_secs(15));
    assert!(bench.gives_back());
    bench.look(Seen::Open);
    assert_eq!(bench.core.next_wake(), None);
}

#[test]
fn d_k29_a_node_that_cannot_be_looked_at_is_looked_at_again() {
    let mut bench = Bench::with(None);
    bench.join();
    let nth = |bench: &Bench| {
        bench
            .last
            .iter()
            .find_map(|it| if let Effect::Look { nth, .. } = it { Some(*nth) } else { None })
            .unwrap()
    };
    for _ in 0..3 {
        let nth = nth(&bench);
        bench.hear(Event::Looked(nth, Err("500".into())));
        bench.wait();
    }
    assert!(bench.gives_back());
}

#[test]
fn d_k9_a_drain_that_starts_ends_the_look_that_would_give_its_cordon_back() {
    let mut bench = Bench::with(None);
    bench.join();
    assert!(bench.gives_back());
    bench.ask(&request(Requester::DeviceOp, 1));
    assert!(bench.last.contains(&Effect::Cancel));
    bench.until_draining();
    assert!(!bench.gives_back());
}

#[test]
fn d_k2_an_api_that_stays_away_is_skipped_after_its_time_with_a_reason() {
    let mut bench = Bench::idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    let run = bench.run();
    let mut waited = Duration::ZERO;
    while bench.status() != (9, 2) {
        bench.hear(Event::Probed(run, Err("connection refused".into())));
        if bench.status() != (9, 2) {
            waited += bench.wait();
        }
    }
    assert_eq!(waited, Duration::from_secs(300));
    let told = |it: &Effect| matches!(it, Effect::Progress(it) if it.skip.contains("connection refused"));
    assert!(bench.last.iter().any(told));
}

#[test]
fn d_k15_only_a_failed_attempt_with_all_others_draining_by_us_is_skipped() {
    let mut bench = Bench::idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    let run = bench.until_draining();
    bench.fail(run, true);
    assert_eq!(bench.status(), (9, 2));
    let told = |it: &Effect| matches!(it, Effect::Progress(it) if it.skip.contains("every other node"));
    assert!(bench.last.iter().any(told));
}

#[test]
fn a_request_before_the_cluster_config_waits_for_it() {
    let mut bench = Bench::with(None);
    bench.ask(&request(Requester::DeviceOp, 1));
    assert_eq!(bench.status(), (1, 1));
    bench.join();
    assert!(bench.statuses.contains(&(3, 2)));
}

#[test]
fn leaving_the_cluster_ends_a_drain() {
    let mut bench = Bench::idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    bench.until_draining();
    bench.hear(Event::Member(Some(false)));
    assert!(bench.last.contains(&Effect::Cancel));
    assert_eq!(bench.status(), (1, 1));
}

#[test]
fn d_k14_a_forced_complete_is_said_at_once_and_ends_the_task() {
    let mut bench = Bench::idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    bench.until_draining();
    let order = |by: Requester| {
        Event::Force(Force::Order(NodeDrainStatus { status: DrainStatus::Complete, requested_by: by }))
    };
    // For somebody who waits for nothing it changes nothing.
    bench.hear(order(Requester::Update));
    assert_eq!(bench.status(), (5, 2));
    bench.hear(order(Requester::DeviceOp));
    assert!(bench.last.contains(&Effect::Cancel));
    assert_eq!(bench.status(), (9, 2));
    bench.hear(Event::Force(Force::Absent));
    assert_eq!(bench.status(), (9, 2));
}

#[test]
fn any_other_forced_status_is_shown_while_the_file_stays() {
    for number in 2..=8 {
        let mut bench = Bench::idle();
        let order = NodeDrainStatus { status: number.into(), requested_by: Requester::DeviceOp };
        bench.hear(Event::Force(Force::Order(order)));
        assert_eq!(bench.status(), (number, 2));
        bench.hear(Event::Force(Force::Absent));
        assert_eq!(bench.status(), (2, 1));
    }
}

#[test]
fn the_fault_injection_file_holds_a_drain_that_is_done() {
    let mut bench = Bench::idle();
    bench.hear(Event::Hold(true));
    bench.ask(&request(Requester::DeviceOp, 1));
    let run = bench.until_draining();
    bench.done(run);
    assert_eq!(bench.status(), (5, 2));
    bench.hear(Event::Hold(false));
    assert_eq!(bench.status(), (9, 2));
}

#[test]
fn p8_a_drained_node_that_somebody_uncordons_is_drained_again() {
    let mut bench = Bench::idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    let run = bench.until_draining();
    bench.done(run);
    assert_eq!(bench.wait(), Duration::from_secs(30));
    bench.look(Seen::Open);
    assert!(bench.last.iter().any(|it| matches!(it, Effect::Probe(_))), "{:?}", bench.last);
}

#[test]
fn p8_a_drained_node_that_has_become_somebody_elses_is_drained_again_and_once() {
    let mut bench = Bench::idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    let run = bench.until_draining();
    bench.done(run);
    bench.wait();
    bench.look(Seen::Foreign);
    let run = bench.run();
    bench.hear(Event::Probed(run, Ok(())));
    bench.hear(Event::Cordoned(run, Ok(CordonOwner::Foreign)));
    bench.done(run);
    bench.wait();
    bench.look(Seen::Foreign);
    assert_eq!(bench.status(), (9, 2));
}

#[test]
fn p8_a_new_request_after_a_complete_one_is_drained_for_itself() {
    let mut bench = Bench::idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    let run = bench.until_draining();
    bench.done(run);
    bench.ask(&request(Requester::DeviceOp, 9));
    assert_eq!(bench.status(), (4, 2));
}

#[test]
fn a_fact_heard_twice_is_heard_once() {
    let mut bench = Bench::idle();
    let reboot = request(Requester::DeviceOp, 1);
    bench.ask(&reboot);
    bench.until_draining();
    bench.ask(&reboot);
    assert_eq!(bench.last, []);
}
