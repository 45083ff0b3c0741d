//! `zedbox drain start-now`: a person's word that the drain which waits for a window starts now.
//!
//! It names the request that waits, so that it lets no other one start, and is gone with the boot. Not here: what it means
//! (zedkube).

use std::path::Path;

use agent::Clock;
use anyhow::{Context as _, bail};
use pubsub::{TopicRoot, store};
use serde::Serialize;
use sheet::DrainView;
use topics::{DrainPhase, WINDOW_PASS, WindowPass, go_json};

use crate::Exit;
use crate::args::{StartOptions, Surroundings};
use crate::drain_cmd::person;
use crate::drain_cmd::voice::Voice;

/// What this does, in errors.
const START: &str = "start the drain outside of its windows";

/// What was written, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct StartNowResult<'a> {
    /// `started`.
    result: &'a str,
    file: &'a Path,
    /// What is in it.
    pass: &'a WindowPass,
}

/// Lets the drain that waits start.
pub(in crate::drain_cmd) fn run(
    topic_root: &TopicRoot,
    clock: Clock,
    options: &StartOptions,
    surroundings: &Surroundings,
    voice: &Voice,
) -> anyhow::Result<Exit> {
    let reason = person::reason(&options.reason).context(START)?;
    let seen = DrainView::read(topic_root, clock);
    let pass = pass(&seen, reason, person::name(surroundings)).context(START)?;
    let file = topic_root.path(WINDOW_PASS);
    let bytes = go_json::to_vec(&pass).context(START)?;
    store::replace(&file, &bytes).map_err(person::root_needed).context(START)?;
    let (shown, of) = (file.display(), pass.id());
    let text = format!(
        "{shown} lets the drain for {of} start now, outside of its windows. To undo it before the node is cordoned: \
         `rm {shown}`"
    );
    voice.say(&StartNowResult { result: "started", file: &file, pass: &pass }, &text).map(|()| Exit::Done)
}

fn pass(seen: &DrainView, reason: &str, by: String) -> anyhow::Result<WindowPass> {
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
        let given = pass(&seen(&waiting), "the pump is dry", "root".to_owned()).unwrap();
        assert_eq!((given.requested_by, given.requested_at), (waiting.requested_by, waiting.requested_at));
        assert_eq!((given.reason.as_str(), given.by.as_str()), ("the pump is dry", "root"));
        for phase in [DrainPhase::Idle, DrainPhase::WaitingForTurn, DrainPhase::Complete] {
            let refused =
                pass(&seen(&NodeDrainProgress { phase, ..waiting.clone() }), "x", "root".to_owned());
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("zedbox drain status"), "{refused}");
        }
        assert!(pass(&DrainView::default(), "x", "root".to_owned()).is_err());
    }
}
