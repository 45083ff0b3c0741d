//! zedkube on an image whose hypervisor is not `k` (goal E10).

use std::time::Duration;

use topics::Requester;

use crate::device::{Device, STATUS, status};

#[tokio::test(start_paused = true)]
async fn e10_on_another_hypervisor_nothing_is_done_but_to_say_so() {
    for kind in ["kvm", "xen\n", ""] {
        let mut device = Device::new().await;
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
    // The kind that has a cluster, and a system that is none of these images.
    for kind in [Some("k"), None] {
        let mut device = Device::new().await;
        if let Some(kind) = kind {
            device.write("run/eve-hv-type", kind);
        }
        device.start().await;
        assert_eq!(device.status(), status(2, 1), "{kind:?}");
    }
}
