//! `zedbox failover declare` on the embedded cluster, on a paused clock: what it refuses, what it writes, what it says.

use clap::Parser as _;
use kubesim::{Sim, SimConfig};
use scenarios::Cluster;

use super::*;
use crate::args::{Args, Command};

const DEAD: &str = "edge-node-1";
const LABEL: &str = "pillar-rs/no-failover";
/// No agent is there: no node has an address, and where one has, this port is closed.
const PORT: u16 = 1;

/// A kubelet's lease and condition as a real cluster has them.
async fn site() -> (Cluster, Sim) {
    let config = SimConfig {
        renew_every: Duration::from_secs(10),
        not_ready_after: Duration::from_secs(50),
        unreachable_after: Duration::from_secs(50),
        ..SimConfig::default()
    };
    let cluster = Cluster::some_with(config, 3).await.remove(0);
    let sim = cluster.sim().clone();
    sim.edit("nodes", "", DEAD, |it| it["status"]["nodeInfo"]["bootID"] = "b1".into());
    sim.add_claim("shop", "data", "pv-data");
    sim.add_mounting_pod("shop", "alone", DEAD, "data");
    let runs = |it: &Value| it["metadata"]["name"] == "alone" && it["status"]["phase"] == "Running";
    sim.until("pods", |all| all.iter().any(runs)).await;
    let renews = |it: &Value| it["metadata"]["namespace"] == "kube-node-lease";
    sim.until("coordination/leases", |all| all.iter().filter(|it| renews(it)).count() == 3).await;
    (cluster, sim)
}

fn options(words: &[&str]) -> DeclareOptions {
    let line = ["zedbox", "failover", "declare", DEAD, "--powered-off", "--reason", "burnt"];
    let parsed = Args::try_parse_from(line.iter().chain(words)).unwrap().command;
    let Command::Failover(FailoverCommand { action: FailoverAction::Declare(options), .. }) = parsed else {
        unreachable!()
    };
    options
}

async fn typed(
    cluster: &Cluster,
    words: &[&str],
    answer: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Declared> {
    let (options, who) = (options(words), "operator anna on laptop".to_owned());
    let asked = |happens: String| {
        assert!(happens.contains("without asking it: this is pod shop/alone. If"), "{happens}");
        answer()
    };
    Box::pin(declare(&cluster.handle(), (Clock::new(), PORT), &options, who, asked)).await
}

/// What is against it.
async fn refused(cluster: &Cluster, words: &[&str]) -> Vec<String> {
    match typed(cluster, words, || Ok(())).await.unwrap() {
        Declared::Refused(rules) => rules,
        Declared::Done { text, .. } => unreachable!("{text}"),
    }
}

async fn until_ready_is(sim: &Sim, node: &str, wanted: &str) {
    let is = |it: &Value| {
        let conditions = it["status"]["conditions"].as_array().unwrap();
        it["metadata"]["name"] == node
            && conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == wanted)
    };
    sim.until("nodes", |all| all.iter().any(is)).await;
}

fn label(sim: &Sim, value: Value) {
    sim.edit("nodes", "", DEAD, |it| it["metadata"]["labels"][LABEL] = value);
}

fn written(sim: &Sim) -> Vec<String> {
    let all = sim.faults().requests().into_iter().filter(|it| it.method != "GET");
    all.map(|it| format!("{} {}", it.method, it.uri.split('?').next().unwrap())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_node_that_shows_life_or_that_a_rule_holds_is_not_declared_and_nothing_is_written() {
    let (cluster, sim) = site().await;
    let before = written(&sim);
    let is = |found: Vec<String>, wanted: &[&str]| {
        assert_eq!(found.len(), wanted.len(), "{found:?}");
        for (found, wanted) in found.iter().zip(wanted) {
            assert!(found.contains(wanted), "no `{wanted}` in {found}");
        }
    };
    is(refused(&cluster, &[]).await, &["its kubelet renews its lease; wait a minute"]);
    sim.power(DEAD, false);
    until_ready_is(&sim, DEAD, "Unknown").await;
    // A machine that refuses the connection lives.
    let address = |of: Value| sim.edit("nodes", "", DEAD, |it| it["status"]["addresses"] = of);
    address(json!([{ "type": "InternalIP", "address": "127.0.0.1" }]));
    is(refused(&cluster, &[]).await, &["lives: it answers this machine"]);
    address(json!([]));
    sim.longhorn_setting("node-down-pod-deletion-policy", "delete-both-statefulset-and-deployment-pod");
    label(&sim, json!("true"));
    sim.power("edge-node-2", false);
    until_ready_is(&sim, "edge-node-2", "Unknown").await;
    is(
        refused(&cluster, &["--although-lone-copies"]).await,
        &[
            "`kubectl get nodes`, or go past it with --although-others-away",
            "`kubectl label node edge-node-1 pillar-rs/no-failover-` allows it",
            "is delete-both-statefulset-and-deployment-pod; switch that off",
        ],
    );
    // Each word passes its own rule alone; the label has none.
    let both = ["--although-others-away", "--although-others-act"];
    is(refused(&cluster, &both).await, &["has the label pillar-rs/no-failover=true"]);
    label(&sim, json!("false"));
    is(refused(&cluster, &both[..1]).await, &["or go past it with --although-others-act"]);
    // The API fails in between, and a person does not type the name.
    sim.faults().script("GET", "/api/v1/nodes", 1, kubesim::ScriptedFault::status(503, "ServiceUnavailable"));
    is(refused(&cluster, &both).await, &["the API failed while edge-node-1 was watched"]);
    let left = typed(&cluster, &both, || Err(anyhow!("not typed"))).await.unwrap_err();
    assert_eq!(left.to_string(), "not typed");
    assert_eq!(written(&sim), before);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_power_is_declared_dead_once_by_one_patch_and_who_why_and_what_was_passed_is_kept() {
    let (cluster, sim) = site().await;
    sim.longhorn_setting("node-down-pod-deletion-policy", "delete-statefulset-pod");
    sim.power(DEAD, false);
    until_ready_is(&sim, DEAD, "Unknown").await;
    let before = written(&sim).len();
    let Declared::Done { form, text } = typed(&cluster, &["--although-others-act"], || Ok(())).await.unwrap()
    else {
        unreachable!("refused")
    };
    assert_eq!(form, json!({ "Result": "tainted", "Node": DEAD, "Number": 1 }));
    assert!(text.contains("is declared dead (number 1)") && text.contains("Leave edge-node-1 off"), "{text}");
    let leases = "/apis/coordination.k8s.io/v1/namespaces/eve-kube-app/leases";
    let lease = format!("PUT {leases}/pillar-rs-outage");
    assert_eq!(
        written(&sim)[before..],
        [format!("POST {leases}"), format!("PATCH /api/v1/nodes/{DEAD}"), lease]
    );
    let node = sim.get("nodes", "", DEAD).unwrap();
    let taints = node["spec"]["taints"].as_array().unwrap();
    let ours =
        json!({ "key": "node.kubernetes.io/out-of-service", "value": "pillar-rs-1", "effect": "NoExecute" });
    assert!(taints.contains(&ours) && taints.len() > 1, "those of others stay: {taints:?}");
    let record = calls::read(&cluster.handle()).await.unwrap().unwrap().record;
    let entry = record::open(&record).remove(0);
    assert_eq!((entry.who.as_str(), entry.why.as_str()), ("operator anna on laptop", "burnt"));
    assert_eq!(
        (&entry.state, entry.passed.as_slice()),
        (&FailoverState::Tainted, &["--although-others-act".to_owned()][..])
    );
    assert!(
        entry.evidence.starts_with("its kubelet has renewed no lease for 40 s, it is not Ready"),
        "{entry:?}"
    );
    assert_eq!(entry.work.iter().map(ToString::to_string).collect::<Vec<_>>(), ["pod shop/alone"]);
    // The second word comes to nothing, at once.
    let clock = Clock::new();
    let start = clock.now();
    let again = typed(&cluster, &["--although-others-act"], || Ok(())).await.unwrap_err().to_string();
    assert!(
        again.contains("is declared dead already") && again.contains("zedbox failover status"),
        "{again}"
    );
    assert!(clock.now().since(start) < LOOK);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_while_its_name_is_typed_keeps_its_work_and_a_patch_that_fails_leaves_the_word()
 {
    let (cluster, sim) = site().await;
    sim.power(DEAD, false);
    until_ready_is(&sim, DEAD, "Unknown").await;
    let ready = |status: &str| {
        sim.edit("nodes", "", DEAD, |it| {
            let conditions = it["status"]["conditions"].as_array_mut().unwrap();
            conditions.iter_mut().find(|it| it["type"] == "Ready").unwrap()["status"] = status.into();
        });
        Ok(())
    };
    let back = typed(&cluster, &[], || ready("True")).await.unwrap_err().to_string();
    assert!(back.contains("shows life: nothing was done, and your word is withdrawn"), "{back}");
    ready("Unknown").unwrap();
    sim.faults().script("PATCH", "/nodes", 1, kubesim::ScriptedFault::status(503, "ServiceUnavailable"));
    let failed = format!("{:#}", typed(&cluster, &[], || Ok(())).await.unwrap_err());
    assert!(failed.contains("your word is recorded (number 2), a server does it"), "{failed}");
    let record = calls::read(&cluster.handle()).await.unwrap().unwrap().record;
    let states: Vec<_> = record.failovers.into_iter().map(|it| it.state).collect();
    assert_eq!(states, [FailoverState::Withdrawn, FailoverState::Declared]);
    assert!(!sim.get("nodes", "", DEAD).unwrap()["spec"]["taints"].to_string().contains("out-of-service"));
}
