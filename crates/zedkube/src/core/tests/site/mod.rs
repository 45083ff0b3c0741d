//! A whole-site operation holds this node, lets its machine go, and releases it.
//!
//! Pure: no clock, no I/O, no task.

use step::Core as _;
use topics::{CordonOwner, DrainPhase, DrainStatus, Requester};

use super::bench::{Bench, request};
use super::{Effect, Event, Membership, NodeLook, SiteHold};

fn kept() -> Event {
    Event::Site(SiteHold::Kept("whole-site shutdown op-1".to_owned()))
}

fn go() -> Event {
    Event::Site(SiteHold::Go("whole-site shutdown op-1".to_owned()))
}

/// Whether anything was asked of the cluster or of the keeper of turns.
fn asks(bench: &Bench) -> bool {
    bench.last.iter().any(|it| {
        matches!(
            it,
            Effect::Probe(_) | Effect::Cordon(..) | Effect::Drain(..) | Effect::Turn(_) | Effect::Look { .. }
        )
    })
}

#[test]
fn u13_a_node_that_is_held_begins_no_drain_and_goes_without_one_when_the_site_says_so() {
    let mut bench = Bench::idle();
    bench.hear(kept());
    let (reboot, update) = (request(Requester::DeviceOp, 1), request(Requester::Update, 2));
    bench.ask(&update);
    bench.ask(&reboot);
    assert!(!asks(&bench));
    assert_eq!(bench.status().0, DrainStatus::Requested.number());
    let progress = bench.core.progress();
    assert_eq!(progress.phase, DrainPhase::WholeSite);
    assert!(progress.reason.contains("whole-site shutdown op-1 holds this node"), "{}", progress.reason);
    bench.hear(go());
    assert!(!asks(&bench));
    let progress = bench.core.progress();
    let answer = progress.answer(reboot.id()).unwrap();
    assert_eq!(answer.status, DrainStatus::Complete);
    assert_eq!(answer.skip, "whole-site shutdown op-1: pods stay");
    // Nobody else is let go ahead by that.
    assert!(progress.answer(update.id()).is_none_or(|it| it.status != DrainStatus::Complete));
    // It holds as long as the machine takes.
    assert_eq!(bench.core.next_wake(), None);
}

#[test]
fn u13_a_drain_under_way_ends_when_the_site_holds_the_node_and_the_cordon_stays() {
    let mut bench = Bench::asked(Requester::DeviceOp);
    let run = bench.until_draining();
    bench.hear(kept());
    assert!(bench.last.contains(&Effect::Cancel) && !bench.gives_back());
    bench.done(run);
    assert_ne!(bench.status().0, DrainStatus::Complete.number());
    // Withdrawn: the drain begins again.
    bench.hear(Event::Site(SiteHold::None));
    assert!(asks(&bench));
}

#[test]
fn u13_after_the_boot_no_cordon_is_removed_before_the_site_releases_the_node() {
    let mut bench = Bench::with(None);
    bench.hear(kept());
    bench.join();
    assert!(!asks(&bench), "{:?}", bench.last);
    bench.hear(Event::Site(SiteHold::None));
    assert!(bench.gives_back());
    bench.look(NodeLook::NotReady);
    assert_eq!(bench.core.progress().cordon, CordonOwner::Ours);
}

#[test]
fn a_node_that_leaves_its_cluster_is_held_by_nothing_else() {
    let mut bench = Bench::idle();
    bench.hear(kept());
    bench.hear(Event::Member(Membership::Leaving));
    assert_eq!(bench.core.progress().phase, DrainPhase::Leaving);
    let reboot = request(Requester::DeviceOp, 1);
    bench.ask(&reboot);
    bench.hear(go());
    assert!(bench.core.progress().answer(reboot.id()).is_none_or(|it| it.status != DrainStatus::Complete));
}
