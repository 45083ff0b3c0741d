//! Operations, and what they wait for.

use super::*;

/// A machine that says what it is asked for, and stays up.

#[tokio::test]
async fn d_n2_a_drain_status_that_makes_no_sense_changes_nothing_and_ends_nothing() {
    let mut world = World::new();
    world.drain(DrainStatus::Cordoned);
    world.start();
    world.status(|it| it.wait_drain_in_progress).await;
    world.write("run/zedkube/NodeDrainStatus/global.json", r#"{"Status":"done"}"#);
    world.put("volumemgr", "volumemgr", &VolumeMgrStatus::default());
    let status = world.status(|it| it.local_maintenance_mode).await;
    assert!(status.wait_drain_in_progress);
    world.drain(DrainStatus::Complete);
    world.status(|it| !it.wait_drain_in_progress).await;
    world.kill().await;
}

#[tokio::test]
async fn the_device_is_asked_only_when_no_application_runs() {
    let mut world = World::new();
    let status = |file: &str| go_json::from_slice::<DomainStatus>(golden(file).as_bytes()).unwrap();
    world.put("domainmgr", "a", &status("DomainStatus/running.json"));
    world.put("domainmgr", "b", &status("DomainStatus/running.json"));
    world.start();
    world.command_reboot();
    world.until(agent::reasons::NUMBER, |_| true).await;
    world.put("domainmgr", "a", &status("DomainStatus/halted.json"));
    assert_eq!(world.recorded(), []);
    assert!(!world.status(|_| true).await.all_domains_halted);
    std::fs::remove_file(world.topic_root.path("run/domainmgr/DomainStatus/b.json")).unwrap();
    assert_eq!(world.until_recorded().await, [(MachineOperation::Reboot, REASON.into())]);
    world.kill().await;
}

#[tokio::test]
async fn the_waits_end_beside_a_zedagent_that_holds_the_lock_of_its_topic_and_stay_beside_one_without() {
    for ours in [true, false] {
        let mut world = World::new();
        world.limits.min_reboot_delay_ms = 600_000;
        let lock = ours.then(|| agent::publication::<ZedAgentStatus>(&world.topic_root, "zedagent").unwrap());
        world.start();
        world.command_reboot();
        if ours {
            assert_eq!(world.until_recorded().await, [(MachineOperation::Reboot, REASON.into())]);
        } else {
            world.status(|it| it.device_reboot).await;
            assert_eq!((world.recorded(), world.text(agent::reasons::NUMBER)), (vec![], None));
        }
        world.kill().await;
        drop(lock);
    }
}

#[tokio::test]
async fn a_tpm_that_does_not_encrypt_is_heard_over_the_socket_alone_and_means_maintenance() {
    use topics::MaintenanceModeReason::TpmEncryptFailure;
    let mut world = World::new();
    world.start();
    let name = pubsub::Name::volatile("tpmmgr", "TpmSanityStatus");
    let codec = pubsub::Codec::<String> {
        encode: |value| Ok(value.clone().into_bytes()),
        decode: |bytes| Ok(String::from_utf8(bytes.to_vec())?),
    };
    // tpmmgr goes and comes.
    for _ in 0..2 {
        let mut tpm = world.topic_root.publication(name.clone(), codec).unwrap();
        world.topic_root.serve(&mut tpm, |disk, _| Ok(disk.to_vec())).unwrap();
        tpm.publish("tpm", &r#"{"Name":"/dev/tpmrm0","Status":4}"#.to_owned()).unwrap();
        world.status(|it| it.local_maintenance_mode_reasons == Some(vec![TpmEncryptFailure])).await;
        tpm.publish("tpm", &r#"{"Name":"/dev/tpmrm0","Status":0}"#.to_owned()).unwrap();
        world
            .status(|it| it.local_maintenance_mode_reasons == Some(vec![]) && !it.local_maintenance_mode)
            .await;
    }
    world.kill().await;
}

#[tokio::test]
async fn another_image_is_booted_into() {
    let mut world = World::started().await;
    world.partitions("active", "updating");
    let reason = "NORMAL: baseos-update(IMGB) to EVE version 14.5.0-k reboot";
    assert_eq!(world.until_recorded().await, [(MachineOperation::Reboot, reason.into())]);
    assert_eq!(world.text(agent::reasons::NUMBER).as_deref(), Some("BootReasonUpdate"));
    world.kill().await;
}

#[tokio::test]
async fn a_shutdown_stores_no_reason_and_a_power_off_may_follow() {
    let mut world = World::new();
    world.start();
    world.zedagent(|it| it.shutdown_cmd = true);
    world.until_journal("\"Done\":true").await;
    assert_eq!(world.recorded()[0].0, MachineOperation::Shutdown);
    assert_eq!(world.text(agent::reasons::NUMBER), None);
    world.zedagent(|it| {
        (it.shutdown_cmd, it.poweroff_cmd) = (true, true);
        it.requested_boot_reason = BootReason::PoweroffCmd;
    });
    world.until_journal("\"poweroff\"").await;
    world.until_journal("\"Done\":true").await;
    assert_eq!(
        world.recorded().iter().map(|it| it.0).collect::<Vec<_>>(),
        [MachineOperation::Shutdown, MachineOperation::Poweroff]
    );
    assert_eq!(world.text(agent::reasons::NUMBER).as_deref(), Some("BootReasonPoweroffCmd"));
    let status = world.status(|_| true).await;
    assert!(status.device_shutdown && status.device_poweroff && !status.device_reboot);
    world.kill().await;
}

/// A machine that does not answer until it is let go.

#[tokio::test]
async fn an_image_that_is_not_for_clusters_says_so() {
    let mut world = World::new();
    world.write("run/eve-hv-type", "kvm\n");
    world.start();
    assert!(!world.status(|_| true).await.hv_type_kube);
    world.kill().await;
}

#[tokio::test]
async fn it_leaves_in_order_when_told() {
    let mut world = World::started().await;
    let (stopper, mut running) = world.agent.take().unwrap();
    stopper.stop();
    running.join_next().await.unwrap().unwrap().unwrap();
    assert!(world.text(STATUS).is_some(), "what it published stays for its next start");
}
