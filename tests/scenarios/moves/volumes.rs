//! Volumes whose last healthy copy is on our node, in each policy of Longhorn: the copy that comes by itself, the one
//! that fails, the one for which there is no place, and what cannot be copied.

use kubenodeop::storage;
use scenarios::{Agent, within_still};

use topics::DrainPhase;

use super::*;

const SPACE: &str = "longhorn-system";
const VOLUMES: &str = "longhorn/volumes";
const TICKETS: &str = "longhorn/volumeattachments";
const OTHER: &str = "edge-node-2";

/// A volume with its only copy on our node.
struct Row {
    name: &'static str,
    served: bool,
    script: (&'static str, Value),
    /// Of what keeps the drain for longer: its code, where the plan foretells it, else empty.
    foretold: &'static str,
    says: &'static str,
    released: fn(&Sim),
}

fn set(sim: &Sim, volume: &str, (pointer, value): &(&str, Value)) {
    let done = sim.edit(VOLUMES, SPACE, volume, |it| {
        let mut member = it;
        let (parent, last) = pointer.rsplit_once('/').unwrap();
        for part in parent.split('/').skip(1) {
            member = &mut member[part];
        }
        let last = last.replace("~1", "/");
        if value.is_null() {
            member.as_object_mut().unwrap().remove(&last);
        } else {
            member[last] = value.clone();
        }
    });
    assert!(done, "no volume {volume}");
}

fn script(name: &str) -> &'static str {
    match name {
        "rebuild" => "/metadata/annotations/kubesim~1rebuild",
        _ => "/metadata/annotations/kubesim~1unschedulable",
    }
}

fn rows(policy: &str) -> Vec<Row> {
    let copies = storage::NodeDrainPolicy::parse(policy).copies_by_cordon();
    let nothing = |_: &Sim| ();
    let own = ("/spec/dataLocality", Value::from("disabled"));
    vec![
        Row {
            name: "single",
            served: true,
            script: own.clone(),
            foretold: "",
            says: "another is being rebuilt",
            released: nothing,
        },
        Row {
            name: "fails",
            served: true,
            script: (script("rebuild"), "fails".into()),
            foretold: "",
            says: "a rebuild has failed: node edge-node-",
            released: |sim| set(sim, "fails", &(script("rebuild"), "".into())),
        },
        Row {
            name: "nowhere",
            served: true,
            script: (script("place"), "insufficient storage".into()),
            foretold: "",
            says: "Longhorn finds no place for another: insufficient storage",
            released: |sim| set(sim, "nowhere", &(script("place"), Value::Null)),
        },
        Row {
            name: "detached",
            served: false,
            script: own,
            foretold: if copies { "" } else { "last-copy" },
            says: if copies {
                "another is being rebuilt"
            } else {
                "it is detached, and Longhorn copies attached volumes only"
            },
            released: |sim| sim.add_mounting_pod("shop", "uses-detached", OTHER, "detached"),
        },
        Row {
            name: "strict",
            served: true,
            script: ("/spec/dataLocality", "strict-local".into()),
            foretold: "strict-local",
            says: "it is strict-local and cannot have another",
            released: |sim| {
                let word = format!("{NODE} its data is elsewhere").into();
                set(sim, "strict", &("/metadata/annotations/pillar-rs~1last-copy-pass", word));
            },
        },
    ]
}

async fn play(policy: &str) {
    let mut world = world(SimConfig::default(), "v1.7.3").await;
    let sim = world.cluster.sim().clone();
    sim.add_longhorn(policy);
    let rows = rows(policy);
    for row in &rows {
        sim.add_longhorn_volume("shop", row.name, row.name, &[NODE]);
        set(&sim, row.name, &row.script);
        if row.served {
            sim.add_mounting_pod("shop", &format!("uses-{}", row.name), OTHER, row.name);
        }
    }
    sim.add_longhorn_volume("shop", "safe", "safe", &[NODE, OTHER]);
    let served = rows.iter().filter(|it| it.served).count();
    let healthy = |all: &[Value]| all.iter().filter(|it| it["status"]["robustness"] == "healthy").count();
    until(&sim, VOLUMES, |all| healthy(all) == served).await;
    let plan = plan(&world, MachinePolicy::MigrateOrShutdown).await;
    let subject = |row: &Row| format!("volume shop/{} ({})", row.name, row.name);
    let foretold: BTreeSet<(String, String)> = plan
        .blockers
        .iter()
        .map(|it| (it.pod.clone(), it.code.clone()))
        .filter(|it| it.0.starts_with("volume "))
        .collect();
    let expected: BTreeSet<(String, String)> = rows
        .iter()
        .filter(|it| !it.foretold.is_empty())
        .map(|it| (subject(it), it.foretold.to_owned()))
        .collect();
    assert_eq!(foretold, expected, "{policy}");
    let noted = |row: &Row| plan.notes.iter().any(|it| it.contains(&subject(row)));
    for row in rows.iter().filter(|it| it.foretold.is_empty()) {
        assert!(noted(row), "{policy}, {}: {:?}", row.name, plan.notes);
    }
    world.begin().await;
    let mut course = Course::default();
    let said = |course: &Course, row: &Row| {
        let name = format!("shop/{} ({})", row.name, row.name);
        course.has(&name, row.says)
    };
    let waited = tokio::time::timeout(LONG, async {
        // All is said, and what the plan foretold is met: it is released then, and not before.
        course
            .follow(&world, |_, course| {
                rows.iter().all(|it| said(course, it)) && foretold.is_subset(&course.met)
            })
            .await;
    })
    .await;
    assert!(waited.is_ok(), "{policy}: {:#?} {:?}", course.said, course.met);
    assert_eq!(world.recorded(), [], "{policy}");
    assert!(!course.said.keys().any(|it| it.contains("shop/safe")), "{policy}: {:?}", course.said);
    for row in &rows {
        (row.released)(&sim);
    }
    let waited =
        tokio::time::timeout(LONG, course.follow(&world, |seen, _| seen.status == DrainStatus::Complete))
            .await;
    assert!(
        waited.is_ok(),
        "{policy}: {:#?} {:?}",
        world.text("run/zedkube/NodeDrainProgress/global.json"),
        course.met
    );
    world.recorded_count(1).await;
    let healthy = |volume: &str| {
        let own = |it: &&Value| {
            it["spec"]["volumeName"] == volume
                && it["spec"]["healthyAt"] != ""
                && it["spec"]["failedAt"] == ""
                && it["spec"]["nodeID"] != NODE
        };
        sim.list("longhorn/replicas").iter().filter(own).count()
    };
    for row in &rows {
        assert_eq!(healthy(row.name), usize::from(row.name != "strict"), "{policy}, {}", row.name);
    }
    let passed = |it: &String| {
        it.contains("shop/strict (strict): its last") || it.contains("/instance-manager-edge-node-1: ")
    };
    assert!(course.left.iter().all(passed), "{policy}: {:?}", course.left);
    assert!(course.left.iter().any(|it| it.contains("its data is elsewhere")), "{policy}: {:?}", course.left);
    crate::comes_back(&mut world, 7).await;
    let before = |it: &Value| {
        let all = &it["metadata"]["annotations"];
        all["pillar-rs/last-copy"].is_null()
            && all["pillar-rs/last-copy-pass"].is_null()
            && it["spec"]["numberOfReplicas"] == if it["metadata"]["name"] == "safe" { 2 } else { 1 }
    };
    until(&sim, VOLUMES, |all| all.iter().all(before)).await;
    world.kill_all().await;
}

#[test]
fn d14_o5_in_each_policy_of_longhorn_a_last_copy_keeps_the_node_as_foretold_until_it_is_safe() {
    for policy in storage::NodeDrainPolicy::WORDS {
        within_still(Box::pin(play(policy)));
    }
}

/// All other nodes are cordoned, so none can take a copy.
async fn deadlock() {
    let mut world = world(SimConfig::default(), "v1.7.3").await;
    let sim = world.cluster.sim().clone();
    sim.add_longhorn("block-if-contains-last-replica");
    sim.add_longhorn_volume("shop", "data", "data", &[NODE, OTHER]);
    sim.add_mounting_pod("shop", "player", OTHER, "data");
    until(&sim, VOLUMES, |all| all.iter().all(|it| it["status"]["robustness"] == "healthy")).await;
    let cordon = |flag: bool| {
        for node in [OTHER, "edge-node-3"] {
            sim.edit("nodes", "", node, |it| it["spec"]["unschedulable"] = flag.into());
        }
    };
    cordon(true);
    world.limits["zedkube"]["take_turns"] = false.into();
    world.limits["zedkube"]["preflight"] = false.into();
    let plan = plan(&world, MachinePolicy::MigrateOrShutdown).await;
    let volume = ("volume shop/data (data)".to_owned(), "all-nodes-cordoned".to_owned());
    let foretold: Vec<_> = plan.blockers.iter().map(|it| (it.pod.clone(), it.code.clone())).collect();
    assert!(foretold.contains(&volume), "{foretold:?}");
    world.begin().await;
    let mut course = Course::default();
    course.follow(&world, |_, course| course.met.contains(&volume)).await;
    assert!(course.has("shop/data (data)", "this does not end by itself"), "{:?}", course.said);
    cordon(false);
    world.recorded_count(1).await;
    world.kill_all().await;
}

#[test]
fn d14_o5_a_deadlock_of_all_nodes_cordoned_is_foretold_and_ends_with_an_uncordon() {
    within_still(Box::pin(deadlock()));
}

/// A person lets a volume pass before anything is asked for, and zedkube starts again meanwhile.
async fn passed_once() {
    let mut world = world(SimConfig::default(), "v1.7.3").await;
    let (sim, clock) = (world.cluster.sim().clone(), agent::Clock::new());
    sim.add_longhorn("block-if-contains-last-replica");
    sim.add_longhorn_volume("shop", "strict", "strict", &[NODE]);
    sim.add_mounting_pod("shop", "player", OTHER, "strict");
    set(&sim, "strict", &("/spec/dataLocality", "strict-local".into()));
    until(&sim, VOLUMES, |all| all[0]["status"]["robustness"] == "healthy").await;
    let pass = "/metadata/annotations/pillar-rs~1last-copy-pass";
    let written = || sim.list(VOLUMES)[0].pointer(pass).cloned().unwrap_or_default();
    let said = Value::from(format!("{NODE} its data is elsewhere"));
    set(&sim, "strict", &(pass, said.clone()));
    world.start_all();
    for _ in 0..2 {
        world.status(DrainStatus::NotRequested).await;
        clock.sleep_until(Some(clock.now() + Duration::from_mins(20))).await;
        assert_eq!(written(), said, "no drain has used it yet");
        world.kill(Agent::Zedkube).await;
        world.start(Agent::Zedkube);
    }
    world.ask_reboot(7);
    world.recorded_count(1).await;
    crate::comes_back(&mut world, 7).await;
    until(&sim, VOLUMES, |all| all[0].pointer(pass).is_none()).await;
    // The next one is another drain, for which another word is said.
    for again in [false, true] {
        if again {
            set(&sim, "strict", &(pass, said.clone()));
            world.recorded_count(2).await;
        } else {
            world.ask_reboot(8);
            let waits = |it: &NodeDrainProgress| it.phase == DrainPhase::WaitingForStorage;
            world.progress("a drain that waits for storage", waits).await;
        }
    }
    world.kill_all().await;
}

#[test]
fn d14_a_word_that_lets_a_volume_pass_outlives_restarts_of_an_idle_zedkube_and_counts_for_one_drain() {
    within_still(Box::pin(passed_once()));
}

/// The only copy is on our node, and a pod there uses it.
async fn stays_up(policy: &str) {
    let mut world = world(SimConfig::default(), "v1.7.3").await;
    let sim = world.cluster.sim().clone();
    sim.add_longhorn(policy);
    sim.add_longhorn_volume("shop", "data", "data", &[NODE]);
    sim.add_mounting_pod("shop", "db", NODE, "data");
    until(&sim, VOLUMES, |all| all[0]["status"]["robustness"] == "healthy").await;
    world.begin().await;
    let runs = |it: &Value| it["metadata"]["name"] == "db" && it["metadata"]["deletionTimestamp"].is_null();
    until(&sim, "pods", |all| !all.iter().any(runs)).await;
    let elsewhere = |it: &Value| {
        it["spec"]["nodeID"] != NODE && it["spec"]["healthyAt"] != "" && it["spec"]["failedAt"] == ""
    };
    assert!(
        sim.list("longhorn/replicas").iter().any(elsewhere),
        "{policy}: it was ended before its copy was whole"
    );
    world.recorded_count(1).await;
    world.kill_all().await;
}

#[test]
fn t3_a_pod_whose_volume_has_its_last_copy_here_stays_up_until_another_is_whole_in_each_policy() {
    for policy in storage::NodeDrainPolicy::WORDS {
        within_still(Box::pin(stays_up(policy)));
    }
}

/// A volume with another copy elsewhere that Longhorn moves all the same: it gives it to no other node until that is done.
async fn moved() {
    let mut world = world(SimConfig::default(), "v1.7.3").await;
    let sim = world.cluster.sim().clone();
    sim.add_longhorn("block-for-eviction");
    sim.add_longhorn_volume("shop", "data", "data", &[NODE, OTHER]);
    sim.add_mounting_pod("shop", "db", NODE, "data");
    until(&sim, VOLUMES, |all| all[0]["status"]["robustness"] == "healthy").await;
    world.begin().await;
    let runs = |it: &Value| it["metadata"]["name"] == "db" && it["metadata"]["deletionTimestamp"].is_null();
    until(&sim, "pods", |all| !all.iter().any(runs)).await;
    let ticket =
        |it: &Value| it["spec"]["attachmentTickets"].to_string().contains("volume-eviction-controller");
    assert!(!sim.list(TICKETS).iter().any(ticket), "it was ended while its volume is held here");
    let here = |it: &Value| it["spec"]["nodeID"] == NODE;
    assert!(!sim.list("longhorn/replicas").iter().any(here), "it was ended before its copy was moved");
    world.recorded_count(1).await;
    world.kill_all().await;
}

#[test]
fn t3_a_pod_stays_up_while_longhorn_moves_a_copy_of_its_volume_as_the_volume_is_held_here() {
    within_still(Box::pin(moved()));
}

/// A volume without a copy on our node, which a person has attached there in Longhorn's page.
async fn attached_by_hand() {
    let mut world = world(SimConfig::default(), "v1.7.3").await;
    let sim = world.cluster.sim().clone();
    sim.add_longhorn("block-if-contains-last-replica");
    sim.add_longhorn_volume("shop", "data", "data", &[OTHER, "edge-node-3"]);
    until(&sim, TICKETS, |all| all.len() == 1).await;
    let tickets = |tickets: Value| {
        sim.edit(TICKETS, SPACE, "data", |it| it["spec"]["attachmentTickets"] = tickets.clone());
    };
    tickets(json!({ "ui": { "id": "ui", "type": "longhorn-api", "nodeID": NODE } }));
    until(&sim, VOLUMES, |all| all[0]["status"]["currentNodeID"] == NODE).await;
    let plan = plan(&world, MachinePolicy::MigrateOrShutdown).await;
    let foretold: Vec<_> = plan.blockers.iter().map(|it| (it.pod.clone(), it.code.as_str())).collect();
    assert!(foretold.contains(&("volume shop/data (data)".to_owned(), "storage-manager")), "{foretold:?}");
    world.begin().await;
    let mut course = Course::default();
    let code = |course: &Course| -> Option<String> {
        let manager = course.met.iter().find(|it| it.0.ends_with("/instance-manager-edge-node-1"));
        manager.map(|it| it.1.clone())
    };
    course.follow(&world, |_, course| code(course).is_some()).await;
    assert_eq!(code(&course).as_deref(), Some("storage-manager"), "{:?}", course.said);
    let why = "volumes are attached through it: data; it opens once they are detached: `kubectl ";
    assert!(course.has("longhorn-system/instance-manager-edge-node-1", why), "{:?}", course.said);
    tickets(json!({}));
    world.recorded_count(1).await;
    world.kill_all().await;
}

#[test]
fn d7_o5_the_budget_of_a_manager_that_serves_a_volume_without_a_copy_here_is_explained_and_foretold() {
    within_still(Box::pin(attached_by_hand()));
}
