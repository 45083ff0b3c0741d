//! Promises that hold for any facts in any order.

use proptest::prelude::*;

use super::*;

/// A fact, or time that passes.
#[derive(Debug, Clone)]
enum Op {
    Fact(Event),
    Wait(u64),
}

fn contact() -> impl Strategy<Value = ConfigGetStatus> {
    (0..=4_u8).prop_map(ConfigGetStatus::from)
}

fn fact(limits_may_be_reached: bool) -> impl Strategy<Value = Event> {
    let contact =
        if limits_may_be_reached { contact().boxed() } else { Just(ConfigGetStatus::Success).boxed() };
    let wish = (any::<[bool; 3]>(), prop::bool::weighted(0.7), contact).prop_map(|(flags, none, contact)| {
        let [reboot, shutdown, poweroff] = if none { [false; 3] } else { flags };
        let reason = "NORMAL: controller reboot".to_owned();
        let boot_reason = BootReason::RebootCmd;
        Event::Wish(DeviceCommand {
            reboot,
            shutdown,
            poweroff,
            reason,
            boot_reason,
            contact,
            certs_refused: false,
            ours: false,
        })
    });
    let states = prop::sample::select(vec!["active", "inprogress", "unused", "unused", "updating"]);
    let partition = (any::<bool>(), states, any::<bool>()).prop_map(|(b, state, taken)| {
        // A runs; B is the other one.
        let label = if b { "IMGB" } else { "IMGA" };
        partition(label, state, !b, taken)
    });
    let drain = (0..=10_u8, 0..=4_u8).prop_map(|(status, by)| {
        Event::Drain(NodeDrainStatus { status: status.into(), requested_by: by.into() })
    });
    let vaults = if limits_may_be_reached {
        vec![Vault::Silent, Vault::Opening, Vault::Open, Vault::Shut(vec![])]
    } else {
        vec![Vault::Silent, Vault::Open]
    };
    let outcome = prop_oneof![Just(Ok(Took::Machine)), Just(Ok(Took::StandIn)), Just(Err("no".to_owned()))];
    let operations = vec![MachineOperation::Reboot, MachineOperation::Shutdown, MachineOperation::Poweroff];
    let operated = (prop::sample::select(operations), outcome)
        .prop_map(|(operation, outcome)| Event::Operated { operation, outcome });
    prop_oneof![
        4 => wish,
        2 => partition,
        2 => drain,
        3 => (prop::sample::select(vec!["a", "b"]), any::<bool>()).prop_map(|(key, on)| application(key, on)),
        1 => prop::sample::select(vaults).prop_map(Event::Vault),
        1 => prop::option::of(0..2_u64).prop_map(Event::Space),
        1 => prop::sample::select(vec![RequiredReading::Drain, RequiredReading::Applications, RequiredReading::Partitions]).prop_map(Event::Heard),
        2 => operated,
    ]
}

fn ops(limits_may_be_reached: bool) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => fact(limits_may_be_reached).prop_map(Op::Fact),
        1 => prop::sample::select(vec![1_u64, 5, 30, 31, 120, 301, 700]).prop_map(Op::Wait),
    ];
    prop::collection::vec(op, 1..60)
}

fn play(ops: &[Op], times: usize) -> Bench {
    let mut bench = Bench::with(SavedNodeState::default());
    for op in ops {
        match op {
            Op::Fact(event) => {
                for _ in 0..times {
                    bench.hear(event.clone());
                }
            }
            Op::Wait(secs) => bench.wait(*secs),
        }
    }
    bench
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_done_to_the_device_that_nobody_asked_for(ops in ops(false)) {
        let mut bench = Bench::with(SavedNodeState::default());
        bench.contact(ConfigGetStatus::Success);
        let (mut reboot, mut shutdown, mut poweroff) = (false, false, false);
        for op in &ops {
            match op {
                Op::Fact(event) => {
                    match event {
                        Event::Wish(wish) => {
                            reboot |= wish.reboot;
                            shutdown |= wish.shutdown;
                            poweroff |= wish.poweroff;
                        }
                        Event::Partition(it) => reboot |= !it.current_partition && it.partition_state == "updating",
                        _ => {}
                    }
                    bench.hear(event.clone());
                }
                Op::Wait(secs) => bench.wait(*secs),
            }
            for (_, effect) in bench.done.drain(..) {
                let (Effect::Operate(order)
                | Effect::Exit(order)
                | Effect::Reason { order, .. }
                | Effect::Journal(Resumed { order, .. })) = effect
                else {
                    continue;
                };
                let asked = match order.operation {
                    MachineOperation::Reboot => reboot,
                    MachineOperation::Shutdown => shutdown,
                    MachineOperation::Poweroff => poweroff,
                };
                prop_assert!(asked, "{:?} without a word", order);
            }
        }
    }

    #[test]
    fn a_fact_heard_twice_is_a_fact_heard_once(ops in ops(true)) {
        prop_assert_eq!(play(&ops, 1).done, play(&ops, 2).done);
    }

    #[test]
    fn every_operation_reaches_the_device_within_the_sum_of_its_limits(before in ops(true), after in ops(true)) {
        let mut bench = play(&before, 1);
        bench.hear(command(&[MachineOperation::Reboot]));
        let latched = bench.done.iter().any(|(_, it)| matches!(it, Effect::Journal(it) if it.order.operation != MachineOperation::Shutdown));
        prop_assert!(latched);
        let asked = |bench: &Bench| bench.operations().iter().any(|(_, it, _)| *it != MachineOperation::Shutdown);
        let limit = bench.now + Duration::from_secs(30 + 300 + 30);
        for op in &after {
            match op {
                Op::Fact(event) => drop(bench.hear(event.clone())),
                Op::Wait(secs) => {
                    let left = limit.since(bench.now).as_secs();
                    bench.wait(left.min(*secs));
                }
            }
        }
        bench.wait_for(limit.since(bench.now));
        // A drain that is under way for it is waited for, without limit: zedkube has its own.
        bench.drain(DrainStatus::NotRequested, Requester::None);
        prop_assert!(asked(&bench), "{:?}", bench.core);
    }

    #[test]
    fn the_machine_goes_down_by_one_operation_with_its_reason_stored_and_nothing_said_after(ops in ops(true)) {
        let bench = play(&ops, 1);
        let down = |it: &Effect| matches!(it, Effect::Operate(order) if order.operation != MachineOperation::Shutdown);
        let Some(first) = bench.done.iter().position(|(_, it)| down(it)) else { return Ok(()) };
        let Effect::Operate(order) = &bench.done[first].1 else { return Ok(()) };
        let stored = bench.done[..first].iter().any(|(_, it)| matches!(it, Effect::Reason { order: it, .. } if it == order));
        prop_assert!(stored, "the reason stands before the operation");
        let mut refused = false;
        for (_, effect) in &bench.done[first..] {
            match effect {
                Effect::Operate(it) => {
                    prop_assert_eq!(it, order);
                    refused = false;
                }
                // A machine that stays up continues to say how it is.
                Effect::Say(it) if it.text.starts_with("the device refused") => refused = true,
                Effect::Publish(_) | Effect::Zboot(_) => prop_assert!(refused, "{effect:?}"),
                _ => {}
            }
        }
    }

    #[test]
    fn a_restart_of_the_agent_at_any_time_ends_in_the_same_operation(ops in ops(true), cut in 0..60_usize) {
        let whole = play(&ops, 1);
        let cut = cut.min(ops.len());
        let before = play(&ops[..cut], 1);
        let journal = before.done.iter().rev().find_map(|(_, it)| match it {
            Effect::Journal(resumed) => Some(resumed.clone()),
            _ => None,
        });
        let Some(resumed) = journal.filter(|it| !it.done && it.order.operation != MachineOperation::Shutdown) else {
            return Ok(());
        };
        let latched = resumed.order.clone();
        let mut again = Bench::with(SavedNodeState { resumed: Some(resumed), ..SavedNodeState::default() });
        for op in &ops[cut..] {
            match op {
                Op::Fact(event) => drop(again.hear(event.clone())),
                Op::Wait(secs) => again.wait(*secs),
            }
        }
        again.wait(360);
        again.drain(DrainStatus::NotRequested, Requester::None);
        let asked: Vec<_> = again.done.iter().filter_map(|(_, it)| match it {
            Effect::Operate(order) => Some(order.clone()),
            _ => None,
        }).collect();
        prop_assert!(!asked.is_empty() && asked.iter().all(|it| *it == latched), "{asked:?} instead of {latched:?}");
        let undisturbed = whole.done.iter().filter_map(|(_, it)| match it {
            Effect::Operate(order) if order.operation != MachineOperation::Shutdown => Some(order.clone()),
            _ => None,
        });
        for order in undisturbed {
            prop_assert_eq!(order, latched.clone());
        }
    }
}
