//! Reports to systemd: agents are ready, alive, stopping.
//!
//! The first two follow only from the files of the machine's watchdog, `/run/<agent>.touch`: a report means
//! that each agent of this process had a turn since the last one. So a hanging agent ends the reports, though
//! the others and this task continue. Source: sd_notify(3), sd_watchdog_enabled(3).

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use agent::Clock;
use pubsub::TopicRoot;
use tracing::warn;

use crate::args::SystemdService;

/// Pause between looks until each agent had its first turn.
const STARTING: Duration = Duration::from_millis(200);
/// Longest pause later; a turn comes every 25 s at least.
const RUNNING: Duration = Duration::from_secs(10);
/// Looks within systemd's watchdog time.
const LOOKS_A_WAIT: u32 = 4;

pub(crate) struct Reports {
    service: SystemdService,
    /// Each agent's file, with its time at the last change.
    files: Vec<(PathBuf, Option<SystemTime>)>,
    clock: Clock,
    failed: bool,
}

impl Reports {
    /// Earlier turns do not count.
    pub(crate) fn new(
        service: SystemdService,
        agents: &[&str],
        topic_root: &TopicRoot,
        clock: Clock,
    ) -> Self {
        let path = |agent: &&str| topic_root.path(&format!("run/{agent}.touch"));
        let files = agents.iter().map(path).map(|path| (path.clone(), touched(&path))).collect();
        Self { service, files, clock, failed: false }
    }

    /// Reports until it is dropped, which loses nothing; waits forever without a listener.
    pub(crate) async fn follow(mut self) {
        if self.service.socket.is_none() {
            return std::future::pending().await;
        }
        let running = self.service.watchdog.map_or(RUNNING, |it| RUNNING.min(it / LOOKS_A_WAIT));
        let (mut pause, mut report) = (STARTING, "READY=1\nWATCHDOG=1");
        let mut turned = vec![false; self.files.len()];
        loop {
            for ((path, last), turned) in self.files.iter_mut().zip(&mut turned) {
                let now = touched(path);
                *turned |= now.is_some() && now != *last;
                *last = now;
            }
            if turned.iter().all(|it| *it) {
                self.say(report);
                turned.fill(false);
                (pause, report) = (running, "WATCHDOG=1");
            }
            self.clock.sleep_until(Some(self.clock.now() + pause)).await;
        }
    }

    fn say(&mut self, text: &str) {
        match self.service.say(text) {
            Ok(()) => self.failed = false,
            Err(_) if self.failed => {}
            Err(error) => {
                self.failed = true;
                warn!(%error, "cannot report to systemd that the agents live; it will start them again");
            }
        }
    }
}

impl SystemdService {
    /// Sends `text` to systemd, if it listens. Never waits.
    pub(crate) fn say(&self, text: &str) -> io::Result<()> {
        let Some(name) = &self.socket else { return Ok(()) };
        let place = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to_addr(text.as_bytes(), &place).map(drop)
    }
}

fn touched(path: &Path) -> Option<SystemTime> {
    path.symlink_metadata().and_then(|it| it.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::watchdog::Watchdog;

    const AGENTS: [&str; 2] = ["zedagent", "zedkube"];

    #[tokio::test(start_paused = true)]
    async fn x4_systemd_hears_of_life_only_when_each_agent_had_a_turn_since_it_last_did() {
        let root = tempfile::tempdir().unwrap();
        let (topic_root, clock) = (TopicRoot::open(root.path()).unwrap(), Clock::new());
        let path = root.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let [mut one, mut other] = AGENTS.map(|it| Watchdog::new(it, &topic_root, clock));
        // A former process's turns.
        one.touch();
        other.touch();
        let service = SystemdService { socket: Some(path.into()), watchdog: Some(Duration::from_secs(180)) };
        let reports = Reports::new(service, &AGENTS, &topic_root, clock).follow();
        let heard = async {
            let later = async |secs| clock.sleep_until(Some(clock.now() + Duration::from_secs(secs))).await;
            let next = || {
                let mut text = [0; 64];
                socket.recv(&mut text).ok().map(|bytes| String::from_utf8(text[..bytes].to_vec()).unwrap())
            };
            let mut all = Vec::new();
            for (first, second) in [(false, false), (true, false), (false, true), (true, true)] {
                if first {
                    one.touch();
                }
                if second {
                    other.touch();
                }
                later(20).await;
                all.push(next());
            }
            for _ in 0..10 {
                one.touch();
                later(20).await;
                all.push(next());
            }
            other.touch();
            later(20).await;
            all.push(next());
            all
        };
        let heard = tokio::select! {
            heard = heard => heard,
            () = reports => unreachable!(),
        };
        let heard: Vec<&str> = heard.iter().map(|it| it.as_deref().unwrap_or_default()).collect();
        let ready = "READY=1\nWATCHDOG=1";
        assert_eq!(heard[..4], ["", "", ready, "WATCHDOG=1"]);
        assert_eq!(heard[4..14], [""; 10]);
        assert_eq!(heard[14..], ["WATCHDOG=1"]);
    }
}
