//! Applications beside the drain: neither waits for the other.

use std::time::Duration;

use kubesim::ScriptedFault;
use serde_json::json;
use topics::DrainStatus;

use crate::device::{Device, US};

const APP: &str = "d4f3a2b1-6d5e-4f70-9bac-1d2e3f4a5b6c";
const POD: &str = "web-d4f3a-0-x7k2p";
const LOG: &str = "web-d4f3a-0-x7k2p/log";

fn configure(device: &Device) {
    let config = json!({
        "UUIDandVersion": { "UUID": APP }, "DisplayName": "Web", "IsDesignatedNodeID": true,
        "FixedResources": { "VirtualizationMode": 4 },
    });
    device.write(&format!("run/zedagent/AppInstanceConfig/{APP}.json"), &config.to_string());
}

#[tokio::test(start_paused = true)]
async fn logs_that_hang_and_pods_of_applications_that_are_not_told_hold_no_drain_up() {
    let mut device = Device::new().await;
    std::fs::create_dir_all(device.topic_root.path("run/zedagent/AppInstanceConfig")).unwrap();
    configure(&device);
    device.sim.apply(
        "pods",
        json!({
            "metadata": { "name": POD, "namespace": "eve-kube-app" },
            "spec": { "nodeName": "n2", "containers": [{ "name": "web", "image": "i" }] },
            "status": { "phase": "Running" },
        }),
    );
    device.sim.run_container("eve-kube-app", POD, "web", 0, &json!({ "running": {} }));
    device.sim.faults().script("GET", LOG, u32::MAX, ScriptedFault::Hang);
    device.start().await;
    device.until_line("application in the cluster", 1).await;
    let text = device.text(&format!("run/zedkube/ENClusterAppStatus/{APP}.json")).unwrap();
    assert!(text.contains(r#""IsDNidNode":true,"ScheduledOnThisNode":false,"AppKubeStatus":4"#), "{text}");
    device.pass(Duration::from_secs(5)).await;
    assert!(device.sim.faults().count("GET", LOG) > 0);
    device.sim.faults().script("GET", "/namespaces/eve-kube-app/pods", u32::MAX, ScriptedFault::Hang);
    device.ask(US, 1).await;
    device.until(DrainStatus::Complete, US, 1).await;
    let said = device.diary.times("nodedrain-step:changing");
    // From the cordon: the turn before it waits for the other kubelet to be seen alive.
    let took = said[said.len() - 1].since(said[said.len() - 2]);
    assert!(took < Duration::from_secs(10), "{took:?}");
}
