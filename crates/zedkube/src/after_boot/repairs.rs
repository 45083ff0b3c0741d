//! The repairs of this node after a boot, stale taints and pods that the former boot has left: zedkube makes them for as
//! long as it runs, a person may have them made once.
//!
//! Not here: how (`kubenodeop::node::{boot, leftovers}`).

use std::pin::Pin;
use std::time::Duration;

use agent::wire::{self, GLOBAL};
use agent::{Clock, device};
use kubeapi::nodes::{self, MachineIds};
use kubeapi::{ApiClient, NodeName};
use kubenodeop::node::boot::{self, BootWatch, GateReport};
use kubenodeop::node::gate::{Check, GateFact, Layer};
use kubenodeop::node::{LastSeen, leftovers};
use pubsub::TopicRoot;
use tokio::sync::watch;
use topics::EdgeNodeInfo;

use super::probes;
use crate::limits::Limits;
use crate::local::ClockCheck;
use crate::runtime;

/// Makes them until nothing is left to be made, or `limit` is over, and says what it does; says whether all was made. What
/// zedkube does beside it is the same, no more and no sooner.
/// Errors: nothing says which node this is, or which boot; or the Node of its name is another device's or machine's.
pub async fn once(
    topic_root: &TopicRoot,
    cluster: &ApiClient,
    clock: Clock,
    limit: Duration,
    say: impl Fn(&str),
) -> Result<bool, String> {
    let chain = |error: &(dyn std::error::Error + 'static)| agent::report::chain(error);
    let info = wire::peek::<EdgeNodeInfo>(topic_root, "zedagent", GLOBAL).map_err(|it| chain(&it))?;
    let info = info.ok_or("zedagent has written no EdgeNodeInfo here: type the command on the node")?;
    let node = NodeName::parse(&info.kube_name()).map_err(|it| chain(&it))?;
    let (boot_id, limits) = (device::kernel_boot_id().map_err(|it| chain(&it))?, Limits::default());
    let cluster = &cluster.clone().on_machine(MachineIds::here(topic_root.root(), &boot_id));
    // An API that is away is waited for below.
    if let Err(error) = nodes::own(cluster, &node, &info.device_id.to_string()).await
        && error.is_of_another()
    {
        return Err(error.advice());
    }
    let boot = BootWatch {
        node,
        device_uuid: info.device_id.to_string(),
        boot_id,
        limits: limits.gate(),
        lost: Vec::new(),
        addresses: Vec::new(),
        seen: LastSeen::default(),
    };
    say("repairs what it may: its kubelet has to renew its lease for 60 s before anything is touched");
    let (sender, report) = watch::channel(GateReport::default());
    let nothing = || std::future::ready(String::new());
    tokio::select! {
        () = run(topic_root, cluster, &boot, &limits, clock, nothing, &sender) => Ok(false),
        () = until_made(report, &say) => Ok(true),
        () = clock.sleep_until(Some(clock.now() + limit)) => Ok(false),
    }
}

/// Ends once the node has neither stale taints nor pods of its former boot that are still looked after.
async fn until_made(mut report: watch::Receiver<GateReport>, say: &impl Fn(&str)) {
    let mut said = 0;
    while report.changed().await.is_ok() {
        let GateReport { verdict, repairs, leftovers, .. } = report.borrow_and_update().clone();
        let sum = repairs.values().sum::<u32>() + leftovers.cleared;
        if sum > said {
            said = sum;
            let (taints, pods) = (repairs.len(), leftovers.cleared);
            say(&format!("removed so far: stale taints {taints}, pods of the former boot {pods}"));
        }
        // Of a node that is not known to be Ready no taint is known, either.
        let unknown = |it: Layer| matches!(it, Layer::Service | Layer::Node | Layer::Lease);
        let clean =
            verdict.is_some_and(|it| it.shown.stale_taints.is_empty() && !it.layer.is_some_and(unknown));
        if clean && !leftovers.pending {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// Makes them for as long as the future is kept; it never ends. `waits` says
/// what an API that is away waits for, or nothing.
pub(crate) async fn run<W: Future<Output = String>>(
    topic_root: &TopicRoot,
    cluster: &ApiClient,
    boot: &BootWatch,
    limits: &Limits,
    clock: Clock,
    waits: impl Fn() -> W,
    report: &watch::Sender<GateReport>,
) {
    let (machine, runtime) = (ClockCheck::new(topic_root, clock), runtime::seam(topic_root.root(), limits));
    let socket = runtime::socket(topic_root.root(), limits);
    let upper = || {
        let (socket, cluster, root) = (socket.clone(), cluster.clone(), topic_root.root().to_owned());
        let asked = async move {
            let (runtime, probes) = tokio::join!(socket.trouble(), probes::troubles(&root, &cluster));
            let runtime = runtime.map(checks::node::runtime).into_iter().collect();
            vec![GateFact::Found(Check::Runtime, runtime), GateFact::Found(Check::Probes, probes)]
        };
        Box::pin(asked) as Pin<Box<dyn Future<Output = Vec<GateFact>> + Send>>
    };
    tokio::select! {
        () = boot::watch_over(cluster, boot, || machine.look(), upper, waits, || clock.now(), report) => {}
        () = leftovers::clear(cluster, boot, &runtime, || clock.now(), report) => {}
    }
}

#[cfg(test)]
mod tests {
    use agent::runtime::mock::{RuntimeReply, pod, serve};
    use kube::Client;
    use kubesim::{Sim, SimConfig};
    use pubsub::store;
    use topics::go_json;

    use super::*;

    const TAINTED: [&str; 2] = ["NoSchedule", "NoExecute"];

    fn taints(sim: &Sim) -> usize {
        let node = sim.get("nodes", "", "n1").unwrap();
        node["spec"]["taints"].as_array().map_or(0, Vec::len)
    }

    /// A node that was away, and has kept the taints of that.
    async fn after_an_outage() -> (tempfile::TempDir, TopicRoot, Sim) {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let info = EdgeNodeInfo { device_name: "n1".to_owned(), ..EdgeNodeInfo::default() };
        let sim = Sim::new(SimConfig { stale_taints: true, ..SimConfig::default() });
        sim.add_node("n1", &info.device_id.to_string());
        let file = wire::path::<EdgeNodeInfo>(&topic_root, "zedagent", GLOBAL);
        store::replace(&file, &go_json::to_vec(&info).unwrap()).unwrap();
        sim.power("n1", false);
        let is_tainted = |it: &serde_json::Value| {
            it["spec"]["taints"].as_array().is_some_and(|it| it.len() == TAINTED.len())
        };
        sim.until("nodes", |all| all.iter().all(is_tainted)).await;
        (root, topic_root, sim)
    }

    #[tokio::test(start_paused = true)]
    async fn v1_fix_removes_stale_taints_once_the_kubelet_is_back_and_ends() {
        let (_root, topic_root, sim) = after_an_outage().await;
        let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
        let clock = Clock::new();
        // While it is away nothing is touched, and the limit ends it.
        assert_eq!(once(&topic_root, &cluster, clock, Duration::from_mins(5), |_| ()).await, Ok(false));
        assert_eq!(taints(&sim), TAINTED.len());
        sim.power("n1", true);
        let began = clock.now();
        assert_eq!(once(&topic_root, &cluster, clock, Duration::from_mins(15), |_| ()).await, Ok(true));
        let took = clock.now().since(began);
        assert_eq!(taints(&sim), 0);
        assert!(took >= Duration::from_mins(1) && took < Duration::from_mins(5), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn v1_fix_deletes_pods_of_the_former_boot_but_none_whose_container_lives() {
        let (root, topic_root, sim) = after_an_outage().await;
        sim.power("n1", true);
        for name in ["web", "db"] {
            sim.add_bare_pod("shop", name, "n1");
        }
        sim.until("pods", |all| all.len() == 2 && all.iter().all(|it| it["status"]["phase"] == "Running"))
            .await;
        for name in ["web", "db"] {
            sim.leave_behind("shop", name, true);
        }
        let names = || sim.list("pods").iter().map(|it| it["metadata"]["name"].clone()).collect::<Vec<_>>();
        let lives = sim.get("pods", "shop", "db").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
        let socket = root.path().join(agent::runtime::SOCKETS[1]);
        let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
        let (clock, limit) = (Clock::new(), Duration::from_mins(5));
        // Without a word of the runtime nothing is deleted.
        assert_eq!(once(&topic_root, &cluster, clock, limit, |_| ()).await, Ok(false));
        assert_eq!(names(), ["db", "web"]);
        {
            let list = move || RuntimeReply::Pods(vec![pod(&lives, true)]);
            let _runtime = serve(&socket, list).unwrap();
            assert_eq!(once(&topic_root, &cluster, clock, limit, |_| ()).await, Ok(false));
            assert_eq!(names(), ["db"]);
        }
        std::fs::remove_file(&socket).unwrap();
        sim.add_bare_pod("shop", "known", "n1");
        sim.until("pods", |all| {
            all.iter().any(|it| it["metadata"]["name"] == "known" && it["status"]["phase"] == "Running")
        })
        .await;
        let live = sim.clone();
        let list =
            move || RuntimeReply::Pods(live.live_pods("n1").iter().map(|uid| pod(uid, true)).collect());
        let _runtime = serve(&socket, list).unwrap();
        assert_eq!(once(&topic_root, &cluster, clock, limit, |_| ()).await, Ok(true));
        assert_eq!(names(), ["known"]);
    }

    #[tokio::test(start_paused = true)]
    async fn t10_fix_leaves_a_node_alone_that_another_machine_or_device_reports_and_names_both() {
        let (root, topic_root, sim) = after_an_outage().await;
        sim.power("n1", true);
        store::replace(&root.path().join("etc/machine-id"), b"machine-here").unwrap();
        let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
        let refused = async || {
            let limit = Duration::from_mins(15);
            let refused = once(&topic_root, &cluster, Clock::new(), limit, |it| panic!("{it}")).await;
            assert_eq!(taints(&sim), TAINTED.len());
            refused.unwrap_err()
        };
        sim.edit("nodes", "", "n1", |node| {
            node["status"]["nodeInfo"]["bootID"] = "boot-there".into();
            node["status"]["nodeInfo"]["machineID"] = "machine-there".into();
        });
        let why = refused().await;
        for word in ["node n1", "machineID machine-there", "machineID machine-here"] {
            assert!(why.contains(word), "{why}");
        }
        sim.edit("nodes", "", "n1", |node| node["metadata"]["labels"]["node-uuid"] = "there".into());
        let why = refused().await;
        assert!(why.contains("there") && why.contains("node-uuid"), "{why}");
    }

    #[tokio::test]
    async fn v1_fix_is_for_a_node_alone() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let cluster = ApiClient::from_kubeconfig(root.path().join("none"));
        let refused =
            once(&topic_root, &cluster, Clock::new(), Duration::from_mins(1), |_| ()).await.unwrap_err();
        assert!(refused.contains("type the command on the node"), "{refused}");
    }
}
