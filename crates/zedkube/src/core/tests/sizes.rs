//! How long the records that must survive may become.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use agent::force::OrderedBy;
use kubeapi::{PodRef, PodUid};
use kubenodeop::{BlockCode, Progress};
use topics::{DrainHistory, DrainJournal, DrainMarks, PodCounts, Requester, StepWord, Topic, go_json};

use super::bench::{Bench, T0, alone, request};
use super::{Event, Force};
use crate::limits::Limits;

const US: Requester = Requester::DeviceOp;

/// Claims of the longest names for which there is room.
const CLAIMS: usize = 24;
/// What `DeviceOpPending` of a reboot and of a shutdown take beside these.
const OTHERS_BYTES: usize = 4 << 10;
const ALL_BYTES: usize = 64 << 10;

/// The longest text that anything can be given: each letter takes six bytes on disk.
fn long() -> String {
    "\u{1}".repeat(500)
}

/// More marks than are kept, and claims as long as a server lets them be.
fn marks() -> DrainMarks {
    let claim = |nth: usize| format!("{}/{nth:0>253}", "n".repeat(63));
    DrainMarks {
        attempt_ms: T0.as_ms(),
        pods_ms: (0..300).map(|nth| (format!("{nth:0>36}"), T0.as_ms())).collect(),
        returns: (0..300)
            .map(|nth| (format!("{}/StatefulSet/{nth:0>253}", "n".repeat(63)), u32::MAX))
            .collect(),
        claims: (0..CLAIMS).map(claim).collect(),
        ..DrainMarks::default()
    }
}

/// A history in which everything is as long as it can be.
fn full() -> Bench {
    let mut bench = Bench::at(T0, Limits { drain_tries: 31, ..alone() }, None);
    bench.core.node.boot_id = "0f1e2d3c-4b5a-4697-8897-a6b5c4d3e2f1".to_owned();
    // The longest wall clock.
    let longest: topics::GoTime = "2026-12-31T23:59:59.123456789Z".parse().unwrap();
    bench.core.node.booted_at = longest.minus(T0.since_start());
    bench.join();
    for nth in 1..=11 {
        let mut asked = request(US, nth);
        asked.requested_at = asked.requested_at.plus(Duration::from_nanos(123_456_789));
        asked.context = long();
        bench.ask(&asked);
        let run = bench.until_draining();
        let blocker = |nth: u32| {
            let (namespace, name, uid) = (long(), format!("{nth}{}", long()), PodUid::new(long()));
            kubenodeop::blocker(&PodRef { namespace, name, uid }.into(), BlockCode::Budget, long(), T0)
        };
        let left = |nth: u32| format!("{nth}{}: {}", long(), long());
        let progress = Progress {
            counts: PodCounts {
                total: u32::MAX,
                gone: u32::MAX,
                going: u32::MAX,
                waiting: u32::MAX,
                blocked: u32::MAX,
            },
            blockers: (0..20).map(blocker).collect(),
            left: (0..20).map(left).collect(),
            evicted: u32::MAX,
            recordons: u32::MAX,
            marks: marks(),
            ..Progress::default()
        };
        for _ in 1..=30 {
            bench.hear(Event::Draining(run, Box::new(progress.clone())));
            let blockers = progress.blockers.clone();
            let failure = kubenodeop::AttemptFailure { blockers, ..super::bench::failed(&long()) };
            bench.hear(Event::Drained(run, Err(Box::new(failure))));
            bench.wait();
        }
        bench.hear(Event::ForceBy(Some(OrderedBy {
            uid: u32::MAX,
            name: long(),
            written: bench.core.node.wall(T0).plus(Duration::from_nanos(nth)),
            by: long(),
            reason: long(),
        })));
        bench.hear(Event::Force(Force::Refused(format!("{nth}{}", long()))));
        let failure = kubenodeop::AttemptFailure {
            blockers: progress.blockers.clone(),
            ..super::bench::failed(&long())
        };
        bench.hear(Event::Draining(run, Box::new(progress)));
        if nth < 11 {
            bench.hear(Event::Drained(run, Err(Box::new(failure))));
        }
    }
    bench
}

#[test]
fn o8_all_persistent_topics_stay_under_64_kib_when_everything_is_as_long_as_it_can_be() {
    let bench = full();
    let kept = &bench.core.history.kept;
    assert_eq!((kept.drains.len(), kept.forced.len()), (10, 8));
    assert!(
        kept.drains.iter().all(|it| it.steps.len() == 16 && it.steps_left_out > 0 && it.blockers.len() == 2)
    );
    assert!(kept.drains[1..].iter().all(|it| it.steps[0].step == StepWord::Taken));
    let size = |name: &str, bytes: Vec<u8>| {
        assert!(!bytes.is_empty(), "{name}");
        bytes.len()
    };
    let history = size(DrainHistory::NAME, go_json::to_vec(kept).unwrap());
    let journal = size(DrainJournal::NAME, go_json::to_vec(&bench.core.journal()).unwrap());
    assert!(history + journal + OTHERS_BYTES < ALL_BYTES, "history {history}, journal {journal}");
}
