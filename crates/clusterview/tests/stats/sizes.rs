//! Large clusters and the limits of a message.

use std::time::Duration;

use topics::KubeClusterInfo;

use super::crowd;
use super::stage::Stage;

async fn published(nodes: usize, pods: usize) -> (Stage, KubeClusterInfo) {
    let stage = Stage::new();
    crowd::crowd(&stage.sim, nodes, pods);
    stage.lead(Duration::from_secs(600));
    let info = stage.until("the cluster", |_| true).await;
    (stage, info)
}

/// The publication is served on a socket as well: one that does not fit there is refused.
#[tokio::test(start_paused = true)]
async fn l6_a_thousand_pods_and_a_hundred_nodes_fit_whole() {
    let (stage, info) = published(100, 1000).await;
    assert!(stage.topic_root.path("run/zedkube/KubeClusterInfo.sock").exists());
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
