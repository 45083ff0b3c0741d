//! The agent ends and starts again within one boot.

use super::*;

#[tokio::test]
async fn an_agent_killed_in_mid_reboot_ends_in_the_same_reboot_done_once() {
    // Killed while it waits, with the reason not yet stored and stored, and after the deed, once with the journal
    // as it was before the answer of the device.
    for (delay, mark, file, unanswered) in [
        (60_000, "\"reboot\"", journal::PATH, false),
        (1, REASON, agent::reasons::REASON, false),
        (1, "\"Done\":true", journal::PATH, false),
        (1, "\"Done\":true", journal::PATH, true),
    ] {
        let mut world = World::new();
        if file == agent::reasons::REASON {
            world.put("domainmgr", "app", &DomainStatus { activated: true });
        }
        world.limits.min_reboot_delay_ms = delay;
        world.start();
        world.status(|_| true).await;
        world.command_reboot();
        world.until(file, |text| text.contains(mark)).await;
        world.kill().await;
        if unanswered {
            let journal = world.text(journal::PATH).unwrap();
            world.write(journal::PATH, &journal.replace("\"Done\":true", "\"Done\":false"));
        }
        world.limits = brisk();
        world.put("domainmgr", "app", &DomainStatus { activated: false });
        world.start_again().await;
        world.until_journal("\"Done\":true").await;
        let status = world.status(|it| it.all_domains_halted).await;
        assert!(status.device_reboot);
        assert_eq!(
            status.boot_reason,
            BootReason::Unknown,
            "the reason of this boot's end is not that of the last"
        );
        assert_eq!(status.restart_counter, 0);
        assert_eq!(world.recorded(), [(MachineOperation::Reboot, REASON.into())], "killed at {mark}");
        assert!(world.text(agent::reasons::REASON).unwrap().starts_with(STORED));
        assert_eq!(world.text(reasons::COUNTER).as_deref(), Some("1"));
        world.kill().await;
    }
}

#[tokio::test]
async fn what_a_crash_left_of_the_last_reason_is_not_taken_for_a_new_one() {
    let mut world = World::as_in_the_samples("BootReasonFirst");
    world.start();
    world.status(|_| true).await;
    assert_eq!(world.text(agent::reasons::NUMBER), None);
    world.kill().await;
    // As if it had ended between its journal and the removal.
    world.write(agent::reasons::NUMBER, "BootReasonFirst");
    let at: GoTime = SAMPLE_TIME.parse().unwrap();
    let file = File::options().write(true).open(world.topic_root.path(agent::reasons::NUMBER)).unwrap();
    file.set_modified(SystemTime::from(at.to_timestamp())).unwrap();
    world.write(reasons::COUNTER, "1");
    world.start_again().await;
    assert_eq!(world.text(agent::reasons::NUMBER), None);
    world.command_reboot();
    world.until_recorded().await;
    assert_eq!(world.text(agent::reasons::NUMBER).as_deref(), Some("BootReasonRebootCmd"));
    assert_eq!(world.text(reasons::COUNTER).as_deref(), Some("2"));
    world.kill().await;
}

#[tokio::test]
async fn a_reason_that_another_agent_stored_in_this_boot_outlives_a_restart_of_this_one() {
    let mut world = World::as_in_the_samples("BootReasonFirst");
    world.start();
    world.status(|_| true).await;
    world.kill().await;
    world.write(agent::reasons::REASON, "an agent hung");
    world.write(agent::reasons::NUMBER, "BootReasonWatchdogHung");
    world.start_again().await;
    assert_eq!(world.text(agent::reasons::REASON).as_deref(), Some("an agent hung"));
    assert_eq!(world.text(agent::reasons::NUMBER).as_deref(), Some("BootReasonWatchdogHung"));
    world.kill().await;
}

#[tokio::test]
async fn a_journal_of_nonsense_or_of_another_boot_is_left_out() {
    for text in [
        "{",
        r#"{"BootID":"another","Operation":{"Operation":"reboot","Reason":"x","BootReason":2,"Done":false}}"#,
    ] {
        let mut world = World::new();
        world.write(journal::PATH, text);
        world.start();
        let status = world.status(|_| true).await;
        assert!(!status.device_reboot);
        world.kill().await;
        assert_eq!(world.recorded(), []);
    }
}

#[tokio::test]
async fn a_second_agent_beside_the_first_touches_nothing() {
    let mut world = World::new();
    world.start();
    world.status(|_| true).await;
    let first = world.agent.take();
    // As another process would see it: no journal yet, and a reason to be reported.
    std::fs::remove_file(world.topic_root.path(journal::PATH)).unwrap();
    world.write(agent::reasons::REASON, REASON);
    world.start();
    assert!(world.ended().await.is_err());
    assert_eq!(world.text(agent::reasons::REASON).as_deref(), Some(REASON));
    drop(first);
}
