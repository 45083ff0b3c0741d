//! Layers that fail while the node is healthy by itself: each shuts the gate or holds the turn up to its limit, is warned
//! of then, and heals.

use super::*;

fn warns(layer: Layer) -> impl Fn(&GateReport) -> bool {
    move |it: &GateReport| {
        let verdict = it.verdict.as_ref();
        verdict.is_some_and(|it| {
            it.is_open() && it.shown.warnings.iter().any(|it| it.layer == layer.text() && it.failed)
        })
    }
}

fn is_well(report: &GateReport) -> bool {
    report.verdict.as_ref().is_some_and(|it| it.is_open() && it.shown.warnings.is_empty() && !it.holds_turn)
}

fn warning(report: &GateReport) -> String {
    report.verdict.iter().flat_map(|it| &it.shown.warnings).map(|it| it.words.clone()).collect()
}

impl Stage {
    async fn well() -> Self {
        let mut stage = Self::new().await;
        stage.until("well", is_well).await;
        stage
    }

    /// The gate is shut at a layer until its limit, then the layer is a warning that says `words`; it heals.
    async fn shuts_and_warns(&mut self, layer: Layer, words: &str, heal: impl FnOnce(&Self)) {
        let seen = self.shut(layer).await.verdict.unwrap();
        assert!(seen.shown.words.contains(words) && !seen.shown.failed, "{seen:?}");
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
    let mut stage = Stage::well().await;
    let clock = vec![checks::nodes::wrong_clock("the wall clock shows 1970".to_owned())];
    stage.local.send_replace(LocalHealth { clock, ..LocalHealth::default() });
    let heal = |stage: &Stage| drop(stage.local.send_replace(LocalHealth::default()));
    stage.shuts_and_warns(Layer::Clock, "shows 1970", heal).await;
}

#[tokio::test(start_paused = true)]
async fn r4_a_container_runtime_that_does_not_answer_shuts_the_gate_until_its_limit_and_heals() {
    let mut stage = Stage::well().await;
    let silent =
        checks::nodes::runtime("the container runtime cannot be asked: S: cannot connect".to_owned());
    stage.upper.send_replace([GateFact::Found(Check::Runtime, vec![silent]), well()[1].clone()]);
    let heal = |stage: &Stage| drop(stage.upper.send_replace(well()));
    stage.shuts_and_warns(Layer::Runtime, "cannot connect", heal).await;
}

fn fails() -> [GateFact; 2] {
    let probe = checks::Finding::new("probe", "shop: http://10.0.0.5/ answers 503, not 200", "curl -v");
    [well()[0].clone(), GateFact::Found(Check::Probes, vec![probe])]
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test's own clock, which is paused")]
async fn v3_what_starts_with_its_node_keeps_the_turn_no_longer_than_seconds() {
    let mut stage = Stage::new().await;
    stage.upper.send_replace(fails());
    let seen = |it: &GateReport| it.verdict.as_ref().is_some_and(|it| !it.shown.warnings.is_empty());
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
    let mut stage = Stage::well().await;
    stage.upper.send_replace(fails());
    let heal = |stage: &Stage| drop(stage.upper.send_replace(well()));
    stage.holds_turn_and_warns("answers 503", Layer::Probes, heal).await;
}

#[tokio::test(start_paused = true)]
async fn r4_a_virtual_ip_without_a_holder_that_is_ready_and_renews_shuts_the_gate_until_its_limit_and_heals()
{
    let mut stage = Stage::well().await;
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
    let mut stage = Stage::well().await;
    stage.sim.faults().script("GET", "/api/v1/pods", u32::MAX, ScriptedFault::status(403, "Forbidden"));
    stage.sim.expire_watches();
    let seen = stage.shut(Layer::Storage).await.verdict.unwrap();
    assert!(seen.shown.words.contains("403"), "{seen:?}");
    stage.until("warned of", warns(Layer::Storage)).await;
    stage.sim.faults().clear();
    stage.until("healed", is_well).await;
}

#[tokio::test(start_paused = true)]
async fn u10_seed_1_06_pods_of_kube_system_that_are_not_ready_or_not_placed_hold_the_turn_and_heal() {
    let mut stage = Stage::well().await;
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
    let mut stage = Stage::well().await;
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
    let mut stage = Stage::well().await;
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
async fn j3_a_group_of_shards_that_was_whole_before_keeps_the_turn_until_it_is_healthy() {
    const VOLUMES: &str = "longhorn/volumes";
    let mut stage = Stage::well().await;
    let sim = stage.sim.clone();
    sim.add_longhorn("");
    for node in ["n2", "n3"] {
        sim.add_node(node, node);
    }
    sim.until("longhorn/instancemanagers", |all| {
        all.len() == 3 && all.iter().all(|it| it["status"]["currentState"] == "running")
    })
    .await;
    sim.add_sharded_volume("shop", "data", "pvc-1", &["n1", "n2", "n3"], 1);
    sim.edit("longhorn/shards", "longhorn-system", "pvc-1-0", |it| it["status"]["state"] = "failed".into());
    sim.until(VOLUMES, |all| all[0]["status"]["robustness"] == "degraded").await;
    for (whole, holds) in [(false, false), (true, true)] {
        let record = json!({ "volumes": { "pvc-1": whole } }).to_string();
        sim.edit("nodes", "", "n1", |it| {
            it["metadata"]["annotations"]["pillar-rs/volumes-before"] = record.clone().into();
        });
        let on = Stage::on(sim.clone());
        drop(std::mem::replace(&mut stage, on));
        sim.edit(VOLUMES, "longhorn-system", "pvc-1", |it| {
            it["metadata"]["annotations"]["kubesim/rebuild"] = "hangs".into();
        });
        let held = move |it: &GateReport| {
            it.verdict.as_ref().is_some_and(|it| it.is_open() && it.holds_turn == holds)
        };
        let seen = stage.until("open", held).await.verdict.unwrap();
        assert_eq!(seen.shown.words.contains("unhealthy volumes: shop/data (pvc-1)"), holds, "{seen:?}");
    }
    sim.edit(VOLUMES, "longhorn-system", "pvc-1", |it| {
        it["metadata"]["annotations"]["kubesim/rebuild"] = "".into();
    });
    stage.until("healed", is_well).await;
    assert_eq!(sim.list("longhorn/shardgroups")[0]["status"]["state"], "healthy");
}
