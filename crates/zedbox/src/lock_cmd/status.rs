//! `zedbox lock status`: who holds a turn, who waits and why, who counts as down, and what to type.
//!
//! The JSON is for programs: members are added, never renamed.

use std::collections::BTreeSet;

use agent::Clock;
use anyhow::{Context as _, bail};
use kubeapi::{ApiClient, NodeName};
use outage::operator::{self, AwayMark, TurnView};
use outage::turn::record::{Class, Holder, TurnRecord, Waiter};
use outage::turn::rule::{self, Me, TurnRefusal, TurnRule};
use serde::Serialize;
use topics::GoTime;

use crate::args::Output;
use crate::drain_cmd::text::{Sheet, paragraph, row};
use crate::drain_cmd::voice::Voice;
use sheet::RowWeight;
use sheet::text::{moment, number};

/// Prints it, with more of `node`, or of the first in the queue.
pub(super) async fn run(
    cluster: &ApiClient,
    clock: Clock,
    node: Option<&str>,
    voice: &Voice,
) -> anyhow::Result<()> {
    if let Some(node) = node {
        NodeName::parse(node).context("show turns")?;
    }
    let view = operator::view(cluster).await.context("show turns")?;
    let look = LockStatusView::of(&view, node)?;
    match voice.output {
        Output::Json => Voice::json(&look.form(), false)?,
        Output::Text => Voice::print(&look.sheet(clock.wall(), voice.columns()).text(voice.colours))?,
    };
    Ok(())
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
        let record = view.held.as_ref().map(|it| it.record.clone()).unwrap_or_default();
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

    /// Why this one may not enter, as far as another one than itself can see.
    fn refusal(&self, waiter: &Waiter) -> Option<TurnRefusal> {
        let server = !matches!(waiter.class, Class::Worker);
        let (node, uid) = (waiter.node.clone(), waiter.node_uid.clone());
        let me = Me { node, uid, boot_id: String::new(), server };
        rule::may_enter(&me, waiter, &self.record, &self.view.nodes, &BTreeSet::new(), &Ok(())).err()
    }

    fn of_waiter(&self, waiter: &Waiter) -> (String, String) {
        let Waiter { node, op, .. } = waiter;
        let Some(TurnRefusal { rule, nodes, why, next }) = self.refusal(waiter) else {
            let about = format!(
                "node {node} waits for a turn ({}), and nothing of other nodes prevents it",
                op.text()
            );
            let next =
                format!("if it keeps waiting: `zedbox drain status` on node {node} shows its own checks");
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
                        "{first_do}; if it is away for long: `zedbox lock ignore {first} --reason '...'`"
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
            (Some(mode), ..) => {
                format!(
                    "the whole-cluster operation {} ({}) is in progress: no turn is granted",
                    mode.kind, mode.id
                )
            }
            (None, 0, 0) => format!("no node holds or waits for a turn{restart}"),
            (None, holding, waiting) => {
                let (holds, waits) = (
                    if holding == 1 { "holds" } else { "hold" },
                    if waiting == 1 { "waits" } else { "wait" },
                );
                format!("{} {holds} a turn, {waiting} {waits}{restart}", number_of(holding))
            }
        }
    }

    fn sheet(&self, now: GoTime, columns: usize) -> Sheet {
        let colour = (!self.record.holders.is_empty()).then_some("36");
        let mut out = Sheet::new(&paragraph("", &self.headline(), columns), colour);
        let mut add = |label: &str, text: &str| out.add(RowWeight::Essential, &row(label, text, columns));
        let limit = number(self.record.limit, "node");
        add(
            "limit",
            &format!(
                "{limit} may be down at once, of the control plane always 1; {} down now",
                self.down.len()
            ),
        );
        for it in &self.record.holders {
            add("holder", &holder_words(it, now));
        }
        for (nth, it) in rule::order(&self.record).into_iter().enumerate() {
            add("queue", &format!("{}. node {} ({}), {}", nth + 1, it.node, it.class.text(), it.op.text()));
        }
        for it in self.down.iter().filter(|it| it.fence.is_none()) {
            add("down", &it.why);
        }
        for (node, text) in &self.view.away {
            let by = match serde_json::from_str::<AwayMark>(text) {
                Ok(it) => format!("{}, {}: {}", it.who, when(&it.when, now), it.why),
                Err(_) => text.clone(),
            };
            let effect = if self.counts(node) {
                "is a member of etcd and counts all the same"
            } else {
                "does not count"
            };
            add(
                "ignored",
                &format!("node {node} {effect}; by {by}; `zedbox lock ignore {node} --undo` undoes that"),
            );
        }
        for it in self.record.forced.iter().rev() {
            let by = format!("by {}, {}: {}", it.who, when(&it.when, now), it.why);
            add("released", &format!("node {}, fence {}; {by}", it.node, it.fence));
        }
        if !self.about.is_empty() {
            add("why", &self.about);
        }
        add("next step", &self.next);
        out
    }

    /// Whether the mark on this node has no effect.
    fn counts(&self, node: &str) -> bool {
        self.view.nodes.iter().any(|it| it.name == node && rule::may_ignore(it).is_err())
    }

    fn form(&self) -> TurnsForm<'_> {
        let queue = rule::order(&self.record).into_iter().enumerate();
        let away = |(node, text): (&'a String, &'a String)| {
            let said = serde_json::from_str(text);
            let said = said.unwrap_or_else(|_| AwayMark {
                who: String::new(),
                why: text.clone(),
                when: String::new(),
            });
            let AwayMark { who, why, when } = said;
            IgnoredForm { node, counts: self.counts(node), who, why, when }
        };
        TurnsForm {
            lease: self.view.held.is_some(),
            limit: self.record.limit,
            fence: self.record.fence,
            mode: self.record.mode.as_ref().map(|it| ModeForm { id: &it.id, kind: &it.kind }),
            holders: self.record.holders.iter().map(HolderForm::from).collect(),
            queue: queue
                .map(|(nth, it)| {
                    let refusal = self.refusal(it);
                    QueueForm {
                        place: nth + 1,
                        node: &it.node,
                        class: it.class.text(),
                        op: it.op.text(),
                        counter: it.counter,
                        waits_for: refusal.as_ref().map(|it| it.nodes.clone()).unwrap_or_default(),
                        why: refusal.map(|it| it.why).unwrap_or_default(),
                    }
                })
                .collect(),
            down: self
                .down
                .iter()
                .map(|it| DownForm { node: &it.node, server: it.server, fence: it.fence, why: &it.why })
                .collect(),
            ignored: self.view.away.iter().map(away).collect(),
            released: (self.record.forced.iter().rev())
                .map(|it| ReleasedForm {
                    node: &it.node,
                    fence: it.fence,
                    who: &it.who,
                    why: &it.why,
                    when: &it.when,
                })
                .collect(),
            why: &self.about,
            next_step: &self.next,
        }
    }
}

fn number_of(nodes: usize) -> String {
    number(u32::try_from(nodes).unwrap_or(u32::MAX), "node")
}

/// What to do about a turn that is in the way. Most of them end by themselves.
fn release_step(Holder { node, fence, .. }: &Holder) -> String {
    format!(
        "wait until node {node} is back and healthy; only if you know that it will not continue: `zedbox lock release \
         {node} --fence {fence} --reason '...'`"
    )
}

/// `node n2: reboot, phase drained, fence 7; since 09:30:04 UTC, 10 min ago`.
fn holder_words(it: &Holder, now: GoTime) -> String {
    let since = if it.since.is_empty() { String::new() } else { format!("; since {}", when(&it.since, now)) };
    format!("node {}: {}, phase {}, fence {}{since}", it.node, it.op.text(), it.phase.text(), it.fence)
}

/// A time out of the record, as it is when it is none.
pub(crate) fn when(text: &str, now: GoTime) -> String {
    text.parse::<GoTime>().map_or_else(|_| text.to_owned(), |at| moment(at, now))
}

/// The turns for a program.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct TurnsForm<'a> {
    /// There is a record; without one no node ever asked for a turn.
    lease: bool,
    limit: u32,
    /// Number of the last turn.
    fence: u32,
    mode: Option<ModeForm<'a>>,
    holders: Vec<HolderForm<'a>>,
    queue: Vec<QueueForm<'a>>,
    down: Vec<DownForm<'a>>,
    ignored: Vec<IgnoredForm<'a>>,
    /// The last one first.
    released: Vec<ReleasedForm<'a>>,
    why: &'a str,
    next_step: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct ModeForm<'a> {
    #[serde(rename = "ID")]
    id: &'a str,
    kind: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct HolderForm<'a> {
    node: &'a str,
    #[serde(rename = "NodeUID")]
    node_uid: &'a str,
    op: &'a str,
    counter: u64,
    phase: &'a str,
    fence: u32,
    server: bool,
    since: &'a str,
}

impl<'a> From<&'a Holder> for HolderForm<'a> {
    fn from(it: &'a Holder) -> Self {
        Self {
            node: &it.node,
            node_uid: &it.node_uid,
            op: it.op.text(),
            counter: it.counter,
            phase: it.phase.text(),
            fence: it.fence,
            server: it.server,
            since: &it.since,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct QueueForm<'a> {
    place: usize,
    node: &'a str,
    class: &'a str,
    op: &'a str,
    counter: u64,
    waits_for: Vec<String>,
    /// Empty when other nodes do not prevent it.
    why: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct DownForm<'a> {
    node: &'a str,
    server: bool,
    /// Null for one that holds no turn.
    fence: Option<u32>,
    why: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct IgnoredForm<'a> {
    node: &'a str,
    /// It counts all the same, as a member of etcd.
    counts: bool,
    who: String,
    why: String,
    when: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct ReleasedForm<'a> {
    node: &'a str,
    fence: u32,
    who: &'a str,
    why: &'a str,
    when: &'a str,
}
