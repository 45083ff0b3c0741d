//! Machines that are tied: to a device or a label of their node, or to somebody who made them.

use super::*;

#[tokio::test(start_paused = true)]
async fn o5_the_plan_names_the_device_or_the_selector_that_ties_a_machine_and_where_that_is_changed() {
    let (sim, cluster) = cluster("v1.7.3", |sim| {
        let mut card = migratable();
        card["domain"]["devices"]["hostDevices"] = json!([{ "name": "card", "deviceName": "intel.com/qat" }]);
        sim.add_machine_on("shop", "card", "Always", "n1", &card);
        let mut disk = migratable();
        disk["nodeSelector"] = json!({ "disk": "ssd" });
        sim.add_machine_on("shop", "disk", "Always", "n1", &disk);
        // The one that serves the images of an upgrade is a machine like any other.
        sim.add_machine_on("harvester-system", "upgrade-repo", "Always", "n1", &migratable());
    })
    .await;
    let plan = planned(&cluster, MachinePolicy::MigrateOrHold).await;
    let of = |name: &str| plan.machines.iter().find(|it| it.name == name).unwrap();
    let device = &of("shop/card").not_migratable;
    assert!(
        device.starts_with("HostDeviceNotLiveMigratable") && device.contains("it has card intel.com/qat"),
        "{device}"
    );
    let fate = &of("shop/disk").fate;
    let said = "node n2 has no label disk=ssd, node n3 has no label disk=ssd; its node selector or affinity is changed on \
                its VirtualMachine, not on the instance";
    assert!(fate.contains(said), "{fate}");
    assert!(of("harvester-system/upgrade-repo").fate.contains("is asked to migrate"));
    assert_eq!(plan.blockers.len(), 2);
    // By the usual policy these two are stopped, the third is moved, and all that before any pod.
    let left = Attempt::start(&cluster).left().await;
    assert!(
        left.iter().filter(|it| it.contains("started again once node n1 is back")).count() == 2,
        "{left:?}"
    );
    assert_eq!(sim.list(MIGRATIONS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_an_outside_manager_is_held_or_shut_down_and_nothing_of_it_is_ever_deleted() {
    for policy in [MachinePolicy::MigrateOrHold, MachinePolicy::Shutdown] {
        let (sim, cluster) = cluster("v1.7.3", |sim| {
            sim.add_machine_on("shop", "worker", "Always", "n1", &migratable());
            sim.edit(MACHINES, "shop", "worker", |it| {
                it["metadata"]["ownerReferences"] = json!([{ "apiVersion": "infrastructure.cluster.x-k8s.io/v1",
                    "kind": "KubevirtMachine", "name": "worker", "uid": "u" }]);
            });
            sim.edit(GUESTS, "shop", "worker", |it| {
                it["metadata"]["annotations"]["kubesim/not-migratable"] = "DisksNotLiveMigratable: no".into();
            });
        })
        .await;
        let says_no =
            |all: &[Value]| all[0]["status"]["conditions"].to_string().contains("DisksNotLiveMigratable");
        sim.until(GUESTS, says_no).await;
        let before = sim.get(MACHINES, "shop", "worker").unwrap()["metadata"]["uid"].clone();
        let mut attempt = Attempt::by(&cluster, by(policy));
        if policy == MachinePolicy::MigrateOrHold {
            attempt.until(|it| !it.blockers.is_empty()).await;
            assert_eq!(launchers_on_n1(&sim), 1);
        } else {
            let left = attempt.left().await;
            assert!(
                left[0].contains("it belongs to KubevirtMachine/worker, which may start it before"),
                "{left:?}"
            );
            // It does: that is left as it is, and the mark goes.
            sim.edit(MACHINES, "shop", "worker", |it| it["spec"]["runStrategy"] = "Always".into());
            sim.until(GUESTS, |all| all.len() == 1 && all.iter().all(runs)).await;
            assert_eq!(kubenodeop::machines::undo::start_again(&cluster, |_| true).await.unwrap(), 0);
        }
        let after = sim.get(MACHINES, "shop", "worker").unwrap();
        assert_eq!(after["metadata"]["uid"], before);
        assert!(policy == MachinePolicy::MigrateOrHold || after["spec"]["runStrategy"] == "Always");
        let deleted: Vec<_> =
            sim.faults().requests().into_iter().filter(|it| it.method == "DELETE").collect();
        assert!(deleted.is_empty(), "{deleted:?}");
    }
}
