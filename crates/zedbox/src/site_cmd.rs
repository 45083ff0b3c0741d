//! `zedbox site`: the whole site off, rebooted, and how far it is, over the cluster's own record.
//!
//! Not here: what may be written (`outage::site::operator`), and who acts on it (zedkube on each node).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use agent::wire;
use anyhow::{Context as _, bail};
use checks::verify;
use kubeapi::ApiClient;
use kubeapi::names::APP_NAMESPACE;
use outage::operator::{self as lease, TurnView};
use outage::site::calls::{self, Finding};
use outage::site::operator::{self, SiteRequest};
use outage::site::record::{
    Ack, NodeStep, OperatorStatement, SiteKind, SiteMember, SitePhase, SiteRecord, VmRecord,
};
use outage::turn::record::{LEASE, TurnRecord};
use outage::turn::rule::TurnNode;
use serde_json::json;
use sheet::text::{moment, number, span, unix_secs};
use step::{Inserted as _, SmallSort as _};
use topics::{GoTime, SiteFinding, SiteMachine, SiteNode, SiteOperation, SiteStatus, SiteStep, VerifyResult};

use crate::Exit;
use crate::args::{BeginOptions, Output, RestartOptions, SiteAction, SiteCommand};
use crate::drain_cmd::Shell;
use crate::drain_cmd::voice::{Labelled, Voice};
use crate::lock_cmd::when;

/// Pause between two looks at a restart that is followed.
const AGAIN: Duration = Duration::from_secs(2);

pub(crate) async fn run(command: &SiteCommand) -> anyhow::Result<Exit> {
    let shell = &Shell::open(&command.place.at)?;
    let cluster = &shell.cluster(command.place.kubeconfig.as_deref())?;
    let said = |reason: &str| shell.statement(reason);
    match &command.action {
        SiteAction::Check => {
            let findings = checked(shell, cluster).await.context("check the site")?;
            show_found(shell, &findings, &[])?;
            anyhow::ensure!(findings.is_empty(), "pass the checks: {}", number(findings.len(), "finding"));
            Ok(())
        }
        SiteAction::Status { wait: true } => follow(shell, cluster, None).await,
        SiteAction::Status { wait: false } => status(shell, cluster).await,
        #[cfg(feature = "demo")]
        SiteAction::Drill(options) => Box::pin(crate::demo::drill(options)).await,
        SiteAction::Restart(options) => begin_restart(shell, cluster, options).await,
        SiteAction::Shutdown(options) => begin(shell, cluster, SiteKind::Shutdown, options).await,
        SiteAction::Reboot(options) => begin(shell, cluster, SiteKind::Reboot, options).await,
        SiteAction::Continue { skip: Some(node), reason, .. } => {
            let said = said(reason).context("continue")?;
            let edit = |record: &TurnRecord| operator::skip(record, node, &said);
            change(shell, cluster, edit, "continue").await?;
            let text = format!(
                "Node {node} is left out of the restart and not rebooted by it, by {}: {}. A turn that it holds is still \
                 waited for: `zedbox lock status`.",
                said.who, said.why
            );
            say(shell, "continued", &text)
        }
        SiteAction::Continue { phase, node, reason, skip: None } => {
            let phase = SitePhase::from(phase.clone().unwrap_or_default());
            let said = said(reason).context("continue")?;
            let edit = |record: &TurnRecord| operator::pass(record, &phase, node.as_deref(), &said);
            let (_, after) = change(shell, cluster, edit, "continue").await?;
            if operator::current(&after)?.is_some_and(|it| it.kind == SiteKind::Restart) {
                let text = format!("The restart of the site continues, by {}: {}.", said.who, said.why);
                say(shell, "continued", &text)
            } else {
                let text = format!(
                    "The site no longer waits for what phase {} waits for, by {}: {}. What was waited for stays as it is.",
                    phase.text(),
                    said.who,
                    said.why
                );
                say(shell, "continued", &text)
            }
        }
        SiteAction::Cancel { reason } => {
            let said = said(reason).context("withdraw the whole-site operation")?;
            let edit = |record: &TurnRecord| operator::cancel(record, &said);
            let (before, _) = change(shell, cluster, edit, "withdraw the whole-site operation").await?;
            let before = operator::current(&before)?;
            if before.as_ref().is_some_and(|it| it.kind == SiteKind::Restart) {
                let text = "Withdrew the restart of the site: the drain of the node that goes is withdrawn, and no other node \
                            starts; a machine that was ordered to reboot does so.";
                return say(shell, "cancelled", text).map(|()| Exit::Done);
            }
            let phase = before.map(|it| it.phase);
            let off = phase == Some(SitePhase::WorkersGoing);
            let machines = if off { " Workers that are off have to be switched on." } else { "" };
            let text = format!(
                "Withdrew the whole-site operation: cordons are removed, then applications are scaled up again.{machines} \
                 `zedbox site status` shows how far that is."
            );
            say(shell, "cancelled", &text)
        }
    }
    .map(|()| Exit::Done)
}

async fn change(
    shell: &Shell,
    cluster: &ApiClient,
    edit: impl Fn(&TurnRecord) -> Result<TurnRecord, outage::turn::rule::OperatorRefusal>,
    what: &'static str,
) -> anyhow::Result<(TurnRecord, TurnRecord)> {
    lease::change(cluster, shell.clock.wall().to_timestamp(), edit).await.context(what)
}

async fn begin(
    shell: &Shell,
    cluster: &ApiClient,
    kind: SiteKind,
    options: &BeginOptions,
) -> anyhow::Result<()> {
    let what = if kind == SiteKind::Reboot { "reboot the site" } else { "shut the site down" };
    let by = shell.statement(&options.reason).context(what)?;
    let findings = checked(shell, cluster).await.context(what)?;
    none_blocks(shell, &findings, &options.pass, what)?;
    let nodes = lease::view(cluster).await.context(what)?.nodes;
    let wish = SiteRequest {
        id: identity(&by),
        kind,
        by,
        leave_machines: options.leave_machines,
        although_held: options.pass.iter().any(|it| it == "turn"),
        findings,
    };
    change(shell, cluster, |record| operator::begin(record, &wish, &nodes), what).await?;
    let text = format!(
        "The whole-site {} {} has begun for {}, by {}: {}. `zedbox site status` shows \
         how far it is; `zedbox site cancel` withdraws it until the servers go.",
        wish.kind.text(),
        wish.id,
        number(nodes.len(), "node"),
        wish.by.who,
        wish.by.why
    );
    say(shell, "begun", &text)
}

/// Two persons at once get two identities; the record takes one.
fn identity(by: &OperatorStatement) -> String {
    let chance = RandomState::new().hash_one(&by.who) & 0xffff;
    format!("{}-{chance:04x}", by.when.get(..19).unwrap_or(&by.when))
}

/// Shows the findings, and refuses what they speak against and no option passes.
fn none_blocks(shell: &Shell, findings: &[Finding], pass: &[String], what: &str) -> anyhow::Result<()> {
    let blocking = calls::blocking(findings, pass);
    if shell.voice.output == Output::Text || !blocking.is_empty() {
        show_found(shell, findings, pass)?;
    }
    if blocking.is_empty() {
        return Ok(());
    }
    let codes: BTreeSet<&str> = blocking.iter().map(|it| it.code.as_str()).into_set();
    let words: Vec<String> = codes.iter().map(|it| format!("--pass {it}")).collect();
    bail!(
        "{what}: {} failed, nothing was started; fix it, or add {}",
        number(codes.len(), "check"),
        words.join(" ")
    )
}

/// What speaks against it now.
async fn checked(shell: &Shell, cluster: &ApiClient) -> anyhow::Result<Vec<Finding>> {
    let record = lease::view(cluster).await?.held.map(|it| it.record).unwrap_or_default();
    if let Some(site) = operator::current(&record)? {
        bail!(
            "the whole-site operation {} ({}) is in progress; look at it: zedbox site status",
            site.kind.text(),
            site.id
        );
    }
    Ok(calls::look(cluster, &record, shell.clock.wall().to_timestamp()).await)
}

/// Shows what the checks have found.
fn show_found(shell: &Shell, findings: &[Finding], pass: &[String]) -> anyhow::Result<()> {
    let voice = &shell.voice;
    let found =
        json!({ "Result": if findings.is_empty() { "clear" } else { "found" }, "Findings": shown(findings) });
    if voice.output == Output::Json || findings.is_empty() {
        return voice.say(&found, "All checks passed.");
    }
    for it in findings {
        let passed = if pass.contains(&it.code) { "; passed" } else { "" };
        voice.paragraph(&format!("[{}] {}{passed}. {}", it.code, it.text, it.next))?;
    }
    Ok(())
}

/// What was done: `begun`, `continued`, `cancelled`, `clear`.
fn say(shell: &Shell, result: &str, text: &str) -> anyhow::Result<()> {
    shell.voice.say(&json!({ "Result": result }), text)
}

/// One node after another, and following that to its end.
async fn begin_restart(shell: &Shell, cluster: &ApiClient, options: &RestartOptions) -> anyhow::Result<()> {
    let what = "restart the site";
    let by = shell.statement(&options.reason).context(what)?;
    let mut findings = checked(shell, cluster).await.context(what)?;
    // Turns are waited for.
    findings.retain(|it| it.code != "turn");
    for layer in Box::pin(verify::look(cluster, || shell.clock.wall().to_timestamp())).await {
        let bad = layer.findings.iter().filter(|it| it.result >= VerifyResult::Unknown);
        let new = bad.map(|it| Finding::new(&layer.layer, it.text.clone(), it.next_step.clone()));
        let new: Vec<Finding> = new.filter(|it| findings.iter().all(|of| of.text != it.text)).collect();
        findings.extend(new);
    }
    none_blocks(shell, &findings, &options.pass, what)?;
    let view = lease::view(cluster).await.context(what)?;
    let wish = SiteRequest {
        id: identity(&by),
        kind: SiteKind::Restart,
        by,
        leave_machines: false,
        although_held: true,
        findings,
    };
    let record = view.held.map(|it| it.record).unwrap_or_default();
    let order = operator::begun(&record, &wish, &view.nodes).context(what)?.order.join(", ");
    let order = format!("Order: {order}; of the servers, the one that leads etcd by then goes last.");
    if options.dry_run {
        return say(shell, "clear", &format!("{order} Nothing was begun."));
    }
    change(shell, cluster, |record| operator::begin(record, &wish, &view.nodes), what).await?;
    let begun = format!(
        "The restart of the site {} has begun, by {}: {}. {order} `zedbox site status` shows how far it is; \
         `zedbox site cancel` ends it.",
        wish.id, wish.by.who, wish.by.why
    );
    if !options.wait {
        return say(shell, "begun", &begun);
    }
    Voice::warn_of("site", &begun);
    follow(shell, cluster, Some(wish.id)).await
}

/// Follows the restart `id`, or the one that is in progress, until it has ended or has stopped; then shows it. A cluster that does
/// not answer, as where its only server reboots, is waited for.
async fn follow(shell: &Shell, cluster: &ApiClient, mut id: Option<String>) -> anyhow::Result<()> {
    let (mut steps, mut said, mut known) = (BTreeMap::new(), String::new(), None);
    let mut tell = |line: String| {
        if line != said {
            Voice::warn_of("site", &line);
            said = line;
        }
    };
    loop {
        match lease::view(cluster).await {
            Err(why) => tell(format!("waiting for the cluster: {why}")),
            Ok(view) => {
                let (site, ended) = restart_of(&view, id.as_deref(), known.as_ref())?;
                id = Some(site.id.clone());
                known = Some(site.clone());
                for line in news(&site, &mut steps) {
                    tell(line);
                }
                let stopped = !ended && site.phase == SitePhase::Stopped;
                if ended || stopped {
                    show(shell, Some(&site), ended, &view)?;
                    return result(&site, stopped);
                }
                if !site.waits.is_empty() {
                    tell(format!("waits for {}", site.waits));
                }
            }
        }
        shell.clock.sleep_until(Some(shell.clock.now() + AGAIN)).await;
    }
}

/// The restart of this identity, and whether it has ended.
fn restart_of(
    view: &TurnView,
    id: Option<&str>,
    known: Option<&SiteRecord>,
) -> anyhow::Result<(SiteRecord, bool)> {
    let record = view.held.as_ref().map(|it| it.record.clone()).unwrap_or_default();
    let ours = |it: &SiteRecord| it.kind == SiteKind::Restart && id.is_none_or(|id| it.id == id);
    if let Some(site) = operator::current(&record).context("follow the restart")?.filter(ours) {
        return Ok((site, false));
    }
    let last = operator::last_restart(&record).filter(|it| id.is_some() && ours(it));
    if let Some(known) = known.filter(|_| last.is_none()) {
        let left = |it: &&String| !matches!(known.step(it), Some(NodeStep::Done | NodeStep::Skipped));
        let left: Vec<&str> = known.order.iter().filter(left).map(String::as_str).collect();
        bail!(
            "follow the restart {}: its record is gone from the Lease, and nothing works on it any more; not restarted: {}",
            known.id,
            left.join(", ")
        );
    }
    let Some(last) = last else {
        bail!("follow the restart: there is none in progress; look: zedbox site status");
    };
    Ok((last, true))
}

/// What has changed of the nodes since it was asked last.
fn news(site: &SiteRecord, steps: &mut BTreeMap<String, NodeStep>) -> Vec<String> {
    let mut lines = Vec::new();
    for node in &site.order {
        let Some(step) = site.step(node).filter(|it| **it != NodeStep::Seen) else { continue };
        if steps.insert(node.clone(), step.clone()).as_ref() != Some(step) {
            lines.push(format!("node {node}: {}", word(step)));
        }
    }
    lines
}

fn result(site: &SiteRecord, stopped: bool) -> anyhow::Result<()> {
    if stopped {
        bail!("restart the site: it has stopped: {}; {}", site.waits, site.next);
    }
    if let Some(it) = &site.cancelled {
        bail!("restart the site: withdrawn by {}: {}", it.who, it.why);
    }
    Ok(())
}

/// The phase, each node, what is waited for, and what to type. Where the API does not answer, as it may while the servers go,
/// it shows what this node has on its disk.
async fn status(shell: &Shell, cluster: &ApiClient) -> anyhow::Result<()> {
    let own = || wire::peek::<SiteOperation>(&shell.topic_root, "zedkube", "global");
    let view = match lease::view(cluster).await {
        Ok(view) => view,
        Err(why) => {
            let Some(record) = own().context("show the site")? else {
                return Err(why).context("show the site");
            };
            return of_disk(shell, &record, &why.to_string());
        }
    };
    let record = view.held.as_ref().map(|it| it.record.clone()).unwrap_or_default();
    let site = operator::current(&record).context("show the site")?;
    // On another machine, or without root, this node's own record is not known.
    let under_way = under_way(&view, own().ok().flatten().as_ref(), shell.clock.wall());
    if site.is_none() && !under_way.is_empty() {
        return show_under_way(shell, under_way);
    }
    let (ended, last) = (site.is_none(), operator::last_restart(&record));
    show(shell, site.or(last).as_ref(), ended, &view)
}

/// Shows an operation that is in progress, or a restart that has ended.
fn show(shell: &Shell, site: Option<&SiteRecord>, ended: bool, view: &TurnView) -> anyhow::Result<()> {
    let Some(site) = site else {
        let none = "no whole-site operation is in progress";
        return shell.voice.rows(none, None, &[], &SiteStatus::default());
    };
    let rows = rows(site, ended, view, shell.clock.wall());
    shell.voice.rows(&headline(site, ended), Some("36"), &rows, &form(site, ended, view))
}

/// What this node has on its disk.
fn of_disk(shell: &Shell, record: &SiteOperation, why: &str) -> anyhow::Result<()> {
    let headline = format!(
        "this node is in the whole-site {} {}; the cluster cannot be asked, this is what the node has on its disk",
        record.op.word(),
        record.id
    );
    let mut rows = vec![
        ("by", record.by.clone()),
        ("phase", record.phase.clone()),
        ("this node", format!("{}; since {}", record.step, moment(record.at, shell.clock.wall()))),
    ];
    if !record.waiting_for.is_empty() {
        rows.push(("waits for", record.waiting_for.clone()));
    }
    rows.push(("cluster", why.to_owned()));
    // A restart holds a node by nothing but its drain.
    let next = if record.released {
        "zedbox status shows how far its drain is"
    } else {
        "nothing: it needs the cluster no more once its servers go"
    };
    rows.push(("next step", next.to_owned()));
    shell.voice.rows(&headline, Some("36"), &rows, record)
}

/// What nodes have under way by a Lease that is gone: each with a sentence.
fn under_way(view: &TurnView, own: Option<&SiteOperation>, now: GoTime) -> Vec<SiteNode> {
    let held = view.held.as_ref().map(|it| it.uid.as_str());
    let gone = |it: &&TurnNode| it.mark.as_ref().is_some_and(|mark| Some(mark.lease_uid.as_str()) != held);
    let of = |node: &str, state: &str, waits: String| SiteNode {
        node: node.to_owned(),
        state: state.to_owned(),
        waits_for: waits,
        ..SiteNode::default()
    };
    let cordoned = view.nodes.iter().filter(|it| it.unschedulable).filter(gone).map(|it| {
        let state = if it.ready { "Ready, cordoned" } else { "not Ready, cordoned" };
        of(&it.name, state, "its own drain or reboot, which it began by the record that is gone".to_owned())
    });
    let own = own.map(|it| {
        let (op, id, since) = (it.op.word(), &it.id, moment(it.at, now));
        let waits = if it.waiting_for.is_empty() { "nothing" } else { &it.waiting_for };
        of("this one", &it.step, format!("{waits}; in the whole-site {op} {id}, since {since}"))
    });
    cordoned.chain(own).collect()
}

fn show_under_way(shell: &Shell, nodes: Vec<SiteNode>) -> anyhow::Result<()> {
    let headline = format!(
        "no whole-site operation is in the Lease {APP_NAMESPACE}/{LEASE}: it has just ended, or somebody has deleted the \
         Lease, and then no other node is ordered to go. These nodes have something under way:"
    );
    let next = "wait until these nodes are back: `zedbox status` on each shows how far it is, `zedbox history` \
                whether it was restarted. Then begin again: zedbox site restart --reason '...', or zedbox site shutdown";
    let text = |it: &SiteNode| format!("{}: {}; waits for {}", it.node, it.state, it.waits_for);
    let mut rows: Vec<Labelled> = nodes.iter().map(|it| ("node", text(it))).collect();
    rows.push(("next step", next.to_owned()));
    let form = SiteStatus { nodes, next_step: next.to_owned(), ..SiteStatus::default() };
    shell.voice.rows(&headline, Some("33"), &rows, &form)
}

fn headline(site: &SiteRecord, ended: bool) -> String {
    let withdrawn = if site.cancelled.is_some() { ", withdrawn" } else { "" };
    let what = format!("whole-site {} {}{withdrawn}", site.kind.text(), site.id);
    if ended {
        let back = site.nodes.iter().filter(|it| site.step(&it.node) == Some(&NodeStep::Done)).count();
        let all = number(site.nodes.len(), "node");
        return format!(
            "{back} of {all} restarted: {what} has ended, no whole-site operation is in progress"
        );
    }
    format!("{what}: {}", site.phase.text())
}

/// How a node looks from here: its own word, or what the cluster says of it.
fn step<'a>(site: &'a SiteRecord, member: &SiteMember) -> &'a str {
    let Some(step) = site.step(&member.node) else { return "no answer yet" };
    if site.kind == SiteKind::Restart { word(step) } else { step.text() }
}

/// A step of a node, for a person.
fn word(step: &NodeStep) -> &str {
    match step {
        NodeStep::Seen => "waiting",
        NodeStep::Going => "rebooting",
        NodeStep::Booted => "checks after boot",
        NodeStep::Open => "back",
        other @ (NodeStep::Cordoned
        | NodeStep::Ready
        | NodeStep::Draining
        | NodeStep::Verifying
        | NodeStep::Done
        | NodeStep::Skipped
        | NodeStep::Failed
        | NodeStep::Stranger(_)) => other.text(),
    }
}

/// How long each step of a node took, and how it was verified; empty of another operation.
fn course(ack: &Ack) -> String {
    let ends = ack.past.iter().skip(1).map(|(_, since)| since).chain([&ack.since]);
    let went = ack.past.iter().zip(ends).filter(|((step, _), _)| *step != NodeStep::Seen);
    let took = went.map(|((step, from), until)| {
        let time = |text: &String| text.parse::<GoTime>().ok().map(unix_secs);
        let took = time(until).zip(time(from)).and_then(|(until, from)| u64::try_from(until - from).ok());
        // Two clocks that differ.
        format!("{} {}", word(step), took.map_or_else(|| "?".to_owned(), span))
    });
    let took: Vec<String> = took.collect();
    let took = if took.is_empty() { String::new() } else { format!("; took: {}", took.join(", ")) };
    let verified =
        if ack.verified.is_empty() { String::new() } else { format!("; verified: {}", ack.verified) };
    took + &verified
}

fn state(member: &SiteMember, view: &TurnView) -> &'static str {
    match view.nodes.iter().find(|it| it.name == member.node && it.uid == member.uid) {
        None => "gone",
        Some(it) if !it.ready => "not Ready",
        Some(it) if it.unschedulable => "Ready, cordoned",
        Some(_) => "Ready",
    }
}

fn rows(site: &SiteRecord, ended: bool, view: &TurnView, now: GoTime) -> Vec<Labelled> {
    let said = |it: &OperatorStatement| format!("{}, {}: {}", it.who, when(&it.when, now), it.why);
    let mut rows = vec![("by", said(&site.by))];
    let mut add = |label, text: String| rows.push((label, text));
    if !site.since.is_empty() {
        add("since", when(&site.since, now));
    }
    for member in in_order(site) {
        let name = &member.node;
        let class = if *name == site.leader { "leader" } else { member.class.text() };
        let (mut since, mut more) = (String::new(), String::new());
        if let Some(ack) = site.ack(name) {
            if !ack.since.is_empty() {
                since = format!(", since {}", when(&ack.since, now));
            }
            if !ack.waits.is_empty() {
                more = format!("; waits for {}", ack.waits);
            }
            more += &course(ack);
        }
        let (step, state) = (step(site, member), state(member, view));
        add("node", format!("{name} ({class}): {step}{since}; {state}{more}"));
    }
    if site.kind == SiteKind::Restart && !ended {
        let joined = view.nodes.iter().filter(|it| site.member(&it.name, &it.uid).is_none());
        for it in joined {
            add("node", format!("{}: joined since the restart has begun; it is not restarted", it.name));
        }
    }
    for it in &site.findings {
        add("finding", format!("[{}] {}; passed", it.code, it.text));
    }
    for it in &site.machines {
        add("machine", format!("{}/{}: stopped, was {}", it.namespace, it.name, it.was));
    }
    if !site.order.is_empty() {
        add("order", site.order.join(", "));
    }
    if let Some(last) = site.order.last().filter(|_| site.kind == SiteKind::Shutdown) {
        add(
            "switch on",
            format!("{last} first: it goes down last; then the other servers, then the workers"),
        );
    }
    if !site.missing.is_empty() {
        add("missing", format!("the site continued without {}", site.missing.join(", ")));
    }
    for it in &site.passed {
        add("passed", format!("{}, by {}", it.phase, said(it)));
    }
    if let Some(it) = &site.cancelled {
        add("withdrawn", format!("in phase {}, by {}", it.phase, said(it)));
    }
    if !ended {
        if !site.waits.is_empty() {
            add(if site.phase == SitePhase::Stopped { "stopped" } else { "waits for" }, site.waits.clone());
        }
        add("next step", if site.next.is_empty() { "nothing: wait".to_owned() } else { site.next.clone() });
    }
    rows
}

/// The nodes as they are listed: of a restart in the order in which they go.
fn in_order(site: &SiteRecord) -> Vec<&SiteMember> {
    let mut nodes: Vec<&SiteMember> = site.nodes.iter().collect();
    if site.kind == SiteKind::Restart {
        nodes.order_by_key(|it| site.order.iter().position(|name| *name == it.node));
    }
    nodes
}

fn form(site: &SiteRecord, ended: bool, view: &TurnView) -> SiteStatus {
    let node = |it: &SiteMember| {
        let shown = SiteNode {
            node: it.node.clone(),
            class: it.class.text().to_owned(),
            state: state(it, view).to_owned(),
            ..SiteNode::default()
        };
        let Some(Ack { step, since, past, verified, waits, .. }) = site.ack(&it.node).cloned() else {
            return shown;
        };
        let entry = |(step, since): (NodeStep, String)| SiteStep { step: step.into(), since };
        SiteNode {
            step: step.into(),
            since,
            past: past.into_iter().map(entry).collect(),
            verified,
            waits_for: waits,
            ..shown
        }
    };
    let machine = |it: &VmRecord| SiteMachine {
        kind: it.kind.clone(),
        namespace: it.namespace.clone(),
        name: it.name.clone(),
        was: it.was.to_string(),
    };
    SiteStatus {
        id: site.id.clone(),
        kind: site.kind.text().to_owned(),
        phase: if ended { "ended" } else { site.phase.text() }.to_owned(),
        since: site.since.clone(),
        who: site.by.who.clone(),
        why: site.by.why.clone(),
        when: site.by.when.clone(),
        withdrawn: site.cancelled.is_some(),
        order: site.order.clone(),
        leader: site.leader.clone(),
        missing: site.missing.clone(),
        findings: shown(&site.findings),
        machines: site.machines.iter().map(machine).collect(),
        waits_for: site.waits.clone(),
        next_step: site.next.clone(),
        nodes: in_order(site).into_iter().map(node).collect(),
    }
}

/// Findings for a program.
fn shown(all: &[Finding]) -> Vec<SiteFinding> {
    let form = |it: &Finding| SiteFinding {
        code: it.code.clone(),
        text: it.text.clone(),
        next_step: it.next.clone(),
    };
    all.iter().map(form).collect()
}
