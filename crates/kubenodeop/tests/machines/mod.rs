//! Drains of a node with virtual machines, against the embedded cluster and its KubeVirt.

mod disks;
mod limits;
mod many;
mod room;
mod tied;
mod undone;
mod unread;
mod wake;

use std::time::Duration;

use crate::stage::{Attempt, DEVICE, clock, n1, owner, woken};
use kube::Client;
use kubeapi::ApiClient;
use kubenodeop::{AttemptRules, BlockCode, DrainSuccess, Limit, LimitAction, MachinePolicy, Progress, node};
use kubesim::{ScriptedFault, Sim, SimConfig};
use serde_json::{Value, json};
use topics::DrainPhase;

const GUESTS: &str = "kubevirt/virtualmachineinstances";
const MACHINES: &str = "kubevirt/virtualmachines";
const MIGRATIONS: &str = "kubevirt/virtualmachineinstancemigrations";

/// Three nodes that can run guests of this KubeVirt; n1 is cordoned by us once there are guests.
async fn cluster(version: &str, guests: impl FnOnce(&Sim)) -> (Sim, ApiClient) {
    let sim = Sim::of_nodes(3);
    sim.add_kubevirt(version);
    let schedulable = |it: &Value| it["metadata"]["labels"]["kubevirt.io/schedulable"] == "true";
    sim.until("nodes", |all| all.iter().all(schedulable)).await;
    guests(&sim);
    sim.until(GUESTS, |all| all.iter().all(runs)).await;
    sim.until(GUESTS, |all| all.iter().all(|it| !it["status"]["conditions"].is_null())).await;
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    node::cordon(&cluster, &n1(), DEVICE, &owner()).await.unwrap();
    (sim, cluster)
}

/// One machine on n1 that can be migrated, and how its migrations go.
async fn one(version: &str, outcome: &str) -> (Sim, ApiClient) {
    cluster(version, |sim| {
        sim.add_machine_on("shop", "db", "Always", "n1", &migratable());
        sim.script_migrations("shop", "db", outcome);
    })
    .await
}

fn runs(guest: &Value) -> bool {
    guest["status"]["phase"] == "Running"
}

fn migratable() -> Value {
    json!({ "evictionStrategy": "LiveMigrate" })
}

fn node_of(sim: &Sim, guest: &str) -> String {
    sim.get(GUESTS, "shop", guest).unwrap()["status"]["nodeName"].as_str().unwrap().to_owned()
}

fn launchers_on_n1(sim: &Sim) -> usize {
    let here = |it: &&Value| {
        it["spec"]["nodeName"] == "n1"
            && it["metadata"]["labels"]["kubevirt.io"] == "virt-launcher"
            && !matches!(it["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
    };
    sim.list("pods").iter().filter(here).count()
}

fn path(asked: &kubesim::ApiRequest) -> &str {
    asked.uri.split('?').next().unwrap_or_default()
}

fn evictions(sim: &Sim) -> Vec<String> {
    let seen = sim.faults().requests();
    let asked = seen.iter().filter(|it| it.method == "POST" && path(it).ends_with("/eviction"));
    asked.map(|it| path(it).split('/').nth_back(1).unwrap_or_default().to_owned()).collect()
}

/// What a drain of n1 would meet, with this policy for machines.
async fn planned(cluster: &ApiClient, machines: MachinePolicy) -> kubenodeop::Plan {
    kubenodeop::survey::plan(cluster, &n1(), &by(machines)).await.unwrap()
}

fn by(machines: MachinePolicy) -> AttemptRules {
    AttemptRules { machines, ..AttemptRules::default() }
}

#[tokio::test(start_paused = true)]
async fn d12_a_migratable_machine_moves_by_exactly_one_migration_in_each_version() {
    for version in ["v1.1.0", "v1.3.0", "v1.5.0", "v1.7.3"] {
        let (sim, cluster) = cluster(version, |sim| {
            sim.add_machine_on("shop", "db", "Always", "n1", &migratable());
            sim.add_bare_pod("tools", "shell", "n1");
        })
        .await;
        let uid = sim.get(GUESTS, "shop", "db").unwrap()["metadata"]["uid"].clone();
        let mut attempt = Attempt::start(&cluster);
        let seen = attempt.until(|it| it.machines.iter().any(|it| it.state == "moving")).await;
        assert_eq!((seen.phase, seen.machines[0].name.as_str()), (DrainPhase::MovingMachines, "shop/db"));
        assert!(!evictions(&sim).contains(&"shell".to_owned()), "pods come after the machines");
        assert_eq!(attempt.left().await, [""; 0], "{version}");
        assert_eq!(sim.list(MIGRATIONS).len(), 1, "{version}");
        assert_ne!(node_of(&sim, "db"), "n1", "{version}");
        assert_eq!(
            sim.get(GUESTS, "shop", "db").unwrap()["metadata"]["uid"],
            uid,
            "{version}: never shut down"
        );
        assert_eq!(launchers_on_n1(&sim), 0);
        let created = sim.faults().requests();
        assert!(
            !created.iter().any(|it| it.method == "POST" && path(it).ends_with("migrations")),
            "none is ours"
        );
    }
}

/// Ends the agent at each change of what it says, and starts it again.
#[tokio::test(start_paused = true)]
async fn d12_an_agent_that_is_killed_again_and_again_leads_to_the_same_end() {
    let (sim, cluster) = cluster("v1.7.3", |sim| {
        sim.add_machine_on("shop", "db", "Always", "n1", &migratable());
        sim.add_machine_on("shop", "old", "Manual", "n1", &json!({ "evictionStrategy": "None" }));
        sim.add_machine_on("shop", "own", "Always", "n1", &migratable());
        sim.edit(MACHINES, "shop", "own", |it| {
            it["metadata"]["annotations"]["pillar-rs/drain-policy"] = "shutdown".into();
        });
    })
    .await;
    let mut changes = 0;
    let left = loop {
        changes += 1;
        let mut attempt = Attempt::start(&cluster);
        // Each run lives for one change longer than the one before it.
        let killed = async {
            for _ in 0..changes {
                attempt.progress.changed().await.unwrap();
            }
        };
        tokio::select! {
            outcome = &mut attempt.future => match outcome {
                Ok(DrainSuccess { left, .. }) => break left,
                Err(failure) => panic!("{}", failure.reason),
            },
            () = killed => {}
        }
    };
    assert!(changes > 3, "{changes}");
    assert_eq!(sim.list(MIGRATIONS).len(), 1);
    assert_ne!(node_of(&sim, "db"), "n1");
    for (name, word) in [("old", "Manual"), ("own", "Always")] {
        let machine = sim.get(MACHINES, "shop", name).unwrap();
        let written = machine["metadata"]["annotations"]["pillar-rs/drain-stopped"].as_str().unwrap();
        let written: Value = serde_json::from_str(written).unwrap();
        assert_eq!(
            (&written["was"]["runStrategy"], &written["node"]),
            (&json!(word), &json!("n1")),
            "{name}"
        );
    }
    assert!(left.iter().all(|it| it.starts_with("virtual machine shop/o")), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn d12_one_that_cannot_be_migrated_follows_its_policy() {
    let not = |sim: &Sim| {
        sim.add_machine_on("shop", "db", "Always", "n1", &migratable());
        sim.edit(GUESTS, "shop", "db", |it| {
            it["metadata"]["annotations"]["kubesim/not-migratable"] =
                "DisksNotLiveMigratable: not shared".into();
        });
    };
    let says_no = |all: &[Value]| {
        all.iter().all(|it| it["status"]["conditions"].to_string().contains("DisksNotLiveMigratable"))
    };
    // Stopped, as its launcher is never let go.
    let (sim, held) = cluster("v1.7.3", not).await;
    sim.until(GUESTS, says_no).await;
    let left = Attempt::start(&held).left().await;
    assert!(left[0].contains("started again once node n1 is back"), "{left:?}");
    assert_eq!(sim.get(MACHINES, "shop", "db").unwrap()["spec"]["runStrategy"], "Halted");
    assert_eq!(evictions(&sim).len(), 0);
    // Held, without any write.
    let (sim, held) = cluster("v1.7.3", not).await;
    sim.until(GUESTS, says_no).await;
    let mut attempt = Attempt::by(&held, by(MachinePolicy::MigrateOrHold));
    let seen = attempt.until(|it| !it.blockers.is_empty()).await;
    assert_eq!((seen.blockers[0].code.as_str(), seen.phase), ("cannot-move", DrainPhase::MovingMachines));
    assert!(seen.blockers[0].reason.contains("DisksNotLiveMigratable: not shared"), "{seen:?}");
    assert_eq!((evictions(&sim).len(), launchers_on_n1(&sim)), (0, 1));
    drop(attempt);
    // The attempt fails.
    let failed = Attempt::by(&held, by(MachinePolicy::Fail)).future.await;
    assert!(matches!(&failed, Err(failure) if failure.reason.contains("its policy is fail")), "{failed:?}");
    assert_eq!((evictions(&sim).len(), launchers_on_n1(&sim)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn d12_migrations_that_fail_end_with_the_policy_and_none_is_left() {
    for version in ["v1.3.0", "v1.7.3"] {
        let (sim, cluster) = one(version, "fail: no memory").await;
        let left = Attempt::start(&cluster).left().await;
        assert!(
            left[0].contains("3 migrations failed") && left[0].contains("no memory"),
            "{version}: {left:?}"
        );
        assert_eq!(launchers_on_n1(&sim), 0);
        let open = |it: &&Value| !matches!(it["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        assert_eq!(sim.list(MIGRATIONS).iter().filter(open).count(), 0, "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_references_applications_leave_by_their_eviction_and_disks_of_a_guest_are_never_evicted() {
    let (sim, cluster) = cluster("v1.7.3", |sim| {
        sim.add_machine_set_on("eve-kube-app", "app", "n1", &json!({}));
        sim.add_guest_on("shop", "alone", "n1", &json!({}));
    })
    .await;
    let disk = sim.plug_disk("shop", "alone", "more").unwrap();
    let left = Attempt::start(&cluster).left().await;
    let said = [("eve-kube-app/app", "makes it again"), ("shop/alone", "nobody starts it again")];
    for (name, words) in said {
        let is_it = |it: &String| it.starts_with(&format!("virtual machine {name}")) && it.contains(words);
        assert!(left.iter().any(is_it), "{left:?}");
    }
    assert!(!evictions(&sim).contains(&disk));
    assert_eq!(launchers_on_n1(&sim), 0);
}

#[tokio::test(start_paused = true)]
async fn while_virt_api_is_down_a_machine_waits_and_then_moves() {
    let (sim, cluster) = one("v1.7.3", "succeed").await;
    let down = |sim: &Sim, word: &str| {
        sim.edit("kubevirt/kubevirts", "kubevirt", "kubevirt", |it| {
            it["metadata"]["annotations"]["kubesim/virt-api"] = word.into();
        });
    };
    down(&sim, "down");
    let mut attempt = Attempt::start(&cluster);
    let seen = attempt.until(|it| !it.blockers.is_empty()).await;
    assert_eq!(seen.blockers[0].code, BlockCode::Webhook, "{seen:?}");
    down(&sim, "up");
    attempt.drained().await;
    assert_eq!(sim.list(MIGRATIONS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_machines_asks_nothing_of_kubevirt() {
    let (sim, cluster) = cluster("v1.7.3", |sim| sim.add_bare_pod("tools", "shell", "n1")).await;
    let before = sim.faults().requests().len();
    Attempt::start(&cluster).drained().await;
    let asked: Vec<String> = sim.faults().requests().into_iter().skip(before).map(|it| it.uri).collect();
    assert!(!asked.is_empty() && asked.iter().all(|it| !it.contains("kubevirt.io/v1")), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn settings_of_kubevirt_that_change_what_a_drain_does_to_machines_are_in_the_plan() {
    let (sim, cluster) = one("v1.9.0", "succeed").await;
    let migrations = |settings: Value| {
        sim.edit("kubevirt/kubevirts", "kubevirt", "kubevirt", |it| {
            it["spec"]["configuration"]["migrations"] = settings.clone();
        });
    };
    let of_kubevirt = async || {
        let notes = planned(&cluster, MachinePolicy::MigrateOrShutdown).await.notes;
        notes.into_iter().filter(|it| it.starts_with("KubeVirt's ")).collect::<Vec<_>>()
    };
    let usual = json!({ "unsafeMigrationOverride": false, "disableTLS": false, "nodeDrainTaintKey": "kubevirt.io/drain" });
    for settings in [json!({}), usual] {
        migrations(settings);
        assert_eq!(of_kubevirt().await, [""; 0]);
    }
    migrations(
        json!({ "unsafeMigrationOverride": true, "disableTLS": true, "nodeDrainTaintKey": "own/drain" }),
    );
    let said = of_kubevirt().await;
    let names = ["unsafeMigrationOverride is true", "disableTLS is true", "nodeDrainTaintKey is own/drain"];
    assert!(said.len() == 3 && names.iter().zip(&said).all(|(name, it)| it.contains(name)), "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn o5_a_plan_writes_nothing_and_foretells_what_the_drain_then_does_with_each_machine() {
    let (sim, cluster) = cluster("v1.7.3", |sim| {
        sim.add_machine_on("shop", "db", "Always", "n1", &migratable());
        sim.add_machine_on("shop", "till", "Manual", "n1", &json!({}));
        sim.add_machine_on("shop", "stays", "Always", "n1", &migratable());
        sim.edit(GUESTS, "shop", "stays", |it| {
            it["metadata"]["annotations"]["kubesim/not-migratable"] =
                "DisksNotLiveMigratable: not shared".into();
            it["metadata"]["annotations"]["pillar-rs/drain-policy"] = "migrate-or-hold".into();
        });
    })
    .await;
    sim.until(GUESTS, |all| {
        all.iter().any(|it| it["status"]["conditions"].to_string().contains("not shared"))
    })
    .await;
    let before = sim.faults().requests().len();
    let held = planned(&cluster, MachinePolicy::MigrateOrHold).await;
    let policy = |name: &str| held.machines.iter().find(|it| it.name == name).unwrap().policy;
    assert_eq!((policy("shop/db"), held.blockers.len()), ("migrate-or-hold", 2), "as the limits file says");
    let plan = planned(&cluster, AttemptRules::default().machines).await;
    assert!(
        sim.faults().requests().iter().skip(before).all(|it| it.method == "GET"),
        "a plan writes nothing"
    );
    let fates: Vec<(&str, &str)> =
        plan.machines.iter().map(|it| (it.name.as_str(), it.fate.as_str())).collect();
    let expected = [
        ("shop/db", "is asked to migrate"),
        ("shop/stays", "cannot move: DisksNotLiveMigratable"),
        ("shop/till", "started again once node n1 is back"),
    ];
    assert_eq!(fates.len(), expected.len(), "{fates:?}");
    for (found, (name, words)) in fates.iter().zip(expected) {
        assert!(found.0 == name && found.1.contains(words), "{fates:?}");
    }
    let foreseen: Vec<_> = plan.blockers.iter().map(|it| (it.pod.clone(), it.code.clone())).collect();
    // The drain meets the same.
    let mut attempt = Attempt::start(&cluster);
    let met = attempt
        .until(|it| {
            it.machines.iter().filter(|it| it.state == "gone").count() == 2 && !it.blockers.is_empty()
        })
        .await;
    let met: Vec<_> = met.blockers.iter().map(|it| (it.pod.clone(), it.code.clone())).collect();
    assert_eq!((foreseen.len(), &foreseen), (1, &met));
    assert_ne!(node_of(&sim, "db"), "n1");
    assert!(sim.get(GUESTS, "shop", "till").is_none_or(|it| !runs(&it)));
}
