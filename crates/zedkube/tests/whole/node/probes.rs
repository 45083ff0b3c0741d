//! Probes of the site after a boot: what `/etc/zedbox/probes.toml` names is tried, and named while it fails (row 1-05).

use std::time::Duration;

use super::after_boot::booted;

const FILE: &str = "etc/zedbox/probes.toml";

#[tokio::test(start_paused = true)]
async fn a_probe_that_fails_after_a_boot_keeps_no_cordon_and_has_failed_after_its_limit() {
    let mut device = booted().await;
    // Nobody listens there: the port is one of those that only root may have.
    device.write(FILE, "[[probe]]\nname = \"shop\"\nurl = \"http://127.0.0.1:1/healthz\"\n");
    device.start().await;
    device.pass(Duration::from_mins(2)).await;
    let progress = device.progress();
    assert!(!device.cordoned() && progress.gate.open, "{progress:?}");
    let [warning] = progress.gate.warnings.as_slice() else { panic!("{progress:?}") };
    assert_eq!((warning.layer.as_str(), warning.failed), ("probes", false));
    assert!(warning.words.contains("probes fail: shop: http://127.0.0.1:1/healthz"), "{warning:?}");
    assert!(warning.next_step.contains("curl -v http://127.0.0.1:1/healthz"), "{warning:?}");
    device.pass(Duration::from_mins(5)).await;
    assert!(device.progress().gate.warnings[0].failed, "{:?}", device.progress());
    device.write(FILE, "");
    device.pass(Duration::from_mins(3)).await;
    assert!(device.progress().gate.warnings.is_empty(), "{:?}", device.progress());
}
