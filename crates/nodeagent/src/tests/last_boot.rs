//! Why a boot ended, through the boot after it.

use super::*;
use crate::core::MachineOrder;

#[tokio::test]
async fn the_reason_of_a_reboot_is_stored_and_told_by_the_next_boot_once() {
    let mut world = World::new();
    world.start();
    let first = world.status(|_| true).await;
    assert_eq!((first.boot_reason, first.restart_counter), (BootReason::Unknown, 0));
    world.command_reboot();
    world.until_recorded().await;
    assert!(world.text(agent::reasons::REASON).unwrap().starts_with(STORED));
    assert_eq!(world.text(agent::reasons::NUMBER).as_deref(), Some("BootReasonRebootCmd"));
    assert_eq!(world.text(agent::reasons::IMAGE).as_deref(), Some("IMGA"));
    assert_eq!(world.text(agent::reasons::LOG), world.text(agent::reasons::REASON));
    assert_eq!(world.text(reasons::COUNTER).as_deref(), Some("1"));

    world.boot().await;
    let second = world.status(|_| true).await;
    assert!(second.reboot_reason.starts_with(STORED) && second.reboot_reason.ends_with("Z\n"));
    assert_eq!(second.boot_reason, BootReason::RebootCmd);
    assert_eq!((second.reboot_image.as_str(), second.restart_counter), ("IMGA", 1));
    assert!(!second.device_reboot && !second.all_domains_halted);
    assert_eq!(world.text(agent::reasons::REASON), None);

    world.boot().await;
    let third = world.status(|_| true).await;
    assert_eq!((third.boot_reason, third.restart_counter), (BootReason::Unknown, 2));
    assert_eq!(world.recorded().len(), 1, "a boot carries nothing out again");
    world.kill().await;
}

#[tokio::test]
async fn the_first_boot_is_known_by_its_mark() {
    let mut world = World::new();
    world.write(reasons::FIRST_BOOT, "");
    world.start();
    let status = world.status(|_| true).await;
    assert_eq!(status.boot_reason, BootReason::First);
    let at = status.reboot_time.rfc3339();
    assert_eq!(status.reboot_reason, format!("NORMAL: First boot of device - at {at}"));
    assert_eq!(world.text(reasons::FIRST_BOOT), None);
    world.kill().await;
}

#[tokio::test]
async fn a_disk_that_takes_no_reason_does_not_keep_the_device_from_going_down() {
    let mut world = World::started().await;
    // No log can be written where a file is in the place of its folder.
    world.write("persist/log", "no folder");
    world.command_reboot();
    assert_eq!(world.until_recorded().await, [(MachineOperation::Reboot, REASON.into())]);
    assert!(world.text(agent::reasons::REASON).unwrap().starts_with(STORED));
    world.kill().await;
}

#[tokio::test]
async fn d_n4_a_reason_that_another_agent_stored_first_stays() {
    let mut world = World::started().await;
    world.write(agent::reasons::REASON, "an agent hung");
    world.write(agent::reasons::NUMBER, "BootReasonWatchdogHung");
    world.command_reboot();
    world.until_recorded().await;
    world.boot().await;
    let status = world.status(|_| true).await;
    let reason = &status.reboot_reason;
    assert!(reason.starts_with(&format!("an agent hung\n{STORED}")), "{reason}");
    assert_eq!(status.boot_reason, BootReason::WatchdogHung);
    world.kill().await;
}

#[tokio::test]
async fn k4_a_guessed_reason_and_its_time_follow_a_clock_that_is_set_also_through_a_restart() {
    let mut world = World::new();
    world.start();
    let before = world.status(|_| true).await;
    let booted_at = world.clock.booted_at();
    for off_by in [300_000_000, -300_000_000] {
        world.clock.jump_to_off_by(off_by);
        let right = before.reboot_time.moved(booted_at, world.clock.booted_at());
        let is_near = |it: &NodeAgentStatus| it.reboot_time.apart(right) < Duration::from_secs(2);
        let now = world.status(is_near).await;
        assert_eq!(
            now.reboot_reason,
            before.reboot_reason.replace(&before.reboot_time.rfc3339(), &now.reboot_time.rfc3339())
        );
        world.kill().await;
        world.start_again().await;
        world.status(is_near).await;
    }
}

#[tokio::test]
async fn of_a_stack_every_line_is_logged_and_its_end_is_published() {
    let mut world = World::new();
    let stack = (0..1000).map(|line| format!("goroutine {line} [running]\n")).collect::<Vec<_>>().concat();
    for (file, text) in [("reason", "hung"), ("stack", &stack)] {
        world.write(&format!("persist/reboot-{file}"), text);
    }
    let log = world.dir.path().join("log");
    let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(File::create(&log).unwrap()).finish();
    let listens = tracing::subscriber::set_default(lines);
    world.start();
    let status = world.status(|_| true).await;
    world.kill().await;
    drop(listens);
    assert!(status.reboot_stack.ends_with("999 [running]\n") && status.reboot_stack.len() < 1700);
    let log = std::fs::read_to_string(log).unwrap();
    for line in 0..1000 {
        let text = format!("[stack #{line}]: goroutine {line} [running]");
        assert!(log.lines().any(|it| it.ends_with(&text)), "{text}");
    }
}

#[test]
fn x3_the_reason_of_an_operation_that_was_called_off_goes_and_another_ones_stays() {
    let dir = tempfile::tempdir().unwrap();
    let topic_root = TopicRoot::open(dir.path()).unwrap();
    let order = |reason: &str, boot_reason| MachineOrder {
        operation: MachineOperation::Reboot,
        reason: reason.to_owned(),
        boot_reason,
    };
    let off = order("NORMAL: person reboot", BootReason::RebootCmd);
    for (other, stays) in [(None, false), (Some(order("panic in zedkube", BootReason::Fatal)), true)] {
        for order in other.iter().chain([&off]) {
            reasons::write(&topic_root, order, "IMGA", GoTime::ZERO).unwrap();
        }
        reasons::take_back(&topic_root, &off).unwrap();
        assert_eq!(reasons::read(&topic_root).unwrap().reason.is_some(), stays);
    }
}
