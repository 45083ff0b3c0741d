//! IMGA and IMGB as a program knows them that speaks the words of the reference's `zboot`.
//!
//! | Words | Answer |
//! |---|---|
//! | `curpart` | `IMGA` or `IMGB` |
//! | `partdev LABEL`, `partdevsize LABEL` | the device, its size in bytes |
//! | `partstate LABEL` | `active`, `updating`, `inprogress` or `unused` |
//! | `set_partstate LABEL STATE` | none |
//!
//! Each call has a limit. A program that hangs, fails or answers something else is an error that names it and the
//! words; a state counts as set once `partstate` says so.
//! Source: lf-edge/eve pkg/gpt-tools `zboot`, pkg/pillar/zboot.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pubsub::Bus;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tracing::warn;

use super::contents;
use super::target::Target;
use super::{
    Boot, Image, Label, Partition, PartitionState, Partitions, Percent, StopOnDrop, Store, Work, blocking,
    booted, refuse, settable,
};
use crate::Error;

/// How long one call may take, as in the reference.
const LIMIT: Duration = Duration::from_secs(30);
/// How long a program that was killed is waited for. One that the kernel holds is collected when that lets go.
const KILLED: Duration = Duration::from_secs(2);
/// No answer is longer.
const ANSWER_BYTES: u64 = 64 << 10;

/// IMGA and IMGB by a program.
#[derive(Debug, Clone)]
pub struct ExecStore {
    bus: Bus,
    program: PathBuf,
}

impl ExecStore {
    /// The partitions that `program` knows.
    pub fn new(bus: &Bus, program: &Path) -> Self {
        Self { bus: bus.clone(), program: program.to_owned() }
    }

    async fn ask<T: FromStr<Err = String>>(&self, words: &[&str]) -> Result<T, Error> {
        let said = call(&self.program, words).await?;
        let answer = said.trim().to_owned();
        let clear = |why| wrong(&self.program, words, &format!("answered `{answer}`: {why}"));
        answer.parse().map_err(clear)
    }

    async fn now(&self) -> Result<(Partitions, [Target; 2]), Error> {
        let current: Label = self.ask(&["curpart"]).await?;
        let (a, at) = self.partition(Label::A, current).await?;
        let (b, bt) = self.partition(Label::B, current).await?;
        Ok((Partitions { current, a, b }, [at, bt]))
    }

    async fn partition(&self, label: Label, current: Label) -> Result<(Partition, Target), Error> {
        let Device(path) = self.ask(&["partdev", label.word()]).await?;
        let Size(bytes) = self.ask(&["partdevsize", label.word()]).await?;
        let state: PartitionState = self.ask(&["partstate", label.word()]).await?;
        let target = Target { path, offset: 0, bytes };
        let (bus, held) = (self.bus.clone(), target.clone());
        let contents = blocking(move || {
            if label == current {
                Ok((contents::running_version(&bus)?, String::new()))
            } else {
                contents::of(&bus, label, &held)
            }
        });
        let (short_version, content) = contents.await?;
        let partition = Partition {
            label,
            device: target.device(),
            state,
            short_version,
            long_version: String::new(),
            size_bytes: bytes,
            content,
        };
        Ok((partition, target))
    }

    async fn put(&self, label: Label, state: PartitionState) -> Result<(), Error> {
        let words = ["set_partstate", label.word(), state.word()];
        call(&self.program, &words).await?;
        let now: PartitionState = self.ask(&["partstate", label.word()]).await?;
        if now == state {
            return Ok(());
        }
        Err(wrong(&self.program, &words, &format!("succeeded, but {label} is {now}")))
    }

    async fn mark(&self) -> Result<(), Error> {
        let (now, _) = self.now().await?;
        let (running, spare) = (now.running(), now.spare());
        match running.state {
            PartitionState::Inprogress => self.put(running.label, PartitionState::Active).await?,
            PartitionState::Active => {}
            PartitionState::Updating | PartitionState::Unused => {
                return Err(refuse(format!("{} is {}, not inprogress", running.label, running.state)));
            }
        }
        self.put(spare.label, PartitionState::Unused).await
    }
}

impl Store for ExecStore {
    fn read(&mut self) -> Work<Partitions> {
        let this = self.clone();
        Box::pin(async move { this.now().await.map(|(now, _)| now) })
    }

    fn set_state(&mut self, label: Label, state: PartitionState) -> Work<()> {
        let this = self.clone();
        Box::pin(async move {
            let (now, _) = this.now().await?;
            settable(label, state, &now)?;
            this.put(label, state).await
        })
    }

    fn mark_current_active(&mut self) -> Work<()> {
        let this = self.clone();
        Box::pin(async move { this.mark().await })
    }

    fn write_image(&mut self, label: Label, image: Image, percent: Percent) -> Work<String> {
        let this = self.clone();
        Box::pin(async move {
            let (now, [a, b]) = this.now().await?;
            settable(label, PartitionState::Unused, &now)?;
            let target = if label == Label::A { a } else { b };
            let (wanted, at) = (image.clone(), target.clone());
            let source = blocking(move || contents::source(label, &at, &wanted, percent)).await?;
            this.put(label, PartitionState::Unused).await?;
            let bus = this.bus;
            StopOnDrop::over(move |stop| contents::write(&bus, (label, &target), &image, source, stop)).await
        })
    }

    fn boot(&mut self, _boot_id: &str) -> Work<Boot> {
        let this = self.clone();
        Box::pin(async move { this.now().await.map(|(now, _)| booted(&now)) })
    }
}

struct Device(PathBuf);

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('/') && !text.contains('\n') {
            return Ok(Self(PathBuf::from(text)));
        }
        Err("an absolute path is needed".to_owned())
    }
}

struct Size(u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = text.parse().ok().filter(|bytes| *bytes > 0);
        bytes.map(Self).ok_or_else(|| "a number of bytes is needed".to_owned())
    }
}

fn wrong(program: &Path, words: &[&str], why: &str) -> Error {
    refuse(format!("{} {} {why}", program.display(), words.join(" ")))
}

/// Runs `program` to its end, and returns what it says. Nothing of it is left behind: it and its children are killed
/// at the limit, or when this is dropped, and it is collected.
async fn call(program: &Path, words: &[&str]) -> Result<String, Error> {
    let wrong = |why: &str| wrong(program, words, why);
    let mut command = Command::new(program);
    command.args(words).process_group(0);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.map_err(|cause| wrong(&format!("cannot be run: {cause}")))?;
    let running = Running(Arc::new(Mutex::new(Some(Pid::from_child(&child)))));
    let held = running.0.clone();
    let mut ended = tokio::task::spawn_blocking(move || to_its_end(child, &held));
    let Ok(ended) = tokio::time::timeout(LIMIT, &mut ended).await else {
        running.kill();
        let left = match tokio::time::timeout(KILLED, ended).await {
            Ok(_) => "was killed",
            Err(_) => "does not end although it was killed",
        };
        let secs = LIMIT.as_secs();
        return Err(wrong(&format!("did not end within {secs} s and {left}; see why it hangs")));
    };
    let ended = ended.map_err(|cause| wrong(&format!("was not waited for: {cause}")))?;
    let (status, said, complaint) = ended.map_err(|cause| wrong(&format!("cannot be heard: {cause}")))?;
    if !status.success() {
        return Err(wrong(&format!("ended with {status}: {}", complaint.trim())));
    }
    Ok(said)
}

/// The process group of a program, until it has been collected.
struct Running(Arc<Mutex<Option<Pid>>>);

impl Running {
    fn kill(&self) {
        let group = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = *group {
            end(group);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn end(group: Pid) {
    match kill_process_group(group, Signal::KILL) {
        // It has ended by itself.
        Ok(()) | Err(Errno::SRCH) => {}
        Err(cause) => warn!(error = %cause, "a program of --partitions cannot be killed"),
    }
}

/// Its status, its output and its complaints.
type Ended = (ExitStatus, String, String);

fn to_its_end(mut child: Child, running: &Mutex<Option<Pid>>) -> io::Result<Ended> {
    let pid = Pid::from_child(&child);
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let complaint = std::thread::spawn(move || text(err));
    let said = text(out);
    // Its number stays its own until it is collected, so that whoever kills it kills nobody else.
    let waited = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    let mut group = running.lock().unwrap_or_else(PoisonError::into_inner);
    // What it has left running.
    end(pid);
    *group = None;
    let status = child.wait()?;
    drop(group);
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
