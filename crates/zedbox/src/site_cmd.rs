//! `zedbox site`: the whole site off, rebooted, and how far it is, over the cluster's own record.
//!
//! Not here: what may be written (`outage::site::operator`), and who acts on it (zedkube on each node).

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use agent::wire;
use anyhow::{Context as _, bail};
use checks::verify;
use kubeapi::ApiClient;
use kubeapi::names::APP_NAMESPACE;
use outage::operator::{self as lease, TurnView};
use outage::site::calls::{self, Finding};
use outage::site::operator;
use outage::site::record::{Ack, NodeStep, OperatorStatement, SiteKind, SiteMember, SitePhase, SiteRecord};
use outage::turn::record::{LEASE, TurnRecord};
use outage::turn::rule::{OperatorRefusal, TurnNode};
use serde_json::{Value, json};
use sheet::text::{moment, number};
use step::{Inserted as _, LiteMap, SmallSort as _};
use topics::{GoTime, SiteOperation, VerifyResult};

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
    match &command.action {
        SiteAction::Check => check(shell, cluster).await,
        SiteAction::Status => status(shell, cluster).await.context("show the site"),
        #[cfg(feature = "demo")]
        SiteAction::Drill(options) => Box::pin(crate::demo::drill(options)).await,
        SiteAction::Restart(options) => {
            begin_restart(shell, cluster, options).await.context("restart the site")
        }
        SiteAction::Shutdown(options) => {
            begin_all(shell, cluster, SiteKind::Shutdown, options).await.context("shut the site down")
        }
        SiteAction::Reboot(options) => {
            begin_all(shell, cluster, SiteKind::Reboot, options).await.context("reboot the site")
        }
        SiteAction::Continue { phase, node, skip, reason } => {
            let phase = SitePhase::from(phase.clone().unwrap_or_default());
            let past = (&phase, node.as_deref(), skip.as_deref());
            resume(shell, cluster, past, reason).await.context("continue")
        }
        SiteAction::Cancel { reason } => {
            cancel(shell, cluster, reason).await.context("withdraw the whole-site operation")
        }
    }
    .map(|()| Exit::Done)
}

/// Writes the record; as it was before.
async fn change(
    shell: &Shell,
    cluster: &ApiClient,
    edit: impl Fn(&TurnRecord) -> Result<TurnRecord, OperatorRefusal>,
) -> anyhow::Result<TurnRecord> {
    Ok(lease::change(cluster, shell.clock.wall().to_timestamp(), edit).await?.0)
}

async fn check(shell: &Shell, cluster: &ApiClient) -> anyhow::Result<()> {
    let (_, findings) = checked(shell, cluster).await.context("check the site")?;
    show_found(shell, &findings, &[])?;
    anyhow::ensure!(findings.is_empty(), "pass the checks: {}", number(findings.len(), "finding"));
    Ok(())
}

async fn resume(
    shell: &Shell,
    cluster: &ApiClient,
    (phase, node, skip): (&SitePhase, Option<&str>, Option<&str>),
    reason: &str,
) -> anyhow::Result<()> {
    let said = shell.statement(reason)?;
    let edit = |record: &TurnRecord| match skip {
        Some(skip) => operator::skip(record, skip, &said),
        None => operator::pass(record, phase, node, &said),
    };
    change(shell, cluster, edit).await?;
    let by = format!("by {}: {}", said.who, said.why);
    let text = match skip {
        Some(node) => format!(
            "Node {node} is left out of the restart and not rebooted by it, {by}. A turn that it holds is still waited \
             for: `zedbox lock status`."
        ),
        None => format!(
            "The whole-site operation continues, {by}. What phase {} waited for stays as it is.",
            phase.text()
        ),
    };
    say(shell, "continued", &text)
}

async fn cancel(shell: &Shell, cluster: &ApiClient, reason: &str) -> anyhow::Result<()> {
    let said = shell.statement(reason)?;
    let before = change(shell, cluster, |it| operator::cancel(it, &said)).await?;
    let text = if operator::current(&before)?.is_some_and(|it| it.kind == SiteKind::Restart) {
        "Withdrew the restart of the site: the drain of the node that goes is withdrawn, and no other node starts; a \
         machine that was ordered to reboot does so."
    } else {
        "Withdrew the whole-site operation: cordons are removed, then applications are scaled up again. Workers that are \
         off have to be switched on. `zedbox site status` shows how far that is."
    };
    say(shell, "cancelled", text)
}

/// All nodes off, or rebooted, at once.
async fn begin_all(
    shell: &Shell,
    cluster: &ApiClient,
    kind: SiteKind,
    BeginOptions { reason, leave_machines, pass }: &BeginOptions,
) -> anyhow::Result<()> {
    let wish = SiteRecord { kind, leave_machines: *leave_machines, ..SiteRecord::default() };
    let begun = begin(shell, cluster, wish, (reason, pass, false)).await?.1;
    say(shell, "begun", &format!("{begun} `zedbox site cancel` withdraws it until the servers go."))
}

/// One node after another, and following that to its end.
async fn begin_restart(shell: &Shell, cluster: &ApiClient, options: &RestartOptions) -> anyhow::Result<()> {
    let RestartOptions { reason, pass, dry_run, wait } = options;
    let wish = SiteRecord { kind: SiteKind::Restart, ..SiteRecord::default() };
    let (site, begun) = begin(shell, cluster, wish, (reason, pass, *dry_run)).await?;
    let order = site.order.join(", ");
    let order = format!("Order: {order}; of the servers, the one that leads etcd by then goes last.");
    if *dry_run {
        return say(shell, "clear", &format!("{order} Nothing was begun."));
    }
    let begun = format!("{begun} `zedbox site cancel` ends it. {order}");
    if !wait {
        return say(shell, "begun", &begun);
    }
    Voice::warn_of("site", &begun);
    follow(shell, cluster, &site.id).await
}

/// Begins `wish` where no finding speaks against it but those that are passed; without anything written for a dry run. The
/// operation as it begins, and that in words.
async fn begin(
    shell: &Shell,
    cluster: &ApiClient,
    mut wish: SiteRecord,
    (reason, pass, dry_run): (&str, &[String], bool),
) -> anyhow::Result<(SiteRecord, String)> {
    wish.by = shell.statement(reason)?;
    // Two persons at once get two identities; the record takes one.
    let chance = RandomState::new().hash_one(&wish.by.who) & 0xffff;
    wish.id = format!("{}-{chance:04x}", wish.by.when.get(..19).unwrap_or(&wish.by.when));
    let (view, mut findings) = checked(shell, cluster).await?;
    if wish.kind == SiteKind::Restart {
        // Turns are waited for.
        findings.retain(|it| it.code != calls::TURN);
        for layer in Box::pin(verify::look(cluster, || shell.clock.wall().to_timestamp())).await {
            let bad = layer.findings.iter().filter(|it| it.result >= VerifyResult::Unknown);
            let new = bad.map(|it| Finding::new(&layer.layer, it.text.clone(), it.next_step.clone()));
            let new: Vec<Finding> = new.filter(|it| findings.iter().all(|of| of.text != it.text)).collect();
            findings.extend(new);
        }
    }
    let codes: BTreeSet<&str> = calls::blocking(&findings, pass).iter().map(|it| it.code.as_str()).into_set();
    if shell.voice.output == Output::Text || !codes.is_empty() {
        show_found(shell, &findings, pass)?;
    }
    let words: Vec<String> = codes.iter().map(|it| format!("--pass {it}")).collect();
    anyhow::ensure!(
        codes.is_empty(),
        "{} failed, nothing was started; fix it, or add {}",
        number(codes.len(), "check"),
        words.join(" ")
    );
    wish.findings = findings;
    let begun = operator::begin(&view.record(), &wish, &view.nodes)?;
    if !dry_run {
        change(shell, cluster, |record| operator::begin(record, &wish, &view.nodes)).await?;
    }
    let site = operator::current(&begun)?.unwrap_or(wish);
    let SiteRecord { kind, id, by, nodes, .. } = &site;
    let text = format!(
        "The whole-site {} {id} has begun for {}, by {}: {}. `zedbox site status` shows how far it is;",
        kind.text(),
        number(nodes.len(), "node"),
        by.who,
        by.why
    );
    Ok((site, text))
}

/// What speaks against an operation now, where none is in progress.
async fn checked(shell: &Shell, cluster: &ApiClient) -> anyhow::Result<(TurnView, Vec<Finding>)> {
    let view = lease::view(cluster).await?;
    let record = view.record();
    operator::none_in_progress(&record)?;
    let findings = calls::look(cluster, &record, shell.clock.wall().to_timestamp()).await;
    Ok((view, findings))
}

/// Shows what the checks have found.
fn show_found(shell: &Shell, findings: &[Finding], pass: &[String]) -> anyhow::Result<()> {
    let voice = &shell.voice;
    let result = if findings.is_empty() { "clear" } else { "found" };
    if voice.output == Output::Json || findings.is_empty() {
        return voice.say(&json!({ "Result": result, "Findings": shown(findings) }), "All checks passed.");
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

/// Follows the restart `id` until it has ended or has stopped; then shows it. A cluster that does not answer, as where its only
/// server reboots, is waited for.
async fn follow(shell: &Shell, cluster: &ApiClient, id: &str) -> anyhow::Result<()> {
    // By node, and by no name what all wait for.
    let mut said = <LiteMap<String, String>>::new();
    let mut tell = |of: &str, line: String| {
        if said.insert(of.to_owned(), line.clone()).as_ref() != Some(&line) {
            Voice::warn_of("site", &line);
        }
    };
    loop {
        match lease::view(cluster).await {
            Err(why) => tell("", format!("waiting for the cluster: {why}")),
            Ok(view) => {
                let record = view.record();
                let ours = |it: &SiteRecord| it.id == id;
                let now = operator::current(&record)?.filter(ours);
                let ended = now.is_none();
                let site = now.or_else(|| operator::last_restart(&record).filter(ours));
                let gone = || format!("the record of {id} is gone from the Lease; look: zedbox site status");
                let site = site.with_context(gone)?;
                if ended || site.phase == SitePhase::Stopped {
                    show(shell, &site, ended, &view)?;
                    return match &site.cancelled {
                        _ if !ended => bail!("it has stopped: {}; {}", site.waits, site.next),
                        Some(it) => bail!("withdrawn by {}: {}", it.who, it.why),
                        None => Ok(()),
                    };
                }
                for it in site.seen.iter().filter(|it| it.step != NodeStep::Seen) {
                    tell(&it.node, format!("node {}: {}", it.node, it.step.text()));
                }
                if !site.waits.is_empty() {
                    tell("", format!("waits for {}", site.waits));
                }
            }
        }
        shell.clock.sleep_until(Some(shell.clock.now() + AGAIN)).await;
    }
}

/// The phase, each node, what is waited for, and what to type. Where the API does not answer, as it may while the servers go,
/// it shows what this node has on its disk.
async fn status(shell: &Shell, cluster: &ApiClient) -> anyhow::Result<()> {
    let own = wire::peek::<SiteOperation>(&shell.topic_root, "zedkube", "global");
    let view = match lease::view(cluster).await {
        Ok(view) => view,
        Err(why) => {
            let Some(record) = own? else { return Err(why.into()) };
            return of_disk(shell, &record, &why.to_string());
        }
    };
    let record = view.record();
    if let Some(site) = operator::current(&record)? {
        return show(shell, &site, false, &view);
    }
    // On another machine, or without root, this node's own record is not known.
    let under_way = under_way(&view, own.ok().flatten().as_ref(), shell.clock.wall());
    if !under_way.is_empty() {
        return show_under_way(shell, &under_way);
    }
    if let Some(last) = operator::last_restart(&record) {
        return show(shell, &last, true, &view);
    }
    let none = form(&SiteRecord::default(), false, &view);
    shell.voice.rows("no whole-site operation is in progress", None, &[], &none)
}

/// Shows an operation that is in progress, or a restart that has ended.
fn show(shell: &Shell, site: &SiteRecord, ended: bool, view: &TurnView) -> anyhow::Result<()> {
    let rows = rows(site, ended, view, shell.clock.wall());
    shell.voice.rows(&headline(site, ended), Some("36"), &rows, &form(site, ended, view))
}

/// How far this node is, by its own disk.
fn step_here(record: &SiteOperation, now: GoTime) -> String {
    let waits = part("; waits for ", &record.waiting_for);
    format!("{}, since {}{waits}", record.step, moment(record.at, now))
}

/// What this node has on its disk.
fn of_disk(shell: &Shell, record: &SiteOperation, why: &str) -> anyhow::Result<()> {
    let headline = format!(
        "this node is in the whole-site {} {}; the cluster cannot be asked, this is what the node has on its disk",
        record.op.word(),
        record.id
    );
    // A restart holds a node by nothing but its drain.
    let next = if record.released {
        "zedbox status shows how far its drain is"
    } else {
        "nothing: it needs the cluster no more once its servers go"
    };
    let rows = [
        ("by", record.by.clone()),
        ("phase", record.phase.clone()),
        ("this node", step_here(record, shell.clock.wall())),
        ("cluster", why.to_owned()),
        ("next step", next.to_owned()),
    ];
    shell.voice.rows(&headline, Some("36"), &rows, record)
}

/// What nodes have under way by a Lease that is gone, each in a sentence.
fn under_way(view: &TurnView, own: Option<&SiteOperation>, now: GoTime) -> Vec<String> {
    let held = view.held.as_ref().map(|it| it.uid.as_str());
    let gone = |it: &&TurnNode| it.mark.as_ref().is_some_and(|mark| Some(mark.lease_uid.as_str()) != held);
    let cordoned = view.nodes.iter().filter(|it| it.unschedulable).filter(gone).map(|it| {
        format!(
            "{}: cordoned for its own drain or reboot, which it began by the record that is gone",
            it.name
        )
    });
    let own = own
        .map(|it| format!("this one, in the whole-site {} {}: {}", it.op.word(), it.id, step_here(it, now)));
    cordoned.chain(own).collect()
}

/// Shows what nodes have under way by a Lease that is gone.
fn show_under_way(shell: &Shell, nodes: &[String]) -> anyhow::Result<()> {
    let headline = format!(
        "no whole-site operation is in the Lease {APP_NAMESPACE}/{LEASE}: it has just ended, or somebody has deleted the \
         Lease, and then no other node is ordered to go. These nodes have something under way:"
    );
    let next = "wait until they are back: `zedbox status` on each shows how far it is, `zedbox history` whether it was \
                restarted. Then begin again: zedbox site restart --reason '...', or zedbox site shutdown";
    let mut rows: Vec<Labelled> = nodes.iter().map(|it| ("node", it.clone())).collect();
    rows.push(("next step", next.to_owned()));
    shell.voice.rows(&headline, Some("33"), &rows, &json!({ "ID": "", "UnderWay": nodes, "NextStep": next }))
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

/// `text` behind `before`, or nothing.
fn part(before: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{before}{text}") }
}

/// The nodes of an operation, in the order in which they go as far as that is known.
fn members(site: &SiteRecord) -> Vec<&SiteMember> {
    let mut all: Vec<&SiteMember> = site.nodes.iter().collect();
    all.order_by_key(|it| site.order.iter().position(|name| *name == it.node));
    all
}

/// As the cluster shows it.
fn state(it: &SiteMember, view: &TurnView) -> &'static str {
    match view.nodes.iter().find(|of| of.name == it.node && of.uid == it.uid) {
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
    for it in members(site) {
        let class = if it.node == site.leader_now() { "leader" } else { it.class.text() };
        let ack = site.ack(&it.node).cloned().unwrap_or_default();
        let step = if ack.node.is_empty() { "no answer yet" } else { ack.step.text() };
        let since = part(", since ", &when(&ack.since, now));
        let waits = part("; waits for ", &ack.waits);
        let state = state(it, view);
        add("node", format!("{} ({class}): {step}{since}; {state}{waits}", it.node));
    }
    for it in &site.findings {
        add("finding", format!("[{}] {}; passed", it.code, it.text));
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

/// An operation for a program, all empty while there is none; members are added, never renamed.
fn form(site: &SiteRecord, ended: bool, view: &TurnView) -> Value {
    let node = |it: &SiteMember| {
        let Ack { step, since, past, waits, .. } = site.ack(&it.node).cloned().unwrap_or_default();
        let past = past.iter().map(|(step, since)| json!({ "Step": step, "Since": since }));
        json!({
            "Node": it.node, "Class": it.class, "Step": step, "Since": since, "State": state(it, view),
            "Past": past.collect::<Value>(), "WaitsFor": waits,
        })
    };
    let by = &site.by;
    json!({
        "ID": site.id, "Kind": site.kind, "Phase": if ended { "ended" } else { site.phase.text() },
        "Since": site.since, "Who": by.who, "Why": by.why, "When": by.when,
        "Withdrawn": site.cancelled.is_some(), "Order": site.order, "Leader": site.leader_now(),
        "Missing": site.missing, "Findings": shown(&site.findings), "WaitsFor": site.waits,
        "NextStep": site.next, "Nodes": members(site).into_iter().map(node).collect::<Value>(),
    })
}

/// Findings for a program.
fn shown(all: &[Finding]) -> Value {
    all.iter().map(|it| json!({ "Code": it.code, "Text": it.text, "NextStep": it.next })).collect()
}
