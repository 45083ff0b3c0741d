//! More blocked pods than one message can name (goal K1).

use std::time::Duration;

use kubenodeop::PodAction;
use serde_json::json;
use topics::{DrainHistory, DrainJournal, DrainStatus, NodeDrainProgress, Topic, go_json};
use zedkube::Limits;

use crate::device::{Device, US, status};

const PODS: usize = 1000;

fn read<T: Topic>(device: &Device, path: &str) -> T {
    go_json::from_slice(device.text(path).unwrap().as_bytes()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn k1_a_thousand_blocked_pods_are_told_as_the_worst_by_name_and_the_rest_as_a_number() {
    let mut device = Device::new().await;
    device.limits = Limits {
        drain_tries: 1,
        progress_gap_ms: 10_000,
        pod_limit_ms: 20_000,
        pod_limit_then: PodAction::GiveUp,
        ..crate::device::limits()
    };
    for nth in 0..PODS {
        let name = format!("worker-with-a-name-as-long-as-names-are-{nth:04}");
        let namespace = format!("production-{}", nth % 10);
        device.sim.add_bare_pod(&namespace, &name, "n1");
        device.sim.add_budget(&namespace, &name, &name, &json!({ "minAvailable": 1 }));
    }
    let ready = |pod: &serde_json::Value| pod["status"]["conditions"][0]["status"] == "True";
    device.sim.until("pods", |pods| pods.len() > PODS && pods.iter().all(ready)).await;
    device.start().await;
    device.ask(US, 1).await;
    device.until(DrainStatus::FailedDrain, US, 1).await;
    device.rest().await;
    assert_eq!(device.status(), status(8, 2));
    let progress: NodeDrainProgress = read(&device, "run/zedkube/NodeDrainProgress/global.json");
    let named = progress.blockers.len();
    assert!(named >= 100, "{named} blockers are named");
    assert_eq!(named + usize::try_from(progress.blockers_omitted).unwrap(), PODS);
    assert!(progress.blockers.iter().all(|it| it.reason.contains("worker-with-a-name")));
    assert!(progress.next_step.contains("worker-with-a-name") && progress.reason.len() < 2000);
    // What must survive is there too, and short.
    let history: DrainHistory = read(&device, "persist/status/zedkube/DrainHistory/global.json");
    assert_eq!(history.drains[0].status, DrainStatus::FailedDrain);
    assert_eq!(history.drains[0].blockers.len() + history.drains[0].more_blockers as usize, PODS);
    let journal: DrainJournal = read(&device, "persist/status/zedkube/DrainJournal/global.json");
    assert_eq!(journal.status, DrainStatus::FailedDrain);
    // It is alive, and the node is given back.
    assert!(!device.cordoned());
    device.withdraw(US).await;
    // A request that is away for less than 2 s was not withdrawn.
    device.pass(Duration::from_secs(3)).await;
    assert_eq!(device.status(), status(2, 1));
    device.leave().await;
}
