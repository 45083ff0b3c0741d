//! Learns from the kernel that the wall clock was set: by an operator, the first answer of a time server, or
//! after a sleep.
//!
//! Where the kernel does not report it, as in some sandboxes, the loop of each agent compares the clocks at
//! its next turn, which the watchdog's ticker brings within 25 s.

use std::future;
use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use topics::GoTime;
use tracing::warn;

use crate::Clock;

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
