//! Keeps the file of consoles. Not here: decisions (`claim`), which consoles are wanted (`apps`).

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::{AgentContext, Clock, Error, report};
use pubsub::{TopicRoot, store};
use serde::Deserialize;
use tokio::sync::watch;
use topics::{VmiVnc, go_json};
use tracing::{info, warn};

use super::claim::{ConsoleAction, ConsoleFileHistory, ConsoleFileState, HostProbe, is_listening};
use crate::apps::AppRequirements;

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
                    let why = report::chain(&cause);
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
        wanted: &std::collections::BTreeMap<String, crate::apps::Console>,
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
