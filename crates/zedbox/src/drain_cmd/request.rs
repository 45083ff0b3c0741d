//! `zedbox drain` and `zedbox undrain`: a person's own NodeDrainRequest, published and withdrawn.
//!
//! Not here: requests of the controller; those belong to zedagent and baseosmgr.

use std::path::Path;
use std::time::Duration;

use agent::wire::{self, GLOBAL};
use anyhow::{Context as _, bail};
use pubsub::{Name, Publication, TopicRoot, store};
use sheet::{DrainOutcome, DrainView, OPERATOR, operator_file, request_words};
use topics::{DrainStatus, EdgeNodeClusterConfig, GoTime, NodeDrainRequest, Requester};
use zedagent::CONFIG;

use super::Shell;
use super::course::Goal;
use super::orders::pause::refuse_while_paused;
use super::person;
use super::voice::Voice;
use super::watch::{self, WatchPatience};
use crate::Exit;
use crate::args::{DrainOptions, Output};

/// What `request` does, in errors.
const REQUEST: &str = "request a drain";

/// Asks zedkube to drain this node.
pub(super) async fn ask(shell: &Shell, options: &DrainOptions) -> anyhow::Result<Exit> {
    let reason = options.reason.as_deref().unwrap_or_default();
    order(shell, reason, options.wait, options.timeout).await
}

/// The same, with its options.
pub(super) async fn order(
    shell: &Shell,
    reason: &str,
    wait: bool,
    timeout: Option<Duration>,
) -> anyhow::Result<Exit> {
    let Shell { topic_root, clock, voice, .. } = shell;
    let clock = *clock;
    let reason = person::reason(reason).context(REQUEST)?;
    let seen = shell.look();
    refuse_while_paused(&seen, REQUEST, clock.wall())?;
    let mut own = publication(topic_root, REQUEST)?;
    let file = operator_file(topic_root);
    refuse_second(&own, &seen, &file, clock.wall())?;
    let request = NodeDrainRequest {
        requested_at: clock.wall(),
        requested_by: Requester::Operator,
        context: format!("operator {}: {reason}", shell.who()),
    };
    own.publish(GLOBAL, &request).map_err(person::root_needed).context(REQUEST)?;
    // The file stays, and whoever withdraws it needs the lock.
    drop(own);
    let member = member(topic_root);
    for line in doubts(&seen, member) {
        Voice::warn(&line);
    }
    let id = request.id();
    let follow = if wait { "" } else { "`zedbox watch` follows it; " };
    let text = format!(
        "Requested a drain: {} says \"{}\". zedkube cordons this node and evicts its pods; nothing is \
         rebooted. {follow}`zedbox undrain` withdraws the request and makes the node schedulable again.",
        file.display(),
        request.context
    );
    if !wait {
        return voice.done("requested", &file, ("Request", &request), &text);
    }
    if voice.output == Output::Text {
        voice.paragraph(&text)?;
    }
    if seen.is_outside(member) {
        Voice::warn("NOT DRAINED: the device config names no cluster, so nothing is drained; not waiting");
        return Ok(Exit::Skipped);
    }
    watch::run(shell, Goal::Own(id), WatchPatience::until(clock, timeout)).await
}

/// Whether there is one, readable or not.
pub(super) fn operator_file_exists(topic_root: &TopicRoot) -> bool {
    let seen = operator_file(topic_root).symlink_metadata();
    !seen.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// Withdraws a person's own request.
pub(super) fn cancel(shell: &Shell) -> anyhow::Result<Exit> {
    let Shell { topic_root, clock, voice, .. } = shell;
    let file = operator_file(topic_root);
    let seen = shell.look();
    if !operator_file_exists(topic_root) {
        let others: Vec<String> = seen
            .requests
            .iter()
            .map(|(agent, it)| {
                format!(
                    "; the one {} belongs to the controller, or is of a NodeMaintenance ({agent}): withdraw it there",
                    request_words(it, it.requested_at, clock.wall())
                )
            })
            .collect();
        bail!("cancel: no person has requested a drain, there is no {}{}", file.display(), others.concat());
    }
    let mut own = publication(topic_root, "cancel the request")?;
    let request = own.get(GLOBAL).cloned();
    match &request {
        Some(_) => own.unpublish(GLOBAL).map_err(person::root_needed).context("cancel the request")?,
        // Nobody could read it; it goes as it is.
        None => drop(store::remove(&file).context("cancel the request")?),
    }
    drop(own);
    let what = match &request {
        Some(it) => request_words(it, it.requested_at, clock.wall()),
        None => "which could not be read".to_owned(),
    };
    let text = format!("Withdrew the request, {what}: removed {}. {}", file.display(), after_cancel(&seen));
    voice.done("cancelled", &file, ("Request", &request), &text)?;
    if let Some(why) = seen.zedkube_away() {
        Voice::warn(&format!("{why}; it acts on this once it runs"));
    }
    Ok(Exit::Done)
}

/// What zedkube does when a person's request is gone.
fn after_cancel(seen: &DrainView) -> String {
    if seen.requests.keys().any(|agent| *agent != OPERATOR) {
        let of_person = seen.pending.values().find(|it| !it.site.is_empty());
        let whose = of_person.map_or("A request of the controller or of a NodeMaintenance still exists".to_owned(), |it| {
            let (word, by) = (it.op.word(), &it.site);
            format!(
                "The {word} that {by} has ordered still exists (`zedbox {word} --cancel` withdraws a person's)"
            )
        });
        return format!("{whose}: the drain continues for that one, and the node stays cordoned.");
    }
    let unaccepted = |status: DrainStatus| {
        matches!(
            status,
            DrainStatus::NotSupported
                | DrainStatus::NotRequested
                | DrainStatus::Unknown
                | DrainStatus::Stranger(_)
        )
    };
    if seen.drain_status().is_none_or(unaccepted) {
        return "zedkube had not accepted it: there is nothing to undo.".to_owned();
    }
    "zedkube ends the drain and removes its own cordon; evicted pods come back only as the scheduler places them."
        .to_owned()
}

/// What a person should know who requests a drain in this state.
pub(super) fn doubts(seen: &DrainView, member: Option<bool>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(why) = seen.zedkube_away() {
        lines.push(format!("{why}: the request is not served until it does"));
    }
    match member {
        Some(false) if seen.is_outside(member) => lines.push(format!(
            "the device config names no cluster, so nothing is drained; if this node is in one, add its cluster section to {CONFIG}"
        )),
        None if seen.drain_status() == Some(DrainStatus::NotSupported) => lines.push(format!(
            "whether this node is in a cluster is not known yet: zedagent has read no device config; look at {CONFIG} and at \
             its log"
        )),
        Some(_) | None => {}
    }
    if let Some(order) = seen.force.as_ref().and_then(|it| it.order) {
        lines.push(format!("a force file orders {order}; `zedbox drain force --remove` removes it"));
    }
    lines
}

/// Whether this node is in a cluster; `None` while zedagent has not said.
pub(super) fn member(topic_root: &TopicRoot) -> Option<bool> {
    wire::peek::<EdgeNodeClusterConfig>(topic_root, "zedagent", GLOBAL).ok()??.member()
}

/// The place of a person's request.
fn own_name() -> Name {
    wire::name::<NodeDrainRequest>(OPERATOR)
}

/// Becomes the publisher for a moment, by files alone: a socket would end with this program.
fn publication(topic_root: &TopicRoot, doing: &str) -> anyhow::Result<Publication<NodeDrainRequest>> {
    topic_root
        .publication(own_name(), wire::codec::<NodeDrainRequest>())
        .map_err(person::root_needed)
        .with_context(|| doing.to_owned())
}

/// A request that failed may be made again; any other one is kept.
fn refuse_second(
    own: &Publication<NodeDrainRequest>,
    seen: &DrainView,
    file: &Path,
    now: GoTime,
) -> anyhow::Result<()> {
    let path = file.display();
    if let Some(current) = own.get(GLOBAL) {
        if seen.answered(current.id()) == Some(DrainOutcome::Failed) {
            return Ok(());
        }
        let words = request_words(current, current.requested_at, now);
        bail!("{REQUEST}: {path} exists already, {words}; `zedbox undrain` withdraws it");
    }
    if file.symlink_metadata().is_ok() {
        bail!("{REQUEST}: {path} exists and cannot be read; `zedbox undrain` removes it");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use topics::{AgentTrouble, Trouble};

    use super::*;
    use sheet::Live;

    #[test]
    fn what_is_undone_depends_on_how_far_it_was_and_who_else_asks() {
        let mut seen = DrainView::default();
        assert!(after_cancel(&seen).contains("nothing to undo"));
        let status = DrainStatus::Cordoned;
        seen.status = Some(topics::NodeDrainStatus { status, requested_by: Requester::Operator });
        assert!(after_cancel(&seen).contains("removes its own cordon"));
        seen.requests.insert("zedagent", NodeDrainRequest::default());
        let told = after_cancel(&seen);
        assert!(told.contains("request of the controller") && told.contains("stays cordoned"), "{told}");
        let of_person = topics::DeviceOpPending { site: "operator field".to_owned(), ..Default::default() };
        seen.pending.insert("reboot".to_owned(), of_person);
        let told = after_cancel(&seen);
        assert!(!told.contains("controller") && told.contains("`zedbox reboot --cancel`"), "{told}");
    }

    #[test]
    fn a_dead_zedkube_no_cluster_and_a_force_file_are_told() {
        let mut seen =
            DrainView { live: Live { running: Some(true), ..Live::default() }, ..DrainView::default() };
        assert_eq!(doubts(&seen, Some(true)).len(), 0);
        assert!(doubts(&seen, Some(false))[0].contains("names no cluster"));
        seen.live.running = Some(false);
        assert!(doubts(&seen, None)[0].contains("not running"));
        // Its process is there, and cannot open what it needs.
        let trouble = Trouble {
            what: "start of zedkube".to_owned(),
            error: "too many open files".to_owned(),
            ..Trouble::default()
        };
        let troubles = AgentTrouble { troubles: vec![trouble], ..AgentTrouble::default() };
        seen.troubles.insert("zedkube", troubles);
        assert_eq!(
            doubts(&seen, None),
            ["zedkube cannot start: too many open files: the request is not served until it does"]
        );
        seen.troubles.clear();
        // What is not known is not said.
        seen.live.running = None;
        assert_eq!(doubts(&seen, None).len(), 0);
    }
}
