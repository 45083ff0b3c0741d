//! A node that has the last healthy copy of a volume, with the real Longhorn (goal T3): its manager with all controllers and
//! webhooks on each of three nodes, and our player of what needs a machine.

use std::collections::BTreeSet;
use std::time::Duration;

use agent::Clock;
use scenarios::{NO_LONGHORN, RealLonghorn, World, at, has_own_network, longhorn_folders};
use serde_json::{Value, json};
use topics::NodeDrainProgress;

use kubenodeop::storage::NodeDrainPolicy;

/// How much longer than its own restart an application may be down.
const LONGER: Duration = Duration::from_secs(10);

async fn set_policy(longhorn: &RealLonghorn, policy: &str) {
    longhorn.merge(&at("settings", "node-drain-policy"), &json!({ "value": policy })).await;
}

/// Whether a volume has a replica in this mode on another node than this.
async fn elsewhere(longhorn: &RealLonghorn, volume: &str, node: &str, mode: &str) -> bool {
    let replicas = longhorn.all("replicas").await;
    let engines = longhorn.all("engines").await;
    let of = |it: &&Value| it["spec"]["volumeName"] == volume;
    let names = replicas.iter().filter(of).filter(|it| it["spec"]["nodeID"] != node);
    let names: Vec<&str> = names.filter_map(|it| it["metadata"]["name"].as_str()).collect();
    engines.iter().filter(of).any(|it| names.iter().any(|name| it["status"]["replicaModeMap"][name] == mode))
}

/// How long an application is down from now on, until it runs elsewhere than on `node`. When its pod ends, another copy of its
/// volume is whole.
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

/// What the table that kubesim answers from says of this version.
fn row(name: &str) -> Value {
    let all: Vec<Value> = serde_json::from_str(include_str!("../../golden/kubesim/answers.json")).unwrap();
    all.into_iter().find(|it| it["name"] == name).unwrap()["answer"].clone()
}

/// Types of the tickets of a volume, and whose node that of the eviction names.
async fn tickets(longhorn: &RealLonghorn, volume: &str) -> Value {
    let held = longhorn.get(&at("volumeattachments", volume)).await;
    let owner = longhorn.get(&at("volumes", volume)).await["status"]["ownerID"].clone();
    let all: Vec<&Value> = held["spec"]["attachmentTickets"].as_object().unwrap().values().collect();
    let of_eviction = all.iter().find(|it| it["type"] == "volume-eviction-controller").unwrap();
    let types: BTreeSet<&str> = all.iter().filter_map(|it| it["type"].as_str()).collect();
    let node = if of_eviction["nodeID"] == owner { "owner".into() } else { of_eviction["nodeID"].clone() };
    json!({ "tickets": types, "node": node })
}

/// A volume without a copy here that a person has attached here in Longhorn's page: its manager's budget is told as what it is.
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

/// The node goes down and comes back.
async fn around(world: &mut World, counter: u32) {
    world.recorded_count(usize::try_from(counter).unwrap() - 6).await;
    world.reboot().await;
    world.start_all();
    world.executed(counter).await;
    world.cluster.until_schedulable().await;
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
    world.start_all();
    world.status(topics::DrainStatus::NotRequested).await;
    let mut counter = 6;
    for policy in NodeDrainPolicy::WORDS {
        set_policy(&longhorn, policy).await;
        // Another copy is whole: nothing holds the application.
        longhorn.add_volume(&space, "two", &longhorn.nodes()[..2]).await;
        longhorn.add_application(&space, "two", &node).await;
        counter += 1;
        world.ask_reboot(counter);
        let own = down(&longhorn, &space, "two", &node).await;
        around(&mut world, counter).await;
        longhorn.remove_application(&space, "two").await;
        // The only copy is here.
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
        let told = |it: Option<&NodeDrainProgress>| {
            it.is_some_and(|it| it.storage.iter().any(|it| it.volume.ends_with("(one)") && it.percent == 42))
        };
        let shown = world.until("zedkube", "the percent of the copy", told).await.unwrap();
        let codes: BTreeSet<&str> = shown.blockers.iter().map(|it| it.code.as_str()).collect();
        assert_eq!(codes, ["copying", "storage-manager"].into(), "{policy}: {:?}", shown.blockers);
        if NodeDrainPolicy::parse(policy).copies_by_cordon() {
            assert_eq!(tickets(&longhorn, "one").await, row("ticket/attached"), "{policy}");
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
    world.kill_all().await;
}
