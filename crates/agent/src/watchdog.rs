//! The touch file that the machine's watchdog checks: `/run/<agent>.touch`.
//!
//! A turn of the loop touches it, and a ticker makes sure that there is a turn. Source: lf-edge/eve
//! pkg/pillar/pubsub (`StillRunning`) and pkg/watchdog.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pubsub::TopicRoot;
use step::Mono;
use tracing::{error, warn};

use crate::Clock;

/// A turn comes at least this often.
const TICK: Duration = Duration::from_secs(25);
/// A longer gap is a warning.
const WARNING: Duration = Duration::from_secs(40);
/// A longer gap is an error; the machine's watchdog is about to act.
const ERROR: Duration = Duration::from_mins(3);

#[derive(Debug)]
pub struct Watchdog {
    name: &'static str,
    path: PathBuf,
    clock: Clock,
    last: Mono,
    failed: bool,
}

impl Watchdog {
    pub fn new(name: &'static str, topic_root: &TopicRoot, clock: Clock) -> Self {
        Self {
            name,
            path: topic_root.path(&format!("run/{name}.touch")),
            clock,
            last: clock.now(),
            failed: false,
        }
    }

    /// Sets the file's time to now; a failure is logged once until it works again.
    pub fn touch(&mut self) {
        let now = self.clock.now();
        let gap = now.since(self.last);
        let secs = gap.as_secs();
        if gap > ERROR {
            error!(agent = self.name, secs, "StillRunning({}) took a long time", self.name);
        } else if gap > WARNING {
            warn!(agent = self.name, secs, "StillRunning({}) took a long time", self.name);
        }
        self.last = now;
        match set_time_to_now(&self.path) {
            Ok(()) => self.failed = false,
            Err(error) if !self.failed => {
                self.failed = true;
                warn!(path = %self.path.display(), %error, "cannot touch the watchdog file");
            }
            Err(_) => {}
        }
    }

    /// Returns when a turn is due only for the watchdog. Dropping it loses nothing.
    pub async fn due(&self) {
        self.clock.sleep_until(Some(self.last + TICK)).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "the watchdog compares the file's time with the wall clock")]
fn set_time_to_now(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let file = File::options().create(true).write(true).truncate(false).open(path)?;
    file.set_modified(SystemTime::now())
}
