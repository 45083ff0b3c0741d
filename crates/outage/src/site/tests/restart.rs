//! A restart of one node after another: the order, what is waited for and with which words, and what stops it.

use std::time::Duration;

use topics::SiteOperation;

use super::super::coordinate::{REBUILD_LIMIT, WELL, next, plan};
use super::super::member::{self, OwnIdentity, Reboot, SiteFacts};
use super::super::operator::{begin, cancel, current, hear, last_restart, pass};
use super::super::record::{Ack, NodeStep, OperatorStatement, SiteKind, SitePhase, SiteRecord};
use crate::site::record::{Move, NODE_LIMIT, PhaseReadings};
use crate::turn::record::TurnRecord;
use crate::turn::rule::TurnNode;

pub(super) fn said() -> OperatorStatement {
    OperatorStatement { who: "operator".to_owned(), why: "update".to_owned(), ..OperatorStatement::default() }
}

pub(super) fn node(name: &str) -> TurnNode {
    TurnNode {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        boot_id: "b1".to_owned(),
        ready: true,
        tie_breaker: name == "t",
        server: !name.starts_with('w'),
        etcd: !name.starts_with('w'),
        ..TurnNode::default()
    }
}

pub(super) fn nodes() -> Vec<TurnNode> {
    ["a", "b", "t", "w1", "w2"].map(node).to_vec()
}

pub(super) fn wish() -> SiteRecord {
    wish_of_all(SiteKind::Restart)
}

/// The same for a shutdown or reboot of all nodes at once.
pub(super) fn wish_of_all(kind: SiteKind) -> SiteRecord {
    SiteRecord { id: "op".to_owned(), kind, by: said(), ..SiteRecord::default() }
}

pub(super) fn own(node: &str, boot_id: &str) -> OwnIdentity {
    OwnIdentity { node: node.to_owned(), uid: format!("uid-{node}"), boot_id: boot_id.to_owned() }
}

/// The operation that is in progress.
pub(super) fn now(record: &TurnRecord) -> SiteRecord {
    current(record).unwrap().unwrap()
}

pub(super) fn ack(node: &str, step: NodeStep) -> Ack {
    let [node, uid, boot_id, since] = [node, &format!("uid-{node}"), "b1", "then"].map(str::to_owned);
    Ack { node, uid, step, boot_id, since, ..Ack::default() }
}

/// A restart in which all nodes wait, and `a` leads etcd.
fn site() -> SiteRecord {
    let mut site = now(&begin(&TurnRecord::default(), &wish(), &nodes()).unwrap());
    for node in ["a", "b", "t", "w1", "w2"] {
        site.hear(Ack { leads: node == "a", ..ack(node, NodeStep::Seen) });
    }
    site.order = plan(&site);
    site
}

/// The same with the first worker at `step`.
fn at(step: NodeStep) -> SiteRecord {
    let mut site = site();
    site.hear(ack("w1", step));
    site
}

pub(super) fn record(site: &SiteRecord) -> TurnRecord {
    TurnRecord { mode: Some(site.mode().unwrap()), ..TurnRecord::default() }
}

fn to(site: &SiteRecord, nodes: &[TurnNode], found: &PhaseReadings) -> SiteRecord {
    match next(site, nodes, found) {
        Move::To(site) => *site,
        other @ (Move::Wait(..) | Move::Scale(_) | Move::Machines(_) | Move::End) => panic!("{other:?}"),
    }
}

/// The step of the node that goes, whether it is there, and what is found; the step and phase that follow, or words that are
/// waited with.
type Row = (NodeStep, bool, PhaseReadings, Result<(NodeStep, SitePhase), &'static str>);

#[test]
fn v3_workers_go_first_then_the_tie_breaker_and_whoever_leads_etcd_now_goes_last() {
    let begun = now(&begin(&TurnRecord::default(), &wish(), &nodes()).unwrap());
    assert_eq!(begun.order, ["w1", "w2", "t", "a", "b"], "it can be read before anything begins");
    assert_eq!(begun.phase, SitePhase::Restarting);
    let mut site = site();
    assert_eq!(
        (site.order.clone(), &*site.leader_now()),
        (["w1", "w2", "t", "b", "a"].map(String::from).to_vec(), "a")
    );
    for done in ["w1", "w2", "t"] {
        site.hear(ack(done, NodeStep::Done));
    }
    // The leader moves while the others restart: it is asked anew.
    site.hear(Ack { leads: false, ..ack("a", NodeStep::Seen) });
    site.hear(Ack { leads: true, ..ack("b", NodeStep::Seen) });
    let site = to(&site, &nodes(), &PhaseReadings::default());
    assert_eq!(site.order, ["w1", "w2", "t", "a", "b"]);
    let site = to(&site, &nodes(), &PhaseReadings::default());
    assert_eq!(site.step("a"), Some(&NodeStep::Draining));
    // Whoever goes keeps its place.
    let mut site = site;
    site.hear(Ack { leads: true, ..ack("a", NodeStep::Going) });
    site.hear(Ack { leads: false, ..ack("b", NodeStep::Seen) });
    assert_eq!(plan(&site), ["w1", "w2", "t", "a", "b"]);
}

#[test]
fn v3_no_server_goes_before_each_server_that_is_there_has_said_whether_it_leads() {
    let mut site = site();
    for done in ["w1", "w2", "t"] {
        site.hear(ack(done, NodeStep::Done));
    }
    let mut nodes = nodes();
    site.hear(ack("a", NodeStep::Seen));
    site.seen.retain(|it| it.node != "b");
    site.order = plan(&site);
    // a is the next by name, and b may lead or not.
    let Move::Wait(waits, _) = next(&site, &nodes, &PhaseReadings::default()) else { panic!() };
    assert!(waits.contains("the next node, a, waits for zedkube on node b"), "{waits}");
    let stopped = to(&site, &nodes, &PhaseReadings { lasted: NODE_LIMIT, ..PhaseReadings::default() });
    assert_eq!(stopped.phase, SitePhase::Stopped);
    // One that is off leads nothing; that the other goes is left to its turn.
    nodes[1].ready = false;
    assert_eq!(to(&site, &nodes, &PhaseReadings::default()).step("a"), Some(&NodeStep::Draining));
}

/// The next move at each step of the node that goes: words that it waits with, or the step and phase that follow.
#[test]
fn v3_a_node_is_waited_for_verified_and_only_then_the_next_one_goes() {
    use NodeStep::{Booted, Done, Draining, Failed, Going, Open, Verifying};
    let none = PhaseReadings::default;
    let late = || PhaseReadings { lasted: NODE_LIMIT, ..none() };
    let held = || PhaseReadings { holders: vec!["w1".to_owned()], ..none() };
    let sick = |lasted| PhaseReadings { lasted, blocking: vec!["nodes fail: w2".to_owned()], ..none() };
    let rebuilt =
        |lasted| PhaseReadings { lasted, well: WELL, rebuilding: vec!["pvc-1".to_owned()], ..none() };
    let well = |well| PhaseReadings { well, ..none() };
    let stops = || Ok((Failed, SitePhase::Stopped));
    let continues = |step| Ok((step, SitePhase::Restarting));
    let rebuilds = "volumes to be made again with node w1 back: pvc-1";
    let rows: Vec<Row> = vec![
        (Draining, true, none(), Err("node w1 to be drained")),
        (Draining, true, late(), Err("node w1 to be drained")),
        (Draining, false, none(), Err("node w1 to be Ready; after 15 min")),
        (Draining, false, late(), stops()),
        (Going, true, none(), Err("node w1 to reboot")),
        (Going, true, late(), stops()),
        (Going, false, none(), Err("node w1 to be Ready")),
        (Going, false, late(), stops()),
        // Storage that is rebuilt takes its time; what it waits for is shown.
        (Booted, true, late(), Err("the checks after boot of node w1")),
        (Booted, false, late(), stops()),
        (Open, true, held(), Err("the turn of node w1 to end")),
        (Open, true, none(), continues(Verifying)),
        (Verifying, true, well(Duration::ZERO), Err("stay well for 5 s with node w1 back")),
        (Verifying, true, sick(Duration::ZERO), Err("well with node w1 back: nodes fail: w2")),
        (Verifying, true, sick(NODE_LIMIT), stops()),
        (Verifying, true, rebuilt(NODE_LIMIT), Err(rebuilds)),
        (Verifying, true, rebuilt(REBUILD_LIMIT), stops()),
        (Verifying, true, well(WELL), continues(Done)),
        (Failed, true, none(), stops()),
    ];
    for (step, there, found, expected) in rows {
        let mut nodes = nodes();
        nodes[3].ready = there;
        let what = format!("{step:?}, there: {there}, {found:?}");
        match (next(&at(step), &nodes, &found), expected) {
            (Move::Wait(waits, next), Err(words)) => {
                assert!(waits.contains(words), "{what}: {waits}");
                assert!(!next.is_empty(), "{what}");
            }
            (Move::To(site), Ok((step, phase))) => {
                assert_eq!((site.step("w1"), &site.phase), (Some(&step), &phase), "{what}");
                let nobody_else = |it: &&Ack| it.node != "w1" && it.step != NodeStep::Seen;
                assert_eq!(site.seen.iter().find(nobody_else), None, "{what}: nobody else goes");
                assert_eq!(
                    phase == SitePhase::Stopped,
                    site.waits.starts_with("node w1: ") && !site.next.is_empty()
                );
            }
            (other, expected) => panic!("{what}: {other:?}, not {expected:?}"),
        }
    }
    let deleted: Vec<TurnNode> = nodes().into_iter().filter(|it| it.name != "w1").collect();
    for step in [NodeStep::Seen, Draining, Failed] {
        let site = to(&at(step), &deleted, &none());
        assert_eq!(site.step("w1"), Some(&NodeStep::Skipped));
        assert_eq!(to(&site, &deleted, &none()).step("w2"), Some(&Draining));
    }
    let then = to(&at(Done), &nodes(), &none());
    assert_eq!(then.step("w2"), Some(&Draining));
    let stopped = SiteRecord { phase: SitePhase::Stopped, ..at(Failed) };
    assert!(matches!(next(&stopped, &nodes(), &late()), Move::Wait(..)), "nothing starts");
}

#[test]
fn v3_a_person_continues_where_it_failed_and_passes_nothing_but_the_look_at_the_cluster() {
    // Failed at a step: continued at this one.
    let (checking, restarting) = (SitePhase::Checking, SitePhase::Restarting);
    for (failed, then, phase) in [
        // Its boot is asked again.
        (NodeStep::Seen, None, &checking),
        (NodeStep::Draining, Some(NodeStep::Draining), &checking),
        (NodeStep::Going, Some(NodeStep::Going), &checking),
        (NodeStep::Booted, Some(NodeStep::Booted), &restarting),
        (NodeStep::Verifying, Some(NodeStep::Open), &restarting),
    ] {
        let mut site = at(failed.clone());
        site.hear(ack("w1", NodeStep::Failed));
        site.phase = SitePhase::Stopped;
        let site = now(&pass(&record(&site), &SitePhase::Stopped, None, &said()).unwrap());
        assert_eq!((site.step("w1"), &site.phase), (then.as_ref(), phase), "{failed:?}");
        assert_eq!(site.passed.len(), 1);
    }
    let restarting = |step| pass(&record(&at(step)), &SitePhase::Restarting, Some("w1"), &said());
    let passed = now(&restarting(NodeStep::Verifying).unwrap());
    assert_eq!(passed.step("w1"), Some(&NodeStep::Done));
    assert_eq!((&*passed.passed[0].phase, &*passed.passed[0].why), ("restarting", "update"));
    for step in [NodeStep::Draining, NodeStep::Going, NodeStep::Booted, NodeStep::Open] {
        let why = restarting(step.clone()).unwrap_err().to_string();
        assert!(why.contains(&format!("node w1 is at step {}", step.text())), "{why}");
    }
    assert!(pass(&record(&at(NodeStep::Draining)), &SitePhase::Stopped, None, &said()).is_err());
    // It names the node, and there has to be one.
    let verifying = |node| pass(&record(&at(NodeStep::Verifying)), &SitePhase::Restarting, node, &said());
    assert!(verifying(Some("w2")).unwrap_err().to_string().contains("node w1 goes now, not w2"));
    assert!(verifying(None).unwrap_err().to_string().contains("add --node w1"));
    let idle = pass(&record(&site()), &SitePhase::Restarting, None, &said()).unwrap_err().to_string();
    assert!(idle.contains("there is nothing to pass"), "{idle}");
}

#[test]
fn v3_after_a_stop_nothing_is_ordered_before_the_cluster_is_well_or_a_person_takes_it_as_well() {
    let found = |lasted, well, blocking: &str, rebuilding: &str| {
        let some = |it: &str| if it.is_empty() { vec![] } else { vec![it.to_owned()] };
        PhaseReadings {
            lasted,
            well,
            blocking: some(blocking),
            rebuilding: some(rebuilding),
            ..PhaseReadings::default()
        }
    };
    let (none, sick) = (Duration::ZERO, "etcd fail: no snapshot");
    let is_ordered = |site: &SiteRecord| {
        let next = member::next(&own("w1", "b1"), None, Ok(site), &SiteFacts::default());
        assert_eq!(next.say.map(|it| it.step), site.step("w1").cloned());
        next.disk.is_some()
    };
    // A node that was to be drained when it failed, and none at all.
    for step in [NodeStep::Draining, NodeStep::Seen] {
        let was_ordered = step == NodeStep::Draining;
        let site = SiteRecord { phase: SitePhase::Checking, ..at(step) };
        for (found, expected) in [
            (found(none, none, "", ""), Err("to stay well for 5 s before the restart continues")),
            (found(NODE_LIMIT, none, "", "pvc-1"), Err("made again before the restart continues: pvc-1")),
            (found(none, WELL, sick, ""), Err("well before the restart continues: etcd fail: no snapshot")),
            (found(NODE_LIMIT, WELL, sick, ""), Ok(SitePhase::Stopped)),
            (found(REBUILD_LIMIT, WELL, "", "pvc-1"), Ok(SitePhase::Stopped)),
            (found(none, WELL, "", ""), Ok(SitePhase::Restarting)),
        ] {
            assert!(!is_ordered(&site));
            match (next(&site, &nodes(), &found), expected) {
                (Move::Wait(waits, _), Err(words)) => assert!(waits.contains(words), "{waits}"),
                (Move::To(to), Ok(phase)) => {
                    assert_eq!((&to.phase, to.seen), (&phase, site.seen.clone()));
                    assert_eq!(
                        phase == SitePhase::Stopped,
                        to.next.contains("--phase stopped"),
                        "{}",
                        to.next
                    );
                    let to = SiteRecord { seen: site.seen.clone(), ..*to };
                    assert_eq!(is_ordered(&to), was_ordered && phase == SitePhase::Restarting);
                    if phase == SitePhase::Stopped {
                        let again = pass(&record(&to), &phase, None, &said()).unwrap();
                        assert_eq!(now(&again).phase, SitePhase::Checking);
                    }
                }
                (other, expected) => panic!("{other:?}, not {expected:?}"),
            }
        }
        let taken = now(&pass(&record(&site), &SitePhase::Checking, None, &said()).unwrap());
        assert_eq!((&taken.phase, taken.passed[0].phase.as_str()), (&SitePhase::Restarting, "checking"));
        assert_eq!(taken.seen, site.seen);
    }
}

#[test]
fn v3_a_second_operation_is_refused_by_name_and_what_has_ended_can_be_read() {
    let begun = begin(&TurnRecord::default(), &wish(), &nodes()).unwrap();
    let why = begin(&begun, &wish_of_all(SiteKind::Shutdown), &nodes()).unwrap_err().to_string();
    assert!(why.contains("the whole-site operation restart (op) is in progress"), "{why}");
    for phase in [SitePhase::Restarting, SitePhase::Stopped] {
        let withdrawn =
            cancel(&record(&SiteRecord { phase: phase.clone(), ..at(NodeStep::Draining) }), &said()).unwrap();
        assert_eq!(withdrawn.mode, None);
        let last = last_restart(&withdrawn).unwrap();
        assert_eq!((last.cancelled.unwrap().phase.as_str(), last.seen.len()), (phase.text(), 5));
    }
    // Older versions keep what they do not know.
    let withdrawn = cancel(&begun, &said()).unwrap();
    let annotations = withdrawn.annotations().unwrap();
    assert_eq!(TurnRecord::parse(annotations, None).unwrap(), withdrawn);
}

#[test]
fn v3_what_a_node_says_by_an_old_reading_does_not_undo_its_order() {
    let (seen, ordered) = (site(), at(NodeStep::Draining));
    let late = hear(&record(&ordered), &seen, &ack("w1", NodeStep::Seen)).unwrap();
    assert_eq!(now(&late).step("w1"), Some(&NodeStep::Draining));
    let heard = hear(&record(&ordered), &ordered, &ack("w1", NodeStep::Going)).unwrap();
    let heard = now(&heard);
    let past = [(NodeStep::Seen, "then".to_owned()), (NodeStep::Draining, "then".to_owned())];
    assert_eq!(
        (heard.step("w1"), heard.ack("w1").unwrap().past.as_slice()),
        (Some(&NodeStep::Going), &past[..])
    );
}

#[test]
fn v3_a_node_takes_its_order_for_one_boot_and_is_held_by_nothing_else() {
    let own = |boot: &str| own("w1", boot);
    let rebooting = |it: Reboot| SiteFacts { reboot: it, ..SiteFacts::default() };
    let (plain, open) = (SiteFacts::default(), SiteFacts { open: true, ..SiteFacts::default() });
    let commanded = rebooting(Reboot { commanded: true, ..Reboot::default() });
    let failed = rebooting(Reboot { failed: "its drain failed".to_owned(), ..Reboot::default() });
    let etcd = SiteFacts { etcd: "its etcd to be ready".to_owned(), ..open.clone() };
    // Step in the record, boot, facts; whether it goes, step on disk, step said.
    let rows = [
        (NodeStep::Seen, "b1", &plain, false, None, NodeStep::Seen),
        (NodeStep::Draining, "b1", &plain, true, Some(NodeStep::Draining), NodeStep::Draining),
        (NodeStep::Draining, "b1", &commanded, true, Some(NodeStep::Draining), NodeStep::Going),
        (NodeStep::Draining, "b1", &failed, true, Some(NodeStep::Draining), NodeStep::Failed),
        (NodeStep::Going, "b1", &commanded, true, Some(NodeStep::Draining), NodeStep::Going),
        (NodeStep::Going, "b2", &plain, false, Some(NodeStep::Booted), NodeStep::Booted),
        // Power was lost while it was drained: that was a boot.
        (NodeStep::Draining, "b2", &plain, false, Some(NodeStep::Booted), NodeStep::Booted),
        (NodeStep::Booted, "b2", &open, false, Some(NodeStep::Booted), NodeStep::Open),
        (NodeStep::Booted, "b2", &etcd, false, Some(NodeStep::Booted), NodeStep::Booted),
        (NodeStep::Open, "b2", &open, false, None, NodeStep::Open),
        (NodeStep::Verifying, "b2", &open, false, None, NodeStep::Verifying),
        (NodeStep::Failed, "b1", &plain, false, None, NodeStep::Failed),
        (NodeStep::Done, "b2", &plain, false, None, NodeStep::Done),
    ];
    for (step, boot, facts, goes, disk, says) in rows {
        let what = format!("{step:?} in {boot}, {facts:?}");
        let next = member::next(&own(boot), None, Ok(&at(step)), facts);
        assert_eq!((next.say.map(|it| it.step), next.cordon), (Some(says), false), "{what}");
        let found = next.disk.as_ref();
        assert_eq!(found.is_some_and(|it| it.go), goes, "{what}");
        assert_eq!(found.map(|it| it.step.clone()), disk.map(|it| it.text().to_owned()), "{what}");
        assert!(found.is_none_or(|it| it.released && it.boot_id == boot), "{what}");
    }
    // Which drains were over before the order is noted with it, and stays.
    let drains = |before: &str| rebooting(Reboot { drains_before: before.to_owned(), ..Reboot::default() });
    let draining = at(NodeStep::Draining);
    let ordered = member::next(&own("b1"), None, Ok(&draining), &drains("one")).disk.unwrap();
    let later = member::next(&own("b1"), Some(&ordered), Ok(&draining), &drains("")).disk.unwrap();
    assert_eq!((ordered.drains_before.as_str(), later), ("one", ordered.clone()));
    // The API is silent: the drain has its own rule for that. After the boot nothing is ordered.
    let (step, boot_id, released) = ("draining".to_owned(), "b1".to_owned(), true);
    let disk = SiteOperation { step, boot_id, released, ..SiteOperation::default() };
    for (boot, goes) in [("b1", true), ("b2", false)] {
        let next = member::next(&own(boot), Some(&disk), Err("refused"), &plain).disk.unwrap();
        assert_eq!((next.go, next.boot_id.as_str()), (goes, boot));
    }
}

#[test]
fn v3_what_is_said_of_a_step_that_is_over_is_about_the_boot_of_that_step() {
    for (step, expected) in [(NodeStep::Seen, "b2"), (NodeStep::Failed, "b1"), (NodeStep::Done, "b1")] {
        let leads = SiteFacts { leads: true, ..SiteFacts::default() };
        let said = member::next(&own("w1", "b2"), None, Ok(&at(step.clone())), &leads).say.unwrap();
        assert_eq!((said.step, said.boot_id.as_str(), said.leads), (step, expected, true));
    }
}
