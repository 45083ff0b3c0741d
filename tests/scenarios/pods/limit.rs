//! The limit of a whole drain, over a restart of zedkube.

use serde_json::json;
use topics::{DrainJournal, DrainStatus, NodeDrainProgress};

use scenarios::{Agent, World};

const PROGRESS: &str = "run/zedkube/NodeDrainProgress/global.json";
const JOURNAL: &str = "persist/status/zedkube/DrainJournal/global.json";

/// A drain blocked by a budget, with a limit; zedkube was killed in it and restarted.
async fn restarted(world: &mut World, limit_ms: u64) {
    world.limits["zedkube"]["drain_limit_ms"] = json!(limit_ms);
    world.limits["zedkube"]["marks_gap_ms"] = json!(0);
    world.begin_blocked().await;
    let mark = |world: &World| world.read::<DrainJournal>(JOURNAL).map_or(0, |it| it.marks.drain_ms);
    world
        .until_file(JOURNAL, "since when the drain runs", |text| {
            text.is_some_and(|it| !it.contains("\"DrainMs\":0,"))
        })
        .await;
    let (began, progress) = (mark(world), world.read::<NodeDrainProgress>(PROGRESS).unwrap());
    assert_eq!((progress.limits[0].of.as_str(), progress.limits[0].then.as_str()), ("drain", "give-up"));
    world.kill(Agent::Zedkube).await;
    world.start(Agent::Zedkube);
    let same = progress.limits[0].clone();
    world
        .progress("the same limit", |it| {
            it.limits.first() == Some(&same) && it.status == DrainStatus::Cordoned
        })
        .await;
    assert_eq!(mark(world), began, "time already used is used");
}

pub(crate) async fn d15_a_drain_over_its_limit_fails_is_undone_and_is_not_carried_out(world: &mut World) {
    restarted(world, 8_000).await;
    world
        .progress("its end", |it| it.reason.contains("not done within 8 s, the limit for the whole drain"))
        .await;
    world.cluster.until_schedulable().await;
    assert_eq!((world.recorded(), world.cluster.pods_to_leave().await.is_empty()), (Vec::new(), false));
}
