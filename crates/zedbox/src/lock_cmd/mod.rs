//! `zedbox lock`: turns of the cluster's nodes for an operator, over the cluster's own record.
//!
//! Not here: what may be written (`outage::turn::rule`) and the calls (`outage::operator`).

pub(crate) mod status;

use agent::Clock;
use anyhow::Context as _;
use kubeapi::{ApiClient, NodeName};
use outage::operator::{self, AwayMark};
use outage::turn::record::{ForcedRelease, TurnRecord};
use outage::turn::rule;
use serde::Serialize;

use crate::Exit;
use crate::args::{LockAction, LockCommand, Output, Surroundings};
use crate::drain_cmd::person;
use crate::drain_cmd::voice::Voice;
use sheet::text::number;

/// Does what `command` says. What goes wrong is said on standard error in plain words.
pub(crate) async fn run(command: &LockCommand) -> Exit {
    let surroundings = Surroundings::of_this_process();
    let voice = Voice::new(command.place.output, &surroundings);
    Voice::exit("lock", act(command, &surroundings, &voice).await.map(|()| Exit::Done))
}

async fn act(command: &LockCommand, surroundings: &Surroundings, voice: &Voice) -> anyhow::Result<()> {
    let cluster = command.place.cluster()?;
    let clock = Clock::new();
    match &command.action {
        LockAction::Status { node } => status::run(&cluster, clock, node.as_deref(), voice).await,
        LockAction::Release { node, fence, reason } => {
            let word = word(clock, surroundings, reason).context("release a turn")?;
            release(&cluster, clock, node, *fence, word, voice).await
        }
        LockAction::Ignore { node, reason: None, .. } => count(&cluster, node, voice).await,
        LockAction::Ignore { node, reason: Some(reason), .. } => {
            let word = word(clock, surroundings, reason).context("ignore a node")?;
            ignore(&cluster, node, &word, voice).await
        }
        LockAction::Limit { limit } => set_limit(&cluster, clock, *limit, voice).await,
    }
}

/// Who says something, why and when.
fn word(clock: Clock, surroundings: &Surroundings, reason: &str) -> anyhow::Result<AwayMark> {
    Ok(AwayMark {
        who: format!("operator {}", person::at(surroundings)),
        why: person::reason(reason)?.to_owned(),
        when: clock.wall().to_timestamp().to_string(),
    })
}

/// What was done, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct LockResult<'a> {
    /// `released`, `ignored`, `counted`, `limited`, or `unchanged`.
    result: &'a str,
    /// The node concerned, or empty.
    node: &'a str,
    /// Number of the turn that was released; null for others.
    fence: Option<u32>,
    /// How many nodes may be down at once; null for others.
    limit: Option<u32>,
}

fn say(voice: &Voice, done: &LockResult<'_>, text: &str) -> anyhow::Result<()> {
    match voice.output {
        Output::Json => Voice::json(done, false),
        Output::Text => voice.paragraph(text),
    }
    .map(drop)
}

async fn release(
    cluster: &ApiClient,
    clock: Clock,
    node: &str,
    fence: u32,
    word: AwayMark,
    voice: &Voice,
) -> anyhow::Result<()> {
    let (who, why) = (word.who.clone(), word.why.clone());
    let forced = ForcedRelease {
        node: node.to_owned(),
        node_uid: String::new(),
        fence,
        who: word.who,
        why: word.why,
        when: word.when,
        earlier: None,
        rest: serde_json::Map::new(),
    };
    let edit = |record: &TurnRecord| rule::release(record, forced.clone());
    let (before, after) = operator::change(cluster, clock.wall().to_timestamp(), edit)
        .await
        .with_context(|| format!("release the turn of node {node}"))?;
    let held = before.holders.iter().find(|it| it.node == node && it.fence == fence);
    let was = held.map(|it| format!("{}, phase {}, ", it.op.text(), it.phase.text())).unwrap_or_default();
    let next = match rule::order(&after).first() {
        Some(first) => format!("Node {} is first in the queue.", first.node),
        None => "No node waits for a turn.".to_owned(),
    };
    let text = format!(
        "Released the turn of node {node} ({was}fence {fence}), by {who}: {why}. When node {node} looks next, it stops \
         what it does under this turn, removes its own cordon and starts over; a reboot that was already ordered is not \
         stopped. No other program is informed: make sure yourself that node {node} is healthy or off. {next}"
    );
    say(voice, &LockResult { result: "released", node, fence: Some(fence), limit: None }, &text)
}

async fn ignore(cluster: &ApiClient, node: &str, word: &AwayMark, voice: &Voice) -> anyhow::Result<()> {
    let name = NodeName::parse(node).context("ignore a node")?;
    let before = operator::mark(cluster, &name, Some(word)).await;
    let before = before.with_context(|| format!("ignore node {node}"))?;
    let text = format!(
        "Node {node} does not count as down from now on, by {}: {}. If it holds a turn, that still counts. \
         `zedbox lock ignore {node} --undo` undoes this; type it when the node is repaired.",
        word.who, word.why
    );
    let text = if before.seen.ready {
        format!(
            "{text} Node {node} is Ready now: if it is not away, type it at once, or others go down beside it."
        )
    } else {
        text
    };
    say(voice, &LockResult { result: "ignored", node, fence: None, limit: None }, &text)
}

async fn count(cluster: &ApiClient, node: &str, voice: &Voice) -> anyhow::Result<()> {
    let name = NodeName::parse(node).context("count a node")?;
    let before = operator::mark(cluster, &name, None).await.with_context(|| format!("count node {node}"))?;
    let (result, text) = match before.away {
        Some(_) => ("counted", format!("Node {node} counts again: while it is down, others wait.")),
        None => ("unchanged", format!("Node {node} was not ignored: it counts as before.")),
    };
    say(voice, &LockResult { result, node, fence: None, limit: None }, &text)
}

async fn set_limit(cluster: &ApiClient, clock: Clock, limit: u32, voice: &Voice) -> anyhow::Result<()> {
    let edit = |record: &TurnRecord| rule::with_limit(record, limit);
    let (before, after) =
        operator::change(cluster, clock.wall().to_timestamp(), edit).await.context("set the limit")?;
    let holders = match after.holders.len() {
        0 => "No node holds a turn.".to_owned(),
        1 => "1 node holds a turn; a lower limit takes none away.".to_owned(),
        many => format!("{many} nodes hold a turn; a lower limit takes none away."),
    };
    let result = if before.limit == limit { "unchanged" } else { "limited" };
    let text = format!(
        "{} may be down at once (before: {}); of the control plane it is always one. {holders}",
        number(limit, "node"),
        before.limit
    );
    say(voice, &LockResult { result, node: "", fence: None, limit: Some(limit) }, &text)
}
