//! `zedbox verify`: whether a cluster is healthy after an outage.
//!
//! Not here: reading and judging the cluster (`checks::verify`). Without `--fix` nothing is written.

use std::time::Duration;

use agent::{Clock, wire};
use anyhow::{Context as _, bail};
use checks::nodes::{self, DEVICE_NODES};
use checks::{Finding, Severity, local, verify};
use kubeapi::ApiClient;
use outage::operator;
use pubsub::TopicRoot;
use topics::{
    DeviceNetworkStatus, EdgeNodeClusterStatus, EdgeNodeInfo, VerifyLayer, VerifyReport, VerifyResult,
};
use zedkube::after_boot;

use crate::Exit;
use crate::args::{Output, VerifyCommand, settings};
use crate::drain_cmd::Shell;
use crate::drain_cmd::plan;
use crate::drain_cmd::text::paragraph;
use crate::drain_cmd::voice::Voice;
use crate::limits::Limits;
use sheet::text::number;
use step::SmallSort as _;

/// Between two looks with `--wait`.
const AGAIN: Duration = Duration::from_secs(5);
/// Columns of a layer's name with its result.
const NAME: usize = 14;
const RESULT: usize = 9;

pub(crate) async fn run(command: &VerifyCommand) -> anyhow::Result<Exit> {
    let shell = &Shell::open(&command.place.at)?;
    let say = |line: &str| Voice::warn_of("verify", line);
    let probes = match after_boot::read(&command.place.at.root, command.probes.as_deref()) {
        Ok(probes) => probes,
        Err(why) => {
            say(&format!("failed to {why}"));
            return Ok(Exit::Usage);
        }
    };
    let Shell { topic_root, clock, voice, .. } = shell;
    let (clock, cluster) = (*clock, shell.cluster(command.place.kubeconfig.as_deref())?);
    if command.fix {
        match after_boot::once(topic_root, &cluster, clock, command.timeout, say).await {
            Ok(true) => {}
            Ok(false) => say("not all could be repaired in this time: what is left follows"),
            Err(why) => bail!("repair this node: {why}"),
        }
    }
    let limits = Limits::read(settings::limits_of(topic_root.root()).as_deref()).unwrap_or_else(|error| {
        say(&format!("failed to {error:#}; its defaults are taken"));
        Limits::default()
    });
    let look = async || report(topic_root, &cluster, clock, (&probes, &limits.zedkube)).await;
    let report =
        if command.wait { until_well(clock, command.timeout, look, say).await } else { look().await };
    let printed = match voice.output {
        Output::Json => Voice::json(&report, false),
        Output::Text => Voice::print(&sheet(&report, voice.columns())),
    };
    printed.context("print the report").map(|_| exit(report.result))
}

/// Exit code for the worst result of a layer.
const fn exit(worst: VerifyResult) -> Exit {
    match worst {
        VerifyResult::Skipped | VerifyResult::Pass => Exit::Done,
        VerifyResult::Warn => Exit::Blocked,
        VerifyResult::Unknown => Exit::UnderWay,
        VerifyResult::Fail => Exit::Failed,
    }
}

async fn report(
    topic_root: &TopicRoot,
    cluster: &ApiClient,
    clock: Clock,
    (probes, limits): (&after_boot::Probes, &zedkube::Limits),
) -> VerifyReport {
    let at = clock.wall();
    // Another machine, or one on which zedagent never ran: no local checks.
    let node = wire::peek::<EdgeNodeInfo>(topic_root, "zedagent", wire::GLOBAL).ok().flatten();
    let node = node.map(|it| it.kube_name()).unwrap_or_default();
    let own = || clock.wall().to_timestamp();
    let mut layers = Box::pin(verify::look(cluster, own)).await;
    let api = layers.iter().any(|it| it.layer == "api" && it.result == VerifyResult::Pass);
    let (here, found) = (!node.is_empty(), machine(topic_root, cluster, clock, &node).await);
    layers.push(devices(topic_root, here));
    for (layer, finding) in found {
        merge(&mut layers, layer, finding);
    }
    let held = if here { plan::held(topic_root, clock, limits).await } else { Vec::new() };
    for finding in held {
        // Windows are as they should be when they are shut.
        if finding.severity == Severity::Hint {
            read(&mut layers, "nodes", &finding.text);
        } else {
            merge(&mut layers, "nodes", finding);
        }
    }
    if let Some(port) = cluster_port(topic_root) {
        read(&mut layers, "network", &port);
    }
    if api {
        match verify::rotation(cluster).await {
            Ok(said) => said.iter().for_each(|it| read(&mut layers, "certificates", it)),
            Err(finding) => merge(&mut layers, "certificates", finding),
        }
        for found in outage::findings::lead(cluster, limits.server_port).await {
            merge(&mut layers, "etcd", found);
        }
    }
    layers.push(if api {
        turns(cluster).await
    } else {
        verify::unknown("turns", verify::NO_API, verify::SEE_API)
    });
    layers.push(after_boot::look(probes, cluster, here).await);
    layers.order_by_key(|it| verify::LAYERS.iter().position(|name| *name == it.layer));
    let result = layers.iter().map(|it| it.result).max().unwrap_or_default();
    VerifyReport { result, at, node, layers }
}

/// Local results by layer; none on a machine that is no node.
async fn machine(
    topic_root: &TopicRoot,
    cluster: &ApiClient,
    clock: Clock,
    node: &str,
) -> Vec<(&'static str, Finding)> {
    if node.is_empty() {
        return Vec::new();
    }
    let (machine, now) =
        (zedkube::preflight::machine_of(topic_root.root(), cluster), clock.wall().to_timestamp());
    let found = local::looked(machine, now).await;
    let layer = |it: &Finding| match it.code.as_str() {
        "disk" => "devices",
        "token" => "etcd",
        "address" => "network",
        "lvm" => "storage",
        _ => "certificates",
    };
    found.into_iter().map(|it| (layer(&it), it)).collect()
}

/// The port of this node in its cluster: interface, label and address.
fn cluster_port(topic_root: &TopicRoot) -> Option<String> {
    let status = wire::peek::<EdgeNodeClusterStatus>(topic_root, "zedkube", wire::GLOBAL).ok()??;
    let ports = wire::peek::<DeviceNetworkStatus>(topic_root, "nim", wire::GLOBAL).ok().flatten()?.ports?;
    let wanted = &status.cluster_interface;
    let port = ports.iter().find(|it| it.logicallabel == *wanted || it.if_name == *wanted)?;
    let address = status.cluster_ip_prefix.and_then(|it| it.ip.0);
    let address = address.map_or_else(|| "no address".to_owned(), |it| it.to_string());
    Some(format!("cluster port {} (label {}) with {address}", port.if_name, port.logicallabel))
}

/// Adds what was read to a layer.
fn read(layers: &mut [VerifyLayer], name: &str, what: &str) {
    if let Some(layer) = layers.iter_mut().find(|it| it.layer == name) {
        layer.read = [layer.read.as_str(), what].join(", ");
    }
}

/// Adds a finding to a layer that was checked elsewhere.
fn merge(layers: &mut Vec<VerifyLayer>, name: &str, finding: Finding) {
    let more = verify::LayerCheck::default().read("this machine").found([finding]).layer(name);
    let Some(layer) = layers.iter_mut().find(|it| it.layer == name) else {
        layers.push(more);
        return;
    };
    layer.result = layer.result.max(more.result);
    if layer.read.is_empty() {
        layer.read = more.read;
    }
    layer.findings.extend(more.findings);
    layer.findings.order_by_key(|it| std::cmp::Reverse(it.result));
}

/// Device nodes without which the cluster software cannot start.
fn devices(topic_root: &TopicRoot, here: bool) -> VerifyLayer {
    if !here {
        return verify::skipped(
            "devices",
            "not checked: without /run/zedagent/EdgeNodeInfo this machine is no node; on a node, see systemctl status zedbox",
        );
    }
    let found = nodes::devices(|path| topic_root.path(path).exists());
    verify::LayerCheck::default().read(format!("/{}", DEVICE_NODES.join(", /"))).found(found).layer("devices")
}

/// Nodes that are or may be down.
async fn turns(cluster: &ApiClient) -> VerifyLayer {
    let view = match operator::view(cluster).await {
        Ok(view) => view,
        Err(error) => return verify::unknown("turns", &error.to_string(), "zedbox lock status"),
    };
    let Some(held) = view.held else {
        return verify::skipped("turns", "no node has asked for a turn to be out of service yet");
    };
    let known = |name: &str| view.nodes.iter().any(|it| it.name == name);
    let found = held.record.holders.iter().map(|it| {
        let (node, op, phase) = (&it.node, it.op.text(), it.phase.text());
        let text = format!("node {node} may be out of service: it holds the turn for a {op} (phase {phase})");
        if known(&it.node) {
            Finding::new("turn", text, outage::findings::next_of(it)).with(Severity::Warns)
        } else {
            let next = format!(
                "once its machine is off: zedbox lock release {node} --fence {} --reason '...'",
                it.fence
            );
            let text = format!("{text}, and there is no such node any more: no other node may go");
            Finding::new("turn", text, next)
        }
    });
    let read = match (held.record.holders.len(), held.record.queue.len()) {
        (0, 0) => "no node is down or waiting".to_owned(),
        (holders, waiting) => format!("{} down or about to be, {waiting} waiting", number(holders, "node")),
    };
    verify::LayerCheck::default().read(read).found(found).layer("turns")
}

/// Looks until nothing fails and everything could be checked, twice in a row, or `limit` is over.
async fn until_well(
    clock: Clock,
    limit: Duration,
    look: impl AsyncFn() -> VerifyReport,
    say: impl Fn(&str),
) -> VerifyReport {
    let until = clock.now() + limit;
    let (mut before, mut said) = (false, String::new());
    loop {
        let report = look().await;
        let well = report.result < VerifyResult::Unknown;
        if well && before || clock.now() >= until {
            return report;
        }
        before = well;
        let bad = report.layers.iter().filter(|it| it.result >= VerifyResult::Unknown);
        let bad: Vec<String> = bad.map(|it| format!("{} {}", it.layer, it.result.text())).collect();
        let line =
            if bad.is_empty() { "nothing fails; looking once more".to_owned() } else { bad.join(", ") };
        if line != said {
            say(&format!("waiting: {line}"));
            said = line;
        }
        clock.sleep_until(Some((clock.now() + AGAIN).min(until))).await;
    }
}

/// For a person.
fn sheet(report: &VerifyReport, columns: usize) -> String {
    let mut out = String::new();
    // Except layers with a local finding, which may be why the API is away.
    let is_dark =
        |it: &&VerifyLayer| !it.findings.is_empty() && it.findings.iter().all(|it| it.text == verify::NO_API);
    for layer in report.layers.iter().filter(|it| !is_dark(it)) {
        let head = format!("{:<NAME$}{:<RESULT$}", layer.layer, layer.result.text());
        out.push_str(&paragraph(&head, &layer.read, columns));
        for it in layer.findings.iter().filter(|it| it.result > VerifyResult::Pass) {
            let head = format!("{:NAME$}{:<RESULT$}", "", it.result.text());
            out.push_str(&paragraph(&head, &it.text, columns));
            let head = format!("{:NAME$}{:<RESULT$}", "", "next");
            out.push_str(&paragraph(&head, &it.next_step, columns));
        }
    }
    let dark: Vec<&str> = report.layers.iter().filter(is_dark).map(|it| it.layer.as_str()).collect();
    if !dark.is_empty() {
        out.push_str(&paragraph("", &format!("{}: {}.", verify::NO_API, dark.join(", ")), columns));
    }
    let of = |(result, what): (VerifyResult, &str)| {
        let count = report.layers.iter().filter(|it| it.result == result).count();
        (count > 0).then(|| format!("{} {what}", number(count, "layer")))
    };
    let words = [
        (VerifyResult::Fail, "failed"),
        (VerifyResult::Unknown, "unknown"),
        (VerifyResult::Warn, "with warnings"),
        (VerifyResult::Pass, "passed"),
        (VerifyResult::Skipped, "skipped"),
    ];
    let counts: Vec<String> = words.into_iter().filter_map(of).collect();
    out.push_str(&paragraph("", &format!("{}.", counts.join(", ")), columns));
    out
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use pubsub::store;
    use topics::VerifyFinding;

    use super::*;

    fn with(results: &[(&str, VerifyResult)]) -> VerifyReport {
        let layers = results.iter().map(|(layer, result)| VerifyLayer {
            layer: (*layer).to_owned(),
            result: *result,
            read: "3 nodes".to_owned(),
            findings: vec![VerifyFinding {
                result: *result,
                text: "nodes that are not Ready: n2".to_owned(),
                next_step: "kubectl describe node n2".to_owned(),
            }],
        });
        let result = results.iter().map(|it| it.1).max().unwrap_or_default();
        VerifyReport { result, layers: layers.collect(), ..VerifyReport::default() }
    }

    /// Row 2-10.
    #[test]
    fn the_port_of_the_cluster_is_shown_with_its_label_and_address() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        assert_eq!(cluster_port(&topic_root), None);
        let put = |path: &str, text: &str| store::replace(&root.path().join(path), text.as_bytes()).unwrap();
        put(
            "run/zedkube/EdgeNodeClusterStatus/global.json",
            r#"{"ClusterInterface":"shopfloor1","ClusterIPPrefix":{"IP":"10.244.244.2","Mask":"////8A=="}}"#,
        );
        put(
            "run/nim/DeviceNetworkStatus/global.json",
            r#"{"Ports":[{"IfName":"eth0","Logicallabel":"mgmt"},{"IfName":"eth1","Logicallabel":"shopfloor1"}]}"#,
        );
        assert_eq!(
            cluster_port(&topic_root).as_deref(),
            Some("cluster port eth1 (label shopfloor1) with 10.244.244.2")
        );
    }

    #[test]
    fn v1_the_worst_layer_is_the_exit_code_and_each_finding_has_its_next_step() {
        let rows = [
            (VerifyResult::Skipped, Exit::Done),
            (VerifyResult::Pass, Exit::Done),
            (VerifyResult::Fail, Exit::Failed),
            (VerifyResult::Unknown, Exit::UnderWay),
            (VerifyResult::Warn, Exit::Blocked),
        ];
        for (result, code) in rows {
            assert_eq!(exit(result) as u8, code as u8);
        }
        let all = [("api", VerifyResult::Pass), ("nodes", VerifyResult::Fail), ("etcd", VerifyResult::Warn)];
        assert_eq!(
            sheet(&with(&all), 60),
            "api           pass     3 nodes\n\
             nodes         fail     3 nodes\n              \
             fail     nodes that are not Ready: n2\n              \
             next     kubectl describe node n2\n\
             etcd          warn     3 nodes\n              \
             warn     nodes that are not Ready: n2\n              \
             next     kubectl describe node n2\n\
             1 layer failed, 1 layer with warnings, 1 layer passed.\n"
        );
    }

    #[test]
    fn v1_what_this_machine_shows_of_a_layer_is_shown_also_without_the_api() {
        let dark = |name: &str| verify::unknown(name, verify::NO_API, verify::SEE_API);
        let mut layers = vec![dark("certificates"), dark("etcd")];
        merge(&mut layers, "certificates", Finding::new("certificates", "expired 5 h ago", "restart k3s"));
        let report = VerifyReport { result: VerifyResult::Fail, layers, ..VerifyReport::default() };
        let sheet = sheet(&report, 80);
        assert!(sheet.starts_with("certificates  fail     this machine\n"), "{sheet}");
        for line in ["fail     expired 5 h ago\n", "next     restart k3s\n", "cannot be used: etcd.\n"] {
            assert!(sheet.contains(line), "{line}: {sheet}");
        }
    }

    /// Gets these results, the last again and again; returns the end, its seconds and the output.
    async fn waited(results: &[VerifyResult], limit: u64) -> (VerifyResult, u64, Vec<String>) {
        let clock = Clock::new();
        let start = clock.now();
        let (looks, said) = (RefCell::new(0), RefCell::new(Vec::new()));
        let look = async || {
            let nth = looks.replace_with(|it| *it + 1);
            with(&[("nodes", results[nth.min(results.len() - 1)])])
        };
        let say = |line: &str| said.borrow_mut().push(line.to_owned());
        let report = until_well(clock, Duration::from_secs(limit), look, say).await;
        (report.result, clock.now().since(start).as_secs(), said.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn v1_it_waits_until_all_is_well_twice_in_a_row_or_the_limit_is_over() {
        use VerifyResult::{Fail, Pass, Unknown, Warn};
        let (result, secs, said) = waited(&[Fail, Fail, Unknown, Pass, Fail, Warn, Pass], 900).await;
        assert_eq!((result, secs), (Pass, 30));
        let waiting = [
            "nodes fail",
            "nodes unknown",
            "nothing fails; looking once more",
            "nodes fail",
            "nothing fails; looking once more",
        ];
        assert_eq!(said, waiting.map(|it| format!("waiting: {it}")));
        assert_eq!(waited(&[Fail], 12).await.0, Fail);
        assert_eq!(waited(&[Fail], 12).await.1, 12);
    }
}
