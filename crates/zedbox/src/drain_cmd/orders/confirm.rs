//! A question on a terminal before something that cannot be undone: a word has to be typed.
//!
//! Who is asked sits at a terminal, for input and for output; a script is not, as what it is told to do is written down
//! already. Not here: what is asked about.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, stdin, stdout};

use anyhow::{Context as _, bail};

use crate::args::Output;
use crate::drain_cmd::voice::Voice;

/// No answer is longer.
const ANSWER_BYTES: u64 = 256;

/// Asks for `word` behind what will happen, unless nobody is there to be asked.
pub(crate) fn confirm(voice: &Voice, happens: &[String], word: &str) -> anyhow::Result<()> {
    if voice.output == Output::Json || !stdin().is_terminal() || !stdout().is_terminal() {
        return Ok(());
    }
    for line in happens {
        voice.paragraph(line)?;
    }
    Voice::print(&format!("Type {word} to continue, anything else to leave it: "))?;
    match typed().context("read the answer")? {
        Some(answer) if answer.trim() == word => Ok(()),
        Some(_) | None => bail!("nothing was done, as {word} was not typed; a script adds --yes"),
    }
}

fn typed() -> io::Result<Option<String>> {
    let mut line = String::new();
    let read = stdin().lock().take(ANSWER_BYTES).read_line(&mut line)?;
    Ok((read > 0).then_some(line))
}
