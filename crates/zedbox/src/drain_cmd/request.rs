//! `zedbox drain request` and `cancel`: a person's own NodeDrainRequest, published and taken back.
//!
//! Not here: requests of the controller; those belong to zedagent and baseosmgr.

use std::path::Path;

use agent::{Clock, wire};
use anyhow::{Context as _, bail};
use pubsub::{Bus, Name, Publication, store};
use serde::Serialize;
use topics::{DrainStatus, EdgeNodeClusterConfig, GoTime, NodeDrainRequest, Requester};

use super::course::Goal;
use super::person;
use super::seen::{Follow, GLOBAL, OPERATOR, Seen, operator_file};
use super::stand::Stand;
use super::status::request_words;
use super::voice::Voice;
use super::watch;
use crate::Exit;
use crate::args::{Output, RequestOptions, Surroundings};

/// A reason has to fit into a line of a log and of a console.
const REASON_BYTES: usize = 200;

/// What became of a request, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Done<'a> {
    /// `requested` or `cancelled`.
    result: &'a str,
    /// The file concerned.
    file: &'a Path,
    /// The request; null when its file was broken.
    request: Option<&'a NodeDrainRequest>,
}

/// Asks zedkube to drain this node.
pub(super) async fn ask(
    bus: &Bus,
    clock: Clock,
    options: &RequestOptions,
    surroundings: &Surroundings,
    voice: &Voice,
) -> anyhow::Result<Exit> {
    let reason = reason(&options.reason)?;
    let seen = Follow::open(bus).await.seen().clone();
    let mut own = publication(bus, "ask for a drain")?;
    let file = operator_file(bus);
    refuse_second(&own, &seen, &file, clock.wall())?;
    let request = NodeDrainRequest {
        requested_at: clock.wall(),
        requested_by: Requester::Operator,
        context: format!("operator {}: {reason}", person::name(surroundings)),
    };
    own.publish(GLOBAL, &request).context("ask for a drain")?;
    // The file stays, and whoever takes it back needs the lock.
    drop(own);
    let member = member(bus);
    for line in doubts(&seen, member) {
        Voice::warn(&line);
    }
    let id = request.id();
    match voice.output {
        Output::Json if !options.wait => {
            Voice::json(&Done { result: "requested", file: &file, request: Some(&request) }, false)?;
        }
        Output::Json => {}
        Output::Text => {
            let follow = if options.wait { "" } else { "`zedbox drain watch` follows it; " };
            voice.paragraph(&format!(
                "Asked for a drain: {} says \"{}\". zedkube cordons this node and evicts its pods; nothing is \
                 rebooted. {follow}`zedbox drain cancel` takes the request back and gives the node free again.",
                file.display(),
                request.context
            ))?;
        }
    }
    if !options.wait {
        return Ok(Exit::Done);
    }
    if member == Some(false) {
        Voice::warn("does not wait: without a cluster nothing is drained");
        return Ok(Exit::Done);
    }
    watch::run(bus, clock, Goal::Own(id), voice).await
}

/// Takes a person's own request back.
pub(super) async fn cancel(bus: &Bus, clock: Clock, voice: &Voice) -> anyhow::Result<Exit> {
    let file = operator_file(bus);
    let seen = Follow::open(bus).await.seen().clone();
    if file.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        let others: Vec<String> = seen
            .requests
            .iter()
            .map(|(agent, it)| {
                format!(
                    "; the one {} belongs to the controller, by {agent}: take the command back there",
                    request_words(it, clock.wall())
                )
            })
            .collect();
        bail!("cancel: no request of a person stands, there is no {}{}", file.display(), others.concat());
    }
    let mut own = publication(bus, "cancel the request")?;
    let request = own.get(GLOBAL).cloned();
    match &request {
        Some(_) => own.unpublish(GLOBAL).context("cancel the request")?,
        // Nobody could read it; it goes as it is.
        None => drop(store::remove(&file).context("cancel the request")?),
    }
    drop(own);
    match voice.output {
        Output::Json => {
            Voice::json(&Done { result: "cancelled", file: &file, request: request.as_ref() }, false)?;
        }
        Output::Text => {
            let what = match &request {
                Some(it) => request_words(it, clock.wall()),
                None => "which nobody could read".to_owned(),
            };
            voice.paragraph(&format!("Took the request back, {what}: removed {}.", file.display()))?;
            voice.paragraph(after_cancel(&seen))?;
        }
    }
    if !seen.live.running {
        Voice::warn("zedkube does not run: it acts on this once it does");
    }
    Ok(Exit::Done)
}

/// What zedkube does when a person's request is gone.
fn after_cancel(seen: &Seen) -> &'static str {
    let others = seen.requests.keys().any(|agent| *agent != OPERATOR);
    if others {
        return "A request of the controller still stands: the drain goes on for that one, and the node stays cordoned.";
    }
    match seen.drain_status() {
        Some(
            DrainStatus::NotSupported
            | DrainStatus::NotRequested
            | DrainStatus::Unknown
            | DrainStatus::Stranger(_),
        )
        | None => "zedkube had not taken it: nothing is to be undone.",
        Some(
            DrainStatus::Requested
            | DrainStatus::Starting
            | DrainStatus::Cordoned
            | DrainStatus::FailedCordon
            | DrainStatus::DrainRetrying
            | DrainStatus::FailedDrain
            | DrainStatus::Complete,
        ) => {
            "zedkube stops evicting and removes its own cordon; pods that have left come back only as the scheduler \
             places them."
        }
    }
}

/// What a person should know who asks for a drain in this state.
fn doubts(seen: &Seen, member: Option<bool>) -> Vec<String> {
    let mut lines = Vec::new();
    if !seen.live.running {
        lines.push(
            "zedkube does not run (no live process in run/zedkube.pid): nobody takes the request until it does"
                .to_owned(),
        );
    }
    let unsupported = seen.drain_status() == Some(DrainStatus::NotSupported);
    if member == Some(false) || (member.is_none() && unsupported) {
        lines.push("this node is in no cluster: there is nothing to drain".to_owned());
    }
    if let Some(order) = seen.force.as_ref().and_then(|it| it.order) {
        lines.push(format!("a force file orders {order}; `zedbox drain force --remove` takes it away"));
    }
    lines
}

/// Whether this node is in a cluster; `None` while zedagent has not said.
fn member(bus: &Bus) -> Option<bool> {
    wire::peek::<EdgeNodeClusterConfig>(bus, "zedagent", GLOBAL).ok()??.member()
}

/// The place of a person's request.
fn own_name() -> Name {
    wire::name::<NodeDrainRequest>(OPERATOR)
}

/// Becomes the publisher for a moment. It tells by files alone: a socket would end with this program.
fn publication(bus: &Bus, doing: &str) -> anyhow::Result<Publication<NodeDrainRequest>> {
    bus.publication(own_name(), wire::codec::<NodeDrainRequest>())
        .map_err(person::root_needed)
        .with_context(|| doing.to_owned())
}

/// A request that failed may be made anew; any other one that stands is kept.
fn refuse_second(
    own: &Publication<NodeDrainRequest>,
    seen: &Seen,
    file: &Path,
    now: GoTime,
) -> anyhow::Result<()> {
    let path = file.display();
    if let Some(standing) = own.get(GLOBAL) {
        if seen.stand_of(standing.id()) == Stand::Failed {
            return Ok(());
        }
        let words = request_words(standing, now);
        bail!("ask for a drain: {path} stands already, {words}; `zedbox drain cancel` takes it back");
    }
    if file.symlink_metadata().is_ok() {
        bail!("ask for a drain: {path} is there and cannot be read; `zedbox drain cancel` removes it");
    }
    Ok(())
}

/// The reason as it may stand in a request.
fn reason(text: &str) -> anyhow::Result<&str> {
    let text = text.trim();
    if text.is_empty() {
        bail!("ask for a drain: the reason is empty; say why, as --reason \"new disk in bay 2\"");
    }
    if text.len() > REASON_BYTES {
        bail!(
            "ask for a drain: the reason has {} bytes, the limit is {REASON_BYTES}; shorten it",
            text.len()
        );
    }
    if text.chars().any(char::is_control) {
        bail!("ask for a drain: the reason holds control characters; write it in one plain line");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain_cmd::seen::Live;

    #[test]
    fn a_reason_is_one_plain_line_of_at_most_200_bytes() {
        assert_eq!(reason("  new disk ").unwrap(), "new disk");
        assert!(reason(&"x".repeat(200)).is_ok());
        for (text, word) in [
            ("", "empty"),
            (" \t", "empty"),
            ("a\nb", "control"),
            ("a\x1b[2J", "control"),
            (&"x".repeat(201), "201 bytes"),
            (&"\u{e9}".repeat(101), "202 bytes"),
        ] {
            let told = reason(text).unwrap_err().to_string();
            assert!(told.contains(word), "{text:?}: {told}");
        }
    }

    #[test]
    fn what_is_undone_depends_on_how_far_it_was_and_who_else_asks() {
        let mut seen = Seen::default();
        assert!(after_cancel(&seen).contains("nothing is to be undone"));
        let status = DrainStatus::Cordoned;
        seen.status = Some(topics::NodeDrainStatus { status, requested_by: Requester::Operator });
        assert!(after_cancel(&seen).contains("removes its own cordon"));
        seen.requests.insert("zedagent", NodeDrainRequest::default());
        assert!(after_cancel(&seen).contains("stays cordoned"));
    }

    #[test]
    fn a_dead_zedkube_no_cluster_and_a_force_file_are_told() {
        let mut seen = Seen { live: Live { running: true, ..Live::default() }, ..Seen::default() };
        assert_eq!(doubts(&seen, Some(true)).len(), 0);
        assert!(doubts(&seen, Some(false))[0].contains("in no cluster"));
        seen.live.running = false;
        assert!(doubts(&seen, None)[0].contains("does not run"));
    }
}
