//! One agent follows another over its socket alone, large members included.

use std::path::Path;
use std::time::Duration;

use agent::Tasks;
use agent::turn::inbox;
use pubsub::{Bus, Change};
use topics::{KubeClusterInfo, go_json};

/// An event that takes longer than this does not come.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_topic_with_large_members_arrives_whole() {
    let root = tempfile::tempdir().unwrap();
    let bus = Bus::open(root.path()).unwrap();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/KubeClusterInfo/full.json");
    let value: KubeClusterInfo = go_json::from_slice(&std::fs::read(sample).unwrap()).unwrap();
    let mut publication = agent::publication::<KubeClusterInfo>(&bus, "zedkube").unwrap();
    publication.publish("global", &value).unwrap();
    // No files to be seen: only the socket is left.
    std::fs::remove_dir_all(root.path().join("run/zedkube/KubeClusterInfo")).unwrap();

    let (outbox, mut inbox) = inbox();
    let mut tasks = Tasks::new(outbox);
    tasks.follow_socket::<KubeClusterInfo>(&bus, "zedkube", Some).unwrap();
    let first = tokio::time::timeout(PATIENCE, inbox.recv()).await.unwrap();
    assert_eq!(first, Some(Change::Put { key: "global".into(), value, old: None }));
    let second = tokio::time::timeout(PATIENCE, inbox.recv()).await.unwrap();
    assert_eq!(second, Some(Change::Synced));
    let left = std::fs::read_dir(root.path().join("persist/pubsub-large/zedkube/KubeClusterInfo")).unwrap();
    assert_eq!(left.count(), 0, "a file of a large member that was read");
}

#[tokio::test]
async fn under_a_root_too_deep_for_a_socket_files_go_on() {
    let root = tempfile::tempdir().unwrap();
    let bus = Bus::open(root.path().join("x".repeat(100))).unwrap();
    let mut publication = agent::publication::<KubeClusterInfo>(&bus, "zedkube").unwrap();
    publication.publish("global", &KubeClusterInfo::default()).unwrap();
    assert!(bus.path("run/zedkube/KubeClusterInfo/global.json").exists());
    assert!(!bus.path("run/zedkube/KubeClusterInfo.sock").exists());
}
