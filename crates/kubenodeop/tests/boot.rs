//! The gate after a boot against a cluster with kubelets, on a paused clock: R4 and R5 through the API.

use std::time::Duration;

use futures::FutureExt as _;
use kube::Client;
use kubeapi::ApiClient;
use kubenodeop::node::CordonSeen;
use kubenodeop::node::boot::{GateReport, LocalHealth, NodeAtRest, until_tainted, watch_over};
use kubenodeop::node::gate::{Check, GateFact, Layer, LayerLimits};
use kubesim::{ScriptedFault, Sim, SimConfig};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::stage::{boot, clock};

mod failover;
mod upper;

const PATIENCE: Duration = Duration::from_mins(30);

/// One node with pods, watched over.
struct Stage {
    sim: Sim,
    report: watch::Receiver<GateReport>,
    local: watch::Sender<LocalHealth>,
    upper: watch::Sender<[GateFact; 2]>,
    members: watch::Sender<String>,
    _watch: JoinSet<()>,
}

/// Nothing is wrong with the runtime, nor with any probe.
fn well() -> [GateFact; 2] {
    [Check::Runtime, Check::Probes].map(|it| GateFact::Found(it, Vec::new()))
}

impl Stage {
    async fn new() -> Self {
        let sim = Sim::new(SimConfig { stale_taints: true, ..SimConfig::default() });
        sim.add_node("n1", "u1");
        sim.add_bare_pod("longhorn-system", "longhorn-manager", "n1");
        sim.add_bare_pod("shop", "web", "n1");
        sim.until("pods", |pods| pods.iter().all(|pod| pod["status"]["phase"] == "Running")).await;
        Self::on(sim)
    }

    fn on(sim: Sim) -> Self {
        let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
        let boot = boot("u1");
        let (sender, report) = watch::channel(GateReport::default());
        let (local, shown) = watch::channel(LocalHealth::default());
        let (members, waits) = watch::channel(String::new());
        let (upper, answers) = watch::channel(well());
        let mut watching = JoinSet::new();
        watching.spawn(async move {
            let local = || shown.borrow().clone();
            watch_over(
                &cluster,
                &boot,
                local,
                || std::future::ready(answers.borrow().to_vec()).boxed(),
                || std::future::ready(waits.borrow().clone()),
                clock(),
                &sender,
            )
            .await;
        });
        Self { sim, report, local, upper, members, _watch: watching }
    }

    async fn until(&mut self, what: &str, wanted: impl FnMut(&GateReport) -> bool) -> GateReport {
        if let Ok(found) = tokio::time::timeout(PATIENCE, self.report.wait_for(wanted)).await {
            return found.unwrap().clone();
        }
        panic!("never {what}: {:?}", self.report.borrow());
    }

    async fn open(&mut self) {
        self.until("open", |it| it.verdict.as_ref().is_some_and(kubenodeop::node::gate::GateStatus::is_open))
            .await;
    }

    async fn shut(&mut self, layer: Layer) -> GateReport {
        let at = |it: &GateReport| it.verdict.as_ref().is_some_and(|it| it.layer == Some(layer));
        self.until(layer.text(), at).await
    }

    fn taint(&self, keys: &[(&str, &str)]) {
        let taints: Vec<Value> =
            keys.iter().map(|(key, effect)| json!({ "key": key, "effect": effect })).collect();
        self.sim.edit("nodes", "", "n1", |node| node["spec"]["taints"] = taints.into());
    }

    fn taints(&self) -> Vec<String> {
        let node = self.sim.get("nodes", "", "n1").unwrap();
        let all = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let text = |it: &Value| format!("{}:{}", it["key"].as_str().unwrap(), it["effect"].as_str().unwrap());
        all.iter().map(text).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn r4_each_layer_failing_in_turn_is_reported_failed_in_the_end_and_got_over() {
    let mut stage = Stage::new().await;
    stage.open().await;
    let failed = |layer: Layer| {
        move |it: &GateReport| {
            it.verdict.as_ref().is_some_and(|it| it.layer == Some(layer) && it.shown.failed)
        }
    };

    let devices = checks::nodes::devices(|_| false);
    stage.local.send_replace(LocalHealth { devices, ..LocalHealth::default() });
    let seen = stage.shut(Layer::Devices).await.verdict.unwrap();
    assert!(seen.shown.words.contains("/dev/kmsg"), "{seen:?}");
    stage.until("failed", failed(Layer::Devices)).await;
    stage.local.send_replace(LocalHealth::default());
    stage.open().await;

    let forbidden = ScriptedFault::status(403, "Forbidden");
    for (path, layer, answer) in
        [("/", Layer::Service, ScriptedFault::Cut), ("/leases", Layer::Lease, forbidden)]
    {
        stage.sim.faults().script("GET", path, 100_000, answer);
        stage.sim.expire_watches();
        stage.shut(layer).await;
        stage.until("failed", failed(layer)).await;
        stage.sim.faults().clear();
        stage.open().await;
    }

    stage.sim.crash_loop("shop", "web", true);
    stage.sim.crash_loop("longhorn-system", "longhorn-manager", true);
    let seen = stage.shut(Layer::Storage).await.verdict.unwrap();
    assert!(seen.shown.words.contains("longhorn-system/longhorn-manager"), "{seen:?}");
    assert!(!seen.shown.words.contains("shop"), "{seen:?}");
    stage.until("failed", failed(Layer::Storage)).await;
    stage.sim.crash_loop("longhorn-system", "longhorn-manager", false);
    stage.open().await;

    stage.sim.power("n1", false);
    stage.shut(Layer::Node).await;
    stage.until("failed", failed(Layer::Node)).await;
    stage.sim.power("n1", true);
    stage.open().await;
}

#[tokio::test(start_paused = true)]
async fn r4_an_api_that_waits_for_other_members_of_etcd_is_said_so_and_is_no_failure() {
    let mut stage = Stage::new().await;
    stage.open().await;
    stage.members.send_replace("1 of 3 members of etcd are here, 2 are required".to_owned());
    stage.sim.faults().script("GET", "/", 100_000, ScriptedFault::Cut);
    stage.sim.expire_watches();
    let about = |words: &'static str, failed: bool| {
        move |it: &GateReport| {
            it.verdict.as_ref().is_some_and(|it| it.shown.words.contains(words) && it.shown.failed == failed)
        }
    };
    stage.until("named", about("waits: 1 of 3 members of etcd", false)).await;
    tokio::time::advance(LayerLimits::default().of(Layer::Service).unwrap() * 2).await;
    stage.members.send_replace("2 of 3 members of etcd are here, 2 are required".to_owned());
    stage.until("named again", about("waits: 2 of 3 members of etcd", false)).await;
    // Its members are there, and it does not answer all the same.
    stage.members.send_replace(String::new());
    stage.until("failed", about("the Kubernetes API: ", true)).await;
    stage.sim.faults().clear();
    stage.open().await;
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test's own clock, which is paused")]
async fn r4_what_no_event_tells_is_read_within_two_minutes() {
    let mut stage = Stage::new().await;
    stage.open().await;
    // One watch is refused as it continues, and let through afterwards: of pods that do not change nothing is heard.
    stage.sim.faults().script("GET", "/api/v1/pods", 1, ScriptedFault::status(429, "TooManyRequests"));
    let seen = stage.shut(Layer::Storage).await.verdict.unwrap();
    assert!(seen.shown.words.contains("429"), "{seen:?}");
    let began = Instant::now();
    stage.open().await;
    assert!(began.elapsed() <= Duration::from_secs(130), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn r4_with_the_api_away_one_thing_is_said_and_not_each_call_another() {
    let mut stage = Stage::new().await;
    stage.open().await;
    stage.sim.faults().script("GET", "/", u32::MAX, ScriptedFault::Cut);
    stage.sim.expire_watches();
    stage.shut(Layer::Service).await;
    let mut said = Vec::new();
    let hour = tokio::time::sleep(Duration::from_hours(1));
    tokio::pin!(hour);
    loop {
        tokio::select! {
            changed = stage.report.changed() => changed.unwrap(),
            () = &mut hour => break,
        }
        said.push(stage.report.borrow_and_update().verdict.clone().unwrap());
    }
    // The words of a look instead of those of a watch; that the limit is over.
    assert!(said.len() <= 3 && said.iter().any(|it| it.shown.failed), "{said:#?}");
    stage.sim.faults().clear();
    stage.open().await;
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test's own clock, which is paused")]
async fn r5_both_effects_of_stale_taints_go_after_60_s_of_renewals_and_are_counted_others_stay() {
    let mut stage = Stage::new().await;
    let (away, ill) = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready");
    let others = [
        ("disk", "NoExecute"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        (away, "PreferNoSchedule"),
    ];
    let of_outage = [(away, "NoSchedule"), (away, "NoExecute"), (ill, "NoSchedule"), (ill, "NoExecute")];
    stage.taint(&[&others[..], &of_outage[..]].concat());
    let began = Instant::now();
    stage.open().await;
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    assert_eq!(stage.taints().len(), 7);
    let report = stage.until("repaired", |it| it.repairs.len() == 4).await;
    let passed = began.elapsed();
    assert!(passed >= Duration::from_mins(1), "{passed:?}");
    assert!(passed < Duration::from_mins(2), "{passed:?}");
    assert!(report.repairs.values().all(|count| *count == 1), "{report:?}");
    let kept: Vec<String> = others.iter().map(|(key, effect)| format!("{key}:{effect}")).collect();
    assert_eq!(stage.taints(), kept);
    // All in one patch, which names the version.
    assert_eq!(stage.sim.faults().count("PATCH", "/nodes/n1"), 1);
    stage
        .until("seen clean", |it| it.verdict.as_ref().is_some_and(|it| it.shown.stale_taints.is_empty()))
        .await;
}

#[tokio::test(start_paused = true)]
async fn r5_of_a_node_that_is_not_ready_no_taint_is_removed() {
    let mut stage = Stage::new().await;
    stage.sim.power("n1", false);
    stage
        .sim
        .until("nodes", |nodes| nodes[0]["spec"]["taints"].as_array().is_some_and(|all| all.len() == 2))
        .await;
    stage.shut(Layer::Node).await;
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(stage.taints().len(), 2);
    stage.sim.power("n1", true);
    stage.until("repaired", |it| it.repairs.len() == 2).await;
    assert_eq!(stage.taints(), [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn r5_v2_taints_that_come_back_are_heard_of_by_one_watch_without_a_list() {
    let sim = Sim::new(SimConfig::default());
    sim.add_node("n1", "u1");
    sim.add_node("n2", "u2");
    sim.until("nodes", |nodes| nodes.iter().all(|it| it["status"]["conditions"][0]["status"] == "True"))
        .await;
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    let boot = boot("u1");
    let taint = |node: &str, key: &str| {
        sim.edit("nodes", "", node, |it| {
            it["spec"]["taints"] = json!([{ "key": key, "effect": "NoExecute" }]);
        });
    };
    let hour = Duration::from_hours(1);
    let (seen, shown) = watch::channel(NodeAtRest::default());
    let mut wait = std::pin::pin!(until_tainted(&cluster, &boot, &seen));
    assert!(tokio::time::timeout(hour, wait.as_mut()).await.is_err());
    let at_rest = |cordon| NodeAtRest { cordon: Some(cordon), is_api_silent: false };
    assert_eq!(*shown.borrow(), at_rest(CordonSeen::None));
    let ours = json!({ "bootId": "x", "requestedBy": 2, "requestedAt": "t" }).to_string();
    for (cordoned, mark, cordon) in [
        (true, None, CordonSeen::Foreign),
        (true, Some(&ours), CordonSeen::Ours),
        (false, Some(&ours), CordonSeen::Marked),
        (false, None, CordonSeen::None),
    ] {
        sim.edit("nodes", "", "n1", |it| {
            it["spec"]["unschedulable"] = json!(cordoned);
            it["metadata"]["annotations"] =
                mark.map_or(json!({}), |mark| json!({ "pillar-rs/cordon-owner": mark }));
        });
        assert!(tokio::time::timeout(Duration::from_secs(2), wait.as_mut()).await.is_err());
        assert_eq!(*shown.borrow(), at_rest(cordon));
    }
    taint("n2", "node.kubernetes.io/unreachable");
    taint("n1", "node-role.kubernetes.io/control-plane");
    assert!(tokio::time::timeout(hour, wait.as_mut()).await.is_err(), "another node's, and another key");
    taint("n1", "node.kubernetes.io/unreachable");
    let heard = tokio::time::timeout(Duration::from_secs(2), wait).await.unwrap();
    assert_eq!(heard, ["node.kubernetes.io/unreachable:NoExecute"]);
    let lists: Vec<_> =
        sim.faults().requests().into_iter().filter(|it| !it.uri.contains("watch=true")).collect();
    assert_eq!(lists.len(), 1, "{lists:#?}");
    assert!(sim.faults().requests().iter().all(|it| it.uri.contains("metadata.name%3Dn1")));
    // Refused, and without any answer.
    for fault in [ScriptedFault::Cut, ScriptedFault::Hang] {
        sim.edit("nodes", "", "n1", |it| it["spec"]["taints"] = json!([]));
        let mut wait = std::pin::pin!(until_tainted(&cluster, &boot, &seen));
        assert!(tokio::time::timeout(hour, wait.as_mut()).await.is_err());
        assert!(!shown.borrow().is_api_silent);
        sim.faults().script("GET", "/", u32::MAX, fault);
        assert!(tokio::time::timeout(Duration::from_mins(2), wait.as_mut()).await.is_err());
        assert!(shown.borrow().is_api_silent);
        sim.faults().clear();
        assert!(tokio::time::timeout(Duration::from_secs(30), wait.as_mut()).await.is_err());
        assert_eq!(*shown.borrow(), at_rest(CordonSeen::None));
    }
}

#[tokio::test(start_paused = true)]
async fn k6_a_taint_that_most_nodes_do_not_have_is_heard_of_at_rest_and_a_warning_of_the_gate_as_long_as_it_is_there()
 {
    let mut stage = Stage::new().await;
    stage.sim.add_node("n2", "u2");
    stage.open().await;
    assert!(stage.report.borrow().verdict.as_ref().unwrap().shown.warnings.is_empty());
    let sim = stage.sim.clone();
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    let (seen, _shown) = watch::channel(NodeAtRest::default());
    let boot = boot("u1");
    let mut wait = std::pin::pin!(until_tainted(&cluster, &boot, &seen));
    let mine = [("example.com/mine", "NoSchedule")];
    // One that the other node has as well is usual.
    sim.edit("nodes", "", "n2", |it| {
        it["spec"]["taints"] = json!([{ "key": mine[0].0, "effect": mine[0].1 }]);
    });
    stage.taint(&mine);
    assert!(tokio::time::timeout(Duration::from_hours(1), wait.as_mut()).await.is_err());
    stage.taint(&[("node.kubernetes.io/out-of-service", "NoExecute")]);
    let heard = tokio::time::timeout(Duration::from_secs(2), wait).await.unwrap();
    assert!(
        heard[0].ends_with("node.kubernetes.io/out-of-service:NoExecute; its pods are deleted by force"),
        "{heard:?}"
    );
    stage
        .until("warned of", |it| {
            let warnings = it.verdict.as_ref().map(|it| it.shown.warnings.as_slice()).unwrap_or_default();
            warnings.iter().any(|it| it.layer == Layer::Node.text() && it.failed && it.words == heard[0])
        })
        .await;
    assert!(stage.report.borrow().verdict.as_ref().unwrap().is_open(), "it keeps nothing shut");
    assert_eq!(stage.taints().len(), 1, "it is not ours to remove");
    stage.taint(&[]);
    stage.until("over", |it| it.verdict.as_ref().is_some_and(|it| it.shown.warnings.is_empty())).await;
}

#[tokio::test(start_paused = true)]
async fn seed_1_04_pods_that_a_stale_taint_kept_away_are_bound_within_a_second_of_its_removal() {
    let mut stage = Stage::new().await;
    stage.open().await;
    let key = "node.kubernetes.io/unreachable";
    stage.taint(&[(key, "NoSchedule"), (key, "NoExecute")]);
    stage.sim.add_deployment("shop", "api", 3);
    let bound = |pods: &[Value]| pods.iter().filter(|it| it["spec"]["nodeName"] == "n1").count();
    stage.sim.until("pods", |pods| pods.len() == 5).await;
    assert_eq!(bound(&stage.sim.list("pods")), 2);
    stage.until("repaired", |it| it.repairs.len() == 2).await;
    let all = stage.sim.until("pods", |pods| bound(pods) == 5);
    tokio::time::timeout(Duration::from_secs(1), all).await.unwrap();
}
