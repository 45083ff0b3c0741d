//! `zedbox go`: a person lets what waits go past that which holds it.
//!
//! Words past a window or a finding go with the boot; the first names the request that waits, so that it lets no other one
//! start. Not here: what they mean (zedkube), the turns (`lock_cmd`), the force file (`force`).

use anyhow::{Context as _, bail};
use pubsub::store;
use sheet::{DrainView, for_whom};
use topics::{DrainPhase, DrainStatus, PASS_FILE, WINDOW_PASS, WindowPass};
use zedkube::preflight;

use super::{force, write};
use crate::Exit;
use crate::args::{ForceOptions, GoOptions, Past};
use crate::drain_cmd::{Shell, person};
use crate::lock_cmd;

/// Says it, or takes it back.
pub(in crate::drain_cmd) async fn run(shell: &Shell, options: &GoOptions) -> anyhow::Result<Exit> {
    let mut done = Exit::Done;
    let of_preflight = |it: &Past| if let Past::Preflight(code) = it { Some(code.clone()) } else { None };
    let codes: Vec<String> = options.past.iter().filter_map(of_preflight).collect();
    if !codes.is_empty() {
        done = past_preflight(shell, options, codes).await.context("go past findings of the preflight")?;
    }
    for past in &options.past {
        done = match past {
            Past::Preflight(_) => continue,
            Past::Window => past_window(shell, options).await.context("go past the window")?,
            Past::Turn if options.undo => {
                bail!("a turn that was released stays released: its node asks for another one")
            }
            Past::Turn => {
                let past = lock_cmd::past_turn(shell, options, &shell.look(), reason(options)?).await;
                past.context("go past the turn")?
            }
            Past::Drain => past_drain(shell, options).await?,
        };
    }
    Ok(done)
}

fn reason(options: &GoOptions) -> anyhow::Result<&str> {
    person::reason(options.reason.as_deref().unwrap_or_default())
}

/// Takes a word back that is in `place`.
fn undo(shell: &Shell, place: &str, text: &str) -> anyhow::Result<Exit> {
    let file = shell.topic_root.path(place);
    if !store::remove(&file).map_err(person::root_needed)? {
        bail!("there is nothing to take back: {} does not exist", file.display());
    }
    shell.voice.done("removed", &file, ("Codes", [""; 0]), &format!("Removed {}: {text}", file.display()))
}

async fn past_preflight(shell: &Shell, options: &GoOptions, codes: Vec<String>) -> anyhow::Result<Exit> {
    // What cannot be used passes nothing.
    let mut order = preflight::pass(&shell.topic_root).await.unwrap_or_default();
    if options.undo {
        order.codes.retain(|it| !codes.contains(it));
        if order.codes.is_empty() {
            return undo(shell, PASS_FILE, "findings stop the next drain again.");
        }
    } else {
        let new = codes.into_iter().filter(|it| !order.codes.contains(it)).collect::<Vec<_>>();
        order.codes.extend(new);
        reason(options)?.clone_into(&mut order.reason);
        (order.by, order.at) = (shell.who(), shell.clock.wall());
    }
    let file = write(&shell.topic_root, PASS_FILE, &order).await?;
    let codes = &order.codes;
    let text = format!(
        "{} no longer stop a drain of this node in this boot; a drain that waits for that looks again within 30 s. \
         `zedbox go --past preflight:{} --undo` ends it.",
        codes.join(", "),
        codes[0]
    );
    shell.voice.done("passed", &file, ("Codes", codes), &text)
}

async fn past_window(shell: &Shell, options: &GoOptions) -> anyhow::Result<Exit> {
    if options.undo {
        return undo(shell, WINDOW_PASS, "a drain that has not begun waits for its window again.");
    }
    let seen = shell.look();
    let pass = window_pass(&seen, reason(options)?, shell.who())?;
    let whom = for_whom(pass.requested_by, seen.agreed().map_or("", |it| &it.context));
    let file = write(&shell.topic_root, WINDOW_PASS, &pass).await?;
    let text = format!(
        "The drain {whom}, requested {}, starts now, outside its windows. `zedbox go --past window --undo` takes that back until the node is \
         cordoned.",
        seen.asked_at(pass.id()).shown()
    );
    shell.voice.done("started", &file, ("Pass", &pass), &text)
}

fn window_pass(seen: &DrainView, reason: &str, by: String) -> anyhow::Result<WindowPass> {
    let waiting = seen.agreed().filter(|it| it.phase == DrainPhase::OutsideWindow);
    let Some(waiting) = waiting else {
        bail!("no drain of this node waits for a window: `zedbox status` shows what it waits for");
    };
    Ok(WindowPass {
        requested_by: waiting.requested_by,
        requested_at: waiting.requested_at,
        reason: reason.to_owned(),
        by,
    })
}

/// The operation that waits goes ahead by the force file.
async fn past_drain(shell: &Shell, options: &GoOptions) -> anyhow::Result<Exit> {
    let whom = match (options.whom, options.undo) {
        (None, false) => Some(force::who_waits(&shell.look()).context("go past the drain")?),
        (whom, _) => whom,
    };
    let order = ForceOptions {
        status: (!options.undo).then_some(DrainStatus::Complete),
        whom,
        reason: options.reason.clone(),
        replace: false,
        even_if_nobody_waits: false,
        yes: options.yes,
        remove: options.undo,
    };
    force::run(shell, &order).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use topics::{NodeDrainProgress, Requester};

    #[test]
    fn u9_the_word_is_for_the_request_that_waits_and_without_one_there_is_none() {
        let waiting = NodeDrainProgress {
            phase: DrainPhase::OutsideWindow,
            requested_by: Requester::DeviceOp,
            requested_at: "2026-03-14T09:30:00Z".parse().unwrap(),
            ..NodeDrainProgress::default()
        };
        let seen = |it: &NodeDrainProgress| DrainView { progress: Some(it.clone()), ..DrainView::default() };
        let given = window_pass(&seen(&waiting), "the pump is dry", "root".to_owned()).unwrap();
        assert_eq!((given.requested_by, given.requested_at), (waiting.requested_by, waiting.requested_at));
        assert_eq!((given.reason.as_str(), given.by.as_str()), ("the pump is dry", "root"));
        for phase in [DrainPhase::Idle, DrainPhase::WaitingForTurn, DrainPhase::Complete] {
            let refused =
                window_pass(&seen(&NodeDrainProgress { phase, ..waiting.clone() }), "x", "root".to_owned());
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("zedbox status"), "{refused}");
        }
        assert!(window_pass(&DrainView::default(), "x", "root".to_owned()).is_err());
    }
}
