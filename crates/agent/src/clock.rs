//! The one door to time: monotonic for decisions, wall for display and for members that need it.
//!
//! Learns from the kernel that the wall clock was set: by an operator, the first answer of a time server, or after a
//! sleep. Where the kernel does not report it, as in some sandboxes, the loop of each agent compares the clocks at its
//! next turn, which the watchdog's ticker brings within 25 s.
//!
//! Whether the wall clock of this machine follows a time server. systemd-timesyncd leaves a file once it has set the
//! clock. Other programs (chrony with `rtcsync`, ntpd, busybox) clear `STA_UNSYNC` in the kernel, which the program
//! `adjtimex` of busybox prints: no crate without unsafe code has the system call. chrony without `rtcsync` leaves it
//! set and is asked with `chronyc`. Source of chrony's columns: chronyc(1), `-c` and `tracking`.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use std::{future, io};

use jiff::SignedDuration;
use pubsub::TopicRoot;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use step::Mono;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::time::Instant;
use topics::GoTime;
use tracing::warn;

use crate::device::program;

/// A smaller difference from the known wall clock is not a change.
const SET: Duration = Duration::from_millis(500);
/// Two readings of the clocks further apart than this are repeated, at most so often.
const APART: (Duration, u8) = (Duration::from_millis(5), 20);

/// The time of the agents. Copies share one start; tokio's paused clock stops it.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    /// The machine's own monotonic time at `start`.
    since_boot: Duration,
    wall: &'static Wall,
}

/// A wall clock. It may be set at any time; the monotonic clock is steered like it and never set, so one
/// value relates the two: the wall-clock time at which the monotonic clock started.
#[derive(Debug)]
struct Wall {
    /// Seconds by which it is wrong; zero except in simulations.
    off_by_secs: AtomicI64,
    /// As of the last [`Clock::look`].
    booted_at: watch::Sender<GoTime>,
}

impl Wall {
    fn new(off_by_secs: i64) -> Self {
        let wall = Self { off_by_secs: AtomicI64::new(off_by_secs), booted_at: watch::Sender::default() };
        wall.booted_at.send_replace(wall.boot());
        wall
    }

    fn now(&self) -> GoTime {
        let now = jiff::Timestamp::now();
        let off_by = SignedDuration::from_secs(self.off_by_secs.load(Ordering::Relaxed));
        GoTime::from(now.checked_add(off_by).unwrap_or(now))
    }

    fn boot(&self) -> GoTime {
        let (far, mut tries) = APART;
        loop {
            let (before, wall) = (since_boot(), self.now());
            tries -= 1;
            // A process that was suspended between two readings would see a step of the clock.
            if since_boot().saturating_sub(before) <= far || tries == 0 {
                return wall.minus(before);
            }
        }
    }
}

/// The machine's own: one for all clocks of a process.
static MACHINE: LazyLock<Wall> = LazyLock::new(|| Wall::new(0));

impl Clock {
    /// A clock whose [`Mono::START`] is the start of the machine's monotonic clock (`CLOCK_MONOTONIC`), so
    /// that processes of one boot agree on it. Read once; from then on the runtime's time counts.
    #[expect(
        clippy::new_without_default,
        reason = "a clock that starts at a default would hide a reading of time"
    )]
    #[expect(clippy::disallowed_methods, reason = "this is the door that the ban points to")]
    pub fn new() -> Self {
        Self { start: Instant::now(), since_boot: since_boot(), wall: &MACHINE }
    }

    #[expect(clippy::disallowed_methods, reason = "this is the door that the ban points to")]
    pub fn now(&self) -> Mono {
        Mono::from_start(self.since_boot) + Instant::now().saturating_duration_since(self.start)
    }

    /// May be wrong and may jump: for display and for members that other programs read.
    pub fn wall(&self) -> GoTime {
        self.wall.now()
    }

    /// Wall-clock time of [`Mono::START`]: added to a [`Mono`], it gives the time of that point.
    pub fn booted_at(&self) -> GoTime {
        self.wall.boot()
    }

    /// [`Clock::booted_at`], and each change of it beyond steering: the wall clock was set. Needs calls of
    /// [`Clock::look`].
    pub fn boots(&self) -> watch::Receiver<GoTime> {
        self.wall.booted_at.subscribe()
    }

    /// Compares the wall clock with the monotonic one, and notifies [`Clock::boots`] when it was set.
    pub fn look(&self) {
        let boot = self.wall.boot();
        self.wall.booted_at.send_if_modified(|known| {
            let set = boot.apart(*known) >= SET;
            if set {
                *known = boot;
            }
            set
        });
    }

    /// For simulations: the same clock on a machine with a wrong wall clock.
    #[must_use]
    pub fn off_by(self, secs: i64) -> Self {
        Self { wall: Box::leak(Box::new(Wall::new(secs))), ..self }
    }

    /// Sets the wall clock of a simulation while its agents run.
    pub fn jump_to_off_by(&self, secs: i64) {
        self.wall.off_by_secs.store(secs, Ordering::Relaxed);
        self.look();
    }

    /// Returns at `due`, or never for `None`. Dropping it loses nothing.
    pub async fn sleep_until(&self, due: Option<Mono>) {
        let wait = |due: Mono| due.since(Mono::from_start(self.since_boot));
        match due.and_then(|due| self.start.checked_add(wait(due))) {
            Some(at) => tokio::time::sleep_until(at).await,
            None => future::pending().await,
        }
    }
}

fn since_boot() -> Duration {
    let shown = clock_gettime(ClockId::Monotonic);
    // It starts at zero: neither part is negative.
    Duration::new(shown.tv_sec.unsigned_abs(), u32::try_from(shown.tv_nsec).unwrap_or_default())
}

#[derive(Debug)]
pub(crate) struct ClockSet {
    clock: Clock,
    /// A timer that never expires; the kernel cancels it when the clock is set.
    timer: Option<AsyncFd<OwnedFd>>,
    boots: watch::Receiver<GoTime>,
}

impl ClockSet {
    /// Needs a runtime.
    pub(crate) fn new(clock: Clock) -> Self {
        let timer = timer()
            .inspect_err(|error| warn!(%error, "the kernel does not tell when the wall clock is set: noticed within 25 s"))
            .ok();
        Self { clock, timer, boots: clock.boots() }
    }

    /// Returns once the clock was set, or another task has noticed that. Dropping it loses nothing.
    pub(crate) async fn set(&mut self) {
        tokio::select! {
            () = cancelled(self.timer.as_ref()) => {}
            // The sender lives as long as this process.
            changed = self.boots.changed() => drop(changed),
        }
        self.clock.look();
    }
}

async fn cancelled(timer: Option<&AsyncFd<OwnedFd>>) {
    let Some(timer) = timer else { return future::pending().await };
    let armed_again = timer.async_io(Interest::READABLE, |fd| {
        // The read fails with ECANCELED when the clock was set; the next timer reports later changes.
        match rustix::io::read(fd, &mut [0_u8; 8]) {
            Err(rustix::io::Errno::CANCELED) => Ok(arm(fd)?),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(()),
        }
    });
    if let Err(error) = armed_again.await {
        warn!(%error, "the kernel does not tell any more when the wall clock is set: noticed within 25 s");
        future::pending::<()>().await;
    }
}

#[expect(deprecated, reason = "its replacement is unsafe; an OwnedFd is what it says it is")]
fn timer() -> io::Result<AsyncFd<OwnedFd>> {
    let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    arm(&timer)?;
    AsyncFd::with_interest(timer, Interest::READABLE)
}

fn arm(timer: &OwnedFd) -> rustix::io::Result<()> {
    let never = Itimerspec {
        it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: Timespec { tv_sec: i64::MAX, tv_nsec: 0 },
    };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET, &never).map(drop)
}

const SYNCHRONIZED: &str = "run/systemd/timesync/synchronized";
const PROGRAMS: [&str; 4] = ["sbin/adjtimex", "usr/sbin/adjtimex", "bin/adjtimex", "usr/bin/adjtimex"];
const CHRONYC: [&str; 2] = ["usr/bin/chronyc", "usr/sbin/chronyc"];
/// Columns: the reference's number and its address; the stratum, 0 when unknown; last, the leap status.
const STRATUM: usize = 2;
const LEAPS: [&str; 3] = ["Normal", "Insert second", "Delete second"];
/// Reference numbers of no source, of chrony itself, and of a local clock.
const NOBODY: [&str; 3] = ["00000000", "7F7F0101", ""];
const ITSELF: &str = "127.127.1.";
const LIMIT: Duration = Duration::from_secs(5);
/// adjtimex(2).
const STA_UNSYNC: u32 = 0x40;

pub fn by_timesyncd(topic_root: &TopicRoot) -> bool {
    topic_root.path(SYNCHRONIZED).exists()
}

/// Why the wall clock cannot be trusted, with the next step; `None` when it follows a time server.
pub async fn trouble(topic_root: &TopicRoot) -> Option<String> {
    if by_timesyncd(topic_root) {
        return None;
    }
    let why = by_kernel(topic_root).await?;
    let Some(program) = CHRONYC.map(|it| topic_root.path(it)).into_iter().find(|it| it.exists()) else {
        return Some(why);
    };
    match program::call(&program, &["-c", "-n", "tracking"], LIMIT).await {
        Ok(said) if follows(&said) => None,
        Ok(_) => Some(
            "the wall clock follows no time server: chrony is not synchronised; `chronyc sources` shows whom it asks"
                .to_owned(),
        ),
        Err(error) => Some(format!("{why}; chrony does not answer: {error}")),
    }
}

/// Whether chrony follows a server, by one line of `chronyc -c tracking`.
fn follows(said: &str) -> bool {
    let columns: Vec<&str> = said.trim().split(',').collect();
    let stratum = columns.get(STRATUM).and_then(|it| it.parse::<u8>().ok());
    let leap = columns.last().is_some_and(|it| LEAPS.contains(it));
    let somebody = columns.first().is_some_and(|it| !NOBODY.contains(it))
        && columns.get(1).is_some_and(|it| !it.starts_with(ITSELF));
    columns.len() > STRATUM + 1 && somebody && leap && stratum.is_some_and(|it| (1..16).contains(&it))
}

async fn by_kernel(topic_root: &TopicRoot) -> Option<String> {
    let Some(program) = PROGRAMS.map(|it| topic_root.path(it)).into_iter().find(|it| it.exists()) else {
        return Some(format!(
            "nothing says that it is synchronized (looked for /{SYNCHRONIZED} and the program adjtimex); start a time \
             service"
        ));
    };
    match program::call(&program, &[], LIMIT).await {
        Ok(said) => judge(&program, &said),
        Err(why) => Some(format!("whether it follows a time server cannot be read: {why}")),
    }
}

fn judge(program: &Path, said: &str) -> Option<String> {
    let word = said.lines().find_map(|line| line.trim().strip_prefix("status:"));
    match word.and_then(|it| it.split_ascii_whitespace().next()).map(str::parse::<u32>) {
        Some(Ok(status)) if status & STA_UNSYNC == 0 => None,
        Some(Ok(_)) => {
            Some("it follows no time server; look at the time service and at the network".to_owned())
        }
        Some(Err(_)) | None => Some(format!(
            "whether it follows a time server cannot be read: {} prints no \"status:\" with a number",
            program.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pubsub::store;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[tokio::test(start_paused = true)]
    async fn two_clocks_of_one_boot_agree_and_the_runtimes_time_moves_them() {
        let before = since_boot();
        let (first, second) = (Clock::new(), Clock::new());
        let after = since_boot();
        for clock in [first, second] {
            assert!((before..=after).contains(&clock.now().since_start()), "{clock:?}");
        }
        let due = first.now() + Duration::from_secs(7);
        first.sleep_until(Some(due)).await;
        assert_eq!(first.now(), due);
        // A point that has passed is not waited for.
        first.sleep_until(Some(Mono::START)).await;
        assert_eq!(first.now(), due);
    }

    #[tokio::test(start_paused = true)]
    async fn k4_a_clock_that_is_set_is_told_of_and_one_that_is_steered_is_not() {
        let clock = Clock::new().off_by(3);
        let mut boots = clock.boots();
        let years = 10 * 31_557_600;
        for off_by in [years, -years] {
            clock.jump_to_off_by(off_by);
            assert!(boots.has_changed().unwrap());
            let told = *boots.borrow_and_update();
            assert!(told.apart(clock.booted_at()) < SET, "{told:?}");
            let wall = told.plus(since_boot());
            assert!(wall.apart(clock.wall()) < SET, "{wall:?}");
            // Hours of the runtime's time say nothing about the wall clock.
            clock.sleep_until(Some(clock.now() + Duration::from_hours(5))).await;
            clock.look();
            assert!(!boots.has_changed().unwrap());
        }
        // Another clock of the same process is another machine's.
        assert!(Clock::new().wall().apart(clock.wall()) > Duration::from_hours(1));
    }

    /// A machine whose adjtimex is this script.
    fn machine(script: Option<&str>) -> (tempfile::TempDir, TopicRoot) {
        with_programs(&[("sbin/adjtimex", script)])
    }

    fn with_programs(all: &[(&str, Option<&str>)]) -> (tempfile::TempDir, TopicRoot) {
        let root = tempfile::tempdir().unwrap();
        for (path, script) in all.iter().filter_map(|(path, script)| Some((path, (*script)?))) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            store::replace(&path, format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let topic_root = TopicRoot::open(root.path()).unwrap();
        (root, topic_root)
    }

    #[tokio::test]
    async fn u9_the_kernels_word_counts_and_one_that_cannot_be_read_is_no_yes() {
        for (script, trouble_with) in [
            (Some("echo '    maxerror:     1'; echo '    status:       8193 (PLL | NANO)'"), None),
            (Some("echo '    status:       64 (UNSYNC)'"), Some("follows no time server")),
            (Some("echo '    status:       8257 (PLL | UNSYNC | NANO)'"), Some("follows no time server")),
            (Some("echo nothing"), Some("prints no \"status:\"")),
            (Some("echo broken >&2; exit 3"), Some("broken")),
            (None, Some("and the program adjtimex")),
        ] {
            let (_root, topic_root) = machine(script);
            let found = trouble(&topic_root).await;
            match trouble_with {
                None => assert_eq!(found, None, "{script:?}"),
                Some(words) => {
                    assert!(found.as_ref().is_some_and(|it| it.contains(words)), "{script:?}: {found:?}");
                }
            }
        }
    }

    #[tokio::test]
    async fn u9_chrony_without_rtcsync_is_asked_itself_and_what_it_does_not_say_is_no_yes() {
        let (unsync, not) = (Some("echo 'status: 64 (UNSYNC)'"), Some("chrony is not synchronised"));
        let of = |stratum: &str, leap: &str| {
            format!(
                "C0A80101,192.168.1.1,{stratum},1773480600.1,0.0001,0.0002,0.0003,-1.2,0.0,0.1,0.01,0.002,64.5,{leap}"
            )
        };
        for (kernel, chrony, trouble_with) in [
            (unsync, format!("echo '{}'", of("3", "Normal")), None),
            (unsync, format!("echo '{}'", of("3", "Insert second")), None),
            (None, format!("echo '{}'", of("3", "Normal")), None),
            (unsync, format!("echo '{}'", of("3", "Delete second")), None),
            // It follows itself, as with `local stratum 10` and no source.
            (unsync, "echo '7F7F0101,,10,1773480600.1,0,0,0,0,0,0,1,1,64.5,Normal'".to_owned(), not),
            (
                unsync,
                "echo '7F7F0101,127.127.1.1,10,1773480600.1,0,0,0,0,0,0,1,1,64.5,Normal'".to_owned(),
                not,
            ),
            (
                unsync,
                "echo '0A000001,127.127.1.0,10,1773480600.1,0,0,0,0,0,0,1,1,64.5,Normal'".to_owned(),
                not,
            ),
            (unsync, format!("echo '{}'", of("3", "Some later word")), not),
            // Its state after a start, and with a server that is gone for good.
            (unsync, format!("echo '{}'", of("0", "Not synchronised")), not),
            (unsync, format!("echo '{}'", of("16", "Normal")), not),
            (None, format!("echo '{}'", of("0", "Not synchronised")), not),
            (unsync, "echo Normal".to_owned(), not),
            (unsync, "echo ,,3,".to_owned(), not),
            (unsync, "echo '506 Cannot talk to daemon'; exit 1".to_owned(), Some("506 Cannot talk")),
        ] {
            let (_root, topic_root) =
                with_programs(&[("sbin/adjtimex", kernel), ("usr/bin/chronyc", Some(chrony.as_str()))]);
            let found = trouble(&topic_root).await;
            assert_eq!(found.is_some(), trouble_with.is_some(), "{chrony}: {found:?}");
            let words = trouble_with.unwrap_or_default();
            assert!(found.unwrap_or_default().contains(words), "{chrony}");
        }
    }

    #[tokio::test]
    async fn u9_systemds_file_is_enough() {
        let (root, topic_root) = machine(Some("echo 'status: 64'"));
        fs::create_dir_all(root.path().join("run/systemd/timesync")).unwrap();
        store::replace(&root.path().join(SYNCHRONIZED), b"").unwrap();
        assert_eq!(trouble(&topic_root).await, None);
    }
}
