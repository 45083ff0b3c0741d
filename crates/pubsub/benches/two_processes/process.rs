//! Another process of a bench: its own program, started with words that say what it does.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Killed at the end.
pub(crate) struct OtherProcess {
    pub(crate) child: Child,
    said: BufReader<ChildStdout>,
}

impl OtherProcess {
    pub(crate) fn start(words: &[&dyn AsRef<OsStr>]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.said.read_line(&mut line).unwrap() > 0, "the other process ended");
        line.trim_end().to_owned()
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// One line for the process that started this one.
pub(crate) fn said(line: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// A number of a `status` of `/proc`.
pub(crate) fn number(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
