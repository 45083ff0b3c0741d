//! Rules about nodes, about members of etcd as their nodes report them, and about the clock and disks of this
//! machine.
//!
//! Not here: etcd's own view (`outage::margin`). Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kubeapi::names::{ETCD, OUTAGE_TAINTS, OWNER_ANNOTATION, listed as names};
use kubeapi::nodes::{CONDITION, OUT_OF_SERVICE, is_foreign_lifecycle, is_of_failover};
use kubeapi::objects::{condition, is_ready, items, named, text, time};
use serde_json::Value;
use step::{LiteMap, SmallSort as _};

use crate::{Finding, Severity};

/// Lease duration that kubelets write.
const LEASE_LASTS: SignedDuration = SignedDuration::from_secs(40);

/// Nodes that are not Ready; code `nodes`.
pub fn unready(nodes: &[Value]) -> Vec<Finding> {
    let off: Vec<String> = nodes.iter().filter(|it| !is_ready(it)).map(named).collect();
    Finding::listing(("nodes", Severity::Blocks), "nodes that are not Ready", &off, |first| {
        format!(
            "check that it is powered on; on it: systemctl status k3s (k3s-agent, rke2-server); here: kubectl describe node {first}"
        )
    })
}

/// Nodes with a person's pause, as their zedkube reports; code `paused`.
pub fn paused(nodes: &[Value]) -> Vec<Finding> {
    let said = |it: &Value| condition(&it["status"], CONDITION).clone();
    let all = nodes.iter().filter(|it| said(it)["reason"] == "Paused");
    let one = |it: &Value| {
        let words = format!("node {}: {}", named(it), text(&said(it)["message"]));
        Finding::new("paused", words, "ask the person who works there; `zedbox resume` on that node ends it")
    };
    all.map(one).collect()
}

/// Maintenance marks of Harvester and the Node Maintenance Operator.
const MAINTENANCE: [&str; 2] = ["harvesterhci.io/maintain-status", "medik8s.io/drain"];

fn in_maintenance(node: &Value) -> bool {
    let marked = |key: &&str| !node["metadata"]["annotations"][*key].is_null();
    let tainted = |key: &&str| items(&node["spec"]["taints"]).iter().any(|it| it["key"] == **key);
    // Of `kubectl drain`, or of another agent.
    let drained = condition(&node["status"], "DrainInProgress");
    let by_others = drained["status"] == "True" && is_foreign_lifecycle(&text(&drained["reason"]));
    by_others || MAINTENANCE.iter().any(|key| marked(key) || tainted(key))
}

/// Unschedulable nodes: cordoned or in maintenance by others, `node` included, or cordoned by pillar-rs, as
/// in their turn; code `cordons`.
pub fn cordoned(nodes: &[Value], node: &str) -> Vec<Finding> {
    let ours = |it: &Value| !it["metadata"]["annotations"][OWNER_ANNOTATION].is_null();
    let closed = |it: &&Value| it["spec"]["unschedulable"] == true || in_maintenance(it);
    let (own, foreign): (Vec<&Value>, Vec<&Value>) =
        nodes.iter().filter(closed).partition(|it| ours(it) && !in_maintenance(it));
    let all = |some: &[&Value]| some.iter().map(|it| named(it)).filter(|it| it != node).collect::<Vec<_>>();
    let (own, others) = (all(&own), foreign.iter().map(|it| named(it)).collect::<Vec<_>>());
    let what = "nodes that somebody else has cordoned or holds in maintenance";
    let mut found = Finding::listing(("cordons", Severity::Warns), what, &others, |first| {
        format!(
            "kubectl uncordon {first}, once the person who cordoned it agrees; end a maintenance with the tool that began it"
        )
    });
    let whose = |_: &String| "zedbox lock status shows whose turn it is".to_owned();
    found.extend(Finding::listing(
        ("cordons", Severity::Hint),
        "nodes that pillar-rs has cordoned",
        &own,
        whose,
    ));
    found
}

/// Nodes with a full disk, as their kubelet reports; code `disk`.
pub fn full_disks(nodes: &[Value]) -> Vec<Finding> {
    let full = |it: &&Value| condition(&it["status"], "DiskPressure")["status"] == "True";
    let all: Vec<String> = nodes.iter().filter(full).map(named).collect();
    Finding::listing(
        ("disk", Severity::Warns),
        "nodes with DiskPressure, which take no pods",
        &all,
        |first| format!("make room on its disk: kubectl describe node {first}"),
    )
}

/// Unused images above this are named.
const UNUSED: u64 = 2 << 30;

/// Nodes with gibibytes of container images that none of these pods uses there, the largest first; code
/// `images`, a hint. A kubelet reports its 50 largest images.
pub fn unused_images<'a>(nodes: &[Value], pods: &(impl Iterator<Item = &'a Value> + Clone)) -> Vec<Finding> {
    let size = |bytes: u64| format!("{}.{} GiB", bytes >> 30, ((bytes % (1 << 30)) * 10) >> 30);
    let one = |node: &Value| {
        let here = pods.clone().filter(|it| it["spec"]["nodeName"] == node["metadata"]["name"]);
        let parts = here.flat_map(|it| [(&it["spec"], "ontainers"), (&it["status"], "ontainerStatuses")]);
        let lists = parts
            .flat_map(|(part, kind)| ["c", "initC", "ephemeralC"].map(|of| &part[format!("{of}{kind}")]));
        let used: BTreeSet<&str> = lists
            .flat_map(items)
            .flat_map(|it| [&it["image"], &it["imageID"]])
            .filter_map(Value::as_str)
            .collect();
        let is_used = |name: &str| {
            used.iter().any(|it| name.strip_suffix(it).is_some_and(|it| it.is_empty() || it.ends_with('/')))
        };
        let called = |it: &Value| items(&it["names"]).iter().map(text).collect::<Vec<_>>();
        let images = items(&node["status"]["images"])
            .iter()
            .map(|it| (it["sizeBytes"].as_u64().unwrap_or(0), called(it)));
        let mut unused: Vec<_> = images.filter(|(_, names)| !names.iter().any(|it| is_used(it))).collect();
        unused.order_by(|one, other| other.cmp(one));
        let all = unused.iter().map(|it| it.0).sum();
        let shown = |(bytes, names): &(u64, Vec<String>)| {
            format!("{} ({})", names.last().cloned().unwrap_or_default(), size(*bytes))
        };
        let shown: Vec<String> = unused.iter().map(shown).collect();
        let text = format!(
            "node {} has {} of container images that no pod uses there: {}",
            named(node),
            size(all),
            names(&shown, ", ")
        );
        let next = "on that node, crictl rmi with the name of an image removes it; one that the OS version in the other partition needs has to stay";
        (all > UNUSED).then(|| Finding::new("images", text, next).with(Severity::Hint))
    };
    nodes.iter().filter_map(one).collect()
}

/// Kubelets of several versions, as during an update of Kubernetes; code `nodes`, a hint.
pub fn mixed_versions(nodes: &[Value]) -> Vec<Finding> {
    let mut versions: LiteMap<String, Vec<String>> = LiteMap::new();
    for node in nodes {
        let version = text(&node["status"]["nodeInfo"]["kubeletVersion"]);
        if !version.is_empty() {
            versions.entry(version).or_default().push(named(node));
        }
    }
    if versions.len() < 2 {
        return Vec::new();
    }
    let shown = versions.iter().map(|(version, nodes)| format!("{version} on {}", names(nodes, ", ")));
    let text = format!("kubelets of different versions: {}", names(&shown.collect::<Vec<_>>(), "; "));
    let next = "finish the update of Kubernetes on all nodes: kubectl get nodes shows their versions";
    vec![Finding::new("nodes", text, next).with(Severity::Hint)]
}

/// Ready nodes with a lease that is not renewed, by the API server's clock; code `nodes`. A wrong clock on
/// the node looks the same.
pub fn silent(nodes: &[Value], leases: &[Value], now: Timestamp) -> Vec<Finding> {
    let of = |node: &Value| {
        let name = named(node);
        let lease = leases.iter().find(|it| it["metadata"]["name"] == name.as_str());
        let renewed = lease.and_then(|it| time(&it["spec"]["renewTime"]));
        let how = match renewed.map(|at| now.duration_since(at)) {
            _ if !is_ready(node) => return None,
            Some(age) if age <= LEASE_LASTS => return None,
            Some(age) => {
                format!("last renewed its lease {} s ago, by the clock of the API server", age.as_secs())
            }
            None => "has no lease in kube-node-lease".to_owned(),
        };
        let next = format!(
            "on it: compare date, and read the log of its kubelet (journalctl -u k3s, k3s-agent or rke2-server); here: kubectl describe node {name}"
        );
        Some(Finding::new("nodes", format!("the kubelet of node {name} {how}"), next).with(Severity::Warns))
    };
    nodes.iter().filter_map(of).collect()
}

/// Ready nodes with taints of an outage; code `taints`.
pub fn tainted(nodes: &[Value]) -> Vec<Finding> {
    let of = |it: &Value| {
        let taints = items(&it["spec"]["taints"]).iter();
        let stale = taints.filter(|it| OUTAGE_TAINTS.contains(&text(&it["key"]).as_str()));
        let stale: Vec<String> =
            stale.map(|it| format!("{}:{}", text(&it["key"]), text(&it["effect"]))).collect();
        let first = stale.first().filter(|_| is_ready(it))?;
        let name = named(it);
        let next = format!(
            "zedkube on that node removes them 60 s after its kubelet is well; if they stay: kubectl taint node {name} {first}-"
        );
        let text = format!(
            "node {name} is Ready but still has taints of an outage, so that no pods are scheduled on it: {}",
            stale.join(", ")
        );
        Some(Finding::new("taints", text, next))
    };
    nodes.iter().filter_map(of).collect()
}

/// Taints of a node's purpose, those that Kubernetes sets and removes with the node's conditions, and those
/// named by other findings.
fn is_expected(key: &str) -> bool {
    let of_conditions = [
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/pid-pressure",
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
    ];
    // k3s keeps workloads off its servers with it.
    key.starts_with("node-role.kubernetes.io/")
        || key == "CriticalAddonsOnly"
        || of_conditions.contains(&key)
        || OUTAGE_TAINTS.contains(&key)
        || MAINTENANCE.contains(&key)
}

/// Key and effect of taints that keep pods away.
fn keeps_away(node: &Value) -> impl Iterator<Item = (String, String)> {
    // Ours goes by itself once the node is back.
    let ours = |it: &Value| is_of_failover(&text(&it["key"]), &text(&it["value"]));
    let taints = items(&node["spec"]["taints"]).iter().filter(move |it| !ours(it));
    let taints = taints.map(|it| (text(&it["key"]), text(&it["effect"])));
    taints.filter(|(_, effect)| matches!(effect.as_str(), "NoSchedule" | "NoExecute"))
}

/// Taints that keep pods away, do not belong to the node's purpose, and are not on most of the other nodes;
/// code `taints`. No agent removes them.
pub fn unusual_taints(nodes: &[Value]) -> Vec<Finding> {
    nodes.iter().filter_map(|it| unusual_taints_of(nodes, it)).collect()
}

/// Whether a taint keeps pods away and does not belong to a node's purpose; [`unusual_taints`] decides
/// whether it is usual.
pub fn may_be_unusual(key: &str, effect: &str) -> bool {
    matches!(effect, "NoSchedule" | "NoExecute") && !is_expected(key)
}

/// [`unusual_taints`] of one node.
pub fn unusual_taints_of(nodes: &[Value], node: &Value) -> Option<Finding> {
    let is_common = |node: &Value, taint: &(String, String)| {
        let others: Vec<&Value> = nodes.iter().filter(|it| named(it) != named(node)).collect();
        let have = others.iter().filter(|it| keeps_away(it).any(|other| other == *taint)).count();
        taint.0 != OUT_OF_SERVICE && have * 2 > others.len()
    };
    let taints = keeps_away(node).filter(|it| may_be_unusual(&it.0, &it.1) && !is_common(node, it));
    let taints: Vec<String> = taints.map(|(key, effect)| format!("{key}:{effect}")).collect();
    let first = taints.first()?;
    let name = named(node);
    let ends = if first.starts_with(OUT_OF_SERVICE) { "; its pods are deleted by force" } else { "" };
    let text = format!(
        "node {name} has taints that most nodes do not have, and that keep pods away: {}{ends}",
        taints.join(", ")
    );
    let commands: Vec<String> = taints.iter().map(|it| format!("kubectl taint node {name} {it}-")).collect();
    let next = format!("once the person who set it agrees: {}", commands.join("; "));
    Some(Finding::new("taints", text, next).with(Severity::Warns))
}

/// An older snapshot of etcd counts as none; k3s makes one every 12 h.
pub const SNAPSHOT_AGE: SignedDuration = SignedDuration::from_hours(24);

pub fn is_member(node: &Value) -> bool {
    !node["metadata"]["labels"][ETCD].is_null()
}

/// Nodes that report an unhealthy or non-voting member; code `etcd`.
pub fn voters(nodes: &[Value]) -> Vec<Finding> {
    let sick = |it: &&Value| {
        let voter = condition(&it["status"], "EtcdIsVoter");
        is_member(it) && !voter.is_null() && voter["status"] != "True"
    };
    let what = |it: &Value| {
        let voter = condition(&it["status"], "EtcdIsVoter");
        format!("{} ({})", named(it), text(&voter["reason"]))
    };
    let sick: Vec<String> = nodes.iter().filter(sick).map(what).collect();
    let next = "repair it before another server goes down; on that node: systemctl status k3s (rke2-server), journalctl -u k3s";
    let what = "etcd members that are not healthy voters";
    Finding::listing(("etcd", Severity::Blocks), what, &sick, |_| next.to_owned())
}

/// Age of the newest snapshot: a hint, until it is older than [`SNAPSHOT_AGE`] or there is none; code
/// `snapshot`.
pub fn snapshot(files: &[Value], now: Timestamp) -> Vec<Finding> {
    let made = |it: &Value| it["status"]["creationTime"].as_str()?.parse::<Timestamp>().ok();
    let newest = files.iter().filter(|it| it["status"]["readyToUse"] == true).filter_map(made).max();
    let age = newest.map(|at| now.duration_since(at));
    let text = match age {
        Some(age) => format!("the newest snapshot of etcd is {} h old", age.as_hours()),
        None => "the cluster has no snapshot of etcd".to_owned(),
    };
    let is_young = age.is_some_and(|it| it <= SNAPSHOT_AGE);
    let next = "on a server: k3s etcd-snapshot save (rke2: rke2 etcd-snapshot save)";
    vec![Finding::new("snapshot", text, next).with(if is_young { Severity::Hint } else { Severity::Blocks })]
}

/// A larger difference of clocks is a warning; k3s refuses tokens and certificates from some minutes on.
pub const CLOCKS_WARN: SignedDuration = SignedDuration::from_secs(5);
/// A larger difference of clocks blocks.
pub const CLOCKS_BLOCK: SignedDuration = SignedDuration::from_secs(60);
/// Less free room on a disk is a warning, in percent.
pub const LEAST_FREE_PERCENT: u64 = 5;

/// Our clock against the API server's, which has whole seconds; code `clock`.
pub fn clock(server: Timestamp, own: Timestamp) -> Vec<Finding> {
    let offset = own.duration_since(server);
    let severity = match offset.abs() {
        it if it > CLOCKS_BLOCK => Severity::Blocks,
        it if it > CLOCKS_WARN => Severity::Warns,
        _ => return Vec::new(),
    };
    let side = if offset.is_negative() { "behind" } else { "ahead of" };
    let text =
        format!("the clock of this node is {} s {side} that of the API server", offset.abs().as_secs());
    let next = "compare the clocks with date on both, and check NTP: chronyc tracking, or timedatectl";
    vec![Finding::new("clock", text, next).with(severity)]
}

/// Device nodes that the cluster software cannot start without, as paths under the root.
pub const DEVICE_NODES: [&str; 1] = ["dev/kmsg"];

/// Device nodes that are missing; code `devices`.
pub fn devices(exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let missing = DEVICE_NODES.into_iter().filter(|path| !exists(path));
    let all: Vec<String> = missing.map(|path| format!("/{path}")).collect();
    Finding::listing(("devices", Severity::Blocks), "device nodes that are missing", &all, |_| {
        "`systemctl start zedbox-kmsg` makes /dev/kmsg; without that unit `mknod /dev/kmsg c 1 11`".to_owned()
    })
}

/// A wall clock that cannot be right, by what is known without a server; code `clock`.
pub fn wrong_clock(why: String) -> Finding {
    let next =
        "check the time source with `timedatectl` or `chronyc tracking`, or set the clock with `date -s`";
    Finding::new("clock", why, next)
}

/// A container runtime that does not answer, and why; code `runtime`.
pub fn runtime(why: String) -> Finding {
    let next = "look at `crictl ps`, `systemctl status k3s` (rke2-server, containerd) and its log; `runtime_socket` of the \
                limits file names the socket that counts";
    Finding::new("runtime", why, next)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskRoom {
    /// Mount point, or a folder on it.
    pub path: String,
    /// Available to a process.
    pub free: u64,
    pub total: u64,
}

/// File systems with less than [`LEAST_FREE_PERCENT`] free; code `disk`.
pub fn disks(all: &[DiskRoom]) -> Vec<Finding> {
    let full = |it: &&DiskRoom| it.free.saturating_mul(100) < it.total.saturating_mul(LEAST_FREE_PERCENT);
    let finding = |it: &DiskRoom| {
        let text = format!("{} has {} MiB of {} MiB free", it.path, it.free >> 20, it.total >> 20);
        let next = format!("make room: du -x -d 2 {}", it.path);
        Finding::new("disk", text, next).with(Severity::Warns)
    };
    all.iter().filter(full).map(finding).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Row 3-15.
    #[test]
    fn gibibytes_of_images_that_no_pod_of_a_node_uses_are_named_the_largest_first() {
        let image = |name: &str, gib: u64| json!({ "names": [format!("{name}@sha256:1"), name], "sizeBytes": gib << 30 });
        let all = [
            image("docker.io/shop/web:1", 9),
            image("docker.io/shop/web:2", 2),
            image("quay.io/old:1", 1),
            image("sha", 9),
        ];
        let node = json!({ "metadata": { "name": "n1" }, "status": { "images": all } });
        let pod = |node: &str, status: Value| json!({ "spec": { "nodeName": node, "initContainers": [{ "image": "shop/web:1" }] }, "status": status });
        let started = json!({ "containerStatuses": [{ "image": "web", "imageID": "sha@sha256:1" }] });
        let pods =
            [pod("n1", started), pod("n2", json!({ "containerStatuses": [{ "image": "quay.io/old:1" }] }))];
        let found = unused_images(&[node.clone(), json!({})], &pods.iter());
        let text = "node n1 has 3.0 GiB of container images that no pod uses there: docker.io/shop/web:2 (2.0 GiB), quay.io/old:1 (1.0 GiB)";
        assert_eq!(found.iter().map(|it| it.text.as_str()).collect::<Vec<_>>(), [text]);
        assert!(
            found[0].severity == Severity::Hint && found[0].next.contains("in the other partition"),
            "{found:?}"
        );
        // Up to two gibibytes are left alone.
        let used = pod("n1", json!({ "ephemeralContainerStatuses": [{ "image": "quay.io/old:1" }] }));
        assert_eq!(unused_images(&[node], &pods.iter().chain([&used])), []);
    }

    #[test]
    fn k6_a_taint_that_most_nodes_do_not_have_is_named_with_what_to_type() {
        let node = |name: &str, taints: &[(&str, &str)]| {
            let taints = taints.iter().map(|(key, effect)| json!({ "key": key, "effect": effect }));
            json!({ "metadata": { "name": name }, "spec": { "taints": taints.collect::<Vec<_>>() } })
        };
        let out = (OUT_OF_SERVICE, "NoExecute");
        let found = unusual_taints(&[node("n1", &[out]), node("n2", &[]), node("n3", &[])]);
        assert_eq!((found.len(), found[0].severity), (1, Severity::Warns));
        assert_eq!(
            found[0].text,
            "node n1 has taints that most nodes do not have, and that keep pods away: \
             node.kubernetes.io/out-of-service:NoExecute; its pods are deleted by force"
        );
        let next = "kubectl taint node n1 node.kubernetes.io/out-of-service:NoExecute-";
        assert!(found[0].next.ends_with(next), "{found:?}");
        let named = |nodes: &[Value]| unusual_taints(nodes).len();
        // Never usual, however many have it; nor on a node without others.
        assert_eq!(named(&[node("n1", &[out]), node("n2", &[out]), node("n3", &[out])]), 3);
        let own = ("dedicated", "NoSchedule");
        assert_eq!(named(&[node("n1", &[own])]), 1);
        assert_eq!(named(&[node("n1", &[own]), node("n2", &[own]), node("n3", &[])]), 2);
        assert_eq!(named(&[node("n1", &[own]), node("n2", &[own]), node("n3", &[own])]), 0);
        let expected = [
            ("node-role.kubernetes.io/control-plane", "NoSchedule"),
            ("CriticalAddonsOnly", "NoExecute"),
            ("node.kubernetes.io/unschedulable", "NoSchedule"),
            ("node.kubernetes.io/disk-pressure", "NoSchedule"),
            ("node.kubernetes.io/unreachable", "NoExecute"),
            ("medik8s.io/drain", "NoSchedule"),
            ("dedicated", "PreferNoSchedule"),
        ];
        assert_eq!(named(&[node("n1", &expected), node("n2", &[]), node("n3", &[])]), 0);
    }

    #[test]
    fn j1_a_drain_that_another_reports_on_a_node_is_a_warning_and_ours_is_none() {
        let node = |status: &str, reason: &str| {
            json!({ "metadata": { "name": "n1" }, "status": { "conditions": [
                { "type": "DrainInProgress", "status": status, "reason": reason },
            ] } })
        };
        let found = |status, reason| {
            cordoned(&[node(status, reason)], "n2").into_iter().map(|it| it.severity).collect::<Vec<_>>()
        };
        assert_eq!(found("True", "KubectlDrainStarted"), [Severity::Warns]);
        assert_eq!(found("False", "KubectlDrainCompleted"), []);
        assert_eq!(found("True", "AdminRequested"), []);
    }
}
