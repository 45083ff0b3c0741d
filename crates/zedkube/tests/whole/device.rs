//! A device in a temporary root with a two-node cluster, on which zedkube is started, killed and spoken to.
//!
//! Files are heard of through the kernel, which knows nothing of the test's clock. So the clock is held while a
//! file changes, until a mark that was written after it has been heard of: the kernel reports in order, and to
//! all followers of a TopicRoot through one thread.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use agent::{AgentContext, Clock, Stopper};
use kube::Client;
use kubesim::{ScriptedFault, Sim, SimConfig};
use pubsub::{FileRule, FileState, TopicRoot, store};
use serde_json::{Value, json};
use step::Mono;
use tempfile::TempDir;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use topics::{
    ConfigItemValue, ConfigItemValueMap, DrainStatus, GoTime, NodeDrainProgress, NodeDrainRequest,
    NodeDrainStatus, Requester, go_json,
};
use tracing::subscriber::DefaultGuard;
use zedkube::Limits;

use crate::diary::Diary;

pub(crate) const DEVICE: &str = "11111111-1111-4111-8111-111111111111";
pub(crate) const US: Requester = Requester::DeviceOp;
pub(crate) const STATUS: &str = "run/zedkube/NodeDrainStatus/global.json";
const CLUSTER: &str = "run/zedagent/EdgeNodeClusterConfig/global.json";
pub(crate) const DECISION: &str = "run/zedagent/ClusterDecision/global.json";
const BUDGETS: &str = "policy/poddisruptionbudgets";
/// What is refused is met by the attempts that most tests are about; the preflight and what the Node shows have tests of their
/// own.
pub(crate) fn limits() -> Limits {
    Limits { preflight: false, node_report: false, ..Limits::default() }
}

/// What does not come within this time of the paused clock does not come.
const PATIENCE: Duration = Duration::from_hours(48);

/// While it lives, the paused clock stands still whoever waits: work outside the runtime holds it.
struct Still {
    _end: mpsc::Sender<()>,
}

impl Still {
    fn hold() -> Self {
        let (end, ended) = mpsc::channel::<()>();
        // It is never waited for: it ends with the sender.
        drop(tokio::task::spawn_blocking(move || ended.recv().is_err()));
        Self { _end: end }
    }
}

pub(crate) struct Device {
    root: Arc<TempDir>,
    pub(crate) topic_root: TopicRoot,
    pub(crate) clock: Clock,
    pub(crate) sim: Sim,
    pub(crate) diary: Arc<Diary>,
    _ear: DefaultGuard,
    boot: String,
    pub(crate) limits: Limits,
    agent: Option<(Stopper, JoinSet<()>, AbortHandle)>,
    marks: u32,
}

impl Device {
    /// A member of a cluster whose pods run; zedkube does not.
    pub(crate) async fn new() -> Self {
        // In memory where there is some: each change of a file waits for the disk otherwise.
        let root = Arc::new(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap());
        let topic_root = TopicRoot::open(root.path()).unwrap();
        // Right, and a test may set it.
        let clock = Clock::new().off_by(0);
        let (diary, ear) = Diary::open(clock, topic_root.path(STATUS));
        let sim = Sim::new(SimConfig { stale_taints: true, ..SimConfig::default() });
        for (name, uuid) in [("n1", DEVICE), ("n2", "22222222-2222-4222-8222-222222222222")] {
            sim.add_node(name, uuid);
        }
        sim.add_deployment("shop", "web", 2);
        sim.add_budget("shop", "web", "web", &json!({ "minAvailable": 1 }));
        sim.add_daemon_set("kube-system", "log-agent");
        running(&sim, 4).await;
        sim.add_bare_pod("tools", "shell", "n1");
        running(&sim, 5).await;
        let device = Self {
            root,
            topic_root,
            clock,
            sim,
            diary,
            _ear: ear,
            boot: "b1".to_owned(),
            limits: limits(),
            agent: None,
            marks: 0,
        };
        let topics = "run/zedagent/NodeDrainRequest run/baseosmgr/NodeDrainRequest run/zedagent/ClusterDecision \
            run/zedagent/EdgeNodeClusterConfig run/zedagent/EdgeNodeInfo run/zedagent/ConfigItemValueMap \
            run/zedagent/ZedAgentStatus tmp dev marks";
        for folder in topics.split(' ') {
            std::fs::create_dir_all(device.topic_root.path(folder)).unwrap();
        }
        device.write("dev/kmsg", "");
        device.member(true);
        let info = json!({ "DeviceName": "N1", "DeviceID": DEVICE }).to_string();
        device.write("run/zedagent/EdgeNodeInfo/global.json", &info);
        device
    }

    pub(crate) fn worker(&self) {
        let is_role = |it: &String| it.starts_with("node-role.kubernetes.io/");
        self.sim.edit("nodes", "", "n1", |node| {
            node["metadata"]["labels"].as_object_mut().unwrap().retain(|name, _| !is_role(name));
        });
    }

    /// The device in a cluster, zedkube at rest.
    pub(crate) async fn idle() -> Self {
        let mut device = Self::new().await;
        device.start().await;
        assert_eq!(device.status(), status(2, 1));
        device
    }

    /// Asks for a drain that a budget holds, up to its cordon.
    pub(crate) async fn ask_blocked(&mut self, who: Requester) {
        self.block(true);
        self.ask(who, 1).await;
        self.until(DrainStatus::Cordoned, who, 1).await;
    }

    pub(crate) fn now(&self) -> Mono {
        self.clock.now()
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        store::replace(&self.topic_root.path(path), text.as_bytes()).unwrap();
    }

    /// How zedagent fetched its config last.
    pub(crate) fn fetched(&self, status: u8) {
        let text = json!({ "ConfigGetStatus": status }).to_string();
        self.write("run/zedagent/ZedAgentStatus/zedagent.json", &text);
    }

    pub(crate) fn remove(&self, path: &str) {
        assert!(store::remove(&self.topic_root.path(path)).unwrap(), "{path} was not there");
    }

    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let bytes = store::read(&self.topic_root.path(path), 1 << 20).unwrap()?;
        Some(String::from_utf8(bytes).unwrap())
    }

    /// What our zedagent says of a config with a cluster section, or without one.
    pub(crate) fn member(&self, valid: bool) {
        let decided = if valid { "member" } else { "no-cluster" };
        self.write(DECISION, &json!({ "Membership": decided }).to_string());
        self.valid(valid);
    }

    pub(crate) fn valid(&self, valid: bool) {
        self.write(CLUSTER, &json!({ "Initialized": true, "Valid": valid }).to_string());
    }

    /// Changes files. The agent has heard of it, and is at rest, when this returns; no other time has passed.
    pub(crate) async fn change(&mut self, change: impl FnOnce(&Self)) {
        let still = Still::hold();
        self.marks += 1;
        let mark = self.topic_root.path(&format!("marks/{}", self.marks));
        let mut watch = self.topic_root.file(&mark, FileRule { limit_bytes: 16, order: false });
        assert_eq!(watch.next().await, FileState::Absent);
        change(self);
        store::replace(&mark, b"heard").unwrap();
        assert_eq!(watch.next().await, FileState::Present(b"heard".to_vec()));
        drop(still);
        self.rest().await;
    }

    /// Returns when nothing is left to do: only then does the paused clock move, here by its smallest step.
    pub(crate) async fn rest(&mut self) {
        self.pass(Duration::from_millis(1)).await;
    }

    pub(crate) async fn pass(&mut self, time: Duration) {
        self.clock.sleep_until(Some(self.clock.now() + time)).await;
        if let Some((_, task, _)) = &mut self.agent
            && let Some(ended) = task.try_join_next()
        {
            was_killed(&ended);
            self.agent = None;
        }
    }

    pub(crate) async fn start(&mut self) {
        let (stopper, context) = AgentContext::alone(&self.topic_root, self.clock, &self.boot);
        let cluster = kubeapi::ApiClient::from_client(Client::new(self.sim.service(), "default"));
        let mut task = JoinSet::new();
        let (limits, root) = (self.limits.clone(), self.root.clone());
        let killer = task.spawn(async move {
            let _root = root;
            zedkube::run(context, limits, cluster).await.unwrap();
        });
        self.agent = Some((stopper, task, killer));
        self.rest().await;
    }

    /// Ends zedkube at once, as a kill would: nothing is tidied up.
    pub(crate) async fn kill(&mut self) {
        self.agent.as_ref().unwrap().2.abort();
        self.killed().await;
    }

    pub(crate) async fn restart(&mut self) {
        self.kill().await;
        self.start().await;
    }

    pub(crate) async fn start_for(&mut self, time: Duration) {
        self.start().await;
        self.pass(time).await;
    }

    /// Tells zedkube to leave, and waits until it has.
    pub(crate) async fn leave(&mut self) {
        let (stopper, mut task, _) = self.agent.take().unwrap();
        stopper.stop();
        task.join_next().await.unwrap().unwrap();
    }

    /// What the machine does on a reboot: no status, no request, another boot. zedkube does not run.
    pub(crate) fn reboot(&mut self) {
        assert!(self.agent.is_none());
        let volatile = [
            STATUS,
            "run/zedkube/NodeDrainProgress/global.json",
            "run/zedkube/EdgeNodeClusterStatus/global.json",
            request_file(Requester::DeviceOp),
            request_file(Requester::Update),
        ];
        drop(store::remove(&self.topic_root.path(request_file(Requester::Operator))));
        for file in volatile {
            store::remove(&self.topic_root.path(file)).unwrap();
        }
        self.boot.push('+');
    }

    /// Kills zedkube in the very turn in which it says the `nth` line, from 1, that holds `text`: it is ended as
    /// by a kill, and nothing is tidied up.
    pub(crate) fn kill_at(&self, text: &str, nth: usize) {
        let (.., killer) = self.agent.as_ref().unwrap();
        let killer = killer.clone();
        self.diary.at(text, nth, move || killer.abort());
    }

    pub(crate) async fn killed(&mut self) {
        let Some((_stopper, mut task, _)) = self.agent.take() else { return };
        let late = self.clock.sleep_until(Some(self.clock.now() + PATIENCE));
        tokio::select! {
            Some(ended) = task.join_next() => was_killed(&ended),
            () = late => panic!("the line to kill at was not said\n{:#?}", self.diary.lines()),
        }
    }

    pub(crate) fn an_hour_an_attempt(&self) {
        let map = ConfigItemValueMap::of([ConfigItemValue::number("kubernetes.drain.timeout", 1)]);
        let text = String::from_utf8(go_json::to_vec(&map).unwrap()).unwrap();
        self.write("run/zedagent/ConfigItemValueMap/global.json", &text);
    }

    pub(crate) fn progress(&self) -> NodeDrainProgress {
        let text = self.text("run/zedkube/NodeDrainProgress/global.json").unwrap();
        go_json::from_slice(text.as_bytes()).unwrap()
    }

    /// Asks for a drain; `number` tells one request from the next.
    pub(crate) async fn ask(&mut self, by: Requester, number: u64) {
        self.change(|device| device.request(by, number)).await;
    }

    /// The same for a reboot, until the drain is complete.
    pub(crate) async fn drained(&mut self, number: u64) {
        self.ask(Requester::DeviceOp, number).await;
        self.until(DrainStatus::Complete, Requester::DeviceOp, usize::try_from(number).unwrap()).await;
    }

    pub(crate) fn request(&self, by: Requester, number: u64) {
        let at: GoTime = "2026-03-14T09:26:53Z".parse().unwrap();
        let request = NodeDrainRequest {
            requested_at: at.plus(Duration::from_secs(number)),
            requested_by: by,
            context: "reboot".to_owned(),
        };
        let bytes = go_json::to_vec(&request).unwrap();
        store::replace(&self.topic_root.path(request_file(by)), &bytes).unwrap();
    }

    pub(crate) async fn withdraw(&mut self, by: Requester) {
        self.change(|device| device.remove(request_file(by))).await;
    }

    pub(crate) fn status(&self) -> String {
        self.text(STATUS).unwrap_or_default()
    }

    /// Waits until this status is said for the `count`th time, however long that takes.
    pub(crate) async fn until(&mut self, status: DrainStatus, by: Requester, count: usize) {
        let wanted = NodeDrainStatus { status, requested_by: by };
        self.until_line(&format!(" to {wanted}"), count).await;
    }

    /// Waits until `count` lines of the log hold `text`.
    pub(crate) async fn until_line(&mut self, text: &str, count: usize) {
        let late = self.clock.sleep_until(Some(self.clock.now() + PATIENCE));
        tokio::select! {
            () = self.diary.until(text, count) => {}
            () = late => panic!("waited for {count} x {text}\n{:#?}", self.diary.lines()),
        }
    }

    fn node(&self) -> Value {
        self.sim.get("nodes", "", "n1").unwrap()
    }

    pub(crate) fn cordoned(&self) -> bool {
        self.node()["spec"]["unschedulable"] == true
    }

    pub(crate) fn owner(&self) -> Option<String> {
        self.node()["metadata"]["annotations"]["pillar-rs/cordon-owner"].as_str().map(str::to_owned)
    }

    /// Somebody cordons the node with kubectl, which the server remembers.
    pub(crate) fn cordon_by_hand(&self) {
        self.edit_node(|node| {
            node["spec"]["unschedulable"] = true.into();
            node["metadata"]["managedFields"] = json!([{
                "manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": { "f:spec": { "f:unschedulable": {} } },
            }]);
        });
    }

    pub(crate) fn uncordon_by_hand(&self) {
        self.edit_node(|node| node["spec"]["unschedulable"] = Value::Null);
        self.forget_writers();
    }

    pub(crate) fn forget_writers(&self) {
        self.edit_node(|node| node["metadata"]["managedFields"] = Value::Null);
    }

    fn edit_node(&self, change: impl FnOnce(&mut Value)) {
        assert!(self.sim.edit("nodes", "", "n1", change));
    }

    /// No request comes through to our node, or all do again.
    pub(crate) fn offline(&self, away: bool) {
        if away {
            self.sim.faults().script("GET", "/api/v1/nodes/n1", u32::MAX, ScriptedFault::Cut);
        } else {
            self.sim.faults().clear();
        }
    }

    /// Every call to the API server meets this from now on.
    pub(crate) fn all_calls(&self, fault: &ScriptedFault) {
        for method in ["GET", "POST", "PATCH", "DELETE", "PUT"] {
            self.sim.faults().script(method, "/", u32::MAX, fault.clone());
        }
    }

    /// The Lease of turns, as an annotation has who holds one.
    pub(crate) fn turns(&self) -> Option<String> {
        let lease = self.sim.get("coordination/leases", "eve-kube-app", "pillar-rs-outage")?;
        lease["metadata"]["annotations"]["pillar-rs/outage-holders"].as_str().map(str::to_owned)
    }

    /// The other node, a server, has its turn to be down.
    pub(crate) fn other_is_down(&self) {
        let uid = self.sim.get("nodes", "", "n2").unwrap()["metadata"]["uid"].clone();
        let holders = json!([{ "node": "n2", "nodeUID": uid, "op": "reboot", "fence": 4,
            "phase": "going-down", "server": true }]);
        let annotations =
            json!({ "pillar-rs/outage-holders": holders.to_string(), "pillar-rs/outage-version": "1" });
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": { "leaseTransitions": 4 },
            "metadata": { "namespace": "eve-kube-app", "name": "pillar-rs-outage", "annotations": annotations },
        });
        self.sim.apply("coordination/leases", lease);
    }

    /// Every write to our node fails, `times` times.
    pub(crate) fn cordon_failures(&self, times: u32) {
        self.sim.faults().script("PATCH", "/api/v1/nodes/n1", times, ScriptedFault::status(503, "Busy"));
    }

    /// The bare pod may not be evicted, `times` times: so often an attempt fails.
    pub(crate) fn refusals(&self, times: u32) {
        self.sim.faults().script(
            "POST",
            "/pods/shell/eviction",
            times,
            ScriptedFault::recorded("eviction-without-role").unwrap(),
        );
    }

    /// No pod of the Deployment may go, or one.
    pub(crate) fn block(&self, on: bool) {
        let least = if on { 2 } else { 1 };
        self.sim.edit(BUDGETS, "shop", "web", |budget| budget["spec"]["minAvailable"] = least.into());
    }

    pub(crate) fn pods_to_leave(&self) -> Vec<String> {
        let leaves = |pod: &&Value| {
            pod["spec"]["nodeName"] == "n1" && pod["metadata"]["ownerReferences"][0]["kind"] != "DaemonSet"
        };
        self.sim.list("pods").iter().filter(leaves).map(|pod| pod["metadata"]["name"].to_string()).collect()
    }
}

fn was_killed(ended: &Result<(), JoinError>) {
    let killed = ended.as_ref().is_err_and(JoinError::is_cancelled);
    assert!(killed, "zedkube ended by itself: {ended:?}");
}

pub(crate) fn request_file(by: Requester) -> &'static str {
    match by {
        Requester::Update => "run/baseosmgr/NodeDrainRequest/global.json",
        Requester::Operator => "run/zedbox/NodeDrainRequest/global.json",
        Requester::NodeMaintenance => "run/nodemaintenance/NodeDrainRequest/global.json",
        Requester::K3sUpdate => "run/zedkube/NodeDrainRequest/global.json",
        Requester::Unset | Requester::None | Requester::DeviceOp | Requester::Stranger(_) => {
            "run/zedagent/NodeDrainRequest/global.json"
        }
    }
}

pub(crate) fn status(status: u8, by: u8) -> String {
    format!(r#"{{"Status":{status},"RequestedBy":{by}}}"#)
}

async fn running(sim: &Sim, count: usize) {
    let ready = |pod: &Value| pod["status"]["conditions"][0]["status"] == "True";
    sim.until("pods", |pods| pods.len() == count && pods.iter().all(ready)).await;
}
