//! Evacuations and migrations: made, run, failed, aborted.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    GUESTS, MIGRATIONS, NEWEST, cluster, evict, guest, launchers, running, send, set, soon, with_guest,
};

const URI: &str = "/apis/kubevirt.io/v1/namespaces/shop/virtualmachineinstancemigrations";
const CANCEL: &str =
    "/apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachineinstances/db/evacuate/cancel";

async fn migrate(sim: &kubesim::Sim, spec: &Value) -> (u16, Value) {
    let job = json!({ "metadata": { "generateName": "m-" }, "spec": spec });
    send(sim, "POST", URI, &job.to_string()).await
}

fn phase(job: &Value) -> &str {
    job["status"]["phase"].as_str().unwrap_or_default()
}

async fn until(sim: &kubesim::Sim, wanted: &str) {
    soon(sim, MIGRATIONS, |all| all.iter().any(|it| phase(it) == wanted)).await;
}

fn state(sim: &kubesim::Sim) -> Value {
    guest(sim, "db")["status"]["migrationState"].clone()
}

#[expect(clippy::disallowed_methods, reason = "the test measures on tokio's paused clock")]
fn now() -> Instant {
    Instant::now()
}

#[tokio::test(start_paused = true)]
async fn a5_a_marked_guest_is_migrated_and_its_old_launcher_stays_finished() {
    let sim = with_guest(NEWEST, "LiveMigrate").await;
    let source = launchers(&sim, "db").remove(0);
    evict(&sim, &source).await;
    until(&sim, "Succeeded").await;
    let job = sim.list(MIGRATIONS).remove(0);
    assert!(job["metadata"]["name"].as_str().unwrap().starts_with("kubevirt-evacuation-"));
    assert_eq!(job["metadata"]["annotations"]["kubevirt.io/evacuationMigration"], "n1");
    assert_eq!((&job["spec"]["priority"], &job["metadata"]["finalizers"]), (&Value::Null, &json!([])));
    let passed: Vec<&str> = job["status"]["phaseTransitionTimestamps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["phase"].as_str().unwrap())
        .collect();
    let all =
        ["Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Succeeded"];
    assert_eq!(passed, all, "A6");
    let after = guest(&sim, "db");
    let node = after["status"]["nodeName"].as_str().unwrap();
    assert_ne!(node, "n1");
    assert_eq!(after["metadata"]["labels"]["kubevirt.io/nodeName"], node);
    assert!(after["status"]["evacuationNodeName"].is_null());
    assert_eq!(after["status"]["migrationState"]["completed"], true);
    assert_eq!(job["status"]["migrationState"], after["status"]["migrationState"]);
    let left = sim.get("pods", "shop", &source).unwrap();
    assert_eq!((&left["status"]["phase"], &left["spec"]["nodeName"]), (&json!("Succeeded"), &json!("n1")));
    assert_eq!(evict(&sim, &source).await.0, 201, "a finished launcher passes");
}

#[tokio::test(start_paused = true)]
async fn a5_the_drain_taint_moves_guests_without_a_mark() {
    let sim = with_guest(NEWEST, "LiveMigrateIfPossible").await;
    sim.add_guest_on("shop", "stays", "n1", &json!({ "evictionStrategy": "None" }));
    running(&sim, "stays").await;
    sim.edit("nodes", "", "n1", |it| {
        it["spec"]["taints"] = json!([{ "key": "kubevirt.io/drain", "value": "x", "effect": "NoSchedule" }]);
    });
    until(&sim, "Pending").await;
    assert!(guest(&sim, "db")["status"]["evacuationNodeName"].is_null());
    until(&sim, "Succeeded").await;
    assert_eq!(sim.list(MIGRATIONS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a5_no_more_at_a_time_than_there_are_slots() {
    // All migrations are made, and the others wait as Pending.
    for (version, limit, value, expected) in [
        (NEWEST, "", 0, 2),
        ("v1.9.0", "", 0, 2),
        (NEWEST, "parallelOutboundMigrationsPerNode", 9, 5),
        (NEWEST, "parallelMigrationsPerCluster", 1, 1),
    ] {
        let sim = cluster(version).await;
        if !limit.is_empty() {
            set(&sim, limit, value.into());
        }
        for number in 0..6 {
            let name = format!("g{number}");
            sim.add_guest_on("shop", &name, "n1", &json!({ "evictionStrategy": "LiveMigrate" }));
            sim.script_migrations("shop", &name, "hang");
        }
        soon(&sim, GUESTS, |all| all.iter().all(|it| it["status"]["phase"] == "Running")).await;
        for number in 0..6 {
            evict(&sim, &launchers(&sim, &format!("g{number}"))[0]).await;
        }
        soon(&sim, MIGRATIONS, |all| all.len() >= expected).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let running = sim.list(MIGRATIONS).iter().filter(|it| phase(it) == "Running").count();
        assert_eq!(running, expected, "{limit}");
        assert_eq!(sim.list(MIGRATIONS).len(), 6, "{version} {limit}");
        for number in 0..6 {
            sim.script_migrations("shop", &format!("g{number}"), "succeed");
        }
        soon(&sim, GUESTS, |all| all.iter().all(|it| it["status"]["nodeName"] != "n1")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a5_the_mark_is_sticky_and_failures_back_off() {
    let sim = with_guest(NEWEST, "LiveMigrate").await;
    sim.script_migrations("shop", "db", "fail: Live migration failed libvirt");
    evict(&sim, &launchers(&sim, "db")[0]).await;
    let mut last = now();
    for (number, wait) in [(1, 0), (2, 20), (3, 40), (4, 80), (5, 160)] {
        let failed = |all: &[Value]| all.iter().filter(|it| phase(it) == "Failed").count();
        soon(&sim, MIGRATIONS, |all| failed(all) == number).await;
        let took = last.elapsed().as_secs();
        assert!((wait..wait + 8).contains(&took), "try {number}: {took} s");
        last = now();
    }
    let told = state(&sim);
    assert_eq!((&told["failed"], &told["completed"]), (&json!(true), &json!(true)));
    assert_eq!(told["failureReason"], "Live migration failed libvirt");
    assert_eq!(guest(&sim, "db")["status"]["evacuationNodeName"], "n1");
    assert_eq!(guest(&sim, "db")["status"]["nodeName"], "n1");
    // A6: the newest five are kept.
    soon(&sim, MIGRATIONS, |all| {
        all.iter().filter(|it| phase(it) == "Failed").count() == 5 && all.len() == 6
    })
    .await;
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert!(sim.list(MIGRATIONS).len() <= 6);
    // Cancelled: the mark goes, then the migration, and no other one comes.
    let other = send(&sim, "PUT", CANCEL, r#"{ "evacuationNodeName": "n2" }"#).await;
    assert_eq!((other.0, send(&sim, "PUT", CANCEL, "").await.0), (500, 500));
    for _ in 0..2 {
        let body = r#"{ "evacuationNodeName": "n1", "dryRun": [] }"#;
        assert_eq!(send(&sim, "PUT", CANCEL, body).await.0, 200);
        assert!(guest(&sim, "db")["status"]["evacuationNodeName"].is_null());
    }
    for job in sim.list(MIGRATIONS) {
        let uri = format!("{URI}/{}", job["metadata"]["name"].as_str().unwrap());
        assert_eq!(send(&sim, "DELETE", &uri, "").await.0, 200);
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(sim.list(MIGRATIONS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a5_before_1_7_a_mark_stays_whatever_others_write() {
    let sim = with_guest("v1.5.0", "LiveMigrate").await;
    sim.script_migrations("shop", "db", "hang-pending");
    evict(&sim, &launchers(&sim, "db")[0]).await;
    assert_eq!(send(&sim, "PUT", CANCEL, r#"{ "evacuationNodeName": "n1" }"#).await.0, 404);
    let uri = "/apis/kubevirt.io/v1/namespaces/shop/virtualmachineinstances/db";
    let patch = r#"[{ "op": "test", "path": "/status/evacuationNodeName", "value": "n1" },
                    { "op": "remove", "path": "/status/evacuationNodeName" }]"#;
    assert_eq!(send(&sim, "PATCH", uri, patch).await.0, 200);
    assert_eq!(guest(&sim, "db")["status"]["evacuationNodeName"], "n1");
}

#[tokio::test(start_paused = true)]
async fn a6_a8_what_is_asked_for_is_made_by_both_ways() {
    let sim = with_guest("v1.9.0", "LiveMigrate").await;
    sim.script_migrations("shop", "db", "hang-pending");
    let (code, made) = migrate(&sim, &json!({ "vmiName": "db" })).await;
    assert_eq!((code, &made["metadata"]["labels"]["kubevirt.io/vmi-name"]), (201, &json!("db")));
    assert_eq!(made["metadata"]["finalizers"], json!(["kubevirt.io/migrationJobFinalize"]));
    // A8: the call of a machine makes one by the same rules.
    let sim = with_guest(NEWEST, "LiveMigrate").await;
    let uri = "/apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachines/db/migrate";
    assert_eq!(send(&sim, "PUT", uri, "{}").await.0, 202);
    assert_eq!(send(&sim, "PUT", uri, "{}").await.0, 400);
    until(&sim, "Succeeded").await;
}

#[tokio::test(start_paused = true)]
async fn a6_a_target_that_fits_nowhere_fails_after_five_minutes() {
    let sim = with_guest(NEWEST, "LiveMigrate").await;
    for node in ["n2", "n3"] {
        sim.edit("nodes", "", node, |it| it["spec"]["unschedulable"] = true.into());
    }
    evict(&sim, &launchers(&sim, "db")[0]).await;
    until(&sim, "Scheduling").await;
    let since = now();
    let target = launchers(&sim, "db");
    assert_eq!(target.len(), 2);
    let condition = |all: &[Value]| {
        all.iter().any(|it| {
            it["status"]["conditions"][0]["message"].as_str().is_some_and(|it| it.contains("anti-affinity"))
        })
    };
    soon(&sim, "pods", condition).await;
    until(&sim, "Failed").await;
    assert!((295..305).contains(&since.elapsed().as_secs()), "{:?}", since.elapsed());
    assert_eq!(launchers(&sim, "db").len(), 1);
    let told = |it: &Value| it["reason"] == "migrationTargetPodUnschedulable";
    assert!(sim.list("events").iter().any(told));
}

#[tokio::test(start_paused = true)]
async fn a6_limits_of_kubevirt_abort_what_hangs_but_not_after_the_switch_to_post_copy() {
    for (setting, value, expected) in [
        ("progressTimeout", json!(150), Some("Live migration stuck for 150 seconds and has been aborted")),
        (
            "progressTimeout",
            json!(0),
            Some("Live migration is not completed after 300 seconds and has been aborted"),
        ),
        ("allowPostCopy", json!(true), None),
    ] {
        let sim = cluster(NEWEST).await;
        set(&sim, setting, value);
        if expected.is_none() {
            set(&sim, "progressTimeout", json!(400));
        }
        let memory = json!({ "memory": { "guest": "2Gi" } });
        sim.add_guest_on("shop", "db", "n1", &json!({ "evictionStrategy": "LiveMigrate", "domain": memory }));
        running(&sim, "db").await;
        sim.script_migrations("shop", "db", "hang");
        assert_eq!(migrate(&sim, &json!({ "vmiName": "db" })).await.0, 201);
        until(&sim, "Running").await;
        let Some(expected) = expected else {
            tokio::time::sleep(Duration::from_secs(3000)).await;
            assert_eq!(
                (state(&sim)["mode"].clone(), phase(&sim.list(MIGRATIONS)[0])),
                (json!("PostCopy"), "Running")
            );
            continue;
        };
        until(&sim, "Failed").await;
        assert_eq!(state(&sim)["failureReason"], expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a6_a_deleted_migration_is_aborted_by_its_phase() {
    for outcome in ["hang-pending", "hang", "post-copy"] {
        let sim = with_guest(NEWEST, "LiveMigrate").await;
        sim.script_migrations("shop", "db", outcome);
        let (_, made) = migrate(&sim, &json!({ "vmiName": "db" })).await;
        let wanted = if outcome == "hang-pending" { "Pending" } else { "Running" };
        until(&sim, wanted).await;
        let uri = format!("{URI}/{}", made["metadata"]["name"].as_str().unwrap());
        assert_eq!(send(&sim, "DELETE", &uri, "").await.0, 200);
        if outcome == "post-copy" {
            tokio::time::sleep(Duration::from_secs(600)).await;
            assert_eq!(sim.list(MIGRATIONS).len(), 1, "state would be lost");
            let asked = &sim.list(MIGRATIONS)[0]["status"]["conditions"][0]["type"];
            assert_eq!(asked, "migrationAbortRequested");
            sim.script_migrations("shop", "db", "succeed");
        }
        soon(&sim, MIGRATIONS, <[Value]>::is_empty).await;
        let told = state(&sim);
        match outcome {
            "hang" => {
                assert_eq!(
                    (&told["abortRequested"], &told["abortStatus"]),
                    (&json!(true), &json!("Succeeded"))
                );
                assert_eq!(told["failureReason"], "Live migration aborted ");
            }
            "post-copy" => assert!(told["failed"].is_null(), "it had won the race"),
            _ => assert!(told.is_null(), "before the hand-over the guest knows nothing"),
        }
        soon(&sim, "pods", |_| launchers(&sim, "db").len() == 1).await;
        assert_eq!(guest(&sim, "db")["status"]["nodeName"] == "n1", outcome != "post-copy");
    }
}

#[tokio::test(start_paused = true)]
async fn a6_a_migration_fails_with_its_target_or_its_guest() {
    let sim = with_guest(NEWEST, "LiveMigrate").await;
    sim.script_migrations("shop", "db", "hang");
    migrate(&sim, &json!({ "vmiName": "db" })).await;
    until(&sim, "Running").await;
    let target = state(&sim)["targetPod"].as_str().unwrap().to_owned();
    assert_eq!(send(&sim, "DELETE", &format!("/api/v1/namespaces/shop/pods/{target}"), "").await.0, 200);
    until(&sim, "Failed").await;
    assert_eq!(state(&sim)["failureReason"], "Target pod is down");
    soon(&sim, "pods", |_| launchers(&sim, "db").len() == 1).await;
    migrate(&sim, &json!({ "vmiName": "db" })).await;
    until(&sim, "Running").await;
    let source = state(&sim)["sourcePod"].as_str().unwrap().to_owned();
    sim.remove("pods", "shop", &source);
    soon(&sim, MIGRATIONS, |all| all.iter().all(|it| phase(it) == "Failed")).await;
}
