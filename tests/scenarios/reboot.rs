//! One reboot from the controller's order to the uncordon, and obstacles.

use serde_json::Value;
use topics::{
    ConfigGetStatus, DrainStatus, EdgeNodeClusterConfig, LeavePhase, NodeDrainProgress, NodeDrainRequest,
    NodeLeave, Requester, ZedAgentStatus,
};

use scenarios::{Agent, PENDING, World, reboot_config};

pub(crate) async fn a_reboot_is_drained_carried_out_once_and_the_node_comes_back(world: &mut World) {
    world.begin().await;
    world.recorded_count(1).await;
    // Never early: when the device is asked, the drain of its own request is done.
    assert_eq!(world.cluster.pods_to_leave().await, [""; 0]);
    assert!(world.cluster.cordoned().await);
    let request: NodeDrainRequest = world.read("run/zedagent/NodeDrainRequest/global.json").unwrap();
    let progress: NodeDrainProgress = world.read("run/zedkube/NodeDrainProgress/global.json").unwrap();
    assert_eq!(progress.answer(request.id()).unwrap().status, DrainStatus::Complete);
    // Not yet executed: the counter waits for the boot.
    assert!(world.text("persist/status/rebootConfig").unwrap().contains("\"Counter\":6,"));
    world.reboot().await;
    world.start_all();
    world.executed(7).await;
    world.status(DrainStatus::NotRequested).await;
    world.cluster.until_schedulable().await;
    assert_eq!(world.recorded().len(), 1);
    assert_eq!(world.cluster.evicted_twice(), [""; 0]);
}

/// As in `kubectl describe node`.
pub(crate) async fn o3_a_reboot_is_shown_on_the_node_by_events_a_condition_and_an_annotation(
    world: &mut World,
) {
    world.begin_blocked().await;
    world.until_said("BLOCKED: reboot waits, 1 of ").await;
    world.cluster.until_shown("DrainStarted", "Blocked", "False").await;
    world.cluster.until_shown("DrainBlocked", "Blocked", "False").await;
    world.cluster.unblock().await;
    world.recorded_count(1).await;
    world.until_said("DRAINED: reboot goes ahead, do not work on it").await;
    world.cluster.until_shown("DrainComplete", "Drained", "True").await;
    assert!(world.cluster.conditions().await.iter().any(|it| it == "Ready"), "the kubelet's own is there");
    crate::comes_back(world, 7).await;
    world.cluster.until_shown("Uncordoned", "InService", "False").await;
    // Each is there once, about this node alone.
    let (mut reasons, _) = world.cluster.events().await;
    reasons.sort();
    assert_eq!(reasons, ["DrainBlocked", "DrainComplete", "DrainStarted", "Uncordoned"]);
    assert_eq!(world.cluster.evicted_twice(), [""; 0]);
}

pub(crate) async fn a_reboot_that_the_controller_takes_back_gives_the_node_back(world: &mut World) {
    // A budget without room holds the drain.
    world.begin_blocked().await;
    world
        .progress("a blocker with the name of its budget", |it| {
            it.blockers.iter().any(|blocker| blocker.reason.contains("/web"))
        })
        .await;
    world.ask_reboot(6);
    world.status(DrainStatus::NotRequested).await;
    world.cluster.until_schedulable().await;
    world.until_file(PENDING, "nothing pending", |text| text.is_none()).await;
    assert_eq!(world.recorded(), []);
}

pub(crate) async fn r3_a_power_cut_before_the_reboot_runs_it_again_exactly_once(world: &mut World) {
    world.begin_blocked().await;
    // Power goes during the drain: a new boot, but not the ordered one.
    world.reboot().await;
    world.cluster.unblock().await;
    world.start_all();
    world.recorded_count(1).await;
    crate::comes_back(world, 7).await;
    assert_eq!(world.recorded().len(), 1);
}

pub(crate) async fn d_a12_a_broken_cluster_section_is_never_taken_for_leaving(world: &mut World) {
    crate::starts(world).await;
    let mut broken = reboot_config(6);
    broken["cluster"]["clusterIpPrefix"] = Value::from("10.244.244.2");
    broken["configItems"] = serde_json::json!([{ "key": "timer.config.interval", "value": "7" }]);
    world.config(&broken);
    // The rest of that config is applied, so it was read.
    world
        .until_file(
            "run/zedagent/ConfigItemValueMap/global.json",
            "the other sections of the config",
            |text| text.is_some_and(|text| text.contains("\"IntValue\":7,")),
        )
        .await;
    let cluster: EdgeNodeClusterConfig =
        world.read("run/zedagent/EdgeNodeClusterConfig/global.json").unwrap();
    assert!(cluster.valid);
    world.status(DrainStatus::NotRequested).await;
    assert!(!world.cluster.cordoned().await);
}

/// The device config is removed or cut; then zedagent is killed and loses all its files.
pub(crate) async fn a_device_config_that_is_lost_never_takes_the_node_out_of_its_cluster(world: &mut World) {
    const DECISION: &str = "run/zedagent/ClusterDecision/global.json";
    const CONFIG: &str = "persist/config/edge-dev-config.json";
    crate::starts(world).await;
    let decided = world.text(DECISION).unwrap();
    assert_eq!(decided, r#"{"Membership":"member"}"#);
    let stays = async |world: &World, case: &str| {
        let cluster: EdgeNodeClusterConfig =
            world.read("run/zedagent/EdgeNodeClusterConfig/global.json").unwrap();
        assert!(cluster.valid, "{case}");
        assert_eq!(world.text(DECISION).as_ref(), Some(&decided), "{case}");
        let leave: NodeLeave = world.read("persist/status/zedkube/NodeLeave/global.json").unwrap();
        assert_eq!(leave.phase, LeavePhase::Member, "{case}");
        assert!(!world.cluster.cordoned().await, "{case}");
    };
    for (nth, left) in
        [r#"{"configItems":[{"key":"timer.config.interval","value":"NTH"}]}"#, ""].iter().enumerate()
    {
        // The next good config shows that it was read.
        let nth = nth + 11;
        world.put(CONFIG, &left.replace("NTH", "9"));
        let mut good = reboot_config(6);
        good["configItems"] =
            serde_json::json!([{ "key": "timer.config.interval", "value": nth.to_string() }]);
        world.config(&good);
        let read =
            |text: Option<&str>| text.is_some_and(|text| text.contains(&format!("\"IntValue\":{nth},")));
        world.until_file("run/zedagent/ConfigItemValueMap/global.json", "the good config", read).await;
        stays(world, left).await;
    }
    world.kill(Agent::Zedagent).await;
    for kept in ["persist/config", "persist/checkpoint", "persist/status/zedagent"] {
        world.remove_folder(kept);
    }
    stays(world, "killed").await;
    world.start(Agent::Zedagent);
    world
        .has::<ZedAgentStatus>("zedagent", "zedagent to miss its config", |it| {
            it.config_get_status != ConfigGetStatus::Success
        })
        .await;
    stays(world, "wiped").await;
    world.status(DrainStatus::NotRequested).await;
}

pub(crate) async fn a_device_config_without_a_cluster_section_takes_the_node_out_after_an_announcement(
    world: &mut World,
) {
    const RECORD: &str = "persist/status/zedkube/NodeLeave/global.json";
    crate::starts(world).await;
    let mut single = reboot_config(6);
    single.as_object_mut().unwrap().remove("cluster");
    world.config(&single);
    let announced = |text: Option<&str>| text.is_some_and(|text| text.contains(r#""Phase":"announced""#));
    world.until_file(RECORD, "the announcement", announced).await;
    // In time for the config to come back.
    world.config(&reboot_config(6));
    let member = |text: Option<&str>| text.is_some_and(|text| text.contains(r#""Phase":"member""#));
    world.until_file(RECORD, "a member again", member).await;
    assert!(!world.cluster.cordoned().await);
    world.config(&single);
    let left = |text: Option<&str>| text.is_some_and(|text| text.contains(r#""Phase":"left""#));
    world.until_file(RECORD, "the end of it", left).await;
    world.status(DrainStatus::NotSupported).await;
}

pub(crate) async fn a_node_in_no_cluster_reboots_without_a_drain(world: &mut World) {
    let mut single = reboot_config(6);
    single.as_object_mut().unwrap().remove("cluster");
    world.config(&single);
    world.start_all();
    world.status(DrainStatus::NotSupported).await;
    single["reboot"]["counter"] = 7.into();
    world.config(&single);
    world.recorded_count(1).await;
    let status: ZedAgentStatus = world.read("run/zedagent/ZedAgentStatus/zedagent.json").unwrap();
    assert!(status.reboot_cmd);
    assert_eq!(world.cluster.evictions(), 0);
}

pub(crate) async fn somebody_elses_cordon_is_kept_through_the_reboot(world: &mut World) {
    world.cluster.cordon_by_hand().await;
    world.begin().await;
    world.recorded_count(1).await;
    world.reboot().await;
    world.start_all();
    world.executed(7).await;
    let status = world.status(DrainStatus::NotRequested).await;
    assert_eq!(status.requested_by, Requester::None);
    world.cluster.until_ready().await;
    assert!(world.cluster.cordoned().await);
}
