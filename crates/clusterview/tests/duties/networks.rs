//! Network attachments of native applications on nodes of one cluster.

use std::time::Duration;

use clusterview::apps::AppRequirements;
use clusterview::networks;
use kubeapi::{NodeName, OwnNode};
use kubesim::ScriptedFault;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::stage::{Stage, beside};

const KIND: &str = "k8s/network-attachment-definitions";
const APPS: &str = "eve-kube-app";
const PATH: &str = "network-attachment-definitions";

fn own_node(node: &str) -> OwnNode {
    let own_node = OwnNode::default();
    own_node.set(NodeName::parse(node).unwrap(), format!("device-of-{node}"));
    own_node
}

fn want(sender: &watch::Sender<AppRequirements>, ports: &[&str]) {
    let ports = ports.iter().map(|it| (*it).to_owned()).collect();
    sender.send_replace(AppRequirements { ports: Some(ports), ..AppRequirements::default() });
}

fn config(stage: &Stage, port: &str) -> Option<String> {
    let object = stage.sim.get(KIND, APPS, &format!("host-{port}"))?;
    Some(object["spec"]["config"].as_str().unwrap().to_owned())
}

fn writes(stage: &Stage) -> usize {
    ["POST", "PATCH", "DELETE"].iter().map(|it| stage.sim.faults().count(it, PATH)).sum()
}

fn text(port: &str) -> String {
    format!(r#"{{"cniVersion":"0.3.1","plugins":[{{"type":"host-device","device":"{port}"}}]}}"#)
}

#[tokio::test(start_paused = true)]
async fn e8_each_port_has_its_attachment_and_repeating_it_changes_nothing() {
    let stage = Stage::new();
    let sender = watch::Sender::default();
    let duty = networks::run(stage.cluster(), stage.context.clock, own_node("n1"), sender.subscribe());
    beside(duty, async {
        stage.pass(Duration::from_hours(1)).await;
        want(&sender, &[]);
        stage.pass(Duration::from_hours(1)).await;
        assert_eq!(stage.requests("/"), (0, 0), "no application, no question");
        want(&sender, &["eth1", "eth2", "Eth_3", "../pods"]);
        stage.until("both", |it| config(it, "eth2") == Some(text("eth2"))).await;
        assert_eq!(config(&stage, "eth1"), Some(text("eth1")));
        let before = stage.requests(PATH).0;
        stage.pass(Duration::from_hours(2)).await;
        assert_eq!(stage.requests(PATH).0 - before, 24, "each of two every 10 min, whatever a bad name says");
        assert_eq!(stage.requests("labelSelector").0, 1, "listed only when the interfaces change");
        assert_eq!(
            (stage.sim.list(KIND).len(), writes(&stage)),
            (2, 2),
            "names are checked, and equal is not written"
        );
        assert_eq!(stage.lines.text().matches("names no interface").count(), 2, "{}", stage.lines.text());
        // Drift, and a failure in between (D-V9: none is remembered as made).
        stage.sim.faults().script("PATCH", PATH, 1, ScriptedFault::status(503, "ServiceUnavailable"));
        stage.sim.edit(KIND, APPS, "host-eth1", |it| it["spec"]["config"] = "{}".into());
        stage.until("it again", |it| config(it, "eth1") == Some(text("eth1"))).await;
        assert!(stage.sim.remove(KIND, APPS, "host-eth2"));
        stage.until("it made again", |it| config(it, "eth2").is_some()).await;
        // D-V8: an adapter that a config dropped.
        // A race with another node is tried again.
        stage.sim.faults().script("DELETE", PATH, 1, ScriptedFault::status(409, "Conflict"));
        want(&sender, &["eth1"]);
        stage.until("it gone", |it| config(it, "eth2").is_none()).await;
        want(&sender, &[]);
        stage.until("both gone", |it| it.sim.list(KIND).is_empty()).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_attachments_is_asked_less_and_less_and_served_once_they_are_known() {
    let stage = Stage::new();
    for verb in ["GET", "POST"] {
        stage.sim.faults().script(verb, PATH, u32::MAX, ScriptedFault::status(404, "NotFound"));
    }
    let sender = watch::Sender::default();
    let duty = networks::run(stage.cluster(), stage.context.clock, own_node("n1"), sender.subscribe());
    beside(duty, async {
        want(&sender, &["eth1"]);
        stage.pass(Duration::from_hours(1)).await;
        let asked = stage.requests(PATH).0;
        // A GET and a POST every 60 to 120 s, a few more at first, and one list.
        assert!((60..=130).contains(&asked), "{asked}");
        stage.sim.faults().clear();
        let late = stage.until("it", |it| config(it, "eth1").is_some()).await;
        assert!(late <= Duration::from_secs(121), "{late:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn e8_d_v7_an_attachment_is_not_taken_from_another_node_or_another_maker() {
    let stage = Stage::new();
    let object = |name: &str, config: Value| {
        json!({ "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": { "name": name, "namespace": APPS }, "spec": { "config": config.to_string() } })
    };
    // Made by somebody else: one in other spacing, one with other content.
    let same = json!({ "plugins": [{ "device": "eth7", "type": "host-device" }], "cniVersion": "0.3.1" });
    stage.sim.apply(KIND, object("host-eth7", same.clone()));
    stage.sim.apply(KIND, object("host-eth8", json!({ "type": "macvlan" })));
    let senders = [watch::Sender::default(), watch::Sender::default()];
    let run = |node: &'static str, nth: usize| {
        networks::run(stage.cluster(), stage.context.clock, own_node(node), senders[nth].subscribe())
    };
    let both = async { tokio::join!(run("n1", 0), run("n2", 1)) };
    beside(both, async {
        want(&senders[0], &["eth1", "eth7", "eth8"]);
        want(&senders[1], &["eth1"]);
        let notes = |it: &Stage| {
            let object = it.sim.get(KIND, APPS, "host-eth1");
            object.map_or(0, |it| it["metadata"]["annotations"].as_object().unwrap().len())
        };
        stage.until("the notes of both", |it| notes(it) == 2).await;
        assert_eq!(
            writes(&stage),
            2 + stage.sim.faults().count("POST", PATH) - 1,
            "one makes it, one adds its note"
        );
        want(&senders[0], &[]);
        stage.until("one note", |it| notes(it) == 1).await;
        stage.pass(Duration::from_hours(1)).await;
        assert_eq!(config(&stage, "eth1"), Some(text("eth1")), "the other node needs it");
        assert_eq!(stage.sim.faults().count("DELETE", PATH), 0, "nor was it deleted in between");
        want(&senders[1], &["eth2"]);
        stage.until("it gone", |it| config(it, "eth1").is_none()).await;
        assert_eq!(config(&stage, "eth7"), Some(same.to_string()));
        assert_eq!(config(&stage, "eth8"), Some(json!({ "type": "macvlan" }).to_string()));
        let log = stage.lines.text();
        assert_eq!(log.matches("host-eth8 is left as it is: somebody else made it").count(), 1, "{log}");
    })
    .await;
}
