//! Answers to evictions of launchers, and the budgets of older versions.

use serde_json::{Value, json};

use super::{
    BUDGETS, GUESTS, KUBEVIRTS, MIGRATIONS, NEWEST, cluster, evict, guest, launchers, message, running, send,
    soon, with_guest,
};

const DENIED: &str =
    "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the request: ";

/// Answer to the eviction of the guest's launcher; without the webhook's name.
async fn said(sim: &kubesim::Sim) -> (u16, String) {
    let (code, said) = evict(sim, &launchers(sim, "db")[0]).await;
    let text = said["message"].as_str().unwrap_or_default();
    if code == 429 && text.starts_with(DENIED) {
        assert_eq!((&said["reason"], &said["details"]), (&json!(""), &Value::Null), "{said}");
    }
    (code, text.strip_prefix(DENIED).unwrap_or(text).to_owned())
}

#[tokio::test(start_paused = true)]
async fn a3_first_and_second_eviction_by_version() {
    let budget = "Cannot evict pod as it would violate the pod's disruption budget.";
    let first = "Eviction triggered evacuation of VMI \"shop/db\"";
    let again = "Evacuation in progress: Eviction triggered evacuation of VMI \"shop/db\"";
    for (version, expected) in [
        ("v1.1.0", [budget, budget]),
        ("v1.3.0", [first, budget]),
        ("v1.5.0", [first, again]),
        ("v1.7.3", [first, again]),
    ] {
        for strategy in ["LiveMigrate", "LiveMigrateIfPossible"] {
            let sim = with_guest(version, strategy).await;
            sim.script_migrations("shop", "db", "hang-pending");
            for wanted in expected {
                assert_eq!(said(&sim).await, (429, wanted.to_owned()), "{version} {strategy}");
                assert_eq!(guest(&sim, "db")["status"]["evacuationNodeName"], "n1");
            }
            let asked = |it: &Value| it["type"] == "EvictionRequested";
            soon(&sim, MIGRATIONS, |all| all.len() == 1).await;
            let conditions = guest(&sim, "db")["status"]["conditions"].clone();
            assert_eq!(
                conditions.as_array().unwrap().iter().any(asked),
                version == NEWEST,
                "A1: from 1.7 on"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a3_a_guest_without_a_strategy_is_evicted_and_one_that_cannot_move_is_refused() {
    // A3 row 4: none, and none at all.
    for strategy in ["None", "Unknown"] {
        let sim = with_guest(NEWEST, strategy).await;
        assert_eq!(said(&sim).await.0, 201);
    }
    for (strategy, expected) in [("LiveMigrate", 429), ("LiveMigrateIfPossible", 201)] {
        let sim = with_guest(NEWEST, strategy).await;
        sim.edit(GUESTS, "shop", "db", |it| {
            it["metadata"]["annotations"]["kubesim/not-migratable"] = "NotMigratable: why".into();
        });
        let cannot = |it: &Value| it["reason"] == "NotMigratable" && it["message"] == "why";
        soon(&sim, GUESTS, |all| all[0]["status"]["conditions"].as_array().unwrap().iter().any(cannot)).await;
        let (code, text) = said(&sim).await;
        assert_eq!(code, expected, "{text}");
        if code == 429 {
            assert_eq!(text, "VMI db is configured with an eviction strategy but is not live-migratable");
            assert!(guest(&sim, "db")["status"]["evacuationNodeName"].is_null());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a3_external_is_marked_and_nothing_is_made() {
    let sim = with_guest(NEWEST, "External").await;
    assert_eq!(said(&sim).await.0, 429);
    assert_eq!(guest(&sim, "db")["status"]["evacuationNodeName"], "n1");
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    assert!(sim.list(MIGRATIONS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a3_a_rehearsal_marks_nothing() {
    let sim = with_guest(NEWEST, "LiveMigrate").await;
    let uri = format!("/api/v1/namespaces/shop/pods/{}/eviction?dryRun=All", launchers(&sim, "db")[0]);
    let (code, said) = send(&sim, "POST", &uri, "{}").await;
    assert_eq!(code, 429);
    assert!(message(&said).ends_with("Eviction triggered evacuation of VMI \"shop/db\""), "{said}");
    assert!(guest(&sim, "db")["status"]["evacuationNodeName"].is_null());
}

#[tokio::test(start_paused = true)]
async fn a3_a_finished_launcher() {
    // Row 2; row 3 is in `answers.rs`.
    for (version, expected) in [("v1.5.0", 201), ("v1.3.0", 429)] {
        let sim = with_guest(version, "LiveMigrate").await;
        let pod = launchers(&sim, "db").remove(0);
        sim.edit("pods", "shop", &pod, |it| it["status"]["phase"] = "Failed".into());
        assert_eq!(evict(&sim, &pod).await.0, expected, "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a3_the_target_of_a_migration_is_refused() {
    for (version, expected) in
        [(NEWEST, "Eviction request for target Pod"), ("v1.3.0", "Cannot evict pod as")]
    {
        let sim = with_guest(version, "LiveMigrate").await;
        sim.script_migrations("shop", "db", "hang");
        let uri = "/apis/kubevirt.io/v1/namespaces/shop/virtualmachineinstancemigrations";
        let job = json!({ "metadata": { "generateName": "m-" }, "spec": { "vmiName": "db" } }).to_string();
        assert_eq!(send(&sim, "POST", uri, &job).await.0, 201);
        soon(&sim, MIGRATIONS, |all| all[0]["status"]["phase"] == "Running").await;
        let target = guest(&sim, "db")["status"]["migrationState"]["targetPod"].as_str().unwrap().to_owned();
        let (code, said) = evict(&sim, &target).await;
        assert_eq!(code, 429);
        assert!(message(&said).contains(expected), "{said}");
        assert!(guest(&sim, "db")["status"]["evacuationNodeName"].is_null());
    }
}

#[tokio::test(start_paused = true)]
async fn a3_while_virt_api_is_down() {
    for (version, expected) in [(NEWEST, (500, 503)), ("v1.3.0", (429, 503))] {
        let sim = with_guest(version, "LiveMigrate").await;
        sim.add_bare_pod("shop", "other", "n1");
        sim.edit(KUBEVIRTS, "kubevirt", "kubevirt", |it| {
            it["metadata"]["annotations"]["kubesim/virt-api"] = "down".into();
        });
        let (code, text) = said(&sim).await;
        assert_eq!(code, expected.0, "{version}");
        assert_eq!(code == 500, text.contains("failed calling webhook"), "{text}");
        assert!(guest(&sim, "db")["status"]["evacuationNodeName"].is_null(), "only the budget protects");
        assert_eq!(evict(&sim, "other").await.0, 201, "other pods are let alone");
        let stop = "/apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachines/db/stop";
        assert_eq!(send(&sim, "PUT", stop, "").await.0, expected.1);
    }
    // A4: as soon as no pod of the Deployment is Ready.
    let sim = with_guest(NEWEST, "LiveMigrate").await;
    sim.add_deployment("kubevirt", "virt-api", 1);
    assert_eq!(said(&sim).await.0, 500);
    let ready = |it: &Value| it["status"]["readyReplicas"] == 1;
    soon(&sim, "apps/deployments", |all| ready(&all[0])).await;
    assert_eq!(said(&sim).await.0, 429);
}

#[tokio::test(start_paused = true)]
async fn a3_a_pod_that_holds_a_disk_is_refused_from_1_6_on_and_pulls_it_before() {
    for (version, expected) in [("v1.5.0", 201), ("v1.6.0", 429), (NEWEST, 429)] {
        let sim = with_guest(version, "LiveMigrate").await;
        let pod = sim.plug_disk("shop", "db", "more").unwrap();
        soon(&sim, "pods", |all| all.len() == 2 && all.iter().all(|it| it["status"]["phase"] == "Running"))
            .await;
        let (code, said) = evict(&sim, &pod).await;
        assert_eq!(code, expected, "{version}");
        if code == 429 {
            let why =
                format!("cannot evict hotplug pod: {pod} associated with running vmi: db in namespace shop");
            assert!(message(&said).ends_with(&why), "{said}");
            continue;
        }
        let paused = |it: &Value| it["type"] == "Paused" && it["reason"] == "PausedIOError";
        soon(&sim, GUESTS, |all| all[0]["status"]["conditions"].as_array().unwrap().iter().any(paused)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a4_one_budget_up_to_1_5_for_two_pods_during_a_migration_and_none_later() {
    for version in ["v1.1.0", "v1.3.0", "v1.5.0"] {
        let sim = with_guest(version, "LiveMigrate").await;
        soon(&sim, BUDGETS, |all| all.len() == 1).await;
        let budget = sim.list(BUDGETS).remove(0);
        assert!(budget["metadata"]["name"].as_str().unwrap().starts_with("kubevirt-disruption-budget-"));
        assert_eq!(
            (&budget["spec"]["minAvailable"], &budget["status"]["disruptionsAllowed"]),
            (&json!(1), &json!(0))
        );
        sim.script_migrations("shop", "db", "hang");
        evict(&sim, &launchers(&sim, "db")[0]).await;
        soon(&sim, MIGRATIONS, |all| all.len() == 1 && all[0]["status"]["phase"] == "Running").await;
        let budget = sim.list(BUDGETS).remove(0);
        let job = &sim.list(MIGRATIONS)[0]["metadata"]["name"];
        assert_eq!(budget["spec"]["minAvailable"], 2);
        assert_eq!(budget["metadata"]["labels"]["kubevirt.io/migrationName"], *job);
        assert_eq!(budget["status"]["disruptionsAllowed"], 0);
        sim.script_migrations("shop", "db", "succeed");
        soon(&sim, BUDGETS, |all| all[0]["spec"]["minAvailable"] == 1).await;
        assert!(sim.list(BUDGETS)[0]["metadata"]["labels"]["kubevirt.io/migrationName"].is_null());
        // From 1.6 on leftovers are removed.
        sim.add_kubevirt("v1.6.0");
        soon(&sim, BUDGETS, <[Value]>::is_empty).await;
    }
    for strategy in ["None", "LiveMigrateIfPossible"] {
        let sim = cluster("v1.3.0").await;
        sim.add_claim("shop", "disk", "pv-1");
        let disk = json!([{ "name": "d", "persistentVolumeClaim": { "claimName": "disk" } }]);
        let spec = json!({ "evictionStrategy": strategy, "volumes": disk });
        sim.add_guest_on("shop", "db", "n1", &spec);
        running(&sim, "db").await;
        assert!(sim.list(BUDGETS).is_empty(), "not migratable: its disk is not shared (A7)");
    }
}

#[tokio::test(start_paused = true)]
async fn a1_a_budget_of_somebody_else_over_launchers_cannot_be_computed_unless_it_is_a_number() {
    let sim = with_guest(NEWEST, "None").await;
    for (limit, code) in [(json!({ "maxUnavailable": 1 }), 429), (json!({ "minAvailable": 0 }), 201)] {
        sim.add_budget("shop", "own", "", &limit);
        sim.edit(BUDGETS, "shop", "own", |it| {
            it["spec"]["selector"] = json!({ "matchLabels": { "kubevirt.io": "virt-launcher" } });
        });
        let failed =
            sim.get(BUDGETS, "shop", "own").unwrap()["status"]["conditions"][0]["reason"] == "SyncFailed";
        assert_eq!(failed, code == 429);
        assert_eq!(said(&sim).await.0, code);
    }
}

#[tokio::test(start_paused = true)]
async fn a1_a_guest_has_no_status_of_its_own_and_keeps_it_from_others() {
    let sim = with_guest(NEWEST, "LiveMigrate").await;
    let uri = "/apis/kubevirt.io/v1/namespaces/shop/virtualmachineinstances/db";
    let patch = r#"[{ "op": "add", "path": "/status/evacuationNodeName", "value": "n9" }]"#;
    assert_eq!(send(&sim, "PATCH", &format!("{uri}/status"), patch).await.0, 404);
    assert_eq!(send(&sim, "PATCH", uri, patch).await.0, 200);
    assert!(guest(&sim, "db")["status"]["evacuationNodeName"].is_null());
}
