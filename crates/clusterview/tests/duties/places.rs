//! Affinity of replica sets of machines.

use std::time::Duration;

use clusterview::apps::AppRequirements;
use clusterview::places;
use kubeapi::{NodeName, OwnNode};
use kubesim::ScriptedFault;
use serde_json::{Value, json};
use tokio::sync::watch;
use topics::Affinity;

use super::stage::{Stage, beside};

const SETS: &str = "kubevirt/virtualmachineinstancereplicasets";
const APPS: &str = "eve-kube-app";
const SET: &str = "ubuntu-b3e2f-0";

fn affinity(stage: &Stage) -> Value {
    stage.sim.get(SETS, APPS, SET).unwrap()["spec"]["template"]["spec"]["affinity"].clone()
}

fn here(name: &str) -> Value {
    let here = json!([{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"] }]);
    match name {
        "required" => json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
            { "nodeSelectorTerms": [{ "matchExpressions": here }] } } }),
        _ => json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution":
            [{ "weight": 100, "preference": { "matchExpressions": here } }] } }),
    }
}

#[tokio::test(start_paused = true)]
async fn the_affinity_of_a_machines_set_follows_its_designated_node_and_is_written_only_where_it_differs() {
    let stage = Stage::new();
    let sender = watch::Sender::default();
    let want = |how: Option<Affinity>| {
        let places = how.map(|it| (SET.to_owned(), it)).into_iter().collect();
        sender.send_replace(AppRequirements { places: Some(places), ..AppRequirements::default() });
    };
    let own_node = OwnNode::default();
    own_node.set(NodeName::parse("n1").unwrap(), "d".to_owned());
    let duty = places::run(stage.cluster(), stage.context.clock, own_node, sender.subscribe());
    beside(duty, async {
        stage.pass(Duration::from_hours(1)).await;
        want(None);
        stage.pass(Duration::from_hours(1)).await;
        assert_eq!(stage.requests("/"), (0, 0), "designated elsewhere");
        want(Some(Affinity::Preferred));
        stage.pass(Duration::from_mins(10)).await;
        stage.sim.add_machine_set(APPS, SET, 1);
        stage.until("preferred", |it| affinity(it) == here("preferred")).await;
        stage.pass(Duration::from_hours(1)).await;
        let patches = || stage.sim.faults().count("PATCH", SET);
        assert_eq!(patches(), 1, "equal is not written");
        stage.sim.faults().script("PATCH", SET, 1, ScriptedFault::status(409, "Conflict"));
        want(Some(Affinity::Required));
        stage.until("required", |it| affinity(it) == here("required")).await;
        // Somebody has written another one, with more in it.
        stage.sim.edit(SETS, APPS, SET, |it| {
            it["spec"]["template"]["spec"]["affinity"] = json!({ "podAffinity": { "a": [] }, "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [],
                "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [] },
            } });
        });
        stage.until("required again", |it| affinity(it) == here("required")).await;
        want(None);
        stage.pass(Duration::from_secs(1)).await;
        let before = patches();
        stage.sim.edit(SETS, APPS, SET, |it| it["spec"]["template"]["spec"]["affinity"] = json!({}));
        stage.pass(Duration::from_hours(1)).await;
        assert_eq!(patches(), before, "it is designated elsewhere by now");
        assert_eq!(affinity(&stage), json!({}));
    })
    .await;
}
