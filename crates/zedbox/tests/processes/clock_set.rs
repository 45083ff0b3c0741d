//! Real processes with a wall clock that is really set, ten years on and back, during a drain.
//!
//! libfaketime fakes the wall clock and not the monotonic one. The kernel does not know and wakes no process:
//! each loop notices at its next turn, which a file causes here.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use pubsub::store;
use scenarios::{At, World};
use topics::{DeviceOpPending, DrainStatus, FORCE_FILE, NodeDrainProgress, NodeDrainRequest};

use crate::skipped;

const ZEDBOX: &str = env!("CARGO_BIN_EXE_zedbox");
const YEARS: Duration = Duration::from_hours(10 * 365 * 24);
const GOAL: Duration = Duration::from_secs(2);

fn library() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok);
    folders.map(|it| it.path().join("faketime/libfaketimeMT.so.1")).find(|it| it.exists())
}

#[tokio::test]
async fn k4_processes_whose_wall_clock_is_set_by_ten_years_show_right_times_and_decide_nothing() {
    let Some(library) = library() else {
        return skipped("no libfaketimeMT.so.1 under /usr/lib; `apt-get install libfaketime`");
    };
    let dir = tempfile::tempdir().unwrap();
    let (offset, program) = (dir.path().join("offset"), dir.path().join("zedbox"));
    store::replace(&offset, b"+0").unwrap();
    let text = format!(
        "#!/bin/sh\nexec env LD_PRELOAD={} FAKETIME_TIMESTAMP_FILE={} FAKETIME_NO_CACHE=1 NO_FAKE_STAT=1 \
         FAKETIME_DONT_FAKE_MONOTONIC=1 {ZEDBOX} \"$@\"\n",
        library.display(),
        offset.display()
    );
    scenarios::script(&program, &text);
    let mut world = World::of_processes(&program).await;
    let held = At::Status(DrainStatus::Cordoned);
    world.prepare(held).await;
    world.begin().await;
    world.arrive(held).await;
    let before = world
        .until::<NodeDrainProgress>("zedkube", "a blocker", |it| it.is_some_and(|it| !it.blockers.is_empty()))
        .await
        .unwrap();
    let request: NodeDrainRequest = world.read("run/zedagent/NodeDrainRequest/global.json").unwrap();
    let pending = "persist/status/zedagent/DeviceOpPending/reboot.json";
    let wanted: DeviceOpPending = world.read(pending).unwrap();
    for (set, booted_at) in [("+10y", before.booted_at.plus(YEARS)), ("-10y", before.booted_at.minus(YEARS))]
    {
        store::replace(&offset, set.as_bytes()).unwrap();
        // A file without effect: each agent has a turn.
        world.put(FORCE_FILE, set);
        let heard =
            |it: Option<&NodeDrainProgress>| it.is_some_and(|it| it.booted_at.apart(booted_at) <= GOAL);
        let now = world.until::<NodeDrainProgress>("zedkube", set, heard).await.unwrap();
        let right = before.clone().by_clock(booted_at);
        let times = |it: &NodeDrainProgress| {
            [it.started_at, it.deadline, it.blockers[0].since, it.answers[0].at, it.asked[0].at]
        };
        for (shown, right) in times(&now).into_iter().zip(times(&right)) {
            assert!(shown.apart(right) <= GOAL, "{set}: {shown:?} where {right:?} is right");
        }
        assert_eq!((now.requested_at, now.status), (request.requested_at, DrainStatus::Cordoned));
        let since = wanted.since.moved(wanted.booted_at, booted_at);
        world
            .until_file(pending, "the time since which it is pending", |text| {
                let read: Option<DeviceOpPending> =
                    text.and_then(|it| topics::go_json::from_slice(it.as_bytes()).ok());
                read.is_some_and(|it| it.since.apart(since) <= GOAL)
            })
            .await;
    }
    fs::remove_file(world.topic_root.path(FORCE_FILE)).unwrap();
    // The same request, to the end of a drain that was never withdrawn.
    world.release().await;
    world.recorded_count(1).await;
    assert_eq!(world.read::<NodeDrainRequest>("run/zedagent/NodeDrainRequest/global.json"), Some(request));
    assert_eq!(world.cluster.pods_to_leave().await, [""; 0]);
    assert_eq!(world.cluster.evicted_twice(), [""; 0]);
    world.kill_all().await;
}
