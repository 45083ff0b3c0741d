//! A question on a terminal before something that cannot be undone: a word has to be typed.
//!
//! Who is asked sits at a terminal, for input and for output; a script is not, as what it is told to do is written down
//! already. Not here: what is asked about.

use std::io::{BufRead as _, IsTerminal as _, Read as _, stdin, stdout};

use anyhow::{Context as _, bail, ensure};

use crate::args::Output;
use crate::drain_cmd::voice::Voice;

/// No answer is longer.
const ANSWER_BYTES: u64 = 256;

/// Asks for `word` behind what will happen, unless nobody is there to be asked.
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
