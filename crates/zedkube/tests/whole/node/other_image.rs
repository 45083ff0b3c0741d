//! zedkube on images of each kind, with a device config that names a cluster and without (goal E10).

use std::time::Duration;

use topics::{DrainStatus, Requester};

use crate::device::{Device, STATUS, status};

#[tokio::test(start_paused = true)]
async fn e10_on_another_hypervisor_nothing_is_done_but_to_say_so() {
    for kind in ["kvm", "xen\n"] {
        let mut device = Device::new().await;
        device.member(false);
        device.write("run/eve-hv-type", kind);
        let before = device.sim.faults().requests().len();
        device.start().await;
        device.request(Requester::DeviceOp, 1);
        device.pass(Duration::from_hours(1)).await;
        assert_eq!(device.status(), status(1, 1), "{kind:?}");
        let golden = format!(
            "{}/../../tests/golden/NodeDrainStatus/1-notsupported-none.json",
            env!("CARGO_MANIFEST_DIR")
        );
        assert_eq!(device.text(STATUS), std::fs::read_to_string(golden).ok());
        assert_eq!(device.sim.faults().requests().len(), before, "no call");
        let folders =
            std::fs::read_dir(device.topic_root.path("run/zedkube")).unwrap().map(|it| it.unwrap().path());
        let values = folders.filter(|it| it.is_dir()).flat_map(|it| std::fs::read_dir(it).unwrap());
        let values: Vec<_> = values
            .map(|it| it.unwrap().path())
            .filter(|it| it.extension().is_some_and(|it| it == "json"))
            .collect();
        assert_eq!(values, [device.topic_root.path(STATUS)], "no other topic");
        assert!(
            device.topic_root.path("run/zedkube.touch").exists()
                && device.topic_root.path("run/zedkube.pid").exists()
        );
        device.leave().await;
    }
}

#[tokio::test(start_paused = true)]
async fn e10_no_word_of_the_image_decides_anything_against_a_config_that_names_a_cluster() {
    let kinds = ["k", "kubevirt\n", "", " \n", "ku", "acrn", "\0\0\0", "kvm", "xen\n"];
    for kind in kinds.into_iter().map(Some).chain([None]) {
        let mut device = Device::new().await;
        if let Some(kind) = kind {
            device.write("run/eve-hv-type", kind);
        }
        let config = r#"{"Initialized":true,"Valid":true,"ClusterName":"edge-cluster"}"#;
        device.write("run/zedagent/EdgeNodeClusterConfig/global.json", config);
        device.start().await;
        assert_eq!(device.status(), status(2, 1), "{kind:?}");
        device.request(Requester::DeviceOp, 1);
        device.until(DrainStatus::Complete, Requester::DeviceOp, 1).await;
        assert!(device.cordoned(), "{kind:?}");
        let differs = device.text("run/zedkube/AgentTrouble/global.json").unwrap_or_default();
        let named = |word: &str| differs.contains(word) && differs.contains("the cluster edge-cluster");
        assert_eq!(
            named("kvm") || named("xen"),
            matches!(kind, Some("kvm" | "xen\n")),
            "{kind:?}: {differs}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn e10_an_image_without_kubernetes_is_drained_from_the_moment_that_its_config_names_a_cluster() {
    let mut device = Device::new().await;
    device.member(false);
    device.write("run/eve-hv-type", "kvm");
    device.start().await;
    assert_eq!(device.status(), status(1, 1));
    device.change(|it| it.member(true)).await;
    assert_eq!(device.status(), status(2, 1));
    // An image for clusters on a single node has nothing to drain.
    let mut device = Device::new().await;
    device.member(false);
    device.write("run/eve-hv-type", "kubevirt");
    device.start().await;
    assert_eq!(device.status(), status(1, 1));
}
