//! Tables of the rules, in the order in which they apply.

use std::collections::BTreeSet;

use serde_json::Map;

use super::super::pulses::Pulse;
use super::super::record::{Class, Fence, ForcedRelease, Holder, Mode, Op, Phase, TurnRecord, Waiter};
use super::super::rule::{
    CordonMark, Me, OperatorRefusal, TakeoverProof, TurnNode, TurnRule, ahead, down, may_enter, may_ignore,
    order, proof, rank, release, with_limit,
};

pub(crate) fn node(name: &str) -> TurnNode {
    TurnNode {
        name: name.to_owned(),
        uid: format!("{name}-uid"),
        boot_id: format!("{name}-boot"),
        ready: true,
        pulse: Pulse::Moving,
        ..TurnNode::default()
    }
}

pub(super) fn server(name: &str) -> TurnNode {
    TurnNode { server: true, etcd: true, ..node(name) }
}

pub(crate) fn holder(name: &str, fence: Fence) -> Holder {
    Holder {
        node: name.to_owned(),
        node_uid: format!("{name}-uid"),
        boot_id: format!("{name}-boot"),
        op: Op::Reboot,
        counter: 1,
        fence,
        phase: Phase::Granted,
        ..Holder::default()
    }
}

pub(super) fn waiter(name: &str, class: Class) -> Waiter {
    Waiter {
        node: name.to_owned(),
        node_uid: format!("{name}-uid"),
        class,
        op: Op::Reboot,
        counter: 1,
        rest: Map::new(),
    }
}

pub(super) fn me(name: &str, server: bool) -> Me {
    Me { node: name.to_owned(), uid: format!("{name}-uid"), boot_id: format!("{name}-boot"), server }
}

/// A whole-cluster operation `m1`.
pub(crate) fn mode(kind: &str) -> Mode {
    Mode { id: "m1".to_owned(), kind: kind.to_owned(), rest: Map::new() }
}

/// The word of an operator on the turn of a node.
pub(super) fn forced(name: &str, fence: Fence, why: &str) -> ForcedRelease {
    ForcedRelease {
        node: name.to_owned(),
        node_uid: format!("{name}-uid"),
        fence,
        who: "op".to_owned(),
        why: why.to_owned(),
        ..ForcedRelease::default()
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the member of a node is optional")]
pub(super) fn mark(fence: Fence, lease: &str) -> Option<CordonMark> {
    Some(CordonMark { fence, lease_uid: lease.to_owned(), boot_id: "b".to_owned() })
}

#[test]
fn each_reason_to_be_down_counts_and_the_cordon_of_the_tie_breaker_does_not() {
    let is = |change: fn(&mut TurnNode)| {
        let mut it = node("b");
        change(&mut it);
        it
    };
    let table: [(TurnNode, Option<&str>); 13] = [
        (is(|_| ()), None),
        (is(|it| it.ready = false), Some("node b is not Ready")),
        (is(|it| it.pulse = Pulse::Still), Some("node b has shown no sign of life for 40 s")),
        (is(|it| it.unschedulable = true), Some("node b is cordoned")),
        (is(|it| (it.unschedulable, it.tie_breaker) = (true, true)), None),
        (
            is(|it| (it.ready, it.unschedulable, it.tie_breaker) = (false, true, true)),
            Some("node b is not Ready"),
        ),
        (
            is(|it| (it.unschedulable, it.tie_breaker, it.mark) = (true, true, mark(1, "L"))),
            Some("node b is cordoned"),
        ),
        (is(|it| it.being_deleted = true), Some("node b is being deleted")),
        (
            is(|it| it.out_of_service = Some(String::new())),
            Some("node b has the taint node.kubernetes.io/out-of-service"),
        ),
        (is(|it| (it.ready, it.ignored) = (false, true)), None),
        (is(|it| (it.ready, it.ignored, it.etcd) = (false, true, true)), Some("node b is not Ready")),
        // This node does not count against itself, nor does an earlier one of its name.
        (TurnNode { ready: false, unschedulable: true, ..node("a") }, None),
        (TurnNode { ready: false, uid: "older".to_owned(), ..node("a") }, None),
    ];
    for (seen, expected) in table {
        let found = down(Some(&me("a", false)), &TurnRecord::default(), std::slice::from_ref(&seen));
        assert_eq!(found.first().map(|it| it.why.as_str()), expected, "{seen:?}");
    }
    let record = TurnRecord { holders: vec![holder("a", 1), holder("gone", 2)], ..TurnRecord::default() };
    let found = down(Some(&me("a", false)), &record, &[node("a")]);
    assert_eq!(found.len(), 1, "our own entry does not count, one of a node that is gone does");
    assert_eq!(found[0].why, "node gone holds a turn (reboot, phase granted, fence 2)");
    let ignored = TurnNode { ignored: true, ..node("gone") };
    assert_eq!(
        down(Some(&me("a", false)), &record, &[node("a"), ignored]).len(),
        1,
        "a holder is not ignored"
    );
    // A reader that is no node leaves none out.
    let all = down(None, &record, &[node("a"), TurnNode { ready: false, ..node("c") }]);
    assert_eq!(all.iter().map(|it| it.node.as_str()).collect::<Vec<_>>(), ["a", "gone", "c"]);
}

struct Case {
    what: &'static str,
    me: Me,
    record: TurnRecord,
    nodes: Vec<TurnNode>,
    passed: &'static [&'static str],
    margin: Result<(), String>,
    expected: Option<(TurnRule, &'static str)>,
}

fn case(what: &'static str, expected: Option<(TurnRule, &'static str)>) -> Case {
    Case {
        what,
        me: me("a", false),
        record: TurnRecord::default(),
        nodes: vec![node("a"), node("b"), node("c")],
        passed: &[],
        margin: Ok(()),
        expected,
    }
}

fn queued(waiters: &[(&str, Class)]) -> TurnRecord {
    let queue = waiters.iter().map(|(name, class)| waiter(name, class.clone())).collect();
    TurnRecord { queue, ..TurnRecord::default() }
}

fn holding(holders: Vec<Holder>, limit: u32) -> TurnRecord {
    TurnRecord { holders, limit, ..TurnRecord::default() }
}

#[test]
fn a_grant_needs_every_row_of_the_rule() {
    let off = |name: &str| TurnNode { ready: false, ..node(name) };
    let lost = |name: &str| TurnNode { ready: false, ..server(name) };
    let b_holds = || holding(vec![holder("b", 7)], 1);
    let servers = || vec![server("a"), server("b"), node("c")];
    let server_holds = Holder { server: true, ..holder("b", 7) };
    let sick = || Err("voter b is not healthy".to_owned());
    let table = [
        case("nothing in the way", None),
        Case { nodes: vec![node("b")], ..case("not in the list", Some((TurnRule::NotListed, "no node a"))) },
        Case {
            record: TurnRecord { mode: Some(mode("shutdown")), ..TurnRecord::default() },
            ..case("whole-cluster operation", Some((TurnRule::Mode, "shutdown (m1)")))
        },
        Case { record: b_holds(), ..case("held", Some((TurnRule::Holder, "node b holds a turn"))) },
        Case {
            nodes: vec![node("a"), off("b")],
            ..case("one is off", Some((TurnRule::Down, "node b is not Ready")))
        },
        Case {
            nodes: vec![node("a"), TurnNode { unschedulable: true, ..node("b") }],
            ..case("one is up and cordoned", Some((TurnRule::Cordoned, "node b is cordoned")))
        },
        Case { record: holding(vec![holder("b", 7)], 2), ..case("room for two", None) },
        Case {
            record: holding(vec![holder("b", 7)], 2),
            nodes: vec![node("a"), node("b"), off("c")],
            ..case("limit 2 reached", Some((TurnRule::Holder, "2 may be down at once")))
        },
        Case {
            record: holding(vec![holder("b", 7), holder("c", 8)], 1),
            ..case("the limit was lowered", Some((TurnRule::Holder, "1 may be down at once")))
        },
        Case {
            me: me("a", true),
            record: holding(vec![server_holds.clone()], 3),
            nodes: servers(),
            ..case("a server holds", Some((TurnRule::Holder, "only one control-plane node")))
        },
        Case {
            me: me("a", true),
            record: holding(vec![], 3),
            nodes: vec![server("a"), lost("b"), node("c")],
            ..case("a server is off", Some((TurnRule::Server, "only one control-plane node")))
        },
        Case {
            record: holding(vec![server_holds], 2),
            nodes: vec![node("a"), server("b"), node("c")],
            ..case("a worker beside a server", None)
        },
        Case {
            nodes: vec![node("a"), lost("b")],
            ..case("a worker, the leader off", Some((TurnRule::Down, "node b")))
        },
        Case {
            record: queued(&[("b", Class::Worker), ("a", Class::Worker)]),
            ..case("second in the queue", Some((TurnRule::Order, "node b (worker) is before")))
        },
        Case {
            record: queued(&[("b", Class::Worker), ("a", Class::Worker)]),
            passed: &["b"],
            ..case("the first was passed over", None)
        },
        Case {
            record: TurnRecord { limit: 2, ..queued(&[("b", Class::Worker), ("a", Class::Worker)]) },
            nodes: vec![node("a"), off("b"), node("c")],
            ..case("the first is off", None)
        },
        Case {
            record: queued(&[("x", Class::Worker), ("a", Class::Worker)]),
            ..case("the first is gone", None)
        },
        Case { record: queued(&[("b", Class::Leader)]), ..case("a worker before the leader", None) },
        Case { margin: sick(), ..case("no margin", Some((TurnRule::Margin, "voter b is not healthy"))) },
        Case {
            record: holding(vec![holder("gone", 3)], 1),
            nodes: vec![node("a")],
            margin: sick(),
            ..case("the only node", None)
        },
    ];
    for Case { what, me, record, nodes, passed, margin, expected } in table {
        let passed: BTreeSet<String> = passed.iter().map(|it| (*it).to_owned()).collect();
        let class = if me.server { Class::Follower } else { Class::Worker };
        let found = may_enter(&me, &waiter("a", class), &record, &nodes, &passed, &margin).err();
        let shown = found.as_ref().map(|it| (it.rule, it.why.as_str()));
        match (shown, expected) {
            (None, None) => {}
            (Some((rule, why)), Some((of, part))) if rule == of && why.contains(part) => {}
            other => panic!("{what}: {other:?}"),
        }
        let held = found.filter(|it| it.rule == TurnRule::Holder);
        let held = held.map(|it| (it.rule.text(), it.nodes[0].clone(), it.next));
        // Never how to end a turn without its condition.
        let shown = ("holder", "b".to_owned(), "zedbox lock status".to_owned());
        assert!(held.is_none_or(|it| it == shown), "{what}");
    }
}

#[test]
fn workers_go_first_and_the_leader_last_but_servers_for_k3s() {
    let classes = [Class::Leader, Class::Worker, Class::Follower, Class::TieBreaker, Class::Worker];
    let names = ["l", "w1", "f", "t", "w2"];
    let queue = |op: Op| -> Vec<Waiter> {
        let of = |(name, class): (&str, Class)| Waiter { op: op.clone(), ..waiter(name, class) };
        names.into_iter().zip(classes.clone()).map(of).collect()
    };
    let ordered = |op: Op| {
        let record = TurnRecord { queue: queue(op), ..TurnRecord::default() };
        let last = ahead(&record, &record.queue[0]).len();
        let names: Vec<String> = order(&record).iter().map(|it| it.node.clone()).collect();
        (names, last)
    };
    let workers = || ["w1", "w2", "t", "f", "l"].map(str::to_owned).to_vec();
    let servers = || ["t", "f", "l", "w1", "w2"].map(str::to_owned).to_vec();
    assert_eq!(ordered(Op::Reboot), (workers(), 4));
    assert_eq!(ordered(Op::K3sUpdate), (servers(), 2));
    let rank = |class| rank(&waiter("x", class));
    assert_eq!(rank(Class::Stranger("new".to_owned())), rank(Class::Leader));
}

#[test]
fn a_turn_is_taken_over_by_proof_only() {
    let it = |change: fn(&mut TurnNode)| {
        let mut it = node("b");
        change(&mut it);
        it
    };
    let table: [(&str, Holder, Vec<TurnNode>, Option<TakeoverProof>); 8] = [
        ("healthy alone", holder("b", 5), vec![node("b")], None),
        ("gone", holder("b", 5), vec![node("a")], Some(TakeoverProof::Gone)),
        ("joined again", holder("b", 5), vec![it(|it| it.uid = "new".to_owned())], Some(TakeoverProof::Gone)),
        ("says idle", holder("b", 5), vec![it(|it| it.idle = true)], Some(TakeoverProof::Idle)),
        (
            "idle, cordoned by us",
            holder("b", 5),
            vec![it(|it| (it.idle, it.mark) = (true, mark(5, "L")))],
            None,
        ),
        ("rebooted, agent silent", holder("b", 5), vec![it(|it| it.boot_id = "new".to_owned())], None),
        ("not Ready", holder("b", 5), vec![it(|it| (it.idle, it.ready) = (true, false))], None),
        ("no sign of life", holder("b", 5), vec![it(|it| (it.pulse, it.idle) = (Pulse::Still, true))], None),
    ];
    for (what, holder, nodes, expected) in table {
        assert_eq!(proof(&holder, &nodes), expected, "{what}");
    }
}

#[test]
fn an_operator_releases_one_grant_with_a_reason_and_no_other() {
    let record = holding(vec![holder("b", 7), holder("c", 8)], 2);
    // The UID is the holder's, whatever the order says.
    let order = ForcedRelease { node_uid: String::new(), ..forced("b", 7, "burnt") };
    let released = release(&record, order).unwrap();
    assert_eq!(released.holder_identity(), "c");
    assert_eq!((released.forced[0].node_uid.as_str(), released.forced[0].fence), ("b-uid", 7));
    assert_eq!(release(&record, forced("b", 7, " ")), Err(OperatorRefusal::NoReason));
    let stale = release(&record, forced("b", 6, "burnt")).unwrap_err();
    assert!(stale.to_string().contains("current holders: b (fence 7), c (fence 8)"), "{stale}");
    assert!(release(&record, forced("c", 7, "burnt")).is_err());
    let mut many = record.clone();
    (0..20).for_each(|fence| many.remember(forced("b", fence, "x")));
    assert_eq!((many.forced.len(), many.forced[7].fence), (8, 19));
    assert_eq!(with_limit(&record, 3).unwrap().limit, 3);
    assert_eq!(with_limit(&record, 0), Err(OperatorRefusal::Limit));
    assert!(may_ignore(&node("b")).is_ok());
    assert_eq!(may_ignore(&server("b")), Err(OperatorRefusal::Member("b".to_owned())));
}
