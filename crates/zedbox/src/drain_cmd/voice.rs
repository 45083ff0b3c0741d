//! The way out to a person or a program: standard output and standard error, as wide as the terminal.

use std::io::{self, IsTerminal as _, Write as _, stderr, stdout};
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::json;
use sheet::RowWeight;
use topics::harmless_json;

use super::text::{Sheet, clean, paragraph, row};
use crate::Exit;
use crate::args::{Output, Surroundings};

/// Columns where there is no terminal, or one that does not know its width.
const COLUMNS: usize = 80;
const ROWS: usize = 24;
/// A narrower terminal is written to as if it had these.
const FEWEST_COLUMNS: usize = 40;

/// What a row is about, and its text.
pub(crate) type Labelled = (&'static str, String);

/// Where results and warnings go, and in which form.
#[derive(Debug, Clone)]
pub(crate) struct Voice {
    /// For people or for programs.
    pub(crate) output: Output,
    /// Standard output is a terminal.
    terminal: bool,
    /// Its cursor can be moved back.
    pub(crate) redraws: bool,
    pub(crate) colours: bool,
}

impl Voice {
    pub(crate) fn new(output: Output, surroundings: &Surroundings) -> Self {
        let terminal = stdout().is_terminal();
        let redraws = terminal && !surroundings.dumb;
        Self { output, terminal, redraws, colours: redraws && !surroundings.no_colour }
    }

    /// Columns of the terminal right now.
    pub(crate) fn columns(&self) -> usize {
        self.size().0
    }

    /// Columns and rows of the terminal right now.
    pub(crate) fn size(&self) -> (usize, usize) {
        let asked = if self.terminal { rustix::termios::tcgetwinsize(stdout()).ok() } else { None };
        // A serial console knows neither.
        let given = |size: u16, default: usize| if size == 0 { default } else { usize::from(size) };
        let (columns, rows) =
            asked.map_or((COLUMNS, ROWS), |it| (given(it.ws_col, COLUMNS), given(it.ws_row, ROWS)));
        (columns.max(FEWEST_COLUMNS), rows)
    }

    /// Prints `text` as it is, at once. False when the reader has gone, which is no fault.
    pub(crate) fn print(text: &str) -> anyhow::Result<bool> {
        let mut out = stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            done => done.map(|()| true).context("print to standard output"),
        }
    }

    pub(crate) fn paragraph(&self, text: &str) -> anyhow::Result<bool> {
        Self::print(&paragraph("", text, self.columns()))
    }

    /// Prints what was done: `value` for a program, `text` for a person.
    pub(crate) fn say(&self, value: &impl Serialize, text: &str) -> anyhow::Result<()> {
        match self.output {
            Output::Json => Self::json(value, false),
            Output::Text => self.paragraph(text),
        }
        .map(drop)
    }

    /// Prints what became of a person's order in `file`, and what it holds, under its name.
    pub(crate) fn done(
        &self,
        result: &str,
        file: &Path,
        (name, order): (&str, impl Serialize),
        text: &str,
    ) -> anyhow::Result<Exit> {
        let file = file.display().to_string();
        let order = serde_json::to_value(order).context("print as JSON")?;
        self.say(&json!({ "Result": result, "File": file, (name): order }), text).map(|()| Exit::Done)
    }

    /// Prints `value` for a program; for a person a headline in this colour, and rows.
    pub(crate) fn rows(
        &self,
        headline: &str,
        colour: Option<&'static str>,
        rows: &[Labelled],
        value: &impl Serialize,
    ) -> anyhow::Result<()> {
        if self.output == Output::Json {
            return Self::json(value, false).map(drop);
        }
        let columns = self.columns();
        let mut sheet = Sheet::new(&paragraph("", headline, columns), colour);
        for (label, text) in rows {
            sheet.add(RowWeight::Essential, label, &row(label, text, columns));
        }
        Self::print(&sheet.text(self.colours)).map(drop)
    }

    /// Prints `value` as JSON and a new line: in one line for a stream of values, else for reading.
    pub(crate) fn json(value: &impl Serialize, one_line: bool) -> anyhow::Result<bool> {
        let text = if one_line { serde_json::to_string(value) } else { serde_json::to_string_pretty(value) };
        Self::print(&format!("{}\n", harmless_json(&text.context("print as JSON")?)))
    }

    /// How a command ends; what went wrong is said on standard error.
    pub(crate) fn exit(command: &str, done: anyhow::Result<Exit>) -> Exit {
        done.unwrap_or_else(|error| {
            Self::warn_of(command, &format!("failed to {error:#}"));
            Exit::Failed
        })
    }

    /// A line on standard error. It is not wrapped: paths and commands in it are there to be copied.
    pub(crate) fn warn(text: &str) {
        Self::line("zedbox", text);
    }

    /// The same, with the command.
    pub(crate) fn warn_of(command: &str, text: &str) {
        Self::line(&format!("zedbox {command}"), text);
    }

    fn line(who: &str, text: &str) {
        let line = format!("{who}: {}\n", clean(text));
        // Nobody is left to tell when this fails.
        stderr().lock().write_all(line.as_bytes()).unwrap_or_default();
    }
}
