//! An API that is lost in the middle of a drain, over restarts of this agent.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubenodeop::{Progress, Remaining};
use topics::{DrainPhase, Requester};

use super::bench::{Bench, T0, alone, booted_at, request};
use super::{Event, UnansweredCall, Zedkube};
use crate::limits::Limits;

const US: Requester = Requester::DeviceOp;
const LIMIT: Duration = Duration::from_secs(600);

fn limits() -> Limits {
    Limits { api_lost_skip_ms: 600_000, progress_gap_ms: 0, marks_gap_ms: 0, ..alone() }
}

/// A drain of a worker, with nothing at stake.
fn draining() -> Bench {
    let mut bench = Bench::at(T0, limits(), None);
    bench.join();
    bench.ask(&request(US, 1));
    let run = bench.until_draining();
    let remaining = Some(Remaining { server: false, machine: None });
    bench.hear(Event::Draining(run, Box::new(Progress { remaining, ..Progress::default() })));
    bench.hear(Event::LastReplica(run, "none".to_owned()));
    bench
}

fn away(bench: &Bench) -> UnansweredCall {
    UnansweredCall { asked: bench.now, address: "a".to_owned(), why: "no answer within 15 s".to_owned() }
}

/// Asked once more after so many seconds, and not answered.
fn silent_after(bench: &mut Bench, secs: u64) {
    bench.now = bench.now + Duration::from_secs(secs);
    let (run, away) = (bench.core.drain.run_id(), away(bench));
    bench.hear(Event::Away(run, Some(Box::new(away))));
}

fn is_skipped(bench: &Bench) -> bool {
    bench.core.progress().phase == DrainPhase::Skipped
}

/// Another run of the agent in the same boot, which has asked whether the API is there.
fn restarted(bench: &Bench, after: u64) -> Bench {
    let (journal, now) = (Some(bench.core.journal()), bench.now + Duration::from_secs(after));
    let (core, effects) = Zedkube::new(limits(), journal, bench.core.node.boot_id.clone(), now, booted_at());
    let mut next = Bench { core, now, last: Vec::new(), statuses: Vec::new() };
    next.take(effects);
    next.ask(&request(US, 1));
    next.join();
    next
}

#[test]
fn silence_without_a_break_is_a_skip_and_any_answer_starts_the_time_again() {
    let mut bench = draining();
    silent_after(&mut bench, 5);
    silent_after(&mut bench, 590);
    let run = bench.core.drain.run_id();
    bench.hear(Event::Away(run, None));
    silent_after(&mut bench, 20);
    silent_after(&mut bench, 599);
    assert!(!is_skipped(&bench));
    let said = bench.core.progress();
    assert!(said.next_step.contains("its rest is skipped after 600 s without an answer"), "{said:?}");
    silent_after(&mut bench, 1);
    assert!(is_skipped(&bench));
    let said = bench.core.progress();
    assert!(said.skip.contains("lost in the middle of the drain: no answer for 600 s, since 20"), "{said:?}");
    assert_eq!((bench.status(), &said.answers[0].skip), ((9, 2), &said.skip));
    // What the attempt may still report changes nothing.
    bench.done(run);
    assert!(is_skipped(&bench));
}

#[test]
fn silence_counts_over_a_restart_once_the_new_run_has_found_it_too() {
    let mut bench = draining();
    silent_after(&mut bench, 5);
    let since = bench.core.journal().api_silent_since_ms;
    let mut next = restarted(&bench, LIMIT.as_secs());
    assert_eq!(next.core.journal().api_silent_since_ms, since);
    silent_after(&mut next, 5);
    silent_after(&mut next, 59);
    assert!(!is_skipped(&next));
    assert_eq!(next.core.journal().api_silent_since_ms, since);
    silent_after(&mut next, 1);
    assert!(is_skipped(&next));
    // The first answer ends it: the drain continues.
    let mut next = restarted(&bench, LIMIT.as_secs());
    silent_after(&mut next, 5);
    let run = next.core.drain.run_id();
    next.hear(Event::Away(run, None));
    next.hear(Event::Probed(run, Ok(())));
    assert_eq!(next.core.journal().api_silent_since_ms, 0);
    assert!(!is_skipped(&next));
}

#[test]
fn nothing_is_skipped_before_all_is_known_for_a_person_or_without_the_limit() {
    // A restart with a journal that knows nothing.
    let mut bench = Bench::at(T0, limits(), None);
    bench.join();
    bench.ask(&request(US, 1));
    bench.until_draining();
    silent_after(&mut bench, 5);
    silent_after(&mut bench, 6000);
    assert!(!is_skipped(&bench));
    let mut next = restarted(&bench, 10);
    silent_after(&mut next, 5);
    silent_after(&mut next, 6000);
    assert!(!is_skipped(&next));
    // Somebody with a shell asks too.
    let mut bench = draining();
    bench.ask(&request(Requester::Operator, 2));
    silent_after(&mut bench, 5);
    silent_after(&mut bench, 6000);
    assert!(!is_skipped(&bench));
    assert!(bench.core.progress().next_step.contains("a person has requested this drain"));
    // As it is by default: nothing is kept either.
    let mut bench = draining();
    bench.core.node.limits.api_lost_skip_ms = 0;
    silent_after(&mut bench, 5);
    silent_after(&mut bench, 6000);
    assert_eq!((is_skipped(&bench), bench.core.journal().api_silent_since_ms), (false, 0));
    // Before a drain has begun the other rule holds.
    let mut bench = Bench::at(T0, limits(), None);
    bench.join();
    bench.ask(&request(US, 1));
    silent_after(&mut bench, 6000);
    assert!(!is_skipped(&bench));
}
