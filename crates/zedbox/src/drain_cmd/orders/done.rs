//! `zedbox undrain`: a person has finished work on a node that was drained by `zedbox drain`.
//!
//! It withdraws that request and waits until the node is schedulable again, or says what keeps its cordon. Not here: the
//! withdrawal itself (`request`), and the uncordon, which is zedkube's.

use anyhow::{Context as _, bail};
use sheet::{DrainView, OPERATOR};
use step::Mono;
use tokio::signal::unix::{SignalKind, signal};
use topics::{CordonOwner, DrainPhase, GoTime};

use crate::Exit;
use crate::args::{Output, UndrainOptions};
use crate::drain_cmd::Shell;
use crate::drain_cmd::follow::Follow;
use crate::drain_cmd::request;
use crate::drain_cmd::voice::Voice;
use crate::drain_cmd::watch::WatchPatience;

/// zedkube's lock is looked at.
const SECOND: std::time::Duration = std::time::Duration::from_secs(1);
/// Least time between two sentences about what is waited for.
const SAY_AFTER: std::time::Duration = std::time::Duration::from_secs(10);

/// Withdraws a person's own request, and waits.
pub(in crate::drain_cmd) async fn run(shell: &Shell, options: &UndrainOptions) -> anyhow::Result<Exit> {
    let Shell { topic_root, clock, voice, .. } = shell;
    let clock = *clock;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
    let mut follow = Follow::open(topic_root, clock);
    if !follow.view().requests.contains_key(OPERATOR) && !request::operator_file_exists(topic_root) {
        let seen = follow.view();
        if let Some((exit @ Exit::Done, words)) = end(seen).filter(|_| seen.status.is_some()) {
            return said(voice, exit, &format!("no person has requested a drain of this node, and {words}"));
        }
        bail!(
            "finish the work: no person has requested a drain of this node. {}",
            what_is(follow.view(), clock.wall())
        );
    }
    request::cancel(shell)?;
    // What was read before that says nothing of it.
    follow = Follow::open(topic_root, clock);
    let until = WatchPatience::until(clock, options.timeout).until;
    let mut next_look: Mono = clock.now() + SECOND;
    // What it waits for, where that takes longer than an uncordon does.
    let (mut say_from, mut shown) = (clock.now() + SAY_AFTER, String::new());
    loop {
        if let Some((exit, words)) = end(follow.view()) {
            return said(voice, exit, &words);
        }
        if until.is_some_and(|at| at <= clock.now()) {
            let words = format!(
                "the time is over and the node is not schedulable yet: {}",
                why(follow.view(), clock.wall())
            );
            return said(voice, Exit::UnderWay, &words);
        }
        if let Some(why) = follow.view().zedkube_away()
            && until.is_none()
        {
            bail!("wait until the node is schedulable: {why}, and it is what uncordons it");
        }
        tokio::select! {
            _ = interrupt.recv() => {
                Voice::warn("waiting ended; the request stays withdrawn");
                return Ok(Exit::Interrupted);
            }
            () = follow.changed() => {}
            () = clock.sleep_until(Some(until.map_or(next_look, |it| it.min(next_look)))) => {
                follow.look();
                next_look = clock.now() + SECOND;
                let words = why(follow.view(), clock.wall());
                if clock.now() >= say_from && words != shown {
                    Voice::warn(&format!("waits for the node to be schedulable: {words}"));
                    (say_from, shown) = (clock.now() + SAY_AFTER, words);
                }
            }
        }
    }
}

/// How it ended, once it has.
fn end(seen: &DrainView) -> Option<(Exit, String)> {
    if seen.requests.contains_key(OPERATOR) {
        return None;
    }
    let progress = seen.agreed()?;
    // Only what zedkube has written behind the withdrawal counts.
    if progress.asked.iter().any(|it| it.requested_by == topics::Requester::Operator) {
        return None;
    }
    if let Some(other) = seen.requests.values().next() {
        let words = format!(
            "the node stays cordoned, or is about to be: a drain is requested for {} as well; `zedbox watch` follows it",
            other.context
        );
        return Some((Exit::UnderWay, words));
    }
    match (progress.cordon, progress.phase) {
        (
            CordonOwner::None,
            DrainPhase::Idle | DrainPhase::WholeSite | DrainPhase::Paused | DrainPhase::Leaving,
        ) => Some((Exit::Done, "the node is schedulable again".to_owned())),
        (CordonOwner::Foreign, DrainPhase::Idle) => Some((
            Exit::Blocked,
            format!("the node stays cordoned, and that cordon is not ours; {}", progress.next_step),
        )),
        _ => None,
    }
}

fn why(seen: &DrainView, now: GoTime) -> String {
    let reason = seen.agreed().map(|it| it.reason.as_str()).unwrap_or_default();
    format!("{reason}; {}", seen.next_step(&seen.judge(now), now))
}

/// What holds the node where it is nobody's own request.
fn what_is(seen: &DrainView, now: GoTime) -> String {
    let judged = seen.judge(now);
    let others: Vec<&str> = seen.requests.values().map(|it| it.context.as_str()).collect();
    let for_whom = if others.is_empty() { String::new() } else { format!(", for {}", others.join(", ")) };
    format!("{}{for_whom}; next step: {}", judged.headline.text, seen.next_step(&judged, now))
}

fn said(voice: &Voice, exit: Exit, words: &str) -> anyhow::Result<Exit> {
    match voice.output {
        Output::Json => Voice::warn(words),
        Output::Text => drop(voice.paragraph(&format!("{}{}.", words[..1].to_uppercase(), &words[1..]))?),
    }
    Ok(exit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use topics::{Asked, DrainStatus, NodeDrainProgress, NodeDrainRequest, NodeDrainStatus, Requester};

    fn view_with(cordon: CordonOwner, phase: DrainPhase) -> DrainView {
        let (status, requested_by) = (DrainStatus::NotRequested, Requester::None);
        let progress = NodeDrainProgress { cordon, phase, status, ..NodeDrainProgress::default() };
        DrainView {
            status: Some(NodeDrainStatus { status, requested_by }),
            progress: Some(progress),
            ..DrainView::default()
        }
    }

    #[test]
    fn x3_work_is_over_once_zedkube_has_heard_of_it_and_the_node_is_schedulable_and_a_cordon_is_named() {
        let exit = |seen: &DrainView| end(seen).map(|it| it.0);
        assert_eq!(exit(&view_with(CordonOwner::None, DrainPhase::Idle)), Some(Exit::Done));
        assert_eq!(exit(&view_with(CordonOwner::Ours, DrainPhase::Withdrawing)), None);
        assert_eq!(exit(&view_with(CordonOwner::Ours, DrainPhase::Complete)), None);
        assert_eq!(exit(&view_with(CordonOwner::Foreign, DrainPhase::Idle)), Some(Exit::Blocked));
        // What zedkube wrote before it heard of the withdrawal says nothing.
        let mut early = view_with(CordonOwner::None, DrainPhase::Idle);
        let asked = Asked { requested_by: Requester::Operator, ..Asked::default() };
        early.progress.as_mut().unwrap().asked.push(asked);
        assert_eq!(exit(&early), None);
        let mut both = view_with(CordonOwner::Ours, DrainPhase::Complete);
        both.requests.insert("zedagent", NodeDrainRequest { context: "reboot".into(), ..Default::default() });
        let (exit, words) = end(&both).unwrap();
        assert!(exit == Exit::UnderWay && words.contains("for reboot"), "{words}");
    }
}
