//! A cluster of one node and one namespace in the hand: pods, budgets and watches behind the mock.
//!
//! Not here: replies word for word (`mock` scripts those) and what real controllers do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use kubeapi::ApiClient;
use kubeapi::mock::{self, MockReply, RecordedCall, RecordedCalls};
use kubeapi::names::OWNER_ANNOTATION;

pub(crate) const PODS: &str = "/api/v1/pods";
pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const BUDGETS: &str = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets";

/// How the kubelet of the fake ends pods.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kubelet {
    Quick,
    /// Not before [`World::finish`].
    Slow,
}

/// Something that happens to the world.
pub(crate) type WorldChange = fn(&mut World);

struct Watcher {
    path: &'static str,
    to: mpsc::UnboundedSender<Result<String, &'static str>>,
}

pub(crate) struct World {
    pub(crate) pods: Vec<Value>,
    pub(crate) budgets: Vec<Value>,
    pub(crate) unschedulable: bool,
    pub(crate) annotation: Option<String>,
    pub(crate) kubelet: Kubelet,
    /// Answers to the next calls with the text in their line, in place of the world's own.
    pub(crate) instead: VecDeque<(&'static str, MockReply)>,
    /// A change made when the next call with the text in its line has been answered.
    pub(crate) then: VecDeque<(&'static str, WorldChange)>,
    version: u64,
    /// What was sent to watches: path, version, line. It is sent again to a watch that opens late.
    history: Vec<(&'static str, u64, String)>,
    watchers: Vec<Watcher>,
}

/// A handle on the world while the cluster uses it.
#[derive(Clone)]
pub(crate) struct FakeCluster(Arc<Mutex<World>>);

impl FakeCluster {
    /// A node that we have cordoned, with these pods.
    pub(crate) fn new(pods: Vec<Value>) -> (Self, ApiClient, RecordedCalls) {
        let world = World {
            pods,
            budgets: vec![],
            unschedulable: true,
            annotation: Some(json!({"bootId": "b1", "requestedBy": 2, "requestedAt": "t"}).to_string()),
            kubelet: Kubelet::Quick,
            instead: VecDeque::new(),
            then: VecDeque::new(),
            version: 10,
            history: vec![],
            watchers: vec![],
        };
        let fake = Self(Arc::new(Mutex::new(world)));
        let served = fake.clone();
        let (cluster, calls) = mock::server(move |call| served.world().serve(call));
        (fake, cluster, calls)
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }
}

/// A running pod with the label `app=web`.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "shop", "name": name, "uid": format!("uid-{name}"), "labels": {"app": "web"},
            "resourceVersion": "1",
        },
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

pub(crate) fn owned(name: &str, kind: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": kind, "name": "set", "uid": "uid-set", "controller": true}]);
    pod
}

/// A budget on all pods with the label `app=web`.
pub(crate) fn budget(name: &str, healthy: i64, desired: i64) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"namespace": "shop", "name": name, "resourceVersion": "1"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {
            "disruptionsAllowed": healthy - desired, "currentHealthy": healthy, "desiredHealthy": desired,
            "expectedPods": healthy,
        },
    })
}

impl World {
    fn serve(&mut self, call: &RecordedCall) -> MockReply {
        let line = call.line.as_str();
        let answer = match self.instead.iter().position(|(text, _)| line.contains(text)) {
            Some(place) => self.instead.remove(place).map_or(MockReply::Silence, |(_, answer)| answer),
            None => self.answer(line, &call.body),
        };
        if let Some(place) = self.then.iter().position(|(text, _)| line.contains(text))
            && let Some((_, change)) = self.then.remove(place)
        {
            change(self);
        }
        answer
    }

    fn answer(&mut self, line: &str, body: &str) -> MockReply {
        let path = [PODS, NODES, BUDGETS].into_iter().find(|path| line.starts_with(&format!("GET {path}?")));
        if let Some(path) = path.filter(|_| line.contains("watch=true")) {
            let from =
                line.split("resourceVersion=").nth(1).and_then(|text| text.parse::<u64>().ok()).unwrap();
            let (to, lines) = mpsc::unbounded_channel();
            for (_, _, line) in self.history.iter().filter(|(of, version, _)| *of == path && *version > from)
            {
                drop(to.send(Ok(line.clone())));
            }
            self.watchers.push(Watcher { path, to });
            return MockReply::Live(lines);
        }
        let version = self.version.to_string();
        match path {
            Some(PODS) => mock::list(&version, &self.pods),
            Some(NODES) => mock::list(&version, &[self.node()]),
            Some(_) => mock::list(&version, &self.budgets),
            None if line.starts_with("GET /api/v1/nodes/") => mock::object(&self.node()),
            None if line.starts_with("PATCH /api/v1/nodes/") => self.patch_node(body),
            // What hinders budgets; nothing does.
            None if line.starts_with("GET /api/v1/namespaces/shop/pods?") => mock::list(&version, &[]),
            None if line.contains("/daemonsets/") => {
                mock::object(&json!({"metadata": {"name": "set", "uid": "uid-set"}}))
            }
            None if line.ends_with("/eviction?") => self.evict(body),
            None => mock::status(404, line),
        }
    }

    fn node(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": "n1", "resourceVersion": self.version.to_string(), "labels": { "node-uuid": "d1" },
                "annotations": self.annotation.as_ref().map(|text| json!({ OWNER_ANNOTATION: text })),
            },
            "spec": {"unschedulable": self.unschedulable},
        })
    }

    fn patch_node(&mut self, body: &str) -> MockReply {
        let body: Value = serde_json::from_str(body).unwrap();
        self.annotation = body["metadata"]["annotations"][OWNER_ANNOTATION].as_str().map(str::to_owned);
        self.cordoned(true);
        mock::object(&self.node())
    }

    pub(crate) fn cordoned(&mut self, unschedulable: bool) {
        self.unschedulable = unschedulable;
        self.version += 1;
        let node = self.node();
        self.notify_watches(NODES, "MODIFIED", node);
    }

    fn evict(&mut self, body: &str) -> MockReply {
        let order: Value = serde_json::from_str(body).unwrap();
        let name = order["metadata"]["name"].clone();
        let Some(place) = self.pods.iter().position(|pod| pod["metadata"]["name"] == name) else {
            return mock::status(404, &format!("pods {name} not found"));
        };
        if self.pods[place]["metadata"]["uid"] != order["deleteOptions"]["preconditions"]["uid"] {
            return mock::status(409, "the UID in the precondition (x) does not match the UID in record (y)");
        }
        let guarded = self.pods[place]["metadata"]["labels"]["app"] == "web";
        let full = |budget: &&Value| budget["status"]["disruptionsAllowed"].as_i64() <= Some(0);
        if guarded && self.budgets.iter().any(|budget| full(&budget)) {
            let causes =
                json!([{"reason": "DisruptionBudget", "message": "The disruption budget web is full"}]);
            let body =
                json!({"kind": "Status", "message": "Cannot evict pod", "details": {"causes": causes}});
            return MockReply::Full(429, vec![], body.to_string());
        }
        if guarded {
            self.count_healthy(-1);
        }
        self.delete(place);
        mock::status(201, "")
    }

    fn delete(&mut self, place: usize) {
        self.version += 1;
        self.pods[place]["metadata"]["deletionTimestamp"] = json!("2025-01-01T00:00:00Z");
        let pod = self.pods[place].clone();
        self.notify_watches(PODS, "MODIFIED", pod);
        if self.kubelet == Kubelet::Quick {
            self.finish();
        }
    }

    /// The kubelet is done with every pod that is ending.
    pub(crate) fn finish(&mut self) {
        let (ended, left) =
            self.pods.drain(..).partition(|pod| pod["metadata"].get("deletionTimestamp").is_some());
        self.pods = left;
        let ended: Vec<Value> = ended;
        for pod in ended {
            self.version += 1;
            self.notify_watches(PODS, "DELETED", pod);
        }
    }

    /// A pod is bound to the node.
    pub(crate) fn bind(&mut self, pod: Value) {
        self.version += 1;
        self.pods.push(pod.clone());
        self.notify_watches(PODS, "ADDED", pod);
    }

    /// So many pods more are healthy for every budget.
    pub(crate) fn count_healthy(&mut self, more: i64) {
        for place in 0..self.budgets.len() {
            self.version += 1;
            let name = self.budgets[place]["metadata"]["name"].as_str().unwrap().to_owned();
            let status = &self.budgets[place]["status"];
            let healthy = status["currentHealthy"].as_i64().unwrap() + more;
            let changed = budget(&name, healthy, status["desiredHealthy"].as_i64().unwrap());
            self.budgets[place] = changed.clone();
            self.notify_watches(BUDGETS, "MODIFIED", changed);
        }
    }

    /// Every open watch is cut.
    pub(crate) fn cut(&mut self) {
        for watcher in self.watchers.drain(..) {
            drop(watcher.to.send(Err("connection reset by peer")));
        }
    }

    /// Every open watch is answered that its version is too old.
    pub(crate) fn expire(&mut self) {
        let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
        for watcher in self.watchers.drain(..) {
            drop(watcher.to.send(Ok(mock::event("ERROR", &gone))));
        }
    }

    /// Every open watch stays open, and nothing more is sent to it.
    pub(crate) fn fall_silent(&mut self) {
        for watcher in self.watchers.drain(..) {
            std::mem::forget(watcher.to);
        }
    }

    /// Tells all watches of the newest version.
    fn notify_watches(&mut self, path: &'static str, kind: &str, mut object: Value) {
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let line = mock::event(kind, &object);
        self.history.push((path, self.version, line.clone()));
        self.watchers.retain(|watcher| watcher.path != path || watcher.to.send(Ok(line.clone())).is_ok());
    }
}
