//! `zedbox drain pass`: findings of the preflight do not stop a drain; and `zedbox drain start-now`: the drain that waits for
//! a window starts now. Both orders go with the boot.
//!
//! The second names the request that waits, so that it lets no other one start. Not here: what they mean (zedkube).

use agent::Clock;
use anyhow::{Context as _, bail};
use pubsub::{TopicRoot, store};
use sheet::DrainView;
use topics::{DrainPhase, PASS_FILE, PreflightPass, WINDOW_PASS, WindowPass};

use super::write;
use crate::Exit;
use crate::args::{PassOptions, StartOptions, Surroundings};
use crate::drain_cmd::person;
use crate::drain_cmd::voice::Voice;

/// Has findings pass, or no longer.
pub(in crate::drain_cmd) async fn pass(
    topic_root: &TopicRoot,
    clock: Clock,
    options: &PassOptions,
    surroundings: &Surroundings,
    voice: &Voice,
) -> anyhow::Result<Exit> {
    if options.remove {
        let file = topic_root.path(PASS_FILE);
        let removed = store::remove(&file).map_err(person::root_needed).context("remove the order")?;
        if !removed {
            bail!("remove the order: no finding is passed: {} does not exist", file.display());
        }
        let text = format!("Removed {}: findings stop the next drain again.", file.display());
        return voice.done("removed", &file, ("Codes", [""; 0]), &text);
    }
    let doing = "have findings pass";
    let order = PreflightPass {
        codes: options.codes.clone(),
        reason: person::reason(options.reason.as_deref().unwrap_or_default()).context(doing)?.to_owned(),
        by: person::name(surroundings),
        at: clock.wall(),
    };
    let file = write(topic_root, PASS_FILE, &order).await.context(doing)?;
    let text = format!(
        "{} no longer stop a drain of this node in this boot; a drain that waits for that looks again within 30 s. \
         `zedbox drain pass --remove` ends it.",
        order.codes.join(", ")
    );
    voice.done("passed", &file, ("Codes", &order.codes), &text)
}

/// Lets the drain that waits start.
pub(in crate::drain_cmd) async fn start_now(
    topic_root: &TopicRoot,
    clock: Clock,
    options: &StartOptions,
    surroundings: &Surroundings,
    voice: &Voice,
) -> anyhow::Result<Exit> {
    let doing = "start the drain outside of its windows";
    let reason = person::reason(&options.reason).context(doing)?;
    let seen = DrainView::read(topic_root, clock);
    let pass = window_pass(&seen, reason, person::name(surroundings)).context(doing)?;
    let file = write(topic_root, WINDOW_PASS, &pass).await.context(doing)?;
    let (shown, of) = (file.display(), pass.id());
    let text = format!(
        "{shown} lets the drain for {of} start now, outside of its windows. To undo it before the node is cordoned: \
         `rm {shown}`"
    );
    voice.done("started", &file, ("Pass", &pass), &text)
}

fn window_pass(seen: &DrainView, reason: &str, by: String) -> anyhow::Result<WindowPass> {
    let waiting = seen.agreed().filter(|it| it.phase == DrainPhase::OutsideWindow);
    let Some(waiting) = waiting else {
        bail!("no drain of this node waits for a window: `zedbox drain status` shows what it waits for");
    };
    Ok(WindowPass {
        requested_by: waiting.requested_by,
        requested_at: waiting.requested_at,
        reason: reason.to_owned(),
        by,
    })
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
            assert!(refused.contains("zedbox drain status"), "{refused}");
        }
        assert!(window_pass(&DrainView::default(), "x", "root".to_owned()).is_err());
    }
}
