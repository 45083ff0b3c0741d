//! What is told of a node.

use std::collections::BTreeMap;

use serde_json::Map;
use topics::HeldWork;

use super::super::silence::{Heard, NodeSilence, SilentNode, still, told};
use super::super::{DeclaredNode, FailoverState};
use super::{dead, entry, node, record};
use crate::turn::pulses::Pulse;
use crate::turn::record::{Holder, Mode, Op, Phase, TurnRecord};
use crate::turn::rule::TurnNode;

/// What n2 tells of the others, where these have asked n1 and it answers `true` ones.
fn tells(nodes: &[TurnNode], record: &TurnRecord, heard: &[(&str, bool)]) -> Vec<SilentNode> {
    let silent = still("n2", nodes, record).unwrap();
    let heard: Heard = heard.iter().map(|(by, is)| ((*by).to_owned(), *is)).collect();
    told(nodes, record, &silent, &BTreeMap::from([("n1".to_owned(), heard)]))
}

fn held(name: &str, phase: Phase) -> TurnRecord {
    let holder = Holder {
        node: name.to_owned(),
        node_uid: format!("{name}-uid"),
        op: Op::Reboot,
        fence: 1,
        phase,
        ..Holder::default()
    };
    TurnRecord { holders: vec![holder], ..TurnRecord::default() }
}

/// What n1 is, the record, who hears it, what is told.
type Row = (&'static str, TurnNode, TurnRecord, &'static [(&'static str, bool)], Option<NodeSilence>);
/// The same with its entry, and words of what is told.
type DeclaredRow = (
    &'static str,
    TurnNode,
    DeclaredNode,
    &'static [(&'static str, bool)],
    Option<NodeSilence>,
    &'static str,
);

#[test]
fn f10_a_silent_node_is_told_apart_from_one_that_lives_and_from_one_that_is_expected_to_be_silent() {
    let mode = |kind: &str| TurnRecord {
        mode: Some(Mode { id: "m1".to_owned(), kind: kind.to_owned(), rest: Map::new() }),
        ..TurnRecord::default()
    };
    let none = TurnRecord::default;
    let n1 = || dead("n1");
    let table: Vec<Row> = vec![
        ("well", node("n1"), none(), &[], None),
        ("not Ready, its kubelet lives", TurnNode { ready: false, ..node("n1") }, none(), &[], None),
        ("not seen for long enough", TurnNode { pulse: Pulse::Unknown, ..n1() }, none(), &[], None),
        ("dead", n1(), none(), &[("n2", false), ("n3", false)], Some(NodeSilence::Silent)),
        ("nobody could ask", n1(), none(), &[], Some(NodeSilence::Silent)),
        (
            "still Ready for Kubernetes",
            TurnNode { ready: true, ..n1() },
            none(),
            &[],
            Some(NodeSilence::Silent),
        ),
        ("its agent answers us", n1(), none(), &[("n2", true)], Some(NodeSilence::Heard)),
        ("a peer hears it", n1(), none(), &[("n2", false), ("n3", true)], Some(NodeSilence::Heard)),
        ("being deleted", TurnNode { being_deleted: true, ..n1() }, none(), &[], None),
        ("away by a person's word", TurnNode { ignored: true, ..n1() }, none(), &[], None),
        ("whole site", n1(), mode("shutdown"), &[], None),
        ("restart of one after another", n1(), mode("restart"), &[], Some(NodeSilence::Silent)),
        ("granted", n1(), held("n1", Phase::Granted), &[], Some(NodeSilence::Silent)),
        ("cordoned", n1(), held("n1", Phase::Cordoned), &[], Some(NodeSilence::Silent)),
        ("failed", n1(), held("n1", Phase::Failed), &[], Some(NodeSilence::Silent)),
        ("drained", n1(), held("n1", Phase::Drained), &[], None),
        ("going down", n1(), held("n1", Phase::GoingDown), &[], None),
        ("booted", n1(), held("n1", Phase::Booted), &[], None),
        ("at the gate", n1(), held("n1", Phase::Gate), &[], None),
        ("restarts without a turn", n1(), held("n1", Phase::Emergency), &[], Some(NodeSilence::Silent)),
        ("phase of later", n1(), held("n1", Phase::Stranger("x".to_owned())), &[], None),
        ("turn of another node", n1(), held("n3", Phase::Drained), &[], Some(NodeSilence::Silent)),
    ];
    for (what, n1, record, heard, expected) in table {
        let all = tells(&[n1, node("n2"), node("n3")], &record, heard);
        let found: Vec<NodeSilence> = all.iter().map(|it| it.silence).collect();
        assert_eq!(found, Vec::from_iter(expected), "{what}");
    }
}

#[test]
fn f7_a_declared_node_is_broken_only_where_its_kubelet_lives_in_the_boot_that_is_to_be_dead() {
    let ready = || TurnNode { ready: true, ..dead("n1") };
    let renews = || TurnNode { pulse: Pulse::Moving, ..dead("n1") };
    let another = || TurnNode { boot_id: "another".to_owned(), ..node("n1") };
    let tainted = || entry("n1", FailoverState::Tainted);
    let moved = || entry("n1", FailoverState::Moved);
    let nobody: &'static [(&str, bool)] = &[("n3", false)];
    let table: Vec<DeclaredRow> = vec![
        (
            "a word only",
            dead("n1"),
            entry("n1", FailoverState::Declared),
            nobody,
            Some(NodeSilence::Declared),
            "declared",
        ),
        (
            "withdrawn soon",
            ready(),
            entry("n1", FailoverState::Declared),
            nobody,
            Some(NodeSilence::Declared),
            "declared",
        ),
        ("tainted", dead("n1"), tainted(), nobody, Some(NodeSilence::Declared), "tainted"),
        ("Ready", ready(), tainted(), nobody, Some(NodeSilence::Broken), "LIVES in the boot"),
        ("renews", renews(), moved(), nobody, Some(NodeSilence::Broken), "its work may run twice"),
        (
            "answers before its kubelet does",
            dead("n1"),
            moved(),
            &[("n2", true)],
            Some(NodeSilence::Declared),
            "it answers n2: it is booting, or was never off",
        ),
        (
            "back",
            another(),
            moved(),
            &[("n2", true)],
            Some(NodeSilence::Declared),
            "moved; it is back in another boot",
        ),
        (
            "back too often",
            another(),
            DeclaredNode { times: 3, ..moved() },
            nobody,
            Some(NodeSilence::Declared),
            "it is back in another boot, declared dead 3 times within 24 h: it stays cordoned",
        ),
        (
            "withdrawn before its taint came",
            TurnNode { out_of_service: Some("pillar-rs-1".to_owned()), ..renews() },
            entry("n1", FailoverState::Withdrawn),
            nobody,
            Some(NodeSilence::Broken),
            "LIVES in the boot",
        ),
        (
            "dead in another",
            TurnNode { boot_id: "b".to_owned(), ..dead("n1") },
            moved(),
            nobody,
            Some(NodeSilence::Declared),
            "supply burnt), moved",
        ),
        (
            "joined again",
            TurnNode { uid: "new".to_owned(), ..dead("n1") },
            moved(),
            nobody,
            Some(NodeSilence::Silent),
            "may be dead",
        ),
        (
            "ended",
            dead("n1"),
            entry("n1", FailoverState::Returned),
            nobody,
            Some(NodeSilence::Silent),
            "may be dead",
        ),
        (
            "state of later",
            dead("n1"),
            entry("n1", FailoverState::Stranger("x".to_owned())),
            nobody,
            Some(NodeSilence::Declared),
            ", x",
        ),
    ];
    for (what, n1, entry, heard, expected, words) in table {
        let all = tells(&[n1, node("n2")], &record(&[entry]), heard);
        let found: Vec<(NodeSilence, String)> = all.iter().map(|it| (it.silence, it.words())).collect();
        let (silence, said) = found.first().cloned().unzip();
        assert_eq!((silence, found.len()), (expected, 1), "{what}");
        assert!(said.as_deref().unwrap_or_default().contains(words), "{what}: {said:?}");
    }
}

#[test]
fn f6_the_worst_is_told_first_and_nothing_where_our_own_kubelet_is_silent_too() {
    let record = record(&[entry("n5", FailoverState::Tainted), entry("n4", FailoverState::Moved)]);
    let nodes = [dead("n1"), node("n2"), dead("n3"), dead("n4"), node("n5")];
    let order: Vec<(String, NodeSilence)> =
        tells(&nodes, &record, &[("n2", true)]).into_iter().map(|it| (it.node.name, it.silence)).collect();
    let expected = [
        ("n5", NodeSilence::Broken),
        ("n4", NodeSilence::Declared),
        ("n3", NodeSilence::Silent),
        ("n1", NodeSilence::Heard),
    ];
    assert_eq!(order, expected.map(|(name, it)| (name.to_owned(), it)));
    let why = still("n1", &nodes, &record).unwrap_err();
    assert_eq!(why, "the kubelet of this node itself renews no lease");
    assert_eq!(still("n9", &nodes, &record).unwrap().len(), 3, "one that is in no list, as a workstation");
}

#[test]
fn f10_what_is_told_has_the_evidence_and_the_command_only_where_it_would_be_taken() {
    let one = |nodes: &[TurnNode], heard: &[(&str, bool)]| {
        tells(nodes, &TurnRecord::default(), heard).pop().unwrap()
    };
    let silent = one(&[dead("n1"), node("n2")], &[("n2", false), ("n3", false)]);
    assert_eq!(
        silent.words(),
        "silent, it may be dead: its kubelet has renewed no lease for 40 s, it is not Ready, its agent answers none of those \
         that asked it (n2, n3)"
    );
    assert!(silent.next_step().contains("`zedbox failover declare n1 --powered-off --reason '...'`"));
    let ready = one(&[TurnNode { ready: true, ..dead("n1") }, node("n2")], &[]);
    assert!(ready.evidence().ends_with("its condition Ready is still True, nobody could ask its agent"));
    let heard = one(&[dead("n1"), node("n2")], &[("n2", false), ("n3", true)]);
    assert!(heard.words().starts_with("its kubelet is silent, it is not dead: "), "{}", heard.words());
    assert!(heard.words().ends_with("it answers n3"), "{}", heard.words());
    assert!(!heard.next_step().contains("failover declare"), "{}", heard.next_step());
    // What waits is named with its reason, and nothing else: what will move has none.
    let work = |name: &str, on: &str, waits: &str| HeldWork {
        kind: HeldWork::POD.to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        on: on.to_owned(),
        waits: waits.to_owned(),
        ..HeldWork::default()
    };
    let work = vec![work("a", "n2", ""), work("b", "", ""), work("c", "", "nothing makes it again")];
    let entry = DeclaredNode { work, ..entry("n1", FailoverState::Tainted) };
    let said = tells(&[dead("n1"), node("n2")], &record(&[entry]), &[]).pop().unwrap();
    let expected = "declared dead by operator anna (its supply burnt), tainted; waits: pod shop/c: nothing makes it again";
    assert_eq!(said.words(), expected);
    assert_eq!(said.next_step(), "`zedbox failover status`");
}
