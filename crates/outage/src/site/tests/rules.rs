//! Tables: what a person may do, what is waited for and with which words, and what a node alone does.

use std::time::Duration;

use topics::SiteOperation;

use super::super::calls::Finding;
use super::super::coordinate::{next, works_for_all};
use super::super::member::{self, GOING_LIMIT, Next, OwnIdentity, SiteFacts};
use super::super::operator::{begin, cancel, pass};
use super::super::record::{Ack, NodeStep, OperatorStatement, SiteKind, SitePhase, SiteRecord};
use super::restart::{node, now, own, record, said, wish_of_all};
use crate::site::record::{Move, NODE_LIMIT, PhaseReadings};
use crate::turn::pulses::Pulse;
use crate::turn::record::{Class, Holder, Op, Phase, TurnRecord};
use crate::turn::rule::{OperatorRefusal, TurnNode};

fn nodes() -> Vec<TurnNode> {
    ["a", "b", "t", "w"].map(node).to_vec()
}

fn wish() -> SiteRecord {
    wish_of_all(SiteKind::Shutdown)
}

fn ack(node: &str, step: NodeStep) -> Ack {
    Ack { leads: node == "a", since: String::new(), ..super::restart::ack(node, step) }
}

/// The operation in this phase, each node at this step.
fn site(phase: SitePhase, step: &NodeStep) -> SiteRecord {
    let mut site = now(&begin(&TurnRecord::default(), &wish(), &nodes()).unwrap());
    for node in ["a", "b", "t", "w"] {
        site.hear(ack(node, step.clone()));
    }
    site.phase = phase;
    site
}

pub(super) fn holder() -> Holder {
    Holder {
        node: "a".to_owned(),
        node_uid: "uid-a".to_owned(),
        boot_id: "b1".to_owned(),
        op: Op::Reboot,
        phase: Phase::Drained,
        server: true,
        ..Holder::default()
    }
}

#[test]
fn an_operation_begins_only_while_nobody_holds_a_turn_and_ends_only_before_the_servers_go() {
    let free = TurnRecord::default();
    let mut held = free.clone();
    held.grant(holder());
    let why = |it: Result<TurnRecord, OperatorRefusal>| it.unwrap_err().to_string();
    assert!(why(begin(&held, &wish(), &nodes())).contains("node a holds a turn (reboot, phase drained)"));
    assert!(begin(&held, &wish_of_all(SiteKind::Restart), &nodes()).is_ok(), "it waits for turns");
    let of = |code: &str| SiteRecord { findings: vec![Finding::new(code, "", "")], ..wish() };
    assert!(begin(&held, &of("turn"), &nodes()).is_ok() && begin(&held, &of("nodes"), &nodes()).is_err());
    assert!(
        why(begin(&free, &SiteRecord { by: OperatorStatement::default(), ..wish() }, &nodes()))
            .contains("--reason")
    );
    assert!(why(begin(&free, &wish(), &[])).contains("no nodes"));
    let begun = begin(&free, &wish(), &nodes()).unwrap();
    assert!(why(begin(&begun, &wish(), &nodes())).contains("shutdown (op) is in progress"));
    let classes: Vec<Class> = now(&begun).nodes.into_iter().map(|it| it.class).collect();
    assert_eq!(classes, [Class::Follower, Class::Follower, Class::TieBreaker, Class::Worker]);

    assert!(why(cancel(&free, &said())).contains("no whole-site operation"));
    for (phase, may) in [
        (SitePhase::Announced, true),
        (SitePhase::WorkersGoing, true),
        (SitePhase::ServersGoing, false),
        (SitePhase::Starting, false),
        (SitePhase::Stranger("new".to_owned()), false),
    ] {
        let withdrawn = cancel(&record(&site(phase.clone(), &NodeStep::Cordoned)), &said());
        assert_eq!(withdrawn.is_ok(), may, "{phase:?}");
        if let Ok(withdrawn) = withdrawn {
            let site = now(&withdrawn);
            assert_eq!(
                (site.phase, site.cancelled.unwrap().phase.as_str()),
                (SitePhase::Uncordoning, phase.text())
            );
        }
    }
    let waiting = record(&site(SitePhase::Detaching, &NodeStep::Cordoned));
    assert!(
        why(pass(&waiting, &SitePhase::Stopping, None, &said())).contains("in phase detaching, not stopping")
    );
    assert!(now(&pass(&waiting, &SitePhase::Detaching, None, &said()).unwrap()).is_passed());
}

#[test]
fn members_of_another_version_are_written_back() {
    let mut mode = record(&site(SitePhase::Stopping, &NodeStep::Cordoned)).mode.unwrap();
    mode.rest.insert("colour".to_owned(), "red".into());
    mode.rest["seen"][0]["height"] = 3.into();
    let mut site = SiteRecord::of(&mode).unwrap();
    site.hear(ack("a", NodeStep::Cordoned));
    assert_eq!(site.mode().unwrap(), mode);
    for needed in ["nodes", "phase"] {
        let mut mode = mode.clone();
        mode.rest.remove(needed);
        let why = SiteRecord::of(&mode).unwrap_err();
        assert!(why.contains("the whole-site operation op cannot be read: it has no "), "{why}");
    }
}

fn found(blocking: &[&str]) -> PhaseReadings {
    PhaseReadings {
        blocking: blocking.iter().map(|it| (*it).to_owned()).collect(),
        ..PhaseReadings::default()
    }
}

#[test]
fn each_phase_says_what_it_waits_for_and_an_operator_can_end_the_wait() {
    use SitePhase::{Announced, Cordoning, Detaching, Restoring, ServersGoing, Starting, Stopping};
    use SitePhase::{Uncordoning, WorkersGoing};
    let (cordoned, booted) = (NodeStep::Cordoned, NodeStep::Booted);
    let mut late = site(Announced, &NodeStep::Seen);
    late.seen.retain(|it| it.node != "w");
    let mut slow = site(Cordoning, &cordoned);
    slow.hear(ack("b", NodeStep::Seen));
    let mut half = site(ServersGoing, &NodeStep::Going);
    half.hear(ack("b", booted.clone()));
    let mut closed = site(Uncordoning, &NodeStep::Open);
    closed.hear(ack("t", booted.clone()));
    let mut missing = site(Starting, &booted);
    missing.hear(ack("w", NodeStep::Going));
    let back = || site(Starting, &booted);
    let mut guests = found(&[]);
    guests.machines.guests = vec!["shop/vm".to_owned()];
    let address = found(&["the virtual IP: to be renewed", "pvc-9"]);
    let attached = "volumes to be detached: pv-1 on node a";
    let table = [
        (late, found(&[]), "write the operation to their disks: w", Cordoning),
        (slow, found(&[]), "nodes to be cordoned: b", Stopping),
        (site(Stopping, &cordoned), guests, "virtual machines to be off: shop/vm", Detaching),
        (site(Detaching, &cordoned), found(&["pv-1 on node a"]), attached, WorkersGoing),
        (site(WorkersGoing, &cordoned), found(&[]), "workers to be off: w", ServersGoing),
        (half, found(&[]), "servers to be off: a, t", Starting),
        (missing, found(&[]), "nodes to come back: w; after 15 min", Uncordoning),
        (back(), address, "the virtual IP: to be renewed", Uncordoning),
        (back(), found(&["pvc-9"]), "pvc-9", Uncordoning),
        (closed, found(&[]), "nodes to be schedulable: t", Restoring),
    ];
    for (site, found, waits, then) in table {
        let Move::Wait(why, next_step) = next(&site, &nodes(), &found) else { panic!("{waits}") };
        assert!(why.contains(waits) && next_step.contains("zedbox"), "{why}; {next_step}");
        let site = SiteRecord { waits: why, next: next_step, since: "09:26".to_owned(), ..site };
        let passed = pass(&record(&site), &site.phase, None, &said()).unwrap();
        let Move::To(after) = next(&now(&passed), &nodes(), &found) else { panic!("{waits}") };
        assert_eq!(after.phase, then, "{waits}");
        assert_eq!([after.waits, after.next, after.since], ["", "", ""], "of the phase before");
    }
}

#[test]
fn only_the_way_up_is_ended_by_time_and_names_who_is_missing() {
    let late = PhaseReadings { lasted: NODE_LIMIT, ..found(&["x"]) };
    for phase in [SitePhase::Announced, SitePhase::Cordoning, SitePhase::Detaching, SitePhase::WorkersGoing] {
        let mut site = site(phase.clone(), &NodeStep::Seen);
        site.seen.retain(|it| it.node != "w");
        assert!(matches!(next(&site, &nodes(), &late), Move::Wait(..)), "{phase:?}");
    }
    let mut all = nodes();
    all[3].ready = false;
    let back = site(SitePhase::Starting, &NodeStep::Booted);
    let without = PhaseReadings { lasted: NODE_LIMIT, ..PhaseReadings::default() };
    let Move::To(after) = next(&back, &all, &without) else { panic!("it waits") };
    assert_eq!((&after.phase, &after.missing[..]), (&SitePhase::Uncordoning, &["w".to_owned()][..]));
    // Broken storage is waited for all the same.
    assert!(matches!(next(&back, &all, &late), Move::Wait(..)));
}

#[test]
fn the_leader_of_etcd_goes_last_and_the_tie_breaker_first() {
    let Move::To(after) =
        next(&site(SitePhase::WorkersGoing, &NodeStep::Going), &[], &PhaseReadings::default())
    else {
        panic!("it waits")
    };
    assert_eq!((after.order.join(" "), &*after.leader_now()), ("t b a".to_owned(), "a"));
}

#[test]
fn the_first_server_that_is_there_and_does_not_go_works_for_all() {
    let mut it = site(SitePhase::WorkersGoing, &NodeStep::Cordoned);
    let coordinator = |it: &SiteRecord, nodes: &[TurnNode]| {
        let of = ["a", "b", "t", "w"].into_iter().filter(|name| works_for_all(name, it, nodes, NODE_LIMIT));
        of.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(coordinator(&it, &nodes()), "a");
    let mut away = nodes();
    away[0].pulse = Pulse::Still;
    assert_eq!(coordinator(&it, &away), "b");
    it.hear(ack("a", NodeStep::Going));
    assert_eq!(coordinator(&it, &nodes()), "b");
    it.nodes.retain(|it| it.node == "w");
    assert_eq!(coordinator(&it, &nodes()), "w");
}

/// On the disk of a server that came so far in its boot `b1`.
fn went(step: &NodeStep) -> SiteOperation {
    let (id, step, boot_id) = ("op".to_owned(), step.text().to_owned(), "b1".to_owned());
    SiteOperation { id, step, boot_id, server: true, ..SiteOperation::default() }
}

#[test]
fn without_the_api_a_server_goes_by_its_own_etcd_and_never_before_it_has_the_order() {
    let order = || ["t", "b", "a"].map(str::to_owned).to_vec();
    let local = |step, all_ready| SiteOperation { order: order(), all_ready, ..went(&step) };
    let facts = |peers, waited| SiteFacts { peers, waited, cordoned: true, ..SiteFacts::default() };
    let (short, long) = (GOING_LIMIT / 2, GOING_LIMIT);
    for (local, facts, goes) in [
        (local(NodeStep::Cordoned, false), facts(Some(0), long), false),
        (local(NodeStep::Ready, false), facts(Some(0), short), false),
        (local(NodeStep::Ready, false), facts(Some(0), long), true),
        (local(NodeStep::Ready, true), facts(Some(1), short), false),
        (local(NodeStep::Ready, true), facts(None, short), false),
        (local(NodeStep::Ready, true), facts(Some(0), Duration::ZERO), true),
        (local(NodeStep::Ready, true), facts(None, long), true),
        (local(NodeStep::Going, true), facts(None, short), true),
        // A later boot.
        (
            SiteOperation { boot_id: "b0".to_owned(), ..local(NodeStep::Going, true) },
            facts(Some(0), long),
            false,
        ),
        (SiteOperation { released: true, ..local(NodeStep::Booted, true) }, facts(None, long), false),
    ] {
        let next = member::next(&own("a", "b1"), Some(&local), Err("no answer"), &facts);
        let disk = next.disk.unwrap();
        assert_eq!(disk.go, goes, "{local:?} {facts:?}");
        assert_eq!(disk.released, local.released, "{local:?}");
        assert_eq!(next.say, None, "{local:?}");
    }
}

#[test]
fn a_node_that_is_back_says_so_only_behind_its_clock_and_its_etcd() {
    let own = own("a", "b2");
    let site = site(SitePhase::ServersGoing, &NodeStep::Going);
    let went = SiteOperation { all_ready: true, ..went(&NodeStep::Going) };
    let step = |facts: &SiteFacts| member::next(&own, Some(&went), Ok(&site), facts).say.map(|it| it.step);
    let clock = SiteFacts { clock: "the clock to be set".to_owned(), ..SiteFacts::default() };
    assert_eq!(step(&clock), None);
    assert_eq!(step(&SiteFacts { up: member::CLOCK_LIMIT, ..clock }), Some(NodeStep::Booted));
    assert_eq!(step(&SiteFacts { etcd: "its etcd".to_owned(), ..SiteFacts::default() }), None);
    assert_eq!(step(&SiteFacts::default()), Some(NodeStep::Booted));
    // Another cluster's node of that name is none of the site.
    let other = OwnIdentity { uid: "other".to_owned(), ..own };
    assert_eq!(member::next(&other, None, Ok(&site), &SiteFacts::default()), Next::default());
}

#[test]
fn a_worker_that_lost_its_power_before_its_order_goes_no_more_and_whoever_is_up_again_is_released() {
    let cordoned = SiteFacts { cordoned: true, ..SiteFacts::default() };
    let worker = SiteOperation { server: false, ..went(&NodeStep::Cordoned) };
    let going = site(SitePhase::ServersGoing, &NodeStep::Cordoned);
    for (boot, goes, says) in [("b1", true, NodeStep::Going), ("b2", false, NodeStep::Booted)] {
        let next = member::next(&own("w", boot), Some(&worker), Ok(&going), &cordoned);
        assert_eq!((next.disk.unwrap().go, next.say.unwrap().step), (goes, says), "{boot}");
    }
    let back = site(SitePhase::Uncordoning, &NodeStep::Booted);
    for (facts, says) in
        [(cordoned, None), (SiteFacts { open: true, ..SiteFacts::default() }, Some(NodeStep::Open))]
    {
        let next = member::next(&own("a", "b2"), Some(&went(&NodeStep::Booted)), Ok(&back), &facts);
        let disk = next.disk.unwrap();
        assert_eq!((disk.released, disk.go, next.say.map(|it| it.step)), (true, false, says));
    }
}
