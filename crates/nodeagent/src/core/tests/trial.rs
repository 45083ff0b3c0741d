//! The test of the running image.

use super::*;

fn in_test() -> Bench {
    let mut bench = Bench::with(SavedNodeState::default());
    bench.hear(Event::Heard(RequiredReading::Drain));
    bench.partition("IMGA", "unused", false);
    bench.partition("IMGB", "inprogress", true);
    bench
}

fn remaining(bench: &Bench) -> i64 {
    bench.status().remaining_test_time / 1_000_000_000
}

#[test]
fn an_image_passes_after_its_time_with_a_controller_and_baseosmgr_takes_it() {
    let mut bench = in_test();
    assert_eq!(bench.verdicts(), [(0, "IMGA".into(), false), (0, "IMGB".into(), false)]);
    bench.wait(50);
    bench.contact(ConfigGetStatus::Success);
    assert_eq!(remaining(&bench), 600);
    bench.wait(10);
    assert_eq!(remaining(&bench), 590);
    bench.wait(589);
    assert_eq!(remaining(&bench), 10);
    assert_eq!(bench.verdicts().len(), 2);
    bench.wait(1);
    assert_eq!(bench.verdicts().last(), Some(&(650, "IMGB".into(), true)));
    assert_eq!(remaining(&bench), 0);
    assert!(bench.status().update_inprogress);
    // baseosmgr marks the partition and takes the verdict, in either order.
    bench.hear(partition("IMGB", "inprogress", true, true));
    assert_eq!(bench.verdicts().last(), Some(&(650, "IMGB".into(), false)));
    bench.hear(partition("IMGB", "active", true, true));
    assert!(!bench.status().update_inprogress);
    bench.hear(partition("IMGB", "active", true, false));
    bench.wait(10_000);
    assert_eq!(bench.verdicts().len(), 4);
    assert_eq!(bench.operations(), []);
}

#[test]
fn a_mark_that_is_heard_together_with_the_acknowledgement_ends_the_test_too() {
    let mut bench = in_test();
    bench.contact(ConfigGetStatus::Success);
    bench.wait(600);
    bench.hear(partition("IMGB", "active", true, true));
    assert_eq!(bench.verdicts().last(), Some(&(600, "IMGB".into(), false)));
    assert!(!bench.status().update_inprogress);
}

#[test]
fn a_verdict_that_was_taken_is_not_given_twice() {
    let mut bench = in_test();
    bench.contact(ConfigGetStatus::Success);
    bench.wait(600);
    bench.hear(partition("IMGB", "inprogress", true, true));
    bench.hear(partition("IMGB", "inprogress", true, false));
    bench.wait(10_000);
    assert_eq!(bench.verdicts().iter().filter(|(.., passed)| *passed).count(), 1);
}

#[test]
fn a_controller_that_gives_no_config_for_now_begins_the_time_anew() {
    let mut bench = in_test();
    bench.contact(ConfigGetStatus::Success);
    bench.wait(500);
    bench.contact(ConfigGetStatus::TemporaryFail);
    assert_eq!(remaining(&bench), 600);
    bench.wait(1000);
    assert_eq!(remaining(&bench), 600);
    bench.contact(ConfigGetStatus::Success);
    bench.wait(599);
    assert_eq!(bench.verdicts().len(), 2);
    bench.wait(1);
    assert_eq!(bench.verdicts().last(), Some(&(2100, "IMGB".into(), true)));
}

#[test]
fn a_short_loss_of_the_controller_does_not_stop_the_time() {
    let mut bench = in_test();
    bench.contact(ConfigGetStatus::Success);
    bench.wait(100);
    bench.contact(ConfigGetStatus::Fail);
    bench.wait(250);
    bench.contact(ConfigGetStatus::Success);
    bench.wait(250);
    assert_eq!(bench.verdicts().last(), Some(&(600, "IMGB".into(), true)));
}

#[test]
fn no_test_begins_without_a_config_or_for_a_good_image() {
    let mut bench = in_test();
    bench.contact(ConfigGetStatus::ReadSaved);
    bench.wait(299);
    assert_eq!(remaining(&bench), 0);
    let mut good = Bench::new();
    good.wait(10_000);
    assert!(good.verdicts().iter().all(|(.., passed)| !passed));
}

#[test]
fn an_image_gets_no_verdict_while_the_machine_goes_down() {
    let mut bench = in_test();
    bench.contact(ConfigGetStatus::Success);
    bench.wait(590);
    bench.command(MachineOperation::Reboot);
    bench.wait(100);
    assert_eq!(bench.verdicts().len(), 2);
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

    let mut begun = in_test();
    begun.contact(ConfigGetStatus::Success);
    begun.wait(599);
    assert_eq!(begun.verdicts().len(), 2);
}

#[test]
fn a_verdict_on_an_image_that_does_not_run_any_more_is_taken_back() {
    let tested = std::collections::BTreeSet::from(["IMGB".to_owned()]);
    let mut bench = Bench::with(SavedNodeState { tested, ..SavedNodeState::default() });
    bench.partition("IMGA", "active", true);
    assert_eq!(bench.verdicts().last(), Some(&(0, "IMGB".into(), false)));
}
