//! What stands in `DrainHistory` on disk after restarts and boots, and who gave which force file.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use topics::{DrainHistory, DrainRecord, DrainStatus, DrainStep, FORCE_FILE, StepWord, go_json};

use crate::device::{Device, US, status};

const FILE: &str = "persist/status/zedkube/DrainHistory/global.json";

fn history(device: &Device) -> DrainHistory {
    go_json::from_slice(device.text(FILE).unwrap().as_bytes()).unwrap()
}

fn words(record: &DrainRecord) -> Vec<&'static str> {
    let word = |it: &DrainStep| serde_json::to_string(&it.step).unwrap().leak().trim_matches('"');
    record.steps.iter().map(word).collect()
}

#[tokio::test(start_paused = true)]
async fn o8_a_drain_over_a_kill_and_a_reboot_stands_there_with_its_steps() {
    let mut device = Device::idle().await;
    device.ask_blocked(US).await;
    device.pass(Duration::from_secs(30)).await;
    assert_eq!(words(&history(&device).drains[0]), ["taken", "api-reached", "cordoned", "attempt"]);
    device.kill().await;
    device.start().await;
    device.block(false);
    device.until(DrainStatus::Complete, US, 1).await;
    device.rest().await;
    let kept = history(&device);
    let all = [
        "taken",
        "api-reached",
        "cordoned",
        "attempt",
        "restarted",
        "api-reached",
        "cordoned",
        "attempt",
        "proving",
        "complete",
    ];
    assert_eq!(words(&kept.drains[0]), all);
    assert_eq!((kept.drains.len(), kept.drains[0].counts.blocked), (1, 0));
    let evicted = device.sim.faults().evicted().len();
    assert_eq!(usize::try_from(kept.drains[0].evicted).unwrap(), evicted, "{kept:?}");
    let shown = device.progress();
    assert_eq!((usize::try_from(shown.evicted).unwrap(), shown.counts.gone), (evicted, shown.counts.total));
    assert!(shown.reason.starts_with(&format!("drained: {evicted} pods evicted")), "{}", shown.reason);
    assert!(kept.drains[0].steps.is_sorted_by_key(|it| it.at.to_timestamp()), "{kept:?}");
    // The next boot finds it, and adds its own drain before it.
    device.kill().await;
    device.reboot();
    device.start().await;
    assert_eq!(history(&device), kept);
    device.ask(US, 2).await;
    device.kill().await;
    device.reboot();
    device.start().await;
    let after = history(&device);
    assert_eq!((after.drains.len(), &after.drains[1..]), (2, &kept.drains[..]));
    assert_eq!(after.drains[0].steps.last().unwrap().step, StepWord::Interrupted);
    assert_eq!(after.drains[0].boot_id, "b1+");
}

/// A drain that a budget holds, and then this force file.
async fn forced(put: impl FnOnce(&Device)) -> (Device, DrainHistory) {
    let mut device = Device::idle().await;
    device.ask_blocked(US).await;
    device.pass(Duration::from_secs(30)).await;
    device.change(put).await;
    let kept = history(&device);
    (device, kept)
}

#[tokio::test(start_paused = true)]
async fn p9_s6_the_history_names_owner_time_and_effect_of_a_force_file() {
    let (mut device, kept) = forced(|device| {
        device.write(
            "etc/passwd",
            &format!("# users\nann:x:{}:7:Ann:/:/bin/sh\n", rustix::process::geteuid().as_raw()),
        );
        device.write("tmp/order", &status(9, 2));
        let time = std::time::UNIX_EPOCH + Duration::from_secs(1_773_480_000);
        let file = std::fs::File::options().write(true).open(device.topic_root.path("tmp/order")).unwrap();
        file.set_modified(time).unwrap();
        std::fs::rename(device.topic_root.path("tmp/order"), device.topic_root.path(FORCE_FILE)).unwrap();
    })
    .await;
    let order = &kept.forced[0];
    assert_eq!((order.owner_known, order.owner_uid), (true, rustix::process::geteuid().as_raw()));
    assert_eq!(order.owner, "ann");
    assert_eq!(order.written_at.to_timestamp().as_second(), 1_773_480_000);
    assert_eq!(
        order.effect,
        "the reboot requested at 2026-03-14 09:26:54 UTC went ahead without a proved drain"
    );
    assert!(order.gone_at.is_zero() && !order.seen_at.is_zero(), "{order:?}");
    assert_eq!(words(&kept.drains[0]), ["taken", "api-reached", "cordoned", "attempt", "forced", "skipped"]);
    device.change(|device| device.remove(FORCE_FILE)).await;
    assert!(!history(&device).forced[0].gone_at.is_zero());
}

#[tokio::test(start_paused = true)]
async fn s3_p9_a_refused_force_file_stands_in_the_history_with_its_owner_and_why() {
    let (mut device, kept) = forced(|device| {
        device.write("tmp/order", &status(9, 2));
        let path = device.topic_root.path("tmp/order");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        std::fs::rename(path, device.topic_root.path(FORCE_FILE)).unwrap();
    })
    .await;
    let order = &kept.forced[0];
    assert!(
        order.refused.contains("others may write it") && order.effect.starts_with("refused"),
        "{order:?}"
    );
    assert!(order.owner_known && order.released_at.is_zero(), "{order:?}");
    assert_eq!(words(&kept.drains[0]).last(), Some(&"force-refused"));
    device.change(|device| device.write(FORCE_FILE, "{}")).await;
    let kept = history(&device);
    assert_eq!((kept.forced.len(), kept.forced[1].gone_at.is_zero()), (2, false));
    assert!(kept.forced[0].refused.contains("Status"), "{kept:?}");
    // A link is its maker's.
    device.write("tmp/order", &status(9, 2));
    device
        .change(|device| {
            std::os::unix::fs::symlink(
                device.topic_root.path("tmp/order"),
                device.topic_root.path("tmp/link"),
            )
            .unwrap();
            std::fs::rename(device.topic_root.path("tmp/link"), device.topic_root.path(FORCE_FILE)).unwrap();
        })
        .await;
    let kept = history(&device);
    assert!(kept.forced[0].owner_known && kept.forced[0].refused.contains("link"), "{kept:?}");
}
