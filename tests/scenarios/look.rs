//! The last look before the machine goes down, and turns for restarts that nodeagent decides on itself.
//!
//! On the embedded cluster, whose Lease, etcd and nodes are changed behind the agents' backs.

mod said;

use outage::operator;
use outage::turn::record::{ForcedRelease, LEASE};
use outage::turn::rule::release;
use scenarios::{Agent, Cluster, World};
use serde_json::json;
use topics::{
    DrainPhase, DrainStatus, OutageAnswer, OutageKind, OutageQuestion, OutageVerdict, Topic, go_json,
};

pub(crate) const NODES: [&str; 3] = ["edge-node-1", "edge-node-2", "edge-node-3"];
pub(crate) const LEASES: &str = "coordination/leases";
pub(crate) const PLACE: &str = "eve-kube-app";
const QUESTION: &str = "run/nodeagent/OutageQuestion/global.json";

/// For a reboot; nodeagent does not run yet.
pub(crate) async fn drained(world: &mut World) {
    for agent in [Agent::Zedagent, Agent::Baseosmgr, Agent::Zedkube] {
        world.start(agent);
    }
    world.status(DrainStatus::NotRequested).await;
    world.ask_reboot(7);
    world.status(DrainStatus::Complete).await;
}

/// Waits until nodeagent is held, with reason and command.
pub(crate) async fn held(world: &World) -> OutageQuestion {
    let held = |it: &OutageQuestion| !it.held.is_empty();
    world.has::<OutageQuestion>("nodeagent", "a machine that is held back", held).await
}

#[tokio::test(start_paused = true)]
async fn u1_a_turn_that_an_operator_released_and_a_restored_lease_has_again_takes_no_machine_down() {
    let mut world = World::new().await;
    drained(&mut world).await;
    let sim = world.cluster.sim().clone();
    let lease = || sim.get(LEASES, PLACE, LEASE).unwrap();
    let (before, handle) = (lease(), world.cluster.handle());
    world.kill(Agent::Zedkube).await;
    let fence = u32::try_from(before["spec"]["leaseTransitions"].as_i64().unwrap()).unwrap();
    let forced = ForcedRelease {
        node: NODES[0].to_owned(),
        fence,
        who: "operator".to_owned(),
        why: "hangs".to_owned(),
        ..ForcedRelease::default()
    };
    let now = agent::Clock::new().wall().to_timestamp();
    operator::change(&handle, now, |record| release(record, forced.clone())).await.unwrap();
    assert_eq!(lease()["spec"]["holderIdentity"], "");
    // The next node gets the turn and is cordoned in it; then etcd is restored.
    sim.edit("nodes", "", NODES[1], |node| {
        node["spec"]["unschedulable"] = json!(true);
        let mark = json!({ "bootId": "b", "requestedBy": 2, "requestedAt": "t", "fence": fence + 1,
            "leaseUid": before["metadata"]["uid"] });
        node["metadata"]["annotations"]["pillar-rs/cordon-owner"] = mark.to_string().into();
    });
    sim.edit(LEASES, PLACE, LEASE, |it| {
        it["spec"] = before["spec"].clone();
        it["metadata"]["annotations"] = before["metadata"]["annotations"].clone();
    });
    world.start(Agent::Zedkube);
    world.start(Agent::Nodeagent);
    world
        .progress("a turn to be waited for again", |it| {
            it.phase == DrainPhase::WaitingForTurn && it.reason.contains("marks of turns")
        })
        .await;
    world.cluster.until_schedulable().await;
    assert_eq!(world.recorded(), []);
}

#[tokio::test(start_paused = true)]
async fn u3_a_person_can_force_a_server_that_is_held_and_the_order_is_used_once() {
    let mut world = World::new().await;
    world.limits["nodeagent"]["refused_retry_ms"] = json!(100);
    drained(&mut world).await;
    // An unusable record.
    world.cluster.sim().edit(LEASES, PLACE, LEASE, |it| {
        it["metadata"]["annotations"]["pillar-rs/outage-version"] = json!("2");
    });
    world.start(Agent::Nodeagent);
    let question = held(&world).await;
    assert!(question.held.contains("has format 2"), "{question:?}");
    let force = "persist/kube-status/force-NodeDrainStatus-global.json";
    world.put(force, r#"{"Status":9,"RequestedBy":2}"#);
    world.recorded_count(1).await;
    world.until_file(force, "the force file to be used up", |text| text.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn u11_of_three_nodes_in_the_same_trouble_one_restarts_at_a_time_and_the_next_after_it_is_healthy() {
    let mut worlds: Vec<World> = Cluster::embedded_of_three().await.into_iter().map(World::on).collect();
    let question =
        |kind| OutageQuestion { number: 5, kind, op: "reboot".into(), ..OutageQuestion::default() };
    let ask = |world: &World, kind| {
        world.put(QUESTION, &String::from_utf8(go_json::to_vec(&question(kind)).unwrap()).unwrap());
    };
    for world in &mut worlds {
        world.start(Agent::Zedagent);
        world.start(Agent::Zedkube);
        world.status(DrainStatus::NotRequested).await;
    }
    for world in &worlds {
        ask(world, OutageKind::Turn);
    }
    let path = format!("run/zedkube/{}/global.json", OutageAnswer::NAME);
    let verdict = |world: &World| world.read::<OutageAnswer>(&path).unwrap().verdict;
    let mut left: Vec<usize> = (0..worlds.len()).collect();
    let mut holders = Vec::new();
    while !left.is_empty() {
        // One of them goes, and all others wait.
        let any = left.iter().map(|nth| {
            Box::pin(
                worlds[*nth].has::<OutageAnswer>("zedkube", "a turn", |it| it.verdict == OutageVerdict::Go),
            )
        });
        let (_, at, _) = futures::future::select_all(any).await;
        let nth = left.remove(at);
        for other in &left {
            worlds[*other]
                .has::<OutageAnswer>("zedkube", "the holder by its name", |it| it.why.contains(NODES[nth]))
                .await;
            assert_eq!(verdict(&worlds[*other]), OutageVerdict::Hold);
        }
        holders.push(nth);
        // It comes back without a question, and healthy.
        let world = &mut worlds[nth];
        world.reboot().await;
        for other in &left {
            assert_eq!(verdict(&worlds[*other]), OutageVerdict::Hold, "while node {nth} is away");
        }
        let world = &mut worlds[nth];
        world.start(Agent::Zedagent);
        world.start(Agent::Zedkube);
    }
    holders.sort_unstable();
    assert_eq!(holders, [0, 1, 2]);
}
