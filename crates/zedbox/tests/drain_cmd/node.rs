//! A node for one test: a copy of a tree under a root of its own, and the program run on it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Lines};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Output, Stdio};

use pubsub::store;
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use tempfile::TempDir;
use topics::GoTime;

use crate::{KilledChild, skipped};

/// Start of the tests' clock.
pub(crate) const NOW: &str = "2026-03-14T09:41:00Z";
pub(crate) const PROGRESS: &str = "run/zedkube/NodeDrainProgress/global.json";
pub(crate) const STATUS: &str = "run/zedkube/NodeDrainStatus/global.json";
/// A request of a person.
pub(crate) const REQUEST: &str = "run/zedbox/NodeDrainRequest/global.json";
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

    /// The program with this line, not yet started, without this machine's environment. `force` and options alone are of
    /// `zedbox drain`.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut words = shlex::split(line).unwrap();
        let first = words.first().map(String::as_str).unwrap_or_default();
        if first.starts_with("--") || ["", "force", "at-shutdown"].contains(&first) {
            words.insert(0, "drain".to_owned());
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_zedbox"));
        command.arg(&words[0]).arg("--root").arg(self.root()).args(&words[1..]);
        command.env_clear().current_dir("/");
        command
    }

    pub(crate) fn take(&self, tree: &str, file: &str) {
        self.put(file, &fs::read_to_string(top().join("run-fixtures").join(tree).join(file)).unwrap());
    }

    /// Copies zedkube's files of another tree, in the order of its writes.
    pub(crate) fn zedkube_tells(&self, tree: &str) {
        for file in [PROGRESS, STATUS] {
            self.take(tree, file);
        }
    }

    /// zedkube had its last turn then.
    pub(crate) fn silent_since(&self, at: &str) {
        self.put("run/zedkube.touch", "");
        let file = File::options().write(true).open(self.path("run/zedkube.touch")).unwrap();
        file.set_modified(at.parse::<GoTime>().unwrap().to_timestamp().into()).unwrap();
    }

    pub(crate) fn progress(&self) -> Value {
        serde_json::from_str(&self.text(PROGRESS)).unwrap()
    }

    /// Sets these members of the progress.
    pub(crate) fn set(&self, members: &Value) {
        self.edit(PROGRESS, |progress| {
            for (name, value) in members.as_object().unwrap() {
                progress[name] = value.clone();
            }
        });
    }

    /// Running; its lines are read as they come.
    pub(crate) fn start(&self, line: &str) -> Reader {
        Reader::of(self.command(line).stderr(Stdio::piped()))
    }

    /// The output for a user who may enter `run` only; `None`, with the reason printed, where this test may
    /// not become another user.
    pub(crate) fn drain_as_nobody(&self, line: &str) -> Option<Ended> {
        if !rustix::process::geteuid().is_root() {
            skipped("only root can become another user; run this as root");
            return None;
        }
        let mode =
            |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
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
        let typed = self.command(line);
        let mut command = Command::new(program);
        Some(Ended::of(command.args(typed.get_args()).env_clear().current_dir("/").uid(NOBODY).gid(NOBODY)))
    }

    pub(crate) fn drain(&self, line: &str) -> Ended {
        Ended::of(&mut self.command(line))
    }

    /// Typed with sudo by `field`.
    pub(crate) fn sudo(&self, line: &str) -> Ended {
        Ended::of(self.command(line).env("SUDO_USER", "field"))
    }

    pub(crate) fn text(&self, relative: &str) -> String {
        fs::read_to_string(self.path(relative)).unwrap()
    }

    /// Permissions of a file or folder.
    pub(crate) fn mode(&self, relative: &str) -> u32 {
        fs::metadata(self.path(relative)).unwrap().permissions().mode() & 0o777
    }

    /// The JSON file with this changed.
    pub(crate) fn edit(&self, file: &str, change: impl FnOnce(&mut Value)) {
        let mut value = serde_json::from_str(&self.text(file)).unwrap();
        change(&mut value);
        self.put(file, &value.to_string());
    }

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
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = KilledChild(command.stdout(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, read: Vec::new() }
    }

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

/// Name of the user of this process.
pub(crate) fn user() -> String {
    Ended::of(Command::new("id").arg("-un")).out.trim().to_owned()
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ended {
    fn from(Output { status, stdout, stderr }: Output) -> Self {
        let [out, err] = [stdout, stderr].map(|it| String::from_utf8(it).unwrap());
        Self { code: status.code().unwrap_or(-1), out, err }
    }
}

impl Ended {
    pub(crate) fn of(command: &mut Command) -> Self {
        command.output().unwrap().into()
    }

    /// Standard output as one JSON value.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap()
    }

    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// With 0, and nothing on standard error.
    #[track_caller]
    pub(crate) fn done(self) -> Self {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{self:#?}");
        self
    }

    /// With 1, nothing on standard output, and these on standard error.
    #[track_caller]
    pub(crate) fn refused(self, parts: &[&str]) -> Self {
        assert_eq!((self.code, self.out.as_str()), (1, ""), "{self:#?}");
        self.warns(parts)
    }

    #[track_caller]
    pub(crate) fn says(self, parts: &[&str]) -> Self {
        has(&self.out, parts);
        self
    }

    #[track_caller]
    pub(crate) fn begins(self, with: &str) -> Self {
        assert!(self.out.starts_with(with) || words(&self.out).starts_with(with), "not `{with}`: {self:#?}");
        self
    }

    /// Prints none of these.
    #[track_caller]
    pub(crate) fn lacks(self, parts: &[&str]) -> Self {
        let joined = words(&self.out);
        assert!(!parts.iter().any(|it| self.out.contains(it) || joined.contains(it)), "{parts:?}: {self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn warns(self, parts: &[&str]) -> Self {
        has(&self.err, parts);
        self
    }
}

/// All of `parts` are in `text`, as they are or with its lines joined.
#[track_caller]
pub(crate) fn has(text: &str, parts: &[&str]) {
    let joined = words(text);
    let missing: Vec<&&str> =
        parts.iter().filter(|it| !text.contains(**it) && !joined.contains(**it)).collect();
    assert!(missing.is_empty(), "no {missing:?} in\n{text}");
}

/// The object has these members, by name or by pointer.
#[track_caller]
pub(crate) fn holds(object: &Value, members: &Value) {
    for (name, wanted) in members.as_object().unwrap() {
        let found = if name.starts_with('/') { object.pointer(name) } else { object.get(name) };
        assert_eq!(found.unwrap_or(&Value::Null), wanted, "{name} of {object:#}");
    }
}

/// Wrapped text in one line.
pub(crate) fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn copy(from: &Path, to: &Path) {
    for file in scenarios::files_below(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(file, target).unwrap();
    }
}
