//! The API server of a case in a process of its own, and what a drain of its node took.

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use kubesim::{Sim, SimConfig};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncBufReadExt as _;

use crate::case::{Case, DEVICE, NAMESPACE, NODE, OTHER, START, STOP, Way};
use crate::process::{OtherProcess, number, said};

/// What one drain took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) secs: f64,
    /// Of them on a processor; what a busy machine leaves as it is.
    pub(crate) cpu_secs: f64,
    /// As the server counts them; a real one is not asked.
    pub(crate) requests: Option<usize>,
    /// The most that was resident at a time, in MiB.
    pub(crate) peak_mib: f64,
    /// What of it is the process's own at the end, in MiB, without the program's text.
    pub(crate) own_mib: f64,
}

impl fmt::Display for Sample {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { secs, cpu_secs, requests, peak_mib, own_mib } = self;
        let requests = requests.map_or("uncounted".to_owned(), |it| it.to_string());
        write!(
            out,
            "{secs:.2} s, {cpu_secs:.2} s on a processor, {requests} requests, {peak_mib:.1} MiB resident, {own_mib:.1} MiB of its own"
        )
    }
}

fn role(role: &str, case: Case, file: &Path) -> OtherProcess {
    OtherProcess::start(&[&format!("--as-{role}"), &case.name, &file])
}

/// The API server of a case, ready to be drained.
pub(crate) struct Server {
    role: OtherProcess,
    case: Case,
    kubeconfig: PathBuf,
    _folder: TempDir,
}

impl Server {
    /// The embedded one, or what a case needs on the one of this kubeconfig.
    pub(crate) fn start(case: Case, real: Option<&Path>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (name, kubeconfig) = match real {
            Some(file) => ("real", file.to_owned()),
            None => ("server", folder.path().join("kubeconfig")),
        };
        let mut role = role(name, case, &kubeconfig);
        assert_eq!(role.line(), "ready");
        Self { role, case, kubeconfig, _folder: folder }
    }

    pub(crate) fn drained_by(&self, way: Way) -> Sample {
        let name = match way {
            Way::Floor => "floor",
            Way::Ours => "ours",
        };
        let line = role(name, self.case, &self.kubeconfig).line();
        let numbers: Vec<f64> = line.split(' ').map(|it| it.parse().unwrap()).collect();
        let [secs, cpu_secs, peak_mib, own_mib] = numbers[..] else { unreachable!("{line}") };
        Sample { secs, cpu_secs, requests: None, peak_mib, own_mib }
    }

    /// Whether the node is empty and how often the server was asked; the server is gone then.
    pub(crate) fn end(mut self) -> Option<usize> {
        writeln!(self.role.child.stdin.as_mut().unwrap()).unwrap();
        let said = self.role.line();
        let (left, requests) = said.split_once(' ').unwrap();
        assert_eq!(left, "0", "pods are left on the node");
        assert_eq!(self.role.line(), "removed");
        requests.parse().ok()
    }
}

/// Plays the server: serves the case, writes the kubeconfig, and writes at the end what was asked.
pub(crate) async fn serve(case: Case, file: &Path) {
    let config = SimConfig { start_time: START, stop_time: STOP, history: 100_000, ..SimConfig::default() };
    let sim = Sim::new(config);
    let is_ready = |object: &Value| object["status"]["conditions"][0]["status"] == "True";
    sim.add_node(NODE, DEVICE);
    sim.until("nodes", |nodes| nodes.iter().all(is_ready)).await;
    if case.guarded {
        sim.add_deployment(NAMESPACE, "web", case.pods as u64);
        sim.add_budget(NAMESPACE, "web", "web", &json!({ "maxUnavailable": 1 }));
    } else {
        for number in 0..case.pods {
            sim.add_bare_pod(NAMESPACE, &format!("pod-{number}"), NODE);
        }
    }
    sim.until("pods", |pods| pods.len() == case.pods && pods.iter().all(is_ready)).await;
    sim.add_node(OTHER, "another");
    sim.until("nodes", |nodes| nodes.iter().all(is_ready)).await;
    sim.edit("nodes", "", NODE, |node| node["spec"]["unschedulable"] = true.into());
    let cordoned = |node: &Value| node["metadata"]["name"] == NODE && !node["spec"]["taints"].is_null();
    sim.until("nodes", |nodes| nodes.iter().any(cordoned)).await;
    let server = sim.serve().await.unwrap();
    std::fs::File::create(file).unwrap().write_all(server.kubeconfig().as_bytes()).unwrap();
    said("ready");
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    lines.next_line().await.unwrap();
    let left = sim.list("pods").iter().filter(|pod| pod["spec"]["nodeName"] == NODE).count();
    said(format_args!("{left} {}", sim.faults().requests().len()));
    said("removed");
}

/// Writes what this process took.
pub(crate) fn took(time: std::time::Duration) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    #[expect(clippy::cast_precision_loss, reason = "memory of a process, in KiB")]
    let mib = |name: &str| number(&status, name) as f64 / 1024.0;
    // Nanoseconds of the one thread that does it all.
    let schedule = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    let cpu = schedule.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9;
    said(format_args!("{} {cpu} {} {}", time.as_secs_f64(), mib("VmHWM:"), mib("RssAnon:")));
}
