//! The way back of a node that was declared dead: our taint and our cordon.

use super::*;

const OURS: &str = "pillar-rs-3";
const AWAY: &str = "node.kubernetes.io/unreachable";

/// The node after its boot `dead` was declared dead, with the taint of this value, one of its outage and one of somebody.
async fn tainted(value: &str, dead: Option<&str>) -> Stage {
    let stage = Stage::new().await;
    stage.sim.edit("nodes", "", "n1", |node| {
        node["spec"]["taints"] = json!([
            { "key": "disk", "effect": "NoExecute" },
            { "key": "node.kubernetes.io/out-of-service", "value": value, "effect": "NoExecute" },
            { "key": AWAY, "effect": "NoSchedule" },
        ]);
        if let Some(dead) = dead {
            node["metadata"]["annotations"]["pillar-rs/dead-boot"] = dead.into();
        }
    });
    stage
}

impl Stage {
    fn node(&self) -> Value {
        self.sim.get("nodes", "", "n1").unwrap()
    }

    /// Our cordon: the boot and the entry that it is of; whether the node is cordoned.
    fn cordon(&self) -> (bool, Option<(String, String)>) {
        let node = self.node();
        let owner = node["metadata"]["annotations"]["pillar-rs/cordon-owner"].as_str().map(|text| {
            let owner = kubenodeop::CordonAnnotation::parse(text).unwrap();
            (owner.boot_id, owner.requested_at)
        });
        (node["spec"]["unschedulable"] == true, owner)
    }

    fn patches(&self) -> usize {
        self.sim.faults().count("PATCH", "/nodes/n1")
    }

    /// Its taints but that of its cordon.
    fn kept(&self) -> Vec<String> {
        self.taints().into_iter().filter(|it| !it.contains("/unschedulable:")).collect()
    }

    fn is_out_of_service(&self) -> bool {
        self.kept().iter().any(|it| it.contains("out-of-service"))
    }

    async fn repaired(&mut self, count: usize) {
        self.until("repaired", |it| it.repairs.len() == count).await;
    }

    /// The volume `pv-1` is attached on these nodes.
    fn attach(&self, nodes: &[&str]) {
        for node in nodes {
            let name = format!("a-{node}");
            self.sim.apply(
                "storage/volumeattachments",
                json!({
                    "metadata": { "name": name },
                    "spec": { "attacher": "x", "nodeName": node, "source": { "persistentVolumeName": "pv-1" } },
                    "status": { "attached": true },
                }),
            );
        }
    }
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test's own clock, which is paused")]
async fn f7_our_taint_of_a_boot_that_was_declared_dead_becomes_our_cordon_in_another_boot_in_one_patch() {
    let mut stage = tainted(OURS, Some("b1")).await;
    // Attached here or elsewhere, each another one, is as it should be.
    stage.attach(&["n1"]);
    stage.sim.edit("storage/volumeattachments", "", "a-n1", |it| {
        it["spec"]["source"]["persistentVolumeName"] = "pv-2".into();
    });
    stage.attach(&["n2"]);
    let began = Instant::now();
    stage.repaired(2).await;
    let passed = began.elapsed();
    assert!(passed >= Duration::from_mins(1) && passed < Duration::from_mins(2), "{passed:?}");
    assert_eq!(stage.kept(), ["disk:NoExecute"]);
    assert_eq!(stage.cordon(), (true, Some(("b1".to_owned(), OURS.to_owned()))));
    assert_eq!(stage.node()["metadata"]["annotations"]["pillar-rs/dead-boot"], Value::Null);
    assert_eq!(stage.patches(), 1);
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(stage.patches(), 1, "that is all");
}

#[tokio::test(start_paused = true)]
async fn f7_no_out_of_service_taint_goes_in_the_boot_that_was_declared_dead_or_that_is_not_ours() {
    for (what, value, dead, kept) in [
        ("of this boot", OURS, Some("b2"), Some("b2")),
        ("boot not known", OURS, None, None),
        ("boot empty", OURS, Some(""), Some("")),
        ("somebody else's", "reboot", Some("b1"), None),
    ] {
        let mut stage = tainted(value, dead).await;
        stage.repaired(1 + usize::from(dead != kept)).await;
        tokio::time::sleep(Duration::from_mins(20)).await;
        assert_eq!(stage.kept().len(), 2, "{what}");
        assert!(stage.is_out_of_service(), "{what}");
        assert_eq!((stage.cordon(), stage.patches()), ((false, None), 1), "{what}");
        let mark = &stage.node()["metadata"]["annotations"]["pillar-rs/dead-boot"];
        assert_eq!(mark.as_str(), kept, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn f7_our_taint_stays_while_a_volume_of_the_node_is_attached_elsewhere_too() {
    let mut stage = tainted(OURS, Some("b1")).await;
    stage.attach(&["n1", "n2"]);
    stage.repaired(1).await;
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert!(stage.is_out_of_service());
    assert_eq!((stage.cordon(), stage.patches()), ((false, None), 1));
    stage.sim.edit("storage/volumeattachments", "", "a-n1", |it| it["spec"]["nodeName"] = "n3".into());
    stage.repaired(2).await;
    assert_eq!(stage.kept(), ["disk:NoExecute"]);
    assert_eq!((stage.cordon().0, stage.patches()), (true, 2));
}

#[tokio::test(start_paused = true)]
async fn f7_a_cordon_of_somebody_stays_his_one_of_ours_becomes_that_of_the_dead_boot_and_one_that_stays_is_nobodys()
 {
    let before = json!({ "bootId": "b0", "requestedBy": 2, "requestedAt": "t" }).to_string();
    let (ours, stays) = (Some(("b1".to_owned(), OURS.to_owned())), "pillar-rs-3-stays");
    // Our taint, whether the node is cordoned, with our mark; whose cordon that is then.
    for (value, cordoned, mark, expected) in [
        (OURS, true, None, None),
        (OURS, true, Some(&before), ours),
        (stays, false, None, None),
        (stays, false, Some(&before), None),
    ] {
        let mut stage = tainted(value, Some("b1")).await;
        stage.sim.edit("nodes", "", "n1", |node| {
            node["spec"]["unschedulable"] = cordoned.into();
            if let Some(mark) = mark {
                node["metadata"]["annotations"]["pillar-rs/cordon-owner"] = mark.clone().into();
            }
        });
        stage.repaired(2).await;
        assert_eq!(stage.cordon(), (true, expected), "{value} {cordoned} {mark:?}");
        assert_eq!(
            (stage.kept(), stage.patches()),
            (vec!["disk:NoExecute".to_owned()], 1),
            "{value} {mark:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn f7_what_is_left_where_a_person_removed_our_taint_goes_in_another_boot() {
    for (boot, expected) in [("b1", Value::Null), ("b2", json!("b2"))] {
        let mut stage = tainted(OURS, Some(boot)).await;
        stage.sim.edit("nodes", "", "n1", |node| {
            node["spec"]["taints"] = json!([{ "key": "disk", "effect": "NoExecute" }]);
        });
        if expected.is_null() {
            stage.repaired(1).await;
        }
        tokio::time::sleep(Duration::from_mins(20)).await;
        assert_eq!(stage.node()["metadata"]["annotations"]["pillar-rs/dead-boot"], expected);
        assert_eq!((stage.cordon(), stage.kept()), ((false, None), vec!["disk:NoExecute".to_owned()]));
    }
}

#[tokio::test(start_paused = true)]
async fn f7_a_lost_race_keeps_the_taint_until_the_next_try() {
    let mut stage = tainted(OURS, Some("b1")).await;
    stage.sim.faults().script("PATCH", "/nodes/n1", 1, ScriptedFault::status(409, "Conflict"));
    stage.repaired(2).await;
    assert_eq!((stage.cordon().0, stage.patches()), (true, 2));
}
