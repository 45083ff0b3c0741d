//! Each row of the tables of the storage sheet.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::storage::{NodeReadiness, StorageView};

/// Volume pvc-1 of claim shop/data, attached to our node n1.
pub(crate) fn finding(state: VolumeState, percent: Option<u8>) -> VolumeFinding {
    VolumeFinding {
        volume: "pvc-1".to_owned(),
        claim: ("shop".to_owned(), "data".to_owned()),
        attached: "n1".to_owned(),
        here: true,
        percent,
        wanted: 1,
        healthy: 1,
        state,
        ..VolumeFinding::default()
    }
}

const AT: &str = "2026-03-14T09:00:00Z";

/// Volume `pvc-1` of claim `shop/data`, wanted twice, and three nodes that are well; ours is n1 and cordoned.
pub(crate) fn cluster() -> StorageFacts {
    let mut facts = StorageFacts::default();
    for node in ["n1", "n2", "n3"] {
        facts.nodes.insert(node.to_owned(), NodeReadiness { ready: true, cordoned: node == "n1" });
        facts.storage_nodes.insert(
            node.to_owned(),
            object(json!({
                "spec": {"allowScheduling": true},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            })),
        );
        facts.managers.insert(
            format!("im-{node}"),
            object(json!({"spec": {"nodeID": node}, "status": {"currentState": "running"}})),
        );
    }
    facts.volumes.insert(
        "pvc-1".to_owned(),
        object(json!({
            "spec": {"numberOfReplicas": 2},
            "status": {"currentNodeID": "n1", "kubernetesStatus": {"namespace": "shop", "pvcName": "data"}},
        })),
    );
    facts
}

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn copy(facts: &mut StorageFacts, node: &str, healthy_at: &str, failed_at: &str) {
    facts.replicas.insert(
        format!("r-{node}"),
        object(json!({
            "spec": {"volumeName": "pvc-1", "nodeID": node, "healthyAt": healthy_at, "failedAt": failed_at},
        })),
    );
}

/// The volume is attached, and its engine has these copies in these modes; the one on n2 has an address.
pub(crate) fn attached(facts: &mut StorageFacts, modes: &[(&str, &str)]) {
    let modes: serde_json::Map<String, Value> =
        modes.iter().map(|(node, mode)| (format!("r-{node}"), json!(mode))).collect();
    facts.engines.insert(
        "pvc-1-e-0".to_owned(),
        object(json!({
            "spec": {"volumeName": "pvc-1", "active": true},
            "status": {
                "currentState": "running", "replicaModeMap": modes,
                "currentReplicaAddressMap": {"r-n2": "10.0.0.2:1"},
                "rebuildStatus": {"tcp://10.0.0.2:1": {"isRebuilding": true, "progress": 42}},
            },
        })),
    );
}

fn state(change: impl FnOnce(&mut StorageFacts)) -> Option<VolumeState> {
    let mut facts = cluster();
    change(&mut facts);
    let mut found = judge(&facts, "n1");
    assert!(found.len() < 2, "{found:?}");
    found.pop().map(|it| it.state)
}

#[expect(clippy::unnecessary_wraps, reason = "as the state of the only volume")]
fn last(cause: Cause) -> Option<VolumeState> {
    Some(VolumeState::LastCopy(cause))
}

#[test]
fn d14_a_detached_volume_is_judged_by_the_stamps_of_its_copies() {
    let safe = Some(VolumeState::Safe);
    let stamps = |here: (&'static str, &'static str), there: (&'static str, &'static str)| {
        state(|facts| {
            copy(facts, "n1", here.0, here.1);
            copy(facts, "n2", there.0, there.1);
        })
    };
    let table = [
        ("both healthy", stamps((AT, ""), (AT, "")), safe.clone()),
        ("the other failed", stamps((AT, ""), (AT, AT)), last(Cause::Detached)),
        ("the other was never whole", stamps((AT, ""), ("", "")), last(Cause::Detached)),
        ("ours failed", stamps((AT, AT), (AT, "")), safe),
        ("ours was never used", stamps(("", ""), (AT, "")), None),
        ("both failed", stamps((AT, AT), (AT, AT)), Some(VolumeState::Faulted)),
        ("none here", state(|facts| copy(facts, "n2", AT, "")), None),
        ("alone", state(|facts| copy(facts, "n1", AT, "")), last(Cause::Detached)),
    ];
    for (row, found, expected) in table {
        assert_eq!(found, expected, "{row}");
    }
}

#[test]
fn d14_an_attached_volume_is_judged_by_the_modes_that_its_engine_knows() {
    let modes = |all: &'static [(&'static str, &'static str)]| {
        state(|facts| {
            for (node, _) in all {
                copy(facts, node, AT, "");
            }
            attached(facts, all);
        })
    };
    let table = [
        ("both written", modes(&[("n1", "RW"), ("n2", "RW")]), Some(VolumeState::Safe)),
        ("rebuilt there, whatever its stamps", modes(&[("n1", "RW"), ("n2", "WO")]), last(Cause::Rebuilding)),
        ("broken there", modes(&[("n1", "RW"), ("n2", "ERR")]), last(Cause::Degraded)),
        ("rebuilt here", modes(&[("n1", "WO"), ("n2", "RW")]), Some(VolumeState::Safe)),
        ("broken here", modes(&[("n1", "ERR"), ("n2", "RW")]), Some(VolumeState::Safe)),
        ("all broken", modes(&[("n1", "ERR"), ("n2", "ERR")]), Some(VolumeState::Faulted)),
        (
            "degraded with two elsewhere",
            modes(&[("n1", "ERR"), ("n2", "RW"), ("n3", "RW")]),
            Some(VolumeState::Safe),
        ),
    ];
    for (row, found, expected) in table {
        assert_eq!(found, expected, "{row}");
    }
}

#[test]
fn d14_a_copy_elsewhere_counts_only_on_a_node_that_can_serve_it() {
    let with = |change: fn(&mut StorageFacts)| {
        state(|facts| {
            copy(facts, "n1", AT, "");
            copy(facts, "n2", AT, "");
            change(facts);
        })
    };
    let behind = |why: &str| last(Cause::Behind(vec![format!("node n2 {why}")]));
    let table = [
        (with(|_| ()), Some(VolumeState::Safe)),
        (with(|it| it.nodes.get_mut("n2").unwrap().cordoned = true), behind("is cordoned")),
        (with(|it| it.nodes.get_mut("n2").unwrap().ready = false), behind("is not Ready")),
        (with(|it| it.nodes.retain(|node, _| node != "n2")), behind("is not in the cluster")),
        (
            with(|it| it.storage_nodes.get_mut("n2").unwrap().status.conditions.clear()),
            behind("is not Ready for Longhorn"),
        ),
        (
            with(|it| it.managers.get_mut("im-n2").unwrap().status.current_state = "error".to_owned()),
            behind("has no running instance manager"),
        ),
        (
            with(|it| {
                it.replicas.get_mut("r-n2").unwrap().metadata = object(json!({"deletionTimestamp": AT}));
            }),
            last(Cause::Detached),
        ),
    ];
    for (number, (found, expected)) in table.into_iter().enumerate() {
        assert_eq!(found, expected, "row {number}");
    }
}

fn volume(facts: &mut StorageFacts) -> &mut Volume {
    facts.volumes.get_mut("pvc-1").unwrap()
}

fn cordon(facts: &mut StorageFacts, nodes: &[&str]) {
    for node in nodes {
        facts.nodes.get_mut(*node).unwrap().cordoned = true;
    }
}

#[test]
fn d14_why_there_is_no_other_copy() {
    let with = |change: fn(&mut StorageFacts)| {
        state(|facts| {
            facts.volumes.get_mut("pvc-1").unwrap().spec.number_of_replicas = 1;
            copy(facts, "n1", AT, "");
            attached(facts, &[("n1", "RW")]);
            change(facts);
        })
    };
    let table = [
        ("as many as wanted", with(|_| ()), Cause::Enough),
        ("one is missing", with(|it| volume(it).spec.number_of_replicas = 2), Cause::Degraded),
        (
            "strict-local",
            with(|it| volume(it).spec.data_locality = "strict-local".to_owned()),
            Cause::StrictLocal,
        ),
        ("migrates", with(|it| volume(it).spec.migration_node = "n2".to_owned()), Cause::Migrating),
        ("one other cordoned", with(|it| cordon(it, &["n2"])), Cause::Enough),
        ("all others cordoned", with(|it| cordon(it, &["n2", "n3"])), Cause::AllCordoned),
        (
            "no other takes copies",
            with(|it| it.storage_nodes.retain(|node, _| node == "n1")),
            Cause::NoOtherNode,
        ),
        (
            "no place",
            with(|it| {
                volume(it).status.conditions = vec![object(json!({
                    "type": "Scheduled", "status": "False", "message": "insufficient storage",
                }))];
            }),
            Cause::NoPlace("insufficient storage".to_owned()),
        ),
        ("detached", with(|it| it.engines.clear()), Cause::Detached),
    ];
    for (row, found, cause) in table {
        assert_eq!(found, last(cause), "{row}");
    }
}

/// The disk of `node` has the copy there and this much of 1000 bytes free.
fn disk(facts: &mut StorageFacts, node: &str, available: i64) {
    let status = &mut facts.storage_nodes.get_mut(node).unwrap().status;
    let disk = json!({
        "storageMaximum": 1000, "storageAvailable": available, "scheduledReplica": { format!("r-{node}"): 7 },
    });
    status.disk_status.insert("default".to_owned(), object(disk));
}

#[test]
fn d14_a_copy_that_is_rebuilt_on_a_full_disk_is_no_copy_that_comes() {
    let rebuilt = |node: &'static str, available| {
        state(|facts| {
            copy(facts, "n1", AT, "");
            copy(facts, "n2", "", "");
            attached(facts, &[("n1", "RW"), ("n2", "WO")]);
            disk(facts, node, available);
        })
    };
    assert_eq!(rebuilt("n2", 10), last(Cause::Rebuilding));
    assert_eq!(rebuilt("n2", 9), last(Cause::Full(vec!["node n2".to_owned()])));
    // Our own disk holds a rebuild up once that has failed.
    assert_eq!(rebuilt("n1", 9), last(Cause::Rebuilding));
    let failed = state(|facts| {
        copy(facts, "n1", AT, "");
        copy(facts, "n2", "", AT);
        facts.replicas.get_mut("r-n2").unwrap().status.conditions =
            vec![object(json!({"type": "RebuildFailed", "status": "True", "message": "no space left"}))];
        attached(facts, &[("n1", "RW")]);
        disk(facts, "n1", 9);
    });
    assert_eq!(failed, last(Cause::Full(vec!["node n1".to_owned()])));
}

#[test]
fn d14_a_full_disk_is_no_cause_for_a_copy_that_is_healthy_there_or_that_nobody_rebuilds() {
    let healthy = |out: &'static [&'static str]| {
        state(|facts| {
            copy(facts, "n1", AT, "");
            copy(facts, "n2", AT, "");
            attached(facts, &[("n1", "RW"), ("n2", "RW")]);
            disk(facts, "n2", 9);
            cordon(facts, out);
        })
    };
    assert_eq!(healthy(&["n2"]), last(Cause::Behind(vec!["node n2 is cordoned".to_owned()])));
    assert_eq!(healthy(&["n1", "n2", "n3"]), last(Cause::AllCordoned));
    let old = state(|facts| {
        copy(facts, "n1", AT, "");
        copy(facts, "n2", "", AT);
        copy(facts, "n3", "", "");
        attached(facts, &[("n1", "RW"), ("n3", "WO")]);
        disk(facts, "n2", 9);
    });
    assert_eq!(old, last(Cause::Rebuilding));
}

/// `pvc-1` with 2 shards of data and 1 of parity on these nodes, in these states; so many have failed by its group.
fn sharded(facts: &mut StorageFacts, failed: u32, shards: &[(&str, &str)]) {
    volume(facts).spec.data_layout.kind = "sharded".to_owned();
    let spec = json!({"volumeName": "pvc-1", "dataChunks": 2, "parityChunks": 1});
    let group = json!({"spec": spec, "status": {"state": "degraded", "failedCount": failed}});
    facts.shard_groups.insert("pvc-1".to_owned(), object(group));
    for (slot, (node, state)) in shards.iter().enumerate() {
        let spec = json!({"shardGroupName": "pvc-1", "slotIndex": slot, "nodeID": node});
        let status = json!({"state": state, "rebuildProgress": if *state == "replacing" { 30 } else { 0 }});
        facts.shards.insert(format!("pvc-1-{slot}"), object(json!({"spec": spec, "status": status})));
    }
}

#[test]
fn j3_a_shard_here_is_not_spared_once_the_parity_of_its_group_is_used_up() {
    const ALL: [(&str, &str); 3] = [("n1", "normal"), ("n2", "normal"), ("n3", "normal")];
    const ONE_FAILED: [(&str, &str); 3] = [("n1", "normal"), ("n2", "failed"), ("n3", "normal")];
    let with = |failed, shards: &'static [(&'static str, &'static str)], change: Change| {
        state(|facts| {
            volume(facts).status.current_node.clear();
            sharded(facts, failed, shards);
            change(facts);
        })
    };
    let parity = |left, behind: &[&str], rebuilds| {
        last(Cause::Parity { left, behind: behind.iter().map(|it| (*it).to_owned()).collect(), rebuilds })
    };
    let cordoned: Change = |it| cordon(it, &["n2"]);
    let rebuilds: Change = |it| it.shard_groups.get_mut("pvc-1").unwrap().status.rebuild_in_progress = true;
    let safe = Some(VolumeState::Safe);
    let table = [
        ("healthy", with(0, &ALL, |_| ()), safe.clone()),
        ("parity used up elsewhere", with(1, &ONE_FAILED, |_| ()), parity(1, &[], false)),
        ("as the group knows alone", with(1, &ALL, |_| ()), parity(1, &[], false)),
        ("another node is cordoned", with(0, &ALL, cordoned), parity(1, &["node n2 is cordoned"], false)),
        (
            "one is rebuilt, which the group counts no more",
            with(0, &[("n1", "normal"), ("n2", "replacing"), ("n3", "normal")], rebuilds),
            parity(1, &[], true),
        ),
        (
            "two here",
            with(0, &[("n1", "normal"), ("n1", "normal"), ("n3", "normal")], |_| ()),
            parity(1, &[], false),
        ),
        ("ours has failed", with(1, &[("n1", "failed"), ("n2", "normal"), ("n3", "normal")], |_| ()), safe),
        (
            "too few are healthy",
            with(2, &[("n1", "normal"), ("n2", "failed"), ("n3", "failed")], |_| ()),
            Some(VolumeState::Faulted),
        ),
        ("never used", with(0, &[("n1", ""), ("n2", ""), ("n3", "")], |_| ()), None),
        ("none here", with(1, &[("n2", "failed"), ("n3", "normal"), ("n3", "normal")], |_| ()), None),
        ("no group", with(1, &ONE_FAILED, |it| it.shard_groups.clear()), Some(VolumeState::Unknown)),
    ];
    for (row, found, expected) in table {
        assert_eq!(found, expected, "{row}");
    }
}

#[test]
fn j3_a_volume_that_is_attached_here_without_a_replica_and_a_known_shard_is_not_safe_but_unknown() {
    let unknown = Some(VolumeState::Unknown);
    assert_eq!(state(|_| ()), unknown);
    assert_eq!(state(|it| volume(it).spec.data_layout.kind = "sharded".to_owned()), unknown);
    assert_eq!(state(|it| volume(it).status.current_node = "n2".to_owned()), None);
    assert_eq!(state(|it| copy(it, "n2", AT, "")), None, "its copy is elsewhere");
    assert_eq!(state(|it| sharded(it, 0, &[("n2", "normal"), ("n3", "normal")])), Some(VolumeState::Safe));
    // Not that no copy is healthy, where Longhorn keeps it attached for a move.
    let kept = |it: &mut StorageFacts| {
        let tickets = json!({"a": {"type": "volume-eviction-controller", "nodeID": "n1"}});
        let ticket = object(json!({"spec": {"attachmentTickets": tickets}}));
        it.attachments.insert("pvc-1".to_owned(), ticket);
        volume(it).status.current_node.clear();
    };
    assert_eq!(state(kept), unknown);
    let mut facts = cluster();
    let found = judge(&facts, "n1").remove(0);
    assert!(found.words(&NodeDrainPolicy::EvictLast).contains("no replica and no shard"));
    assert!(found.next_step().contains("volumes.longhorn.io pvc-1 -o yaml"), "{}", found.next_step());
    assert_eq!(found.keeps_user(&NodeDrainPolicy::EvictLast), None, "it is named, and holds nothing");
    let before = |facts: &StorageFacts| VolumesBefore::of(&judge(facts, "n1")).unwrap().volumes["pvc-1"];
    assert!(!before(&facts));
    volume(&mut facts).status.robustness = "healthy".to_owned();
    assert!(before(&facts), "the gate after the boot waits for it");
}

#[test]
fn j3_the_words_of_a_sharded_volume_name_its_shards_and_the_policy_that_moves_them() {
    let mut facts = cluster();
    sharded(&mut facts, 1, &[("n1", "normal"), ("n2", "replacing"), ("n3", "normal")]);
    let words = |facts: &StorageFacts, policy: NodeDrainPolicy| {
        judge(&StorageFacts { policy: policy.clone(), ..facts.clone() }, "n1").remove(0).words(&policy)
    };
    let short = "its shards here cannot be spared: 1 of 3 would be left, and 2 are needed";
    let by_cordon = "a cordon moves shards under node-drain-policy block-for-eviction only";
    assert_eq!(words(&facts, NodeDrainPolicy::EvictLast), format!("{short}; {by_cordon}"));
    let healthy = "Longhorn moves shards of a healthy group only";
    assert_eq!(words(&facts, NodeDrainPolicy::EvictAll), format!("{short}; {healthy}"));
    let found = judge(&facts, "n1").remove(0);
    let step = found.next_step();
    assert!(step.contains("get shardgroups,shards -l longhornvolume=pvc-1"), "{step}");
    assert_eq!((found.is_last(), found.is_whole(), found.here), (true, false, true));
    let code = found.keeps_user(&NodeDrainPolicy::EvictLast).map(|it| it.0);
    assert_eq!(code, Some(BlockCode::LastCopy));
    facts.shard_groups.get_mut("pvc-1").unwrap().status.rebuild_in_progress = true;
    assert_eq!(words(&facts, NodeDrainPolicy::EvictLast), format!("{short}; one is being rebuilt, 30 %"));
    // Longhorn's own budget knows nothing of shards.
    let budget = StorageView::of(&facts, "n1").managers.remove("im-n1").unwrap();
    assert_eq!((budget.why.as_str(), budget.by.len()), ("nothing keeps it any more", 0));
    // Its instance manager ends before the drain does.
    sharded(&mut facts, 1, &[("n1", "failed"), ("n2", "normal"), ("n3", "normal")]);
    assert!(VolumesBefore::of(&judge(&facts, "n1")).unwrap().volumes["pvc-1"]);
    sharded(&mut facts, 1, &[("n1", "normal"), ("n2", "failed"), ("n3", "normal")]);
    assert!(!VolumesBefore::of(&judge(&facts, "n1")).unwrap().volumes["pvc-1"]);
    // Moved off by the cordon, its user stays meanwhile.
    sharded(&mut facts, 0, &[("n1", "normal"), ("n2", "normal"), ("n3", "normal")]);
    let moves = |policy| judge(&StorageFacts { policy, ..facts.clone() }, "n1").remove(0).moves;
    assert_eq!([NodeDrainPolicy::EvictAll, NodeDrainPolicy::EvictLast].map(moves), [true, false]);
    sharded(&mut facts, 2, &[("n1", "normal"), ("n2", "failed"), ("n3", "failed")]);
    assert_eq!(
        words(&facts, NodeDrainPolicy::EvictLast),
        "too few of its shards are healthy: 1, and 2 are needed"
    );
}

#[test]
fn d14_a_deadlock_of_all_nodes_cordoned_is_named_with_copies_elsewhere_too() {
    let found = state(|facts| {
        copy(facts, "n1", AT, "");
        copy(facts, "n2", AT, "");
        for node in facts.nodes.values_mut() {
            node.cordoned = true;
        }
    });
    assert_eq!(found, last(Cause::AllCordoned));
}

#[test]
fn d14_a_finding_has_the_claim_the_place_and_the_percent() {
    let mut facts = cluster();
    copy(&mut facts, "n1", AT, "");
    copy(&mut facts, "n2", "", "");
    attached(&mut facts, &[("n1", "RW"), ("n2", "WO")]);
    let found = judge(&facts, "n1").remove(0);
    assert_eq!((found.to_string().as_str(), found.attached.as_str()), ("shop/data (pvc-1)", "n1"));
    assert_eq!(
        found.words(&NodeDrainPolicy::BlockLast),
        "the last healthy copy is here; another is being rebuilt, 42 %"
    );
    for (word, named) in [("pvc-1", true), ("shop/data", true), ("data", false), ("shop/other", false)] {
        assert_eq!(found.is_named(word), named, "{word}");
    }
    disk(&mut facts, "n1", 9);
    volume(&mut facts).status.kubernetes_status.workloads_status = vec![
        object(
            json!({"workloadType": "VirtualMachineInstance", "workloadName": "db", "podStatus": "Running"}),
        ),
        object(
            json!({"workloadType": "VirtualMachineInstance", "workloadName": "off", "podStatus": "Succeeded"}),
        ),
        object(json!({"workloadType": "ReplicaSet", "workloadName": "web", "podStatus": "Running"})),
    ];
    let found = judge(&facts, "n1").remove(0);
    assert_eq!((found.full, found.machines), (vec!["n1".to_owned()], vec!["shop/db".to_owned()]));
    let safe = judge(&facts, "n3");
    assert_eq!(safe, [], "no copy there");
}

type Change = fn(&mut StorageFacts);

#[test]
fn what_keeps_the_budget_of_an_instance_manager_follows_the_policy() {
    let closed = |policy: &str, change: fn(&mut StorageFacts)| {
        let mut facts = StorageFacts { policy: NodeDrainPolicy::parse(policy), ..cluster() };
        copy(&mut facts, "n1", AT, "");
        change(&mut facts);
        StorageView::of(&facts, "n1").managers.remove("im-n1").unwrap().why
    };
    let last = "last healthy copies are on this node: shop/data (pvc-1)";
    let nothing = "nothing keeps it any more";
    let safe: fn(&mut StorageFacts) = |it| copy(it, "n2", AT, "");
    let stopped: fn(&mut StorageFacts) = |it| {
        let copy = it.replicas.get_mut("r-n1").unwrap();
        (copy.spec.desire_state, copy.status.current_state) = ("stopped".to_owned(), "stopped".to_owned());
    };
    let runs: fn(&mut StorageFacts) = |it| {
        attached(it, &[("n1", "RW")]);
        it.managers.get_mut("im-n1").unwrap().status =
            object(json!({"currentState": "running", "instanceEngines": {"pvc-1-e-0": {}}}));
    };
    let table: [(&str, Change, String); 9] = [
        ("", |_| (), format!("node-drain-policy block-if-contains-last-replica: {last}")),
        ("", safe, nothing.to_owned()),
        (
            "block-for-eviction",
            safe,
            "node-drain-policy block-for-eviction: copies are still on this node: shop/data (pvc-1)"
                .to_owned(),
        ),
        (
            "block-for-eviction-if-contains-last-replica",
            |_| (),
            format!("node-drain-policy block-for-eviction-if-contains-last-replica: {last}"),
        ),
        ("block-for-eviction-if-contains-last-replica", safe, nothing.to_owned()),
        (
            "allow-if-replica-is-stopped",
            |_| (),
            format!("node-drain-policy allow-if-replica-is-stopped: {last}"),
        ),
        ("allow-if-replica-is-stopped", stopped, nothing.to_owned()),
        ("always-allow", |_| (), nothing.to_owned()),
        ("always-allow", runs, "volumes are attached through it: pvc-1".to_owned()),
    ];
    for (number, (policy, change, expected)) in table.into_iter().enumerate() {
        assert_eq!(closed(policy, change), expected, "row {number}");
    }
}
