//! The wall clock is set by ten years while zedkube runs (goals K4).

use std::time::Duration;

use topics::{DrainHistory, DrainStatus, GoTime, NodeDrainProgress, RequestId, go_json};

use crate::device::{Device, US};

const YEARS_SECS: i64 = 10 * 31_557_600;

/// Fails unless `shown` is this time by the wall clock of now, within the 2 s of the goal.
fn near(what: &str, shown: GoTime, right: GoTime) {
    assert!(shown.apart(right) <= Duration::from_secs(2), "{what}: {shown:?} where {right:?} is right");
}

#[tokio::test(start_paused = true)]
async fn k4_a_clock_that_is_set_in_mid_drain_puts_all_that_is_published_right_within_2_s_and_decides_nothing()
{
    let mut device = Device::idle().await;
    device.block(true);
    let asked_at = device.clock.now();
    device.ask(US, 1).await;
    device.until(DrainStatus::Cordoned, US, 1).await;
    device.pass(Duration::from_mins(10)).await;
    let before = device.progress();
    assert!(!before.blockers.is_empty(), "{before:?}");
    let lines = device.diary.times("nodedrain-step:").len();
    for off_by in [YEARS_SECS, -YEARS_SECS] {
        device.clock.jump_to_off_by(off_by);
        device.pass(Duration::from_secs(2)).await;
        let (booted, now) = (device.clock.booted_at(), device.progress());
        near("StartedAt", now.started_at, booted.plus(asked_at.since_start()));
        near("Deadline", now.deadline, before.deadline.moved(before.booted_at, booted));
        near("Since", now.blockers[0].since, before.blockers[0].since.moved(before.booted_at, booted));
        assert_eq!(
            (now.requested_at, &now.answers[0].requested_at),
            (before.requested_at, &before.requested_at)
        );
        let id = RequestId { by: US, at: now.requested_at };
        near("asked", now.asked_at(id), booted.plus(asked_at.since_start()));
        near("At", now.answers[0].at, before.answers[0].at.moved(before.booted_at, booted));
        let kept = device.text("persist/status/zedkube/DrainHistory/global.json").unwrap();
        let history: DrainHistory = go_json::from_slice(kept.as_bytes()).unwrap();
        near("a step of the history", history.drains[0].steps[0].at, booted.plus(asked_at.since_start()));
        // But for times nothing is another thing, and nothing was done.
        // The blocked pod may have been tried once more in those 2 s.
        let now = NodeDrainProgress { replies: before.replies.clone(), ..now };
        assert_eq!(now.by_clock(before.booted_at), before);
        assert_eq!(device.diary.times("nodedrain-step:").len(), lines, "{:#?}", device.diary.lines());
        assert!(device.cordoned());
    }
    device.block(false);
    device.until(DrainStatus::Complete, US, 1).await;
    assert_eq!(device.pods_to_leave(), [""; 0]);
}
