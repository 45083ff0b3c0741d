//! After a boot: when our cordon of an earlier one goes, and what is said until then.
//!
//! Pure: no clock, no I/O, no task.
//!
//! A node that has no drain: whose cordon is on it, however it came, and what counts as a repair.

use std::collections::BTreeMap;
use std::time::Duration;

use kubenodeop::node::CordonSeen;
use kubenodeop::node::boot::{GateReport, LeftoverPods, NodeAtRest};
use kubenodeop::node::gate::{Layer, since_boot};
use step::Core as _;
use topics::{
    Answer, ClusterKnown, CordonOwner, DrainJournal, DrainPhase, DrainStatus, GateWarning, GoTime, Requester,
};

use super::bench::{Bench, T0, at_once, gate, request};
use super::stories::{TAINT, go, tell};
use super::world::ALL;
use super::{Effect, Event, Membership, NodeLook};

/// Of a repair that has to be made again and again.
const AGAIN: &str = "had to be removed 3 times or more";

pub(super) fn report(bench: &Bench, layer: Option<Layer>, taints: &[&str], repairs: &[&str]) -> Event {
    Event::Gate(Box::new(reported(bench, layer, taints, repairs)))
}

fn reported(bench: &Bench, layer: Option<Layer>, taints: &[&str], repairs: &[&str]) -> GateReport {
    let mut report = gate(layer, bench.now);
    if let Some(verdict) = &mut report.verdict {
        verdict.shown.stale_taints = taints.iter().map(|it| (*it).to_owned()).collect();
    }
    report.repairs = repairs.iter().map(|it| ((*it).to_owned(), 1)).collect();
    report
}

/// In a new boot, a member; the journal is of the earlier one.
pub(super) fn booted() -> Bench {
    booted_after(Vec::new())
}

/// Its node is schedulable.
pub(super) fn open() -> Bench {
    let mut bench = booted();
    bench.look(NodeLook::Open);
    bench
}

/// The same after a boot that ended with these answers.
fn booted_after(answers: Vec<Answer>) -> Bench {
    let status = DrainStatus::Complete;
    let journal = DrainJournal { boot_id: "b0".into(), status, answers, ..DrainJournal::default() };
    let mut bench = Bench::with(Some(journal));
    bench.hear(Event::NodeKnown { name: "n1".into() });
    bench.hear(Event::Member(Membership::Member));
    assert!(bench.last.contains(&Effect::Gate(true)));
    bench.read_requests();
    bench
}

/// Whether the last look may take a cordon of an earlier boot, if there was one.
fn may_open(bench: &Bench) -> Option<bool> {
    bench.last.iter().find_map(|it| {
        if let Effect::Look { uncordon: true, gate_open, .. } = it { Some(*gate_open) } else { None }
    })
}

#[test]
fn r4_a_cordon_of_an_earlier_boot_waits_for_the_gate_and_then_goes_at_once() {
    let mut bench = booted();
    assert_eq!(may_open(&bench), Some(false));
    bench.look(NodeLook::NotReady);
    for &layer in Layer::ALL {
        bench.hear(report(&bench, Some(layer), &[], &[]));
        let progress = bench.core.progress();
        assert_eq!((progress.phase, progress.gate.layer.as_str()), (DrainPhase::AfterBoot, layer.text()));
        assert!(progress.reason.contains(&progress.gate.words), "{progress:?}");
        assert_eq!((progress.gate.open, progress.next_step.as_str()), (false, "fix it"));
        assert_eq!(may_open(&bench), None);
    }
    bench.hear(report(&bench, None, &[], &[]));
    assert_eq!(may_open(&bench), Some(true));
    // The words are right in between too.
    let progress = bench.core.progress();
    assert_eq!(
        (progress.phase, progress.reason.as_str(), progress.next_step.as_str()),
        (
            DrainPhase::AfterBoot,
            "the node is healthy after the boot; removing our cordon of the earlier boot",
            ""
        )
    );
    bench.look(NodeLook::Open);
    let own = BTreeMap::from([("own cordon of an earlier boot".to_owned(), 1)]);
    let progress = bench.core.progress();
    assert_eq!((progress.phase, progress.repairs, progress.gate.open), (DrainPhase::Idle, own, true));
    assert_eq!(bench.said("removed after the boot: own cordon of an earlier boot"), 1);
    assert!(bench.last.contains(&Effect::Gate(false)));
    assert_eq!(bench.core.next_wake(), None);
}

#[test]
fn r4_a_gate_that_shuts_again_before_the_cordon_is_gone_keeps_it() {
    // It keeps looking, and removes nothing.
    let looks = ", wait 15, does uncordon-shut, look NotReady".repeat(10);
    tell(&format!("booted, look NotReady, gate open, does uncordon-open, look NotReady, gate Node {looks}"));
}

#[test]
fn r5_stale_taints_keep_the_watch_on_until_they_are_gone_and_each_removal_is_counted() {
    // What comes late changes nothing.
    tell(
        "open, gate open taint, stale 1, not leave-gate, gate open fixed, does leave-gate, repaired 1, stale 0
        gate Node, does nothing",
    );
}

#[test]
fn r4_a_cordon_that_is_kept_is_told_of_also_before_the_cluster_is_known() {
    tell(
        "new, named, requests read, look NotReady, gate Storage, phase AfterBoot, next is fix it, reason has Storage
        reason has was seen",
    );
}

#[test]
fn r5_what_was_mended_is_counted_on_over_a_second_watch() {
    tell(
        "open, gate open fixed, does leave-gate, ask DeviceOp, withdraw DeviceOp, look NotReady, does watch-gate
        repaired 1, gate open fixed, repaired 2",
    );
}

#[test]
fn the_log_tells_of_a_gate_once() {
    tell("booted, gate Lease, says 1 the gate after the boot, gate Lease, says 0 the gate after the boot");
}

#[test]
fn r4_an_api_that_is_away_after_the_boot_is_shown_with_the_other_servers_that_were_known() {
    let known = ClusterKnown { servers: vec!["n2".into(), "n3".into()], ..ClusterKnown::default() };
    let mut bench =
        Bench::with(Some(DrainJournal { boot_id: "b0".into(), known, ..DrainJournal::default() }));
    bench.hear(Event::NodeKnown { name: "n1".into() });
    bench.hear(Event::Member(Membership::Member));
    let next = |bench: &Bench| bench.core.progress().gate.next_step;
    bench.hear(report(&bench, Some(Layer::Service), &[], &[]));
    assert_eq!(next(&bench), "fix it; the other servers are n2, n3");
    bench.hear(report(&bench, Some(Layer::Node), &[], &[]));
    assert_eq!(next(&bench), "fix it");
}

#[test]
fn a_cordon_that_somebody_else_took_away_is_no_repair_of_ours() {
    tell("booted, look NotReady, gate Node, wait, look Open, repaired nothing");
}

#[test]
fn in_no_cluster_the_gate_is_watched_only_for_a_cordon_of_ours() {
    let all = ALL.map(|who| format!("read {who:?}, not watch-gate")).join(", ");
    tell(&format!(
        "new, member Outside, named, {all}, look NotReady, does watch-gate, wait, look Open, does leave-gate"
    ));
}

#[test]
fn r7_a_drain_in_this_boot_is_not_disturbed_by_the_gate() {
    tell(
        "booted, look NotReady, ask DeviceOp, drains, gate open, not uncordon, done, status 9 2, look Ours
        not uncordon",
    );
}

#[test]
fn r5_v2_taints_that_come_back_are_watched_for_removed_and_counted_and_repeats_are_warned_of() {
    // The gate sees them itself, before.
    let mut bench = tell("booted, not watch-taints, look Open, gate open, does leave-gate watch-taints");
    for times in 1..=3_u32 {
        let more = u32::from(times == 3);
        // Not looked at yet is no word on taints. What the watch was at when it ended is no word on the node any more.
        go(
            &mut bench,
            &format!(
                "pass 3600, tainted, does watch-gate, says 1 renewed its lease for 60 s: {TAINT}
                gate Service, not leave-gate, gate Lease taint, not leave-gate
                gate Lease fixed, does leave-gate watch-taints, layer none, repaired {times}, says {more} {AGAIN}
                warnings {more}"
            ),
        );
    }
}

#[test]
fn o7_repairs_count_over_restarts_and_boots_until_they_are_a_day_old_and_no_clock_makes_them_count_for_longer()
 {
    let taint = "node.kubernetes.io/unreachable:NoExecute";
    let fixed = |journal: Option<DrainJournal>, hours: u64| {
        let mut bench = Bench::at(T0 + Duration::from_hours(hours), at_once(), journal);
        bench.join();
        bench.look(NodeLook::Open);
        bench.hear(report(&bench, None, &[], &[taint]));
        let said = bench.said(AGAIN) > 0;
        (bench.core.journal(), said, bench.core.progress())
    };
    let (first, said, progress) = fixed(None, 0);
    assert!(!said && progress.gate.warnings.is_empty() && first.repairs[taint].len() == 1, "{first:?}");
    let (second, said, _) = fixed(Some(first.clone()), 1);
    assert!(!said && second.repairs[taint].len() == 2, "{second:?}");
    // Of this boot, or of another one.
    for boot in [second.boot_id.clone(), "b0".to_owned()] {
        let (third, said, progress) = fixed(Some(DrainJournal { boot_id: boot, ..second.clone() }), 2);
        assert!(said && third.repairs[taint].len() == 3, "{third:?}");
        assert_eq!((progress.gate.warnings.len(), progress.repairs.get(taint)), (1, Some(&1)));
        // It is shown after a start, without another one, and said no more.
        let mut again = Bench::at(T0 + Duration::from_hours(3), at_once(), Some(third.clone()));
        again.join();
        assert_eq!(again.core.progress().gate.warnings.len(), 1);
        assert_eq!(again.core.journal().repairs, third.repairs);
        assert!(again.core.progress().repairs.is_empty(), "what this start has fixed");
    }
    // A day later the first two count no more.
    let (_, said, progress) = fixed(Some(second.clone()), 26);
    assert!(!said && progress.gate.warnings.is_empty());
    // Written by a clock that was ahead.
    let ahead = second.repairs[taint].iter().map(|it| it.plus(Duration::from_hours(24 * 400))).collect();
    let wrong = DrainJournal { repairs: [(taint.to_owned(), ahead)].into(), ..second };
    let again = Bench::with(Some(wrong));
    let longest = again.core.journal().repairs[taint].iter().max().copied().unwrap();
    assert!(longest <= again.core.node.wall(T0 + Duration::from_hours(24)), "{longest:?}");
}

#[test]
fn o7_a_third_repair_of_one_kind_within_a_day_is_warned_of_once_until_they_are_a_day_old() {
    let taint = "node.kubernetes.io/unreachable:NoExecute";
    let mut bench = open();
    bench.hear(report(&bench, None, &[], &[]));
    let mut said = 0;
    let mut mended = |bench: &mut Bench, hours: u64| {
        bench.now = bench.now + Duration::from_hours(hours);
        bench.hear(Event::Tainted(vec![taint.to_owned()]));
        bench.hear(report(bench, None, &[], &[taint]));
        said += bench.said(AGAIN);
        (said, bench.core.progress().gate.warnings.len())
    };
    // Three within 25 h, and then within 24 h; those of one outage are one.
    assert_eq!([0, 0, 0, 13, 12].map(|hours| mended(&mut bench, hours)), [(0, 0); 5]);
    assert_eq!(mended(&mut bench, 1), (1, 1));
    assert_eq!(mended(&mut bench, 1), (1, 1), "once, not with each more of them");
    let progress = bench.core.progress();
    let [warning] = progress.gate.warnings.as_slice() else { panic!("{progress:?}") };
    assert_eq!((warning.layer.as_str(), warning.failed), ("repairs", true));
    assert!(warning.words.contains(taint) && warning.next_step.contains("network"), "{warning:?}");
    assert_eq!(progress.repairs, [(taint.to_owned(), 7)].into());
    // Time alone ends it: the oldest of the last three is a day old.
    assert_eq!(bench.wait(), Duration::from_hours(22));
    assert!(bench.core.progress().gate.warnings.is_empty());
}

pub(super) fn warned(bench: &Bench, failed: bool) -> Event {
    let mut report = gate(None, bench.now);
    if let Some(verdict) = &mut report.verdict {
        let (words, next_step) = ("pods are not Ready: kube-system/dns".to_owned(), "describe it".to_owned());
        let (layer, since) = (Layer::System.text().to_owned(), since_boot(bench.now));
        verdict.shown.warnings = vec![GateWarning { layer, words, next_step, since, failed }];
        verdict.holds_turn = !failed;
    }
    Event::Gate(Box::new(report))
}

#[test]
fn seed_1_10_what_is_warned_of_is_shown_logged_once_and_watched_until_it_is_healed_and_keeps_no_cordon() {
    let mut bench = booted();
    bench.look(NodeLook::NotReady);
    bench.hear(warned(&bench, false));
    assert_eq!(may_open(&bench), Some(true));
    bench.look(NodeLook::Open);
    assert!(!bench.core.cleanup.is_healthy(), "it keeps the turn until its limit");
    assert_eq!(bench.core.progress().reason, "no drain requested");
    bench.hear(warned(&bench, true));
    let said = |bench: &Bench| bench.said("after the boot, ");
    assert!(bench.core.cleanup.is_healthy() && said(&bench) == 1, "{:?}", bench.last);
    bench.hear(warned(&bench, true));
    assert_eq!(said(&bench), 0);
    let progress = bench.core.progress();
    let shown = &progress.gate.warnings[0];
    assert_eq!((shown.layer.as_str(), shown.failed, progress.gate.open), ("system-pods", true, true));
    assert!(progress.reason.ends_with("since the boot: pods are not Ready: kube-system/dns"), "{progress:?}");
    assert_eq!(progress.next_step, "describe it");
    assert!(!bench.last.contains(&Effect::Gate(false)));
    bench.hear(report(&bench, None, &[], &[]));
    assert!(bench.last.contains(&Effect::Gate(false)), "healed: {:?}", bench.last);
    assert_eq!(
        (bench.core.progress().gate.warnings.len(), bench.core.progress().reason.as_str()),
        (0, "no drain requested")
    );
}

#[test]
fn seed_1_10_a_warning_stops_no_drain_and_voids_no_complete() {
    tell(
        "open, gate warned, ask DeviceOp, drains, gate warned, done, look Ours, gate warned, status 9 2
        not uncordon",
    );
}

#[test]
fn r8_pods_of_the_former_boot_are_looked_after_beside_an_open_gate_counted_and_named() {
    let mut bench = open();
    let with = |bench: &Bench, pending, cleared, words: &str| {
        let leftovers =
            LeftoverPods { pending, cleared, words: words.to_owned(), next_step: "look".to_owned() };
        Event::Gate(Box::new(GateReport { leftovers, ..reported(bench, None, &[], &[]) }))
    };
    bench.hear(with(&bench, true, 0, ""));
    assert!(bench.core.cleanup.is_healthy(), "they hold nothing up");
    assert!(!bench.last.contains(&Effect::Gate(false)), "they are still looked after");
    bench.hear(with(&bench, true, 2, "shop/web is left"));
    assert_eq!(bench.core.progress().repairs, [("pod of the former boot".to_owned(), 2)].into());
    assert_eq!(bench.said(AGAIN), 0);
    bench.hear(with(&bench, false, 2, "shop/web is left"));
    assert!(bench.last.contains(&Effect::Gate(false)), "{:?}", bench.last);
    let progress = bench.core.progress();
    assert!(progress.reason.ends_with("shop/web is left"), "{}", progress.reason);
    assert_eq!(progress.next_step, "look");
    assert_eq!(progress.repairs, [("pod of the former boot".to_owned(), 2)].into());
}

#[test]
fn r8_a_gate_that_ends_beside_a_silent_kubelet_is_not_watched_again_for_pods_that_are_gone_since() {
    let mut bench = open();
    for (layer, pending) in [(None, true), (Some(Layer::Lease), false)] {
        let mut now = reported(&bench, layer, &[], &[]);
        now.leftovers.pending = pending;
        bench.hear(Event::Gate(Box::new(now)));
    }
    assert!(bench.last.contains(&Effect::Gate(false)), "{:?}", bench.last);
    bench.hear(Event::Tick);
    assert!(!bench.last.contains(&Effect::Gate(true)), "{:?}", bench.last);
}

#[test]
fn v2_while_a_drain_is_under_way_or_complete_nobody_watches_for_taints() {
    tell(
        "open, gate open, ask DeviceOp, does leave-taints, drains, tainted, not watch-gate, done, not watch-taints
        look Ours, withdraw DeviceOp, does watch-taints",
    );
}

#[test]
fn d12_machines_are_given_back_once_the_gate_is_open_also_beside_a_cordon_of_somebody_else_and_hold_nothing_up()
 {
    for seen in ["Open", "Foreign"] {
        tell(&format!(
            "booted, look {seen}, not undo-All, gate open, does undo-All, left 403, reason has 403, phase Idle
            next is give the role, well, left, reason lacks machines"
        ));
    }
}

#[test]
fn d19_migrations_are_taken_back_beside_the_look_that_removes_our_cordon_and_neither_waits_for_the_other() {
    for end in ["withdraw DeviceOp", "fails all"] {
        // The gate after the boot is still shut here.
        tell(&format!(
            "draining DeviceOp, {end}, does undo-Migrations uncordon, look Open, says 1 removed our own cordon
            not undo-Nothing undo-Migrations undo-All, left cancel the evacuation: 503, reason lacks cannot be read"
        ));
    }
}

#[test]
fn o7_that_the_cordon_of_an_operation_that_was_carried_out_goes_is_no_repair() {
    for (status, skip, counts) in [
        (DrainStatus::Complete, "", false),
        (DrainStatus::Complete, "the API was away", true),
        (DrainStatus::Cordoned, "", true),
    ] {
        let answer =
            Answer { requested_by: Requester::DeviceOp, status, skip: skip.to_owned(), ..Answer::default() };
        let mut bench = booted_after(vec![answer]);
        bench.look(NodeLook::NotReady);
        bench.hear(report(&bench, None, &[], &[]));
        bench.look(NodeLook::Open);
        assert_eq!(bench.core.progress().repairs.len(), usize::from(counts), "{status:?} {skip}");
        assert!(bench.said("removed our own cordon") == 1);
    }
}

/// At rest, with the gate open.
fn at_rest() -> Bench {
    let mut bench = open();
    bench.hear(report(&bench, None, &[], &[]));
    assert!(bench.last.contains(&Effect::Taints(true)));
    bench
}

fn seen_at_rest(cordon: CordonSeen) -> Event {
    Event::AtRest(NodeAtRest { cordon: Some(cordon), is_api_silent: false })
}

#[test]
fn an_api_that_is_silent_at_rest_is_shown_with_since_when_until_it_answers_or_a_drain_asks_it() {
    let mut bench = at_rest();
    let silent = Event::AtRest(NodeAtRest { cordon: Some(CordonSeen::None), is_api_silent: true });
    let shown = |bench: &Bench| (bench.core.progress().phase, bench.core.progress().api_silent_since);
    assert_eq!(shown(&bench), (DrainPhase::Idle, GoTime::ZERO));
    bench.hear(silent.clone());
    let (phase, since) = shown(&bench);
    assert!(phase == DrainPhase::Idle && !since.is_zero());
    assert!(bench.core.progress().next_step.contains("systemctl status k3s"));
    bench.now = bench.now + Duration::from_mins(1);
    bench.hear(silent.clone());
    assert_eq!(shown(&bench).1, since, "since when stays");
    bench.hear(seen_at_rest(CordonSeen::None));
    assert_eq!(shown(&bench).1, GoTime::ZERO);
    // A drain asks by itself, and says it by itself.
    bench.hear(silent);
    bench.ask(&request(Requester::DeviceOp, 1));
    assert_eq!(shown(&bench), (DrainPhase::Checking, GoTime::ZERO));
    // The same of a start while the API is away.
    let mut bench = open();
    bench.hear(report(&bench, Some(Layer::Service), &[], &[]));
    assert!(shown(&bench).0 == DrainPhase::Idle && !shown(&bench).1.is_zero());
}

#[test]
fn t5_a_cordon_of_ours_that_comes_back_without_a_drain_goes_at_once_and_so_does_a_mark() {
    let mut bench = at_rest();
    // Etcd was restored; or somebody writes our annotation at a node in service.
    for seen in [CordonSeen::Ours, CordonSeen::Marked] {
        bench.hear(seen_at_rest(seen));
        assert_eq!(may_open(&bench), Some(true), "{seen:?}");
        let look = bench.nth();
        // An event of before the look's end: it is looked at once more, and no further.
        bench.hear(seen_at_rest(seen));
        assert_eq!(may_open(&bench), None);
        bench.hear(Event::Looked(look, Ok(NodeLook::Open)));
        assert_eq!(may_open(&bench), Some(true), "{seen:?}");
        bench.look(NodeLook::Open);
        assert_eq!(may_open(&bench), None);
        assert_eq!(bench.core.progress().cordon, CordonOwner::None);
    }
    // While the gate is watched, its reports say the same.
    bench.hear(Event::Tainted(vec!["node.kubernetes.io/unreachable:NoExecute".to_owned()]));
    let shut = reported(&bench, Some(Layer::Node), &[], &[]);
    bench.hear(Event::Gate(Box::new(GateReport { cordon: Some(CordonSeen::Ours), ..shut })));
    assert_eq!(may_open(&bench), Some(false));
    // A drain has its own cordon.
    let mut drained = at_rest();
    drained.ask(&request(Requester::DeviceOp, 1));
    drained.until_draining();
    drained.hear(seen_at_rest(CordonSeen::Ours));
    assert_eq!(may_open(&drained), None);
}
