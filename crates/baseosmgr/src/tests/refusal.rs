//! A device without image partitions.

use super::*;

/// A clustered node with an image to switch to, and an agent without partitions.
async fn without_partitions() -> Device {
    let mut device = Device::new();
    // This run's stand-in partitions must not stay.
    device.until::<ZbootStatus>("baseosmgr", "IMGB", |_| true).await;
    device.kill().await;
    device.want();
    device.loaded();
    device.start_with(|| Ok(None));
    device
}

#[tokio::test]
async fn b5_without_partitions_an_update_is_refused_with_the_reason_and_nobody_is_asked_for_a_drain() {
    let mut device = without_partitions().await;
    let status = device.until::<BaseOsStatus>("baseosmgr", KEY, |it| !it.error.is_empty()).await;
    assert!(status.error.contains("14.5.0-k-amd64 refused"), "{}", status.error);
    assert!(status.error.contains("no image partitions"), "{}", status.error);
    assert!(!status.error_time.is_zero() && !status.error_retry_condition.is_empty());
    assert_eq!((status.state, status.activated), (SwState::Loaded, false));
    assert_eq!((status.partition_label.as_str(), status.partition_state.as_str()), ("", ""));
    device.until_gone::<ZbootStatus>("baseosmgr", "IMGA").await;
    device.until_gone::<ZbootStatus>("baseosmgr", "IMGB").await;

    // A whole update: a COMPLETE, a passed test, the running version. None of it matters.
    device.zedkube(DrainStatus::Complete, Requester::Update);
    device.put("nodeagent", "IMGA", &ZbootConfig { partition_label: "IMGA".into(), test_complete: true });
    let running = BaseOsConfig { base_os_version: OLD.to_owned(), ..sample("activate") };
    device.put("zedagent", KEY, &running);
    let refused = |it: &BaseOsStatus| it.base_os_version == OLD && !it.error.is_empty();
    let status = device.until::<BaseOsStatus>("baseosmgr", KEY, refused).await;
    assert_ne!(status.state, SwState::Installed);
    assert!(!status.activated);
    device.stop().await;
    assert!(!device.file::<NodeDrainRequest>("global").exists(), "a drain was asked for");
    assert!(!device.topic_root.path("persist/zboot/IMGB.img").exists(), "an image was written");
}

#[tokio::test]
async fn b5_others_learn_that_there_are_no_partitions_and_an_image_that_is_not_wanted_any_more_goes() {
    let device = without_partitions().await;
    let mut partitions =
        device.topic_root.subscription::<ZbootStatus>(&wire::name::<ZbootStatus>("baseosmgr"), wire::codec());
    let told = async {
        let mut ready = false;
        while !ready || partitions.iter().count() > 0 {
            if let Change::Restarted(count) = partitions.next().await {
                ready = count > 0;
            }
        }
    };
    tokio::time::timeout(TOO_LONG, told).await.expect("nobody is told that all partitions are published");
    let retries = device.until::<BaseOSMgrStatus>("baseosmgr", "global", |_| true).await;
    assert_eq!(retries.current_retry_update_counter, 0);
    device.until::<BaseOsStatus>("baseosmgr", KEY, |it| !it.error.is_empty()).await;
    agent::publication::<BaseOsConfig>(&device.topic_root, "zedagent").unwrap().unpublish(KEY).unwrap();
    device.until_gone::<BaseOsStatus>("baseosmgr", KEY).await;
}

#[tokio::test]
async fn b5_a_request_of_a_run_that_had_partitions_goes_unless_the_machine_is_going_down_for_it() {
    for going_down in [false, true] {
        let mut device = Device::new();
        device.want();
        device.loaded();
        device.until::<NodeDrainRequest>("baseosmgr", "global", |_| true).await;
        device.kill().await;
        let status = NodeAgentStatus { device_reboot: going_down, ..NodeAgentStatus::default() };
        device.put("nodeagent", "nodeagent", &status);
        device.start_with(|| Ok(None));
        device.until::<BaseOsStatus>("baseosmgr", KEY, |it| it.error.contains("no image partitions")).await;
        if going_down {
            device.stop().await;
            assert!(device.file::<NodeDrainRequest>("global").exists(), "the node is no longer drained");
        } else {
            device.until_gone::<NodeDrainRequest>("baseosmgr", "global").await;
        }
    }
}

#[tokio::test]
async fn k4_the_time_of_an_error_follows_a_clock_that_is_set() {
    let device = without_partitions().await;
    let before = device.until::<BaseOsStatus>("baseosmgr", KEY, |it| !it.error.is_empty()).await;
    let booted_at = device.clock.booted_at();
    for off_by in [300_000_000, -300_000_000] {
        device.clock.jump_to_off_by(off_by);
        let right = before.error_time.moved(booted_at, device.clock.booted_at());
        let is_near = |it: &BaseOsStatus| it.error_time.apart(right) < Duration::from_secs(2);
        let now = device.until::<BaseOsStatus>("baseosmgr", KEY, is_near).await;
        assert_eq!(BaseOsStatus { error_time: before.error_time, ..now }, before);
    }
}
