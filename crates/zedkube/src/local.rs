//! What the machine itself shows after a boot: device nodes that are missing, and whether its wall clock can be right.
//!
//! A wall clock is believed that the time service of the system says is synchronised, and one that is not before the
//! newest file that our agents have written. Not here: what follows from that (`kubenodeop::node::gate`). Sources:
//! systemd-timesyncd(8), `/run/systemd/timesync/synchronized`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::Clock;
use agent::clock;
use checks::{Finding, nodes};
use kubenodeop::node::boot::LocalHealth;
use pubsub::{TopicRoot, reach};
use topics::GoTime;

/// Where our agents keep what outlives a boot.
const OURS: [&str; 4] = ["zedkube", "zedagent", "nodeagent", "baseosmgr"];
/// A clock that is so little behind harms nothing: one without a battery loses hours, others seconds.
const SLACK: Duration = Duration::from_secs(60);
/// Folders in folders beyond this are not ours.
const DEPTH: usize = 4;

/// The machine, with what its disk says of time.
#[derive(Debug)]
pub(crate) struct ClockCheck {
    topic_root: TopicRoot,
    clock: Clock,
    newest: Option<(GoTime, PathBuf)>,
}

impl ClockCheck {
    /// Reads the time stamps as they are now.
    pub(crate) fn new(topic_root: &TopicRoot, clock: Clock) -> Self {
        let status = topic_root.path("persist/status");
        let folders = OURS.map(|agent| status.join(agent));
        let newest = reach::look(&status, move || {
            let mut newest = None;
            for folder in &folders {
                stamps(folder, DEPTH, &mut newest);
            }
            newest
        });
        // A disk that does not answer says nothing of time.
        Self { topic_root: topic_root.clone(), clock, newest: newest.ok().flatten() }
    }

    /// What it shows now.
    pub(crate) fn look(&self) -> LocalHealth {
        let devices = nodes::devices(|path| self.topic_root.path(path).exists());
        LocalHealth { devices, clock: self.wrong_clock().into_iter().collect() }
    }

    fn wrong_clock(&self) -> Option<Finding> {
        let now = self.clock.wall();
        let (stamp, path) = self.newest.as_ref().filter(|(stamp, _)| now.plus(SLACK) < *stamp)?;
        (!clock::by_timesyncd(&self.topic_root)).then(|| {
            nodes::wrong_clock(format!(
                "the wall clock is behind the time at which {} was written ({}), and is not known to be synchronised",
                path.display(),
                stamp.shown()
            ))
        })
    }
}

/// The newest time stamp of the files below `folder`; what cannot be read says nothing.
fn stamps(folder: &Path, depth: usize, newest: &mut Option<(GoTime, PathBuf)>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, Ok(meta)) = (entry.path(), entry.metadata()) else { continue };
        if meta.is_dir() && depth > 0 {
            stamps(&path, depth - 1, newest);
        } else if meta.is_file() {
            let nanos = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
            let stamp = GoTime::from_unix_nanos(nanos);
            let newer = stamp.filter(|stamp| newest.as_ref().is_none_or(|(known, _)| known < stamp));
            if let Some(stamp) = newer {
                *newest = Some((stamp, path));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: i64 = 31_557_600;

    fn write(topic_root: &TopicRoot, path: &str) {
        let path = topic_root.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::File::create(path).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn r4_a_clock_is_wrong_that_is_before_a_file_of_ours_and_not_known_to_be_synchronised() {
        let ours = "persist/status/zedagent/DeviceOpPending/reboot.json";
        for (written, off_by_secs, synchronised, wrong) in [
            (Some(ours), 0, false, false),
            (Some(ours), -30, false, false),
            (Some(ours), -90, false, true),
            (Some(ours), -50 * YEAR, false, true),
            (Some(ours), -50 * YEAR, true, false),
            (Some(ours), YEAR, false, false),
            // Files of others say nothing, nor does an empty disk.
            (Some("persist/status/tpmmgr/x.json"), -YEAR, false, false),
            (None, -YEAR, false, false),
        ] {
            let root = tempfile::tempdir().unwrap();
            let topic_root = TopicRoot::open(root.path()).unwrap();
            if let Some(path) = written {
                write(&topic_root, path);
            }
            if synchronised {
                write(&topic_root, "run/systemd/timesync/synchronized");
            }
            let clock = Clock::new().off_by(off_by_secs);
            let machine = ClockCheck::new(&topic_root, clock);
            let seen = machine.look().clock;
            assert_eq!(!seen.is_empty(), wrong, "{written:?} {off_by_secs} {synchronised}: {seen:?}");
            assert!(!wrong || seen[0].text.contains("DeviceOpPending/reboot.json was written"), "{seen:?}");
            // It heals once the clock is set, also without a word of the time service.
            clock.jump_to_off_by(0);
            assert_eq!(machine.look().clock, []);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn device_nodes_that_are_missing_are_named() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let machine = ClockCheck::new(&topic_root, Clock::new());
        assert!(machine.look().devices[0].text.ends_with(": /dev/kmsg"));
        write(&topic_root, "dev/kmsg");
        assert_eq!(machine.look(), LocalHealth::default());
    }
}
