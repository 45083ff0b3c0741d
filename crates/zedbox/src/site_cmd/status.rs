//! `zedbox site status`: the phase, each node, what is waited for, and what to type. Where the API does not answer, as it
//! may while the servers go, it shows what this node has on its disk.
//!
//! The JSON is for programs, see schemas/SiteStatus.schema.json: members are added, never renamed.

use std::path::Path;

use agent::{Clock, wire};
use anyhow::Context as _;
use kubeapi::ApiClient;
use kubeapi::names::APP_NAMESPACE;
use outage::operator::{self as lease, TurnView};
use outage::site::machines::VmRecord;
use outage::site::operator;
use outage::site::preflight::Finding;
use outage::site::record::{Ack, NodeStep, SiteKind, SiteMember, SitePhase, SiteRecord};
use outage::turn::record::LEASE;
use outage::turn::rule::TurnNode;
use pubsub::TopicRoot;
use topics::{GoTime, SiteFinding, SiteMachine, SiteNode, SiteOperation, SiteStatus, SiteStep};

use crate::args::Output;
use crate::drain_cmd::text::{Sheet, paragraph, row};
use crate::drain_cmd::voice::Voice;
use crate::lock_cmd::status::when;
use sheet::RowWeight;
use sheet::text::{moment, span, unix_secs};

pub(super) async fn run(cluster: &ApiClient, clock: Clock, root: &Path, voice: &Voice) -> anyhow::Result<()> {
    let view = match lease::view(cluster).await {
        Ok(view) => view,
        Err(why) => {
            let topic_root = TopicRoot::open(root).context("show the site")?;
            let record =
                wire::peek::<SiteOperation>(&topic_root, "zedkube", "global").context("show the site")?;
            let Some(record) = record else { return Err(why).context("show the site") };
            return of_disk(&record, &why.to_string(), clock, voice);
        }
    };
    let record = view.held.as_ref().map(|it| it.record.clone()).unwrap_or_default();
    let site = operator::current(&record).context("show the site")?;
    // On another machine, or without root, this node's own record is not known.
    let own = TopicRoot::open(root)
        .ok()
        .and_then(|topic_root| wire::peek::<SiteOperation>(&topic_root, "zedkube", "global").ok()?);
    let under_way = under_way(&view, own.as_ref(), clock);
    if site.is_none() && !under_way.is_empty() {
        return show_under_way(under_way, voice);
    }
    let (ended, last) = (site.is_none(), operator::last_restart(&record));
    show(site.or(last).as_ref(), ended, &view, clock, voice)
}

/// Shows an operation that is in progress, or a restart that has ended.
pub(super) fn show(
    site: Option<&SiteRecord>,
    ended: bool,
    view: &TurnView,
    clock: Clock,
    voice: &Voice,
) -> anyhow::Result<()> {
    match voice.output {
        Output::Json => Voice::json(&form(site, ended, view), false)?,
        Output::Text => {
            Voice::print(&sheet(site, ended, view, clock.wall(), voice.columns()).text(voice.colours))?
        }
    };
    Ok(())
}

/// What this node has on its disk.
fn of_disk(record: &SiteOperation, why: &str, clock: Clock, voice: &Voice) -> anyhow::Result<()> {
    if voice.output == Output::Json {
        return Voice::json(record, false).map(drop);
    }
    let (columns, now) = (voice.columns(), clock.wall());
    let headline = format!(
        "this node is in the whole-site {} {}; the cluster cannot be asked, this is what the node has on its disk",
        record.op.word(),
        record.id
    );
    let mut out = Sheet::new(&paragraph("", &headline, columns), Some("36"));
    let mut add = |label: &str, text: &str| out.add(RowWeight::Essential, &row(label, text, columns));
    add("by", &record.by);
    add("phase", &record.phase);
    add("this node", &format!("{}; since {}", record.step, moment(record.at, now)));
    if !record.waiting_for.is_empty() {
        add("waits for", &record.waiting_for);
    }
    add("cluster", why);
    // A restart holds a node by nothing but its drain.
    let next = if record.released {
        "zedbox drain status shows how far its drain is"
    } else {
        "nothing: it needs the cluster no more once its servers go"
    };
    add("next step", next);
    Voice::print(&out.text(voice.colours)).map(drop)
}

/// What nodes have under way by a Lease that is gone: each with a sentence.
fn under_way(view: &TurnView, own: Option<&SiteOperation>, clock: Clock) -> Vec<SiteNode> {
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
        let (op, id, since) = (it.op.word(), &it.id, moment(it.at, clock.wall()));
        let waits = if it.waiting_for.is_empty() { "nothing" } else { &it.waiting_for };
        of("this one", &it.step, format!("{waits}; in the whole-site {op} {id}, since {since}"))
    });
    cordoned.chain(own).collect()
}

fn show_under_way(nodes: Vec<SiteNode>, voice: &Voice) -> anyhow::Result<()> {
    let headline = format!(
        "no whole-site operation is in the Lease {APP_NAMESPACE}/{LEASE}: it has just ended, or somebody has deleted the \
         Lease, and then no other node is ordered to go. These nodes have something under way:"
    );
    let next = "wait until these nodes are back: `zedbox drain status` on each shows how far it is, `zedbox drain history` \
                whether it was restarted. Then begin again: zedbox site restart --reason '...', or zedbox site shutdown";
    if voice.output == Output::Json {
        let form = SiteStatus { nodes, next_step: next.to_owned(), ..SiteStatus::default() };
        return Voice::json(&form, false).map(drop);
    }
    let columns = voice.columns();
    let mut out = Sheet::new(&paragraph("", &headline, columns), Some("33"));
    for it in nodes {
        let text = format!("{}: {}; waits for {}", it.node, it.state, it.waits_for);
        out.add(RowWeight::Essential, &row("node", &text, columns));
    }
    out.add(RowWeight::Essential, &row("next step", next, columns));
    Voice::print(&out.text(voice.colours)).map(drop)
}

fn headline(site: &SiteRecord, ended: bool) -> String {
    let withdrawn = if site.cancelled.is_some() { ", withdrawn" } else { "" };
    let what = format!("whole-site {} {}{withdrawn}", site.kind.text(), site.id);
    if ended {
        return format!("no whole-site operation is in progress; the last one of its kind: {what}");
    }
    format!("{what}: {}", site.phase.text())
}

/// How a node looks from here: its own word, or what the cluster says of it.
fn step<'a>(site: &'a SiteRecord, member: &SiteMember) -> &'a str {
    let Some(step) = site.step(&member.node) else { return "not heard of" };
    if site.kind == SiteKind::Restart { word(step) } else { step.text() }
}

/// A step of a node, for a person.
pub(super) fn word(step: &NodeStep) -> &str {
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

fn sheet(site: Option<&SiteRecord>, ended: bool, view: &TurnView, now: GoTime, columns: usize) -> Sheet {
    let Some(site) = site else { return Sheet::new("no whole-site operation is in progress", None) };
    let mut out = Sheet::new(&paragraph("", &headline(site, ended), columns), Some("36"));
    let mut add = |label: &str, text: &str| out.add(RowWeight::Essential, &row(label, text, columns));
    add("by", &format!("{}, {}: {}", site.by.who, when(&site.by.when, now), site.by.why));
    if !site.since.is_empty() {
        add("since", &when(&site.since, now));
    }
    for member in in_order(site) {
        let ack = site.ack(&member.node);
        let since =
            ack.filter(|it| !it.since.is_empty()).map(|it| format!(", since {}", when(&it.since, now)));
        let waits = ack.filter(|it| !it.waits.is_empty()).map(|it| format!("; waits for {}", it.waits));
        add(
            "node",
            &format!(
                "{} ({}): {}{}; {}{}{}",
                member.node,
                if member.node == site.leader { "leader" } else { member.class.text() },
                step(site, member),
                since.unwrap_or_default(),
                state(member, view),
                waits.unwrap_or_default(),
                ack.map(course).unwrap_or_default(),
            ),
        );
    }
    if site.kind == SiteKind::Restart && !ended {
        let joined = view.nodes.iter().filter(|it| site.member(&it.name, &it.uid).is_none());
        for it in joined {
            add("node", &format!("{}: joined since the restart has begun; it is not restarted", it.name));
        }
    }
    for it in &site.findings {
        add("finding", &format!("[{}] {}; passed", it.code, it.text));
    }
    for it in &site.machines {
        add("machine", &format!("{}/{}: stopped, was {}", it.namespace, it.name, it.was));
    }
    if !site.order.is_empty() {
        add("order", &site.order.join(", "));
    }
    if let Some(last) = site.order.last().filter(|_| site.kind == SiteKind::Shutdown) {
        add(
            "switch on",
            &format!("{last} first: it goes down last; then the other servers, then the workers"),
        );
    }
    if !site.missing.is_empty() {
        add("missing", &format!("the site continued without {}", site.missing.join(", ")));
    }
    for it in &site.passed {
        add("passed", &format!("{}, by {}, {}: {}", it.phase, it.who, when(&it.when, now), it.why));
    }
    if let Some(it) = &site.cancelled {
        add(
            "withdrawn",
            &format!("in phase {}, by {}, {}: {}", it.phase, it.who, when(&it.when, now), it.why),
        );
    }
    if ended {
        return out;
    }
    if !site.waits.is_empty() {
        add(if site.phase == SitePhase::Stopped { "stopped" } else { "waits for" }, &site.waits);
    }
    add("next step", if site.next.is_empty() { "nothing: wait" } else { &site.next });
    out
}

/// The nodes as they are listed: of a restart in the order in which they go.
fn in_order(site: &SiteRecord) -> Vec<&SiteMember> {
    let mut nodes: Vec<&SiteMember> = site.nodes.iter().collect();
    if site.kind == SiteKind::Restart {
        nodes.sort_by_key(|it| site.order.iter().position(|name| *name == it.node));
    }
    nodes
}

fn form(site: Option<&SiteRecord>, ended: bool, view: &TurnView) -> SiteStatus {
    let Some(site) = site else { return SiteStatus::default() };
    let node = |it: &SiteMember| {
        let ack = site.ack(&it.node);
        SiteNode {
            node: it.node.clone(),
            class: it.class.text().to_owned(),
            step: ack.map_or_else(String::new, |it| it.step.text().to_owned()),
            since: ack.map(|it| it.since.clone()).unwrap_or_default(),
            past: ack.map_or_else(Vec::new, |it| it.past.iter().map(past).collect()),
            verified: ack.map(|it| it.verified.clone()).unwrap_or_default(),
            waits_for: ack.map(|it| it.waits.clone()).unwrap_or_default(),
            state: state(it, view).to_owned(),
        }
    };
    SiteStatus {
        id: site.id.clone(),
        kind: site.kind.text().to_owned(),
        phase: if ended { "ended".to_owned() } else { site.phase.text().to_owned() },
        since: site.since.clone(),
        who: site.by.who.clone(),
        why: site.by.why.clone(),
        when: site.by.when.clone(),
        withdrawn: site.cancelled.is_some(),
        order: site.order.clone(),
        leader: site.leader.clone(),
        missing: site.missing.clone(),
        findings: findings(&site.findings),
        machines: site.machines.iter().map(machine).collect(),
        waits_for: site.waits.clone(),
        next_step: site.next.clone(),
        nodes: in_order(site).into_iter().map(node).collect(),
    }
}

fn past((step, since): &(NodeStep, String)) -> SiteStep {
    SiteStep { step: step.text().to_owned(), since: since.clone() }
}

fn machine(it: &VmRecord) -> SiteMachine {
    SiteMachine {
        kind: it.kind.clone(),
        namespace: it.namespace.clone(),
        name: it.name.clone(),
        was: it.was.to_string(),
    }
}

/// Findings for a program.
pub(super) fn findings(all: &[Finding]) -> Vec<SiteFinding> {
    let form = |it: &Finding| SiteFinding {
        code: it.code.clone(),
        text: it.text.clone(),
        next_step: it.next.clone(),
    };
    all.iter().map(form).collect()
}
