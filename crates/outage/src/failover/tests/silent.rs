//! What is told of a node.

use std::collections::BTreeMap;

use topics::HeldWork;

use super::super::silence::{Heard, NodeSilence, SilentNode, still, told};
use super::super::{DeclaredNode, FailoverState};
use super::{dead, entry, mode, node, record, turn};
use crate::turn::pulses::Pulse;
use crate::turn::record::{Op, Phase, TurnRecord};
use crate::turn::rule::TurnNode;

/// What n2 tells of the others, where these have asked n1 and it answers `true` ones.
fn tells(nodes: &[TurnNode], record: &TurnRecord, heard: &[(&str, bool)]) -> Vec<SilentNode> {
    let silent = still("n2", nodes, record).unwrap();
    let heard: Heard = heard.iter().map(|(by, is)| ((*by).to_owned(), *is)).collect();
    told(nodes, record, &silent, &BTreeMap::from([("n1".to_owned(), heard)]))
}

/// What n1 is, the record, who hears it, what is told.
type Row = (&'static str, TurnNode, TurnRecord, &'static [(&'static str, bool)], Option<NodeSilence>);

#[test]
fn f10_a_silent_node_is_told_apart_from_one_that_lives_and_from_one_that_is_expected_to_be_silent() {
    use Phase::{Booted, Cordoned, Drained, Emergency, Failed, Gate, GoingDown, Granted};
    let none = TurnRecord::default;
    let n1 = || dead("n1");
    let held = |phase| turn("n1", Op::Reboot, phase);
    let (silent, answers) = (Some(NodeSilence::Silent), Some(NodeSilence::Heard));
    let table: Vec<Row> = vec![
        ("well", node("n1"), none(), &[], None),
        ("not Ready, its kubelet lives", TurnNode { ready: false, ..node("n1") }, none(), &[], None),
        ("not seen for long enough", TurnNode { pulse: Pulse::Unknown, ..n1() }, none(), &[], None),
        ("dead", n1(), none(), &[("n2", false), ("n3", false)], silent),
        ("nobody could ask", n1(), none(), &[], silent),
        ("still Ready for Kubernetes", TurnNode { ready: true, ..n1() }, none(), &[], silent),
        ("its agent answers us", n1(), none(), &[("n2", true)], answers),
        ("a peer hears it", n1(), none(), &[("n2", false), ("n3", true)], answers),
        ("being deleted", TurnNode { being_deleted: true, ..n1() }, none(), &[], None),
        ("away by a person's word", TurnNode { ignored: true, ..n1() }, none(), &[], None),
        ("whole site", n1(), mode("shutdown"), &[], None),
        ("restart of one after another", n1(), mode("restart"), &[], silent),
        ("granted", n1(), held(Granted), &[], silent),
        ("cordoned", n1(), held(Cordoned), &[], silent),
        ("failed", n1(), held(Failed), &[], silent),
        ("drained", n1(), held(Drained), &[], None),
        ("going down", n1(), held(GoingDown), &[], None),
        ("booted", n1(), held(Booted), &[], None),
        ("at the gate", n1(), held(Gate), &[], None),
        ("restarts without a turn", n1(), held(Emergency), &[], silent),
        ("phase of later", n1(), held(Phase::Stranger("x".to_owned())), &[], None),
        ("turn of another node", n1(), turn("n3", Op::Reboot, Drained), &[], silent),
    ];
    for (what, n1, record, heard, expected) in table {
        let all = tells(&[n1, node("n2"), node("n3")], &record, heard);
        let found: Vec<NodeSilence> = all.iter().map(|it| it.silence).collect();
        assert_eq!(found, Vec::from_iter(expected), "{what}");
    }
}

#[test]
fn f7_a_declared_node_is_broken_only_where_its_kubelet_lives_in_the_boot_that_is_to_be_dead() {
    use FailoverState::{Declared, Moved, Returned, Tainted, Withdrawn};
    let n1 = || dead("n1");
    let ready = || TurnNode { ready: true, ..n1() };
    let renews = || TurnNode { pulse: Pulse::Moving, ..n1() };
    let another = || TurnNode { boot_id: "another".to_owned(), ..node("n1") };
    let other_boot = || TurnNode { boot_id: "b".to_owned(), ..n1() };
    let other_uid = || TurnNode { uid: "new".to_owned(), ..n1() };
    let late_taint = || TurnNode { out_of_service: Some("pillar-rs-1".to_owned()), ..renews() };
    let is = |state| entry("n1", state);
    let often = || DeclaredNode { times: 3, ..is(Moved) };
    let later = || is(FailoverState::Stranger("x".to_owned()));
    let (us, nobody) = ([("n2", true)], [("n3", false)]);
    let (declared, broken, silent) = (NodeSilence::Declared, NodeSilence::Broken, NodeSilence::Silent);
    let booting = "it answers n2: it is booting, or was never off";
    let stays = "it is back in another boot, declared dead 3 times within 24 h: it stays cordoned";
    let table: [(&str, TurnNode, DeclaredNode, [_; 1], NodeSilence, &str); 13] = [
        ("a word only", n1(), is(Declared), nobody, declared, "declared"),
        ("withdrawn soon", ready(), is(Declared), nobody, declared, "declared"),
        ("tainted", n1(), is(Tainted), nobody, declared, "tainted"),
        ("Ready", ready(), is(Tainted), nobody, broken, "LIVES in the boot"),
        ("renews", renews(), is(Moved), nobody, broken, "its work may run twice"),
        ("answers before its kubelet does", n1(), is(Moved), us, declared, booting),
        ("back", another(), is(Moved), us, declared, "moved; it is back in another boot"),
        ("back too often", another(), often(), nobody, declared, stays),
        ("withdrawn before its taint came", late_taint(), is(Withdrawn), nobody, broken, "LIVES in the boot"),
        ("dead in another", other_boot(), is(Moved), nobody, declared, "supply burnt), moved"),
        ("joined again", other_uid(), is(Moved), nobody, silent, "may be dead"),
        ("ended", n1(), is(Returned), nobody, silent, "may be dead"),
        ("state of later", n1(), later(), nobody, declared, ", x"),
    ];
    for (what, n1, entry, heard, expected, words) in table {
        let all = tells(&[n1, node("n2")], &record(&[entry]), &heard);
        let found: Vec<NodeSilence> = all.iter().map(|it| it.silence).collect();
        assert_eq!(found, [expected], "{what}");
        assert!(all[0].words().contains(words), "{what}: {}", all[0].words());
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
