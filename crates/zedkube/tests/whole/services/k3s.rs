//! An update of k3s from the config to the kubelet: held back, drained for, handed over, and the turn given back (goals
//! U7, E6; fault D-V35).

use std::time::Duration;

use serde_json::json;
use topics::{
    ConfigItemValue, ConfigItemValueMap, DrainStatus, K3sStage, K3sUpdate, KubeConfig, Requester, go_json,
};

use crate::device::{Device, status};

const CONFIG: &str = "persist/status/zedkube/KubeConfig/global.json";
const RECORD: &str = "persist/status/zedkube/K3sUpdate/global.json";
const FILE: &str = "persist/vault/k3s-user-override.yaml";
const REQUEST: &str = "run/zedkube/NodeDrainRequest/global.json";
const BEFORE: &str = "v1.32.1+k3s1";
const AFTER: &str = "v1.33.4+k3s1";
const US: Requester = Requester::K3sUpdate;

/// The device config wants this version and this override file.
async fn wants(device: &mut Device, version: &str, file: &str) {
    let text = ConfigItemValue::text;
    let map = ConfigItemValueMap::of([text("k3s.version", version), text("k3s.config.override", file)]);
    let text = String::from_utf8(go_json::to_vec(&map).unwrap()).unwrap();
    device.change(|it| it.write("run/zedagent/ConfigItemValueMap/global.json", &text)).await;
}

fn published(device: &Device) -> KubeConfig {
    go_json::from_slice(device.text(CONFIG).unwrap().as_bytes()).unwrap()
}

fn stage(device: &Device) -> K3sStage {
    let record: K3sUpdate = go_json::from_slice(device.text(RECORD).unwrap().as_bytes()).unwrap();
    record.stage
}

/// The kube container has replaced k3s.
fn runs(device: &Device, version: &str) {
    device.sim.edit("nodes", "", "n1", |it| it["status"]["nodeInfo"]["kubeletVersion"] = version.into());
}

/// A node whose kube container was told a version by an earlier zedkube, and other things.
async fn node() -> Device {
    let mut device = Device::new().await;
    std::fs::create_dir_all(device.topic_root.path("persist/vault")).unwrap();
    std::fs::create_dir_all(device.topic_root.path("run/zedkube/NodeDrainRequest")).unwrap();
    let earlier = json!({ "K3sVersion": BEFORE, "VmiDescheduleEvents": { "OnBoot": true } }).to_string();
    device.write(CONFIG, &earlier);
    runs(&device, BEFORE);
    device.start().await;
    device
}

#[tokio::test(start_paused = true)]
async fn d_v35_another_k3s_waits_for_the_drain_and_the_turn_ends_with_the_kubelets_word() {
    let mut device = node().await;
    wants(&mut device, BEFORE, "").await;
    assert_eq!(device.text(RECORD), None, "what is equal is no update");
    wants(&mut device, AFTER, "").await;
    device.until(DrainStatus::Cordoned, US, 1).await;
    assert_eq!((published(&device).k3s_version.as_str(), stage(&device)), (BEFORE, K3sStage::Waiting));
    assert!(device.text(REQUEST).unwrap().contains("k3s v1.33.4+k3s1"));
    device.until(DrainStatus::Complete, US, 1).await;
    device.until_line("handed to the kube container", 1).await;
    device.rest().await;
    assert_eq!(device.pods_to_leave(), [""; 0]);
    let config = published(&device);
    assert_eq!((config.k3s_version.as_str(), config.vmi_deschedule_events.on_boot), (AFTER, true));
    assert_eq!((device.cordoned(), stage(&device)), (true, K3sStage::Applied));
    device.pass(Duration::from_mins(5)).await;
    assert!(
        device.cordoned() && device.progress().reason.contains("reports v1.32.1"),
        "{:?}",
        device.progress()
    );
    runs(&device, AFTER);
    device.pass(Duration::from_mins(5)).await;
    assert_eq!((device.cordoned(), stage(&device)), (false, K3sStage::Done));
    assert_eq!((device.status(), device.text(REQUEST)), (status(2, 1), None));
    let lease = device.sim.get("coordination/leases", "eve-kube-app", "pillar-rs-outage").unwrap();
    assert_eq!(lease["metadata"]["annotations"]["pillar-rs/outage-holders"], "[]");
}

#[tokio::test(start_paused = true)]
async fn an_override_file_takes_a_turn_and_leaves_the_pods_where_they_are() {
    let mut device = node().await;
    let before = device.pods_to_leave();
    // Another node holds the turn.
    let holders = json!([{ "node": "n2", "nodeUID": device.sim.get("nodes", "", "n2").unwrap()["metadata"]["uid"],
        "op": "reboot", "fence": 4, "phase": "drained" }]);
    device.sim.apply(
        "coordination/leases",
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "pillar-rs-outage",
            "namespace": "eve-kube-app", "annotations": { "pillar-rs/outage-holders": holders.to_string() } },
            "spec": { "leaseTransitions": 4 } }),
    );
    wants(&mut device, BEFORE, "ZGVidWc6IHRydWUK").await;
    device.pass(Duration::from_secs(50)).await;
    assert_eq!(device.text(FILE), None);
    assert!(device.progress().reason.contains("node n2 holds a turn"), "{}", device.progress().reason);
    device.sim.edit("coordination/leases", "eve-kube-app", "pillar-rs-outage", |it| {
        it["metadata"]["annotations"]["pillar-rs/outage-holders"] = "[]".into();
    });
    device.until(DrainStatus::Complete, US, 1).await;
    device.until_line("handed to the kube container", 1).await;
    device.rest().await;
    assert_eq!(device.text(FILE).as_deref(), Some("debug: true\n"));
    assert_eq!((device.cordoned(), device.pods_to_leave()), (false, before.clone()));
    let held = || {
        let lease = device.sim.get("coordination/leases", "eve-kube-app", "pillar-rs-outage").unwrap();
        lease["metadata"]["annotations"]["pillar-rs/outage-holders"].as_str().unwrap().to_owned()
    };
    assert!(held().contains(r#""op":"k3s-update""#), "{}", held());
    device.pass(Duration::from_mins(5)).await;
    assert_eq!(stage(&device), K3sStage::Done);
    let lease = device.sim.get("coordination/leases", "eve-kube-app", "pillar-rs-outage").unwrap();
    assert_eq!(lease["metadata"]["annotations"]["pillar-rs/outage-holders"], "[]");
    assert_eq!(device.pods_to_leave(), before);
    wants(&mut device, BEFORE, "").await;
    device.until_line("handed to the kube container", 2).await;
    device.rest().await;
    assert_eq!(device.text(FILE), None);
}

#[tokio::test(start_paused = true)]
async fn an_update_that_is_not_carried_out_keeps_its_turn_as_failed_also_over_a_boot() {
    let mut device = node().await;
    wants(&mut device, AFTER, "").await;
    device.until_line("this node keeps its turn", 1).await;
    device.rest().await;
    assert!(device.cordoned() && published(&device).k3s_version == AFTER);
    let progress = device.progress();
    assert!(progress.reason.contains("the update of k3s has failed"), "{}", progress.reason);
    assert!(progress.next_step.contains("set k3s.version back to"), "{}", progress.next_step);
    let holders = |device: &Device| {
        let lease = device.sim.get("coordination/leases", "eve-kube-app", "pillar-rs-outage").unwrap();
        lease["metadata"]["annotations"]["pillar-rs/outage-holders"].as_str().unwrap().to_owned()
    };
    assert!(holders(&device).contains(r#""phase":"failed""#), "{}", holders(&device));
    device.kill().await;
    device.reboot();
    assert!(std::fs::remove_file(device.topic_root.path(REQUEST)).is_ok());
    device.start().await;
    wants(&mut device, AFTER, "").await;
    device.pass(Duration::from_mins(20)).await;
    assert!(holders(&device).contains(r#""node":"n1""#), "{}", holders(&device));
    assert_eq!((device.text(REQUEST), device.cordoned()), (None, false));
    // Set back, nothing has to restart.
    wants(&mut device, BEFORE, "").await;
    device.pass(Duration::from_mins(5)).await;
    assert_eq!((published(&device).k3s_version.as_str(), stage(&device)), (BEFORE, K3sStage::Done));
    assert_eq!(holders(&device), "[]");
}
