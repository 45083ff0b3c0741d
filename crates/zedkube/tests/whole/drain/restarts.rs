//! zedkube killed anywhere and started again: the end is that of an undisturbed run, and nothing is done twice
//! (goals R1, R7; D-K7).

use std::time::Duration;

use topics::DrainStatus;

use crate::device::{Device, US, status};

/// Stands in every line of the log.
const ANY: &str = " ";

#[derive(Debug, Clone, Copy)]
struct Trouble {
    cordon_failures: u32,
    refusals: u32,
}

const NONE: Trouble = Trouble { cordon_failures: 0, refusals: 0 };
const CONFLICT: Trouble = Trouble { cordon_failures: 1, refusals: 0 };
const RETRY: Trouble = Trouble { cordon_failures: 0, refusals: 1 };
const NO_CORDON: Trouble = Trouble { cordon_failures: 10, refusals: 0 };
const NO_DRAIN: Trouble = Trouble { cordon_failures: 0, refusals: 5 };

async fn device(trouble: Trouble) -> Device {
    let device = Device::idle().await;
    device.cordon_failures(trouble.cordon_failures);
    device.refusals(trouble.refusals);
    device
}

#[derive(Debug, PartialEq)]
struct End {
    status: String,
    cordoned: bool,
    pods_to_leave: usize,
    evicted_twice: bool,
}

async fn end(device: &mut Device, trouble: Trouble) -> End {
    // An attempt that fails is followed by a pause of five minutes.
    device.pass(Duration::from_mins(6) * (1 + trouble.refusals)).await;
    let mut evicted = device.sim.faults().evicted();
    let all = evicted.len();
    evicted.sort();
    evicted.dedup();
    End {
        status: device.status(),
        cordoned: device.cordoned(),
        pods_to_leave: device.pods_to_leave().len(),
        evicted_twice: evicted.len() != all,
    }
}

async fn killed_at(state: DrainStatus, trouble: Trouble) {
    let mut undisturbed = device(trouble).await;
    undisturbed.ask(US, 1).await;
    let expected = end(&mut undisturbed, trouble).await;
    assert!(!expected.evicted_twice);
    undisturbed.leave().await;

    let mut device = device(trouble).await;
    device.kill_at(&format!(" to {{{} 2}}", state.text()), 1);
    device.ask(US, 1).await;
    device.killed().await;
    assert_eq!(device.status(), status(state.number(), 2));
    let before = device.diary.written().len();
    device.start().await;
    assert_eq!(end(&mut device, trouble).await, expected, "killed at {state:?}");
    // In between nobody is told that nothing is asked for, or that the node is in no cluster.
    let since = device.diary.written().split_off(before);
    let idle = [status(1, 1), status(2, 1), status(1, 2), status(2, 2)];
    assert!(since.iter().all(|it| !idle.contains(it)), "killed at {state:?}: {since:?}");
    if [DrainStatus::FailedCordon, DrainStatus::FailedDrain, DrainStatus::Complete].contains(&state) {
        assert_eq!(since, [""; 0], "killed at {state:?}");
    }
}

macro_rules! killed {
    ($($name:ident: $state:ident, $trouble:ident),+ $(,)?) => { $(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            killed_at(DrainStatus::$state, $trouble).await;
        }
    )+ };
}

killed! {
    d_k7_killed_when_requested: Requested, NONE,
    d_k7_killed_when_starting: Starting, NONE,
    d_k7_killed_when_cordoned: Cordoned, NONE,
    d_k7_killed_when_retrying: DrainRetrying, RETRY,
    d_k7_killed_after_a_failed_cordon: FailedCordon, NO_CORDON,
    d_k7_killed_after_a_failed_drain: FailedDrain, NO_DRAIN,
    d_k7_killed_when_complete: Complete, NONE,
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_line_of_its_log_it_comes_to_the_same_end() {
    for trouble in [NONE, CONFLICT, RETRY] {
        let mut undisturbed = device(trouble).await;
        let first = undisturbed.diary.count(ANY) + 1;
        undisturbed.ask(US, 1).await;
        let expected = end(&mut undisturbed, trouble).await;
        undisturbed.leave().await;
        let last = undisturbed.diary.count(ANY);
        assert!(last > first + 8, "{:#?}", undisturbed.diary.lines());
        for line in first..=last {
            let mut device = device(trouble).await;
            device.kill_at(ANY, line);
            device.ask(US, 1).await;
            device.killed().await;
            device.start().await;
            let lines = device.diary.lines();
            assert_eq!(
                end(&mut device, trouble).await,
                expected,
                "{trouble:?} killed at {}",
                lines[line - 1].text
            );
        }
    }
}
