//! What is published, byte for byte.

use super::*;

#[tokio::test]
async fn an_idle_device_a_drain_and_a_reboot_read_as_in_the_samples() {
    let mut world = World::as_in_the_samples("BootReasonFirst");
    world.start();
    let sample = golden("NodeAgentStatus/normal.json");
    world.until(STATUS, |text| text == sample).await;
    assert_eq!(world.text("run/nodeagent/ZbootConfig/IMGA.json"), Some(golden("ZbootConfig/imga.json")));

    world.drain(DrainStatus::Cordoned);
    let sample = golden("NodeAgentStatus/wait-drain.json");
    world.until(STATUS, |text| text == sample).await;

    world.drain(DrainStatus::Complete);
    world.command_reboot();
    let sample = golden("NodeAgentStatus/device-reboot-domains-halted.json");
    world.until(STATUS, |text| text == sample).await;
    assert_eq!(world.until_recorded().await, [(MachineOperation::Reboot, REASON.into())]);
    assert_eq!(world.text(STATUS), Some(sample));
    world.kill().await;
}

#[tokio::test]
async fn a_full_disk_after_a_crash_reads_as_in_the_sample() {
    let mut world = World::as_in_the_samples("BootReasonFatal");
    world.write(agent::reasons::STACK, "goroutine 1 [running]:\nmain.main()\n\t/x.go:1 +0x1d\n");
    world.put("volumemgr", "volumemgr", &VolumeMgrStatus::default());
    world.start();
    let sample = golden("NodeAgentStatus/maintenance-with-stack.json");
    world.until(STATUS, |text| text == sample).await;
    world.kill().await;
}

#[tokio::test]
async fn an_image_that_passes_its_test_reads_as_in_the_sample() {
    let mut world = World::new();
    let running = |state: &str| ZbootStatus {
        partition_label: "IMGB".into(),
        partition_state: state.into(),
        current_partition: true,
        ..ZbootStatus::default()
    };
    world.put("baseosmgr", "IMGA", &ZbootStatus { partition_label: "IMGA".into(), ..ZbootStatus::default() });
    world.put("baseosmgr", "IMGB", &running("inprogress"));
    world.put("zedagent", "global", &image_test_secs(30));
    world.limits.test_tick_ms = 1;
    world.start();
    world.status(|it| it.update_inprogress && it.cur_part == "IMGB").await;
    world.zedagent(|_| {});
    world.status(|it| it.remaining_test_time > 0 && it.remaining_test_time < 30_000_000_000).await;
    world.kill().await;
    // A verdict of an earlier run stands: the rest of the half minute is not waited for here.
    world.put("nodeagent", "IMGB", &ZbootConfig { partition_label: "IMGB".into(), test_complete: true });
    world.start();
    world.status(|it| it.update_inprogress && it.remaining_test_time == 0).await;
    assert_eq!(
        world.text("run/nodeagent/ZbootConfig/IMGB.json"),
        Some(golden("ZbootConfig/imgb-testcomplete.json"))
    );
    world.put("baseosmgr", "IMGB", &ZbootStatus { test_complete: true, ..running("active") });
    world.until("run/nodeagent/ZbootConfig/IMGB.json", |text| text.contains("false")).await;
    world.status(|it| !it.update_inprogress).await;
    world.kill().await;
}

/// The controller's properties with another time for image tests.
fn image_test_secs(secs: u32) -> topics::ConfigItemValueMap {
    let item = topics::ConfigItemValue::number(agent::settings::TEST_BASE_IMAGE.name, secs);
    topics::ConfigItemValueMap::of([item])
}
