//! The gate after a boot against a cluster with kubelets, on a paused clock: R4 and R5 through the API.

use std::time::Duration;

use futures::FutureExt as _;
use kube::Client;
use kubeapi::{ApiClient, NodeName};
use kubenodeop::node::boot::{BootWatch, GateReport, LocalHealth, until_tainted, watch_over};
use kubenodeop::node::gate::{GateFact, Layer, LayerLimits};
use kubesim::{ScriptedFault, Sim, SimConfig};
use serde_json::{Value, json};
use step::Mono;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_mins(30);

/// One node with pods, watched over.
struct Stage {
    sim: Sim,
    report: watch::Receiver<GateReport>,
    local: watch::Sender<LocalHealth>,
    /// What the machine shows of layers above the node.
    upper: watch::Sender<[GateFact; 2]>,
    /// What the API waits for.
    members: watch::Sender<String>,
    _watch: JoinSet<()>,
}

#[expect(clippy::disallowed_methods, reason = "the test's own clock, which is paused")]
fn clock() -> impl Fn() -> Mono {
    let start = Instant::now();
    move || Mono::START + start.elapsed()
}

fn boot_of(node: NodeName) -> BootWatch {
    let (device_uuid, boot_id) = ("u1".to_owned(), "b2".to_owned());
    let addresses = vec!["10.0.0.1".to_owned()];
    BootWatch { node, device_uuid, boot_id, limits: LayerLimits::default(), lost: Vec::new(), addresses }
}

/// Nothing is wrong with the runtime, nor with any probe.
fn well() -> [GateFact; 2] {
    [GateFact::Runtime(String::new()), GateFact::Probes(Vec::new())]
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
        let node = NodeName::parse("n1").unwrap();
        let boot = boot_of(node);
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
        match tokio::time::timeout(PATIENCE, self.report.wait_for(wanted)).await {
            Ok(found) => return found.unwrap().clone(),
            Err(_elapsed) => {}
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
        move |it: &GateReport| it.verdict.as_ref().is_some_and(|it| it.layer == Some(layer) && it.failed)
    };

    stage.local.send_replace(LocalHealth { missing: vec!["/dev/kmsg".to_owned()], ..LocalHealth::default() });
    let seen = stage.shut(Layer::Devices).await.verdict.unwrap();
    assert!(seen.words.contains("/dev/kmsg"), "{seen:?}");
    stage.until("failed", failed(Layer::Devices)).await;
    stage.local.send_replace(LocalHealth::default());
    stage.open().await;

    for (path, layer) in [("/", Layer::Service), ("/leases", Layer::Lease)] {
        let status = if layer == Layer::Service { 503 } else { 403 };
        let answer = || match status {
            503 => ScriptedFault::Cut,
            code => ScriptedFault::status(code, "Forbidden"),
        };
        stage.sim.faults().script("GET", path, 100_000, answer());
        stage.sim.expire_watches();
        stage.shut(layer).await;
        stage.until("failed", failed(layer)).await;
        stage.sim.faults().clear();
        stage.open().await;
    }

    stage.sim.crash_loop("shop", "web", true);
    stage.sim.crash_loop("longhorn-system", "longhorn-manager", true);
    let seen = stage.shut(Layer::Storage).await.verdict.unwrap();
    assert!(seen.words.contains("longhorn-system/longhorn-manager"), "{seen:?}");
    assert!(!seen.words.contains("shop"), "{seen:?}");
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
            it.verdict.as_ref().is_some_and(|it| it.words.contains(words) && it.failed == failed)
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
    assert!(seen.words.contains("429"), "{seen:?}");
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
    assert!(said.len() <= 3 && said.iter().any(|it| it.failed), "{said:#?}");
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
    stage.until("seen clean", |it| it.verdict.as_ref().is_some_and(|it| it.taints.is_empty())).await;
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
    let node = NodeName::parse("n1").unwrap();
    let boot = boot_of(node);
    let taint = |node: &str, key: &str| {
        sim.edit("nodes", "", node, |it| {
            it["spec"]["taints"] = json!([{ "key": key, "effect": "NoExecute" }]);
        });
    };
    let hour = Duration::from_hours(1);
    let mut wait = std::pin::pin!(until_tainted(&cluster, &boot));
    assert!(tokio::time::timeout(hour, wait.as_mut()).await.is_err());
    taint("n2", "node.kubernetes.io/unreachable");
    taint("n1", "example.com/mine");
    assert!(tokio::time::timeout(hour, wait.as_mut()).await.is_err(), "another node's, and another key");
    taint("n1", "node.kubernetes.io/unreachable");
    let heard = tokio::time::timeout(Duration::from_secs(2), wait).await.unwrap();
    assert_eq!(heard, ["node.kubernetes.io/unreachable:NoExecute"]);
    let lists: Vec<_> =
        sim.faults().requests().into_iter().filter(|it| !it.uri.contains("watch=true")).collect();
    assert_eq!(lists.len(), 1, "{lists:#?}");
    assert!(sim.faults().requests().iter().all(|it| it.uri.contains("metadata.name%3Dn1")));
}

fn warns(layer: Layer) -> impl Fn(&GateReport) -> bool {
    move |it: &GateReport| {
        let verdict = it.verdict.as_ref();
        verdict.is_some_and(|it| it.is_open() && it.warnings.iter().any(|it| it.layer == layer && it.failed))
    }
}

fn is_well(report: &GateReport) -> bool {
    report.verdict.as_ref().is_some_and(|it| it.is_open() && it.warnings.is_empty() && !it.holds_turn)
}

fn warning(report: &GateReport) -> String {
    report.verdict.iter().flat_map(|it| &it.warnings).map(|it| it.words.clone()).collect()
}

impl Stage {
    /// The gate is shut at a layer until its limit, then the layer is a warning that says `words`; it heals.
    async fn shuts_and_warns(&mut self, layer: Layer, words: &str, heal: impl FnOnce(&Self)) {
        let seen = self.shut(layer).await.verdict.unwrap();
        assert!(seen.words.contains(words) && !seen.failed, "{seen:?}");
        let seen = self.until("warned of", warns(layer)).await;
        assert!(warning(&seen).contains(words), "{seen:?}");
        heal(self);
        self.until("healed", is_well).await;
    }

    /// The gate stays open, and the turn of the node is held until the limit of the layer; then as above.
    async fn holds_turn_and_warns(&mut self, words: &str, layer: Layer, heal: impl FnOnce(&Self)) {
        let held = |it: &GateReport| it.verdict.as_ref().is_some_and(|it| it.is_open() && it.holds_turn);
        let seen = self.until("its turn held", held).await;
        assert!(warning(&seen).contains(words), "{seen:?}");
        let seen = self.until("warned of", warns(layer)).await;
        assert!(!seen.verdict.as_ref().unwrap().holds_turn && warning(&seen).contains(words), "{seen:?}");
        heal(self);
        self.until("healed", is_well).await;
    }
}

#[tokio::test(start_paused = true)]
async fn r4_a_clock_that_is_wrong_shuts_the_gate_until_its_limit_and_heals() {
    let mut stage = Stage::new().await;
    stage.until("well", is_well).await;
    let clock = "the wall clock shows 1970".to_owned();
    stage.local.send_replace(LocalHealth { clock, ..LocalHealth::default() });
    let heal = |stage: &Stage| drop(stage.local.send_replace(LocalHealth::default()));
    stage.shuts_and_warns(Layer::Clock, "shows 1970", heal).await;
}

#[tokio::test(start_paused = true)]
async fn r4_a_container_runtime_that_does_not_answer_shuts_the_gate_until_its_limit_and_heals() {
    let mut stage = Stage::new().await;
    stage.until("well", is_well).await;
    let silent = GateFact::Runtime("the container runtime cannot be asked: S: cannot connect".to_owned());
    stage.upper.send_replace([silent, GateFact::Probes(Vec::new())]);
    let heal = |stage: &Stage| drop(stage.upper.send_replace(well()));
    stage.shuts_and_warns(Layer::Runtime, "cannot connect", heal).await;
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test's own clock, which is paused")]
async fn v3_what_starts_with_its_node_keeps_the_turn_no_longer_than_seconds() {
    let mut stage = Stage::new().await;
    let fails = ("shop: http://10.0.0.5/ answers 503, not 200".to_owned(), "curl -v".to_owned());
    stage.upper.send_replace([GateFact::Runtime(String::new()), GateFact::Probes(vec![fails])]);
    let seen = |it: &GateReport| it.verdict.as_ref().is_some_and(|it| !it.warnings.is_empty());
    stage.until("a service that does not answer", seen).await;
    stage.upper.send_replace(well());
    let began = Instant::now();
    stage.until("well", is_well).await;
    // Five of them are the time for which all must hold.
    assert!(began.elapsed() <= Duration::from_secs(7), "{:?}", began.elapsed());
}

/// Row 1-05.
#[tokio::test(start_paused = true)]
async fn u10_a_service_of_the_site_that_does_not_answer_holds_the_turn_until_its_limit_and_heals() {
    let mut stage = Stage::new().await;
    stage.until("well", is_well).await;
    let fails = ("shop: http://10.0.0.5/ answers 503, not 200".to_owned(), "curl -v".to_owned());
    stage.upper.send_replace([GateFact::Runtime(String::new()), GateFact::Probes(vec![fails])]);
    let heal = |stage: &Stage| drop(stage.upper.send_replace(well()));
    stage.holds_turn_and_warns("answers 503", Layer::Probes, heal).await;
}

#[tokio::test(start_paused = true)]
async fn r4_a_virtual_ip_without_a_holder_that_is_ready_and_renews_shuts_the_gate_until_its_limit_and_heals()
{
    let mut stage = Stage::new().await;
    stage.until("well", is_well).await;
    stage.sim.add_virtual_ip("plndr-cp-lock", "n1");
    stage.sim.serve_virtual_ip("plndr-cp-lock", false);
    let serve = |stage: &Stage| stage.sim.serve_virtual_ip("plndr-cp-lock", true);
    stage
        .shuts_and_warns(
            Layer::Network,
            "lease kube-system/plndr-cp-lock of n1: its holder does not renew",
            serve,
        )
        .await;
    // A node that is gone holds it still.
    stage.sim.serve_virtual_ip("plndr-cp-lock", false);
    stage.sim.edit("coordination/leases", "kube-system", "plndr-cp-lock", |it| {
        it["spec"]["holderIdentity"] = "n9".into();
    });
    stage.shuts_and_warns(Layer::Network, "of n9: its holder is not a Ready node", serve).await;
    // The lease says this node, whose kube-vip is to have these addresses: one is here, and one is on no interface.
    stage.sim.edit("coordination/leases", "kube-system", "plndr-cp-lock", |it| {
        it["spec"]["holderIdentity"] = "n1".into();
    });
    let vip = |address: &str| {
        json!({ "metadata": { "namespace": "kube-system", "name": "kube-vip" }, "spec": { "nodeName": "n1", "containers": [
            { "name": "v", "image": "x/kube-vip:v1", "env": [{ "name": "address", "value": address }] }] },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } })
    };
    stage.sim.apply("pods", vip("192.0.2.7"));
    serve(&stage);
    let heal = |stage: &Stage| stage.sim.apply("pods", vip("127.0.0.1"));
    stage
        .shuts_and_warns(Layer::Network, "this node holds it, and has no interface with 192.0.2.7", heal)
        .await;
    // Nobody lets us read it.
    stage.sim.faults().script("GET", "/leases/plndr-", u32::MAX, ScriptedFault::status(403, "Forbidden"));
    stage.shuts_and_warns(Layer::Network, "403", |stage| stage.sim.faults().clear()).await;
}

#[tokio::test(start_paused = true)]
async fn r4_pods_that_nobody_lets_us_read_shut_the_gate_until_its_limit_and_no_longer() {
    let mut stage = Stage::new().await;
    stage.until("well", is_well).await;
    stage.sim.faults().script("GET", "/api/v1/pods", u32::MAX, ScriptedFault::status(403, "Forbidden"));
    stage.sim.expire_watches();
    let seen = stage.shut(Layer::Storage).await.verdict.unwrap();
    assert!(seen.words.contains("403"), "{seen:?}");
    stage.until("warned of", warns(Layer::Storage)).await;
    stage.sim.faults().clear();
    stage.until("healed", is_well).await;
}

#[tokio::test(start_paused = true)]
async fn u10_seed_1_06_pods_of_kube_system_that_are_not_ready_or_not_placed_hold_the_turn_and_heal() {
    let mut stage = Stage::new().await;
    stage.until("well", is_well).await;
    stage.sim.add_bare_pod("kube-system", "dns", "n1");
    stage.sim.until("pods", |pods| pods.iter().all(|pod| pod["status"]["phase"] == "Running")).await;
    stage.sim.crash_loop("kube-system", "dns", true);
    let runs = |stage: &Stage| stage.sim.crash_loop("kube-system", "dns", false);
    stage.holds_turn_and_warns("kube-system/dns (CrashLoopBackOff)", Layer::System, runs).await;
    stage.taint(&[("example.com/mine", "NoSchedule")]);
    stage.sim.add_deployment("kube-system", "svclb", 1);
    let words = "(no node: taint example.com/mine)";
    stage.holds_turn_and_warns(words, Layer::System, |stage| stage.taint(&[])).await;
}

#[tokio::test(start_paused = true)]
async fn seed_0_16_a_machine_that_is_being_ended_for_long_is_named_and_holds_the_turn_for_a_time() {
    let mut stage = Stage::new().await;
    stage.until("well", is_well).await;
    let guests = "kubevirt/virtualmachineinstances";
    stage.sim.apply(
        guests,
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {
                "name": "db", "namespace": "shop", "labels": { "kubevirt.io/nodeName": "n1" },
                "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/never"],
            },
            "status": { "phase": "Running", "nodeName": "n1" },
        }),
    );
    let heal = |stage: &Stage| assert!(stage.sim.remove(guests, "shop", "db"));
    stage.holds_turn_and_warns("shop/db (being ended since 2026-01-01", Layer::Machines, heal).await;
}

#[tokio::test(start_paused = true)]
async fn seed_0_06_another_address_than_before_the_boot_is_warned_of_at_once() {
    let mut stage = Stage::new().await;
    stage.until("well", is_well).await;
    let at = |stage: &Stage, address: &str| {
        let all = json!([{ "type": "InternalIP", "address": address }]);
        stage.sim.edit("nodes", "", "n1", |it| it["status"]["addresses"] = all);
    };
    at(&stage, "10.0.0.9");
    let seen = stage.until("warned of", warns(Layer::Network)).await;
    assert!(warning(&seen).contains("10.0.0.9; before this boot it had 10.0.0.1"), "{seen:?}");
    at(&stage, "10.0.0.1");
    stage.until("healed", is_well).await;
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
