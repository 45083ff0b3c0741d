//! One part fails, the rest is published.

use std::time::Duration;

use kubesim::ScriptedFault;
use topics::{
    GoTime, KubeClusterInfo, ServiceStatus, StorageHealthStatus, StorageVolumeReplicaStatus,
    StorageVolumeRobustness, StorageVolumeState,
};

use super::seeds;
use super::stage::Stage;

type Without = fn(&mut KubeClusterInfo);

fn volumes(info: &mut KubeClusterInfo) -> impl Iterator<Item = &mut topics::KubeVolumeInfo> {
    info.storage.volumes.iter_mut().flatten()
}

/// Path, name, and what is missing without it.
const PARTS: [(&str, &str, Without); 10] = [
    ("/api/v1/nodes", "nodes", |info| info.nodes = None),
    ("/api/v1/pods", "pods", |info| {
        info.app_pods = None;
        info.pod_ns_info = None;
        info.storage.transition_time = GoTime::ZERO;
    }),
    ("/virtualmachineinstances", "virtualmachineinstances.kubevirt.io", |info| info.app_vmis = None),
    ("/persistentvolumeclaims", "persistentvolumeclaims", |info| info.storage.volumes = None),
    ("/daemonsets", "daemonsets.apps", |info| {
        info.storage.health = ServiceStatus::Unset;
        info.storage.transition_time = GoTime::ZERO;
    }),
    ("/longhorn-system/volumes", "volumes.longhorn.io", |info| {
        for volume in volumes(info) {
            volume.state = StorageVolumeState::Unknown;
            volume.robustness = StorageVolumeRobustness::Unknown;
            volume.robustness_substate = StorageHealthStatus::Unknown;
            volume.allocated_bytes = 0;
        }
    }),
    ("/longhorn-system/replicas", "replicas.longhorn.io", |info| {
        volumes(info).for_each(|volume| volume.replicas = None);
    }),
    ("/longhorn-system/engines", "engines.longhorn.io", |info| {
        for replica in volumes(info).flat_map(|volume| volume.replicas.iter_mut().flatten()) {
            replica.status = StorageVolumeReplicaStatus::Unknown;
            replica.rebuild_progress_percentage = 0;
        }
    }),
    ("/longhorn-system/snapshots", "snapshots.longhorn.io", |info| {
        volumes(info).for_each(|volume| volume.allocated_bytes = 9_007_199_254_000_000);
    }),
    ("/longhorn-system/nodes", "nodes.longhorn.io", |info| info.storage.health = ServiceStatus::Healthy),
];

async fn whole() -> KubeClusterInfo {
    let stage = Stage::new();
    seeds::golden(&stage.sim);
    seeds::disk(&stage.sim, "False");
    stage.lead(Duration::from_secs(60));
    let info = stage.until("the cluster", |_| true).await;
    assert_eq!(info.storage.health, ServiceStatus::Degraded);
    stage.until_state("all is well", |state| state.parts.is_empty() && state.requests_open == 10).await;
    info
}

#[tokio::test(start_paused = true)]
async fn l6_each_part_that_fails_leaves_the_others_and_is_named_until_it_is_well() {
    let whole = whole().await;
    let failures = [
        (ScriptedFault::status(403, "Forbidden"), "403 Forbidden", "zedbox role | kubectl apply"),
        (ScriptedFault::status(500, "InternalError"), "500 InternalError", "log of the API server"),
        (ScriptedFault::Hang, "no answer within 30 s", "the load of the API server"),
        (ScriptedFault::Cut, "scripted cut", "check that the API server"),
    ];
    for (path, name, without) in PARTS {
        for (fault, error, step) in &failures {
            let stage = Stage::new();
            seeds::golden(&stage.sim);
            seeds::disk(&stage.sim, "False");
            stage.sim.faults().script("GET", path, u32::MAX, fault.clone());
            stage.lead(Duration::from_secs(3600));
            let mut expected = whole.clone();
            without(&mut expected);
            assert_ne!(expected, whole, "{name}");
            let begun = stage.now();
            stage.until(name, |info| *info == expected).await;
            assert!(
                stage.now().since(begun) <= Duration::from_secs(11),
                "{name}, {error}: the rest came late"
            );
            stage.until_state(name, |state| !state.parts.is_empty()).await;
            let told = stage.state();
            let [part] = &told.parts[..] else { panic!("{name}, {error}: {told:?}") };
            assert_eq!((part.name.as_str(), told.leader, told.requests_open), (name, true, 9));
            assert!(part.error.contains(error) && part.error.contains("at most"), "{part:?}");
            assert!(part.next_step.contains(step), "{part:?}");
            assert!(!part.since.is_zero(), "{part:?}");
            // It is well again, and with it the whole.
            stage.sim.faults().clear();
            stage.until(name, |info| *info == whole).await;
            stage.until_state(name, |state| state.parts.is_empty() && state.requests_open == 10).await;
            let said = stage.lines.text();
            assert_eq!((said.matches("WARN").count(), said.matches("ERROR").count()), (1, 0), "{said}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn l6_what_a_failing_part_had_is_shown_for_five_minutes_and_comes_back_without_a_list() {
    let stage = Stage::new();
    seeds::golden(&stage.sim);
    stage.lead(Duration::from_hours(10));
    let whole = stage.until("the cluster", |_| true).await;
    // The watches that are open stay so until their time is over.
    stage.sim.faults().script(
        "GET",
        "/virtualmachineinstances",
        u32::MAX,
        ScriptedFault::status(403, "Forbidden"),
    );
    stage.until_state("the failure", |state| !state.parts.is_empty()).await;
    let failed = stage.now();
    let lists = stage.requests().1;
    stage.pass(Duration::from_secs(290)).await;
    assert_eq!(stage.info().unwrap(), whole);
    stage.until("no machines", |info| info.app_vmis.is_none()).await;
    let late = stage.now().since(failed);
    assert!(late >= Duration::from_secs(290) && late <= Duration::from_secs(332), "{late:?}");
    let told = stage.state().parts.remove(0);
    assert!(told.error.ends_with("(left out)"), "{told:?}");
    stage.sim.faults().clear();
    let back = stage.until("the machines again", |info| info.app_vmis.is_some()).await;
    assert_eq!(back, whole);
    assert_eq!(stage.requests().1, lists);
}
