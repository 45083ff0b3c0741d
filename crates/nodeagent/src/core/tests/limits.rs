//! Restarts on the agent's own account, and maintenance.

use super::*;
use topics::MaintenanceModeReason;

const WEEK: u64 = 604_800;

fn in_test() -> Bench {
    let mut bench = Bench::new();
    bench.partition("IMGA", "inprogress", true);
    bench
}

fn reasons(bench: &Bench) -> Option<Vec<MaintenanceModeReason>> {
    let status = bench.status();
    let reasons = status.local_maintenance_mode_reasons;
    assert_eq!(status.local_maintenance_mode, reasons.as_ref().is_some_and(|it| !it.is_empty()));
    reasons
}

fn undrained(bench: &Bench) -> Vec<String> {
    let skip = |(_, effect): &(u64, Effect)| match effect {
        Effect::Say(it) => Some(it.text.strip_prefix("drain skipped: ")?.split_once(". No ")?.0.to_owned()),
        _ => None,
    };
    bench.done.iter().filter_map(skip).collect()
}

/// What is heard, and how many seconds pass then.
type Story = Vec<(Event, u64)>;
/// Of which bench, what happens, what the device is asked for when, and which drain is said to be skipped.
type Row = (&'static str, Bench, Story, Vec<(u64, MachineOperation, BootReason)>, &'static str);

#[test]
fn each_limit_restarts_the_device_at_its_time_and_says_which_drain_is_skipped() {
    use ConfigGetStatus::{Fail, Never, ReadSaved, Stranger, Success, TemporaryFail};
    let said = |contact| Event::Wish(DeviceCommand { contact, ..DeviceCommand::default() });
    let reboot = |at, reason| vec![(at, MachineOperation::Reboot, reason)];
    let (mut outside, mut never_heard) = (Bench::new(), Bench::with(SavedNodeState::default()));
    outside.drain(DrainStatus::NotSupported, Requester::None);
    never_heard.partition("IMGA", "inprogress", true);
    let undrained_week =
        "Exceeded outage for controller connectivity 604800 by 0 seconds; rebooting without a drain";
    let undrained_test =
        "Exceeded fallback outage for controller connectivity 300 by 0 seconds; rebooting without a drain";
    let undrained_vault = "Exceeded time for vault to be ready 300 by 0 seconds; possibly mismatching PCR indexes [4 8 9], \
                           rebooting without a drain";
    let undrained_minute =
        "Exceeded fallback outage for controller connectivity 60 by 40 seconds; rebooting without a drain";
    let week = || reboot(WEEK + 60, BootReason::Disconnect);
    let fallback = |at| reboot(at, BootReason::Fallback);
    let minute = Event::Waits(Waits { fallback: Duration::from_secs(60), ..Waits::default() });
    let shut = Event::Vault(Vault::Shut(vec![4, 8, 9]));
    let unheard = Event::Heard(RequiredReading::Applications);
    let mut rows: Vec<Row> = vec![
        ("a week without controller", Bench::new(), vec![(said(Fail), WEEK + 60)], week(), undrained_week),
        ("the same outside of clusters", outside, vec![(said(Fail), WEEK + 60)], week(), ""),
        ("an image in test", in_test(), vec![(said(Fail), 360)], fallback(360), undrained_test),
        ("a controller that stays", in_test(), vec![(said(Success), 10 * WEEK)], vec![], ""),
        ("no controller from the start", never_heard, vec![(unheard, 360)], fallback(360), undrained_test),
        (
            "a limit that comes later",
            in_test(),
            vec![(said(Fail), 100), (minute, 60)],
            fallback(160),
            undrained_minute,
        ),
        (
            "a vault that stays shut",
            in_test(),
            vec![(shut, 360)],
            reboot(360, BootReason::VaultFailure),
            undrained_vault,
        ),
    ];
    rows.extend([Success, TemporaryFail].map(|word| -> Row {
        let story = vec![(said(Fail), 299), (said(word), 0), (said(Fail), 360)];
        ("any word of the controller ends the outage", in_test(), story, fallback(659), undrained_test)
    }));
    rows.extend([Never, Fail, ReadSaved, Stranger(9)].map(|word| -> Row {
        let story = vec![(said(word), 200), (said(word), 160)];
        ("a saved config or silence is no controller", in_test(), story, fallback(360), undrained_test)
    }));
    for (what, mut bench, story, operated, skipped) in rows {
        for (event, secs) in story.clone() {
            bench.hear(event);
            bench.wait(secs);
        }
        assert_eq!(bench.operations(), operated, "{what}: {story:?}");
        assert_eq!(undrained(&bench).concat(), skipped, "{what}: {story:?}");
        assert_eq!(reasons(&bench), None, "{what}");
    }
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
