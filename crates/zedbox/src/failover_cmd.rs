//! `zedbox failover`: what would become of the work of each node if it died, a node declared dead by a person's word, and how far
//! that is.
//!
//! Not here: what keeps a node from being declared (`outage::failover::rule`), the writes (`outage::failover::act`).

use std::time::Duration;

use agent::Clock;
use anyhow::{Context as _, anyhow, bail};
use kubeapi::{ApiClient, NodeName, listed};
use kubenodeop::plan::failover::{HungWork, hung, now as placed};
use outage::calls::{self, NodeListing, Pulses};
use outage::failover::rule::{FailoverFacts, FailoverHold, holds};
use outage::failover::{DeclaredNode, FailoverState, act, calls as failover_calls, record, silence};
use outage::operator;
use outage::turn::pulses::Pulse;
use outage::turn::record::TurnRecord;
use outage::turn::rule::OperatorRefusal;
use serde_json::{Value, json};
use sheet::text::number;
use topics::HeldWork;

use crate::Exit;
use crate::args::{DeclareOptions, FailoverAction, FailoverCommand, settings};
use crate::drain_cmd::orders::confirm;
use crate::drain_cmd::voice::{Labelled, Voice};
use crate::drain_cmd::{Shell, person};
use crate::limits::Limits;
use crate::lock_cmd::when;

/// Between two readings of the leases.
const LOOK: Duration = Duration::from_secs(5);
/// So long after the death of a node Kubernetes may still show it as Ready.
const READY_WITHIN: Duration = Duration::from_secs(80);
/// Who asks from here.
const HERE: &str = "this machine";

pub(crate) async fn run(command: &FailoverCommand) -> anyhow::Result<Exit> {
    let shell = &Shell::open(&command.place.at)?;
    let (cluster, voice) = (&shell.cluster(command.place.kubeconfig.as_deref())?, &shell.voice);
    match &command.action {
        FailoverAction::Check => check(cluster, voice).await.context("look what would run elsewhere"),
        FailoverAction::Status => status(shell, cluster).await.context("show failovers"),
        FailoverAction::Declare(options) => {
            let limits = Limits::read(settings::limits_of(&command.place.at.root).as_deref())?.zedkube;
            let ask = |happens: String| {
                if options.yes { Ok(()) } else { confirm(voice, &[happens], &options.node) }
            };
            let watches =
                format!("checking for 40 s, or a little longer, whether node {} shows life", options.node);
            Voice::warn_of("failover", &watches);
            let doing = || format!("declare node {} dead", options.node);
            let at = (shell.clock, limits.server_port);
            let declared = Box::pin(declare(cluster, at, options, shell.operator(), ask)).await;
            match declared.with_context(doing)? {
                Declared::Done { form, text } => voice.say(&form, &text),
                Declared::Refused(rules) => {
                    for it in &rules {
                        Voice::warn_of("failover", it);
                    }
                    let count = number(rules.len(), "reason");
                    Err(anyhow!("{count} against it, and nothing was written").context(doing()))
                }
            }
        }
    }
    .map(|()| Exit::Done)
}

async fn check(cluster: &ApiClient, voice: &Voice) -> anyhow::Result<()> {
    let nodes = operator::view(cluster).await?.nodes;
    let (mut rows, mut forms) = (Vec::<Labelled>::new(), Vec::new());
    for node in nodes {
        let name = NodeName::parse(&node.name)?;
        let HungWork { work, lone } = hung(cluster, &name).await?;
        rows.push(("node", format!("{name}: {}", would_run(&work))));
        rows.extend(
            work.iter().filter(|it| !it.waits.is_empty()).map(|it| ("waits", format!("{it}: {}", it.waits))),
        );
        rows.extend(
            lone.iter().map(|it| ("old copy", format!("volume {it} has only a failed copy elsewhere"))),
        );
        forms.push(json!({ "Node": name.to_string(), "Work": form_of_work(&work), "LoneVolumes": lone }));
    }
    let actors = failover_calls::actors(cluster).await?;
    rows.extend(actors.iter().map(|it| ("warning", format!("acts on silent nodes, off or not: {it}"))));
    let headline = "if a node dies and is declared dead:";
    voice.rows(headline, None, &rows, &json!({ "Nodes": forms, "Actors": actors }))
}

/// `2 of 3 machines and 0 of 1 pod would run elsewhere`.
fn would_run(work: &[HeldWork]) -> String {
    let kinds = [HeldWork::MACHINE, HeldWork::POD].map(|kind| {
        let all: Vec<&HeldWork> = work.iter().filter(|it| it.kind == kind).collect();
        let again = all.iter().filter(|it| it.waits.is_empty()).count();
        (!all.is_empty()).then(|| format!("{again} of {}", number(all.len(), kind)))
    });
    match kinds.into_iter().flatten().collect::<Vec<_>>().join(" and ") {
        empty if empty.is_empty() => "no machine and no pod with a volume is on it".to_owned(),
        some => format!("{some} would run elsewhere"),
    }
}

async fn status(shell: &Shell, cluster: &ApiClient) -> anyhow::Result<()> {
    let record = calls::read(cluster).await?.map(|it| it.record).unwrap_or_default();
    let mut entries = record.failovers;
    let mut rows: Vec<Labelled> = Vec::new();
    for entry in entries.iter_mut().rev() {
        let DeclaredNode { node, number, state, who, why, evidence, passed, .. } = &*entry;
        let said = format!("by {who}, {}: {why}", when(&entry.when, shell.clock.wall()));
        if !state.is_open() {
            rows.push(("before", format!("{node}, number {number}: {}; {said}", words_of_state(state))));
            continue;
        }
        rows.push(("node", format!("{node}, number {number}: {}", words_of_state(state))));
        rows.push(("declared", said));
        rows.push(("evidence", evidence.clone()));
        rows.extend((!passed.is_empty()).then(|| ("passed", passed.join(", "))));
        entry.work = placed(cluster, node, &entry.work).await?;
        rows.extend(entry.work.iter().map(words_of));
        rows.push(("next step", next_step(entry)));
    }
    let forms: Vec<Value> = entries.iter().map(form_of).collect();
    let open = entries.iter().filter(|it| it.state.is_open()).count();
    let headline = match open {
        0 => "no node is declared dead; what would run elsewhere: `zedbox failover check`".to_owned(),
        some => format!("declared dead: {}", number(some, "node")),
    };
    shell.voice.rows(&headline, (open > 0).then_some("33"), &rows, &json!({ "Declared": forms }))
}

fn form_of(entry: &DeclaredNode) -> Value {
    json!({
        "Node": entry.node, "NodeUID": entry.node_uid, "BootID": entry.boot_id, "Number": entry.number,
        "State": entry.state.text(), "Who": entry.who, "Why": entry.why, "When": entry.when,
        "Evidence": entry.evidence, "Passed": entry.passed, "Work": form_of_work(&entry.work),
    })
}

fn form_of_work(all: &[HeldWork]) -> Value {
    let form = |it: &HeldWork| {
        json!({
            "Kind": it.kind, "Namespace": it.namespace, "Name": it.name, "On": it.on, "AfterSecs": it.after_secs,
            "Waits": it.waits,
        })
    };
    all.iter().map(form).collect()
}

fn words_of_state(state: &FailoverState) -> &str {
    match state {
        FailoverState::Declared => "declared dead, not yet out of service",
        FailoverState::Tainted => "out of service: Kubernetes moves its work",
        FailoverState::Moved => "out of service: its work has moved, or is named with why not",
        FailoverState::Returned => "back: its taint is gone",
        FailoverState::Lifted => "somebody has removed its taint in the boot that was declared dead",
        FailoverState::Withdrawn => "it showed life, and nothing was done",
        FailoverState::Gone => "its Node was deleted",
        FailoverState::Stranger(other) => other,
    }
}

fn words_of(work: &HeldWork) -> Labelled {
    match (work.on.is_empty(), work.after_secs) {
        (true, _) => ("waits", format!("{work}: {}", work.waits)),
        (false, 0) => ("moved", format!("{work} runs on {}", work.on)),
        (false, secs) => ("moved", format!("{work} runs on {}, after {secs} s", work.on)),
    }
}

fn next_step(entry: &DeclaredNode) -> String {
    if entry.state == FailoverState::Declared {
        let wait =
            "wait a minute: a server takes it out of service; if none does, check that zedkube runs on one";
        return wait.to_owned();
    }
    let node = &entry.node;
    if entry.stays() {
        return format!(
            "find out why {node} fails: it was declared dead {} within 24 hours, and stays cordoned when it is back until you type \
             `kubectl uncordon {node}`",
            number(entry.times, "time")
        );
    }
    format!(
        "repair {node}, then switch it on: in its next boot it takes pods again once it is healthy. If it never comes back: `kubectl \
         delete node {node}`"
    )
}

/// What was seen of the node until its kubelet had been silent for 40 s, or lived.
struct NodeWatch {
    looked: NodeListing,
    pulses: Pulses,
    trouble: String,
}

/// Watches the lease of the node's kubelet for 40 s, and on until Kubernetes sees it too. Ends at once where it moves.
async fn watch(cluster: &ApiClient, clock: Clock, name: &NodeName) -> anyhow::Result<NodeWatch> {
    let (mut pulses, mut trouble) = (Pulses::default(), String::new());
    let until = clock.now() + READY_WITHIN;
    loop {
        let now = clock.now();
        match calls::look(cluster, name, &mut pulses, now).await {
            Ok(looked) => {
                let node = looked.nodes.iter().find(|it| it.name == name.as_str());
                let waits = node.is_some_and(|it| match it.pulse {
                    Pulse::Unknown => true,
                    Pulse::Still => it.ready && now < until,
                    Pulse::Moving => false,
                });
                if !waits {
                    return Ok(NodeWatch { looked, pulses, trouble });
                }
            }
            Err(error) if trouble.is_empty() => trouble = error.to_string(),
            Err(error) => bail!("{error}"),
        }
        clock.sleep_until(Some(now + LOOK)).await;
    }
}

/// How a declaration ended.
#[derive(Debug)]
enum Declared {
    /// For a program, and for a person.
    Done { form: Value, text: String },
    /// What is against it, and what to do about each. Nothing was written.
    Refused(Vec<String>),
}

/// Declares the node of `options` dead, by `who`, once `ask` with what happens then has no error.
async fn declare(
    cluster: &ApiClient,
    (clock, port): (Clock, u16),
    options: &DeclareOptions,
    who: String,
    ask: impl FnOnce(String) -> anyhow::Result<()>,
) -> anyhow::Result<Declared> {
    let name = NodeName::parse(&options.node)?;
    let why = person::reason(&options.reason)?.to_owned();
    let record = calls::read(cluster).await?.map(|it| it.record).unwrap_or_default();
    record::not_open(&record, name.as_str())?;
    let NodeWatch { looked, mut pulses, trouble } = Box::pin(watch(cluster, clock, &name)).await?;
    let record = calls::read(cluster).await?.map(|it| it.record).unwrap_or_default();
    let node = looked.nodes.iter().find(|it| it.name == name.as_str());
    let silent: Vec<_> = node.into_iter().filter(|it| it.pulse == Pulse::Still).collect();
    let heard = failover_calls::heard(HERE, &silent, &looked.servers, port).await;
    let told = silence::told(&looked.nodes, &record, &silent, &heard);
    let HungWork { work, lone } = match node {
        Some(_) => Box::pin(hung(cluster, &name)).await?,
        None => HungWork::default(),
    };
    let facts = FailoverFacts {
        silent: told.into_iter().find(|it| it.node.name == name.as_str()),
        api_trouble: trouble,
        minor: failover_calls::minor_version(cluster).await?,
        is_excluded: looked.excluded.contains(&options.node),
        lone,
        actors: failover_calls::actors(cluster).await?,
        now: cluster.server_time().and_then(|it| it.0).unwrap_or_else(|| clock.wall().to_timestamp()),
        nodes: looked.nodes.clone(),
        record,
    };
    let is_passed = |it: &FailoverHold| it.rule.pass().is_some_and(|word| options.although().contains(&word));
    let (passed, held): (Vec<FailoverHold>, Vec<FailoverHold>) =
        holds(name.as_str(), &facts).into_iter().partition(is_passed);
    if !held.is_empty() {
        let words = held.iter().map(|FailoverHold { rule, why, next }| {
            let pass = rule.pass().map(|word| format!(", or go past it with {word}")).unwrap_or_default();
            format!("{why}; {next}{pass}")
        });
        return Ok(Declared::Refused(words.collect()));
    }
    let (Some(node), Some(silent)) = (node, &facts.silent) else { bail!("nothing is known of its silence") };
    let moves = match listed(&work.iter().map(ToString::to_string).collect::<Vec<_>>(), ", ") {
        empty if empty.is_empty() => "no machine and no pod with a volume is on it".to_owned(),
        some => format!("this is {some}"),
    };
    ask(format!(
        "Kubernetes starts the work of node {name} elsewhere, without asking it: {moves}. If {name} still runs, each then runs twice \
         on the same data. Continue only if you have switched it off yourself, or see that it is off."
    ))?;
    let entry = DeclaredNode {
        node: name.to_string(),
        node_uid: node.uid.clone(),
        boot_id: node.boot_id.clone(),
        who,
        why,
        when: facts.now.to_string(),
        evidence: silent.evidence(),
        passed: passed.iter().filter_map(|it| it.rule.pass()).map(str::to_owned).collect(),
        work,
        ..DeclaredNode::default()
    };
    let wall = clock.wall().to_timestamp();
    let declared = |record: &TurnRecord| {
        // What others have begun while somebody typed.
        let now = FailoverFacts { record: record.clone(), ..facts.clone() };
        match holds(name.as_str(), &now).into_iter().find(|it| !is_passed(it)) {
            Some(FailoverHold { why, next, .. }) => Err(OperatorRefusal::Failover(format!("{why}; {next}"))),
            None => record::declare(record, &entry),
        }
    };
    let (_, after) = operator::change(cluster, wall, declared).await?;
    let entry = record::open(&after).into_iter().find(|it| it.node == entry.node).unwrap_or(entry);
    // All of it once more: it may have come back while somebody typed.
    let now = clock.now();
    let acted = async {
        let looked = calls::look(cluster, &name, &mut pulses, now).await?;
        let again: Vec<_> = looked.nodes.iter().filter(|it| it.is_of(&entry)).collect();
        let heard = failover_calls::heard(HERE, &again, &looked.servers, port).await;
        let is_heard = heard.values().flat_map(|it| it.values()).any(|it| *it);
        anyhow::Ok(act::advance(cluster, wall, &entry, &looked.nodes, is_heard).await?)
    };
    let number = entry.number;
    let state = Box::pin(acted).await.with_context(|| {
        format!("take it out of service; your word is recorded (number {number}), a server does it: `zedbox failover status`")
    })?;
    let text = match &state {
        Some(FailoverState::Tainted) => format!(
            "Node {name} is declared dead (number {number}). Kubernetes now takes its pods and volumes away, in about a minute; \
             `zedbox failover status` shows where each runs. Leave {name} off until it is repaired. In its next boot it takes pods \
             again by itself."
        ),
        Some(FailoverState::Withdrawn) => {
            bail!("node {name} shows life: nothing was done, and your word is withdrawn")
        }
        Some(state) => {
            format!("Node {name}: {}. `zedbox failover status` shows more.", words_of_state(state))
        }
        None => format!(
            "Node {name} is declared dead (number {number}). A server takes it out of service within a minute: `zedbox failover \
             status`."
        ),
    };
    let result = state.map_or("declared".to_owned(), |it| it.text().to_owned());
    Ok(Declared::Done { form: json!({ "Result": result, "Node": name.to_string(), "Number": number }), text })
}

#[cfg(test)]
mod tests;
