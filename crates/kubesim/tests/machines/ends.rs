//! Launchers that are ended: the guest shuts down, and its owner brings it back or does not.

use std::time::Duration;

use kubesim::Sim;
use serde_json::{Value, json};

use super::{GUESTS, MACHINES, NEWEST, cluster, evict, guest, launchers, running, send, soon};

/// A machine whose guest runs, then ends as `end`: the phase of the guest that is there a while later.
async fn after(strategy: &str, end: &str) -> String {
    let sim = cluster(NEWEST).await;
    sim.add_machine_on("shop", "db", strategy, "n1", &json!({}));
    running(&sim, "db").await;
    sim.edit(GUESTS, "shop", "db", |it| it["metadata"]["annotations"]["kubesim/ends"] = end.into());
    let old = sim.get(GUESTS, "shop", "db").unwrap()["metadata"]["uid"].clone();
    assert_eq!(evict(&sim, &launchers(&sim, "db")[0]).await.0, 201);
    soon(&sim, "pods", |all| all.iter().all(|it| it["metadata"]["deletionTimestamp"].is_null())).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let Some(now) = sim.get(GUESTS, "shop", "db") else { return "none".to_owned() };
    let new = if now["metadata"]["uid"] == old { "" } else { "new " };
    let machine = sim.get(MACHINES, "shop", "db").unwrap()["status"]["printableStatus"].clone();
    format!("{new}{} {}", now["status"]["phase"].as_str().unwrap(), machine.as_str().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a8_what_a_machine_does_when_its_guest_has_ended() {
    for (strategy, succeeded, failed) in [
        ("Always", "new Running Running", "new Running Running"),
        ("RerunOnFailure", "Succeeded Stopped", "new Running Running"),
        ("Manual", "Succeeded Stopped", "Failed Stopped"),
        ("Once", "Succeeded Stopped", "Failed Stopped"),
    ] {
        assert_eq!(after(strategy, "Succeeded").await, succeeded, "{strategy}");
        assert_eq!(after(strategy, "Failed").await, failed, "{strategy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a8_a_replica_set_makes_the_next_guest_while_the_old_one_shuts_down_and_nothing_else_does() {
    let sim = cluster(NEWEST).await;
    let old = sim.add_machine_set_on("shop", "app", "n1", &json!({}));
    sim.add_guest_on("shop", "alone", "n1", &json!({}));
    running(&sim, &old).await;
    running(&sim, "alone").await;
    let pod = launchers(&sim, &old).remove(0);
    assert_eq!(evict(&sim, &pod).await.0, 201);
    soon(&sim, GUESTS, |all| all.len() == 3).await;
    assert!(sim.get("pods", "shop", &pod).is_some(), "the old guest still shuts down");
    let runs = |it: &Value| it["status"]["phase"] == "Running";
    soon(&sim, GUESTS, |all| all.len() == 2 && all.iter().all(runs)).await;
    assert!(sim.get(GUESTS, "shop", &old).is_none(), "a finished one is deleted");

    evict(&sim, &launchers(&sim, "alone")[0]).await;
    soon(&sim, GUESTS, |all| all.iter().any(|it| it["status"]["phase"] == "Succeeded")).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(sim.get(GUESTS, "shop", "alone").unwrap()["status"]["phase"], "Succeeded");
    assert!(launchers(&sim, "alone").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a1_disks_that_are_plugged_in_go_with_the_launcher() {
    let sim = cluster(NEWEST).await;
    sim.add_guest_on("shop", "db", "n1", &json!({}));
    running(&sim, "db").await;
    sim.plug_disk("shop", "db", "more").unwrap();
    assert_eq!(evict(&sim, &launchers(&sim, "db")[0]).await.0, 201);
    soon(&sim, "pods", <[Value]>::is_empty).await;
}

#[tokio::test(start_paused = true)]
async fn a1_disks_that_are_plugged_in_follow_a_guest_that_moves() {
    let sim = cluster(NEWEST).await;
    sim.add_guest_on("shop", "db", "n1", &json!({ "evictionStrategy": "LiveMigrate" }));
    running(&sim, "db").await;
    let old = sim.plug_disk("shop", "db", "more").unwrap();
    evict(&sim, &launchers(&sim, "db")[0]).await;
    soon(&sim, GUESTS, |all| all[0]["status"]["nodeName"] != "n1").await;
    soon(&sim, "pods", |all| all.len() == 3 && all.iter().all(|it| it["metadata"]["name"] != old.as_str()))
        .await;
    let guest = sim.get(GUESTS, "shop", "db").unwrap();
    let new = guest["status"]["volumeStatus"][0]["hotplugVolume"]["attachPodName"].as_str().unwrap();
    assert_eq!(sim.get("pods", "shop", new).unwrap()["spec"]["nodeName"], guest["status"]["nodeName"]);
    let conditions = guest["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().all(|it| it["type"] != "Paused"));
}

#[tokio::test(start_paused = true)]
async fn a8_a_node_takes_no_guests_five_minutes_after_the_last_heartbeat() {
    let sim = cluster(NEWEST).await;
    sim.power("n1", false);
    let label = |sim: &Sim| {
        sim.get("nodes", "", "n1").unwrap()["metadata"]["labels"]["kubevirt.io/schedulable"].clone()
    };
    tokio::time::sleep(Duration::from_secs(290)).await;
    assert_eq!(label(&sim), "true");
    soon(&sim, "nodes", |_| label(&sim) == "false").await;
    sim.power("n1", true);
    soon(&sim, "nodes", |_| label(&sim) == "true").await;
}

async fn force_delete(sim: &Sim, pod: &str) {
    let uri = format!("/api/v1/namespaces/shop/pods/{pod}");
    assert_eq!(send(sim, "DELETE", &uri, r#"{"gracePeriodSeconds":0}"#).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_a_failed_node_starts_elsewhere_when_its_launcher_is_gone_and_not_before() {
    for (strategy, then) in [
        ("Always", "Running new"),
        ("RerunOnFailure", "Running new"),
        ("Manual", "Failed old"),
        ("Once", "Failed old"),
        ("", "Failed old"),
    ] {
        let sim = cluster("v1.2.0").await;
        match strategy {
            "" => sim.add_guest_on("shop", "db", "n1", &json!({})),
            _ => sim.add_machine_on("shop", "db", strategy, "n1", &json!({})),
        }
        running(&sim, "db").await;
        let (old, pod) = (guest(&sim, "db"), launchers(&sim, "db").remove(0));
        sim.edit("pods", "shop", &pod, |it| it["metadata"]["finalizers"] = json!(["a/b"]));
        sim.power("n1", false);
        // Terminating, then held by a finalizer only.
        evict(&sim, &pod).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(guest(&sim, "db")["status"]["phase"], "Running", "{strategy}");
        sim.edit("nodes", "", "n1", |it| {
            it["spec"]["taints"] =
                json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]);
        });
        soon(&sim, "pods", |all| all.len() == 1 && all[0]["status"]["phase"] == "Failed").await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(
            (guest(&sim, "db")["status"]["phase"].clone(), sim.list("pods").len()),
            (json!("Running"), 1)
        );
        sim.edit("pods", "shop", &pod, |it| it["metadata"]["finalizers"] = json!([]));
        soon(&sim, "pods", |all| all.iter().all(|it| it["metadata"]["name"] != pod.as_str())).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let now = guest(&sim, "db");
        let age = if now["metadata"]["uid"] == old["metadata"]["uid"] { "old" } else { "new" };
        assert_eq!(format!("{} {age}", now["status"]["phase"].as_str().unwrap()), then, "{strategy}");
        assert_eq!(now["status"]["nodeName"] == "n1", age == "old", "{strategy}");
    }
}

#[tokio::test(start_paused = true)]
async fn kubevirt_before_1_2_waits_five_minutes_for_a_heartbeat_before_a_guest_has_failed() {
    for comes_back in [false, true] {
        let sim = cluster("v1.1.1").await;
        sim.add_guest_on("shop", "db", "n1", &json!({}));
        running(&sim, "db").await;
        sim.power("n1", false);
        force_delete(&sim, &launchers(&sim, "db")[0]).await;
        tokio::time::sleep(Duration::from_secs(290)).await;
        assert_eq!(guest(&sim, "db")["status"]["phase"], "Running");
        sim.power("n1", comes_back);
        soon(&sim, GUESTS, |all| all[0]["status"]["phase"] == "Failed").await;
        assert_eq!(guest(&sim, "db")["status"]["reason"] == "NodeUnresponsive", !comes_back);
    }
}
