//! A node for one test: a copy of a tree under a root of its own, and the program run on it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Output, Stdio};

use pubsub::store;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::KilledChild;

/// Start of the tests' clock.
pub(crate) const NOW: &str = "2026-03-14T09:41:00Z";
const NOBODY: u32 = 65_534;

pub(crate) fn top() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The trees of `run-fixtures` in order.
pub(crate) fn trees() -> Vec<String> {
    let entries = fs::read_dir(top().join("run-fixtures")).unwrap().map(Result::unwrap);
    let folders = entries.filter(|it| it.path().is_dir());
    let mut names: Vec<String> = folders.map(|it| it.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A root directory, and a stand-in for zedkube.
pub(crate) struct Node {
    dir: TempDir,
    zedkube: Option<File>,
}

impl Node {
    pub(crate) fn empty() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), zedkube: None }
    }

    pub(crate) fn of(tree: &str) -> Self {
        let node = Self::empty();
        copy(&top().join("run-fixtures").join(tree), node.root());
        node
    }

    /// The same with a holder of zedkube's topic locks, as if zedkube lived.
    pub(crate) fn with_zedkube(mut self) -> Self {
        let path = self.path("run/zedkube/NodeDrainStatus.lock");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let lock = File::create(path).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        self.zedkube = Some(lock);
        self
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root().join(relative)
    }

    pub(crate) fn put(&self, relative: &str, text: &str) {
        store::replace(&self.path(relative), text.as_bytes()).unwrap();
    }

    /// Not yet started, without this machine's environment.
    pub(crate) fn command(&self, words: &str) -> Command {
        let (name, rest) = words.split_once(' ').unwrap_or((words, ""));
        if name.starts_with("--") || ["", "force", "at-shutdown"].contains(&name) {
            return self.command_of("drain", words);
        }
        self.command_of(name, rest)
    }

    /// Another command than those of `command`.
    pub(crate) fn command_of(&self, name: &str, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zedbox"));
        command.args([name, "--root"]).arg(self.root()).args(words.split_whitespace());
        command.env_clear().current_dir("/");
        command
    }

    /// Copies zedkube's files of another tree, in the order of its writes.
    pub(crate) fn zedkube_tells(&self, tree: &str) {
        for topic in ["NodeDrainProgress", "NodeDrainStatus"] {
            let file = format!("run/zedkube/{topic}/global.json");
            self.put(&file, &fs::read_to_string(top().join("run-fixtures").join(tree).join(&file)).unwrap());
        }
    }

    /// Running; its lines are read as they come.
    pub(crate) fn start(&self, words: &str) -> Reader {
        Self::at_work(&mut self.command(words))
    }

    pub(crate) fn at_work(command: &mut Command) -> Reader {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Reader { child: KilledChild(child), lines, read: Vec::new() }
    }

    /// The output for a user who may enter `run` only; `None`, with the reason printed, where this test may
    /// not become another user.
    pub(crate) fn drain_as_nobody(&self, words: &str) -> Option<Ended> {
        if !rustix::process::geteuid().is_root() {
            writeln!(std::io::stderr(), "skipped: only root can become another user; run this as root")
                .unwrap();
            return None;
        }
        let mode =
            |path: &Path, mode: u32| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        mode(self.root(), 0o755);
        mode(&self.path("run"), 0o755);
        for entry in fs::read_dir(self.path("run")).unwrap() {
            let path = entry.unwrap().path();
            // The agents' modes.
            mode(&path, if path.is_dir() { 0o700 } else { 0o644 });
        }
        if self.path("persist").exists() {
            mode(&self.path("persist"), 0o700);
        }
        // Where every user may run it, written by another process for the reason in `scenarios::script`.
        let program = self.path("zedbox");
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_zedbox")).arg(&program).status();
        assert!(copied.unwrap().success());
        let typed = self.command(words);
        let mut command = Command::new(program);
        command.args(typed.get_args()).env_clear().current_dir("/").uid(NOBODY).gid(NOBODY);
        Some(Ended::of(command.output().unwrap()))
    }

    pub(crate) fn drain(&self, words: &str) -> Ended {
        Ended::of(self.command(words).output().unwrap())
    }

    /// With one more argument, which may hold blanks.
    pub(crate) fn drain_with(&self, words: &str, last: &str) -> Ended {
        Ended::of(self.command(words).arg(last).output().unwrap())
    }

    pub(crate) fn text(&self, relative: &str) -> String {
        fs::read_to_string(self.path(relative)).unwrap()
    }
}

impl Node {
    pub(crate) fn kill_zedkube(&mut self) {
        self.zedkube = None;
    }
}

/// A running program with its lines.
pub(crate) struct Reader {
    pub(crate) child: KilledChild,
    lines: Lines<BufReader<ChildStdout>>,
    pub(crate) read: Vec<String>,
}

impl Reader {
    /// Reads until a line contains `words`; fails when the program ends before.
    pub(crate) fn until(&mut self, words: &str) -> String {
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            self.read.push(line.clone());
            if line.contains(words) {
                return line;
            }
        }
        unreachable!("it ended without a line with `{words}`: {:#?}", self.read)
    }

    /// Reads to the end; returns the exit code.
    pub(crate) fn end(&mut self) -> i32 {
        self.read.extend(self.lines.by_ref().map(Result::unwrap));
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    pub(crate) fn interrupt(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    }
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Standard output as one JSON value.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap()
    }
}

fn copy(from: &Path, to: &Path) {
    for file in scenarios::files_below(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(file, target).unwrap();
    }
}
