//! Agents as real processes: started, killed and restarted from any thread, so that a kill hits its moment.
//! Agents as tasks can be ended so, too.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pubsub::{TopicRoot, store};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, prlimit};
use tokio::task::AbortHandle;

use crate::failing::Tracing;
use crate::world::Agent;

pub(crate) const LIMITS: &str = "limits.json";

#[derive(Default)]
pub(crate) struct How<'a> {
    /// The command, when it is not the agent alone.
    pub(crate) word: Option<&'a str>,
    pub(crate) descriptors: Option<u64>,
    pub(crate) filter: Option<&'a str>,
    pub(crate) clock: Option<&'a WrongClock>,
    /// strace's task, and its output file.
    pub(crate) tracing: Option<(&'a Tracing, PathBuf)>,
}

#[derive(Debug, Clone)]
pub(crate) struct WrongClock {
    library: PathBuf,
    secs: i64,
}

impl WrongClock {
    /// By so many seconds, with libfaketime.
    pub(crate) fn new(library: &Path, secs: i64) -> Self {
        Self { library: library.to_owned(), secs }
    }

    fn set(&self, command: &mut Command) {
        // Only the time of day: neither elapsed time nor times of files.
        let words = [("DONT_FAKE_MONOTONIC", "1"), ("NO_FAKE_STAT", "1")];
        command.env("LD_PRELOAD", &self.library).env("FAKETIME", format!("{:+}s", self.secs)).envs(words);
    }
}

struct Process {
    command: Command,
    child: Child,
}

/// Copies are the same ones.
#[derive(Clone, Default)]
pub struct Processes(Arc<Mutex<BTreeMap<Agent, Process>>>);

impl Processes {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Agent, Process>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts `agent` of `zedbox` on `topic_root`, where the limits file is; its output goes to `log`.
    pub(crate) fn start(
        &self,
        agent: Agent,
        zedbox: &Path,
        topic_root: &TopicRoot,
        log: &str,
        how: &How<'_>,
    ) {
        store::replace(&topic_root.path(log), b"").unwrap();
        let log = File::options().append(true).open(topic_root.path(log)).unwrap();
        let mut command = match (how.descriptors, &how.tracing) {
            (_, Some((tracing, trace))) => {
                let mut strace = tracing.command(trace);
                strace.arg(zedbox);
                strace
            }
            (Some(most), None) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", r#"ulimit -S -n "$0"; exec "$@""#, &most.to_string()]).arg(zedbox);
                shell
            }
            (None, None) => Command::new(zedbox),
        };
        command
            .arg(how.word.unwrap_or(agent.name()))
            .arg("--root")
            .arg(topic_root.path(""))
            .arg("--kubeconfig")
            .arg(topic_root.path("kubeconfig"))
            .arg("--limits")
            .arg(topic_root.path(LIMITS))
            .args(["--partitions", "record"])
            .args(how.filter.map(|it| ["--log", it]).into_iter().flatten())
            .env("ZEDBOX_SHORT_WAITS", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        if let Some(clock) = how.clock {
            clock.set(&mut command);
        }
        let child = command.spawn().unwrap();
        assert!(self.all().insert(agent, Process { command, child }).is_none(), "{agent:?} runs already");
    }

    /// SIGKILL. `Err` says how it had ended before.
    pub(crate) fn end(&self, agent: Agent) -> Result<(), String> {
        let mut process = self.all().remove(&agent).unwrap();
        process.kill()
    }

    /// SIGKILL and a restart. False when `agent` does not run.
    pub fn kill(&self, agent: Agent) -> bool {
        let mut all = self.all();
        let Some(process) = all.get_mut(&agent) else { return false };
        process.kill().unwrap();
        process.child = process.command.spawn().unwrap();
        true
    }

    /// Stops or continues `agent`, if it runs.
    pub fn hold(&self, agent: Agent, hold: bool) {
        let all = self.all();
        let Some(process) = all.get(&agent) else { return };
        let pid = Pid::from_child(&process.child);
        kill_process(pid, if hold { Signal::STOP } else { Signal::CONT }).unwrap();
    }

    pub fn descriptors(&self, agent: Agent) -> u64 {
        let pid = self.all()[&agent].child.id();
        std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count().try_into().unwrap()
    }

    /// Gives `agent` as many descriptors as this process has.
    pub(crate) fn unlimit(&self, agent: Agent) {
        let pid = Pid::from_child(&self.all()[&agent].child);
        let ours = getrlimit(Resource::Nofile);
        prlimit(Some(pid), Resource::Nofile, ours).unwrap();
    }

    /// Output of all processes that write to `dir`.
    pub(crate) fn said(dir: &Path) -> String {
        let Ok(entries) = std::fs::read_dir(dir) else { return String::new() };
        let mut paths: Vec<PathBuf> = entries.map(|it| it.unwrap().path()).collect();
        paths.sort();
        let said = |it: PathBuf| format!("== {}\n{}", it.display(), std::fs::read_to_string(&it).unwrap());
        paths.into_iter().map(said).collect::<Vec<_>>().join("\n")
    }
}

impl Process {
    fn kill(&mut self) -> Result<(), String> {
        let ended = self.child.try_wait().unwrap();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        ended.map_or(Ok(()), |status| Err(status.to_string()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Ends a world's agents that are tasks, from any thread.
#[derive(Clone, Default)]
pub(crate) struct Halt(Arc<Mutex<Vec<AbortHandle>>>);

impl Halt {
    pub(crate) fn add(&self, agent: AbortHandle) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(agent);
    }

    pub(crate) fn now(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(|it| it.abort());
    }
}

pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

/// Makes an executable script. Another process writes it: a file that this one has open for writing, and so
/// any process that a thread is starting then, cannot be run ("Text file busy").
pub fn script(path: &Path, text: &str) {
    let mut writer = Command::new("/bin/sh");
    writer.args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""]).arg(path).arg(text);
    assert!(writer.status().unwrap().success(), "cannot write {}", path.display());
}
