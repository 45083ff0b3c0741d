//! What a person orders with files: forced statuses, the name that nobody reads, and the drain that is held.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use topics::{DrainStatus, Requester};

use crate::device::{Device, STATUS, US, status};

const FORCE: &str = topics::FORCE_FILE;
const MISSPELT: &str = "persist/kube-status/kubeforce-NodeDrainStatus-global.json";
const PROGRESS: &str = "run/zedkube/NodeDrainProgress/global.json";
const REFUSED: &str = "force file refused";
/// What the reference makes of the content of such a file.
const GOLDEN: &str = include_str!("../../../../../tests/golden/override-parse.json");

async fn draining() -> Device {
    let mut device = Device::idle().await;
    device.ask_blocked(US).await;
    device.pass(Duration::from_secs(30)).await;
    assert_eq!(device.status(), status(5, 2));
    device
}

async fn accepted(input: &str, forced: u8, by: u8) {
    let mut device = draining().await;
    let evictions = device.sim.faults().count("POST", "/eviction");
    device.change(|device| device.write(FORCE, input)).await;
    assert_eq!(device.diary.count(REFUSED), 0, "{input}");
    match (forced, by) {
        // For a requester that waits for nothing nothing changes, and a person is told so.
        (9, 3) => {
            assert_eq!(device.status(), status(5, 2), "{input}");
            assert!(device.text(PROGRESS).unwrap().contains("no update waits"), "{input}");
            device.block(false);
            device.until(DrainStatus::Complete, US, 1).await;
            assert_eq!(device.pods_to_leave(), [""; 0], "{input}");
        }
        // The request is answered, and its drain ends.
        (9, _) => {
            assert_eq!(device.status(), status(9, by), "{input}");
            device.block(false);
            device.pass(Duration::from_mins(15)).await;
            assert_eq!(device.sim.faults().count("POST", "/eviction"), evictions, "{input}");
            device.change(|device| device.remove(FORCE)).await;
            assert_eq!(device.status(), status(9, 2), "{input}");
        }
        // Said as it is while the file is there; NOT_SUPPORTED also ends the drain.
        _ => {
            assert_eq!(device.status(), status(forced, by), "{input}");
            device.block(false);
            device.pass(Duration::from_mins(15)).await;
            assert_eq!(device.status(), status(forced, by), "{input}");
            assert_eq!(device.pods_to_leave().is_empty(), forced != 1, "{input}");
            assert_eq!(device.cordoned(), forced != 1, "{input}");
            device.change(|device| device.remove(FORCE)).await;
            device.until(DrainStatus::Complete, US, 1).await;
            assert_eq!(device.status(), status(9, 2), "{input}");
            assert_eq!(device.pods_to_leave(), [""; 0], "{input}");
        }
    }
}

async fn refused(what: &str, put: impl Fn(&Device)) {
    let mut device = draining().await;
    let before = (device.diary.written(), device.sim.faults().count("PATCH", "/"));
    // Written once more, it is still the same file with the same fault.
    for _ in 0..2 {
        device.change(&put).await;
        device.pass(Duration::from_mins(6)).await;
    }
    assert_eq!((device.diary.written(), device.sim.faults().count("PATCH", "/")), before, "{what}");
    // A warning that the drain stalls says it, too.
    let said = device.diary.count(&format!("ERROR {REFUSED}"));
    assert_eq!(said, 1, "{what}: {:#?}", device.diary.lines());
    assert!(device.text(PROGRESS).unwrap().contains(REFUSED), "{what}");
    // The drain continues as if there were no file.
    device.block(false);
    device.until(DrainStatus::Complete, US, 1).await;
    assert_eq!(device.pods_to_leave(), [""; 0], "{what}");
    assert_eq!(device.status(), status(9, 2), "{what}");
}

#[tokio::test(start_paused = true)]
async fn p9_each_sample_of_a_force_file_takes_effect_or_is_refused() {
    let rows: Vec<Value> = serde_json::from_str(GOLDEN).unwrap();
    let mut effective = 0;
    for row in rows {
        let input = row["Input"].as_str().unwrap();
        let number = |name: &str| u8::try_from(row[name].as_u64().unwrap()).unwrap();
        let (forced, by) = (number("Status"), number("RequestedBy"));
        // D-K13: beyond what the reference refuses, an order must be clear.
        let clear = (1..=9).contains(&forced) && by <= 3 && (forced != 9 || by >= 2);
        if row["OK"] == true && clear {
            accepted(input, forced, by).await;
            effective += 1;
        } else {
            refused(input, |device| device.write(FORCE, input)).await;
        }
    }
    assert_eq!(effective, 4);
}

#[tokio::test(start_paused = true)]
async fn s3_an_order_that_others_may_have_written_is_refused() {
    let order = status(9, 2);
    refused("writable by all", |device| {
        let beside = device.topic_root.path("tmp/order");
        device.write("tmp/order", &order);
        std::fs::set_permissions(&beside, Permissions::from_mode(0o666)).unwrap();
        std::fs::rename(beside, device.topic_root.path(FORCE)).unwrap();
    })
    .await;
    refused("a link", |device| {
        device.write("tmp/order", &order);
        let beside = device.topic_root.path("tmp/link");
        symlink(device.topic_root.path("tmp/order"), &beside).unwrap();
        std::fs::rename(beside, device.topic_root.path(FORCE)).unwrap();
    })
    .await;
    refused("too long", |device| device.write(FORCE, &format!("{order}{}", " ".repeat(4096)))).await;
}

#[tokio::test(start_paused = true)]
async fn a_forced_complete_answers_each_requester_apart() {
    let mut device = draining().await;
    device.ask(Requester::Update, 2).await;
    device.change(|device| device.write(FORCE, &status(9, 3))).await;
    assert_eq!(device.status(), status(9, 3));
    // The other one's drain continues, and is said again when the file has been used up.
    device.change(|device| device.remove(FORCE)).await;
    assert_eq!(device.status(), status(5, 2));
    device.block(false);
    device.until(DrainStatus::Complete, US, 1).await;
    assert_eq!(device.pods_to_leave(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_force_file_outlives_the_agent_but_not_the_boot() {
    let mut device = Device::idle().await;
    device.change(|device| device.write(FORCE, &status(8, 2))).await;
    assert_eq!(device.status(), status(8, 2));
    device.restart().await;
    assert_eq!(device.status(), status(8, 2));
    device.kill().await;
    device.reboot();
    device.start().await;
    assert_eq!(device.text(FORCE), None);
    assert_eq!(device.status(), status(2, 1));
    assert_eq!(device.diary.count("removed a force file of an earlier boot"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_name_that_nobody_reads_is_told_once_and_forces_nothing() {
    let mut device = draining().await;
    let before = device.diary.written();
    for input in [status(9, 2), status(9, 2), status(1, 1)] {
        device.change(|device| device.write(MISSPELT, &input)).await;
    }
    assert_eq!(device.diary.count("wrong file name, ignored"), 1);
    assert!(
        device.diary.lines().iter().any(|line| line.text.contains(MISSPELT) && line.text.contains(FORCE))
    );
    assert_eq!(device.diary.written(), before);
    // Gone and back, it is a new mistake.
    device.change(|device| device.remove(MISSPELT)).await;
    device.change(|device| device.write(MISSPELT, "{}")).await;
    assert_eq!(device.diary.count("wrong file name, ignored"), 2);
    assert_eq!(device.diary.count(REFUSED), 0);
}

#[tokio::test(start_paused = true)]
async fn the_fault_injection_file_holds_a_drain_that_is_done_until_it_is_removed() {
    let mut device = Device::idle().await;
    device.change(|device| device.write(zedkube::WAIT, "")).await;
    device.ask(US, 1).await;
    device.pass(Duration::from_mins(30)).await;
    assert_eq!(device.pods_to_leave(), [""; 0]);
    assert_eq!(device.status(), status(5, 2));
    assert!(device.text(PROGRESS).unwrap().contains(zedkube::WAIT));
    device.change(|device| device.remove(zedkube::WAIT)).await;
    assert_eq!(device.status(), status(9, 2));
    assert_eq!(device.text(STATUS), Some(status(9, 2)));
}

/// Everything under `dir`, links not followed.
fn all_under(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() {
            all_under(&path, found);
        }
        found.push(path);
    }
}

#[tokio::test(start_paused = true)]
async fn k6_a_file_that_others_can_write_holds_no_drain_and_nothing_that_is_made_can_be_written_by_others() {
    let mut device = Device::idle().await;
    // As `/tmp` is: anybody may put files there.
    std::fs::set_permissions(device.topic_root.path("tmp"), Permissions::from_mode(0o1777)).unwrap();
    device
        .change(|device| {
            device.write(zedkube::WAIT, "");
            let open = Permissions::from_mode(0o666);
            std::fs::set_permissions(device.topic_root.path(zedkube::WAIT), open).unwrap();
        })
        .await;
    assert_eq!(device.diary.count("ignored, it does not hold a drain: others may write it"), 1);
    device.drained(1).await;
    let mut found = Vec::new();
    for dir in ["run", "persist"] {
        all_under(&device.topic_root.path(dir), &mut found);
    }
    assert!(found.len() > 20, "{found:?}");
    for path in found {
        let mode = path.symlink_metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o022, 0, "{} has mode {mode:o}", path.display());
    }
}
