//! The statistics as a whole: who publishes them and when, parts that fail or are not installed, the golden sample rebuilt
//! from its objects, limits of a message, and what they cost the API server.

use std::time::Duration;

use kubesim::{ScriptedFault, Sim, SimConfig};
use topics::{
    GoTime, KubeClusterInfo, KubeStatsState, KubeStorageInfo, NodeAdmission, ServiceStatus,
    StorageHealthStatus, StorageVolumeReplicaStatus, StorageVolumeRobustness, StorageVolumeState, go_json,
};

use self::stage::{INFO, Stage};
use crate::stage::golden;

mod crowd;
mod seeds;
mod stage;

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
    let info = stage.reports(Duration::from_hours(2)).await;
    assert_eq!((info.app_vmis, info.storage), (None, KubeStorageInfo::default()));
    stage.pass(Duration::from_secs(1200)).await;
    assert_eq!((stage.state().parts, stage.state().requests_open), (vec![], 4));
    let (lists, groups) = asked(&stage);
    assert_eq!(lists, 1, "once, and then by one call for all kinds");
    assert!((3..=5).contains(&groups), "{groups} requests in 20 minutes");
    // They are installed.
    stage.sim.faults().clear();
    seeds::golden(&stage.sim);
    let info = stage.until_info("machines and volumes", |info| info.app_vmis.is_some()).await;
    assert_eq!(info.app_vmis.unwrap().len(), 1);
    stage.until_info("storage", |info| info.storage.health.number() == 3).await;
    let said = stage.lines.text();
    assert!(said.contains("this cluster does not know it"), "{said}");
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "{said}");
    assert_eq!(
        said.matches("virtualmachineinstances.kubevirt.io").count(),
        2,
        "once gone, once there: {said}"
    );
}

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
    let stage = Stage::golden();
    seeds::disk(&stage.sim, "False");
    let info = stage.reports(Duration::from_secs(60)).await;
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
            let stage = Stage::golden();
            seeds::disk(&stage.sim, "False");
            stage.sim.faults().script("GET", path, u32::MAX, fault.clone());
            stage.lead(Duration::from_secs(3600));
            let mut expected = whole.clone();
            without(&mut expected);
            assert_ne!(expected, whole, "{name}");
            let begun = stage.now();
            stage.until_info(name, |info| *info == expected).await;
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
            stage.until_info(name, |info| *info == whole).await;
            stage.until_state(name, |state| state.parts.is_empty() && state.requests_open == 10).await;
            let said = stage.lines.text();
            assert_eq!((said.matches("WARN").count(), said.matches("ERROR").count()), (1, 0), "{said}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn l6_what_a_failing_part_had_is_shown_for_five_minutes_and_comes_back_without_a_list() {
    let stage = Stage::golden();
    let whole = stage.reports(Duration::from_hours(10)).await;
    // The watches that are open stay so until their time is over.
    stage.sim.faults().script(
        "GET",
        "/virtualmachineinstances",
        u32::MAX,
        ScriptedFault::status(403, "Forbidden"),
    );
    stage.until_state("the failure", |state| !state.parts.is_empty()).await;
    let failed = stage.now();
    let lists = stage.requests("/").1;
    stage.pass(Duration::from_secs(290)).await;
    assert_eq!(stage.info().unwrap(), whole);
    stage.until_info("no machines", |info| info.app_vmis.is_none()).await;
    let late = stage.now().since(failed);
    assert!(late >= Duration::from_secs(290) && late <= Duration::from_secs(332), "{late:?}");
    let told = stage.state().parts.remove(0);
    assert!(told.error.ends_with("(left out)"), "{told:?}");
    stage.sim.faults().clear();
    let back = stage.until_info("the machines again", |info| info.app_vmis.is_some()).await;
    assert_eq!(back, whole);
    assert_eq!(stage.requests("/").1, lists);
}

#[tokio::test(start_paused = true)]
async fn the_golden_sample_comes_out_of_its_objects_byte_for_byte() {
    let stage = Stage::golden();
    stage.reports(Duration::from_secs(60)).await;
    // The sample names its namespaces in no order; ours are sorted, so that equal content is equal.
    let sample = golden("KubeClusterInfo", "full");
    let mut expected: KubeClusterInfo = go_json::from_slice(sample.as_bytes()).unwrap();
    expected.pod_ns_info.as_mut().unwrap().sort_by(|one, other| one.name.cmp(&other.name));
    let expected = String::from_utf8(go_json::to_vec(&expected).unwrap()).unwrap();
    assert_eq!(expected.len(), sample.len());
    assert_eq!(stage.text(INFO).unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn nothing_in_the_cluster_is_the_zero_sample() {
    let stage = Stage::new();
    stage.reports(Duration::from_secs(60)).await;
    assert_eq!(stage.text(INFO).unwrap(), golden("KubeClusterInfo", "zero"));
}

#[tokio::test(start_paused = true)]
async fn d_k20_a_config_that_goes_is_seen_in_the_next_round() {
    let stage = Stage::golden();
    stage.lead(Duration::from_secs(600));
    let of_first = |info: &KubeClusterInfo| info.nodes.as_ref().unwrap()[0].admission;
    stage.until_info("a member", |info| of_first(info) == NodeAdmission::Joined).await;
    stage.config.send_replace(None);
    stage.until_info("one that leaves", |info| of_first(info) == NodeAdmission::Leaving).await;
}

const TICK: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_follower_publishes_nothing_and_asks_for_nothing() {
    let stage = Stage::golden();
    stage.pass(Duration::from_secs(600)).await;
    assert_eq!((stage.text(INFO), stage.requests("/")), (None, (0, 0)));
    assert_eq!(stage.state(), KubeStatsState::default());
}

#[tokio::test(start_paused = true)]
async fn l2_the_lease_lost_or_not_renewed_withdraws_at_once_and_closes_the_watches() {
    let stage = Stage::golden();
    for lost in [true, false] {
        let begun = stage.now();
        stage.reports(Duration::from_secs(100)).await;
        assert!(stage.now().since(begun) < Duration::from_secs(1), "a new leader does not wait");
        assert!(stage.state().leader);
        if lost {
            stage.lose();
        } else {
            stage.pass(Duration::from_secs(100).saturating_sub(stage.now().since(begun) + TICK)).await;
            assert!(stage.text(INFO).is_some());
            stage.pass(TICK).await;
        }
        stage.pass(TICK).await;
        assert_eq!((stage.text(INFO), stage.state()), (None, KubeStatsState::default()));
        let asked = stage.requests("/");
        stage.pass(Duration::from_secs(600)).await;
        assert_eq!(stage.requests("/"), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_goes_on_without_a_new_list() {
    let stage = Stage::golden();
    stage.reports(Duration::from_secs(100)).await;
    let lists = stage.requests("/").1;
    for _ in 0..40 {
        stage.pass(Duration::from_secs(15)).await;
        stage.lead(Duration::from_secs(100));
        assert!(stage.text(INFO).is_some());
    }
    assert_eq!(stage.requests("/").1, lists);
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_run_left_is_taken_back_before_anything_else_and_so_is_ours_when_the_task_ends() {
    let mut stage = Stage::golden();
    stage.reports(Duration::from_hours(1)).await;
    let text = stage.text(INFO).unwrap();
    stage.stop().await;
    assert_eq!((stage.text(INFO), stage.state()), (None, KubeStatsState::default()));
    // A crash tidies nothing up.
    let file = stage.context.topic_root.path(INFO);
    pubsub::store::replace(&file, text.as_bytes()).unwrap();
    stage.lose();
    stage.start();
    stage.pass(TICK).await;
    assert_eq!(stage.text(INFO), None);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_changes_all_the_time_is_published_every_thirty_seconds() {
    let stage = Stage::golden();
    stage.reports(Duration::from_hours(1)).await;
    let (mut last, mut at) = (stage.text(INFO).unwrap(), stage.now());
    let mut gaps = Vec::new();
    for second in 0..300 {
        assert!(stage.sim.edit("pods", "eve-kube-app", "web-d4f3a-0-abcde", |pod| {
            pod["status"]["containerStatuses"][0]["restartCount"] = second.into();
        }));
        stage.pass(Duration::from_secs(1)).await;
        let text = stage.text(INFO).unwrap();
        if text != last {
            gaps.push(stage.now().since(at));
            (last, at) = (text, stage.now());
        }
    }
    assert_eq!(gaps.len(), 10, "{gaps:?}");
    let a_gap = |gap: &Duration| (29..=31).contains(&gap.as_secs());
    assert!(gaps[1..].iter().all(a_gap), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn what_changes_nothing_in_the_topic_is_not_published_again() {
    let stage = Stage::golden();
    stage.reports(Duration::from_hours(1)).await;
    let first = stage.inode(INFO);
    for second in 0..120 {
        // As heartbeats do.
        assert!(stage.sim.edit("nodes", "", "node-1", |node| {
            node["status"]["conditions"][1]["lastHeartbeatTime"] = second.into();
        }));
        stage.pass(Duration::from_secs(1)).await;
    }
    assert_eq!(stage.inode(INFO), first, "each write is another file");
}

#[tokio::test(start_paused = true)]
async fn no_list_is_asked_for_in_steady_state_however_much_happens() {
    let stage = Stage::golden();
    crowd::crowd(&stage.sim, 3, 300);
    stage.reports(Duration::from_hours(1)).await;
    // Ten parts, 321 pods in pages of 250.
    assert_eq!(stage.requests("/"), (21, 11), "an opening");
    for second in 0..600 {
        let name = format!("application-{:05}-0-abcde", second % 300);
        assert!(stage.sim.edit("pods", "eve-kube-app", &name, |pod| {
            pod["status"]["containerStatuses"][0]["restartCount"] = second.into();
        }));
        stage.pass(Duration::from_secs(1)).await;
    }
    let (all, lists) = stage.requests("/");
    assert_eq!((all, lists), (41, 11), "each watch is opened anew every four minutes");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_leads_to_one_list_of_each_part() {
    let stage = Stage::on(Sim::new(SimConfig { history: 50, ..SimConfig::default() }));
    seeds::golden(&stage.sim);
    let whole = stage.reports(Duration::from_hours(1)).await;
    let lists = stage.requests("/").1;
    stage.sim.expire_watches();
    stage.pass(Duration::from_secs(600)).await;
    assert_eq!(stage.requests("/").1, lists + 10);
    assert_eq!(stage.info().unwrap(), whole);
}

async fn published(nodes: usize, pods: usize) -> (Stage, KubeClusterInfo) {
    let stage = Stage::new();
    crowd::crowd(&stage.sim, nodes, pods);
    let info = stage.reports(Duration::from_secs(600)).await;
    (stage, info)
}

/// The publication is served on a socket as well: one that does not fit there is refused.
#[tokio::test(start_paused = true)]
async fn l6_a_thousand_pods_and_a_hundred_nodes_fit_whole() {
    let (stage, info) = published(100, 1000).await;
    assert!(stage.context.topic_root.path("run/zedkube/KubeClusterInfo.sock").exists());
    assert_eq!((info.nodes.unwrap().len(), info.app_pods.unwrap().len()), (100, 1000));
    assert_eq!(stage.state().parts, []);
}

#[tokio::test(start_paused = true)]
async fn l6_what_does_not_fit_is_cut_and_told_and_the_rest_published() {
    let (stage, info) = published(300, 8000).await;
    let (nodes, pods) = (info.nodes.unwrap().len(), info.app_pods.unwrap().len());
    // Beside the nodes there may be room for its short entry, or not.
    let spaces = info.pod_ns_info.unwrap().len();
    assert!(nodes > 120 && nodes < 300 && pods > 3500 && pods < 8000, "{nodes} nodes, {pods} pods");
    let said = |kept: usize, of: usize| format!("{kept} of {of} fit into a message");
    let mut expected = vec![("Nodes", said(nodes, 300)), ("AppPods", said(pods, 8000))];
    if spaces == 0 {
        expected.insert(1, ("PodNsInfo", said(0, 1)));
    }
    stage.until_state("the cuts", |state| state.parts.len() == expected.len()).await;
    let told: Vec<(String, String)> = stage.state().parts.into_iter().map(|it| (it.name, it.error)).collect();
    let expected: Vec<_> = expected.into_iter().map(|(name, error)| (name.to_owned(), error)).collect();
    assert_eq!(told, expected);
}
