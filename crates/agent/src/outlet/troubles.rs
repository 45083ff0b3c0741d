//! What an agent cannot write or read now, for its file under `/run` and its log.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pubsub::{Publication, TopicRoot};
use rustix::io::Errno;
use step::{LiteMap, Mono};
use topics::{AgentTrouble, Trouble};
use tracing::{error, info, warn};

use crate::wire::GLOBAL;
use crate::{Clock, Error, wire};

/// Copies share one state.
#[derive(Clone)]
pub struct Troubles(Arc<Mutex<TroubleBoard>>);

struct ReportedTrouble {
    trouble: Trouble,
    /// Kind of its last error, so that the same one is reported once.
    kind: String,
    since: Mono,
}

struct TroubleBoard {
    agent: &'static str,
    topic_root: TopicRoot,
    clock: Clock,
    topic: Option<Publication<AgentTrouble>>,
    /// By subject.
    all: LiteMap<String, ReportedTrouble>,
    /// The file is out of date.
    behind: bool,
    /// The failure to write the file was reported.
    mute: bool,
}

impl Troubles {
    /// Becomes the publisher of the troubles of `agent`. Where that fails it is tried again with each
    /// trouble. Needs a runtime.
    pub fn open(topic_root: &TopicRoot, clock: Clock, agent: &'static str) -> Self {
        let troubles = Self(Arc::new(Mutex::new(TroubleBoard {
            agent,
            topic_root: topic_root.clone(),
            clock,
            topic: None,
            all: LiteMap::new(),
            behind: true,
            mute: false,
        })));
        // An earlier run's troubles are forgotten.
        troubles.publish();
        troubles
    }

    pub(super) fn topic_root(&self) -> TopicRoot {
        self.lock().topic_root.clone()
    }

    pub(super) fn clock(&self) -> Clock {
        self.lock().clock
    }

    pub fn agent(&self) -> &'static str {
        self.lock().agent
    }

    /// `what` could not be written or read, and is tried again.
    pub fn note(&self, what: &str, cause: &Error) {
        let failure = FailureText::of(cause);
        let trouble = Trouble {
            what: what.to_owned(),
            path: failure.path.map(|it| it.display().to_string()).unwrap_or_default(),
            error: failure.text,
            next_step: failure.next_step,
            ..Trouble::default()
        };
        if self.keep(&trouble, failure.kind) {
            let Trouble { what, path, error, next_step, .. } = trouble;
            error!(
                agent = self.agent(),
                what, path, error, next_step, "in trouble, tried again until it works"
            );
        }
    }

    /// A trouble with its own text. Returns whether it is new, for the caller to log; finds out since when it
    /// lasts.
    pub fn report(&self, trouble: &Trouble) -> bool {
        let is_new = self.keep(trouble, trouble.error.clone());
        self.publish();
        is_new
    }

    /// The same with a warning, of one without a file.
    pub fn say(&self, what: impl Into<String>, error: String, next_step: String) {
        let trouble = Trouble { what: what.into(), error, next_step, ..Trouble::default() };
        if self.report(&trouble) {
            warn!(next_step = trouble.next_step, "{}: {}", trouble.what, trouble.error);
        }
    }

    /// `what` works again, or is no longer wanted.
    pub fn over(&self, what: &str) {
        let mut board = self.lock();
        if let Some(ReportedTrouble { trouble, since, .. }) = board.all.remove(what) {
            let secs = board.clock.now().since(since).as_secs();
            info!(agent = board.agent, what, path = trouble.path, secs, "in order again after {secs} s");
            board.behind = true;
        }
        drop(board);
        self.publish();
    }

    /// Ends the troubles that begin with `prefix` and are not in `still`.
    pub fn only(&self, prefix: &str, still: &[String]) {
        let gone: Vec<String> = {
            let board = self.lock();
            board.all.keys().filter(|it| it.starts_with(prefix) && !still.contains(it)).cloned().collect()
        };
        for what in gone {
            self.over(&what);
        }
    }

    /// Each place that does not answer is a trouble until it does.
    pub(crate) fn hanging(&self, places: &BTreeSet<PathBuf>) {
        let mut still = Vec::new();
        for place in places {
            let path = place.display().to_string();
            let trouble = Trouble {
                what: format!("{DISK}{path}"),
                error: format!("{path} does not answer"),
                next_step: next_step_of_hanging(&path),
                path,
                ..Trouble::default()
            };
            if self.keep(&trouble, trouble.error.clone()) {
                warn!(
                    agent = self.agent(),
                    path = trouble.path,
                    "a disk does not answer; what lies there waits, the agents do not"
                );
            }
            still.push(trouble.what);
        }
        self.only(DISK, &still);
        self.publish();
    }

    /// What waits for `what`, as people read it.
    pub fn holds(&self, what: &str, mut waiting: Vec<String>) {
        // One file or two: no difference for a reader.
        waiting.dedup();
        let mut board = self.lock();
        if let Some(known) = board.all.get_mut(what)
            && known.trouble.holds != waiting
        {
            known.trouble.holds = waiting;
            board.behind = true;
        }
    }

    /// Updates the file. A failed write is tried again the next time.
    pub fn publish(&self) {
        let mut board = self.lock();
        if !board.behind {
            return;
        }
        match board.write() {
            Ok(()) => (board.behind, board.mute) = (false, false),
            Err(_) if board.mute => {}
            Err(cause) => {
                board.mute = true;
                warn!(agent = board.agent, error = %step::chain(&cause), "cannot publish its troubles; the log has them");
            }
        }
    }

    /// False when known already.
    fn keep(&self, new: &Trouble, kind: String) -> bool {
        let mut board = self.lock();
        let mut new = ReportedTrouble { trouble: new.clone(), kind, since: board.clock.now() };
        match board.all.get(&new.trouble.what) {
            Some(before) if before.kind == new.kind => return false,
            Some(before) => {
                new.since = before.since;
                if new.trouble.holds.is_empty() {
                    new.trouble.holds.clone_from(&before.trouble.holds);
                }
            }
            None => {}
        }
        board.all.insert(new.trouble.what.clone(), new);
        board.behind = true;
        true
    }

    fn lock(&self) -> MutexGuard<'_, TroubleBoard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TroubleBoard {
    fn write(&mut self) -> Result<(), Error> {
        let topic = match &mut self.topic {
            Some(topic) => topic,
            None => self.topic.insert(wire::publication(&self.topic_root, self.agent)?),
        };
        if self.all.is_empty() {
            return wire::withdraw(topic, GLOBAL);
        }
        let booted_at = self.clock.booted_at();
        let told = |it: &ReportedTrouble| {
            let since = booted_at.plus(it.since.since_start());
            Trouble { since, ..it.trouble.clone() }
        };
        let value = AgentTrouble::of(self.all.values().map(told).collect());
        topic.publish(GLOBAL, &value).map(drop).map_err(Error::pubsub(<AgentTrouble as topics::Topic>::NAME))
    }
}

/// Prefix of troubles with a whole disk.
const DISK: &str = "disk of ";
/// What a person can do where only a restart helps.
const LET_GO: &str = "`zedbox go --past drain --reason '...'` lets a waiting reboot go ahead";

fn next_step_of_hanging(top: &str) -> String {
    format!(
        "look with `dmesg` for errors of the disk of {top}; `fsfreeze -u {top}` thaws a frozen one; if only a \
         restart can fix it, {LET_GO}"
    )
}

/// What a person can do about a file that cannot be written or read.
pub fn next_step_of_io(step: &str, path: &Path, source: &io::Error) -> String {
    FailureText::io(step, path, source).next_step
}

/// That nothing more can be written below `top`, as every agent would say it; of a disk that is so full no agent can.
pub fn full_disk(top: &Path) -> Option<Trouble> {
    let seen = rustix::fs::statvfs(top).ok()?;
    let full = seen.f_blocks > 0 && seen.f_bfree == 0 || seen.f_files > 0 && seen.f_ffree == 0;
    let told = full.then(|| FailureText::io("write", top, &Errno::NOSPC.into()));
    told.map(|told| Trouble {
        what: format!("{DISK}{}", top.display()),
        path: top.display().to_string(),
        error: told.text,
        next_step: told.next_step,
        ..Trouble::default()
    })
}

struct FailureText {
    path: Option<PathBuf>,
    text: String,
    /// Equal for errors that are reported once.
    kind: String,
    next_step: String,
}

impl FailureText {
    fn of(cause: &Error) -> Self {
        let whole = |next_step: &str| {
            let text = step::chain(cause);
            Self { path: None, kind: text.clone(), text, next_step: next_step.to_owned() }
        };
        match cause {
            Error::Pubsub { source: pubsub::Error::Io { step, path, source }, .. } => {
                Self::io(step, path, source)
            }
            Error::Pubsub { source: pubsub::Error::Refused { path, .. }, .. } => {
                Self { path: Some(path.clone()), ..whole("put the file in order, or remove it") }
            }
            Error::Read { path, source } => Self::io("read", path, source),
            Error::Pubsub { .. }
            | Error::Already { .. }
            | Error::Encode { .. }
            | Error::Device { .. }
            | Error::Effect { .. } => whole("do what the error says; it is tried again"),
        }
    }

    fn io(step: &str, path: &Path, source: &io::Error) -> Self {
        let path = lasting(path);
        let (dir, top) = (path.display(), mount(path));
        let is = |kinds: [io::ErrorKind; 2]| kinds.contains(&source.kind());
        if source.kind() == io::ErrorKind::TimedOut {
            return Self {
                path: Some(path.to_owned()),
                text: source.to_string(),
                kind: "does not answer".to_owned(),
                next_step: next_step_of_hanging(&top.to_string()),
            };
        }
        let next_step = if matches!(Errno::from_io_error(source), Some(Errno::MFILE | Errno::NFILE)) {
            "this agent has too few file descriptors: raise `LimitNOFILE=` of its unit (or `ulimit -n`), then start it again"
                .to_owned()
        } else if is([io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded]) && has_no_inode(path) {
            format!(
                "remove files: {top} has room, but no inode for one more: `df -i {top}` shows that, and \
                 `du --inodes -x {top} | sort -n | tail` where they are"
            )
        } else if is([io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded]) {
            format!("make room: `du -xah {top} | sort -h | tail` shows what takes it")
        } else if source.kind() == io::ErrorKind::ReadOnlyFilesystem {
            format!(
                "look with `dmesg` why {top} became read-only, then `mount -o remount,rw {top}`; if only a restart can \
                 fix it, {LET_GO}"
            )
        } else if source.kind() == io::ErrorKind::PermissionDenied {
            format!("give {dir} to the user that this agent runs as")
        } else {
            format!(
                "look with `dmesg` for errors of the disk of {top}; if only a restart can fix it, {LET_GO}"
            )
        };
        Self {
            path: Some(path.to_owned()),
            text: format!("cannot {step} it: {source}"),
            kind: format!("{step} {:?}", source.kind()),
            next_step,
        }
    }
}

/// Whether its file system has no free inode.
fn has_no_inode(path: &Path) -> bool {
    let seen = path.ancestors().find_map(|it| rustix::fs::statvfs(it).ok());
    seen.is_some_and(|it| it.f_files > 0 && it.f_favail == 0)
}

/// The directory of a temporary file, which has another name each time; any other path unchanged.
fn lasting(path: &Path) -> &Path {
    let is_temp = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| {
        name.strip_prefix("tmp").is_some_and(|rest| rest.bytes().all(|it| it.is_ascii_digit()))
    });
    path.parent().filter(|_| is_temp).unwrap_or(path)
}

/// Down to `persist` or `run`, which are file systems of their own on a device.
fn mount(path: &Path) -> std::path::Display<'_> {
    let top = path.ancestors().find(|it| it.ends_with("persist") || it.ends_with("run"));
    top.unwrap_or(path).display()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_context;
    use topics::go_json;

    fn full(path: &str) -> Error {
        let source = io::Error::from_raw_os_error(28);
        Error::pubsub("DeviceOpPending")(pubsub::Error::Io { step: "write", path: path.into(), source })
    }

    #[test]
    fn too_few_descriptors_and_a_disk_that_does_not_answer_are_no_faults_of_a_disk_that_dmesg_shows() {
        let of = |source: io::Error| {
            let error = pubsub::Error::Io { step: "open", path: "/x/persist/status/a".into(), source };
            FailureText::of(&Error::pubsub("a")(error))
        };
        let short = of(io::Error::from_raw_os_error(24));
        assert!(short.next_step.contains("LimitNOFILE") && !short.next_step.contains("dmesg"));
        let hangs = of(io::Error::new(io::ErrorKind::TimedOut, "/x/persist does not answer"));
        assert_eq!(hangs.text, "/x/persist does not answer");
        assert!(
            hangs.next_step.contains("fsfreeze -u /x/persist")
                && hangs.next_step.contains("zedbox go --past drain")
        );
    }

    #[tokio::test]
    async fn a_trouble_is_in_the_file_with_path_error_and_next_step_until_it_is_over() {
        let root = tempfile::tempdir().unwrap();
        let (_stopper, context) = test_context(root.path(), "");
        let troubles = Troubles::open(&context.topic_root, context.clock, "zedagent");
        let file = root.path().join("run/zedagent/AgentTrouble/global.json");
        assert!(!file.exists());
        troubles.note("DeviceOpPending reboot", &full("/x/persist/status/a/tmp00000006710000000012"));
        troubles.holds("DeviceOpPending reboot", vec!["the request for a drain".to_owned()]);
        troubles.publish();
        let told = || go_json::from_slice::<AgentTrouble>(&std::fs::read(&file).unwrap()).unwrap();
        let first = told().troubles.remove(0);
        assert_eq!(first.path, "/x/persist/status/a");
        assert_eq!(first.error, "cannot write it: No space left on device (os error 28)");
        assert_eq!(first.next_step, "make room: `du -xah /x/persist | sort -h | tail` shows what takes it");
        assert_eq!(first.holds, ["the request for a drain"]);
        // Another temporary name is no other trouble.
        troubles.note("DeviceOpPending reboot", &full("/x/persist/status/a/tmp00000006710000000099"));
        assert_eq!(told().troubles, [first]);
        drop(troubles);
        let troubles = Troubles::open(&context.topic_root, context.clock, "zedagent");
        assert!(!file.exists());
        troubles.report(&Trouble { what: "x".to_owned(), ..Trouble::default() });
        assert!(file.exists());
        troubles.over("x");
        assert!(!file.exists());
    }
}
