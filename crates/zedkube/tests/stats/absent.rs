//! KubeVirt and Longhorn are not installed.

use std::time::Duration;

use kubesim::Fault;
use topics::KubeStorageInfo;

use crate::seeds;
use crate::stage::Stage;

#[tokio::test(start_paused = true)]
async fn resources_that_the_cluster_does_not_know_are_empty_seldom_asked_for_and_no_error() {
    let stage = Stage::new();
    seeds::golden(&stage.sim);
    for group in ["/apis/kubevirt.io/", "/apis/longhorn.io/"] {
        stage.sim.faults().script("GET", group, u32::MAX, Fault::status(404, "NotFound"));
    }
    stage.lead(Duration::from_hours(2));
    let info = stage.until("the cluster", |_| true).await;
    assert_eq!((info.app_vmis, info.storage), (None, KubeStorageInfo::default()));
    assert_eq!((info.nodes.unwrap().len(), info.app_pods.unwrap().len()), (2, 1));
    stage.pass(Duration::from_secs(1200)).await;
    assert_eq!((stage.state().parts, stage.state().requests_open), (vec![], 4));
    let asked = stage.sim.faults().count("GET", "longhorn.io/v1beta2/namespaces/longhorn-system/volumes");
    assert!((9..=11).contains(&asked), "{asked} requests in 20 minutes");
    // They are installed.
    stage.sim.faults().clear();
    let info = stage.until("machines and volumes", |info| info.app_vmis.is_some()).await;
    assert_eq!(info.app_vmis.unwrap().len(), 1);
    stage.until("storage", |info| info.storage.health.number() == 3).await;
    let said = stage.lines.text();
    assert!(said.contains("this cluster does not know it"), "{said}");
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "{said}");
    assert_eq!(
        said.matches("virtualmachineinstances.kubevirt.io").count(),
        2,
        "once gone, once there: {said}"
    );
}
