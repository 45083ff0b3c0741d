//! `zedbox drain pass`: the order that findings of the preflight do not stop a drain, written and removed.
//!
//! Not here: what it does (zedkube). It goes with the boot.

use agent::Clock;
use agent::operator::WORD;
use anyhow::{Context as _, bail};
use pubsub::{FileState, TopicRoot, store};
use serde::Serialize;
use topics::{PASS_FILE, PreflightPass, go_json};

use crate::Exit;
use crate::args::{PassOptions, Surroundings};
use crate::drain_cmd::person;
use crate::drain_cmd::voice::Voice;

/// What became of the order, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct PassResult<'a> {
    /// `passed` or `removed`.
    result: &'a str,
    /// Codes that are passed from now on.
    codes: &'a [String],
}

/// Writes or removes the order.
pub(in crate::drain_cmd) async fn run(
    topic_root: &TopicRoot,
    clock: Clock,
    options: &PassOptions,
    surroundings: &Surroundings,
    voice: &Voice,
) -> anyhow::Result<Exit> {
    let file = topic_root.path(PASS_FILE);
    if options.remove {
        let removed = store::remove(&file).map_err(person::root_needed).context("remove the order")?;
        if !removed {
            bail!("remove the order: no finding is passed: {} does not exist", file.display());
        }
        let text = format!("Removed {}: findings stop the next drain again.", file.display());
        return said(voice, "removed", &[], &text);
    }
    let doing = "have findings pass";
    let order = PreflightPass {
        codes: options.codes.clone(),
        reason: person::reason(options.reason.as_deref().unwrap_or_default()).context(doing)?.to_owned(),
        by: person::name(surroundings),
        at: clock.wall(),
    };
    let bytes = go_json::to_vec(&order).context(doing)?;
    store::replace(&file, &bytes).map_err(person::root_needed).context(doing)?;
    // Seen with the agents' eyes: what they refuse must not look done.
    if let FileState::Bad(finding) = topic_root.file(&file, WORD).next().await {
        bail!("{doing}: zedkube refuses the file: {}", finding.reason);
    }
    let text = format!(
        "{} no longer stop a drain of this node in this boot; a drain that waits for that looks again within 30 s. \
         `zedbox drain pass --remove` ends it.",
        order.codes.join(", ")
    );
    said(voice, "passed", &order.codes, &text)
}

fn said(voice: &Voice, result: &str, codes: &[String], text: &str) -> anyhow::Result<Exit> {
    voice.say(&PassResult { result, codes }, text).map(|()| Exit::Done)
}
