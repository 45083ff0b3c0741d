//! A node that dies: told by the others, declared dead by a person, its work moved, and back through the gate.
//!
//! The person's word is written as the command writes it, and the command is killed after each of its writes.

use std::time::Duration;

use agent::Clock;
use agent::device::DeviceChoice;
use kubenodeop::plan::failover::hung;
use kubesim::SimConfig;
use outage::failover::{DeclaredNode, FailoverState, calls, record};
use outage::operator;
use scenarios::{Cluster, World};
use serde_json::{Value, json};
use topics::{AgentTrouble, DrainStatus, Trouble};

use crate::look::NODES;

const GUESTS: &str = "kubevirt/virtualmachineinstances";
const DEAD: &str = NODES[0];

/// A kubelet's lease and condition as a real cluster has them.
fn config() -> SimConfig {
    SimConfig {
        renew_every: Duration::from_secs(10),
        not_ready_after: Duration::from_secs(50),
        unreachable_after: Duration::from_secs(50),
        ..SimConfig::default()
    }
}

/// Three nodes with their agents; a machine and a pod with a volume run on the first.
async fn site() -> Vec<World> {
    let clusters = Cluster::three_with(config()).await;
    let sim = clusters[0].sim().clone();
    sim.add_kubevirt("v1.7.3");
    let schedulable = |it: &Value| it["metadata"]["labels"]["kubevirt.io/schedulable"] == "true";
    sim.until("nodes", |all| all.iter().all(schedulable)).await;
    sim.add_machine_on("shop", "till", "Always", DEAD, &json!({ "evictionStrategy": "LiveMigrate" }));
    sim.add_claim("shop", "data", "pv-data");
    sim.add_mounting_pod("shop", "alone", DEAD, "data");
    let runs = |it: &Value| it["status"]["phase"] == "Running";
    sim.until(GUESTS, |all| all.len() == 1 && all.iter().all(runs)).await;
    let mut worlds: Vec<World> = clusters.into_iter().map(World::on).collect();
    for world in &mut worlds {
        world.patience = Duration::from_mins(20);
        reports_boot(world).await;
        world.start_all();
    }
    for world in &worlds {
        world.status(DrainStatus::NotRequested).await;
    }
    let renews = |it: &Value| it["metadata"]["namespace"] == "kube-node-lease";
    sim.until("coordination/leases", |all| all.iter().filter(|it| renews(it)).count() == NODES.len()).await;
    worlds
}

/// Its kubelet reports the boot of its machine.
async fn reports_boot(world: &World) {
    world.cluster.reports_boot(&DeviceChoice::Record.boot_id(&world.topic_root).unwrap()).await;
}

async fn dies(world: &mut World) {
    world.cluster.power(false).await;
    world.kill_all().await;
}

/// What `world` says of the dead node once that has these words; nothing for none.
async fn said(world: &World, words: &str) -> Option<Trouble> {
    let of = |it: Option<&AgentTrouble>| {
        let all = it.map(|it| it.troubles.as_slice()).unwrap_or_default();
        all.iter().find(|it| it.what == format!("node {DEAD}")).cloned()
    };
    let is = |it: Option<&AgentTrouble>| match of(it) {
        Some(told) => !words.is_empty() && told.error.contains(words),
        None => words.is_empty(),
    };
    let file = world.until::<AgentTrouble>("zedkube", &format!("{DEAD}: {words}"), is).await;
    of(file.as_ref())
}

/// The word of a person, as the command writes it first.
async fn declared(world: &World) -> DeclaredNode {
    let (cluster, node) = (world.cluster.handle(), kubeapi::NodeName::parse(DEAD).unwrap());
    let seen = operator::view(&cluster).await.unwrap().nodes.into_iter().find(|it| it.name == DEAD).unwrap();
    let entry = DeclaredNode {
        node: DEAD.to_owned(),
        node_uid: seen.uid,
        boot_id: seen.boot_id,
        who: "operator anna".to_owned(),
        why: "its supply burnt".to_owned(),
        work: hung(&cluster, &node).await.unwrap().work,
        ..DeclaredNode::default()
    };
    let now = Clock::new().wall().to_timestamp();
    let (_, after) = operator::change(&cluster, now, |it| record::declare(it, &entry)).await.unwrap();
    record::open(&after).pop().unwrap()
}

/// The entry once it is in this state.
async fn entry(world: &World, state: &FailoverState) -> DeclaredNode {
    let sim = world.cluster.sim();
    let parsed = |lease: &Value| -> Vec<DeclaredNode> {
        let text = lease["metadata"]["annotations"][record::FAILOVER].as_str().unwrap_or("[]");
        serde_json::from_str(text).unwrap()
    };
    let is = |all: &[Value]| all.iter().flat_map(parsed).any(|it| it.state == *state);
    sim.until("coordination/leases", is).await;
    sim.list("coordination/leases").iter().flat_map(parsed).next_back().unwrap()
}

fn taints(world: &World) -> String {
    world.cluster.sim().get("nodes", "", DEAD).unwrap()["spec"]["taints"].to_string()
}

#[tokio::test(start_paused = true)]
async fn f11_a_dead_node_is_told_within_a_minute_and_its_work_moves_by_one_word_whoever_is_killed_after_it() {
    for has_taint in [false, true] {
        let mut worlds = site().await;
        let (clock, died) = (Clock::new(), Clock::new().now());
        dies(&mut worlds[0]).await;
        let [first, second, third] = &mut worlds[..] else { unreachable!() };
        let told = said(second, "silent, it may be dead").await.unwrap();
        said(third, "silent, it may be dead").await.unwrap();
        let after = clock.now().since(died);
        assert!(after < Duration::from_secs(60), "told after {after:?}");
        assert!(told.error.contains("on it: machine shop/till, pod shop/alone"), "{}", told.error);
        assert!(
            told.error.contains("not elsewhere: pod shop/alone (nothing makes it again)"),
            "{}",
            told.error
        );
        assert!(told.next_step.contains(&format!("zedbox failover declare {DEAD} --powered-off")));
        assert!(!taints(first).contains("out-of-service"), "nobody acts without a word");
        // Whoever declares it is killed before its second write, or before its third.
        let word = declared(second).await;
        if has_taint {
            let (cluster, name) = (second.cluster.handle(), kubeapi::NodeName::parse(DEAD).unwrap());
            let node = outage::calls::named(&cluster, &name).await.unwrap();
            calls::taint(&cluster, &node, &word).await.unwrap();
        }
        let moved = entry(second, &FailoverState::Moved).await;
        assert_eq!((moved.number, moved.node.as_str()), (1, DEAD));
        let of = |kind: &str| moved.work.iter().find(|it| it.kind == kind).unwrap();
        assert!(NODES[1..].contains(&of("machine").on.as_str()), "{moved:?}");
        assert_eq!((of("pod").on.as_str(), of("pod").waits.as_str()), ("", "nothing makes it again"));
        said(third, "declared dead by operator anna").await.unwrap();
        // Its way back: another boot, the gate, and nothing is left.
        first.reboot().await;
        reports_boot(first).await;
        first.start_all();
        entry(second, &FailoverState::Returned).await;
        first.cluster.until_schedulable().await;
        assert!(!taints(first).contains("out-of-service"));
        assert_eq!(said(second, "").await, None);
        for world in &mut worlds {
            world.kill_all().await;
        }
    }
}
