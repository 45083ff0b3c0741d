//! The way out to a person or a program: standard output and standard error, as wide as the terminal.

use std::io::{self, IsTerminal as _, Write as _, stderr, stdout};

use anyhow::Context as _;
use serde::Serialize;

use super::text::clean;
use crate::args::{Output, Surroundings};

/// Columns where there is no terminal, or one that does not know its width.
const COLUMNS: usize = 80;
/// A narrower terminal is written to as if it had these.
const FEWEST_COLUMNS: usize = 40;

/// Where results and warnings go, and in which form.
#[derive(Debug, Clone)]
pub(super) struct Voice {
    /// For people or for programs.
    pub(super) output: Output,
    /// Standard output is a terminal.
    pub(super) terminal: bool,
    /// It takes colours.
    pub(super) colours: bool,
}

impl Voice {
    pub(super) fn new(output: Output, surroundings: &Surroundings) -> Self {
        let terminal = stdout().is_terminal();
        Self { output, terminal, colours: terminal && !surroundings.plain }
    }

    /// Columns of the terminal right now.
    pub(super) fn columns(&self) -> usize {
        let asked = if self.terminal { rustix::termios::tcgetwinsize(stdout()).ok() } else { None };
        asked
            .map(|size| usize::from(size.ws_col))
            .filter(|cols| *cols > 0)
            .unwrap_or(COLUMNS)
            .max(FEWEST_COLUMNS)
    }

    /// Prints `text` as it is, at once. A reader that has gone is no fault.
    pub(super) fn print(&self, text: &str) -> anyhow::Result<()> {
        let mut out = stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            done => done.context("print to standard output"),
        }
    }

    /// Prints `value` as JSON and a new line: in one line for a stream of values, else for reading.
    pub(super) fn json(&self, value: &impl Serialize, one_line: bool) -> anyhow::Result<()> {
        let text = if one_line { serde_json::to_string(value) } else { serde_json::to_string_pretty(value) };
        self.print(&format!("{}\n", text.context("print as JSON")?))
    }

    /// A line on standard error. It is not wrapped: paths and commands in it are there to be copied.
    pub(super) fn warn(text: &str) {
        let line = format!("zedbox drain: {}\n", clean(text));
        // Nobody is left to tell when this fails.
        stderr().lock().write_all(line.as_bytes()).unwrap_or_default();
    }
}
