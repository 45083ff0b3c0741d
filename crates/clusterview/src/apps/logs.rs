//! Reads the logs and passes them on.
//!
//! Each container has a task of its own, so that a hanging one delays no other; one writer writes lines, at
//! most [`BATCH_BYTES`] of text at a time. They are passed on first and marked then: a crash in between
//! repeats these lines, the other order would lose them.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use agent::{Clock, Outlet, Stop};
use kubeapi::{ApiClient, Error};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use topics::AppLogMarks;
use tracing::{debug, info, warn};

use super::course::{LogCourse, LogSource, Scene};
use super::line;
use super::track::ReadEnd;
use crate::pods::{ContainerLog, LogEnd, LogLine, LogRange};

/// Text passed on at a time, except for a longer line.
pub const BATCH_BYTES: usize = 32 << 10;
/// Text read of one container in one round.
pub const ROUND_BYTES: usize = 1 << 20;
/// Time for lines under way when the agent ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub(super) struct LogReader {
    pub(super) cluster: ApiClient,
    pub(super) clock: Clock,
    pub(super) stop: Stop,
    pub(super) marks: Outlet<AppLogMarks>,
    pub(super) pipe: Pipe,
}

struct LogPiece {
    source: LogSource,
    /// Text of this round so far.
    bytes: usize,
    result: Result<(ContainerLog, Vec<LogLine>, LogEnd), Error>,
}

/// Passes on the lines that `scenes` asks for, until the agent ends.
pub(super) async fn run(reader: LogReader, mut scenes: watch::Receiver<Scene>) {
    let mut hand = Hand::new(reader);
    let (mut stop, clock) = (hand.reader.stop.clone(), hand.reader.clock);
    loop {
        let now = clock.now();
        hand.course.see(now, &scenes.borrow_and_update());
        while let Some((source, range)) = hand.course.due(now) {
            if range.missed {
                info!(
                    app = source.app,
                    pod = source.pod,
                    container = source.container,
                    "the container was restarted several times between two looks: not all that it said was read"
                );
            }
            hand.readings.spawn(open(hand.reader.cluster.clone(), source, range));
        }
        hand.keep();
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            changed = scenes.changed() => if changed.is_err() { return },
            Some(Ok(piece)) = hand.readings.join_next() => hand.take(piece).await,
            () = clock.sleep_until(hand.course.next_wake()) => {}
        }
    }
}

async fn open(cluster: ApiClient, source: LogSource, range: LogRange) -> LogPiece {
    match ContainerLog::open(&cluster, &source.pod, &source.container, range).await {
        Ok(log) => next(source, 0, log).await,
        Err(error) => LogPiece { source, bytes: 0, result: Err(error) },
    }
}

async fn next(source: LogSource, bytes: usize, mut log: ContainerLog) -> LogPiece {
    let result = log.next(BATCH_BYTES).await.map(|read| (log, read.lines, read.then));
    LogPiece { source, bytes, result }
}

struct Hand {
    reader: LogReader,
    course: LogCourse,
    readings: JoinSet<LogPiece>,
    /// Containers whose trouble has been logged.
    troubled: BTreeSet<LogSource>,
    /// The last failure, so that it is reported once.
    failure: String,
}

impl Hand {
    fn new(reader: LogReader) -> Self {
        let course = LogCourse::new(reader.marks.iter());
        Self { reader, course, readings: JoinSet::new(), troubled: BTreeSet::new(), failure: String::new() }
    }

    async fn take(&mut self, piece: LogPiece) {
        let LogPiece { source, bytes, result } = piece;
        let outcome = match result {
            Err(error) => Some(self.trouble(&source, &error)),
            Ok((log, lines, then)) => {
                self.troubled.remove(&source);
                match self.course.sift(&source, lines) {
                    None => Some(ReadEnd::Doubtful),
                    Some(news) if !self.hand_on(&source, &news).await => Some(ReadEnd::Failed),
                    Some(news) => {
                        let bytes = bytes + news.iter().map(|it| it.text.len()).sum::<usize>();
                        match then {
                            LogEnd::End => Some(ReadEnd::Whole),
                            LogEnd::Broken => Some(ReadEnd::Failed),
                            LogEnd::More if bytes >= ROUND_BYTES => Some(ReadEnd::Cut),
                            LogEnd::More => {
                                self.readings.spawn(next(source.clone(), bytes, log));
                                None
                            }
                        }
                    }
                }
            }
        };
        if let Some(outcome) = outcome {
            self.course.ended(&source, self.reader.clock.now(), outcome);
        }
    }

    /// Passes lines on, and marks them; returns whether that succeeded.
    async fn hand_on(&mut self, source: &LogSource, lines: &[LogLine]) -> bool {
        if lines.is_empty() {
            return true;
        }
        let (mut bytes, now) = (Vec::new(), self.reader.clock.wall());
        for each in lines {
            line::write(&mut bytes, source, each, now);
        }
        let (mut stop, clock) = (self.reader.stop.clone(), self.reader.clock);
        let too_late = async {
            stop.stopped().await;
            clock.sleep_until(Some(clock.now() + LAST_WORDS)).await;
        };
        let written = tokio::select! {
            biased;
            written = self.reader.pipe.write(&bytes) => written.map_err(|cause| step::chain(&cause)),
            () = too_late => Err("whoever reads them does not".to_owned()),
        };
        if self.is_done("hand lines of applications on", written) {
            self.course.note_handed_on(source, lines);
            // In the same turn: no await between the two.
            self.keep();
            return true;
        }
        false
    }

    /// Writes changed marks.
    fn keep(&mut self) {
        for (key, marks) in self.course.changed() {
            // On failure the next line of this application writes them again.
            match marks {
                Some(marks) => self.reader.marks.put(&key, &marks),
                None => self.reader.marks.take(&key),
            };
        }
    }

    fn is_done(&mut self, doing: &str, result: Result<(), String>) -> bool {
        let Err(cause) = result else { return true };
        let told = format!("{doing}: {cause}");
        if told != self.failure {
            warn!(error = told, "logs of applications are held up");
            self.failure = told;
        }
        false
    }

    fn trouble(&mut self, source: &LogSource, error: &Error) -> ReadEnd {
        let (app, pod, container) = (&source.app, &source.pod, &source.container);
        let (line, next_step) = (error.line(), error.next_step());
        // A container that is ending, or has left no log, is no trouble.
        let gone = matches!(error, Error::Refused { answer, .. } if matches!(answer.code, 400 | 404));
        if !gone && self.troubled.insert(source.clone()) {
            warn!(
                app,
                pod,
                container,
                error = line,
                next_step,
                "cannot read a log, the others continue and it is tried again"
            );
        } else {
            debug!(app, pod, container, error = line, "a log could not be read");
        }
        if gone { ReadEnd::Refused } else { ReadEnd::Failed }
    }
}

#[derive(Clone)]
pub struct Pipe(Arc<Mutex<dyn AsyncWrite + Send + Unpin>>);

impl std::fmt::Debug for Pipe {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Pipe")
    }
}

impl Pipe {
    /// The standard output of this process. The agent's own log is on standard error, so a slow reader of
    /// this one does not delay it.
    pub fn standard_output() -> Self {
        Self::new(tokio::io::stdout())
    }

    pub fn new(writer: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        Self(Arc::new(Mutex::new(writer)))
    }

    /// Dropping it leaves a part of `bytes` unwritten.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut writer = self.0.lock().await;
        writer.write_all(bytes).await?;
        writer.flush().await
    }
}
