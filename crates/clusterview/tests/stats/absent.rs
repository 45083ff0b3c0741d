//! KubeVirt and Longhorn are not installed.

use std::time::Duration;

use kubesim::ScriptedFault;
use topics::KubeStorageInfo;

use super::seeds;
use super::stage::Stage;

/// Lists of one kind, and readings of the API groups.
fn asked(stage: &Stage) -> (usize, usize) {
    let seen = stage.sim.faults().requests();
    let volumes = "longhorn.io/v1beta2/namespaces/longhorn-system/volumes";
    (
        seen.iter().filter(|it| it.uri.contains(volumes)).count(),
        seen.iter().filter(|it| it.uri == "/apis").count(),
    )
}

fn not_installed(stage: &Stage) {
    for group in ["/apis/kubevirt.io/", "/apis/longhorn.io/"] {
        stage.sim.faults().script("GET", group, u32::MAX, ScriptedFault::status(404, "NotFound"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_name_its_api_groups_is_asked_for_each_kind_instead() {
    let stage = Stage::new();
    not_installed(&stage);
    stage.sim.faults().script("GET", "/apis", u32::MAX, ScriptedFault::status(403, "Forbidden"));
    stage.lead(Duration::from_hours(2));
    stage.pass(Duration::from_secs(1230)).await;
    let (lists, _) = asked(&stage);
    assert!((4..=6).contains(&lists), "{lists} requests in 20 minutes");
}

#[tokio::test(start_paused = true)]
async fn resources_that_the_cluster_does_not_know_are_empty_asked_for_once_and_no_error() {
    let stage = Stage::new();
    not_installed(&stage);
    stage.lead(Duration::from_hours(2));
    let info = stage.until("the cluster", |_| true).await;
    assert_eq!((info.app_vmis, info.storage), (None, KubeStorageInfo::default()));
    stage.pass(Duration::from_secs(1200)).await;
    assert_eq!((stage.state().parts, stage.state().requests_open), (vec![], 4));
    let (lists, groups) = asked(&stage);
    assert_eq!(lists, 1, "once, and then by one call for all kinds");
    assert!((3..=5).contains(&groups), "{groups} requests in 20 minutes");
    // They are installed.
    stage.sim.faults().clear();
    seeds::golden(&stage.sim);
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
