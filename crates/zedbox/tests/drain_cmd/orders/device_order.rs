//! `zedbox reboot` and `zedbox shutdown`: what is written, what is refused, and how waiting ends.

use agent::wire;
use pubsub::{Publication, TopicRoot};
use serde_json::json;
use topics::{DEVICE_ORDER, DeviceOp, DeviceOpPending, FORCE_FILE, PendingState};

use crate::drain_cmd::node::{Ended, Node, holds};
use crate::drain_cmd::place::Place;

const BOOT: &str = "5d1c1b7e-0f0f-4a51-9d3c-7f6a2b1c0d01";

/// A node whose zedagent runs, in boot `BOOT`, and what it says of operations.
fn tended(tree: &str) -> (Node, Publication<DeviceOpPending>) {
    let node = Node::of(tree).with_zedkube();
    let pending = zedagent(&node);
    (node, pending)
}

fn zedagent(node: &Node) -> Publication<DeviceOpPending> {
    node.put("run/force-NodeDrainStatus-boot", BOOT);
    let topic_root = TopicRoot::open(node.root()).unwrap();
    let name = wire::name::<DeviceOpPending>("zedagent");
    topic_root.publication(name, wire::codec::<DeviceOpPending>()).unwrap()
}

fn says(zedagent: &mut Publication<DeviceOpPending>, op: DeviceOp, state: PendingState, skip: &str) {
    let skip_kind =
        if skip.starts_with("forced") { topics::SkipKind::Forced } else { topics::SkipKind::Other };
    let skip = skip.to_owned();
    let site = "operator field: disk".to_owned();
    let pending = DeviceOpPending { op, state, skip, skip_kind, site, ..DeviceOpPending::default() };
    zedagent.publish(op.word(), &pending).unwrap();
}

#[test]
fn x3_an_order_names_who_gives_it_why_and_for_which_boot_and_is_withdrawn() {
    let (node, mut zedagent) = tended("cluster-idle");
    assert_eq!(node.drain("reboot --reason disk -o json").ends(0).json()["Result"], "ordered");
    let kept = serde_json::from_str(&node.text(DEVICE_ORDER)).unwrap();
    holds(&kept, &json!({ "Op": "reboot", "BootID": BOOT, "Reason": "disk" }));
    // A second one is refused with the first one's words, and only its own command withdraws it.
    node.drain("shutdown --reason power").ends(1).warns(&[": disk ordered a reboot before"]);
    node.drain("shutdown --cancel").ends(1).warns(&["ordered a reboot, no shutdown"]);
    node.drain("reboot --cancel").ends(0);
    assert!(!node.path(DEVICE_ORDER).exists());
    node.drain("reboot --cancel").ends(1);
    // One of an earlier boot is in nobody's way.
    node.put(DEVICE_ORDER, &kept.to_string().replace(BOOT, "b0"));
    node.drain("reboot --reason disk").ends(0);
    // Once it is commanded it is called off, or it is said that it was not.
    says(&mut zedagent, DeviceOp::Reboot, PendingState::Commanded, "");
    node.drain("reboot --cancel").ends(0).begins("Too late: the reboot was commanded before");
    node.drain("reboot --reason disk").ends(0);
    let calls_off = node.command("reboot --cancel").stdout(std::process::Stdio::piped()).spawn().unwrap();
    while node.path(DEVICE_ORDER).exists() {
        std::thread::yield_now();
    }
    zedagent.unpublish("reboot").unwrap();
    Ended::from(calls_off.wait_with_output().unwrap()).ends(0).begins("Withdrew your order");
}

#[test]
fn x3_nothing_is_ordered_of_a_zedagent_that_does_not_run_or_through_a_link() {
    let node = Node::of("cluster-idle").with_zedkube();
    node.put("run/force-NodeDrainStatus-boot", BOOT);
    node.put("persist/status/zedagent/DeviceOpPending.lock", "");
    node.drain("reboot --reason disk").ends(1).warns(&["zedagent does not run"]);
    assert!(!node.path(DEVICE_ORDER).exists());
    let (node, _zedagent) = tended("cluster-idle");
    std::os::unix::fs::symlink("/tmp", node.path("run/zedbox")).unwrap();
    node.drain("reboot --reason disk").ends(1).warns(&["is a link"]);
    for wrong in
        ["", "--wait", "--reason x --timeout 5m", "--reason x --wait --timeout soon", "--cancel --wait"]
    {
        node.drain(&format!("reboot {wrong}")).ends(2);
    }
}

#[test]
fn x3_waiting_ends_with_the_machine_and_says_whether_the_node_is_drained() {
    let ways = [
        ("", 0, "complete: the machine reboots now"),
        ("zedkube has said nothing", 7, "NOT DRAINED: zedkube has said nothing; the machine reboots now"),
        ("forced COMPLETE", 9, "NOT DRAINED: forced COMPLETE"),
    ];
    for (skip, code, words) in ways {
        let (node, mut zedagent) = tended("cluster-idle");
        let mut program = node.start("reboot --reason disk --wait");
        program.until("Ordered a reboot");
        says(&mut zedagent, DeviceOp::Reboot, PendingState::Pending, "");
        says(&mut zedagent, DeviceOp::Reboot, PendingState::Commanded, skip);
        program.until(words);
        assert_eq!(program.end(), code, "{skip}");
    }
}

#[test]
fn x3_at_the_end_of_its_time_a_blocked_order_stays_is_withdrawn_or_forced() {
    let tree = "drain-7-retrying";
    for (words, stays) in [("", true), (" --if-blocked fail", false)] {
        let (node, _zedagent) = tended(tree);
        node.drain(&format!("reboot --reason disk --wait --timeout 0{words}")).ends(4);
        assert_eq!(node.path(DEVICE_ORDER).exists(), stays, "{words}");
    }
    for words in ["--reason ups --wait --timeout 0 --if-blocked force", "--reason ups --within 0m"] {
        let (node, mut zedagent) = tended(tree);
        let mut program = node.start(&format!("shutdown {words}"));
        program.until("timeout");
        let topic_root = TopicRoot::open(node.root()).unwrap();
        let rule = pubsub::FileRule { limit_bytes: 4096, order: true };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut file = topic_root.file(topic_root.path(FORCE_FILE), rule);
            while !matches!(file.next().await, pubsub::FileState::Present(_)) {}
        });
        assert!(node.text(FORCE_FILE).contains("ups"), "{words}");
        says(&mut zedagent, DeviceOp::Shutdown, PendingState::Commanded, "forced COMPLETE by a file");
        program.until("NOT DRAINED: forced COMPLETE");
        assert_eq!(program.end(), 9, "{words}");
        // What was forced for it is withdrawn with it.
        node.drain("shutdown --cancel").ends(0);
        assert!(!node.path(FORCE_FILE).exists(), "another operation would go by it");
    }
}

#[test]
fn a_node_of_a_cluster_that_its_device_config_does_not_name_is_not_taken_down_without_a_word() {
    let place = Place::without_cluster_section(1, |sim| {
        sim.add_node("edge-node-1", "11111111-1111-4111-8111-111111111111");
        sim.add_stateful_set("shop", "web", 1);
    });
    let node = &place.node;
    let mut pending = zedagent(node);
    node.drain("reboot --reason disk").ends(1).warns(&[
        "nothing would be drained",
        "edge-dev-config.json names no cluster",
        "as node edge-node-1",
        "--undrained",
    ]);
    assert!(!node.path(DEVICE_ORDER).exists());
    let mut program = node.start("reboot --reason disk --undrained --wait");
    program.until("nothing is drained, the machine reboots");
    says(&mut pending, DeviceOp::Reboot, PendingState::Commanded, "");
    program.until("NOT DRAINED: the device config names no cluster; the machine reboots now");
    assert_eq!(program.end(), 7);

    // An API that does not answer is no reason to believe that nothing runs here.
    let (node, _zedagent) = tended("single-node");
    node.put("run/.kube/k3s/k3s.yaml", "no kubeconfig");
    node.drain("reboot --reason disk").ends(1).warns(&["is not known: "]);

    // Nor is it that no kubeconfig was found; on an image that was built without Kubernetes the device config counts.
    let (node, _zedagent) = tended("single-node");
    let unknown = ["is not known: there is no kubeconfig", "--kubeconfig FILE", "--undrained"];
    node.drain("reboot --reason disk").ends(1).warns(&unknown);
    assert!(!node.path(DEVICE_ORDER).exists());
    node.put("run/eve-hv-type", "kvm");
    node.drain("reboot --reason disk").ends(0).warns(&["the device config names no cluster"]);
}

#[test]
fn t11_a_cluster_that_only_the_settings_file_names_keeps_a_reboot_without_a_drain_back() {
    let place = Place::without_cluster_section(0, |sim| {
        sim.add_node("edge-node-1", "11111111-1111-4111-8111-111111111111");
    })
    .by_settings_file();
    let node = &place.node;
    let _zedagent = zedagent(node);
    node.drain("reboot --reason disk").ends(1).warns(&["as node edge-node-1"]);
    // One that no agent starts with does not say that there is no cluster.
    node.put("etc/zedbox/zedbox.toml", "kubeconfig = 5");
    node.drain("reboot --reason disk").ends(1).warns(&["--kubeconfig FILE: the settings file"]);
    assert!(!node.path(DEVICE_ORDER).exists());
}
