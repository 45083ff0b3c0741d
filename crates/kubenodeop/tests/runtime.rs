//! What the container runtime of a node changes, against a cluster with kubelets on a paused clock: D9 in a drain, R8 after a
//! boot.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use kube::Client;
use kubeapi::ApiClient;
use kubenodeop::node::boot::{GateReport, LeftoverPods};
use kubenodeop::node::leftovers::clear;
use kubenodeop::{
    AttemptOutcome, AttemptRules, DrainOrder, DrainSuccess, Progress, RuntimeQuery, drain, node,
};
use kubesim::{ScriptedFault, Sim, SimConfig};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::stage::{DEVICE, boot, clock, order};

async fn with_pods(names: &[&str]) -> Sim {
    let sim = Sim::new(SimConfig::default());
    sim.add_node("n1", DEVICE);
    for name in names {
        sim.add_bare_pod("shop", name, "n1");
    }
    sim.add_daemon_set("kube-system", "proxy");
    let runs = |it: &Value| it["status"]["phase"] == "Running";
    sim.until("pods", |all| all.len() == names.len() + 1 && all.iter().all(runs)).await;
    sim
}

fn cluster(sim: &Sim) -> ApiClient {
    ApiClient::from_client(Client::new(sim.service(), "default"))
}

type Lie = Arc<Mutex<Option<Result<BTreeSet<String>, String>>>>;

fn runtime(sim: &Sim) -> (RuntimeQuery, Lie) {
    let (sim, lie) = (sim.clone(), Lie::default());
    let said = Arc::clone(&lie);
    let ask = move || {
        let truth = Ok(sim.live_pods("n1"));
        let answer = said.lock().unwrap().clone().unwrap_or(truth);
        std::future::ready(answer).boxed()
    };
    (RuntimeQuery::new(ask), lie)
}

/// Drains for so long; the outcome, or the newest progress.
async fn drained(sim: &Sim, runtime: RuntimeQuery, time: Duration) -> Result<AttemptOutcome, Progress> {
    let order = DrainOrder { runtime, ..order(AttemptRules::default()) };
    let cluster = cluster(sim);
    node::cordon(&cluster, &order.node, &order.device_uuid, &order.owner).await.unwrap();
    let (sender, progress) = watch::channel(Progress::default());
    let ended = timeout(time, drain(&cluster, &order, clock(), &sender)).await;
    ended.map_err(|_elapsed| progress.borrow().clone())
}

#[tokio::test(start_paused = true)]
async fn d9_a_drain_ends_over_an_object_that_a_finalizer_keeps_once_its_containers_have_ended() {
    let sim = with_pods(&["web", "held"]).await;
    sim.edit("pods", "shop", "held", |it| it["metadata"]["finalizers"] = vec!["x.io/f"].into());
    // Without a runtime it is waited for.
    let waits = drained(&sim, RuntimeQuery::default(), Duration::from_secs(600)).await.unwrap_err();
    assert_eq!((waits.counts.gone, waits.counts.going), (1, 1));
    assert_eq!(waits.runtime, "no container runtime is asked");
    // One that lists nothing that is known here is not believed.
    let (asked, lie) = runtime(&sim);
    *lie.lock().unwrap() = Some(Ok(["x".to_owned()].into()));
    let waits = drained(&sim, asked.clone(), Duration::from_secs(600)).await.unwrap_err();
    assert!(waits.runtime.starts_with("the container runtime is not believed"), "{}", waits.runtime);
    *lie.lock().unwrap() = None;
    let Ok(DrainSuccess { left, .. }) = drained(&sim, asked, Duration::from_secs(600)).await.unwrap() else {
        unreachable!("it ends well")
    };
    assert!(left.len() == 1 && left[0].starts_with("shop/held: "), "{left:?}");
    assert!(sim.get("pods", "shop", "held").is_some(), "its object is whose finalizer it is");
}

#[tokio::test(start_paused = true)]
async fn d9_while_the_kubelet_is_silent_and_containers_run_the_drain_waits_and_names_the_one_cause() {
    let sim = with_pods(&["a", "b"]).await;
    let alive = sim.live_pods("n1");
    // The kubelet is killed: its containers run on.
    sim.power("n1", false);
    let (asked, lie) = runtime(&sim);
    *lie.lock().unwrap() = Some(Ok(alive));
    let waits = drained(&sim, asked.clone(), Duration::from_secs(1800)).await.unwrap_err();
    assert_eq!((waits.counts.gone, waits.counts.going, waits.estimate), (0, 2, None));
    let first = &waits.blockers[0];
    assert_eq!(first.code, "kubelet-silent");
    assert!(first.reason.contains("Kubelet stopped posting node status."), "{}", first.reason);
    // Back again, it ends by itself.
    sim.power("n1", true);
    *lie.lock().unwrap() = None;
    assert!(matches!(drained(&sim, asked, Duration::from_secs(60)).await, Ok(Ok(_))));
}

/// After a boot, with what the former one has left.
struct AfterBoot {
    sim: Sim,
    lie: Lie,
    report: watch::Receiver<GateReport>,
    _task: JoinSet<()>,
}

impl AfterBoot {
    async fn with(prepare: impl FnOnce(&Sim)) -> Self {
        let sim = with_pods(&["web", "gone", "lost", "user"]).await;
        sim.power("n1", false);
        sim.leave_behind("shop", "gone", true);
        sim.leave_behind("shop", "lost", false);
        prepare(&sim);
        sim.power("n1", true);
        let (cluster, (runtime, lie)) = (cluster(&sim), runtime(&sim));
        let (sender, report) = watch::channel(GateReport::default());
        let (mut task, clock) = (JoinSet::new(), clock());
        task.spawn(async move { clear(&cluster, &boot(DEVICE), &runtime, clock, &sender).await });
        Self { sim, lie, report, _task: task }
    }

    fn pods(&self) -> Vec<String> {
        let of_shop = |it: Value| {
            let meta = &it["metadata"];
            (meta["namespace"] == "shop").then(|| meta["name"].as_str().unwrap().to_owned())
        };
        let mut all: Vec<String> = self.sim.list("pods").into_iter().filter_map(of_shop).collect();
        all.sort();
        all
    }

    async fn pass(&self, secs: u64) {
        tokio::time::sleep(Duration::from_secs(secs)).await;
    }

    fn left(&self) -> LeftoverPods {
        self.report.borrow().leftovers.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn r8_what_the_former_boot_left_is_cleared_within_five_minutes_of_ready_and_counted() {
    let boot = AfterBoot::with(|_| ()).await;
    boot.pass(60).await;
    assert_eq!(boot.pods(), ["gone", "lost", "user", "web"], "its kubelet first");
    assert!(boot.left().pending);
    boot.pass(240).await;
    assert_eq!(boot.pods(), ["user", "web"]);
    assert_eq!(boot.left(), LeftoverPods { cleared: 2, ..LeftoverPods::default() });
}

#[tokio::test(start_paused = true)]
async fn r8_nothing_is_cleared_while_a_container_lives_or_without_a_believed_answer() {
    let boot = AfterBoot::with(|_| ()).await;
    let uid = |name: &str| {
        let pod = boot.sim.get("pods", "shop", name).unwrap();
        pod["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let all = boot.pods();
    let everything: BTreeSet<String> = all.iter().map(|it| uid(it)).collect();
    let table = [
        (Err("no socket".to_owned()), "no socket"),
        (Ok(BTreeSet::new()), "not believed"),
        (Ok(["x".to_owned()].into()), "not believed"),
        (Ok(everything), "their containers run: shop/gone, shop/lost"),
    ];
    for (lie, words) in table {
        *boot.lie.lock().unwrap() = Some(lie);
        boot.pass(120).await;
        assert_eq!(boot.pods(), all, "{words}");
        assert!(boot.left().words.contains(words) && !boot.left().next_step.is_empty(), "{:?}", boot.left());
    }
    // For ever it is not watched: a person has to.
    assert!(boot.left().pending);
    boot.pass(300).await;
    assert!(!boot.left().pending && boot.left().words.contains("containers run"), "{:?}", boot.left());
    // It is looked at seldom; once they are gone they are not named for the rest of the boot.
    boot.sim.remove("pods", "shop", "gone");
    boot.sim.remove("pods", "shop", "lost");
    boot.pass(900).await;
    assert_eq!(boot.left().words, "");
}

#[tokio::test(start_paused = true)]
async fn r8_a_deletion_that_is_refused_is_named_with_its_reason() {
    let boot = AfterBoot::with(|sim| {
        sim.faults().script("DELETE", "/pods/gone", u32::MAX, ScriptedFault::status(403, "Forbidden"));
    })
    .await;
    boot.pass(300).await;
    assert_eq!(boot.pods(), ["gone", "user", "web"]);
    assert!(boot.left().words.contains("cannot be deleted: shop/gone"), "{:?}", boot.left());
}

#[tokio::test(start_paused = true)]
async fn r8_a_launcher_and_what_a_finalizer_holds_are_named_and_a_node_that_is_not_ready_is_left_alone() {
    let boot = AfterBoot::with(|sim| {
        sim.edit("pods", "shop", "gone", |it| {
            it["metadata"]["labels"]["kubevirt.io"] = "virt-launcher".into();
        });
        sim.edit("pods", "shop", "lost", |it| it["metadata"]["finalizers"] = vec!["x.io/f"].into());
    })
    .await;
    boot.pass(300).await;
    assert_eq!(boot.pods(), ["gone", "lost", "user", "web"]);
    assert!(boot.left().words.ends_with("shop/lost (x.io/f)"), "{:?}", boot.left());
    boot.sim.remove("pods", "shop", "lost");
    boot.pass(60).await;
    assert!(boot.left().words.starts_with("launchers of virtual machines"), "{:?}", boot.left());

    let boot = AfterBoot::with(|_| ()).await;
    boot.sim.power("n1", false);
    boot.pass(1200).await;
    assert_eq!(boot.pods(), ["gone", "lost", "user", "web"], "not Ready");
    assert!(boot.left().pending);
}
