//! What keeps a node from being declared dead.

use jiff::{SignedDuration, Timestamp};

use super::super::rule::{FailoverFacts, FailoverRule, holds};
use super::super::silence::{NodeSilence, SilentNode};
use super::super::{DeclaredNode, FailoverState};
use super::{dead, entry, mode, node, record, turn};
use crate::turn::pulses::Pulse;
use crate::turn::record::{Op, Phase, TurnRecord};
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

fn but(change: impl FnOnce(&mut FailoverFacts)) -> FailoverFacts {
    let mut facts = facts();
    change(&mut facts);
    facts
}

fn n1(change: impl FnOnce(&mut TurnNode)) -> FailoverFacts {
    but(|facts| change(&mut facts.nodes[0]))
}

/// The same of n2, which is well.
fn n2(change: impl FnOnce(&mut TurnNode)) -> FailoverFacts {
    but(|facts| change(&mut facts.nodes[1]))
}

fn among(others: &[TurnNode]) -> FailoverFacts {
    FailoverFacts { nodes: [&[dead("n1")], others].concat(), ..facts() }
}

fn of(record: TurnRecord) -> FailoverFacts {
    FailoverFacts { record, ..facts() }
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
    let alive = |words| Some((FailoverRule::Alive, words));
    let others = |words| Some((FailoverRule::Others, words));
    let five = || among(&[dead("n2"), node("n3"), node("n4"), node("n5")]);
    let away = || among(&[node("n2"), TurnNode { ignored: true, ..dead("n3") }]);
    let heard = |heard: &[(&str, bool)]| FailoverFacts { silent: Some(silent(heard)), ..facts() };
    let answers = || heard(&[("n2", true), ("n3", true), ("n4", false)]);
    let table: Vec<Row> = vec![
        ("nothing in the way", facts(), None),
        ("asked by nobody", heard(&[]), None),
        ("answers us and a peer", answers(), alive("node n1 lives: it answers n2, n3")),
        ("renews", n1(|it| it.pulse = Pulse::Moving), alive("its kubelet renews its lease")),
        ("seen for a short while", n1(|it| it.pulse = Pulse::Unknown), alive("was not seen for 40 s")),
        ("Ready", n1(|it| it.ready = true), alive("still Ready for Kubernetes")),
        ("no boot", n1(|it| it.boot_id.clear()), alive("does not say which boot")),
        ("another is silent", n2(|it| *it = dead("n2")), others("node n2 is not Ready")),
        (
            "another is silent and still Ready",
            n2(|it| it.pulse = Pulse::Still),
            others("node n2 has shown no sign of life for 40 s"),
        ),
        ("two of five", five(), others("node n2 is not Ready")),
        (
            "another is tainted",
            n2(|it| it.out_of_service = Some(String::new())),
            others("node n2 has the taint"),
        ),
        ("another has its turn", of(turn("n2", Op::Reboot, Phase::Granted)), others("node n2 holds a turn")),
        ("another is cordoned", n2(|it| it.unschedulable = true), None),
        ("one of two", among(&[node("n2")]), others("1 of 2 nodes are Ready, which is no majority")),
        ("no majority, two of them away by a person's word", away(), others("1 of 3 nodes are Ready")),
    ];
    held_as(table);
    let (rule, why) = holds("n9", &facts()).into_iter().map(|it| (it.rule, it.why)).next().unwrap();
    assert_eq!((rule, why.as_str()), (FailoverRule::Alive, "the cluster has no node n9"));
}

#[test]
fn f10_f9_an_operation_a_stale_copy_an_old_cluster_a_label_or_another_actor_holds_with_its_reason() {
    use Phase::{Booted, Cordoned, Drained, Emergency, Failed, Gate, GoingDown, Granted};
    let reboot = |phase| of(turn("n1", Op::Reboot, phase));
    let held = |words| Some((FailoverRule::Operation, words));
    let other = |rule, words| Some((rule, words));
    let tainted = n1(|it| it.out_of_service = Some("nodeshutdown".to_owned()));
    let longhorn = but(|it| it.actors = vec!["Longhorn, whose x is y".to_owned()]);
    let (site, all) = ("the whole-site operation shutdown (m1)", "the whole-site operation restart (m1)");
    let table: Vec<Row> = vec![
        (
            "the API failed",
            but(|it| it.api_trouble = "no answer".to_owned()),
            other(FailoverRule::Api, "the API failed while n1 was watched: no answer"),
        ),
        ("tainted", tainted, held("has the taint out-of-service of somebody already (nodeshutdown)")),
        ("whole site", of(mode("shutdown")), held(site)),
        ("restart of all", of(mode("restart")), held(all)),
        ("its turn is granted", reboot(Granted), None),
        ("it is being drained", reboot(Cordoned), None),
        ("its turn failed", reboot(Failed), None),
        ("it restarted undrained", reboot(Emergency), None),
        ("drained", reboot(Drained), held("it was drained for its turn (phase drained)")),
        ("going down", reboot(GoingDown), held("(phase going-down)")),
        ("booted", reboot(Booted), held("(phase booted)")),
        ("at the gate", reboot(Gate), held("(phase gate)")),
        ("phase of later", reboot(Phase::Stranger("x".to_owned())), held("(phase x)")),
        (
            "k3s update",
            of(turn("n1", Op::K3sUpdate, Granted)),
            held("its k3s is being updated (phase granted)"),
        ),
        (
            "a stale copy elsewhere",
            but(|it| it.lone = vec!["shop/data (pvc-1)".to_owned()]),
            other(FailoverRule::Copies, "old data that Longhorn may bring back: shop/data (pvc-1)"),
        ),
        (
            "before the taint",
            but(|it| it.minor = Some(25)),
            other(FailoverRule::Version, "Kubernetes 1.25 does not know"),
        ),
        ("with the taint", but(|it| it.minor = Some(26)), None),
        ("version not known", but(|it| it.minor = None), None),
        ("label", but(|it| it.is_excluded = true), other(FailoverRule::Label, "pillar-rs/no-failover=true")),
        (
            "others act",
            longhorn,
            other(FailoverRule::Actors, "without knowing that they are off: Longhorn, whose x is y"),
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
