//! What keeps a node from being declared dead.

use jiff::{SignedDuration, Timestamp};
use serde_json::Map;

use super::super::rule::{FailoverFacts, FailoverRule, holds};
use super::super::silence::{NodeSilence, SilentNode};
use super::super::{DeclaredNode, FailoverState};
use super::{dead, entry, node, record};
use crate::turn::pulses::Pulse;
use crate::turn::record::{Holder, Mode, Op, Phase, TurnRecord};
use crate::turn::rule::TurnNode;

const NOW: &str = "2026-03-14T12:00:00Z";

fn silent(heard: &[(&str, bool)]) -> SilentNode {
    let heard = heard.iter().map(|(by, is)| ((*by).to_owned(), *is)).collect();
    SilentNode { node: dead("n1"), silence: NodeSilence::Silent, heard, declared: None }
}

/// Three nodes of which n1 is dead, and nothing speaks against saying so.
fn facts() -> FailoverFacts {
    FailoverFacts {
        nodes: vec![dead("n1"), node("n2"), node("n3")],
        silent: Some(silent(&[("n2", false)])),
        minor: Some(33),
        now: NOW.parse().unwrap(),
        ..FailoverFacts::default()
    }
}

fn with_n1(n1: TurnNode) -> FailoverFacts {
    FailoverFacts { nodes: vec![n1, node("n2"), node("n3")], ..facts() }
}

fn among(others: &[TurnNode]) -> FailoverFacts {
    FailoverFacts { nodes: [&[dead("n1")], others].concat(), ..facts() }
}

fn of(record: TurnRecord) -> FailoverFacts {
    FailoverFacts { record, ..facts() }
}

fn turn(node: &str, op: Op, phase: Phase) -> TurnRecord {
    let (node, node_uid) = (node.to_owned(), format!("{node}-uid"));
    let holder = Holder { node, node_uid, op, fence: 1, phase, ..Holder::default() };
    TurnRecord { holders: vec![holder], ..TurnRecord::default() }
}

/// The rules that hold, with their reasons.
fn found(facts: &FailoverFacts) -> Vec<(FailoverRule, String)> {
    holds("n1", facts).into_iter().map(|it| (it.rule, it.why)).collect()
}

/// What speaks against it, and the one rule that holds with words of its reason.
type Row = (&'static str, FailoverFacts, Option<(FailoverRule, &'static str)>);

fn held_as(table: Vec<Row>) {
    for (what, facts, expected) in table {
        match (found(&facts).as_slice(), expected) {
            ([], None) => {}
            ([(rule, why)], Some((of, part))) if *rule == of && why.contains(part) => {}
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn f10_f6_a_node_that_lives_or_is_not_alone_is_held_with_its_reason_and_nothing_holds_without() {
    let n1 = || dead("n1");
    let (some, away) = (FailoverRule::Alive, FailoverRule::Others);
    let table: Vec<Row> = vec![
        ("nothing in the way", facts(), None),
        ("asked by nobody", FailoverFacts { silent: Some(silent(&[])), ..facts() }, None),
        (
            "answers us and a peer",
            FailoverFacts { silent: Some(silent(&[("n2", true), ("n3", true), ("n4", false)])), ..facts() },
            Some((some, "node n1 lives: it answers n2, n3")),
        ),
        (
            "renews",
            with_n1(TurnNode { pulse: Pulse::Moving, ..n1() }),
            Some((some, "its kubelet renews its lease")),
        ),
        (
            "seen for a short while",
            with_n1(TurnNode { pulse: Pulse::Unknown, ..n1() }),
            Some((some, "was not seen for 40 s")),
        ),
        ("Ready", with_n1(TurnNode { ready: true, ..n1() }), Some((some, "still Ready for Kubernetes"))),
        (
            "no boot",
            with_n1(TurnNode { boot_id: String::new(), ..n1() }),
            Some((some, "does not say which boot")),
        ),
        ("another is silent", among(&[dead("n2"), node("n3")]), Some((away, "node n2 is not Ready"))),
        (
            "another is silent and still Ready",
            among(&[TurnNode { ready: true, ..dead("n2") }, node("n3")]),
            Some((away, "node n2 has shown no sign of life for 40 s")),
        ),
        (
            "two of five",
            among(&[dead("n2"), node("n3"), node("n4"), node("n5")]),
            Some((away, "node n2 is not Ready")),
        ),
        (
            "another is tainted",
            among(&[TurnNode { out_of_service: Some(String::new()), ..node("n2") }, node("n3")]),
            Some((away, "node n2 has the taint")),
        ),
        (
            "another has its turn",
            of(turn("n2", Op::Reboot, Phase::Granted)),
            Some((away, "node n2 holds a turn")),
        ),
        ("another is cordoned", among(&[TurnNode { unschedulable: true, ..node("n2") }, node("n3")]), None),
        ("one of two", among(&[node("n2")]), Some((away, "1 of 2 nodes are Ready, which is no majority"))),
        (
            "no majority, two of them away by a person's word",
            among(&[node("n2"), TurnNode { ignored: true, ..dead("n3") }]),
            Some((away, "1 of 3 nodes are Ready")),
        ),
    ];
    held_as(table);
    let (rule, why) = holds("n9", &facts()).into_iter().map(|it| (it.rule, it.why)).next().unwrap();
    assert_eq!((rule, why.as_str()), (FailoverRule::Alive, "the cluster has no node n9"));
}

#[test]
fn f10_f9_an_operation_a_stale_copy_an_old_cluster_a_label_or_another_actor_holds_with_its_reason() {
    let mode = |kind: &str| TurnRecord {
        mode: Some(Mode { id: "m1".to_owned(), kind: kind.to_owned(), rest: Map::new() }),
        ..TurnRecord::default()
    };
    let reboot = |phase| of(turn("n1", Op::Reboot, phase));
    let turn_of_n1 = FailoverRule::Operation;
    let table: Vec<Row> = vec![
        (
            "the API failed",
            FailoverFacts { api_trouble: "no answer".to_owned(), ..facts() },
            Some((FailoverRule::Api, "the API failed while n1 was watched: no answer")),
        ),
        (
            "somebody has tainted it",
            with_n1(TurnNode { out_of_service: Some("nodeshutdown".to_owned()), ..dead("n1") }),
            Some((turn_of_n1, "has the taint out-of-service of somebody already (nodeshutdown)")),
        ),
        ("whole site", of(mode("shutdown")), Some((turn_of_n1, "the whole-site operation shutdown (m1)"))),
        ("restart of all", of(mode("restart")), Some((turn_of_n1, "the whole-site operation restart (m1)"))),
        ("its turn is granted", reboot(Phase::Granted), None),
        ("it is being drained", reboot(Phase::Cordoned), None),
        ("its turn failed", reboot(Phase::Failed), None),
        ("it restarted undrained", reboot(Phase::Emergency), None),
        (
            "drained",
            reboot(Phase::Drained),
            Some((turn_of_n1, "it was drained for its turn (phase drained)")),
        ),
        ("going down", reboot(Phase::GoingDown), Some((turn_of_n1, "(phase going-down)"))),
        ("booted", reboot(Phase::Booted), Some((turn_of_n1, "(phase booted)"))),
        ("at the gate", reboot(Phase::Gate), Some((turn_of_n1, "(phase gate)"))),
        ("phase of later", reboot(Phase::Stranger("x".to_owned())), Some((turn_of_n1, "(phase x)"))),
        (
            "k3s update",
            of(turn("n1", Op::K3sUpdate, Phase::Granted)),
            Some((turn_of_n1, "its k3s is being updated (phase granted)")),
        ),
        (
            "a stale copy elsewhere",
            FailoverFacts { lone: vec!["shop/data (pvc-1)".to_owned()], ..facts() },
            Some((FailoverRule::Copies, "old data that Longhorn may bring back: shop/data (pvc-1)")),
        ),
        (
            "before the taint",
            FailoverFacts { minor: Some(25), ..facts() },
            Some((FailoverRule::Version, "Kubernetes 1.25 does not know")),
        ),
        ("with the taint", FailoverFacts { minor: Some(26), ..facts() }, None),
        ("version not known", FailoverFacts { minor: None, ..facts() }, None),
        (
            "label",
            FailoverFacts { is_excluded: true, ..facts() },
            Some((FailoverRule::Label, "pillar-rs/no-failover=true")),
        ),
        (
            "others act",
            FailoverFacts { actors: vec!["Longhorn, whose x is y".to_owned()], ..facts() },
            Some((FailoverRule::Actors, "without knowing that they are off: Longhorn, whose x is y")),
        ),
    ];
    held_as(table);
}

#[test]
fn f6_f9_a_word_passes_other_nodes_lone_copies_and_other_actors_and_nothing_else() {
    let passes: Vec<(&str, &str)> =
        FailoverRule::ALL.iter().filter_map(|it| Some((it.text(), it.pass()?))).collect();
    let expected = [
        ("others-away", "--although-others-away"),
        ("lone-copies", "--although-lone-copies"),
        ("others-act", "--although-others-act"),
    ];
    assert_eq!(passes, expected);
    // All that hold are told at once, in their order.
    let all = FailoverFacts {
        nodes: vec![node("n1"), dead("n2")],
        api_trouble: "no answer".to_owned(),
        record: turn("n1", Op::K3sUpdate, Phase::Granted),
        lone: vec!["v".to_owned()],
        minor: Some(20),
        is_excluded: true,
        actors: vec!["x".to_owned()],
        ..facts()
    };
    let words: Vec<&str> = found(&all).iter().map(|(rule, _)| rule.text()).collect();
    assert_eq!(
        words,
        ["alive", "others-away", "api", "operation", "lone-copies", "version", "label", "others-act"]
    );
    assert!(holds("n1", &all).iter().all(|it| !it.next.is_empty()));
}

#[test]
fn f10_a_node_is_failed_over_once_an_hour_and_three_in_a_day_by_the_clock_of_the_server_wherever_that_stands()
{
    let at = |now: Timestamp, number: u32, minutes: i64, state: FailoverState, name: &str| DeclaredNode {
        number,
        when: (now - SignedDuration::from_mins(minutes)).to_string(),
        ..entry(name, state)
    };
    let done = FailoverState::Returned;
    for now in [NOW, "1970-01-01T00:10:00Z", "2027-04-18T12:00:00Z"] {
        let now: Timestamp = now.parse().unwrap();
        let held = |entries: &[DeclaredNode]| {
            let facts = FailoverFacts { now, record: record(entries), ..facts() };
            found(&facts)
                .into_iter()
                .map(|(rule, why)| {
                    assert_eq!(rule, FailoverRule::Again);
                    why
                })
                .next()
        };
        let one = |minutes, state: &FailoverState, name| held(&[at(now, 1, minutes, state.clone(), name)]);
        assert!(one(59, &done, "n1").unwrap().contains("n1 was failed over less than an hour ago"));
        // A clock that was set back says no less.
        assert!(one(-59, &done, "n1").is_some());
        assert_eq!(one(60, &done, "n1"), None);
        assert_eq!(one(5, &done, "n2"), None, "another node");
        assert_eq!(one(5, &FailoverState::Withdrawn, "n1"), None, "nothing was done");
        assert!(one(5, &FailoverState::Lifted, "n1").is_some());
        let of_day = |hours: [i64; 3]| held(&hours.map(|it| at(now, 1, 60 * it, done.clone(), "n2")));
        assert_eq!(of_day([23, 3, 2]).as_deref(), Some("3 nodes were failed over within 24 hours"));
        assert_eq!(of_day([24, 3, 2]), None);
        let old = DeclaredNode { when: "2026-13-14".to_owned(), ..at(now, 1, 0, done.clone(), "n1") };
        assert_eq!(held(&[old]), None, "a time that is none");
    }
    // Entries of before the clocks went to 1970, and of a clock that was 400 days ahead.
    for (now, entries) in [("1970-01-01T00:10:00Z", NOW), (NOW, "2027-04-18T12:00:00Z")] {
        let entry = DeclaredNode { when: entries.to_owned(), ..entry("n1", done.clone()) };
        let facts = FailoverFacts { now: now.parse().unwrap(), record: record(&[entry]), ..facts() };
        assert_eq!(found(&facts), [], "{now}");
    }
}
