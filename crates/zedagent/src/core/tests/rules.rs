//! Any order of facts, against the two promises that this core keeps.
//!
//! A record of which an older copy was read: the boot before this one says how it went on.
//!
//! A person's pause: nothing begins, what has begun ends, and a refusal takes back what the controller has begun.

use proptest::prelude::*;
use topics::{BootReason, OperationPause, PauseScope};

use super::site::{answered, commanded, order};
use super::*;

/// By numbers; answers are for the newest request, an older one, or a foreign one.
#[derive(Debug, Clone)]
enum Fact {
    Config(u32),
    Status(u8, u8),
    Answer { newest: bool, status: u8 },
    Testing(bool),
}

fn fact() -> impl Strategy<Value = Fact> {
    prop_oneof![
        (5_u32..9).prop_map(Fact::Config),
        (2_u8..11, 1_u8..5).prop_map(|(status, by)| Fact::Status(status, by)),
        (any::<bool>(), 2_u8..10).prop_map(|(newest, status)| Fact::Answer { newest, status }),
        any::<bool>().prop_map(Fact::Testing),
    ]
}

fn event(fact: &Fact, newest: Option<RequestId>, wall: GoTime) -> Event {
    match fact {
        Fact::Config(counter) => wants([(DeviceOp::Reboot, *counter)]),
        Fact::Status(number, by) => status(*number, *by),
        Fact::Answer { newest: of_newest, status } => {
            let stranger = RequestId { by: Requester::DeviceOp, at: wall };
            answer_as(newest.filter(|_| *of_newest).unwrap_or(stranger), *status, |_| {})
        }
        Fact::Testing(testing) => nodeagent(|it| it.update_inprogress = *testing),
    }
}

proptest! {
    /// Never early: beside a zedkube that answers, no command comes but for a COMPLETE of the newest request.
    /// A fact heard twice is a fact heard once.
    #[test]
    fn p3_no_order_of_facts_commands_without_its_own_complete(facts in prop::collection::vec(fact(), 1..40)) {
        let wall = wall();
        let mut now = Mono::from_start(Duration::from_secs(1));
        let (mut core, _) = Zedagent::new(&Limits::default(), found("b1"), now, wall);
        // zedkube is there from the start, and answers by request.
        core.step(now, event(&Fact::Status(2, 1), None, wall));
        core.step(now, event(&Fact::Answer { newest: false, status: 2 }, None, wall));
        let (mut newest, mut completed, mut commanded) = (None, false, false);
        for fact in &facts {
            now = now + Duration::from_secs(1);
            if let Fact::Answer { newest: true, status } = fact
                && newest.is_some()
            {
                completed = *status == 9;
            } else if matches!(fact, Fact::Answer { .. }) {
                completed = false;
            }
            let event = event(fact, newest, wall);
            let mut effects = core.step(now, event.clone());
            let again = core.step(now, event);
            prop_assert!(!(asks(&effects) && asks(&again)), "asked twice for one fact");
            effects.extend(again);
            for effect in &effects {
                #[expect(clippy::wildcard_enum_match_arm, reason = "only these three say anything about commands")]
                match effect {
                    Effect::Request(request) => {
                        newest = Some(request.id());
                        completed = false;
                    }
                    Effect::Withdraw => newest = None,
                    Effect::Publish(status) if status.reboot_cmd && !commanded => {
                        prop_assert!(completed, "commanded without its own COMPLETE after {fact:?}");
                        commanded = true;
                    }
                    _ => {}
                }
            }
        }
    }
}

fn older(op: DeviceOp, boot_id: &str) -> SavedDeviceOps {
    let left = DeviceOpPending { op, counter: 7, boot_id: boot_id.into(), ..DeviceOpPending::default() };
    SavedDeviceOps { pending: vec![left], older: vec![op], ..found("b2") }
}

fn booted(boot_reason: BootReason) -> Event {
    nodeagent(|it| it.boot_reason = boot_reason)
}

#[test]
fn k2_what_an_older_copy_says_is_pending_is_not_carried_out_twice_or_that_is_said() {
    let again = |op: DeviceOp| {
        let record = format!("the record of {} 7 was damaged", op.word());
        move |it: &Effect| matches!(it, Effect::Say(it) if it.text.starts_with(&record))
    };
    let rows = [
        (DeviceOp::Reboot, BootReason::RebootCmd, true),
        (DeviceOp::Reboot, BootReason::PowerFail, false),
        // The machine stays on after the controller's shutdown, so no boot tells of it.
        (DeviceOp::Shutdown, BootReason::RebootCmd, false),
    ];
    for (op, reason, executed) in rows {
        let (mut core, mut effects) = start(older(op, "b1"));
        let both = if op == DeviceOp::Reboot { (7, 6) } else { (6, 7) };
        effects.extend(core.step(T0, Event::Site(None)));
        effects.extend(core.step(T0, config(both.0, both.1)));
        assert!(!asks(&effects), "nodeagent has not said why the machine has booted: {effects:?}");
        let effects = core.step(T0, booted(reason));
        let saved = effects.iter().any(|it| matches!(it, Effect::SaveCounter(of, _) if *of == op));
        assert_eq!((saved, asks(&effects), effects.iter().any(again(op))), (executed, !executed, !executed));
        assert!(!asks(&core.step(T0, booted(BootReason::RebootCmd))), "it has been asked for once");
    }
    // Of this boot it was not carried out.
    let (mut core, mut effects) = start(older(DeviceOp::Reboot, "b2"));
    effects.extend(core.step(T0, Event::Site(None)));
    effects.extend(core.step(T0, config(7, 6)));
    assert!(asks(&effects));
}

const REBOOTS: Option<(bool, bool, bool)> = Some((true, false, false));

fn pause(scope: PauseScope) -> OperationPause {
    OperationPause { scope, by: "field".into(), reason: "new disk".into(), ..OperationPause::default() }
}

fn said(scope: PauseScope) -> Event {
    Event::Pause(Some(pause(scope)))
}

fn orders() -> Event {
    Event::Person(Some((DeviceOp::Reboot, "operator field: new disk".to_owned())))
}

/// A core with this pause, or none, that has heard a config that wants nothing new.
fn under(scope: Option<PauseScope>) -> Zedagent {
    let (mut core, _) = start(SavedDeviceOps { pause: scope.map(pause), ..found("b1") });
    core.step(T0, Event::Site(None));
    core.step(T0, config(6, 6));
    core
}

#[test]
fn x3_while_paused_nothing_is_asked_for_and_it_continues_by_itself_once_a_person_says_so() {
    for scope in [PauseScope::Node, PauseScope::Controller] {
        let mut core = under(Some(scope));
        let effects = core.step(T0, config(7, 6));
        assert!(!asks(&effects), "{effects:?}");
        let shown = journal(&effects);
        assert!(shown.waiting_for.contains("by field: new disk"), "{shown:?}");
        assert!(shown.next_step.contains("zedbox resume`"), "{shown:?}");
        // A config that says the same again, or more, lifts nothing.
        for counter in [7, 8] {
            assert!(!asks(&core.step(T0, config(counter, 6))));
        }
        // Nor does a node that nobody drains: it is in no cluster.
        core.step(T0, Event::HasToLeave(false));
        core.step(T0, status(1, 1));
        let effects = core.step(T0, single(config(8, 6)));
        assert_ne!(commanded(&effects), REBOOTS);
        assert_eq!(commanded(&core.step(T0, Event::Pause(None))), REBOOTS);
    }
}

#[test]
fn x3_what_has_started_ends_under_a_pause_and_is_taken_back_by_a_refusal() {
    for scope in [PauseScope::Node, PauseScope::Controller] {
        let mut core = under(None);
        let asked = core.step(T0, config(7, 6));
        assert!(asks(&asked));
        let effects = core.step(T0, said(scope));
        let refused = scope == PauseScope::Controller;
        assert_eq!(effects.contains(&Effect::Withdraw), refused, "{effects:?}");
        assert!(!effects.contains(&Effect::Forget(DeviceOp::Reboot)), "it is not lost: {effects:?}");
        let effects = answered(&mut core, &asked);
        assert_eq!(commanded(&effects) == REBOOTS, !refused, "{effects:?}");
        if refused {
            let again = core.step(T0, Event::Pause(None));
            assert!(asks(&again), "{again:?}");
            assert_eq!(commanded(&answered(&mut core, &again)), REBOOTS);
        }
    }
}

#[test]
fn x3_a_persons_own_order_waits_for_a_pause_and_passes_a_refusal_and_the_sites_passes_both() {
    for (scope, own_goes) in [(PauseScope::Node, false), (PauseScope::Controller, true)] {
        let mut core = under(Some(scope));
        let effects = core.step(T0, orders());
        assert_eq!(asks(&effects), own_goes, "{effects:?}");
        let (mut core, _) = start(SavedDeviceOps { pause: Some(pause(scope)), ..found("b1") });
        core.step(T0, config(6, 6));
        let effects = core.step(T0, order(DeviceOp::Reboot, "b1"));
        assert_eq!(commanded(&answered(&mut core, &effects)), REBOOTS, "{effects:?}");
    }
}

#[test]
fn x3_what_a_person_forces_goes_and_what_is_commanded_is_not_called_back() {
    for scope in [PauseScope::Node, PauseScope::Controller] {
        let mut core = under(Some(scope));
        assert_ne!(commanded(&core.step(T0, config(7, 6))), REBOOTS);
        assert_eq!(commanded(&core.step(T0, forced(Requester::DeviceOp))), REBOOTS);
        let effects = core.step(T0, said(scope));
        assert!(!effects.contains(&Effect::Withdraw), "{effects:?}");
        assert_eq!(commanded(&effects), None, "it stays commanded");
    }
}
