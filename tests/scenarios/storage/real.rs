//! A node that has the last healthy copy of a volume, with the real Longhorn: its manager with all
//! controllers and webhooks on each of three nodes; what needs a machine is played.

use std::collections::BTreeSet;
use std::time::Duration;

use agent::Clock;
use futures::StreamExt as _;
use scenarios::{Agent, NO_LONGHORN, RealLonghorn, World, at, has_own_network, longhorn_folders};
use serde_json::{Value, json};
use topics::{DrainStatus, NodeDrainProgress};

use kubenodeop::storage::NodeDrainPolicy;

/// Allowed outage of an application beyond its own restart.
const LONGER: Duration = Duration::from_secs(10);

async fn set_policy(longhorn: &RealLonghorn, policy: &str) {
    longhorn.merge(&at("settings", "node-drain-policy"), &json!({ "value": policy })).await;
}

/// Whether a volume has a replica in this mode on another node.
async fn elsewhere(longhorn: &RealLonghorn, volume: &str, node: &str, mode: &str) -> bool {
    let replicas = longhorn.all("replicas").await;
    let engines = longhorn.all("engines").await;
    let of = |it: &&Value| it["spec"]["volumeName"] == volume;
    let names = replicas.iter().filter(of).filter(|it| it["spec"]["nodeID"] != node);
    let names: Vec<&str> = names.filter_map(|it| it["metadata"]["name"].as_str()).collect();
    engines.iter().filter(of).any(|it| names.iter().any(|name| it["status"]["replicaModeMap"][name] == mode))
}

/// Outage of an application from now until it runs elsewhere than on `node`. When its pod ends, another copy
/// is healthy.
async fn down(longhorn: &RealLonghorn, namespace: &str, name: &str, node: &str) -> Duration {
    let clock = Clock::new();
    longhorn
        .until("the end of the application's pod", async |it| {
            (!it.runs_on(namespace, name).await.contains(&node.to_owned())).then_some(())
        })
        .await;
    let since = clock.now();
    assert!(elsewhere(longhorn, name, node, "RW").await, "{name} has ended without a copy elsewhere");
    longhorn
        .until("the application elsewhere", async |it| {
            it.runs_on(namespace, name).await.iter().any(|it| it != node).then_some(())
        })
        .await;
    clock.now().since(since)
}

/// A row of kubesim's table for this version.
fn row(name: &str) -> Value {
    let all: Vec<Value> = serde_json::from_str(include_str!("../../golden/kubesim/answers.json")).unwrap();
    all.into_iter().find(|it| it["name"] == name).unwrap()["answer"].clone()
}

/// Types of a volume's tickets, and the eviction ticket's node, once there is one.
async fn tickets(longhorn: &RealLonghorn, volume: &str) -> Option<Value> {
    let held = longhorn.get(&at("volumeattachments", volume)).await;
    let owner = longhorn.get(&at("volumes", volume)).await["status"]["ownerID"].clone();
    let all: Vec<&Value> = held["spec"]["attachmentTickets"].as_object().unwrap().values().collect();
    let of_eviction = all.iter().find(|it| it["type"] == "volume-eviction-controller")?;
    let types: BTreeSet<&str> = all.iter().filter_map(|it| it["type"].as_str()).collect();
    let node = if of_eviction["nodeID"] == owner { "owner".into() } else { of_eviction["nodeID"].clone() };
    Some(json!({ "tickets": types, "node": node }))
}

/// A volume without a copy here, attached here by a person in Longhorn's page: the blocker explains the
/// manager's budget.
async fn attached_by_hand(world: &mut World, longhorn: &RealLonghorn, counter: u32) {
    let (node, space) = (&longhorn.nodes()[0], world.cluster.namespace().to_owned());
    longhorn.add_volume(&space, "hand", &longhorn.nodes()[1..]).await;
    let set = async |ticket: Value| {
        let tickets = json!({ "spec": { "attachmentTickets": { "longhorn-ui": ticket } } });
        longhorn.merge(&at("volumeattachments", "hand"), &tickets).await;
    };
    longhorn
        .until("an object for tickets", async |it| {
            (!it.get(&at("volumeattachments", "hand")).await.is_null()).then_some(())
        })
        .await;
    set(json!({
        "id": "longhorn-ui", "type": "longhorn-api", "nodeID": node, "generation": 0,
        "parameters": { "disableFrontend": "false", "lastAttachedBy": "" },
    }))
    .await;
    longhorn
        .until("a volume that is attached by hand", async |it| {
            let volume = it.get(&at("volumes", "hand")).await;
            (volume["status"]["currentNodeID"] == node.as_str() && volume["status"]["state"] == "attached")
                .then_some(())
        })
        .await;
    world.ask_reboot(counter);
    let told = |it: Option<&NodeDrainProgress>| {
        let words = "volumes are attached through it";
        it.is_some_and(|it| {
            it.blockers.iter().any(|it| it.code == "storage-manager" && it.reason.contains(words))
        })
    };
    world.until("zedkube", "why the budget of the manager is closed", told).await;
    set(Value::Null).await;
    around(world, counter).await;
}

/// The only copy is here and another does not become healthy: after its limit the drain fails with that
/// reason, the extra copy is withdrawn, and the application was up all the time.
async fn fails_at_the_limit(world: &mut World, longhorn: &RealLonghorn, counter: u32) {
    let (node, space) = (longhorn.nodes()[0].clone(), world.cluster.namespace().to_owned());
    let before = world.recorded().len();
    world.kill(Agent::Zedkube).await;
    for (limit, value) in [("last_copy_limit_ms", json!(4_000)), ("last_copy_then", json!("give-up"))] {
        world.limits["zedkube"][limit] = value;
    }
    world.limits["zedkube"]["drain_tries"] = 1.into();
    world.start(Agent::Zedkube);
    longhorn.let_rebuilds_end(false);
    for policy in ["block-if-contains-last-replica", "block-for-eviction-if-contains-last-replica"] {
        set_policy(longhorn, policy).await;
        longhorn.add_volume(&space, "last", &longhorn.nodes()[..1]).await;
        longhorn.add_application(&space, "last", &node).await;
        world.ask_reboot(counter);
        world.status(DrainStatus::FailedDrain).await;
        let words = format!(
            "4 s after everything else left, this node still has the last healthy copy of {space}/last (last)"
        );
        world.progress(&words, |it| it.reason.contains(&words)).await;
        world.cluster.until_schedulable().await;
        assert_eq!(longhorn.runs_on(&space, "last").await, [node.as_str()], "{policy}");
        world.ask_reboot(counter - 1);
        world.status(DrainStatus::NotRequested).await;
        longhorn
            .until("the number of copies as it was", async |it| {
                let volume = it.get(&at("volumes", "last")).await;
                let mark = &volume["metadata"]["annotations"]["pillar-rs/last-copy"];
                (volume["spec"]["numberOfReplicas"] == 1 && mark.is_null()).then_some(())
            })
            .await;
        longhorn.remove_application(&space, "last").await;
    }
    longhorn.let_rebuilds_end(true);
    assert_eq!(world.recorded().len(), before, "a node went down with a last copy");
}

/// Rows of the table: a volume's only copy is evicted while its pod is replaced on another node, by Longhorn alone.
async fn rows_of_tickets(longhorn: &RealLonghorn, space: &str) {
    let node = longhorn.nodes()[0].as_str();
    set_policy(longhorn, "block-for-eviction-if-contains-last-replica").await;
    longhorn.add_volume(space, "row", &longhorn.nodes()[..1]).await;
    longhorn.add_application(space, "row", node).await;
    let since = longhorn.version("replicas").await;
    longhorn.let_rebuilds_end(false);
    let cordon = async |is: bool| {
        longhorn.merge(&format!("/api/v1/nodes/{node}"), &json!({ "spec": { "unschedulable": is } })).await;
    };
    cordon(true).await;
    longhorn
        .until("another copy that is being written", async |it| {
            elsewhere(it, "row", node, "WO").await.then_some(())
        })
        .await;
    let held = longhorn.until("a ticket of the eviction", async |it| tickets(it, "row").await).await;
    assert_eq!(held, row("ticket/attached"));
    assert_ne!(longhorn.replace_pod(space, "row").await, node);
    let place = async |it: &RealLonghorn| {
        let status = it.get(&at("volumes", "row")).await["status"].clone();
        assert_eq!(status["ownerID"], node);
        status["currentNodeID"].as_str().unwrap().to_owned()
    };
    let first = if place(longhorn).await == node { "owner" } else { "other" };
    longhorn.let_rebuilds_end(true);
    longhorn
        .until("the volume on another node", async |it| {
            let status = it.get(&at("volumes", "row")).await["status"].clone();
            let moved = status["currentNodeID"] != node && status["state"] == "attached";
            moved.then_some(())
        })
        .await;
    let whole = |it: &Value| {
        it["spec"]["volumeName"] == "row" && it["spec"]["nodeID"] != node && it["spec"]["healthyAt"] != ""
    };
    assert!(longhorn.all("replicas").await.iter().any(whole), "it moved without a copy elsewhere");
    assert_eq!(json!({ "attached": first, "after-the-copy": "other" }), row("ticket/held"));
    // Their order, by versions of the store.
    let version = |it: &Value| it["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let mut copies = longhorn.follow("replicas", &since).await;
    let gone = loop {
        let (gone, it) = copies.next().await.unwrap();
        if gone && it["spec"]["volumeName"] == "row" && it["spec"]["nodeID"] == node {
            break version(&it);
        }
    };
    let mut holds = longhorn.follow("volumeattachments", &since).await;
    let mut held = false;
    let freed = loop {
        let (_, it) = holds.next().await.unwrap();
        let now = it["spec"]["attachmentTickets"].to_string().contains("volume-eviction-controller");
        if it["metadata"]["name"] == "row" && std::mem::replace(&mut held, now) && !now {
            break version(&it);
        }
    };
    assert_eq!(json!({ "kept": gone < freed }), row("ticket/kept"));
    cordon(false).await;
    assert_eq!(json!({ "first": event_first(longhorn).await }), row("ticket/event-first"));
}

/// Whether a PATCH's event or reply comes first; of many, as few replies are late.
async fn event_first(longhorn: &RealLonghorn) -> &'static str {
    for nth in 0..200 {
        let nth = nth.to_string();
        let mut events = longhorn.follow("volumes", &longhorn.version("volumes").await).await;
        let seen = async {
            while events.next().await.unwrap().1["metadata"]["annotations"]["seen"] != nth.as_str() {}
        };
        let (path, note) = (at("volumes", "row"), json!({ "metadata": { "annotations": { "seen": nth } } }));
        tokio::select! {
            () = seen => return "event",
            () = longhorn.merge(&path, &note) => {}
        }
    }
    "reply"
}

async fn around(world: &mut World, counter: u32) {
    world.recorded_count(usize::try_from(counter).unwrap() - 6).await;
    crate::comes_back(world, counter).await;
}

#[tokio::test]
async fn t3_with_the_real_manager_an_application_stays_up_until_its_copy_is_made_in_each_policy() {
    let name = "storage::real::t3_with_the_real_manager_an_application_stays_up_until_its_copy_is_made_in_each_policy";
    let Some((folder, assets)) = longhorn_folders() else {
        return crate::say(&format!("skipped with the real Longhorn: {name}: {NO_LONGHORN}"));
    };
    if !has_own_network(name) {
        return;
    }
    let (cluster, longhorn) = RealLonghorn::with_nodes(&assets, &folder).await;
    let (node, space) = (longhorn.nodes()[0].clone(), cluster.namespace().to_owned());
    let mut world = World::on(cluster);
    world.patience = Duration::from_mins(3);
    crate::starts(&mut world).await;
    let mut counter = 6;
    for policy in NodeDrainPolicy::WORDS {
        set_policy(&longhorn, policy).await;
        // Another copy is healthy: nothing blocks the application.
        longhorn.add_volume(&space, "two", &longhorn.nodes()[..2]).await;
        longhorn.add_application(&space, "two", &node).await;
        counter += 1;
        world.ask_reboot(counter);
        let own = down(&longhorn, &space, "two", &node).await;
        around(&mut world, counter).await;
        longhorn.remove_application(&space, "two").await;
        longhorn.add_volume(&space, "one", &longhorn.nodes()[..1]).await;
        longhorn.add_application(&space, "one", &node).await;
        longhorn.let_rebuilds_end(false);
        counter += 1;
        world.ask_reboot(counter);
        longhorn
            .until("another copy that is being written", async |it| {
                elsewhere(it, "one", &node, "WO").await.then_some(())
            })
            .await;
        let shown = world
            .progress("the percent of the copy", |it| {
                it.storage.iter().any(|it| it.volume.ends_with("(one)") && it.percent == 42)
            })
            .await;
        let codes: BTreeSet<&str> = shown.blockers.iter().map(|it| it.code.as_str()).collect();
        assert_eq!(codes, ["copying", "storage-manager"].into(), "{policy}: {:?}", shown.blockers);
        if NodeDrainPolicy::parse(policy).copies_by_cordon() {
            let held = longhorn.until("a ticket of the eviction", async |it| tickets(it, "one").await).await;
            assert_eq!(held, row("ticket/attached"), "{policy}");
        }
        assert_eq!(longhorn.runs_on(&space, "one").await, [node.as_str()], "{policy}: ended before its copy");
        assert_eq!(world.recorded().len(), usize::try_from(counter).unwrap() - 7, "{policy}");
        longhorn.let_rebuilds_end(true);
        let outage = down(&longhorn, &space, "one", &node).await;
        crate::say(&format!("{policy}: own restart {own:?}, with its copy made first {outage:?}"));
        assert!(outage <= own + LONGER, "{policy}: {outage:?} down, where a restart takes {own:?}");
        around(&mut world, counter).await;
        longhorn.remove_application(&space, "one").await;
    }
    attached_by_hand(&mut world, &longhorn, counter + 1).await;
    fails_at_the_limit(&mut world, &longhorn, counter + 2).await;
    world.kill_all().await;
    rows_of_tickets(&longhorn, &space).await;
}
