//! Lines on their way to standard error. Callers do not wait for the reader: a thread writes, and lines
//! without room in the queue are lost and counted.
//!
//! Only for agents. A command for a person writes directly: its reader is that person. Not here: formats
//! (`form`).

use std::collections::VecDeque;
use std::io::{self, Write, stderr};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;
use topics::number;

use tracing::warn;

/// Some thousand lines.
const MOST_BYTES: usize = 128 << 10;
/// How long the end of the process waits for its last lines.
const LONGEST: Duration = Duration::from_millis(500);

/// Name of the writing thread, to recognise its own lines.
const WRITER: &str = "log";

static QUEUE: OnceLock<&'static Lines> = OnceLock::new();

#[derive(Default)]
pub(super) struct Lines {
    waiting: Mutex<Waiting>,
    more: Condvar,
    /// The queue is empty.
    none: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// One is being written.
    writing: bool,
    /// Lines lost since the last report.
    lost: u64,
}

impl Waiting {
    /// Queues a line, or counts it as lost.
    fn put(&mut self, line: &[u8], is_report: bool) {
        // A report of lost lines always fits: there is one at a time.
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

    /// Writes without end. Failed writes are lost: there is nowhere to report them.
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

    /// Waits until all is written, or `longest`.
    fn flush(&self, longest: Duration) {
        let busy = |it: &mut Waiting| it.writing || !it.lines.is_empty();
        drop(self.none.wait_timeout_while(self.lock(), longest, busy));
    }
}

/// From now on no caller waits for the reader of the log. A machine without a free thread keeps writing
/// directly.
pub(crate) fn never_wait() {
    if QUEUE.get().is_some() {
        return;
    }
    // Both live as long as the process.
    let lines: &'static Lines = Box::leak(Box::default());
    let write = move || {
        lines.write(stderr(), |lost| {
            warn!(lost, "lost of this log: {}; nobody read standard error for a time", number(lost, "line"));
        });
    };
    match thread::Builder::new().name(WRITER.to_owned()).spawn(write) {
        Ok(_) => drop(QUEUE.set(lines)),
        Err(error) => {
            warn!(%error, "no thread for the log: the agents wait for whoever reads standard error");
        }
    }
}

/// Before the process ends: writes the queue, if the reader reads.
pub(crate) fn flush() {
    if let Some(lines) = QUEUE.get() {
        lines.flush(LONGEST);
    }
}

/// Takes one line per `write`.
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
