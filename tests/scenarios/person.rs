//! A person orders a reboot or power-off of the node, with the file of `zedbox reboot` and `zedbox shutdown`.

use agent::device::MachineOperation;
use outage::turn::record::LEASE;
use scenarios::{Agent, PENDING, World};
use topics::{
    DEVICE_ORDER, DeviceOp, DeviceOpPending, DeviceOrder, DeviceState, DrainHistory, DrainStatus,
    NodeAgentStatus, NodeDrainProgress, NodeDrainRequest, OperationPause, OutageQuestion, PAUSE_FILE,
    PauseScope, ZedAgentStatus, go_json,
};

use crate::look::{LEASES, PLACE, held};

/// The program's file, for the agents' boot.
fn order(world: &World, op: DeviceOp) -> String {
    let boot_id = agent::force::boot_of_agents(&world.topic_root).unwrap().unwrap();
    let ordered_at = "2026-03-14T09:26:53Z".parse().unwrap();
    let order = DeviceOrder { op, boot_id, ordered_at, reason: "new disk".into(), by: "field".into() };
    String::from_utf8(go_json::to_vec(&order).unwrap()).unwrap()
}

async fn idle(world: &mut World) {
    crate::starts(world).await;
}

pub(crate) async fn x3_a_person_takes_the_machine_down_behind_a_drain_and_once(world: &mut World) {
    idle(world).await;
    for (count, op, expected) in
        [(1, DeviceOp::Reboot, MachineOperation::Reboot), (2, DeviceOp::Shutdown, MachineOperation::Poweroff)]
    {
        let order = order(world, op);
        world.put(DEVICE_ORDER, &order);
        world.recorded_count(count).await;
        assert_eq!(world.cluster.pods_to_leave().await, [""; 0], "{op:?}");
        assert!(world.cluster.cordoned().await, "{op:?}");
        let request: NodeDrainRequest = world.read("run/zedagent/NodeDrainRequest/global.json").unwrap();
        let progress: NodeDrainProgress = world.read("run/zedkube/NodeDrainProgress/global.json").unwrap();
        assert_eq!(progress.answer(request.id()).unwrap().status, DrainStatus::Complete, "{op:?}");
        assert_eq!(world.recorded()[count - 1].operation, expected);
        world.reboot().await;
        // Where `/run` survives a boot, so does the file; it was for the boot before.
        world.put(DEVICE_ORDER, &order);
        idle(world).await;
        world.cluster.until_schedulable().await;
        assert_eq!(world.recorded().len(), count);
        // Independent of the controller's counter.
        assert!(world.text("persist/status/rebootConfig").unwrap().contains("\"Counter\":6,"));
    }
}

pub(crate) async fn x3_an_order_that_is_withdrawn_gives_the_node_back_and_outlives_an_agent(
    world: &mut World,
) {
    idle(world).await;
    world.cluster.block().await;
    let order = order(world, DeviceOp::Shutdown);
    world.put(DEVICE_ORDER, &order);
    world.status(DrainStatus::Cordoned).await;
    let file = "run/zedagent/NodeDrainRequest/global.json";
    let asked = world.text(file).unwrap();
    world.kill(Agent::Zedagent).await;
    std::fs::remove_file(world.topic_root.path("run/zedagent/ZedAgentStatus/zedagent.json")).unwrap();
    world.start(Agent::Zedagent);
    let pending = "persist/status/zedagent/DeviceOpPending/shutdown.json";
    world
        .has::<ZedAgentStatus>("zedagent", "the config to be read", |it| {
            it.device_state == DeviceState::Online
        })
        .await;
    assert_eq!(world.text(file).as_ref(), Some(&asked), "the order was forgotten over a restart of zedagent");
    assert!(world.text(pending).unwrap().contains("operator field: new disk"));
    std::fs::remove_file(world.topic_root.path(DEVICE_ORDER)).unwrap();
    world.status(DrainStatus::NotRequested).await;
    world.cluster.until_schedulable().await;
    world.until_file(pending, "nothing pending", |text| text.is_none()).await;
    assert_eq!(world.recorded(), []);
}

#[tokio::test(start_paused = true)]
async fn x3_a_commanded_reboot_that_the_last_look_holds_is_withdrawn_like_any_other() {
    let mut world = World::new().await;
    for agent in [Agent::Zedagent, Agent::Baseosmgr, Agent::Zedkube] {
        world.start(agent);
    }
    world.status(DrainStatus::NotRequested).await;
    world.put(DEVICE_ORDER, &order(&world, DeviceOp::Reboot));
    world.status(DrainStatus::Complete).await;
    let sim = world.cluster.sim().clone();
    let format = |number: &str| {
        sim.edit(LEASES, PLACE, LEASE, |it| {
            it["metadata"]["annotations"]["pillar-rs/outage-version"] = number.into();
        });
    };
    format("2");
    world.start(Agent::Nodeagent);
    held(&world).await;
    std::fs::remove_file(world.topic_root.path(DEVICE_ORDER)).unwrap();
    world.until_file(PENDING, "nothing pending", |text| text.is_none()).await;
    world.has::<OutageQuestion>("nodeagent", "nothing that is held back", |it| it.held.is_empty()).await;
    format("1");
    world.status(DrainStatus::NotRequested).await;
    world.cluster.until_schedulable().await;
    let status: NodeAgentStatus = world.read("run/nodeagent/NodeAgentStatus/nodeagent.json").unwrap();
    assert!(!status.device_reboot);
    assert_eq!((world.recorded(), world.text("persist/reboot-reason")), (vec![], None));
    world.put(DEVICE_ORDER, &order(&world, DeviceOp::Reboot));
    world.recorded_count(1).await;
}

/// The file of `zedbox pause` and `zedbox pause --only-controller`.
fn pause(world: &World, scope: PauseScope) {
    let (by, reason) = ("field".into(), "new disk".into());
    let pause = OperationPause { scope, by, reason, ..OperationPause::default() };
    world.put(PAUSE_FILE, &String::from_utf8(go_json::to_vec(&pause).unwrap()).unwrap());
}

async fn waits_for_a_person(world: &mut World) {
    world
        .has::<DeviceOpPending>("zedagent", "the reboot to wait", |it| {
            it.waiting_for.contains("by field: new disk")
        })
        .await;
}

pub(crate) async fn x3_a_paused_node_is_not_rebooted_in_this_boot_or_the_next_until_a_person_says_so(
    world: &mut World,
) {
    pause(world, PauseScope::Node);
    idle(world).await;
    world.ask_reboot(7);
    waits_for_a_person(world).await;
    world.reboot().await;
    idle(world).await;
    waits_for_a_person(world).await;
    world.ask_reboot(8);
    world
        .progress("the pause to be shown", |it| it.pause.is_set() && it.next_step.contains("zedbox resume"))
        .await;
    world.until_said("PAUSED: reboot 8 waits; paused by field: new disk").await;
    assert_eq!((world.recorded(), world.cluster.evictions()), (Vec::new(), 0));
    assert!(!world.cluster.cordoned().await);
    std::fs::remove_file(world.topic_root.path(PAUSE_FILE)).unwrap();
    world.recorded_count(1).await;
    let history: DrainHistory = world.read("persist/status/zedkube/DrainHistory/global.json").unwrap();
    assert_eq!(history.pauses.len(), 1, "one pause over a reboot: {:?}", history.pauses);
    assert!(!history.pauses[0].ended_at.is_zero());
}

pub(crate) async fn x3_a_refused_reboot_gives_the_node_back_and_is_carried_out_once_it_may(
    world: &mut World,
) {
    idle(world).await;
    world.cluster.block().await;
    world.ask_reboot(7);
    world.status(DrainStatus::Cordoned).await;
    pause(world, PauseScope::Controller);
    world.status(DrainStatus::NotRequested).await;
    world.cluster.until_schedulable().await;
    waits_for_a_person(world).await;
    world.cluster.unblock().await;
    assert_eq!(world.recorded(), []);
    std::fs::remove_file(world.topic_root.path(PAUSE_FILE)).unwrap();
    world.recorded_count(1).await;
    world.reboot().await;
    idle(world).await;
    world.executed(7).await;
}
