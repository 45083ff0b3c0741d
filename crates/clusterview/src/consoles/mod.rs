//! The console of a virtual machine at the controller: the file `vmiVNC.run`, which makes the kube container run a
//! proxy.
//!
//! There is one file, so one console at a time on a node, and edgeview writes it too. The kube container looks at the
//! file once a second, and at its content only while it runs no proxy: to change a console the file is removed, its
//! port closes, and then it is written. Source: D-V1 to D-V6.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::{AgentContext, Clock, Error};
use pubsub::{TopicRoot, store};
use serde::Deserialize;
use step::{LiteMap, Mono};
use tokio::sync::watch;
use topics::{VmiVnc, go_json};
use tracing::{info, warn};

use crate::apps::{AppRequirements, Console};

#[cfg(test)]
mod tests;

/// After so long the kube container has noticed that the file is gone.
const GONE: Duration = Duration::from_secs(2);
/// How long edgeview waits for the port of a file that it has written.
const OPENING: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
enum ConsoleFileState {
    Absent,
    /// Not JSON, or without a port.
    Unusable,
    Console(VmiVnc),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ConsoleAction {
    Rest,
    /// Look again in a second; the reason is for a person.
    Wait(&'static str),
    Remove,
    Write(VmiVnc),
}

trait HostProbe {
    /// Whether a process listens at this TCP port; true where unknown.
    fn listens(&self, port: u32) -> bool;
    /// Whether this process is a live edgeview; true where unknown.
    fn is_edgeview(&self, pid: i64) -> bool;
}

#[derive(Debug, Default)]
struct ConsoleFileHistory {
    /// The file as last seen while a console was wanted, and since when; without a wanted console it is not
    /// read.
    seen: Option<(ConsoleFileState, Mono)>,
    /// Of its last console.
    port: Option<u32>,
}

impl ConsoleFileHistory {
    fn decide(
        &mut self,
        now: Mono,
        wanted: &LiteMap<String, Console>,
        seen: &ConsoleFileState,
        machine: &impl HostProbe,
    ) -> ConsoleAction {
        let since = match &self.seen {
            Some((before, since)) if before == seen => *since,
            Some(_) | None => now,
        };
        self.seen = (!wanted.is_empty()).then(|| (seen.clone(), since));
        let first = || wanted.iter().find(|(_, app)| !machine.listens(app.port.into()));
        match seen {
            ConsoleFileState::Console(console) => {
                self.port = Some(console.vnc_port);
                if console.caller_pid > 0 {
                    of_edgeview((now, since), !wanted.is_empty(), console, machine)
                } else {
                    own(wanted, console, machine)
                }
            }
            // It may be half written.
            ConsoleFileState::Absent | ConsoleFileState::Unusable if wanted.is_empty() => ConsoleAction::Rest,
            ConsoleFileState::Unusable if now < since + GONE => {
                ConsoleAction::Wait("the file cannot be read")
            }
            ConsoleFileState::Unusable => ConsoleAction::Remove,
            ConsoleFileState::Absent if now < since + GONE => {
                ConsoleAction::Wait("the proxy has to see that the file is gone")
            }
            ConsoleFileState::Absent => match first() {
                None => ConsoleAction::Wait("its port is in use"),
                Some(_) if self.port.is_some_and(|it| machine.listens(it)) => {
                    ConsoleAction::Wait("the proxy of the console before it is still open")
                }
                Some((uuid, app)) => ConsoleAction::Write(file(uuid, app)),
            },
        }
    }
}

/// For a file without an edgeview process.
fn own(wanted: &LiteMap<String, Console>, console: &VmiVnc, machine: &impl HostProbe) -> ConsoleAction {
    match wanted.get(&console.app_uuid) {
        Some(app) if *console == file(&console.app_uuid, app) => ConsoleAction::Rest,
        None if console.app_uuid.is_empty() && wanted.is_empty() => ConsoleAction::Rest,
        None if console.app_uuid.is_empty() && machine.listens(console.vnc_port) => {
            ConsoleAction::Wait("a console of no application is open")
        }
        // Of another machine of this application, or unwanted: a file without a caller is ours.
        Some(_) | None => ConsoleAction::Remove,
    }
}

/// For a file that an edgeview process has written, unchanged `since` then.
fn of_edgeview(
    (now, since): (Mono, Mono),
    claimed: bool,
    console: &VmiVnc,
    machine: &impl HostProbe,
) -> ConsoleAction {
    if !claimed {
        ConsoleAction::Rest
    } else if !machine.is_edgeview(console.caller_pid) {
        ConsoleAction::Remove
    } else if machine.listens(console.vnc_port) {
        ConsoleAction::Wait("edgeview has a console open")
    } else if now < since + OPENING {
        ConsoleAction::Wait("edgeview opens a console")
    } else {
        ConsoleAction::Remove
    }
}

fn file(app_uuid: &str, console: &Console) -> VmiVnc {
    VmiVnc {
        vmi_name: console.machine.clone(),
        vnc_port: console.port.into(),
        app_uuid: app_uuid.to_owned(),
        caller_pid: 0,
    }
}

/// Whether a line of `/proc/net/tcp` or `tcp6` shows a listener at `port`.
fn is_listening(table: &str, port: u32) -> bool {
    let wanted = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next(), words.nth(1));
        local.is_some_and(|it| it.ends_with(&wanted)) && state == Some("0A")
    })
}

/// Read by the kube container and edgeview.
const SHARED: &str = "run/edgeview/VncParams/vmiVNC.run";
/// Read by older kube containers.
const OLDER: &str = "run/zedkube/vmiVNC.run";
/// Between two looks while an action is due.
const LOOK: Duration = Duration::from_secs(1);
/// Between two looks while a console is open: the file may be removed by another program.
const GLANCE: Duration = Duration::from_secs(5);
const LIMIT_BYTES: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConsoleFiles {
    #[default]
    Both,
    Edgeview,
    Zedkube,
}

impl ConsoleFiles {
    /// The claimed file, and its copy.
    const fn paths(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Both => (SHARED, Some(OLDER)),
            Self::Edgeview => (SHARED, None),
            Self::Zedkube => (OLDER, None),
        }
    }
}

/// Keeps the file until it is dropped or the sender of `wanted` is gone. The file stays: a restart continues
/// with it. Failed reads and writes are retried.
pub async fn run(
    context: &AgentContext,
    files: ConsoleFiles,
    mut wanted: watch::Receiver<AppRequirements>,
) -> Result<(), Error> {
    let (first, second) = files.paths();
    let task = ConsoleTask {
        topic_root: context.topic_root.clone(),
        path: context.topic_root.path(first),
        copy: second,
    };
    let (mut claim, mut said) = (ConsoleFileHistory::default(), String::new());
    loop {
        let consoles = wanted.borrow_and_update().consoles.clone();
        let pause = match consoles {
            None => None,
            Some(consoles) => match task.turn(&mut claim, &consoles, context.clock) {
                Ok(ConsoleAction::Rest) => {
                    said.clear();
                    (!consoles.is_empty()).then_some(GLANCE)
                }
                Ok(ConsoleAction::Wait(why)) => {
                    if said != why {
                        info!(why, "a console waits");
                        why.clone_into(&mut said);
                    }
                    Some(LOOK)
                }
                Ok(ConsoleAction::Remove | ConsoleAction::Write(_)) => Some(LOOK),
                Err(cause) => {
                    let why = step::chain(&cause);
                    if said != why {
                        warn!(error = why, "cannot keep the file of consoles, it is tried again");
                        said = why;
                    }
                    Some(LOOK)
                }
            },
        };
        let due = pause.map(|it| context.clock.now() + it);
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return Ok(()) },
            () = context.clock.sleep_until(due), if due.is_some() => {}
        }
    }
}

struct ConsoleTask {
    topic_root: TopicRoot,
    path: PathBuf,
    copy: Option<&'static str>,
}

impl ConsoleTask {
    fn turn(
        &self,
        claim: &mut ConsoleFileHistory,
        wanted: &LiteMap<String, Console>,
        clock: Clock,
    ) -> Result<ConsoleAction, pubsub::Error> {
        let (bytes, seen) = look(&self.path)?;
        let act = claim.decide(clock.now(), wanted, &seen, self);
        match &act {
            ConsoleAction::Remove => self.remove(bytes.as_ref())?,
            ConsoleAction::Write(console) => self.write(console)?,
            ConsoleAction::Rest | ConsoleAction::Wait(_) => {}
        }
        self.follow(&act, bytes.as_ref(), &seen)?;
        Ok(act)
    }

    /// Removes the file if it is unchanged since the decision.
    fn remove(&self, bytes: Option<&Vec<u8>>) -> Result<(), pubsub::Error> {
        if look(&self.path)?.0.as_ref() == bytes && store::remove(&self.path)? {
            info!(path = %self.path.display(), "console closed");
        }
        Ok(())
    }

    /// Only where there is none: of two writers one succeeds.
    fn write(&self, console: &VmiVnc) -> Result<(), pubsub::Error> {
        // With the mode that edgeview uses, which shares them.
        if let Some(dir) = self.path.parent().filter(|_| self.path.ends_with(SHARED)) {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(dir);
            made.map_err(|source| pubsub::Error::Io { step: "create", path: dir.to_owned(), source })?;
        }
        if store::create(&self.path, &bytes_of(console))? {
            info!(
                machine = console.vmi_name,
                port = console.vnc_port,
                app = console.app_uuid,
                "console opened"
            );
        } else {
            info!(path = %self.path.display(), "somebody else was first to open a console");
        }
        Ok(())
    }

    /// The copy exists only while our file does.
    fn follow(
        &self,
        act: &ConsoleAction,
        bytes: Option<&Vec<u8>>,
        seen: &ConsoleFileState,
    ) -> Result<(), pubsub::Error> {
        let Some(copy) = self.copy.map(|it| self.topic_root.path(it)) else { return Ok(()) };
        let ours = match (act, seen) {
            (ConsoleAction::Rest, ConsoleFileState::Console(console))
                if console.caller_pid == 0 && !console.app_uuid.is_empty() =>
            {
                bytes.cloned()
            }
            (ConsoleAction::Write(console), _) => Some(bytes_of(console)),
            (ConsoleAction::Rest | ConsoleAction::Wait(_) | ConsoleAction::Remove, _) => None,
        };
        let (held, seen) = look(&copy)?;
        let is_ours =
            matches!(&seen, ConsoleFileState::Console(it) if it.caller_pid == 0 && !it.app_uuid.is_empty());
        if held == ours {
            return Ok(());
        }
        match ours {
            Some(bytes) if held.is_none() => store::create(&copy, &bytes).map(drop),
            // Removed now, and written at the next look: its reader sees only that.
            Some(_) | None if is_ours => store::remove(&copy).map(drop),
            Some(_) | None => Ok(()),
        }
    }
}

fn bytes_of(console: &VmiVnc) -> Vec<u8> {
    go_json::to_vec(console).unwrap_or_default()
}

/// The file at `path`, parsed. One that is not readable as ours must not be removed: an error.
fn look(path: &Path) -> Result<(Option<Vec<u8>>, ConsoleFileState), pubsub::Error> {
    let Some(bytes) = store::read(path, LIMIT_BYTES)? else { return Ok((None, ConsoleFileState::Absent)) };
    let seen = match go_json::from_slice::<VmiVnc>(&bytes) {
        Ok(console) if console.vnc_port > 0 => ConsoleFileState::Console(console),
        Ok(_) | Err(_) => ConsoleFileState::Unusable,
    };
    Ok((Some(bytes), seen))
}

impl HostProbe for ConsoleTask {
    fn listens(&self, port: u32) -> bool {
        let table = |name: &str| std::fs::read_to_string(self.topic_root.path(name));
        match (table("proc/net/tcp"), table("proc/net/tcp6")) {
            (Ok(four), six) => is_listening(&four, port) || six.is_ok_and(|it| is_listening(&it, port)),
            // Not known.
            (Err(_), _) => true,
        }
    }

    fn is_edgeview(&self, pid: i64) -> bool {
        match std::fs::read_to_string(self.topic_root.path(&format!("proc/{pid}/comm"))) {
            Ok(name) => name.trim() == "edge-view",
            Err(cause) => cause.kind() != io::ErrorKind::NotFound,
        }
    }
}
