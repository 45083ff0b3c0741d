//! Only the leader publishes, and only while it is certain that it leads.

use std::time::Duration;

use topics::KubeStatsState;

use super::seeds;
use super::stage::Stage;

const TICK: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_follower_publishes_nothing_and_asks_for_nothing() {
    let stage = Stage::new();
    seeds::golden(&stage.sim);
    stage.pass(Duration::from_secs(600)).await;
    assert_eq!((stage.text(), stage.requests()), (None, (0, 0)));
    assert_eq!(stage.state(), KubeStatsState::default());
}

#[tokio::test(start_paused = true)]
async fn l2_the_lease_lost_or_not_renewed_withdraws_at_once_and_closes_the_watches() {
    let stage = Stage::new();
    seeds::golden(&stage.sim);
    for lost in [true, false] {
        let begun = stage.now();
        stage.lead(Duration::from_secs(100));
        stage.until("the cluster", |_| true).await;
        assert!(stage.now().since(begun) < Duration::from_secs(1), "a new leader does not wait");
        assert!(stage.state().leader);
        if lost {
            stage.lose();
        } else {
            stage.pass(Duration::from_secs(100).saturating_sub(stage.now().since(begun) + TICK)).await;
            assert!(stage.text().is_some());
            stage.pass(TICK).await;
        }
        stage.pass(TICK).await;
        assert_eq!((stage.text(), stage.state()), (None, KubeStatsState::default()));
        let asked = stage.requests();
        stage.pass(Duration::from_secs(600)).await;
        assert_eq!(stage.requests(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_goes_on_without_a_new_list() {
    let stage = Stage::new();
    seeds::golden(&stage.sim);
    stage.lead(Duration::from_secs(100));
    stage.until("the cluster", |_| true).await;
    let lists = stage.requests().1;
    for _ in 0..40 {
        stage.pass(Duration::from_secs(15)).await;
        stage.lead(Duration::from_secs(100));
        assert!(stage.text().is_some());
    }
    assert_eq!(stage.requests().1, lists);
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_run_left_is_taken_back_before_anything_else_and_so_is_ours_when_the_task_ends() {
    let mut stage = Stage::new();
    seeds::golden(&stage.sim);
    stage.lead(Duration::from_hours(1));
    stage.until("the cluster", |_| true).await;
    let text = stage.text().unwrap();
    stage.stop().await;
    assert_eq!((stage.text(), stage.state()), (None, KubeStatsState::default()));
    // A crash tidies nothing up.
    let file = stage.topic_root.path("run/zedkube/KubeClusterInfo/global.json");
    pubsub::store::replace(&file, text.as_bytes()).unwrap();
    stage.lose();
    stage.start();
    stage.pass(TICK).await;
    assert_eq!(stage.text(), None);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_changes_all_the_time_is_published_every_thirty_seconds() {
    let stage = Stage::new();
    seeds::golden(&stage.sim);
    stage.lead(Duration::from_hours(1));
    stage.until("the cluster", |_| true).await;
    let (mut last, mut at) = (stage.text().unwrap(), stage.now());
    let mut gaps = Vec::new();
    for second in 0..300 {
        assert!(stage.sim.edit("pods", "eve-kube-app", "web-d4f3a-0-abcde", |pod| {
            pod["status"]["containerStatuses"][0]["restartCount"] = second.into();
        }));
        stage.pass(Duration::from_secs(1)).await;
        let text = stage.text().unwrap();
        if text != last {
            gaps.push(stage.now().since(at));
            (last, at) = (text, stage.now());
        }
    }
    assert_eq!(gaps.len(), 10, "{gaps:?}");
    let a_gap = |gap: &Duration| (29..=31).contains(&gap.as_secs());
    assert!(gaps[1..].iter().all(a_gap), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn what_changes_nothing_in_the_topic_is_not_published_again() {
    let stage = Stage::new();
    seeds::golden(&stage.sim);
    stage.lead(Duration::from_hours(1));
    stage.until("the cluster", |_| true).await;
    let file = stage.topic_root.path("run/zedkube/KubeClusterInfo/global.json");
    let written = || std::fs::metadata(&file).map(|it| std::os::unix::fs::MetadataExt::ino(&it)).unwrap();
    let first = written();
    for second in 0..120 {
        // As heartbeats do.
        assert!(stage.sim.edit("nodes", "", "node-1", |node| {
            node["status"]["conditions"][1]["lastHeartbeatTime"] = second.into();
        }));
        stage.pass(Duration::from_secs(1)).await;
    }
    assert_eq!(written(), first, "each write is another file");
}
