//! `zedbox plan`: what a drain of a node would do and what it would meet, without a write.
//!
//! Not here: the foretelling (`kubenodeop::plan::survey`).

use std::path::PathBuf;

use agent::Clock;
use agent::wire::{self, GLOBAL};
use anyhow::{Context as _, bail};
use checks::cluster::{self, ClusterSource};
use checks::workloads::is_system_namespace;
use checks::{Finding, Severity, blocking, local, settled};
use kubeapi::names::listed;
use kubeapi::{ApiClient, NodeName};
use kubenodeop::plan::{PlannedPeer, survey};
use kubenodeop::{Plan, PlanClass, Planned};
use pubsub::{TopicRoot, store};
use serde::Serialize;
use sheet::{DrainView, finding_words};
use topics::{
    CordonOwner, DrainFinding, EdgeNodeInfo, OperationPause, PASS_FILE, PreflightPass, go_json, number,
};
use zedkube::{preflight, window};

use super::Shell;
use super::text::{clean, paragraph, row};
use super::voice::Voice;
use crate::Exit;
use crate::args::{Output, PlanOptions, kubeconfig_of, settings};
use crate::limits::{Limits, attempt_limit};

/// Blanks between two columns of the table.
const GAP: usize = 2;
/// A cell without names.
const NOTHING: &str = "-";
/// What stands under a pod or a blocker is indented so far.
const INDENT: &str = "    ";

/// Prints the plan. Ends with [`Exit::Blocked`] when something is certain to hold the drain up.
pub(super) async fn run(shell: &Shell, options: &PlanOptions) -> anyhow::Result<Exit> {
    let Shell { topic_root, clock, voice, .. } = shell;
    let node = match &options.node {
        Some(name) => name.clone(),
        None => own_node(topic_root)?.kube_name(),
    };
    let node = NodeName::parse(&node).context("plan a drain")?;
    let kubeconfig =
        kubeconfig_of(options.kubeconfig.as_deref(), topic_root.root()).context("plan a drain")?;
    let cluster = ApiClient::from_kubeconfig(kubeconfig);
    let named = options.limits.clone();
    let limits_file =
        named.or_else(|| settings::limits_of(topic_root.root()).filter(|_| options.node.is_none()));
    let limits = Limits::read(limits_file.as_deref())?.zedkube;
    let policy = limits.machines_policy;
    let rules = limits.rules(attempt_limit(topic_root)?);
    let mut plan = match Box::pin(survey::plan(&cluster, &node, &rules)).await {
        Ok(plan) => plan,
        Err(error) => bail!("plan a drain of node {node}: {}; {}", error.line(), error.next_step()),
    };
    if limits_file.is_none() && !plan.machines.is_empty() {
        plan.notes.push(format!(
            "virtual machines that name no policy of their own are taken to have {}; with another machines_policy, give the \
             limits file: --limits FILE",
            policy.text()
        ));
    }
    let own_clock = || clock.wall().to_timestamp();
    let everything = ClusterSource::ALL.into();
    let found = Box::pin(cluster::drain(&cluster, node.as_str(), &everything, own_clock)).await;
    let mut findings = std::mem::take(&mut plan.findings);
    findings.extend(found.into_iter().flat_map(|(_, it)| it));
    findings.extend(outage::findings::look(&cluster, None, node.as_str()).await);
    findings.extend(outage::findings::lead(&cluster, limits.server_port).await);
    let mut pass = PreflightPass::default();
    if options.node.is_none() {
        // Findings are passed on the node itself, for itself.
        pass = preflight::pass(topic_root).await.unwrap_or_else(|why| {
            plan.notes.push(format!("{PASS_FILE} is ignored ({why}): no finding is passed"));
            PreflightPass::default()
        });
        let machine = preflight::machine_of(topic_root.root(), &cluster);
        findings.extend(local::look(&machine, own_clock()));
    } else {
        plan.notes.push(format!(
            "certificates and disks of node {node} are looked at by `zedbox plan` there, without --node"
        ));
    }
    plan.findings = settled(findings, &limits.preflight_stops);
    plan.notes.extend(add_ons(&plan.pods));
    let mut steps = steps(&plan, limits.take_turns);
    if options.node.is_none() {
        let held = held(topic_root, *clock, &limits).await;
        steps.splice(0..0, held.first().map(|_| "window".to_owned()));
        plan.findings.splice(0..0, held);
    }
    let is_free = plan.blockers.is_empty() && blocking(&plan.findings, &pass.codes).is_empty();
    match voice.output {
        Output::Json => {
            let findings = plan.findings.iter().map(|it| preflight::shown(it, &pass)).collect();
            Voice::json(&PlanForm { plan: &plan, findings, steps: &steps }, false)?;
        }
        Output::Text => {
            Voice::print(&sheet(&plan, &pass, &steps, voice.columns()))?;
        }
    }
    Ok(if is_free { Exit::Done } else { Exit::Blocked })
}

/// Who or what keeps operations of this node from starting now: a person's pause, its windows.
pub(crate) async fn held(topic_root: &TopicRoot, clock: Clock, limits: &zedkube::Limits) -> Vec<Finding> {
    let paused = |it: &OperationPause| {
        let text = format!("operations of this node are {}", it.words());
        Finding::new("pause", text, it.next_step()).with(Severity::Warns)
    };
    let next = "wait; a drain that waits starts now by `zedbox go --past window --reason '...'`, `zedbox drain` at any time";
    let shut = window::shut(&limits.windows, topic_root, clock).await;
    let shut = shut.map(|it| Finding::new("window", it.why, next).with(Severity::Hint));
    DrainView::read(topic_root, clock).pause().map(paused).into_iter().chain(shut).collect()
}

/// What zedagent's file says of this device, with its name.
pub(super) fn own_node(topic_root: &TopicRoot) -> anyhow::Result<EdgeNodeInfo> {
    let file: PathBuf = wire::path::<EdgeNodeInfo>(topic_root, "zedagent", GLOBAL);
    let doing = || {
        format!(
            "find the name of this node in {} (the agents write it; where they have another directory: --root DIR); name it \
             with --node",
            file.display()
        )
    };
    let bytes = store::read(&file, pubsub::FILE_LIMIT_BYTES).with_context(doing)?;
    let Some(bytes) = bytes else { bail!("{}: there is no such file", doing()) };
    let info: EdgeNodeInfo = go_json::from_slice(&bytes).with_context(doing)?;
    if info.device_name.is_empty() {
        bail!("{}: it holds no DeviceName", doing());
    }
    Ok(info)
}

/// The plan for a person: the pods, what blocks, what else to know, one line of counts.
fn sheet(plan: &Plan, pass: &PreflightPass, steps: &[String], columns: usize) -> String {
    let mut out = table(&plan.pods, columns);
    for pod in plan.pods.iter().filter(|pod| !pod.note.is_empty()) {
        out.push_str(&row("pod", &format!("{}: {}", pod.pod, pod.note), columns));
    }
    for it in &plan.machines {
        let no = if it.not_migratable.is_empty() {
            String::new()
        } else {
            format!("; not migratable: {}", it.not_migratable)
        };
        let text = format!("{} ({}, policy {}): {}{no}", it.name, it.strategy, it.policy, it.fate);
        out.push_str(&row("machine", &text, columns));
    }
    for volume in &plan.volumes {
        out.push_str(&row("volume", &format!("{volume} must be detached afterwards"), columns));
    }
    for PlannedPeer { node, closed } in plan.peers.iter().filter(|it| !it.closed.is_empty()) {
        out.push_str(&row("peer", &format!("node {node} {closed}, and takes no pods"), columns));
    }
    for it in &plan.findings {
        let it = preflight::shown(it, pass);
        out.push_str(&row("finding", &finding_words(&it), columns));
        let label = if it.severity == Severity::Hint.text() { "hint" } else { "next step" };
        out.push_str(&row(label, &it.next_step, columns));
    }
    for note in &plan.notes {
        out.push_str(&row("note", note, columns));
    }
    for blocker in &plan.blockers {
        out.push_str(&row("blocked", &format!("[{}] {}", blocker.code, blocker.reason), columns));
        out.push_str(&row("next step", &blocker.next_step, columns));
    }
    out.push_str(&row("steps", &steps.join(", "), columns));
    out.push_str(&paragraph("", &counts(plan), columns));
    out
}

/// What a drain does, in its order; docs/operate/before-a-drain.md says how a person does the same by hand.
fn steps(plan: &Plan, takes_turns: bool) -> Vec<String> {
    let mut steps = vec!["preflight".to_owned()];
    steps.extend(takes_turns.then(|| "turn".to_owned()));
    steps.push("hooks".to_owned());
    steps.extend((plan.cordon == CordonOwner::None).then(|| "cordon".to_owned()));
    steps.extend((!plan.machines.is_empty()).then(|| format!("virtual machines ({})", plan.machines.len())));
    steps.extend(plan.tiers.iter().map(|it| format!("pods of tier {} ({})", it.tier.text(), it.pods)));
    steps.extend((!plan.volumes.is_empty()).then(|| format!("volumes ({})", plan.volumes.len())));
    steps.extend(["proof", "COMPLETE"].map(str::to_owned));
    steps
}

/// Names pods of the cluster itself whose volumes have to be detached: whoever can do without them stops them before.
fn add_ons(pods: &[Planned]) -> Option<String> {
    let of_add_on = |it: &&Planned| {
        it.class == PlanClass::Evict && !it.claims.is_empty() && is_system_namespace(&it.pod.namespace)
    };
    let all: Vec<String> = pods.iter().filter(of_add_on).map(|it| it.pod.to_string()).collect();
    (!all.is_empty()).then(|| {
        format!(
            "add-ons with volumes, which may be stopped for the time of the outage: {}",
            listed(&all, ", ")
        )
    })
}

/// One line for each pod; where that is too wide, budgets and volumes stand below the pod. Empty columns at
/// the end are left out.
fn table(pods: &[Planned], columns: usize) -> String {
    let head = ["POD", "CLASS", "TIER", "PRIORITY", "BUDGETS", "VOLUMES"].map(str::to_owned);
    let mut rows: Vec<Vec<String>> =
        std::iter::once(head).chain(pods.iter().map(cells)).map(Vec::from).collect();
    for column in [5, 4] {
        if rows.iter().skip(1).all(|row| row[column..].iter().all(|cell| cell == NOTHING)) {
            for row in &mut rows {
                row.truncate(column);
            }
        }
    }
    let shown = rows[0].len();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..shown).map(width).collect();
    let line = |row: &[String]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end())
    };
    let needed = |shown: usize| widths.iter().take(shown).sum::<usize>() + GAP * shown.saturating_sub(1);
    if needed(shown) <= columns {
        return rows.iter().map(|row| line(row)).collect();
    }
    let mut out = String::new();
    for (at, row) in rows.iter().enumerate() {
        if needed(4) <= columns {
            out.push_str(&line(&row[..4]));
        } else if at > 0 {
            out.push_str(&paragraph("", &row[..4].join(" "), columns));
        }
        let below = rows[0].iter().zip(row).skip(4);
        for (what, names) in below.filter(|(_, names)| at > 0 && *names != NOTHING) {
            out.push_str(&paragraph(INDENT, &format!("{} {names}", what.to_lowercase()), columns));
        }
    }
    out
}

fn cells(pod: &Planned) -> [String; 6] {
    let names = |names: &[String]| if names.is_empty() { NOTHING.to_owned() } else { names.join(",") };
    let priority = if pod.priority_class.is_empty() {
        pod.priority.to_string()
    } else {
        format!("{} ({})", pod.priority, pod.priority_class)
    };
    let cells = [
        pod.pod.to_string(),
        pod.class.text().to_owned(),
        pod.tier.text().to_owned(),
        priority,
        names(&pod.budgets),
        names(&pod.claims),
    ];
    cells.map(|cell| clean(&cell))
}

/// `node n1: 6 pods; 3 leave, 1 is going, 2 stay; 1 would be blocked; order: application 3, storage 1`.
fn counts(plan: &Plan) -> String {
    let counts = plan.counts;
    let order: Vec<String> = plan.tiers.iter().map(|it| format!("{} {}", it.tier.text(), it.pods)).collect();
    let order =
        if order.is_empty() { "nothing to do".to_owned() } else { format!("order: {}", order.join(", ")) };
    let cordon = serde_json::json!(plan.cordon);
    format!(
        "node {}, cordon {}: {}; {} leave, {} going, {} stay; {} would be blocked; {order}",
        plan.node,
        cordon.as_str().unwrap_or_default(),
        number(counts.total, "pod"),
        counts.leave,
        counts.going,
        counts.keep,
        counts.blocked
    )
}

/// The plan for a program.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct PlanForm<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    /// As in `DrainPreflight`.
    findings: Vec<DrainFinding>,
    steps: &'a [String],
}

#[cfg(test)]
mod tests {
    use kubeapi::{PodRef, PodUid};
    use kubenodeop::Tier;

    use super::*;

    fn planned(name: &str, class: PlanClass, budgets: &[&str], claims: &[&str]) -> Planned {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
        Planned {
            pod: PodRef { namespace: "shop".to_owned(), name: name.to_owned(), uid: PodUid::new(name) },
            class,
            tier: Tier::Storage,
            priority: 7,
            priority_class: "high".to_owned(),
            workload: String::new(),
            budgets: names(budgets),
            claims: names(claims),
            note: String::new(),
        }
    }

    /// Row 2-14.
    #[test]
    fn pods_of_the_system_that_leave_with_volumes_are_set_apart() {
        let of = |namespace: &str, class, claims: &[&str]| {
            let mut pod = planned("metrics-0", class, &[], claims);
            namespace.clone_into(&mut pod.pod.namespace);
            pod
        };
        for (namespace, class, claims, named) in [
            ("cattle-monitoring-system", PlanClass::Evict, &["data"][..], true),
            ("cattle-monitoring-system", PlanClass::Evict, &[], false),
            ("cattle-monitoring-system", PlanClass::KeepDaemonSet, &["data"], false),
            ("shop", PlanClass::Evict, &["data"], false),
        ] {
            let note = add_ons(&[of(namespace, class, claims)]);
            let expected = "add-ons with volumes, which may be stopped for the time of the outage: \
                            cattle-monitoring-system/metrics-0";
            assert_eq!(note.as_deref(), named.then_some(expected), "{namespace} {claims:?}");
        }
    }

    #[test]
    fn the_table_is_as_wide_as_it_may_be_and_no_wider() {
        let pods = [
            planned("web-0", PlanClass::Evict, &["all", "web"], &["data"]),
            planned("agent\u{1b}", PlanClass::KeepDaemonSet, &[], &[]),
        ];
        let wide = "\
POD          CLASS           TIER     PRIORITY  BUDGETS  VOLUMES
shop/web-0   evict           storage  7 (high)  all,web  data
shop/agent?  keep-daemonset  storage  7 (high)  -        -
";
        assert_eq!(table(&pods, 64), wide);
        let narrow = "\
POD          CLASS           TIER     PRIORITY
shop/web-0   evict           storage  7 (high)
    budgets all,web
    volumes data
shop/agent?  keep-daemonset  storage  7 (high)
";
        assert_eq!(table(&pods, 62), narrow);
        let least = "\
shop/web-0 evict storage 7 (high)
    budgets all,web
    volumes data
shop/agent? keep-daemonset storage 7
(high)
";
        assert_eq!(table(&pods, 40), least);
        let bare = "\
POD          CLASS           TIER     PRIORITY
shop/agent?  keep-daemonset  storage  7 (high)
";
        assert_eq!(table(&pods[1..], 80), bare);
    }
}
