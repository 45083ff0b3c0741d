//! An API server that goes silent in the middle of a drain: the rest of it is skipped where that was set and nothing
//! speaks against it, and by default never.

use std::time::Duration;

use kubesim::ScriptedFault;
use serde_json::json;
use topics::{DrainHistory, DrainPhase, DrainStatus, Requester, StepWord, go_json};
use zedkube::Limits;

use crate::device::{Device, status};

const US: Requester = Requester::DeviceOp;
const HISTORY: &str = "persist/status/zedkube/DrainHistory/global.json";
/// A probe takes up to 15 s and the next one comes 5 s later.
const SLACK: Duration = Duration::from_secs(80);

type Prepare<'a> = &'a dyn Fn(&Device);

/// Ten minutes of silence are enough.
fn limits() -> Limits {
    Limits { api_lost_skip_ms: 600_000, ..crate::device::limits() }
}

/// A drain that a budget holds.
async fn held(limits: Limits, prepare: impl FnOnce(&Device)) -> Device {
    let mut device = Device::new().await;
    device.limits = limits;
    device.worker();
    prepare(&device);
    device.start().await;
    device.ask_blocked(US).await;
    device.pass(Duration::from_secs(60)).await;
    device
}

fn goes(device: &Device, fault: &ScriptedFault) {
    for method in ["GET", "POST", "PATCH", "DELETE", "PUT"] {
        device.sim.faults().script(method, "/", u32::MAX, fault.clone());
    }
    device.sim.expire_watches();
}

/// Whether the drain is skipped within twice the time that is enough.
async fn is_skipped(device: &mut Device) -> bool {
    device.pass(Duration::from_mins(20)).await;
    let skipped = device.progress().phase == DrainPhase::Skipped;
    assert_eq!(device.diary.ever_complete(), skipped);
    skipped
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_api_stays_silent_skips_the_rest_of_its_drain_and_says_so_everywhere() {
    for fault in [ScriptedFault::Cut, ScriptedFault::Hang] {
        let mut device = held(limits(), |_| {}).await;
        let silent = device.now();
        goes(&device, &fault);
        device.pass(Duration::from_secs(300)).await;
        let progress = device.progress();
        assert!(
            progress.reason.contains(&format!("since {}, for ", progress.api_silent_since.shown())),
            "{progress:?}"
        );
        assert!(progress.next_step.contains("skipped after 600 s"), "{progress:?}");
        device.until(DrainStatus::Complete, US, 1).await;
        device.rest().await;
        let took = device.now().since(silent);
        assert!(took > Duration::from_secs(600) && took < Duration::from_secs(600) + SLACK, "{took:?}");
        let progress = device.progress();
        assert_eq!((progress.phase, device.status()), (DrainPhase::Skipped, status(9, 2)));
        let why = "the Kubernetes API was lost in the middle of the drain: no answer for 6";
        assert!(progress.skip.starts_with(why) && progress.answers[0].skip == progress.skip, "{progress:?}");
        let history: DrainHistory = go_json::from_slice(device.text(HISTORY).unwrap().as_bytes()).unwrap();
        let end = history.drains[0].steps.last().unwrap();
        assert_eq!(end.step, StepWord::Skipped);
        assert!(end.text.starts_with("the Kubernetes API was lost"), "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_counts_over_a_kill_of_zedkube() {
    let mut device = held(limits(), |_| {}).await;
    let silent = device.now();
    goes(&device, &ScriptedFault::Cut);
    device.pass(Duration::from_secs(400)).await;
    device.kill().await;
    device.start().await;
    device.until(DrainStatus::Complete, US, 1).await;
    assert!(device.now().since(silent) < Duration::from_secs(600) + SLACK);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_skipped_by_default_on_a_server_or_while_a_machine_or_a_last_replica_is_here() {
    let label = |device: &Device, role: &str| {
        let role = format!("node-role.kubernetes.io/{role}");
        device.sim.edit("nodes", "", "n1", |node| node["metadata"]["labels"][role] = "true".into());
    };
    let cases: [(Limits, Prepare<'_>); 6] = [
        (Limits::default(), &|_| {}),
        (limits(), &|device| label(device, "control-plane")),
        // Without etcd's data nothing would be drained here.
        (Limits { take_turns: false, ..limits() }, &|device| label(device, "etcd")),
        (limits(), &|device| {
            device.sim.edit("pods", "tools", "shell", |pod| {
                pod["metadata"]["labels"] = json!({ "kubevirt.io": "virt-launcher" });
            });
            device.refusals(u32::MAX);
            device.sim.faults().script("POST", "/pods/shell/eviction", u32::MAX, ScriptedFault::Hang);
        }),
        (limits(), &|device| {
            device.sim.apply(
                "longhorn/replicas",
                json!({
                    "apiVersion": "longhorn.io/v1beta2", "kind": "Replica",
                    "metadata": { "namespace": "longhorn-system", "name": "r1" },
                    "spec": { "volumeName": "pvc-1", "nodeID": "n1", "healthyAt": "2026-03-14T09:00:00Z" },
                }),
            );
        }),
        (limits(), &|device| {
            device.sim.faults().script("GET", "/replicas", u32::MAX, ScriptedFault::status(403, "Forbidden"));
        }),
    ];
    let mut skipped = Vec::new();
    for (number, (limits, prepare)) in cases.into_iter().enumerate() {
        let mut device = held(limits, prepare).await;
        goes(&device, &ScriptedFault::Cut);
        if is_skipped(&mut device).await {
            skipped.push(number);
        }
    }
    assert_eq!(skipped, [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_api_that_refuses_throttles_or_fails_is_not_silent() {
    for (code, reason) in [(401, "Unauthorized"), (403, "Forbidden"), (429, "TooManyRequests"), (503, "Down")]
    {
        let mut device = held(limits(), |_| {}).await;
        goes(&device, &ScriptedFault::status(code, reason));
        assert!(!is_skipped(&mut device).await, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_of_a_person_is_never_skipped() {
    let mut device = Device::new().await;
    device.limits = limits();
    device.worker();
    device.start().await;
    device.ask_blocked(Requester::Operator).await;
    device.pass(Duration::from_secs(60)).await;
    goes(&device, &ScriptedFault::Cut);
    assert!(!is_skipped(&mut device).await);
}
