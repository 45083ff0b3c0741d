//! What hangs on a node, and where it runs by now.

use kubeapi::slim::Pod;
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
    let with = |change: fn(&mut VirtualMachine)| {
        let mut it = machine("till");
        change(&mut it);
        it
    };
    let none = || Err("no node fits".to_owned());
    let table: Vec<(&str, VirtualMachine, Option<&str>)> = vec![
        ("goes elsewhere", machine("till"), Some("")),
        ("nobody's", with(|it| it.owner = MachineOwner::Nobody), Some("nothing starts it again")),
        ("of a set", with(|it| it.owner = MachineOwner::Other("x/y".to_owned())), Some("")),
        ("of a machine that was not read", with(|it| it.owner = MachineOwner::Machine(None)), Some("")),
        ("again after it failed", with(|it| it.owner = vm("till", "RerunOnFailure")), Some("")),
        (
            "by hand",
            with(|it| it.owner = vm("till", "Manual")),
            Some("nothing starts it again: its runStrategy is Manual"),
        ),
        (
            "once",
            with(|it| it.owner = vm("till", "Once")),
            Some("nothing starts it again: its runStrategy is Once"),
        ),
        (
            "halted",
            with(|it| it.owner = vm("till", "Halted")),
            Some("nothing starts it again: its runStrategy is Halted"),
        ),
        ("no other node", VirtualMachine { start: none(), ..machine("till") }, Some("no node fits")),
        // Its guest has the model of its node's CPU, and starts on any other.
        ("cannot be migrated", VirtualMachine { target: none(), ..machine("till") }, Some("")),
        ("no room beside others", with(|it| it.crowded = Some("n2 is full".to_owned())), Some("n2 is full")),
        ("over", with(|it| it.over = true), None),
        ("on another node", with(|it| it.here = false), None),
    ];
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
    let n1 = |facts: &mut StorageFacts| storage::copy(facts, "n1", AT, "");
    let wanted = |facts: &mut StorageFacts, number: u32| {
        facts.volumes.entry("pvc-1".to_owned()).and_modify(|it| it.spec.number_of_replicas = number);
    };
    let away = |facts: &mut StorageFacts| {
        facts.volumes.entry("pvc-1".to_owned()).and_modify(|it| it.status.current_node = "n3".to_owned());
    };
    // The volume, whether its pod waits for the node, whether a person has to pass it.
    let table = [
        (
            "a good copy elsewhere",
            Some(stored(|it| {
                n1(it);
                storage::copy(it, "n2", AT, "");
            })),
            (false, false),
        ),
        (
            "a failed one elsewhere",
            Some(stored(|it| {
                n1(it);
                storage::copy(it, "n2", AT, AT);
            })),
            (true, true),
        ),
        (
            "the other is on a node that is off too",
            Some(stored(|it| {
                n1(it);
                storage::copy(it, "n2", AT, "");
                it.nodes.entry("n2".to_owned()).and_modify(|it| it.ready = false);
            })),
            (true, true),
        ),
        (
            "one only, as it is to be",
            Some(stored(|it| {
                n1(it);
                wanted(it, 1);
            })),
            (true, false),
        ),
        (
            "attached elsewhere",
            Some(stored(|it| {
                n1(it);
                storage::copy(it, "n2", AT, AT);
                away(it);
            })),
            (true, false),
        ),
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

/// The work, the pods, where it runs and words of why not.
type Row = (&'static str, HeldWork, Vec<Pod>, (&'static str, &'static str));

#[test]
fn f11_work_runs_elsewhere_by_its_maker_or_claim_or_is_named_with_what_it_waits_for() {
    let held = |kind: &str, namespace: &str, name: &str, claims: &[&str]| HeldWork {
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        claims: claims.iter().map(|it| (*it).to_owned()).collect(),
        ..HeldWork::default()
    };
    let till = || held(HeldWork::MACHINE, "shop", "till", &["data"]);
    let db = || held(HeldWork::POD, "shop", "db-0", &["data"]);
    let dns = || held(HeldWork::POD, "kube-system", "coredns-6b9c-abcde", &[]);
    let (guest, other) = ("VirtualMachineInstance/till", "VirtualMachineInstance/desk");
    let set = "StatefulSet/db";
    let deployed = "ReplicaSet/coredns-6b9c";
    let foretold = || HeldWork { waits: "nothing makes it again".to_owned(), ..db() };
    let table: Vec<Row> = vec![
        ("machine elsewhere", till(), vec![there("vl-2", guest, "n2", "Ready")], ("n2", "")),
        (
            "another machine",
            till(),
            vec![there("vl-2", other, "n2", "Ready")],
            ("", "nothing has started it again yet"),
        ),
        (
            "its old launcher is there, the new one runs",
            till(),
            vec![there("vl-1", guest, "n1", "Ending"), there("vl-2", guest, "n2", "Ready")],
            ("n2", ""),
        ),
        (
            "the old one only",
            till(),
            vec![there("vl-1", guest, "n1", "Ending")],
            ("", "its pod shop/vl-1 on n1 is not gone yet"),
        ),
        (
            "it failed",
            till(),
            vec![there("vl-1", guest, "n1", "Failed")],
            ("", "nothing has started it again yet"),
        ),
        (
            "a machine with the claim is no pod",
            db(),
            vec![there("vl-2", guest, "n2", "Ready")],
            ("", "nothing has started it again yet"),
        ),
        ("pod of its name", db(), vec![there("db-0", set, "n3", "Ready")], ("n3", "")),
        ("another name with its claim", db(), vec![there("db-7", set, "n3", "Ready")], ("n3", "")),
        (
            "it ends elsewhere",
            db(),
            vec![there("db-0", set, "n3", "Ending")],
            ("", "pod shop/db-0 on node n3 is ending since"),
        ),
        (
            "it starts",
            db(),
            vec![there("db-0", set, "n3", "Starting")],
            ("", "pod shop/db-0 on node n3 is not Ready"),
        ),
        ("no place", db(), vec![there("db-0", set, "", "Pending")], ("", "0/2 nodes are available")),
        ("as foretold", foretold(), vec![], ("", "nothing makes it again")),
        ("nothing yet", db(), vec![], ("", "nothing has started it again yet")),
        (
            "DNS of another name",
            dns(),
            vec![there("coredns-6b9c-fghij", deployed, "n2", "Ready")],
            ("n2", ""),
        ),
        (
            "of another set",
            dns(),
            vec![there("coredns-7777-fghij", "ReplicaSet/coredns-7777", "n2", "Ready")],
            ("", "nothing has started it again yet"),
        ),
    ];
    for (what, work, pods, (on, waits)) in table {
        let before = HeldWork { on: "n9".to_owned(), after_secs: 4, ..work.clone() };
        let found = placed(&before, "n1", &pods);
        assert_eq!((found.on.as_str(), found.waits.contains(waits)), (on, true), "{what}: {found:?}");
        assert!(!on.is_empty() || !found.waits.is_empty(), "{what}");
        assert_eq!((&found.name, found.after_secs), (&work.name, 4), "{what}");
    }
}
