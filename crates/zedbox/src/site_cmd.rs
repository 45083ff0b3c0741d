//! `zedbox site`: the whole site off, rebooted, and how far it is, over the cluster's own record.
//!
//! Not here: what may be written (`outage::site::operator`), and who acts on it (zedkube on each node).

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use agent::wire;
use anyhow::{Context as _, anyhow, bail};
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
use step::{Inserted as _, LiteMap, SmallSort as _};
use topics::{GoTime, SiteFinding, SiteMachine, SiteNode, SiteOperation, SiteStatus, SiteStep, VerifyResult};

use crate::Exit;
use crate::args::{BeginOptions, Output, RestartOptions, SiteAction, SiteCommand};
use crate::drain_cmd::Shell;
use crate::drain_cmd::voice::{Labelled, Voice};
use crate::lock_cmd::when;

/// Pause between two looks at a restart that is followed.
const AGAIN: Duration = Duration::from_secs(2);
/// The phase of a restart that is over.
const ENDED: &str = "ended";

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
        SiteAction::Shutdown(options) => begin_all(shell, cluster, SiteKind::Shutdown, options).await,
        SiteAction::Reboot(options) => begin_all(shell, cluster, SiteKind::Reboot, options).await,
        SiteAction::Continue { phase, node, skip, reason } => {
            let said = said(reason).context("continue")?;
            let phase = SitePhase::from(phase.clone().unwrap_or_default());
            let edit = |record: &TurnRecord| match skip {
                Some(skip) => operator::skip(record, skip, &said),
                None => operator::pass(record, &phase, node.as_deref(), &said),
            };
            let (before, _) = change(shell, cluster, edit, "continue").await?;
            let by = format!("by {}: {}", said.who, said.why);
            let text = match skip {
                Some(node) => format!(
                    "Node {node} is left out of the restart and not rebooted by it, {by}. A turn that it holds is still \
                     waited for: `zedbox lock status`."
                ),
                None if operator::current(&before)?.is_some_and(|it| it.kind == SiteKind::Restart) => {
                    format!("The restart of the site continues, {by}.")
                }
                None => format!(
                    "The site no longer waits for what phase {} waits for, {by}. What was waited for stays as it is.",
                    phase.text()
                ),
            };
            say(shell, "continued", &text)
        }
        SiteAction::Cancel { reason } => {
            let what = "withdraw the whole-site operation";
            let said = said(reason).context(what)?;
            let (before, _) = change(shell, cluster, |it| operator::cancel(it, &said), what).await?;
            let before = operator::current(&before)?;
            let phase = before.as_ref().map(|it| &it.phase);
            let off = phase == Some(&SitePhase::WorkersGoing);
            let machines = if off { " Workers that are off have to be switched on." } else { "" };
            let text = if before.as_ref().is_some_and(|it| it.kind == SiteKind::Restart) {
                "Withdrew the restart of the site: the drain of the node that goes is withdrawn, and no other node \
                 starts; a machine that was ordered to reboot does so."
                    .to_owned()
            } else {
                format!(
                    "Withdrew the whole-site operation: cordons are removed, then applications are scaled up \
                     again.{machines} `zedbox site status` shows how far that is."
                )
            };
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

/// All nodes off, or rebooted, at once.
async fn begin_all(
    shell: &Shell,
    cluster: &ApiClient,
    kind: SiteKind,
    options: &BeginOptions,
) -> anyhow::Result<()> {
    let BeginOptions { reason, leave_machines, pass } = options;
    let what = if kind == SiteKind::Reboot { "reboot the site" } else { "shut the site down" };
    let (leave_machines, although_held) = (*leave_machines, pass.iter().any(|it| it == "turn"));
    let wish = SiteRequest { leave_machines, although_held, ..request(shell, kind, reason).context(what)? };
    let site = begin(shell, cluster, (wish, pass, what), false).await?;
    let text = format!(
        "The whole-site {} {} has begun for {}, by {}: {}. `zedbox site status` shows \
         how far it is; `zedbox site cancel` withdraws it until the servers go.",
        site.kind.text(),
        site.id,
        number(site.nodes.len(), "node"),
        site.by.who,
        site.by.why
    );
    say(shell, "begun", &text)
}

/// One node after another, and following that to its end.
async fn begin_restart(shell: &Shell, cluster: &ApiClient, options: &RestartOptions) -> anyhow::Result<()> {
    let RestartOptions { reason, pass, dry_run, wait } = options;
    let what = "restart the site";
    let wish = request(shell, SiteKind::Restart, reason).context(what)?;
    let site = begin(shell, cluster, (wish, pass, what), *dry_run).await?;
    let order = site.order.join(", ");
    let order = format!("Order: {order}; of the servers, the one that leads etcd by then goes last.");
    if *dry_run {
        return say(shell, "clear", &format!("{order} Nothing was begun."));
    }
    let begun = format!(
        "The restart of the site {} has begun, by {}: {}. {order} `zedbox site status` shows how far it is; \
         `zedbox site cancel` ends it.",
        site.id, site.by.who, site.by.why
    );
    if !wait {
        return say(shell, "begun", &begun);
    }
    Voice::warn_of("site", &begun);
    follow(shell, cluster, Some(site.id)).await
}

fn request(shell: &Shell, kind: SiteKind, reason: &str) -> anyhow::Result<SiteRequest> {
    let by = shell.statement(reason)?;
    let id = identity(&by);
    Ok(SiteRequest { id, kind, by, leave_machines: false, although_held: true, findings: Vec::new() })
}

/// Begins what no finding speaks against but those that are passed; without anything written for a `dry_run`. The operation
/// as it begins.
async fn begin(
    shell: &Shell,
    cluster: &ApiClient,
    (wish, pass, what): (SiteRequest, &[String], &'static str),
    dry_run: bool,
) -> anyhow::Result<SiteRecord> {
    let mut findings = checked(shell, cluster).await.context(what)?;
    if wish.kind == SiteKind::Restart {
        // Turns are waited for.
        findings.retain(|it| it.code != "turn");
        for layer in Box::pin(verify::look(cluster, || shell.clock.wall().to_timestamp())).await {
            let bad = layer.findings.iter().filter(|it| it.result >= VerifyResult::Unknown);
            let new = bad.map(|it| Finding::new(&layer.layer, it.text.clone(), it.next_step.clone()));
            let new: Vec<Finding> = new.filter(|it| findings.iter().all(|of| of.text != it.text)).collect();
            findings.extend(new);
        }
    }
    none_blocks(shell, &findings, pass, what)?;
    let wish = SiteRequest { findings, ..wish };
    let view = lease::view(cluster).await.context(what)?;
    let record = view.held.map(|it| it.record).unwrap_or_default();
    let begun = operator::begun(&record, &wish, &view.nodes).context(what)?;
    if !dry_run {
        change(shell, cluster, |record| operator::begin(record, &wish, &view.nodes), what).await?;
    }
    Ok(begun)
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

/// Follows the restart `id`, or the one that is in progress, until it has ended or has stopped; then shows it. A cluster that does
/// not answer, as where its only server reboots, is waited for.
async fn follow(shell: &Shell, cluster: &ApiClient, mut id: Option<String>) -> anyhow::Result<()> {
    let (mut steps, mut said, mut known) = (<LiteMap<_, _>>::new(), String::new(), None);
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
                let record = view.held.as_ref().map(|it| it.record.clone()).unwrap_or_default();
                let ours = |it: &SiteRecord| {
                    it.kind == SiteKind::Restart && id.as_ref().is_none_or(|id| it.id == *id)
                };
                let now = operator::current(&record).context("follow the restart")?.filter(ours);
                let ended = now.is_none();
                let last = operator::last_restart(&record).filter(|it| id.is_some() && ours(it));
                let Some(site) = now.or(last) else { return Err(nothing_to_follow(known.as_ref())) };
                // What has changed of the nodes since it was asked last.
                for node in &site.order {
                    let Some(step) = site.step(node).filter(|it| **it != NodeStep::Seen) else { continue };
                    if steps.insert(node.clone(), step.clone()).as_ref() != Some(step) {
                        tell(format!("node {node}: {}", word(step.text())));
                    }
                }
                if ended || site.phase == SitePhase::Stopped {
                    show(shell, Some(&site), ended, &view)?;
                    return result(&site, ended);
                }
                if !site.waits.is_empty() {
                    tell(format!("waits for {}", site.waits));
                }
                id = Some(site.id.clone());
                known = Some(site);
            }
        }
        shell.clock.sleep_until(Some(shell.clock.now() + AGAIN)).await;
    }
}

/// No restart is in the record: there was none, or the one that was followed so far, as it was `known`, is gone.
fn nothing_to_follow(known: Option<&SiteRecord>) -> anyhow::Error {
    let Some(known) = known else {
        return anyhow!("follow the restart: there is none in progress; look: zedbox site status");
    };
    let left = |it: &&String| !matches!(known.step(it), Some(NodeStep::Done | NodeStep::Skipped));
    let left: Vec<&str> = known.order.iter().filter(left).map(String::as_str).collect();
    anyhow!(
        "follow the restart {}: its record is gone from the Lease, and nothing works on it any more; not restarted: {}",
        known.id,
        left.join(", ")
    )
}

fn result(site: &SiteRecord, ended: bool) -> anyhow::Result<()> {
    match &site.cancelled {
        _ if !ended => bail!("restart the site: it has stopped: {}; {}", site.waits, site.next),
        Some(it) => bail!("restart the site: withdrawn by {}: {}", it.who, it.why),
        None => Ok(()),
    }
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
    let form = form(site, ended, view);
    let rows = rows(site, &form, view, shell.clock.wall());
    shell.voice.rows(&headline(site, ended), Some("36"), &rows, &form)
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

/// A step of a node in a restart, for a person.
fn word(step: &str) -> &str {
    match step {
        "seen" => "waiting",
        "going" => "rebooting",
        "booted" => "checks after boot",
        "open" => "back",
        other => other,
    }
}

/// How long each step of a node took, and how it was verified; empty of another operation.
fn course(node: &SiteNode) -> String {
    let ends = node.past.iter().skip(1).map(|it| &it.since).chain([&node.since]);
    let went = node.past.iter().zip(ends).filter(|(it, _)| it.step != NodeStep::Seen.text());
    let took = went.map(|(it, until)| {
        let time = |text: &String| text.parse::<GoTime>().ok().map(unix_secs);
        let took =
            time(until).zip(time(&it.since)).and_then(|(until, from)| u64::try_from(until - from).ok());
        // Two clocks that differ.
        format!("{} {}", word(&it.step), took.map_or_else(|| "?".to_owned(), span))
    });
    let took: Vec<String> = took.collect();
    let took = if took.is_empty() { String::new() } else { format!("; took: {}", took.join(", ")) };
    let verified =
        if node.verified.is_empty() { String::new() } else { format!("; verified: {}", node.verified) };
    took + &verified
}

/// The same as `form` says, and what only a person reads.
fn rows(site: &SiteRecord, form: &SiteStatus, view: &TurnView, now: GoTime) -> Vec<Labelled> {
    let said = |it: &OperatorStatement| format!("{}, {}: {}", it.who, when(&it.when, now), it.why);
    let (restart, ended) = (site.kind == SiteKind::Restart, form.phase == ENDED);
    let mut rows = vec![("by", said(&site.by))];
    let mut add = |label, text: String| rows.push((label, text));
    if !site.since.is_empty() {
        add("since", when(&site.since, now));
    }
    for it in &form.nodes {
        let class = if it.node == site.leader { "leader" } else { &it.class };
        let step = match it.step.as_str() {
            "" => "no answer yet",
            step if restart => word(step),
            step => step,
        };
        let since =
            if it.since.is_empty() { String::new() } else { format!(", since {}", when(&it.since, now)) };
        let waits =
            if it.waits_for.is_empty() { String::new() } else { format!("; waits for {}", it.waits_for) };
        add("node", format!("{} ({class}): {step}{since}; {}{waits}{}", it.node, it.state, course(it)));
    }
    if restart && !ended {
        let joined = view.nodes.iter().filter(|it| site.member(&it.name, &it.uid).is_none());
        for it in joined {
            add("node", format!("{}: joined since the restart has begun; it is not restarted", it.name));
        }
    }
    for it in &site.findings {
        add("finding", format!("[{}] {}; passed", it.code, it.text));
    }
    for it in &form.machines {
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

fn form(site: &SiteRecord, ended: bool, view: &TurnView) -> SiteStatus {
    let node = |it: &SiteMember| {
        let seen = view.nodes.iter().find(|of| of.name == it.node && of.uid == it.uid);
        let state = match seen {
            None => "gone",
            Some(it) if !it.ready => "not Ready",
            Some(it) if it.unschedulable => "Ready, cordoned",
            Some(_) => "Ready",
        };
        let Ack { step, since, past, verified, waits, .. } = site.ack(&it.node).cloned().unwrap_or_default();
        let entry = |(step, since): (NodeStep, String)| SiteStep { step: step.into(), since };
        SiteNode {
            node: it.node.clone(),
            class: it.class.text().to_owned(),
            step: step.into(),
            since,
            past: past.into_iter().map(entry).collect(),
            verified,
            waits_for: waits,
            state: state.to_owned(),
        }
    };
    let machine = |it: &VmRecord| SiteMachine {
        kind: it.kind.clone(),
        namespace: it.namespace.clone(),
        name: it.name.clone(),
        was: it.was.to_string(),
    };
    let mut nodes: Vec<SiteNode> = site.nodes.iter().map(node).collect();
    if site.kind == SiteKind::Restart {
        nodes.order_by_key(|it| site.order.iter().position(|name| *name == it.node));
    }
    SiteStatus {
        id: site.id.clone(),
        kind: site.kind.text().to_owned(),
        phase: if ended { ENDED } else { site.phase.text() }.to_owned(),
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
        nodes,
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
