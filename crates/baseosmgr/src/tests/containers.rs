//! Container images of a version: here before its drain, cleaned up after its test.

use super::*;

/// A program that records its arguments, and whose pull succeeds once the file `here` exists.
fn program(device: &Device) -> PathBuf {
    let dir = device.dir.path().display();
    let lines = format!(
        "#!/bin/sh\necho \"$@\" >>{dir}/calls\n[ $1 = clean ] || [ -e {dir}/here ] || {{ echo shop/web:2 >&2; exit 1; }}\n"
    );
    let path = device.dir.path().join("images");
    // By another process: a child of another test may still hold a file that this one wrote, and then it is
    // busy.
    let written = std::process::Command::new("sh")
        .args(["-c", r#"printf %s "$1" >"$0" && chmod 755 "$0""#])
        .arg(&path)
        .arg(lines)
        .status();
    assert!(written.unwrap().success());
    path
}

#[tokio::test]
async fn an_image_is_written_and_its_drain_asked_for_only_once_its_container_images_are_here() {
    let mut device = Device::at_rest();
    device.cluster();
    device.limits.image_program = program(&device).display().to_string();
    device.start();
    device.want();
    device.loaded();
    let missing = |it: &BaseOsStatus| it.error.contains("are not here") && it.error.contains("shop/web:2");
    device.until::<BaseOsStatus>("baseosmgr", KEY, missing).await;
    assert!(!device.file::<NodeDrainRequest>("global").exists(), "a drain was asked for");
    assert!(!device.topic_root.path("persist/zboot/IMGB.img").exists(), "an image was written");
    store::replace(&device.dir.path().join("here"), b"").unwrap();
    device.answer(DrainStatus::Complete).await;
    device.until::<ZbootStatus>("baseosmgr", "IMGB", |it| it.partition_state == "updating").await;
    let calls = || std::fs::read_to_string(device.dir.path().join("calls")).unwrap();
    assert!(calls().lines().all(|it| it == "pull 14.5.0-k-amd64"), "{}", calls());
    device.boot().await;
    device.put("nodeagent", "IMGB", &sample::<ZbootConfig>("imgb-testcomplete"));
    device.until::<ZbootStatus>("baseosmgr", "IMGB", |it| it.partition_state == "active").await;
    let cleaned = async {
        while !std::fs::read_to_string(device.dir.path().join("calls")).unwrap().contains("clean") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TOO_LONG, cleaned).await.expect("nothing is cleaned up");
    let calls = std::fs::read_to_string(device.dir.path().join("calls")).unwrap();
    assert_eq!(calls.lines().last(), Some("clean 14.5.0-k-amd64"));
}
