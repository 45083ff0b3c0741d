//! Windows: outside of them nothing starts, for any requester, and a person's order overrides them.

mod hooks;

pub(crate) use hooks::*;

use serde_json::json;
use topics::{DrainHistory, DrainPhase, NodeDrainProgress, StepWord, WINDOW_PASS, WindowPass, go_json};

use scenarios::{Agent, World};

/// systemd-timesyncd's file once it has set the clock.
const SYNCHRONIZED: &str = "run/systemd/timesync/synchronized";

async fn outside(world: &World, part: &str) -> NodeDrainProgress {
    world
        .has("zedkube", part, |it: &NodeDrainProgress| {
            it.phase == DrainPhase::OutsideWindow && it.reason.contains(part)
        })
        .await
}

pub(crate) async fn u9_outside_of_its_window_nothing_starts_but_by_a_persons_word(world: &mut World) {
    // One minute a year, on the day before the day of the test or earlier.
    world.limits["zedkube"]["windows"] = json!([{"start": "0 0 29 2 *", "zone": "UTC", "minutes": 1}]);
    world.begin().await;
    // Without proof that the clock is right, the window is closed at any time.
    let seen = outside(world, "nothing says that it is synchronized").await;
    assert!(seen.reason.contains("adjtimex"), "{}", seen.reason);
    world.put(SYNCHRONIZED, "");
    world.kill(Agent::Zedkube).await;
    world.start(Agent::Zedkube);
    let seen = outside(world, "opens next").await;
    assert!(seen.reason.contains("\"0 0 29 2 *\" UTC opens next"), "{}", seen.reason);
    assert!(!seen.deadline.is_zero() && seen.next_step.contains("zedbox go --past window"), "{seen:?}");
    world.until_said("WAITING FOR A WINDOW: reboot waits, the next one opens at ").await;
    assert!(!world.cluster.cordoned().await);
    assert_eq!((world.recorded(), world.cluster.evictions()), (Vec::new(), 0));

    let pass = WindowPass {
        requested_by: seen.requested_by,
        requested_at: seen.requested_at,
        reason: "the pump is dry".to_owned(),
        by: "root".to_owned(),
    };
    world.put(WINDOW_PASS, &String::from_utf8(go_json::to_vec(&pass).unwrap()).unwrap());
    world.recorded_count(1).await;
    let history: DrainHistory = world.read("persist/status/zedkube/DrainHistory/global.json").unwrap();
    let passed = history.drains[0].steps.iter().find(|it| it.step == StepWord::WindowPassed).unwrap();
    assert_eq!(passed.text, "root: the pump is dry");
    crate::comes_back(world, 7).await;
}
