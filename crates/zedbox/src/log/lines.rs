//! Lines on their way to standard error. Whoever says one does not wait for its reader: a thread writes, and what finds no
//! room in the queue before it is lost and counted.
//!
//! Only where agents run. A command for a person writes by itself: its reader is that person. Not here: what a line looks
//! like (`form`).

use std::collections::VecDeque;
use std::io::{self, Write, stderr};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::warn;

/// So much waits to be written, at most: some thousand lines.
const MOST_BYTES: usize = 128 << 10;
/// So long the end of the process waits for its last lines.
const LONGEST: Duration = Duration::from_millis(500);

/// The name of the thread that writes, by which its own lines are known.
const WRITER: &str = "log";

/// The queue of this process, once it has one.
static QUEUE: OnceLock<&'static Lines> = OnceLock::new();

/// Lines that wait for a reader.
#[derive(Default)]
pub(super) struct Lines {
    waiting: Mutex<Waiting>,
    /// There is a line to write.
    more: Condvar,
    /// There is none any more.
    none: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// One was taken out and is being written.
    writing: bool,
    /// Lines that found no room since this was last said.
    lost: u64,
}

impl Waiting {
    /// Keeps a line, or counts it.
    fn put(&mut self, line: &[u8], is_report: bool) {
        // That lines were lost finds room always: there is one such line at a time.
        if self.bytes + line.len() > MOST_BYTES && !is_report {
            self.lost = self.lost.saturating_add(1);
            return;
        }
        self.bytes += line.len();
        self.lines.push_back(line.to_vec());
    }
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, line: &[u8]) {
        self.lock().put(line, thread::current().name() == Some(WRITER));
        self.more.notify_one();
    }

    /// Writes for good. What `to` does not take is lost: there is nowhere to say it.
    fn write(&self, mut to: impl Write, mut say_lost: impl FnMut(u64)) {
        loop {
            let line = {
                let idle = |it: &mut Waiting| it.lines.is_empty();
                let waited = self.more.wait_while(self.lock(), idle);
                let mut waiting = waited.unwrap_or_else(PoisonError::into_inner);
                let line = waiting.lines.pop_front().unwrap_or_default();
                waiting.bytes -= line.len();
                waiting.writing = true;
                line
            };
            drop(to.write_all(&line));
            let lost = {
                let mut waiting = self.lock();
                waiting.writing = false;
                if waiting.lines.is_empty() {
                    self.none.notify_all();
                }
                std::mem::take(&mut waiting.lost)
            };
            if lost > 0 {
                say_lost(lost);
            }
        }
    }

    /// Waits until all is written, at most so long.
    fn flush(&self, longest: Duration) {
        let busy = |it: &mut Waiting| it.writing || !it.lines.is_empty();
        drop(self.none.wait_timeout_while(self.lock(), longest, busy));
    }
}

/// From now on nobody waits for the reader of the log. A machine without a thread to spare goes on as before.
pub(crate) fn never_wait() {
    if QUEUE.get().is_some() {
        return;
    }
    // It lives as long as the process, as the thread does.
    let lines: &'static Lines = Box::leak(Box::default());
    let write = move || {
        lines.write(stderr(), |lost| {
            warn!(lost, "{lost} lines of this log were lost: nobody read standard error for a time");
        });
    };
    match thread::Builder::new().name(WRITER.to_owned()).spawn(write) {
        Ok(_) => drop(QUEUE.set(lines)),
        Err(error) => {
            warn!(%error, "no thread for the log: the agents wait for whoever reads standard error");
        }
    }
}

/// Before the process ends: what it has said is written, if somebody reads it.
pub(crate) fn flush() {
    if let Some(lines) = QUEUE.get() {
        lines.flush(LONGEST);
    }
}

/// Takes one line of the log at each call of `write`.
pub(super) enum LineWriter {
    Queue(&'static Lines),
    Direct(io::Stderr),
}

impl LineWriter {
    pub(super) fn new() -> Self {
        QUEUE.get().map_or_else(|| Self::Direct(stderr()), |lines| Self::Queue(lines))
    }
}

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Self::Queue(lines) => {
                lines.put(line);
                Ok(line.len())
            }
            Self::Direct(out) => out.write(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Queue(_) => Ok(()),
            Self::Direct(out) => out.flush(),
        }
    }
}
