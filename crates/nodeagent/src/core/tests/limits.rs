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

#[test]
fn a_week_without_controller_restarts_the_device_and_says_that_the_drain_is_skipped() {
    let mut bench = Bench::new();
    bench.contact(ConfigGetStatus::Fail);
    bench.wait(WEEK - 1);
    assert_eq!(bench.operations(), []);
    bench.wait(61);
    assert_eq!(bench.operations(), [(WEEK + 60, MachineOperation::Reboot, BootReason::Disconnect)]);
    assert_eq!(
        undrained(&bench),
        ["Exceeded outage for controller connectivity 604800 by 0 seconds; rebooting without a drain"]
    );
}

#[test]
fn a_node_outside_of_clusters_skips_no_drain() {
    let mut bench = Bench::new();
    bench.drain(DrainStatus::NotSupported, Requester::None);
    bench.contact(ConfigGetStatus::Fail);
    bench.wait(WEEK + 60);
    assert_eq!(bench.operations().len(), 1);
    assert_eq!(undrained(&bench), [""; 0]);
}

#[test]
fn an_image_in_test_falls_back_after_its_own_shorter_limit() {
    let mut bench = in_test();
    bench.contact(ConfigGetStatus::Fail);
    bench.wait(299);
    assert_eq!(bench.operations(), []);
    bench.wait(61);
    assert_eq!(bench.operations(), [(360, MachineOperation::Reboot, BootReason::Fallback)]);
    assert_eq!(
        undrained(&bench),
        ["Exceeded fallback outage for controller connectivity 300 by 0 seconds; rebooting without a drain"]
    );
}

#[test]
fn any_word_of_the_controller_ends_the_outage() {
    for word in [ConfigGetStatus::Success, ConfigGetStatus::TemporaryFail] {
        let mut bench = in_test();
        bench.contact(ConfigGetStatus::Fail);
        bench.wait(299);
        bench.contact(word);
        bench.contact(ConfigGetStatus::Fail);
        bench.wait(299);
        assert_eq!(bench.operations(), [], "{word:?}");
        bench.wait(61);
        assert_eq!(bench.operations().len(), 1, "{word:?}");
    }
}

#[test]
fn a_saved_config_or_silence_is_no_controller() {
    for word in [
        ConfigGetStatus::Never,
        ConfigGetStatus::Fail,
        ConfigGetStatus::ReadSaved,
        ConfigGetStatus::Stranger(9),
    ] {
        let mut bench = in_test();
        bench.contact(word);
        // Hearing it again does not begin the time again.
        bench.wait(200);
        bench.contact(word);
        bench.wait(160);
        assert_eq!(bench.operations(), [(360, MachineOperation::Reboot, BootReason::Fallback)], "{word:?}");
    }
}

#[test]
fn a_controller_that_stays_is_never_an_outage() {
    let mut bench = in_test();
    bench.wait(10 * WEEK);
    assert_eq!(bench.operations(), []);
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
fn an_image_without_any_controller_from_the_start_falls_back_too() {
    let mut bench = Bench::with(SavedNodeState::default());
    bench.hear(Event::Heard(RequiredReading::Applications));
    bench.partition("IMGA", "inprogress", true);
    bench.wait(360);
    assert_eq!(bench.operations(), [(360, MachineOperation::Reboot, BootReason::Fallback)]);
}

#[test]
fn the_limits_are_those_of_the_controller() {
    let mut bench = in_test();
    bench.contact(ConfigGetStatus::Fail);
    bench.wait(100);
    bench.hear(Event::Waits(Waits { fallback: Duration::from_secs(60), ..Waits::default() }));
    bench.wait(60);
    assert_eq!(bench.operations(), [(160, MachineOperation::Reboot, BootReason::Fallback)]);
}

#[test]
fn a_vault_that_stays_shut_under_an_image_in_test_makes_it_fall_back() {
    let mut bench = in_test();
    bench.hear(Event::Vault(Vault::Shut(vec![4, 8, 9])));
    bench.wait(299);
    assert_eq!(bench.operations(), []);
    bench.wait(61);
    assert_eq!(bench.operations(), [(360, MachineOperation::Reboot, BootReason::VaultFailure)]);
    assert_eq!(
        undrained(&bench),
        [
            "Exceeded time for vault to be ready 300 by 0 seconds; possibly mismatching PCR indexes [4 8 9], rebooting without a drain"
        ]
    );
    assert_eq!(reasons(&bench), None);
}

#[test]
fn a_vault_that_stays_shut_otherwise_means_maintenance_until_it_opens() {
    let mut bench = Bench::new();
    bench.hear(Event::Vault(Vault::Shut(vec![])));
    bench.wait(300);
    assert_eq!(reasons(&bench), Some(vec![MaintenanceModeReason::VaultLockedUp]));
    bench.hear(Event::Vault(Vault::Opening));
    assert_eq!(reasons(&bench), Some(vec![MaintenanceModeReason::VaultLockedUp]));
    bench.hear(Event::Vault(Vault::Open));
    assert_eq!(reasons(&bench), Some(vec![]));
    assert_eq!(bench.operations(), []);
}

#[test]
fn a_vault_that_nobody_speaks_of_or_that_opens_in_time_means_nothing() {
    let mut bench = in_test();
    bench.wait(1000);
    bench.hear(Event::Vault(Vault::Shut(vec![])));
    bench.wait(299);
    bench.hear(Event::Vault(Vault::Open));
    bench.hear(Event::Vault(Vault::Shut(vec![])));
    bench.wait(299);
    bench.hear(Event::Vault(Vault::Silent));
    bench.wait(1000);
    assert_eq!(bench.operations(), []);
    assert_eq!(reasons(&bench), None);
}

#[test]
fn the_vault_has_its_time_from_when_the_controller_could_first_help() {
    let mut bench = Bench::with(SavedNodeState::default());
    bench.hear(Event::Vault(Vault::Shut(vec![])));
    bench.wait(1000);
    assert_eq!(reasons(&bench), None);
    bench.contact(ConfigGetStatus::Success);
    bench.wait(299);
    assert_eq!(reasons(&bench), None);
    bench.wait(1);
    assert_eq!(reasons(&bench), Some(vec![MaintenanceModeReason::VaultLockedUp]));
}

#[test]
fn a_full_disk_and_refused_certificates_mean_maintenance_while_they_last() {
    let mut bench = Bench::new();
    assert_eq!(Bench::new().hear(Event::Space(Some(1))), []);
    bench.hear(Event::Space(Some(0)));
    bench.hear(Event::Wish(DeviceCommand {
        certs_refused: true,
        contact: ConfigGetStatus::Success,
        ..DeviceCommand::default()
    }));
    let both = vec![MaintenanceModeReason::LowDiskSpace, MaintenanceModeReason::EdgeNodeCertsRefused];
    assert_eq!(reasons(&bench), Some(both));
    bench.hear(Event::Space(None));
    assert_eq!(reasons(&bench), Some(vec![MaintenanceModeReason::EdgeNodeCertsRefused]));
    bench.hear(Event::Space(Some(0)));
    let both = vec![MaintenanceModeReason::EdgeNodeCertsRefused, MaintenanceModeReason::LowDiskSpace];
    assert_eq!(reasons(&bench), Some(both), "in the order in which they came");
    bench.hear(Event::Space(None));
    bench.contact(ConfigGetStatus::Success);
    assert_eq!(reasons(&bench), Some(vec![]));
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
