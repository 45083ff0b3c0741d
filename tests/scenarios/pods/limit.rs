//! The limit of a whole drain with each of its actions, over a restart of zedkube (goals D15).

use serde_json::json;
use topics::{DrainJournal, DrainStatus, NodeDrainProgress};

use scenarios::{Agent, World};

const PROGRESS: &str = "run/zedkube/NodeDrainProgress/global.json";
const JOURNAL: &str = "persist/status/zedkube/DrainJournal/global.json";

/// A drain that a budget holds, with a limit; zedkube was killed in it and started again.
async fn restarted(world: &mut World, limit_ms: u64, then: &str) {
    world.limits["zedkube"]["drain_limit_ms"] = json!(limit_ms);
    world.limits["zedkube"]["drain_limit_then"] = json!(then);
    world.limits["zedkube"]["marks_gap_ms"] = json!(0);
    world.begin_blocked().await;
    let mark = |world: &World| world.read::<DrainJournal>(JOURNAL).map_or(0, |it| it.marks.drain_ms);
    world
        .until_file(JOURNAL, "since when the drain runs", |text| {
            text.is_some_and(|it| !it.contains("\"DrainMs\":0,"))
        })
        .await;
    let (began, progress) = (mark(world), world.read::<NodeDrainProgress>(PROGRESS).unwrap());
    assert_eq!((progress.limits[0].of.as_str(), progress.limits[0].then.as_str()), ("drain", then));
    world.kill(Agent::Zedkube).await;
    world.start(Agent::Zedkube);
    let same = progress.limits[0].clone();
    let goes_on =
        |it: &NodeDrainProgress| it.limits.first() == Some(&same) && it.status == DrainStatus::Cordoned;
    world.until::<NodeDrainProgress>("zedkube", "the same limit", |it| it.is_some_and(goes_on)).await;
    assert_eq!(mark(world), began, "time already used is used");
}

async fn over_time(world: &World) {
    let over = |it: &NodeDrainProgress| {
        it.blockers.iter().any(|it| it.code == "over-time" && it.reason.ends_with("for the whole drain"))
    };
    world.until::<NodeDrainProgress>("zedkube", "a pod over the limit", |it| it.is_some_and(over)).await;
}

pub(crate) async fn d15_a_drain_over_its_limit_fails_is_undone_and_is_not_carried_out(world: &mut World) {
    restarted(world, 8_000, "give-up").await;
    let failed =
        |it: &NodeDrainProgress| it.reason.contains("not done within 8 s, the limit for the whole drain");
    world.until::<NodeDrainProgress>("zedkube", "its end", |it| it.is_some_and(failed)).await;
    world.cluster.until_schedulable().await;
    assert_eq!((world.recorded(), world.cluster.pods_to_leave().await.is_empty()), (Vec::new(), false));
}

pub(crate) async fn d15_a_drain_that_waits_over_its_limit_is_complete_only_by_its_proof(world: &mut World) {
    restarted(world, 3_000, "wait").await;
    over_time(world).await;
    world.kill(Agent::Zedkube).await;
    world.start(Agent::Zedkube);
    over_time(world).await;
    assert_eq!((world.recorded(), world.cluster.cordoned().await), (Vec::new(), true));
    world.cluster.unblock().await;
    world.recorded_count(1).await;
    assert_eq!(world.cluster.pods_to_leave().await, [""; 0]);
}

pub(crate) async fn d15_a_drain_that_deletes_over_its_limit_names_what_it_deleted(world: &mut World) {
    restarted(world, 3_000, "delete").await;
    world.recorded_count(1).await;
    assert_eq!(world.cluster.pods_to_leave().await, [""; 0]);
    let progress: NodeDrainProgress = world.read(PROGRESS).unwrap();
    let why = "deleted whatever its budgets say: over the limit of 3 s for the whole drain";
    assert!(progress.left.iter().any(|it| it.ends_with(why)), "{:?}", progress.left);
}
