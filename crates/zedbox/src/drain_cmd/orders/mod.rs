//! Words of a person that let a drain begin, keep operations from starting or force a status, and the end of a person's
//! own drain.
//!
//! Called by `zedbox` alone. Not here: what they do (the agents).

pub(super) mod at_shutdown;
pub(super) mod done;
pub(super) mod force;
pub(super) mod go;
pub(super) mod pause;

use std::fs;
use std::io::{BufRead as _, IsTerminal as _, Read as _, stdin, stdout};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use agent::operator::WORD;
use anyhow::{Context as _, bail, ensure};
use pubsub::{FileState, TopicRoot, store, trust};
use serde::Serialize;
use topics::go_json;

use super::person;
use super::voice::Voice;
use crate::args::Output;

/// Puts an order where the agents read it, and looks with their eyes: what they refuse must not look done.
pub(super) async fn write(
    topic_root: &TopicRoot,
    place: &str,
    order: &impl Serialize,
) -> anyhow::Result<PathBuf> {
    let file = topic_root.path(place);
    refuse_directory(&file)?;
    store::replace(&file, &go_json::to_vec(order)?).map_err(person::root_needed)?;
    read_as_agents_do(topic_root, &file).await?;
    Ok(file)
}

async fn read_as_agents_do(topic_root: &TopicRoot, file: &Path) -> anyhow::Result<()> {
    match topic_root.file(file, WORD).next().await {
        FileState::Bad(finding) => bail!("the agents refuse the file {}: {}", file.display(), finding.reason),
        // An agent may have used it up already.
        FileState::Absent | FileState::Present(_) => Ok(()),
    }
}

/// Refuses a directory in which others could put orders, or one that is somewhere else.
fn refuse_directory(file: &Path) -> anyhow::Result<()> {
    let Some(dir) = file.parent() else { return Ok(()) };
    let Ok(seen) = fs::symlink_metadata(dir) else { return Ok(()) };
    let path = dir.display();
    if seen.file_type().is_symlink() {
        bail!("{path} is a link; an order is not written through it: remove the link");
    }
    if !seen.is_dir() {
        bail!("{path} is no directory; remove it");
    }
    if let Some(owner) = trust::foreign_owner(&seen) {
        bail!("{path} belongs to user {owner}, not to root; chown root {path}");
    }
    if trust::others_may_write(&seen) {
        bail!("others may put files into {path} (mode {:o}); chmod 700 {path}", seen.mode() & 0o777);
    }
    Ok(())
}

/// No answer is longer.
const ANSWER_BYTES: u64 = 256;

/// Asks for `word` behind what will happen, before something that cannot be undone. Who is asked sits at a terminal, for
/// input and for output; a script is not, as what it is told to do is written down already.
pub(crate) fn confirm(voice: &Voice, happens: &[String], word: &str) -> anyhow::Result<()> {
    if voice.output == Output::Json || !is_somebody_there() {
        return Ok(());
    }
    for line in happens {
        voice.paragraph(line)?;
    }
    let typed = typed(&format!("Type {word} to continue, anything else to leave it: "))?;
    ensure!(typed == word, "nothing was done, as {word} was not typed; a script adds --yes");
    Ok(())
}

/// What is typed behind the question, which begins with its option; `else_` for nothing, or where nobody is there.
///
/// Errors: there is no `else_`.
pub(crate) fn answer(question: &str, else_: Option<&str>) -> anyhow::Result<String> {
    let shown = else_.filter(|it| !it.is_empty()).map(|it| format!(" [{it}]")).unwrap_or_default();
    let asked = format!("{}{shown}: ", question.trim_start_matches('-'));
    let typed = if is_somebody_there() { typed(&asked)? } else { String::new() };
    match else_ {
        _ if !typed.is_empty() => Ok(typed),
        Some(else_) => Ok(else_.to_owned()),
        None => bail!("do it without an answer, and nothing was changed: name {question}"),
    }
}

fn is_somebody_there() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

fn typed(question: &str) -> anyhow::Result<String> {
    Voice::print(question)?;
    let mut line = String::new();
    stdin().lock().take(ANSWER_BYTES).read_line(&mut line).context("read the answer")?;
    Ok(line.trim().to_owned())
}
