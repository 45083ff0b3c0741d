//! `zedbox reboot` and `zedbox shutdown`: a person's order to take this machine down behind a drain.
//!
//! zedagent carries it out, whatever becomes of this program. Not here: whether the machine may go (`requester`).

use std::path::Path;
use std::time::Duration;

use agent::device::ImageKind;
use agent::{force, wire};
use anyhow::{Context as _, bail};
use kubeapi::{ApiClient, Error, NodeName, nodes};
use pubsub::{TopicRoot, store};
use topics::{
    DEVICE_ORDER, DeviceOp, DeviceOpPending, DeviceOrder, DrainStatus, ForceFile, PendingState, Requester,
    go_json,
};

use super::Shell;
use super::course::Goal;
use super::follow::Follow;
use super::orders::force::order_it;
use super::orders::pause::refuse_while_paused;
use super::orders::write;
use super::person;
use super::plan::own_node;
use super::request::{doubts, member};
use super::voice::Voice;
use super::watch::{self, WatchPatience};
use crate::Exit;
use crate::args::{Blocked, OrderOptions, Output, kubeconfig_of};

/// A drain is blocked when something has blocked it for so long without a break: budgets and restarts do for a moment.
const BLOCKED: Duration = Duration::from_mins(1);
/// The Kubernetes API is asked for so long.
const LOOK: Duration = Duration::from_secs(10);
/// A command that is withdrawn is called off within this time, or the device was asked before.
const CALLED_OFF: Duration = Duration::from_secs(3);
/// No order is longer.
const LIMIT_BYTES: u64 = 4096;

/// Orders the operation, or withdraws it.
pub(super) async fn run(
    shell: &Shell,
    op: DeviceOp,
    options: &OrderOptions,
    within: Option<Duration>,
) -> anyhow::Result<Exit> {
    let Shell { topic_root, clock, voice, .. } = shell;
    let (clock, word) = (*clock, op.word());
    let file = topic_root.path(DEVICE_ORDER);
    if options.cancel {
        return cancel(shell, op).await.with_context(|| format!("withdraw the {word}"));
    }
    let doing = || format!("order a {word}");
    let reason = person::reason(options.reason.as_deref().unwrap_or_default()).with_context(doing)?;
    let boot_id = force::boot_of_agents(topic_root).with_context(doing)?;
    let Some(boot_id) = boot_id.filter(|_| serves(topic_root)) else {
        bail!(
            "{}: zedagent does not run, and it is what carries it out: systemctl start zedbox, then this again",
            doing()
        );
    };
    if let Some(other) = read(&file).with_context(doing)?.filter(|it| it.boot_id == boot_id) {
        bail!(
            "{}: {} ordered a {} before; `zedbox {} --cancel` withdraws that",
            doing(),
            other.words(),
            other.op.word(),
            other.op.word()
        );
    }
    let by = shell.who();
    let order = DeviceOrder { op, boot_id, ordered_at: clock.wall(), reason: reason.to_owned(), by };
    let seen = shell.look();
    let member = member(topic_root);
    let undrained = seen.is_outside(member);
    if undrained && within.is_none() && !options.undrained {
        refuse_in_cluster(topic_root, options.kubeconfig.as_deref()).await.with_context(doing)?;
    }
    match refuse_while_paused(&seen, &doing(), clock.wall()) {
        // Power that fails does not ask.
        Err(paused) if within.is_some() => {
            Voice::warn_of(
                word,
                &format!("{paused:#}: nothing is drained, and the machine goes once the time is over"),
            );
        }
        judged => judged?,
    }
    write(topic_root, DEVICE_ORDER, &order).await.with_context(doing)?;
    for line in doubts(&seen, member) {
        Voice::warn_of(word, &line);
    }
    let waits = options.wait || within.is_some();
    let goes = match op {
        DeviceOp::Reboot => "reboots",
        DeviceOp::Shutdown => "is switched off, until somebody switches it on by hand",
    };
    let first = if undrained { "nothing is drained," } else { "this node is drained first, then" };
    let follow = if waits { "" } else { "`zedbox watch` follows the drain; " };
    let text = format!(
        "Ordered a {word}: {first} the machine {goes}. {follow}`zedbox {word} --cancel` withdraws it until then."
    );
    if !waits {
        return voice.done("ordered", &file, ("Order", &order), &text);
    }
    if voice.output == Output::Text {
        // Read or not, what comes after the waiting is done.
        drop(voice.paragraph(&text));
    }
    let blocked = match options.if_blocked {
        Blocked::Wait => None,
        Blocked::Fail | Blocked::Force => within.is_none().then_some(BLOCKED),
    };
    let acts = within.is_some() || options.if_blocked != Blocked::Wait;
    let patience = WatchPatience { blocked, acts, ..WatchPatience::until(clock, within.or(options.timeout)) };
    let goal = Goal::Machine(op);
    let exit = watch::run(shell, goal, patience).await?;
    let over = matches!(exit, Exit::UnderWay | Exit::Blocked);
    match options.if_blocked {
        _ if !over => Ok(exit),
        Blocked::Force => go(shell, &order).await,
        Blocked::Wait if within.is_some() => go(shell, &order).await,
        Blocked::Wait => Ok(exit),
        Blocked::Fail => {
            cancel(shell, op).await.with_context(|| format!("withdraw the {word}"))?;
            Ok(exit)
        }
    }
}

/// An order is behind a drain. Where the device config names no cluster nothing is drained: refused when this device is a
/// node of a cluster all the same, or when that is not known. An image without Kubernetes is no node.
async fn refuse_in_cluster(topic_root: &TopicRoot, kubeconfig: Option<&Path>) -> anyhow::Result<()> {
    if matches!(ImageKind::read(topic_root), ImageKind::Without(_)) {
        return Ok(());
    }
    let why = match cluster_of(topic_root, kubeconfig).await {
        Ok(None) => return Ok(()),
        Ok(Some(cluster)) => cluster,
        Err(error) => format!("whether it is a node all the same is not known: {error:#}"),
    };
    let config = topic_root.path(zedagent::CONFIG);
    bail!(
        "nothing would be drained: {} names no cluster, and {why}. Add its cluster section to that file, or go without a \
         drain: --undrained",
        config.display()
    )
}

/// The cluster that has this device as a node, in words; nothing where it said that it has none.
async fn cluster_of(topic_root: &TopicRoot, kubeconfig: Option<&Path>) -> anyhow::Result<Option<String>> {
    let kubeconfig = kubeconfig_of(kubeconfig, topic_root.root())?;
    if !kubeconfig.exists() {
        bail!("there is no kubeconfig {}; name the cluster's: --kubeconfig FILE", kubeconfig.display());
    }
    let own = own_node(topic_root)?;
    let node = NodeName::parse(&own.kube_name())?;
    let cluster = ApiClient::from_kubeconfig(kubeconfig).with_call_limit(LOOK);
    match nodes::own(&cluster, &node, &own.device_id.to_string()).await {
        Ok(_) => Ok(Some(format!("{} has this device as node {node}", cluster.address()))),
        Err(Error::OtherName { node, .. }) => {
            Ok(Some(format!("{} has this device as node {node}", cluster.address())))
        }
        Err(Error::WrongNode { .. }) => Ok(None),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => bail!(error.advice()),
    }
}

/// The machine goes without the rest of its drain, as a person's forced status says it.
async fn go(shell: &Shell, order: &DeviceOrder) -> anyhow::Result<Exit> {
    let topic_root = &shell.topic_root;
    let op = order.op;
    if read(&topic_root.path(DEVICE_ORDER))?.as_ref() != Some(order) {
        Voice::warn_of(op.word(), "the order was withdrawn meanwhile: nothing is forced");
        return Ok(Exit::Withdrawn);
    }
    order_it(topic_root, &forced(order), true)
        .await
        .context("let the machine go without the rest of its drain")?;
    Voice::warn_of(op.word(), "NOT DRAINED: what still runs on this node is cut off");
    watch::run(shell, Goal::Machine(op), WatchPatience::default()).await
}

/// What lets the machine go for this order.
fn forced(order: &DeviceOrder) -> ForceFile {
    ForceFile {
        status: DrainStatus::Complete,
        requested_by: Requester::DeviceOp,
        reason: order.reason.clone(),
        by: order.by.clone(),
    }
}

async fn cancel(shell: &Shell, op: DeviceOp) -> anyhow::Result<Exit> {
    let Shell { topic_root, clock, voice, .. } = shell;
    let clock = *clock;
    let file = &topic_root.path(DEVICE_ORDER);
    let order = read(file).unwrap_or_default();
    if let Some(other) = order.as_ref().filter(|it| it.op != op) {
        bail!("{} ordered a {}, no {}", other.words(), other.op.word(), op.word());
    }
    if !store::remove(file).map_err(person::root_needed)? {
        bail!("nobody has ordered one: {} does not exist", file.display());
    }
    // What was forced for it would let another operation go.
    let own = order.as_ref().and_then(|it| go_json::to_vec(&forced(it)).ok());
    for place in force::PLACES.map(|it| topic_root.path(it)) {
        if own.is_some() && store::read(&place, LIMIT_BYTES).ok().flatten() == own {
            store::remove(&place).map_err(person::root_needed)?;
        }
    }
    let mut seen = Follow::open(topic_root, clock);
    let is_commanded = |it: &DeviceOpPending| it.op == op && it.state == PendingState::Commanded;
    let called_off = async {
        while seen.view().pending.values().any(is_commanded) {
            seen.changed().await;
        }
    };
    let end = Some(clock.now() + CALLED_OFF);
    let commanded = tokio::select! {
        () = called_off => false,
        () = clock.sleep_until(end) => true,
    };
    let (result, text) = if commanded {
        let (word, secs) = (op.word(), CALLED_OFF.as_secs());
        let text = format!(
            "Too late: the {word} was commanded before, and nodeagent has not called it off within {secs} s. Where the device \
             was asked for it, the machine goes down now; `zedbox status` shows it."
        );
        ("commanded", text)
    } else {
        let text = "Withdrew your order. Where nobody else wants this node down, as the controller, the drain ends and zedkube \
                    removes its own cordon: `zedbox status` shows it.";
        ("withdrawn", text.to_owned())
    };
    voice.done(result, file, ("Order", &order), &text)
}

/// The order that is there.
fn read(file: &Path) -> anyhow::Result<Option<DeviceOrder>> {
    let held = store::read(file, LIMIT_BYTES)?;
    Ok(held.and_then(|it| go_json::from_slice(&it).ok()))
}

/// Whether zedagent runs; where that cannot be told, it may.
fn serves(topic_root: &TopicRoot) -> bool {
    topic_root.is_published(&wire::name::<DeviceOpPending>("zedagent")).unwrap_or_default() != Some(false)
}
