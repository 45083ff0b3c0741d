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

fn volume(facts: &mut StorageFacts) -> &mut Volume {
    facts.volumes.get_mut("pvc-1").unwrap()
}

fn cordon(facts: &mut StorageFacts, nodes: &[&str]) {
    for node in nodes {
        facts.nodes.get_mut(*node).unwrap().cordoned = true;
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

fn scheduled(why: &str) -> Vec<kubeapi::slim::Condition> {
    vec![object(json!({"type": "Scheduled", "status": "False", "message": why}))]
}

/// One fact, as `n2=failed` of a copy, `engine=n1:RW,n2:WO` of an attached volume, or `full=n2`.
fn tell(facts: &mut StorageFacts, fact: &str) {
    let (what, value) = fact.split_once('=').unwrap();
    let failed = vec![object(json!({"type": "RebuildFailed", "status": "True", "message": "no space left"}))];
    match what {
        "engine" => {
            let modes: Vec<(&str, &str)> = value.split(',').filter_map(|it| it.split_once(':')).collect();
            attached(facts, &modes);
        }
        "cordoned" => cordon(facts, &value.split(',').collect::<Vec<_>>()),
        "silent" => facts.nodes.get_mut(value).unwrap().ready = false,
        "gone" => facts.nodes.retain(|node, _| node != value),
        "unready" => facts.storage_nodes.get_mut(value).unwrap().status.conditions.clear(),
        "only" => facts.storage_nodes.retain(|node, _| node == value),
        "stopped" => {
            facts.managers.get_mut(&format!("im-{value}")).unwrap().status.current_state = "error".to_owned();
        }
        "deleted" => {
            facts.replicas.get_mut(&format!("r-{value}")).unwrap().metadata =
                object(json!({"deletionTimestamp": AT}));
        }
        "unbuilt" => facts.replicas.get_mut(&format!("r-{value}")).unwrap().status.conditions = failed,
        "full" => disk(facts, value, 9),
        "roomy" => disk(facts, value, 10),
        "wanted" => volume(facts).spec.number_of_replicas = value.parse().unwrap(),
        "locality" => volume(facts).spec.data_locality = value.to_owned(),
        "migrates" => volume(facts).spec.migration_node = value.to_owned(),
        "unplaced" => volume(facts).status.conditions = scheduled(value),
        node => {
            let (healthy, failed) = match value {
                "healthy" => (AT, ""),
                "failed" => (AT, AT),
                "broken" => ("", AT),
                "new" => ("", ""),
                other => panic!("{other}"),
            };
            copy(facts, node, healthy, failed);
        }
    }
}

/// What it is, the facts, what they mean for n1.
const STATES: &str = r#"
# Detached: by the stamps of its copies.
both healthy | n1=healthy n2=healthy | Safe
the other failed | n1=healthy n2=failed | LastCopy(Detached)
the other was never whole | n1=healthy n2=new | LastCopy(Detached)
ours failed | n1=failed n2=healthy | Safe
ours was never used | n1=new n2=healthy | none
both failed | n1=failed n2=failed | Faulted
none here | n2=healthy | none
alone | n1=healthy | LastCopy(Detached)
# Attached: by the modes that its engine knows.
both written | n1=healthy n2=healthy engine=n1:RW,n2:RW | Safe
rebuilt there, whatever its stamps | n1=healthy n2=healthy engine=n1:RW,n2:WO | LastCopy(Rebuilding)
broken there | n1=healthy n2=healthy engine=n1:RW,n2:ERR | LastCopy(Degraded)
rebuilt here | n1=healthy n2=healthy engine=n1:WO,n2:RW | Safe
broken here | n1=healthy n2=healthy engine=n1:ERR,n2:RW | Safe
all broken | n1=healthy n2=healthy engine=n1:ERR,n2:ERR | Faulted
degraded with two elsewhere | n1=healthy n2=healthy n3=healthy engine=n1:ERR,n2:RW,n3:RW | Safe
# A copy elsewhere counts only on a node that can serve it.
cordoned | n1=healthy n2=healthy cordoned=n2 | LastCopy(Behind(["node n2 is cordoned"]))
not Ready | n1=healthy n2=healthy silent=n2 | LastCopy(Behind(["node n2 is not Ready"]))
gone | n1=healthy n2=healthy gone=n2 | LastCopy(Behind(["node n2 is not in the cluster"]))
Longhorn is not Ready there | n1=healthy n2=healthy unready=n2 | LastCopy(Behind(["node n2 is not Ready for Longhorn"]))
no manager | n1=healthy n2=healthy stopped=n2 | LastCopy(Behind(["node n2 has no running instance manager"]))
being deleted | n1=healthy n2=healthy deleted=n2 | LastCopy(Detached)
a deadlock, with a copy elsewhere too | n1=healthy n2=healthy cordoned=n1,n2,n3 | LastCopy(AllCordoned)
# Why there is no other copy.
as many as wanted | wanted=1 n1=healthy engine=n1:RW | LastCopy(Enough)
one is missing | wanted=2 n1=healthy engine=n1:RW | LastCopy(Degraded)
strict-local | wanted=1 n1=healthy engine=n1:RW locality=strict-local | LastCopy(StrictLocal)
migrates | wanted=1 n1=healthy engine=n1:RW migrates=n2 | LastCopy(Migrating)
one other cordoned | wanted=1 n1=healthy engine=n1:RW cordoned=n2 | LastCopy(Enough)
all others cordoned | wanted=1 n1=healthy engine=n1:RW cordoned=n2,n3 | LastCopy(AllCordoned)
no other takes copies | wanted=1 n1=healthy engine=n1:RW only=n1 | LastCopy(NoOtherNode)
no place | wanted=1 n1=healthy engine=n1:RW unplaced=storage | LastCopy(NoPlace("storage"))
# One that is rebuilt on a full disk is no copy that comes; our own disk holds a rebuild up once that has failed.
a disk with room | n1=healthy n2=new engine=n1:RW,n2:WO roomy=n2 | LastCopy(Rebuilding)
a full disk | n1=healthy n2=new engine=n1:RW,n2:WO full=n2 | LastCopy(Full(["node n2"]))
ours is full | n1=healthy n2=new engine=n1:RW,n2:WO full=n1 | LastCopy(Rebuilding)
ours is full, the rebuild failed | n1=healthy n2=broken unbuilt=n2 engine=n1:RW full=n1 | LastCopy(Full(["node n1"]))
# A full disk is no cause for a copy that is healthy there or that nobody rebuilds.
healthy there | n1=healthy n2=healthy engine=n1:RW,n2:RW full=n2 cordoned=n2 | LastCopy(Behind(["node n2 is cordoned"]))
healthy there, all cordoned | n1=healthy n2=healthy engine=n1:RW,n2:RW full=n2 cordoned=n1,n2,n3 | LastCopy(AllCordoned)
an old one there | n1=healthy n2=broken n3=new engine=n1:RW,n3:WO full=n2 | LastCopy(Rebuilding)
"#;

#[test]
fn d14_what_is_known_of_the_copies_of_a_volume_says_what_it_means_for_our_node() {
    for row in STATES.trim().lines().filter(|it| !it.starts_with('#')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, facts, expected] = cells.as_slice() else { panic!("{row}") };
        let found = state(|it| {
            for fact in facts.split(' ') {
                tell(it, fact);
            }
        });
        assert_eq!(found.map_or("none".to_owned(), |it| format!("{it:?}")), *expected, "{row}");
    }
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
        let behind = behind.iter().map(|it| (*it).to_owned()).collect();
        Some(VolumeState::LastCopy(Cause::Parity { left, behind, rebuilds }))
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
    let user = |kind: &str, name: &str, status: &str| {
        object(json!({"workloadType": kind, "workloadName": name, "podStatus": status}))
    };
    volume(&mut facts).status.kubernetes_status.workloads_status = vec![
        user("VirtualMachineInstance", "db", "Running"),
        user("VirtualMachineInstance", "off", "Succeeded"),
        user("ReplicaSet", "web", "Running"),
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
    let nothing = "nothing keeps it any more";
    let last = "last healthy copies are on this node: shop/data (pvc-1)";
    let safe: Change = |it| copy(it, "n2", AT, "");
    let stopped: Change = |it| {
        let copy = it.replicas.get_mut("r-n1").unwrap();
        (copy.spec.desire_state, copy.status.current_state) = ("stopped".to_owned(), "stopped".to_owned());
    };
    let runs: Change = |it| {
        attached(it, &[("n1", "RW")]);
        it.managers.get_mut("im-n1").unwrap().status =
            object(json!({"currentState": "running", "instanceEngines": {"pvc-1-e-0": {}}}));
    };
    let [block, evict_last, evict, stops, allow] = NodeDrainPolicy::WORDS;
    let table: [(&str, Change, &str); 9] = [
        ("", |_| (), last),
        ("", safe, nothing),
        (evict, safe, "copies are still on this node: shop/data (pvc-1)"),
        (evict_last, |_| (), last),
        (evict_last, safe, nothing),
        (stops, |_| (), last),
        (stops, stopped, nothing),
        (allow, |_| (), nothing),
        (allow, runs, "volumes are attached through it: pvc-1"),
    ];
    for (number, (policy, change, why)) in table.into_iter().enumerate() {
        let word = if policy.is_empty() { block } else { policy };
        let by_policy = format!("node-drain-policy {word}: {why}");
        let expected = if why.contains("on this node") { by_policy } else { why.to_owned() };
        assert_eq!(closed(policy, change), expected, "row {number}");
    }
}
