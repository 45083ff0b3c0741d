//! What a drain asked of machines is taken back, and what it stopped is started again.

use kubenodeop::machines::undo;

use super::*;

fn open(sim: &Sim) -> Vec<Value> {
    let over = |it: &Value| matches!(it["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    sim.list(MIGRATIONS).into_iter().filter(|it| !over(it)).collect()
}

async fn moving(version: &str, outcome: &str) -> (Sim, ApiClient) {
    let (sim, cluster) = one(version, outcome).await;
    let mut attempt = Attempt::start(&cluster);
    attempt.until(|it| it.machines.iter().any(|it| it.reason.contains("phase Running"))).await;
    (sim, cluster)
}

#[tokio::test(start_paused = true)]
async fn d19_a_withdrawn_drain_clears_the_mark_ends_the_migration_and_no_other_one_follows() {
    for version in ["v1.7.3", "v1.9.0"] {
        let (sim, cluster) = moving(version, "hang").await;
        undo::take_back(&cluster, &n1()).await.unwrap();
        sim.until(MIGRATIONS, |all| {
            all.iter().all(|it| matches!(it["status"]["phase"].as_str(), Some("Succeeded" | "Failed")))
        })
        .await;
        let made = sim.list(MIGRATIONS).len();
        tokio::time::sleep(Duration::from_secs(900)).await;
        assert_eq!((open(&sim).len(), sim.list(MIGRATIONS).len()), (0, made), "{version}");
        let guest = sim.get(GUESTS, "shop", "db").unwrap();
        assert!(guest["status"]["evacuationNodeName"].as_str().unwrap_or_default().is_empty(), "{version}");
        assert!(guest["metadata"]["annotations"]["pillar-rs/drain-asked"].is_null(), "{version}: {guest}");
        assert_eq!((node_of(&sim, "db").as_str(), runs(&guest)), ("n1", true));
    }
}

/// Its own mark nobody else may remove there: virt-api puts it back, and each migration that is ended is followed by another.
#[tokio::test(start_paused = true)]
async fn d19_before_1_7_a_machine_that_was_asked_to_leave_is_named_until_it_has_left() {
    for version in ["v1.1.0", "v1.3.0", "v1.6.0"] {
        let (sim, cluster) = moving(version, "hang").await;
        let error = undo::take_back(&cluster, &n1()).await.unwrap_err();
        assert!(error.line().contains("before 1.7 KubeVirt removes it for nobody"), "{}", error.line());
        assert!(undo::next_step(&error).contains("`kubectl get vmim -A`"), "{version}");
        assert!(open(&sim).iter().all(|it| it["metadata"]["deletionTimestamp"].is_null()), "{version}");
        assert_eq!((open(&sim).len(), sim.list(MIGRATIONS).len()), (1, 1), "{version}");
        sim.script_migrations("shop", "db", "succeed");
        sim.until(GUESTS, |all| all.iter().all(|it| it["status"]["nodeName"] != "n1")).await;
        undo::take_back(&cluster, &n1()).await.unwrap();
        let guest = sim.get(GUESTS, "shop", "db").unwrap();
        assert!(guest["metadata"]["annotations"]["pillar-rs/drain-asked"].is_null(), "{version}: {guest}");
    }
}

#[tokio::test(start_paused = true)]
async fn d19_one_machine_that_cannot_be_taken_back_does_not_keep_what_was_asked_of_others() {
    let names = ["a", "b", "c"];
    let (sim, cluster) = cluster("v1.7.3", |sim| {
        for name in names {
            sim.add_machine_on("shop", name, "Always", "n1", &migratable());
            sim.script_migrations("shop", name, "hang");
        }
    })
    .await;
    let mut attempt = Attempt::start(&cluster);
    let asked = |it: &Progress| {
        it.machines.len() == names.len() && it.machines.iter().all(|it| it.state != "waiting")
    };
    attempt.until(asked).await;
    let away =
        ScriptedFault::status(500, "failed calling webhook \"virtualmachineinstances-update.kubevirt.io\"");
    sim.faults().script("PUT", "virtualmachineinstances/a/evacuate/cancel", 1, away);
    let error = undo::take_back(&cluster, &n1()).await.unwrap_err();
    assert!(undo::next_step(&error).contains("kubevirt.io=virt-api"), "{error:?}");
    let asked = |name: &str| {
        let guest = sim.get(GUESTS, "shop", name).unwrap();
        let marked = !guest["status"]["evacuationNodeName"].as_str().unwrap_or_default().is_empty();
        (marked, !guest["metadata"]["annotations"]["pillar-rs/drain-asked"].is_null())
    };
    assert_eq!(names.map(asked), [(true, true), (false, false), (false, false)]);
    undo::take_back(&cluster, &n1()).await.unwrap();
    assert_eq!(names.map(asked), [(false, false); 3]);
}

#[tokio::test(start_paused = true)]
async fn what_was_written_on_a_machine_that_has_moved_is_removed_and_what_its_node_has_written_stays() {
    let (sim, cluster) = cluster("v1.7.3", |sim| {
        for name in ["moved", "asked"] {
            sim.add_machine_on("shop", name, "Always", "n1", &migratable());
        }
    })
    .await;
    Attempt::start(&cluster).drained().await;
    let of_n2 = json!({ "node": "n2", "request": "r" }).to_string();
    sim.edit(GUESTS, "shop", "asked", |it| {
        it["metadata"]["annotations"]["pillar-rs/drain-asked"] = of_n2.clone().into();
    });
    undo::take_back(&cluster, &n1()).await.unwrap();
    let written = |name: &str| {
        assert_ne!(node_of(&sim, name), "n1");
        sim.get(GUESTS, "shop", name).unwrap()["metadata"]["annotations"]["pillar-rs/drain-asked"].clone()
    };
    assert_eq!((written("moved"), written("asked")), (Value::Null, Value::from(of_n2)));
}

#[tokio::test(start_paused = true)]
async fn d19_a_migration_in_post_copy_runs_on() {
    let (sim, cluster) = moving("v1.7.3", "post-copy").await;
    let in_post_copy = |it: &Value| it["status"]["migrationState"]["mode"] == "PostCopy";
    sim.until(GUESTS, |all| all.iter().any(in_post_copy)).await;
    undo::take_back(&cluster, &n1()).await.unwrap();
    assert!(open(&sim).iter().all(|it| it["metadata"]["deletionTimestamp"].is_null()));
    assert_eq!(open(&sim).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_mark_of_somebody_else_is_not_taken_back() {
    let (sim, cluster) = one("v1.7.3", "hang").await;
    sim.edit(GUESTS, "shop", "db", |it| it["status"]["evacuationNodeName"] = "n1".into());
    sim.until(MIGRATIONS, |all| !all.is_empty()).await;
    undo::take_back(&cluster, &n1()).await.unwrap();
    assert_eq!(sim.get(GUESTS, "shop", "db").unwrap()["status"]["evacuationNodeName"], "n1");
    assert_eq!(open(&sim).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn d12_what_was_shut_down_starts_again_as_it_was_unless_somebody_has_changed_it() {
    let words = ["Always", "RerunOnFailure", "Manual", "Once"];
    let (sim, cluster) = cluster("v1.7.3", |sim| {
        for word in words.into_iter().chain(["other"]) {
            let strategy = if word == "other" { "Always" } else { word };
            let name = word.to_lowercase();
            sim.add_machine_on("shop", &name, strategy, "n1", &json!({ "evictionStrategy": "LiveMigrate" }));
        }
    })
    .await;
    let left = Attempt::by(&cluster, by(MachinePolicy::Shutdown)).left().await;
    assert_eq!(left.len(), 5, "{left:?}");
    for machine in sim.list(MACHINES) {
        let written = machine["metadata"]["annotations"]["pillar-rs/drain-stopped"].as_str().unwrap();
        assert!(written.contains("\"at\":\"20"), "{written}");
    }
    assert_eq!(launchers_on_n1(&sim), 0);
    // Somebody starts one by hand, and another way than it was.
    sim.edit(MACHINES, "shop", "other", |it| it["spec"]["runStrategy"] = "Manual".into());
    assert_eq!(undo::start_again(&cluster, |node| node == "n9").await.unwrap(), 0, "another node's are left");
    assert_eq!(undo::start_again(&cluster, |node| node == "n1").await.unwrap(), 0);
    sim.until(GUESTS, |all| all.len() == 4 && all.iter().all(runs)).await;
    for word in words {
        let machine = sim.get(MACHINES, "shop", &word.to_lowercase()).unwrap();
        assert_eq!(machine["spec"]["runStrategy"], *word);
        assert!(machine["metadata"]["annotations"]["pillar-rs/drain-stopped"].is_null(), "{machine}");
        assert!(machine["metadata"]["labels"]["pillar-rs/drain-stopped"].is_null(), "{machine}");
    }
    assert_eq!(sim.get(MACHINES, "shop", "other").unwrap()["spec"]["runStrategy"], "Manual");
    assert_eq!(undo::start_again(&cluster, |_| true).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn machines_that_may_not_be_read_are_no_reason_to_say_that_there_are_none() {
    let (sim, cluster) = moving("v1.7.3", "hang").await;
    for code in [401, 403] {
        sim.faults().script("GET", "kubevirt.io/v1/", u32::MAX, ScriptedFault::status(code, "no"));
        let error = undo::take_back(&cluster, &n1()).await.unwrap_err();
        assert!(error.is_refused(), "{error:?}");
        let error = undo::start_again(&cluster, |_| true).await.unwrap_err();
        assert!(code == 401 || undo::next_step(&error).contains("pillar-rs-machines"), "{error:?}");
        sim.faults().clear();
    }
    undo::take_back(&cluster, &n1()).await.unwrap();
    assert!(
        sim.get(GUESTS, "shop", "db").unwrap()["metadata"]["annotations"]["pillar-rs/drain-asked"].is_null()
    );
    // Without KubeVirt the API refuses as well.
    let sim = Sim::new(SimConfig::default());
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    sim.faults().script("GET", "kubevirt.io/v1/", u32::MAX, ScriptedFault::status(403, "no"));
    undo::take_back(&cluster, &n1()).await.unwrap();
    assert_eq!(undo::start_again(&cluster, |_| true).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn d12_machines_are_started_in_the_order_of_their_stops_and_a_few_at_a_time() {
    let (sim, cluster) = cluster("v1.7.3", |_| {}).await;
    for nth in 0..8 {
        let name = format!("vm{nth}");
        sim.add_machine("shop", &name, "Halted");
        sim.edit(MACHINES, "shop", &name, |it| {
            let written = json!({ "id": "d", "node": "n1", "uid": it["metadata"]["uid"],
                "at": format!("2026-01-01T00:00:{:02}.000Z", 30 - nth),
                "was": { "runStrategy": "Always" }, "left": { "runStrategy": "Halted" } });
            it["metadata"]["labels"]["pillar-rs/drain-stopped"] = "true".into();
            it["metadata"]["annotations"]["pillar-rs/drain-stopped"] = written.to_string().into();
        });
    }
    // The one that was stopped first is refused: the next one has its place.
    sim.faults().script("PATCH", "virtualmachines/vm7", 1, ScriptedFault::status(403, "no"));
    undo::start_again(&cluster, |_| true).await.unwrap_err();
    let started = || {
        let seen = sim.faults().requests();
        let asked = seen.iter().filter(|it| it.method == "PATCH" && path(it).contains("/virtualmachines/"));
        asked.map(|it| path(it).rsplit('/').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(started(), ["vm7", "vm6", "vm5", "vm4", "vm3", "vm2"]);
    let (before, now) = (sim.faults().requests().len(), clock());
    assert_eq!(undo::start_all(&cluster, |_| true).await.unwrap(), 0);
    let seen = sim.faults().requests();
    let looks = seen.iter().skip(before).filter(|it| path(it).ends_with("v1/virtualmachines")).count();
    let pauses = now().since_start().as_millis() / undo::LOOKS_APART.as_millis();
    assert!(pauses > 0, "they are not all started at once");
    assert_eq!(looks as u128, pauses + 1, "each look reads them once");
    assert_eq!(started()[6..], ["vm7", "vm1", "vm0"]);
    sim.until(GUESTS, |all| all.len() == 8 && all.iter().all(runs)).await;
}
