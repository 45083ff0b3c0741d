//! A drain of a node with the only copy of a volume, with Longhorn's own rules: each policy, rebuilds that end, hang or
//! find no place, nodes that are all cordoned.

use std::time::Duration;

use kubeapi::ApiClient;
use kubenodeop::plan::survey;
use kubenodeop::storage::Cause;
use kubenodeop::{AttemptFailure, AttemptRules, BlockCode, Limit, LimitAction, WatchedBlockers, storage};
use kubesim::{ScriptedFault, Sim};
use serde_json::{Value, json};

use crate::stage::{Attempt, cluster, cordoned, n1, woken};
use topics::DrainPhase;

const SPACE: &str = "longhorn-system";
const VOLUMES: &str = "longhorn/volumes";
const REPLICAS: &str = "longhorn/replicas";

/// The stage with Longhorn.
async fn with_longhorn(policy: &str) -> (Sim, ApiClient) {
    let (sim, cluster) = cluster(2).await;
    sim.add_longhorn(policy);
    sim.until("policy/poddisruptionbudgets", |all| all.len() == 4).await;
    (sim, cluster)
}

/// The same with a pod on n1 that uses a volume whose only copy is there. Our node is cordoned.
async fn with_copy(policy: &str) -> (Sim, ApiClient) {
    let (sim, cluster) = with_longhorn(policy).await;
    sim.add_longhorn_volume("shop", "data", "pvc-1", &["n1"]);
    sim.add_mounting_pod("shop", "player", "n1", "data");
    sim.until(VOLUMES, |all| all[0]["status"]["robustness"] == "healthy").await;
    cordoned(&cluster).await;
    (sim, cluster)
}

fn healthy_at(sim: &Sim) -> Vec<String> {
    let good = |it: &&Value| it["spec"]["healthyAt"] != "" && it["spec"]["failedAt"] == "";
    let all = sim.list(REPLICAS);
    let mut nodes: Vec<String> =
        all.iter().filter(good).map(|it| it["spec"]["nodeID"].as_str().unwrap().to_owned()).collect();
    nodes.sort();
    nodes
}

fn wanted(sim: &Sim) -> u64 {
    sim.get(VOLUMES, SPACE, "pvc-1").unwrap()["spec"]["numberOfReplicas"].as_u64().unwrap()
}

fn rebuild(sim: &Sim, how: &str) {
    sim.edit(VOLUMES, SPACE, "pvc-1", |it| it["metadata"]["annotations"]["kubesim/rebuild"] = how.into());
}

#[tokio::test(start_paused = true)]
async fn d14_under_each_policy_another_copy_is_healthy_when_the_node_is_released() {
    for policy in storage::NodeDrainPolicy::WORDS {
        let asks = !storage::NodeDrainPolicy::parse(policy).copies_by_cordon();
        let (sim, cluster) = with_copy(policy).await;
        Attempt::start(&cluster).drained().await;
        let elsewhere = healthy_at(&sim).iter().any(|node| node != "n1");
        assert!(elsewhere, "{policy}: {:?}", healthy_at(&sim));
        assert_eq!(wanted(&sim), if asks { 2 } else { 1 }, "{policy}");
        let here = sim.get("nodes", "", "n1").unwrap();
        let before = &here["metadata"]["annotations"]["pillar-rs/volumes-before"];
        // Moved away as a whole, there is nothing to record.
        assert_eq!(before.is_string(), asks, "{policy}: {before}");
        let (taken_back, failed) = storage::take_back(&cluster, |it| it == "n1", |_| true).await;
        assert!(failed.is_ok(), "{policy}: {failed:?}");
        assert_eq!((taken_back.len(), wanted(&sim)), (usize::from(asks), 1), "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn d14_a_rebuild_is_shown_in_percent_and_one_that_hangs_holds_the_node() {
    let (sim, cluster) = with_copy("block-if-contains-last-replica").await;
    rebuild(&sim, "hangs");
    let rules = AttemptRules { attempt: Duration::from_secs(3600), ..AttemptRules::default() };
    let mut attempt = Attempt::by(&cluster, rules);
    let percent = |it: &kubenodeop::Progress| it.storage.iter().any(|it| it.percent == 50);
    let shown = attempt.until(percent).await;
    assert_eq!(
        shown.blockers.iter().find(|it| it.pod.ends_with("/player")).unwrap().code,
        BlockCode::Copying
    );
    attempt.pass(Duration::from_secs(3000)).await;
    let AttemptFailure { reason, watched, .. } = attempt.failed().await;
    assert!(reason.contains("shop/player"), "{reason}");
    assert_eq!(watched.last_copies.keys().collect::<Vec<_>>(), ["pvc-1"]);
}

#[tokio::test(start_paused = true)]
async fn d14_a_copy_that_finds_no_place_lets_the_pod_go_and_holds_the_node_by_name() {
    let (sim, cluster) = with_copy("always-allow").await;
    sim.edit(VOLUMES, SPACE, "pvc-1", |it| {
        it["metadata"]["annotations"]["kubesim/unschedulable"] = "insufficient storage".into();
    });
    let mut attempt = Attempt::start(&cluster);
    let blocked =
        |it: &kubenodeop::Progress| it.phase == DrainPhase::WaitingForStorage && !it.blockers.is_empty();
    let shown = attempt.until(blocked).await;
    assert!(shown.storage[0].reason.starts_with("the last healthy copy is here"), "{shown:?}");
    attempt.pass(Duration::from_secs(3600)).await;
    assert_eq!(healthy_at(&sim), ["n1"]);
}

async fn foreseen(cluster: &ApiClient) -> Vec<String> {
    let plan = survey::plan(cluster, &n1(), &AttemptRules::default()).await.unwrap();
    plan.blockers.into_iter().map(|it| it.code).collect()
}

#[tokio::test(start_paused = true)]
async fn d14_o5_a_rebuild_on_a_disk_that_is_full_is_named_in_the_drain_and_in_the_plan() {
    let (sim, cluster) = with_copy("always-allow").await;
    let free = |bytes: u64| {
        for node in ["n2", "n3"] {
            sim.edit("longhorn/nodes", SPACE, node, |it| {
                it["status"]["diskStatus"]["default"]["storageAvailable"] = bytes.into();
            });
        }
    };
    let mut attempt = Attempt::start(&cluster);
    attempt.until(|it| it.storage.iter().any(|it| it.percent == 25)).await;
    free(0);
    let full = |it: &kubenodeop::Progress| it.blockers.iter().any(|it| it.code == BlockCode::VolumeFull);
    let shown = attempt.until(full).await;
    assert!(shown.storage[0].reason.contains("its disk is full: node n"), "{shown:?}");
    assert_eq!(shown.storage[0].volume, "shop/data (pvc-1)");
    assert_eq!(foreseen(&cluster).await, [BlockCode::VolumeFull]);
    free(1 << 30);
    attempt.drained().await;
}

#[tokio::test(start_paused = true)]
async fn d14_o5_a_strict_local_volume_is_one_that_cannot_move_in_the_plan_and_in_the_drain() {
    let (sim, cluster) = with_copy("block-for-eviction-if-contains-last-replica").await;
    sim.edit(VOLUMES, SPACE, "pvc-1", |it| it["spec"]["dataLocality"] = "strict-local".into());
    assert_eq!(foreseen(&cluster).await, [BlockCode::StrictLocal]);
    let held = |it: &kubenodeop::Progress| it.blockers.iter().any(|it| it.code == BlockCode::StrictLocal);
    Attempt::start(&cluster).until(held).await;
}

#[tokio::test(start_paused = true)]
async fn d14_a_detached_volume_whose_only_copy_is_here_holds_the_node_where_nothing_copies_it() {
    for (policy, held) in
        [("always-allow", true), ("block-if-contains-last-replica", true), ("block-for-eviction", false)]
    {
        let (sim, cluster) = with_longhorn(policy).await;
        sim.add_longhorn_volume("shop", "data", "pvc-1", &["n1"]);
        cordoned(&cluster).await;
        let mut attempt = Attempt::start(&cluster);
        if held {
            let shown = attempt
                .until(|it| it.phase == DrainPhase::WaitingForStorage && !it.blockers.is_empty())
                .await;
            let blocker = shown.blockers.iter().find(|it| it.code == BlockCode::LastCopy).unwrap();
            assert!(blocker.reason.contains("it is detached"), "{policy}: {}", blocker.reason);
            attempt.pass(Duration::from_secs(3600)).await;
            let pass =
                AttemptRules { last_copy_pass: ["shop/data".to_owned()].into(), ..AttemptRules::default() };
            if policy == "always-allow" {
                Attempt::by(&cluster, pass).drained().await;
            }
        } else {
            attempt.drained().await;
            assert_ne!(healthy_at(&sim), ["n1"], "{policy}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn d14_all_nodes_cordoned_is_a_deadlock_by_name_and_an_uncordon_ends_it() {
    let (sim, cluster) = with_copy("block-if-contains-last-replica").await;
    let cordon = |flag: bool| {
        for node in ["n2", "n3"] {
            sim.edit("nodes", "", node, |it| it["spec"]["unschedulable"] = json!(flag));
        }
    };
    cordon(true);
    let limit = Limit { after: Some(Duration::from_secs(60)), then: LimitAction::GiveUp };
    let rules = AttemptRules { last_copy: limit, ..AttemptRules::default() };
    let AttemptFailure { reason, watched, blockers, .. } = Attempt::by(&cluster, rules).failed().await;
    assert!(reason.contains("uncordon one"), "{reason}");
    assert!(blockers.iter().any(|it| it.code == BlockCode::AllCordoned), "{blockers:?}");
    // A change of it wakes a paused drain within 2 s.
    let what = woken(&cluster, &watched, 10, || cordon(false), 2).await;
    assert!(what.contains("pvc-1") || what.contains("player"), "{what}");
}

#[tokio::test(start_paused = true)]
async fn d16_an_attempt_that_failed_as_the_storage_could_not_be_read_goes_on_once_it_can() {
    let (sim, cluster) = with_copy("always-allow").await;
    sim.faults().script("GET", "/replicas", 10_000, ScriptedFault::status(500, "InternalError"));
    let rules = AttemptRules { attempt: Duration::from_secs(60), ..AttemptRules::default() };
    let watched = Attempt::by(&cluster, rules).failed().await.watched;
    assert!(watched.storage_unknown && watched.last_copies.is_empty(), "{watched:?}");
    // Nothing but the storage.
    let watched = WatchedBlockers { storage_unknown: true, ..WatchedBlockers::default() };
    let what = woken(&cluster, &watched, 60, || sim.faults().clear(), 60).await;
    assert_eq!(what, "the state of the storage can be read again");
}

#[tokio::test(start_paused = true)]
async fn d16_an_attempt_that_failed_for_want_of_room_goes_on_within_two_seconds_of_room() {
    let (sim, cluster) = with_copy("always-allow").await;
    let place = |annotations: Value| {
        sim.edit(VOLUMES, SPACE, "pvc-1", |it| {
            it["spec"]["numberOfReplicas"] = 2.into();
            it["metadata"]["annotations"] = annotations;
        });
    };
    place(json!({ "kubesim/unschedulable": "insufficient storage" }));
    sim.until(VOLUMES, |all| all[0]["status"]["conditions"][0]["status"] == "False").await;
    let last_copies =
        [("pvc-1".to_owned(), Cause::NoPlace("insufficient storage".to_owned()))].into_iter().collect();
    let watched = WatchedBlockers { last_copies, ..WatchedBlockers::default() };
    let what = woken(&cluster, &watched, 60, || place(json!({})), 2).await;
    assert!(what.contains("volume pvc-1"), "{what}");
}

/// A volume of 2 shards of data and 1 of parity, whose pod is on n1, which is cordoned.
async fn with_shards(policy: &str, nodes: [&str; 3]) -> (Sim, ApiClient) {
    let (sim, cluster) = with_longhorn(policy).await;
    sim.add_sharded_volume("shop", "data", "pvc-1", &nodes, 1);
    sim.add_mounting_pod("shop", "player", "n1", "data");
    sim.until(VOLUMES, |all| all[0]["status"]["state"] == "attached").await;
    cordoned(&cluster).await;
    (sim, cluster)
}

fn fail(sim: &Sim, how: &str) {
    rebuild(sim, how);
    sim.edit("longhorn/shards", SPACE, "pvc-1-1", |it| it["status"]["state"] = "failed".into());
}

#[tokio::test(start_paused = true)]
async fn j3_a_shard_that_cannot_be_spared_holds_the_drain_by_name_until_its_group_is_healthy() {
    let (sim, cluster) = with_shards("block-for-eviction-if-contains-last-replica", ["n1", "n2", "n3"]).await;
    fail(&sim, "hangs");
    assert_eq!(foreseen(&cluster).await, ["last-copy"]);
    let mut attempt = Attempt::start(&cluster);
    let held = |it: &kubenodeop::Progress| it.blockers.iter().any(|it| it.code == BlockCode::LastCopy);
    let shown = attempt.until(held).await;
    let said =
        "volume shop/data (pvc-1): its shards here cannot be spared: 1 of 3 would be left, and 2 are needed";
    assert!(shown.blockers.iter().any(|it| it.reason.contains(said)), "{:?}", shown.blockers);
    attempt.pass(Duration::from_secs(3600)).await;
    assert!(sim.get("pods", "shop", "player").is_some());
    rebuild(&sim, "");
    attempt.drained().await;
    let before = &sim.get("nodes", "", "n1").unwrap()["metadata"]["annotations"]["pillar-rs/volumes-before"];
    assert_eq!(before, r#"{"volumes":{"pvc-1":true}}"#, "what the gate after the boot waits for");
}

#[tokio::test(start_paused = true)]
async fn j3_spare_shards_leave_the_node_free_and_only_one_policy_moves_them() {
    for policy in storage::NodeDrainPolicy::WORDS {
        let (sim, cluster) = with_shards(policy, ["n1", "n2", "n2"]).await;
        Attempt::start(&cluster).drained().await;
        let on = |it: &&Value| it["spec"]["nodeID"] == "n1";
        let left = sim.list("longhorn/shards").iter().filter(on).count();
        assert_eq!(left, usize::from(policy != "block-for-eviction"), "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn j3_a_volume_in_a_form_that_is_not_known_is_named_and_holds_nothing() {
    let (sim, cluster) = with_shards("", ["n1", "n2", "n3"]).await;
    sim.edit(VOLUMES, SPACE, "pvc-1", |it| it["spec"]["dataLayout"]["type"] = "striped".into());
    let plan = survey::plan(&cluster, &n1(), &AttemptRules::default()).await.unwrap();
    let named = |it: &String| it.starts_with("volume shop/data (pvc-1): no replica and no shard");
    assert!(plan.notes.iter().any(named), "{:?}", plan.notes);
    let mut attempt = Attempt::start(&cluster);
    attempt.until(|it| it.storage.iter().any(|it| it.reason.starts_with("no replica and no shard"))).await;
    attempt.drained().await;
    assert_eq!(sim.faults().count("GET", "/shard"), 0, "asked for where none is sharded");
}
