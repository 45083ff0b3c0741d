//! A cluster behind a port, and a node whose kubeconfig leads there.

use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use kubesim::{Sim, SimConfig, SimServer};
use serde_json::Value;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::drain_cmd::node::Node;

/// A cluster behind a port, and a node whose kubeconfig names it.
pub(crate) struct Place {
    pub(crate) sim: Sim,
    pub(crate) node: Node,
    pub(crate) server: Arc<SimServer>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Place {
    /// Made by `seed`, once all nodes and `pods` pods are Ready.
    pub(crate) fn new(pods: usize, seed: impl FnOnce(&Sim) + Send + 'static) -> Self {
        Self::served("drain-5-cordoned", pods, seed, None)
    }

    /// The same for a node in no cluster.
    pub(crate) fn without_cluster_section(pods: usize, seed: impl FnOnce(&Sim) + Send + 'static) -> Self {
        Self::served("single-node", pods, seed, None)
    }

    /// Over TLS, with a certificate valid between these times.
    pub(crate) fn over_tls(
        pods: usize,
        seed: impl FnOnce(&Sim) + Send + 'static,
        dates: Range<SystemTime>,
    ) -> Self {
        Self::served("drain-5-cordoned", pods, seed, Some(dates))
    }

    pub(crate) fn by_settings_file(self) -> Self {
        self.node.put("good.yaml", &self.server.kubeconfig());
        let named = self.node.path("good.yaml");
        self.node.put("etc/zedbox/zedbox.toml", &format!("kubeconfig = \"{}\"\n", named.display()));
        std::fs::remove_file(self.node.path("run/.kube/k3s/k3s.yaml")).unwrap();
        self
    }

    /// No drain starts but in one minute of four years.
    pub(crate) fn windows_on_leap_days(&self) {
        self.node.put("run/systemd/timesync/synchronized", "");
        self.node.put("etc/zedbox/zedbox.toml", "limits = \"/limits.json\"\n");
        let window = r#"{"start":"0 0 29 2 *","zone":"UTC","minutes":1}"#;
        self.node.put("limits.json", &format!(r#"{{"zedkube":{{"windows":[{window}]}}}}"#));
    }

    /// Of the Node `node`, without a look at the agents.
    pub(crate) fn cordon(&self, node: &str, on: bool) {
        self.sim.edit("nodes", "", node, |it| it["spec"]["unschedulable"] = on.into());
    }

    pub(crate) fn annotate(&self, node: &str, name: &str, text: &str) {
        self.sim.edit("nodes", "", node, |it| it["metadata"]["annotations"][name] = text.into());
    }

    /// Methods and paths of requests that write.
    pub(crate) fn written(&self) -> Vec<(String, String)> {
        let seen = self.sim.faults().requests().into_iter();
        seen.filter(|it| it.method != "GET").map(|it| (it.method, it.uri)).collect()
    }

    fn served(
        tree: &str,
        pods: usize,
        seed: impl FnOnce(&Sim) + Send + 'static,
        dates: Option<Range<SystemTime>>,
    ) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let sim = Sim::new(SimConfig::default());
                seed(&sim);
                let ready = |object: &Value| {
                    let conditions = object["status"]["conditions"].as_array();
                    conditions.is_some_and(|all| {
                        all.iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
                    })
                };
                sim.until("nodes", |nodes| nodes.iter().all(ready)).await;
                sim.until("pods", |all| all.len() == pods && all.iter().all(ready)).await;
                let server = match dates {
                    None => sim.serve().await,
                    Some(dates) => sim.serve_tls(dates).await,
                };
                tell.send((sim, Arc::new(server.unwrap()))).unwrap();
                // The sender never sends: its drop is the end.
                drop(stopped.await);
            });
        });
        let (sim, server) = told.recv().unwrap();
        let node = Node::of(tree);
        node.put("run/.kube/k3s/k3s.yaml", &server.kubeconfig());
        Self { sim, node, server, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
