//! What wakes the next attempt after one that machines have made fail.

use kubenodeop::{WatchedBlockers, until_changed};
use tokio::time::timeout;

use super::*;

const LONG: Duration = Duration::from_secs(200);

/// An attempt that has failed by the policy `fail`, with what it knew at its end. The machine may run on n1 and n2 only.
async fn failed() -> (Sim, ApiClient, WatchedBlockers) {
    let (sim, cluster) = cluster("v1.7.3", |sim| {
        let mut spec = migratable();
        spec["nodeSelector"] = json!({ "disk": "ssd" });
        sim.add_machine_on("shop", "db", "Always", "n1", &spec);
        sim.apply("namespaces", json!({ "metadata": { "name": "shop", "annotations": {} } }));
        for node in ["n1", "n2"] {
            sim.edit("nodes", "", node, |it| it["metadata"]["labels"]["disk"] = "ssd".into());
        }
        for node in ["n2", "n3"] {
            sim.edit("nodes", "", node, |it| it["spec"]["unschedulable"] = true.into());
        }
    })
    .await;
    let watched = Attempt::by(&cluster, by(MachinePolicy::Fail)).failed().await.watched;
    (sim, cluster, watched)
}

#[tokio::test(start_paused = true)]
async fn d16_a_machine_that_would_fare_otherwise_wakes_the_next_attempt_within_two_seconds() {
    type Change = fn(&Sim) -> bool;
    let table: [(Change, &str); 6] = [
        (
            |sim| sim.edit("nodes", "", "n2", |it| it["spec"]["unschedulable"] = false.into()),
            "virtual machine shop/db has changed: is asked to migrate; node n2 can take it",
        ),
        (|sim| sim.edit(MACHINES, "shop", "db", shutdown), "has changed: is shut down"),
        (|sim| sim.edit(GUESTS, "shop", "db", shutdown), "has changed: is shut down"),
        (|sim| sim.edit("namespaces", "", "shop", shutdown), "has changed: is shut down"),
        (
            |sim| sim.edit(MACHINES, "shop", "db", |it| it["spec"]["runStrategy"] = "Halted".into()),
            "virtual machine shop/db ",
        ),
        (
            |sim| {
                // Somebody asks for a migration.
                sim.edit(GUESTS, "shop", "db", |it| it["status"]["evacuationNodeName"] = "n1".into())
            },
            "virtual machine shop/db has changed",
        ),
    ];
    for (nth, (change, said)) in table.into_iter().enumerate() {
        let (sim, cluster, watched) = failed().await;
        let what = woken(&cluster, &watched, LONG.as_secs(), || assert!(change(&sim), "row {nth}"), 2).await;
        assert!(what.contains(said), "row {nth}: {what}");
        // A change from before it is listened.
        let what = timeout(Duration::from_secs(2), until_changed(&cluster, &n1(), &watched)).await.unwrap();
        assert!(what.contains("virtual machine shop/db"), "row {nth}: {what}");
    }
}

fn shutdown(it: &mut Value) {
    it["metadata"]["annotations"]["pillar-rs/drain-policy"] = "shutdown".into();
}

#[tokio::test(start_paused = true)]
async fn d16_what_makes_no_difference_to_a_machine_wakes_nobody() {
    let (sim, cluster, watched) = failed().await;
    let node = n1();
    let woken = until_changed(&cluster, &node, &watched);
    tokio::pin!(woken);
    assert!(timeout(LONG, &mut woken).await.is_err());
    // A peer that the machine may not run on, a word of its status, a label of a peer.
    sim.edit("nodes", "", "n3", |it| it["spec"]["unschedulable"] = false.into());
    sim.edit(GUESTS, "shop", "db", |it| it["status"]["guestOSInfo"] = json!({ "name": "Linux" }));
    sim.edit("nodes", "", "n2", |it| it["metadata"]["labels"]["other"] = "x".into());
    let before = sim.faults().requests().len();
    assert!(timeout(LONG, &mut woken).await.is_err());
    let asked = sim.faults().requests();
    let looks = asked.iter().skip(before).filter(|it| it.uri.contains("/kubevirts")).count();
    assert!(looks <= 3, "{looks} looks: it is watched, not polled");
}

#[tokio::test(start_paused = true)]
async fn the_policy_of_a_namespace_that_changes_while_a_machine_is_held_counts_at_once() {
    let (sim, cluster) = cluster("v1.7.3", |sim| {
        sim.add_machine_on("shop", "db", "Always", "n1", &json!({}));
        sim.apply("namespaces", json!({ "metadata": { "name": "shop", "annotations": {} } }));
    })
    .await;
    let mut attempt = Attempt::by(&cluster, by(MachinePolicy::MigrateOrHold));
    attempt.until(|it| !it.blockers.is_empty()).await;
    sim.edit("namespaces", "", "shop", shutdown);
    let shut = attempt.until(|it| it.machines.iter().any(|it| it.state == "shutting-down"));
    timeout(Duration::from_secs(2), shut).await.unwrap();
}
