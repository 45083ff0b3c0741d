//! Runs programs of the image to their end, with a limit, and leaves no process behind; the kind of image that this
//! machine runs, from the reference's file.
//!
//! Not here: which programs, and what their output means.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pubsub::{TopicRoot, store};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tracing::warn;

/// How long to wait for a killed program. One stuck in the kernel is collected later.
const KILLED: Duration = Duration::from_secs(2);
/// Tries and pause for a program that is still open for writing.
const BUSY_TRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(10);
const ANSWER_BYTES: u64 = 64 << 10;

pub(crate) fn wrong(program: &Path, words: &[&str], why: &str) -> String {
    format!("{} {} {why}", program.display(), words.join(" "))
}

/// Repeats `start` for half a second at most while the program is still open for writing: a child of another
/// thread that is being started holds a copy of the file.
pub(super) fn unless_busy<T>(mut start: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..BUSY_TRIES {
        match start() {
            Err(cause) if cause.kind() == io::ErrorKind::ExecutableFileBusy => thread::sleep(BUSY_PAUSE),
            done => return done,
        }
    }
    start()
}

/// Runs `program` to its end and returns its output. It and its children are killed at the limit, or when
/// this is dropped, and collected.
///
/// Errors: it cannot be run, exceeds `limit`, or fails: the program, its arguments and its output.
pub async fn call(program: &Path, words: &[&str], limit: Duration) -> Result<String, String> {
    run(Command::new(program), words, limit).await
}

/// The same with the environment of `command`, which has no arguments yet.
///
/// Errors: as [`call`].
pub async fn run(mut command: Command, words: &[&str], limit: Duration) -> Result<String, String> {
    let program = PathBuf::from(command.get_program());
    let wrong = |why: &str| wrong(&program, words, why);
    command.args(words).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = RunningProgram::default();
    let held = running.0.clone();
    // Its start too may block, on the program's disk.
    let mut ended = tokio::task::spawn_blocking(move || started(command, &held));
    let Ok(ended) = tokio::time::timeout(limit, &mut ended).await else {
        running.kill();
        let left = match tokio::time::timeout(KILLED, ended).await {
            Ok(_) => "was killed",
            Err(_) => "does not end although it was killed",
        };
        let secs = limit.as_secs();
        return Err(wrong(&format!("did not end within {secs} s and {left}; see why it hangs")));
    };
    let ended = ended.map_err(|cause| wrong(&format!("was not waited for: {cause}")))?;
    let (status, said, complaint) = ended.map_err(|why| wrong(&why))?;
    if !status.success() {
        let why = if complaint.trim().is_empty() { &said } else { &complaint };
        return Err(wrong(&format!("ended with {status}: {}", why.trim())));
    }
    Ok(said)
}

#[derive(Debug, Default)]
enum ProgramState {
    #[default]
    Starting,
    Running(Pid),
    /// Collected, or no longer wanted.
    Over,
}

/// Kills the program when dropped.
#[derive(Default)]
struct RunningProgram(Arc<Mutex<ProgramState>>);

impl RunningProgram {
    fn kill(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *state {
            ProgramState::Running(group) => end(group),
            ProgramState::Starting => *state = ProgramState::Over,
            ProgramState::Over => {}
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        self.kill();
    }
}

fn end(group: Pid) {
    match kill_process_group(group, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(cause) => warn!(error = %cause, "a program cannot be killed"),
    }
}

type Ended = (ExitStatus, String, String);

/// Errors: a message.
fn started(mut command: Command, state: &Mutex<ProgramState>) -> Result<Ended, String> {
    let child = unless_busy(|| command.spawn()).map_err(|cause| format!("cannot be run: {cause}"))?;
    let pid = Pid::from_child(&child);
    {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, ProgramState::Over) {
            end(pid);
        } else {
            *state = ProgramState::Running(pid);
        }
    }
    to_its_end(child, state).map_err(|cause| format!("cannot be heard: {cause}"))
}

fn to_its_end(mut child: Child, state: &Mutex<ProgramState>) -> io::Result<Ended> {
    let pid = Pid::from_child(&child);
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let complaint = thread::spawn(move || text(err));
    let said = text(out);
    // Its process ID stays its own until it is collected, so a kill hits no other process.
    let waited = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    // Kills children that it left running.
    end(pid);
    *state = ProgramState::Over;
    let status = child.wait()?;
    drop(state);
    waited?;
    let complaint = complaint.join().unwrap_or_else(|_| Ok(String::new()))?;
    Ok((status, said?, complaint))
}

fn text(pipe: Option<impl Read>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.by_ref().take(ANSWER_BYTES).read_to_end(&mut bytes)?;
        io::copy(&mut pipe, &mut io::sink())?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Under the root.
pub const HV_TYPE: &str = "run/eve-hv-type";
const HV_TYPE_BYTES: u64 = 64;

/// The image's kind by [`HV_TYPE`]; the device config has precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// For clusters: `k`, or `kubevirt` as in earlier images.
    Clusters,
    /// Built without Kubernetes: `kvm` or `xen`.
    Without(&'static str),
    /// Unknown: no file, as on other systems, or an empty, torn or unreadable one, or another word.
    Unsaid,
}

impl ImageKind {
    /// Logs an unknown word.
    pub fn read(topic_root: &TopicRoot) -> Self {
        let bytes = match store::read_start(&topic_root.path(HV_TYPE), HV_TYPE_BYTES) {
            Ok(None) => return Self::Unsaid,
            Ok(Some(bytes)) => bytes,
            Err(cause) => {
                warn!(path = HV_TYPE, error = %step::chain(&cause), "the device config alone says whether there is a cluster");
                return Self::Unsaid;
            }
        };
        match bytes.trim_ascii() {
            b"k" | b"kubevirt" => Self::Clusters,
            b"kvm" => Self::Without("kvm"),
            b"xen" => Self::Without("xen"),
            other => {
                let word = String::from_utf8_lossy(other);
                warn!(
                    path = HV_TYPE,
                    %word, "no kind of image that is known; the device config alone says whether there is a cluster"
                );
                Self::Unsaid
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_just_written_is_run_once_nobody_holds_it_open_any_more() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("program");
        std::fs::copy("/bin/true", &path).unwrap();
        let mut held = Some(std::fs::File::options().append(true).open(&path).unwrap());
        let mut tries = 0;
        let ended = unless_busy(|| {
            tries += 1;
            if tries == 3 {
                held = None;
            }
            Command::new(&path).status()
        });
        assert!(ended.unwrap().success() && tries >= 3, "{tries} tries");
    }
}
