//! What hangs on a node, and where it runs by now.

use kubeapi::slim::Pod;
use kubeapi::slim::longhorn::Volume;
use serde_json::{Value, json};
use topics::HeldWork;

use super::placed;
use crate::machines::tests::{machine, settings, vm};
use crate::machines::{MachineOwner, MachinesView, VirtualMachine};
use crate::plan::forecast::Survey;
use crate::plan::forecast::tests::{on_node, pinned, survey};
use crate::plan::tier::tests::pod;
use crate::plan::{PodFacts, PodOwner};
use crate::storage::{self, StorageFacts, StorageView};

const AT: &str = "2026-03-14T09:00:00Z";

/// Its work, each with why it waits.
fn work(survey: &Survey) -> Vec<String> {
    survey.work().iter().map(|it| format!("{it}: {}", it.waits)).collect()
}

/// What Longhorn has of `shop/data`, attached on n1 which is off: no engine runs, and the stamps of its copies say what they are.
fn stored(change: impl FnOnce(&mut StorageFacts)) -> StorageView {
    let mut facts = storage::cluster();
    facts.nodes.entry("n1".to_owned()).and_modify(|it| (it.ready, it.cordoned) = (false, false));
    change(&mut facts);
    StorageView::of(&facts, "n1")
}

#[test]
fn f11_a_machine_hangs_on_its_node_with_why_it_would_not_run_elsewhere() {
    let owned = |owner| VirtualMachine { owner, ..machine("till") };
    let none = || Err::<String, _>("no node fits".to_owned());
    let mut table = vec![
        ("goes elsewhere", machine("till"), Some("")),
        ("nobody's", owned(MachineOwner::Nobody), Some("nothing starts it again")),
        ("of a set", owned(MachineOwner::Other("x/y".to_owned())), Some("")),
        ("of a machine that was not read", owned(MachineOwner::Machine(None)), Some("")),
        ("again after it failed", owned(vm("till", "RerunOnFailure")), Some("")),
        ("no other node", VirtualMachine { start: none(), ..machine("till") }, Some("no node fits")),
        // Its guest has the model of its node's CPU, and starts on any other.
        ("cannot be migrated", VirtualMachine { target: none(), ..machine("till") }, Some("")),
        ("no room", VirtualMachine { crowded: none().err(), ..machine("till") }, Some("no node fits")),
        ("over", VirtualMachine { over: true, ..machine("till") }, None),
        ("on another node", VirtualMachine { here: false, ..machine("till") }, None),
    ];
    let stays = ["Manual", "Once", "Halted"]
        .map(|it| (it, format!("nothing starts it again: its runStrategy is {it}")));
    table.extend(stays.iter().map(|(it, why)| (*it, owned(vm("till", it)), Some(why.as_str()))));
    for (what, it, expected) in table {
        let view = MachinesView { settings: settings(), unusual: vec![], machines: vec![it], running: 0 };
        let launcher = PodFacts {
            labels: [("kubevirt.io".to_owned(), "virt-launcher".to_owned())].into(),
            claims: vec!["data".to_owned()],
            ..pod("virt-launcher-till")
        };
        let all = Survey { machines: Some(view), ..survey(vec![on_node(launcher)], vec![]) };
        let expected: Vec<String> =
            expected.map(|waits| format!("machine shop/till: {waits}")).into_iter().collect();
        assert_eq!(work(&all), expected, "{what}");
    }
}

#[test]
fn f11_a_pod_hangs_on_its_node_with_a_claim_or_where_the_whole_cluster_needs_it() {
    let with = |name: &str, change: fn(&mut PodFacts)| {
        let mut facts = PodFacts { claims: vec!["data".to_owned()], ..pod(name) };
        change(&mut facts);
        on_node(facts)
    };
    let system = |it: &mut PodFacts| {
        (it.pod.namespace, it.claims) = ("kube-system".to_owned(), vec![]);
    };
    let mut far = pinned("far");
    far.facts.claims = vec!["data".to_owned()];
    let pods = vec![
        with("db-0", |it| it.workload = "StatefulSet/db".to_owned()),
        with("alone", |it| (it.owner, it.workload) = (PodOwner::Nobody, String::new())),
        with("ending", |it| it.terminating = true),
        with("web-5d7f-x2x", |it| it.claims.clear()),
        with("agent", |it| it.owner = PodOwner::DaemonSet),
        with("static", |it| it.owner = PodOwner::Kubelet),
        with("done", |it| it.finished = true),
        with("coredns-6b9c-abcde", system),
        far,
    ];
    assert_eq!(
        work(&survey(pods, vec![])),
        [
            "pod shop/db-0: ",
            "pod shop/alone: nothing makes it again",
            "pod shop/ending: ",
            "pod kube-system/coredns-6b9c-abcde: ",
            "pod shop/far: node n2 does not fit volume pv-1",
        ]
    );
}

#[test]
fn f9_the_only_good_copy_is_waited_for_and_one_with_a_stale_copy_elsewhere_is_lone_also_once_the_node_is_off()
{
    let volume = |facts: &mut StorageFacts, change: fn(&mut Volume)| {
        facts.volumes.entry("pvc-1".to_owned()).and_modify(change);
    };
    let with = |copy_failed: Option<&str>, change: &dyn Fn(&mut StorageFacts)| {
        Some(stored(|it| {
            storage::copy(it, "n1", AT, "");
            if let Some(failed) = copy_failed {
                storage::copy(it, "n2", AT, failed);
            }
            change(it);
        }))
    };
    let off = |it: &mut StorageFacts| _ = it.nodes.entry("n2".to_owned()).and_modify(|it| it.ready = false);
    let one = |it: &mut StorageFacts| volume(it, |it| it.spec.number_of_replicas = 1);
    let away = |it: &mut StorageFacts| volume(it, |it| it.status.current_node = "n3".to_owned());
    // The volume, whether its pod waits for the node, whether a person has to pass it.
    let table = [
        ("a good copy elsewhere", with(Some(""), &|_| ()), (false, false)),
        ("a failed one elsewhere", with(Some(AT), &|_| ()), (true, true)),
        ("the other is on a node that is off too", with(Some(""), &off), (true, true)),
        ("one only, as it is to be", with(None, &one), (true, false)),
        ("attached elsewhere", with(Some(AT), &away), (true, false)),
        ("no storage of this kind", None, (false, false)),
    ];
    for (what, storage, expected) in table {
        let data = PodFacts { claims: vec!["data".to_owned()], ..pod("db-0") };
        let other = PodFacts { claims: vec!["else".to_owned()], ..pod("else-0") };
        let all = Survey { storage, ..survey(vec![on_node(data), on_node(other)], vec![]) };
        let waits = "pod shop/db-0: the only good copy of volume shop/data (pvc-1) is on n1";
        let found = (work(&all)[0] == waits, all.lone() == ["shop/data (pvc-1)"]);
        assert_eq!(found, expected, "{what}: {:?}, {:?}", work(&all), all.lone());
        assert_eq!(work(&all)[1], "pod shop/else-0: ", "{what}");
    }
}

/// A pod of this name and maker on a node, Ready or in this phase.
fn there(name: &str, maker: &str, node: &str, state: &str) -> Pod {
    let (kind, of) = maker.split_once('/').unwrap_or_default();
    let owners = match maker {
        "" => json!([]),
        _ => json!([{ "apiVersion": "v1", "kind": kind, "name": of, "uid": "o", "controller": true }]),
    };
    let volumes = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }]);
    let phase = if matches!(state, "Failed" | "Pending") { state } else { "Running" };
    let ready = if state == "Ready" || state == "Ending" { "True" } else { "False" };
    let ends = if state == "Ending" { json!(AT) } else { Value::Null };
    let launcher = if kind == "VirtualMachineInstance" { "virt-launcher" } else { "no" };
    let namespace = if name.starts_with("coredns") { "kube-system" } else { "shop" };
    let conditions = match state {
        "Pending" => {
            json!([{ "type": "PodScheduled", "status": "False", "message": "0/2 nodes are available" }])
        }
        _ => json!([{ "type": "Ready", "status": ready }]),
    };
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": namespace, "uid": name, "ownerReferences": owners,
            "labels": { "kubevirt.io": launcher }, "deletionTimestamp": ends,
        },
        "spec": { "nodeName": node, "volumes": if name.starts_with("coredns") { json!([]) } else { volumes } },
        "status": { "phase": phase, "conditions": conditions },
    }))
    .unwrap()
}

/// What it is, the work, the pods that are there, where it runs and words of why it does not. `GUEST` is what makes a
/// machine's pod.
const PLACED: &str = "
machine elsewhere | till | vl-2 GUEST/till n2 Ready | n2 |
another machine | till | vl-2 GUEST/desk n2 Ready | | nothing has started it again yet
its old launcher is there, the new one runs | till | vl-1 GUEST/till n1 Ending, vl-2 GUEST/till n2 Ready | n2 |
the old one only | till | vl-1 GUEST/till n1 Ending | | its pod shop/vl-1 on n1 is not gone yet
it failed | till | vl-1 GUEST/till n1 Failed | | nothing has started it again yet
a machine with the claim is no pod | db-0 | vl-2 GUEST/till n2 Ready | | nothing has started it again yet
pod of its name | db-0 | db-0 StatefulSet/db n3 Ready | n3 |
another name with its claim | db-0 | db-7 StatefulSet/db n3 Ready | n3 |
it ends elsewhere | db-0 | db-0 StatefulSet/db n3 Ending | | pod shop/db-0 on node n3 is ending since
it starts | db-0 | db-0 StatefulSet/db n3 Starting | | pod shop/db-0 on node n3 is not Ready
no place | db-0 | db-0 StatefulSet/db NONE Pending | | 0/2 nodes are available
as foretold | foretold | | | nothing makes it again
nothing yet | db-0 | | | nothing has started it again yet
DNS of another name | coredns | coredns-6b9c-fghij ReplicaSet/coredns-6b9c n2 Ready | n2 |
of another set | coredns | coredns-7777-fghij ReplicaSet/coredns-7777 n2 Ready | | nothing has started it again yet
";

#[test]
fn f11_work_runs_elsewhere_by_its_maker_or_claim_or_is_named_with_what_it_waits_for() {
    let held = |kind: &str, namespace: &str, name: &str, waits: &str| HeldWork {
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        claims: if namespace == "shop" { vec!["data".to_owned()] } else { vec![] },
        waits: waits.to_owned(),
        on: "n9".to_owned(),
        after_secs: 4,
    };
    for row in PLACED.trim().lines() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, work, pods, on, waits] = cells.as_slice() else { panic!("{row}") };
        let work = match *work {
            "till" => held(HeldWork::MACHINE, "shop", "till", ""),
            "coredns" => held(HeldWork::POD, "kube-system", "coredns-6b9c-abcde", ""),
            "foretold" => held(HeldWork::POD, "shop", "db-0", "nothing makes it again"),
            pod => held(HeldWork::POD, "shop", pod, ""),
        };
        let pods = pods.split(", ").filter(|it| !it.is_empty()).map(|pod| {
            let pod = pod.replace("GUEST", "VirtualMachineInstance");
            let [name, maker, node, state] = pod.split(' ').collect::<Vec<_>>()[..] else { panic!("{row}") };
            there(name, maker, if node == "NONE" { "" } else { node }, state)
        });
        let found = placed(&work, "n1", &pods.collect::<Vec<_>>());
        assert_eq!((found.on.as_str(), found.waits.contains(waits)), (*on, true), "{row}: {found:?}");
        assert!(!on.is_empty() || !found.waits.is_empty(), "{row}");
        assert_eq!((&found.name, found.after_secs), (&work.name, 4), "{row}");
    }
}
