//! `zedbox lock`: turns of the cluster's nodes for an operator, over the cluster's own record.
//!
//! Not here: what may be written (`outage::turn::rule`) and the calls (`outage::operator`).

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use kubeapi::{ApiClient, NodeName};
use outage::operator::{self, TurnView};
use outage::site::record::OperatorStatement;
use outage::turn::record::{ForcedRelease, Holder, Mode, TurnRecord, Waiter};
use outage::turn::rule::{self, Me, TurnRefusal, TurnRule};
use serde_json::{Value, json};
use sheet::DrainView;
use sheet::text::{moment, number};
use topics::{DrainPhase, GoTime};

use crate::Exit;
use crate::args::{GoOptions, LockAction, LockCommand};
use crate::drain_cmd::Shell;
use crate::drain_cmd::orders::confirm;
use crate::drain_cmd::voice::Labelled;

pub(crate) async fn run(command: &LockCommand) -> anyhow::Result<Exit> {
    let shell = &Shell::open(&command.place.at)?;
    let cluster = &shell.cluster(command.place.kubeconfig.as_deref())?;
    match &command.action {
        LockAction::Status { node } => status(shell, cluster, node.as_deref()).await,
        LockAction::Release { node, fence, reason } => {
            let word = shell.statement(reason).context("release a turn")?;
            release(shell, cluster, (node, *fence), word).await
        }
        LockAction::Ignore { node, reason: None, .. } => count(shell, cluster, node).await,
        LockAction::Ignore { node, reason: Some(reason), .. } => {
            let word = shell.statement(reason).context("ignore a node")?;
            ignore(shell, cluster, node, &word).await
        }
        LockAction::Limit { limit } => set_limit(shell, cluster, *limit).await,
    }
    .map(|()| Exit::Done)
}

/// Releases the turn that this node waits for, of a node that will not continue.
pub(crate) async fn past_turn(
    shell: &Shell,
    options: &GoOptions,
    seen: &DrainView,
    reason: &str,
) -> anyhow::Result<Exit> {
    let waits = seen.agreed().filter(|it| it.phase == DrainPhase::WaitingForTurn);
    let Some(turn) = waits.map(|it| &it.turn).filter(|it| it.rule == TurnRule::Holder.text()) else {
        bail!("this node waits for no turn that another one holds: `zedbox status` shows what it waits for");
    };
    let cluster = shell.cluster(options.kubeconfig.as_deref())?;
    let record = operator::view(&cluster).await?.record();
    for Holder { node, fence, .. } in record.holders.iter().filter(|it| turn.nodes.contains(&it.node)) {
        let happens = format!(
            "Node {node} holds the turn, and may be down beside this one once it is released: continue only if you know that it \
             will not continue."
        );
        if !options.yes {
            confirm(&shell.voice, &[happens], node)?;
        }
        release(shell, &cluster, (node, *fence), shell.statement(reason)?).await?;
    }
    Ok(Exit::Done)
}

/// What was done: `released`, `ignored`, `counted`, `limited`, or `unchanged`.
fn say(
    shell: &Shell,
    result: &str,
    (node, fence, limit): (&str, Option<u32>, Option<u32>),
    text: &str,
) -> anyhow::Result<()> {
    let form = json!({ "Result": result, "Node": node, "Fence": fence, "Limit": limit });
    shell.voice.say(&form, text)
}

async fn release(
    shell: &Shell,
    cluster: &ApiClient,
    (node, fence): (&str, u32),
    word: OperatorStatement,
) -> anyhow::Result<()> {
    let (OperatorStatement { who, why, when, .. }, node) = (word, node.to_owned());
    let forced = ForcedRelease { node, fence, who, why, when, ..ForcedRelease::default() };
    let ForcedRelease { node, who, why, .. } = &forced;
    let edit = |record: &TurnRecord| rule::release(record, forced.clone());
    let (before, after) = operator::change(cluster, shell.clock.wall().to_timestamp(), edit)
        .await
        .with_context(|| format!("release the turn of node {node}"))?;
    let held = before.holders.iter().find(|it| it.node == *node && it.fence == fence);
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
    say(shell, "released", (node, Some(fence), None), &text)
}

async fn ignore(
    shell: &Shell,
    cluster: &ApiClient,
    node: &str,
    word: &OperatorStatement,
) -> anyhow::Result<()> {
    let name = NodeName::parse(node).context("ignore a node")?;
    let before = operator::mark(cluster, &name, Some(word)).await;
    let before = before.with_context(|| format!("ignore node {node}"))?;
    let mut text = format!(
        "Node {node} does not count as down from now on, by {}: {}. If it holds a turn, that still counts. \
         `zedbox lock ignore {node} --undo` undoes this; type it when the node is repaired.",
        word.who, word.why
    );
    if before.seen.ready {
        let beside = "if it is not away, type it at once, or others go down beside it.";
        text = format!("{text} Node {node} is Ready now: {beside}");
    }
    say(shell, "ignored", (node, None, None), &text)
}

async fn count(shell: &Shell, cluster: &ApiClient, node: &str) -> anyhow::Result<()> {
    let name = NodeName::parse(node).context("count a node")?;
    let before = operator::mark(cluster, &name, None).await.with_context(|| format!("count node {node}"))?;
    let (result, text) = match before.away {
        Some(_) => ("counted", format!("Node {node} counts again: while it is down, others wait.")),
        None => ("unchanged", format!("Node {node} was not ignored: it counts as before.")),
    };
    say(shell, result, (node, None, None), &text)
}

async fn set_limit(shell: &Shell, cluster: &ApiClient, limit: u32) -> anyhow::Result<()> {
    let edit = |record: &TurnRecord| rule::with_limit(record, limit);
    let changed = operator::change(cluster, shell.clock.wall().to_timestamp(), edit).await;
    let (before, after) = changed.context("set the limit")?;
    let holders = match after.holders.len() {
        0 => "No node holds a turn.".to_owned(),
        many => format!("Turns held: by {}; a lower limit takes none away.", number(many, "node")),
    };
    let result = if before.limit == limit { "unchanged" } else { "limited" };
    let text = format!(
        "{} may be down at once (before: {}); of the control plane it is always one. {holders}",
        number(limit, "node"),
        before.limit
    );
    say(shell, result, ("", None, Some(limit)), &text)
}

/// Who holds a turn, who waits and why, who counts as down, and what to type, with more of `node`, or of the first in the
/// queue.
async fn status(shell: &Shell, cluster: &ApiClient, node: Option<&str>) -> anyhow::Result<()> {
    if let Some(node) = node {
        NodeName::parse(node).context("show turns")?;
    }
    let view = operator::view(cluster).await.context("show turns")?;
    let look = LockStatusView::of(&view, node)?;
    let colour = (!look.record.holders.is_empty()).then_some("36");
    shell.voice.rows(&look.headline(), colour, &look.rows(shell.clock.wall()), &look.form())
}

struct LockStatusView<'a> {
    view: &'a TurnView,
    record: TurnRecord,
    down: Vec<rule::Down>,
    /// What is said of one node: a sentence, empty when there is nothing to say.
    about: String,
    next: String,
}

impl<'a> LockStatusView<'a> {
    fn of(view: &'a TurnView, node: Option<&str>) -> anyhow::Result<Self> {
        let record = view.record();
        let down = rule::down(None, &record, &view.nodes);
        let mut look = Self { view, record, down, about: String::new(), next: "nothing".to_owned() };
        let order = rule::order(&look.record);
        let waiter = match node {
            Some(name) => order.into_iter().find(|it| it.node == name),
            None => order.into_iter().next(),
        };
        let said = match (waiter, node) {
            (Some(waiter), _) => Some(look.of_waiter(waiter)),
            (None, Some(name)) => Some(look.of_other(name)?),
            (None, None) => None,
        };
        if let Some(said) = said {
            (look.about, look.next) = said;
        }
        Ok(look)
    }

    /// Why this one may not enter, by what other nodes can see.
    fn refusal(&self, waiter: &Waiter) -> Option<TurnRefusal> {
        let me = Me::of(waiter);
        rule::may_enter(&me, waiter, &self.record, &self.view.nodes, &BTreeSet::new(), &Ok(())).err()
    }

    fn of_waiter(&self, waiter: &Waiter) -> (String, String) {
        let Waiter { node, op, .. } = waiter;
        let Some(TurnRefusal { rule, nodes, why, next }) = self.refusal(waiter) else {
            let about = format!(
                "node {node} waits for a turn ({}), and nothing of other nodes prevents it",
                op.text()
            );
            let next = format!("if it keeps waiting: `zedbox status` on node {node} shows its own checks");
            return (about, next);
        };
        let first = nodes.first().cloned().unwrap_or_default();
        let next = match rule {
            TurnRule::Holder => match self.record.holders.iter().find(|it| it.node == first) {
                Some(it) => release_step(it),
                None => next,
            },
            TurnRule::Server | TurnRule::Down | TurnRule::Cordoned => {
                let first_do = if rule == TurnRule::Cordoned {
                    format!("once whoever has cordoned node {first} agrees: `{next}`")
                } else {
                    format!("repair node {first}: `{next}`")
                };
                match self.view.nodes.iter().find(|it| it.name == first) {
                    Some(it) if rule::may_ignore(it).is_ok() => format!(
                        "{first_do}; to let others go down beside it: `zedbox lock ignore {first} --reason '...'`"
                    ),
                    Some(_) | None => first_do,
                }
            }
            TurnRule::Order => "nothing: those before it come first".to_owned(),
            TurnRule::Mode => "wait until that operation is over".to_owned(),
            TurnRule::Reading
            | TurnRule::Api
            | TurnRule::Record
            | TurnRule::Preflight
            | TurnRule::Retry
            | TurnRule::NotListed
            | TurnRule::Margin => next,
        };
        (format!("node {node} waits for a turn ({}): {why}", op.text()), next)
    }

    /// Of a node that does not wait.
    fn of_other(&self, name: &str) -> anyhow::Result<(String, String)> {
        if let Some(it) = self.record.holders.iter().find(|it| it.node == name) {
            return Ok((format!("node {name} holds a turn"), release_step(it)));
        }
        if !self.view.nodes.iter().any(|it| it.name == name) {
            bail!("show turns: the cluster has no node {name}; check the name with kubectl get nodes");
        }
        Ok((format!("node {name} neither holds a turn nor waits for one"), "nothing".to_owned()))
    }

    fn headline(&self) -> String {
        let TurnRecord { holders, queue, mode, .. } = &self.record;
        let restart = mode.as_ref().filter(|it| it.keeps_turns());
        let restart = restart.map_or_else(String::new, |it| {
            format!("; the whole-site {} ({}) is in progress: zedbox site status", it.kind, it.id)
        });
        match (mode.as_ref().filter(|it| !it.keeps_turns()), holders.len(), queue.len()) {
            (Some(Mode { kind, id, .. }), ..) => {
                format!("the whole-cluster operation {kind} ({id}) is in progress: no turn is granted")
            }
            (None, 0, 0) => format!("no node holds or waits for a turn{restart}"),
            (None, holding, waiting) => {
                let holding = u32::try_from(holding).unwrap_or(u32::MAX);
                let holds = if holding == 1 { "holds" } else { "hold" };
                let waits = if waiting == 1 { "waits" } else { "wait" };
                format!("{} {holds} a turn, {waiting} {waits}{restart}", number(holding, "node"))
            }
        }
    }

    fn rows(&self, now: GoTime) -> Vec<Labelled> {
        let (limit, down) = (number(self.record.limit, "node"), self.down.len());
        let limit = format!("{limit} may be down at once, of the control plane always 1; {down} down now");
        let mut rows = vec![("limit", limit)];
        let mut add = |label, text: String| rows.push((label, text));
        for it in &self.record.holders {
            let since =
                if it.since.is_empty() { String::new() } else { format!("; since {}", when(&it.since, now)) };
            let (node, op, phase, fence) = (&it.node, it.op.text(), it.phase.text(), it.fence);
            add("holder", format!("node {node}: {op}, phase {phase}, fence {fence}{since}"));
        }
        for (nth, it) in rule::order(&self.record).into_iter().enumerate() {
            add("queue", format!("{}. node {} ({}), {}", nth + 1, it.node, it.class.text(), it.op.text()));
        }
        for it in self.down.iter().filter(|it| it.fence.is_none()) {
            add("down", it.why.clone());
        }
        for (node, text) in &self.view.away {
            let by = serde_json::from_str::<OperatorStatement>(text);
            let by = by.map_or_else(
                |_| text.clone(),
                |it| format!("{}, {}: {}", it.who, when(&it.when, now), it.why),
            );
            let counts = "is a member of etcd and counts all the same";
            let effect = if self.counts(node) { counts } else { "does not count" };
            add(
                "ignored",
                format!("node {node} {effect}; by {by}; `zedbox lock ignore {node} --undo` undoes that"),
            );
        }
        for it in self.record.forced.iter().rev() {
            let by = format!("by {}, {}: {}", it.who, when(&it.when, now), it.why);
            add("released", format!("node {}, fence {}; {by}", it.node, it.fence));
        }
        if !self.about.is_empty() {
            add("why", self.about.clone());
        }
        add("next step", self.next.clone());
        rows
    }

    /// Whether the mark on this node has no effect.
    fn counts(&self, node: &str) -> bool {
        self.view.nodes.iter().any(|it| it.name == node && rule::may_ignore(it).is_err())
    }

    /// The turns for a program; members are added, never renamed.
    fn form(&self) -> Value {
        let record = &self.record;
        let holder = |it: &Holder| {
            json!({
                "Node": it.node, "NodeUID": it.node_uid, "Op": it.op, "Counter": it.counter, "Phase": it.phase,
                "Fence": it.fence, "Server": it.server, "Since": it.since,
            })
        };
        let waiter = |(nth, it): (usize, &Waiter)| {
            let (nodes, why) = self.refusal(it).map(|it| (it.nodes, it.why)).unwrap_or_default();
            json!({
                "Place": nth + 1, "Node": it.node, "Class": it.class, "Op": it.op, "Counter": it.counter,
                "WaitsFor": nodes, "Why": why,
            })
        };
        let down = |it: &rule::Down| json!({ "Node": it.node, "Server": it.server, "Fence": it.fence, "Why": it.why });
        let ignored = |(node, text): (&String, &String)| {
            let plain = || OperatorStatement { why: text.clone(), ..OperatorStatement::default() };
            let OperatorStatement { who, why, when, .. } =
                serde_json::from_str(text).unwrap_or_else(|_| plain());
            json!({ "Node": node, "Counts": self.counts(node), "Who": who, "Why": why, "When": when })
        };
        let released = |it: &ForcedRelease| json!({ "Node": it.node, "Fence": it.fence, "Who": it.who, "Why": it.why, "When": it.when });
        json!({
            "Lease": self.view.held.is_some(),
            "Limit": record.limit,
            "Fence": record.fence,
            "Mode": record.mode.as_ref().map(|it| json!({ "ID": it.id, "Kind": it.kind })),
            "Holders": record.holders.iter().map(holder).collect::<Value>(),
            "Queue": rule::order(record).into_iter().enumerate().map(waiter).collect::<Value>(),
            "Down": self.down.iter().map(down).collect::<Value>(),
            "Ignored": self.view.away.iter().map(ignored).collect::<Value>(),
            "Released": record.forced.iter().rev().map(released).collect::<Value>(),
            "Why": self.about,
            "NextStep": self.next,
        })
    }
}

/// What to do about a turn that is in the way. Most of them end by themselves.
fn release_step(Holder { node, fence, .. }: &Holder) -> String {
    format!(
        "wait until node {node} is back and healthy; only if you know that it will not continue: `zedbox lock release \
         {node} --fence {fence} --reason '...'`"
    )
}

/// A time out of the record, as it is when it is none.
pub(crate) fn when(text: &str, now: GoTime) -> String {
    text.parse::<GoTime>().map_or_else(|_| text.to_owned(), |at| moment(at, now))
}
