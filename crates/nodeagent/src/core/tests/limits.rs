//! Limits and verdicts beside commands, and through a restart of the agent.

use super::*;

fn in_test() -> Bench {
    let mut bench = Bench::new();
    bench.partition("IMGA", "inprogress", true);
    bench
}

#[test]
fn a_restart_of_the_agent_makes_no_limit_early() {
    let mut before = in_test();
    before.contact(ConfigGetStatus::Fail);
    before.wait(299);
    let mut again = Bench::with(SavedNodeState { said: Some(before.status()), ..SavedNodeState::default() });
    again.facts();
    again.partition("IMGA", "inprogress", true);
    again.contact(ConfigGetStatus::Fail);
    again.wait(299);
    assert_eq!(again.operations(), []);
    again.wait(61);
    assert_eq!(again.operations().len(), 1);
}

#[test]
fn a_command_of_zedagent_goes_before_a_limit_that_is_reached_with_it() {
    let mut bench = in_test();
    bench.contact(ConfigGetStatus::Fail);
    bench.wait(299);
    bench.hear(Event::Wish(DeviceCommand {
        poweroff: true,
        boot_reason: BootReason::PoweroffCmd,
        ..DeviceCommand::default()
    }));
    bench.wait(600);
    assert_eq!(bench.operations(), [(359, MachineOperation::Poweroff, BootReason::PoweroffCmd)]);
    let Some((_, Effect::Operate(order))) = bench.done.iter().find(|(_, it)| kind(it) == "operate") else {
        panic!()
    };
    assert_eq!(order.reason, "NORMAL: power-off without a stated reason");
}

#[test]
fn a_shutdown_leaves_the_power_on_and_the_limits_in_force() {
    let mut bench = in_test();
    bench.command(MachineOperation::Shutdown);
    bench.wait(30);
    bench.hear(Event::Operated { operation: MachineOperation::Shutdown, outcome: Ok(Took::Machine) });
    bench.hear(Event::Wish(DeviceCommand {
        shutdown: true,
        contact: ConfigGetStatus::Fail,
        ..DeviceCommand::default()
    }));
    bench.wait(360);
    assert_eq!(bench.operations().last(), Some(&(390, MachineOperation::Reboot, BootReason::Fallback)));
}

#[test]
fn a_restart_of_the_agent_keeps_a_verdict_and_begins_a_test_anew() {
    let tested = std::collections::BTreeSet::from(["IMGB".to_owned()]);
    let mut passed = Bench::with(SavedNodeState { tested, ..SavedNodeState::default() });
    passed.hear(Event::Heard(RequiredReading::Drain));
    assert_eq!(passed.verdicts().last(), Some(&(0, "IMGB".into(), true)));
    passed.partition("IMGB", "inprogress", true);
    assert_eq!(passed.verdicts().len(), 2);
    passed.hear(partition("IMGB", "inprogress", true, true));
    assert_eq!(passed.verdicts().last(), Some(&(0, "IMGB".into(), false)));
}

#[test]
fn a_verdict_on_an_image_that_does_not_run_any_more_is_taken_back() {
    let tested = std::collections::BTreeSet::from(["IMGB".to_owned()]);
    let mut bench = Bench::with(SavedNodeState { tested, ..SavedNodeState::default() });
    bench.partition("IMGA", "active", true);
    assert_eq!(bench.verdicts().last(), Some(&(0, "IMGB".into(), false)));
}
