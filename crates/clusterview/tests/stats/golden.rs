//! The golden sample, rebuilt from the Kubernetes objects that lead to it.

use std::time::Duration;

use topics::{KubeClusterInfo, NodeAdmission, go_json};

use super::seeds;
use super::stage::Stage;

fn sample() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/KubeClusterInfo/full.json");
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_golden_sample_comes_out_of_its_objects_byte_for_byte() {
    let stage = Stage::new();
    seeds::golden(&stage.sim);
    stage.lead(Duration::from_secs(60));
    stage.until("the cluster", |_| true).await;
    // The sample names its namespaces in no order; ours are sorted, so that equal content is equal.
    let mut expected: KubeClusterInfo = go_json::from_slice(sample().as_bytes()).unwrap();
    expected.pod_ns_info.as_mut().unwrap().sort_by(|one, other| one.name.cmp(&other.name));
    let expected = String::from_utf8(go_json::to_vec(&expected).unwrap()).unwrap();
    assert_eq!(expected.len(), sample().len());
    assert_eq!(stage.text().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn nothing_in_the_cluster_is_the_zero_sample() {
    let stage = Stage::new();
    stage.lead(Duration::from_secs(60));
    stage.until("the cluster", |_| true).await;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/KubeClusterInfo/zero.json");
    assert_eq!(stage.text().unwrap(), std::fs::read_to_string(path).unwrap());
}

#[tokio::test(start_paused = true)]
async fn d_k20_a_config_that_goes_is_seen_in_the_next_round() {
    let stage = Stage::new();
    seeds::golden(&stage.sim);
    stage.lead(Duration::from_secs(600));
    let of_first = |info: &KubeClusterInfo| info.nodes.as_ref().unwrap()[0].admission;
    stage.until("a member", |info| of_first(info) == NodeAdmission::Joined).await;
    stage.config.send_replace(None);
    stage.until("one that leaves", |info| of_first(info) == NodeAdmission::Leaving).await;
}
