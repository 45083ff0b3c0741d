//! A disk that fails at one call of one process, planted by strace: the product is unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::{Agent, Dice, World};

/// Calls with a file, by path or descriptor.
const FILE_CALLS: &str = "%file,%desc";
/// Calls without disk access, and close, which fails after it has closed.
const LEFT_OUT: [&str; 3] = ["close", "fcntl", "inotify_add_watch"];
/// Calls that wait for the disk; unknown ones are skipped.
const DISK_CALLS: &str = "fsync,fdatasync,?rename,?renameat,renameat2";
/// Prefixes of calls that change a file by its path.
const CHANGING: [&str; 12] = [
    "creat", "rename", "unlink", "mkdir", "rmdir", "link", "symlink", "mknod", "chmod", "fchmodat", "chown",
    "truncate",
];
/// Replaces the process number in names of temporary files.
const PID: &str = "PID";
/// After a failed call a process writes more temporary files.
const MORE_TEMPS: u64 = 40;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    pub agent: Option<Agent>,
    pub calls: Vec<FailingCall>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingCall {
    pub name: String,
    /// Which of its calls to the tree, from 1.
    pub nth: usize,
    pub count: usize,
}

impl fmt::Display for Failing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.agent.map_or("each agent", |it| it.name()))?;
        for FailingCall { name, nth, count } in &self.calls {
            write!(out, ", {count} call(s) {name} from number {nth} on")?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tracing {
    All,
    Fail { calls: Vec<FailingCall>, paths: String },
    Slow { micros: u128, paths: String },
}

impl Tracing {
    /// Runs the program and its arguments, keeping the process number. strace writes to `trace`.
    pub(crate) fn command(&self, trace: &Path) -> Command {
        let mut shell = Command::new("sh");
        let trace = trace.display();
        let start = format!("exec strace -D -f -y -qqq -s 0 -o {trace} -e trace={FILE_CALLS} -e signal=none");
        let script = match self {
            Self::All => format!("{start} \"$@\""),
            Self::Fail { calls, paths } => {
                let inject = calls.iter().fold(String::new(), |all, FailingCall { name, nth, count }| {
                    format!("{all} -e inject={name}:error=EIO:when={nth}..{last}", last = nth + count - 1)
                });
                format!("{start}{inject} $(sed \"s/{PID}/$(printf %010d $$)/\" {paths}) \"$@\"")
            }
            Self::Slow { micros, paths } => format!(
                "{start} -e inject={DISK_CALLS}:delay_enter={micros} $(sed \"s/{PID}/$(printf %010d $$)/\" {paths}) \"$@\"",
            ),
        };
        shell.args(["-c", &script, "sh"]);
        shell
    }
}

#[derive(Debug, Default)]
pub struct Calls {
    /// Under the root, with [`PID`] in names of temporary files.
    paths: BTreeSet<String>,
    temps: BTreeSet<String>,
    last_temp: u64,
    /// Calls per agent, in the thread with the most of each.
    pub counts: BTreeMap<(Agent, String), usize>,
}

impl Calls {
    /// Parses strace's output for `agent` in a tree at `root`.
    pub(crate) fn note(&mut self, agent: Agent, root: &str, trace: &str) {
        // strace counts by thread, and a disk has its own thread.
        let mut counts: BTreeMap<(String, &str), usize> = BTreeMap::new();
        for line in trace.lines() {
            let Some((thread, said)) = line.split_once(' ') else { continue };
            let Some((call, words)) = said.trim_start().split_once('(') else { continue };
            let mut is_of_tree = false;
            for part in words.split(root).skip(1) {
                let end = part.find(['"', '>']).unwrap_or(part.len());
                let path = part[..end].trim_end_matches("(deleted)").trim_end_matches('/');
                if path.starts_with("/run") || path.starts_with("/persist") {
                    is_of_tree = true;
                    self.keep(path);
                }
            }
            if is_of_tree && !LEFT_OUT.contains(&call) {
                *counts.entry((call.to_owned(), thread)).or_default() += 1;
            }
        }
        for ((call, _), count) in counts {
            let most = self.counts.entry((agent, call)).or_default();
            *most = count.max(*most);
        }
    }

    fn keep(&mut self, path: &str) {
        let (dir, name) = path.rsplit_once('/').unwrap_or_default();
        match name.strip_prefix("tmp").filter(|it| it.len() == 20).and_then(|it| it[10..].parse().ok()) {
            Some(number) => {
                self.temps.insert(dir.to_owned());
                self.last_temp = self.last_temp.max(number);
            }
            None => {
                self.paths.insert(path.to_owned());
            }
        }
    }

    pub fn each(&self) -> Vec<Failing> {
        let all = self.counts.iter().flat_map(|((agent, name), count)| {
            (1..=*count).map(|nth| Failing {
                agent: Some(*agent),
                calls: vec![FailingCall { name: name.clone(), nth, count: 1 }],
            })
        });
        all.collect()
    }

    /// Random kinds of calls of each agent: one call each, or that and the next ones.
    pub fn some(&self, kinds: usize, dice: &mut Dice) -> Failing {
        let mut most: BTreeMap<&String, usize> = BTreeMap::new();
        for ((_, name), count) in &self.counts {
            let known = most.entry(name).or_default();
            *known = *count.max(known);
        }
        let mut most: Vec<_> = most.into_iter().collect();
        let mut below = |limit: usize| usize::try_from(dice.below(limit as u64)).unwrap();
        let calls = (0..kinds).map(|_| {
            let (name, most) = most.swap_remove(below(most.len()));
            FailingCall { name: name.clone(), nth: 1 + below(most), count: [1, 4][below(2)] }
        });
        Failing { agent: None, calls: calls.collect() }
    }

    /// For processes started from now on.
    pub fn plant(&self, world: &mut World, failing: &Failing) {
        let paths = self.list(world, "/");
        world.trace(failing.agent, Tracing::Fail { calls: failing.calls.clone(), paths });
    }

    /// Delays the disk of `persist` for all agents, in processes started from now on.
    pub fn slow(&self, world: &mut World, delay: Duration) {
        let paths = self.list(world, "/persist/");
        world.trace(None, Tracing::Slow { micros: delay.as_micros(), paths });
    }

    /// strace's arguments for all files below this folder.
    fn list(&self, world: &World, below: &str) -> String {
        let root = world.topic_root.root().display().to_string();
        let temps = self.temps.iter().flat_map(|dir| {
            (0..=self.last_temp + MORE_TEMPS).map(move |number| format!("{dir}/tmp{PID}{number:010}"))
        });
        let all = self.paths.iter().cloned().chain(temps).filter(|it| it.starts_with(below));
        let options: Vec<String> = all.map(|path| format!("-P {root}{path}")).collect();
        world.put("strace-paths", &options.join("\n"));
        world.topic_root.path("strace-paths").display().to_string()
    }
}

impl World {
    /// For each process of `of`, or all for `None`, from now on.
    pub(crate) fn trace(&mut self, of: Option<Agent>, tracing: Tracing) {
        self.tracing = Some((of, tracing));
    }

    /// Records every call of each process from now on.
    pub fn note_calls(&mut self) {
        self.trace(None, Tracing::All);
    }

    /// Recorded calls of ended processes.
    pub fn calls(&self) -> Calls {
        let mut calls = Calls::default();
        for agent in Agent::ALL {
            for trace in self.traces(agent) {
                calls.note(agent, &self.root.path().display().to_string(), &trace);
            }
        }
        calls
    }

    /// Calls that failed or were delayed by a test.
    pub fn planted(&self) -> Vec<String> {
        let all = Agent::ALL.into_iter().flat_map(|agent| self.traces(agent));
        let lines = all.flat_map(|it| it.lines().map(str::to_owned).collect::<Vec<_>>());
        lines.filter(|it| it.contains("(INJECTED)") || it.contains("(DELAYED)")).collect()
    }

    fn traces(&self, agent: Agent) -> Vec<String> {
        let logs = (1..=self.starts).map(|number| format!("log/{number:03}-{}", agent.name()));
        logs.filter_map(|log| std::fs::read_to_string(self.topic_root.path(&trace_of(&log))).ok()).collect()
    }

    /// Calls that changed, or tried to change, anything outside of `run` and `persist`, and the number of those within.
    pub fn written_elsewhere(&self) -> (Vec<String>, usize) {
        let root = self.topic_root.root().display().to_string();
        let (mut elsewhere, mut within) = (Vec::new(), 0);
        for line in Agent::ALL
            .into_iter()
            .flat_map(|agent| self.traces(agent))
            .flat_map(|it| it.lines().filter(|line| changes(line)).map(str::to_owned).collect::<Vec<_>>())
        {
            let named = line.split('"').skip(1).step_by(2).filter(|it| it.starts_with('/'));
            for path in named {
                let below = |folder: &str| path.strip_prefix(&root).is_some_and(|it| it.starts_with(folder));
                if below("/run") || below("/persist") {
                    within += 1;
                } else if path != "/dev/null" && !below("/dev/") {
                    elsewhere.push(line.clone());
                }
            }
        }
        (elsewhere, within)
    }

    pub fn no_agent_ended(&self) {
        let mut began = false;
        for entry in std::fs::read_dir(self.topic_root.path("log")).unwrap() {
            let path = entry.unwrap().path();
            let said = std::fs::read_to_string(&path).unwrap();
            assert!(!said.contains("starts again"), "{}: {said}", path.display());
            // A process started a moment ago may not have written yet.
            began |= said.contains("starts");
        }
        assert!(began, "no agent says that it starts");
    }
}

/// Whether a line of strace is a call that changes a file or names in a folder.
fn changes(line: &str) -> bool {
    let Some((call, words)) = line.split_once(' ').and_then(|(_, said)| said.trim_start().split_once('('))
    else {
        return false;
    };
    match call {
        "open" | "openat" => ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"].iter().any(|it| words.contains(it)),
        other => CHANGING.iter().any(|it| other.starts_with(it)),
    }
}

/// strace's output for the process with this log.
pub(crate) fn trace_of(log: &str) -> String {
    log.replace("log/", "trace-")
}
