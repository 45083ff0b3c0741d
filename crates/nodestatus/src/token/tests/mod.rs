//! From a config with an encrypted token to the bytes of EdgeNodeClusterStatus, beside the reference's own.

pub(super) mod samples;

use std::path::Path;
use std::sync::Arc;

use pubsub::store;
use topics::{ControllerCert, DeviceNetworkStatus, EdgeNodeCert, EdgeNodeClusterConfig, Topic, go_json};

use super::follow::tests::files;
use super::manifest;
use crate::ClusterMembership;
use crate::Membership;
use crate::cluster_status::Node;
use samples::*;

const STATUS: &str = "run/zedkube/EdgeNodeClusterStatus/global.json";

fn golden(topic: &str, sample: &str) -> Vec<u8> {
    let file = format!("../../tests/golden/{topic}/{sample}.json");
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

#[tokio::test]
async fn s2_the_status_has_the_references_bytes_and_is_the_only_file_with_the_token_until_the_node_has_left()
{
    let mut node = Node::new(ClusterMembership::default());
    let topic_root = node.topic_root.clone();
    let put = |path: &Path, bytes: &[u8]| store::replace(path, bytes).unwrap();
    let mut config: EdgeNodeClusterConfig =
        go_json::from_slice(&golden("EdgeNodeClusterConfig", "tiebreaker-lb-masters")).unwrap();
    config.cipher_token = fixed();
    config.cipher_gzip_registration_manifest_yaml = fixed();
    assert!(config.bootstrap_node);
    put(&topic_root.path("persist/certs/ecdh.key.pem"), DEVICE_KEY.as_bytes());
    std::fs::create_dir_all(topic_root.path("persist/vault")).unwrap();
    let (key, cert) = controller_cert(CONTROLLER_CERT.as_bytes());
    let path = agent::wire::path::<ControllerCert>(&topic_root, "zedagent", &key);
    put(&path, &go_json::to_vec(&cert).unwrap());
    let (key, cert) = device_cert(DEVICE_CERT.as_bytes(), false);
    put(&agent::wire::path::<EdgeNodeCert>(&topic_root, "tpmmgr", &key), &go_json::to_vec(&cert).unwrap());
    let ports = golden(DeviceNetworkStatus::NAME, "two-ports-cluster-ip");
    put(&agent::wire::path::<DeviceNetworkStatus>(&topic_root, "nim", "global"), &ports);
    let stands = |membership, config: &EdgeNodeClusterConfig| ClusterMembership {
        membership,
        config: Some(Arc::new(config.clone())),
        left: None,
    };
    node.members.send_replace(stands(Membership::Member, &config));
    let mut places = node.start();
    places.wait_for(Option::is_some).await.unwrap();
    let said = std::fs::read_to_string(topic_root.path(STATUS)).unwrap();
    let expected = golden("EdgeNodeClusterStatus", "bootstrap-lb");
    assert_eq!(said, String::from_utf8(expected).unwrap().trim_end());
    assert_eq!(std::fs::read_to_string(topic_root.path(manifest::FILE)).unwrap(), MANIFEST);
    let tells = || {
        let mut found = Vec::new();
        files(topic_root.root(), &mut found);
        assert!(found.len() > 5, "{found:?}");
        found.retain(|(_, content)| content.windows(6).any(|it| it == b"s3cr3t"));
        found.into_iter().map(|(path, _)| path).collect::<Vec<_>>()
    };
    assert_eq!(tells(), [topic_root.path(STATUS).display().to_string()]);
    // The node is on its way out, and the power goes: what the cluster is reached by comes back.
    let left = Some(Arc::new(config.clone()));
    config.valid = false;
    node.members.send_replace(ClusterMembership { left, ..stands(Membership::Leaving, &config) });
    node.stop();
    store::remove(&topic_root.path(STATUS)).unwrap();
    places = node.start();
    places.wait_for(Option::is_some).await.unwrap();
    assert_eq!(std::fs::read_to_string(topic_root.path(STATUS)).unwrap(), said);
    assert_eq!(tells(), [topic_root.path(STATUS).display().to_string()]);
    // It has left: no file has it any more.
    node.members.send_replace(stands(Membership::Outside, &config));
    places.wait_for(Option::is_none).await.unwrap();
    assert!(tells().is_empty(), "{:?}", tells());
}
