//! Reads the log of one container, in pieces.
//!
//! Not here: how often, and which lines are new. Source: the Kubernetes API reference, "read log of the
//! specified Pod".

use std::time::Duration;

use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::api::LogParams;
use kube::client::Body;
use kube::core::Request;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::lines::{LineSplitter, LogLine};
use kubeapi::ApiClient;
use kubeapi::Error;
use kubeapi::names::APP_NAMESPACE;

/// Bytes parsed at a time.
const PIECE_BYTES: usize = 4 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRequest {
    pub pod: String,
    pub container: String,
    /// The run before the present one.
    pub previous: bool,
    /// Lines of this second and later; `None` for all.
    pub since: Option<Timestamp>,
    /// The run has ended: a last line without its end counts.
    pub ended: bool,
}

#[derive(Debug, Default)]
pub struct LogChunk {
    pub lines: Vec<LogLine>,
    pub then: LogEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogEnd {
    /// There is more.
    #[default]
    More,
    /// The end for now.
    End,
    /// The reading was cut.
    Broken,
}

/// An open log. Dropping it closes the connection.
pub struct ContainerLog {
    what: String,
    limit: Duration,
    body: Body,
    lines: LineSplitter,
    /// Received bytes, and how many of them were parsed.
    come: (Vec<u8>, usize),
    ended: bool,
}

impl std::fmt::Debug for ContainerLog {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Log").field("what", &self.what).finish_non_exhaustive()
    }
}

impl ContainerLog {
    /// Opens it, within the limit of a call.
    pub async fn open(cluster: &ApiClient, order: &LogRequest) -> Result<Self, Error> {
        let run = if order.previous { "the previous run of " } else { "" };
        let what = format!("read the log of {run}{APP_NAMESPACE}/{} {}", order.pod, order.container);
        let how = LogParams {
            container: Some(order.container.clone()),
            previous: order.previous,
            // The client would round to the nearest second, and skip lines.
            since_time: order.since.map(whole_second),
            timestamps: true,
            ..LogParams::default()
        };
        let path = format!("/api/v1/namespaces/{APP_NAMESPACE}/pods");
        let request = Request::new(path).logs(&order.pod, &how);
        let (body, limit) = cluster.open(&what, request).await?;
        Ok(Self {
            what,
            limit,
            body,
            lines: LineSplitter::default(),
            come: (Vec::new(), 0),
            ended: order.ended,
        })
    }

    /// The next lines: about `enough` bytes, or what came within the limit of a call.
    ///
    /// Errors: the connection was cut, or nothing came within the limit.
    #[expect(clippy::disallowed_methods, reason = "a deadline of a call, as everywhere in this crate")]
    pub async fn next(&mut self, enough: usize) -> Result<LogChunk, Error> {
        let deadline = Instant::now() + self.limit;
        let mut read = LogChunk::default();
        let mut taken = 0;
        while taken < enough {
            let (bytes, begin) = &mut self.come;
            if *begin < bytes.len() {
                let end = bytes.len().min(*begin + PIECE_BYTES);
                taken += self.lines.feed(&bytes[*begin..end], &mut read.lines);
                *begin = end;
                continue;
            }
            match timeout_at(deadline, self.body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    // The connection decides how much comes at a time.
                    self.come = (frame.data_ref().map(|bytes| bytes.to_vec()).unwrap_or_default(), 0);
                }
                Ok(None) => {
                    if self.ended {
                        self.lines.finish(&mut read.lines);
                    }
                    if self.lines.strange() > 0 {
                        debug!(call = self.what, lines = self.lines.strange(), "lines without a time");
                    }
                    read.then = LogEnd::End;
                    break;
                }
                // Received lines are returned first.
                Ok(Some(Err(_))) | Err(_) if !read.lines.is_empty() => {
                    read.then = LogEnd::Broken;
                    break;
                }
                Ok(Some(Err(source))) => {
                    let (what, via) = (self.what.clone(), "the connection that was open".to_owned());
                    return Err(Error::Connection { what, via, source: source.into() });
                }
                Err(_elapsed) => return Err(Error::Silent { what: self.what.clone(), limit: self.limit }),
            }
        }
        Ok(read)
    }
}

/// Rounded down.
fn whole_second(at: Timestamp) -> Timestamp {
    let nanos = at.as_nanosecond().rem_euclid(1_000_000_000);
    Timestamp::from_nanosecond(at.as_nanosecond() - nanos).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubeapi::mock::{self, MockReply};

    const ALL: usize = 1 << 20;

    fn order(since: Option<&str>) -> LogRequest {
        LogRequest {
            pod: "web-1".to_owned(),
            container: "web".to_owned(),
            previous: since.is_none(),
            since: since.map(|it| it.parse().unwrap()),
            ended: false,
        }
    }

    fn line(nth: u32) -> String {
        format!("2026-03-14T09:30:{nth:02}Z line {nth}")
    }

    #[tokio::test(start_paused = true)]
    async fn the_request_names_the_whole_second_before_and_never_one_after() {
        let answer = || MockReply::Lines(vec![line(1), line(2)], mock::AfterLines::End);
        let (cluster, calls) = mock::cluster(vec![answer(), answer()]);
        let mut log =
            ContainerLog::open(&cluster, &order(Some("2026-03-14T09:30:00.999999999Z"))).await.unwrap();
        let read = log.next(ALL).await.unwrap();
        assert_eq!((read.lines.len(), read.lines[1].text.as_str(), read.then), (2, "line 2", LogEnd::End));
        ContainerLog::open(&cluster, &order(None)).await.unwrap();
        let path = "GET /api/v1/namespaces/eve-kube-app/pods/web-1/log?&container=web";
        let expected = [
            format!("{path}&sinceTime=2026-03-14T09%3A30%3A00Z&timestamps=true"),
            format!("{path}&previous=true&timestamps=true"),
        ];
        assert_eq!(calls.lines(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_comes_in_pieces_and_no_more_is_held_than_was_asked_for() {
        let all: Vec<String> = (0..60).map(line).collect();
        let (cluster, _) = mock::cluster(vec![MockReply::Lines(all, mock::AfterLines::End)]);
        let mut log = ContainerLog::open(&cluster, &order(None)).await.unwrap();
        let mut pieces = Vec::new();
        loop {
            let read = log.next(100).await.unwrap();
            pieces.push(read.lines.len());
            if read.then == LogEnd::End {
                break;
            }
        }
        assert_eq!((pieces.iter().sum::<usize>(), pieces.iter().max()), (60, Some(&4)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_all_at_once_is_taken_in_pieces_too() {
        let all: Vec<String> = (0..60).map(|nth| format!("{}{}\n", line(nth), "x".repeat(1000))).collect();
        let (cluster, _) = mock::cluster(vec![MockReply::Full(200, vec![], all.concat())]);
        let mut log = ContainerLog::open(&cluster, &order(None)).await.unwrap();
        let (mut count, mut most) = (0, 0);
        loop {
            let read = log.next(10_000).await.unwrap();
            count += read.lines.len();
            most = most.max(read.lines.len());
            if read.then == LogEnd::End {
                break;
            }
        }
        assert_eq!(count, 60);
        assert!(most <= 15, "{most}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_that_stands_still_or_is_cut_ends_in_time_after_what_has_come() {
        for (then, error) in [
            (mock::AfterLines::Silence, "no answer within 30 s"),
            (mock::AfterLines::Cut, "connection reset by peer"),
        ] {
            let (cluster, _) =
                mock::cluster(vec![MockReply::Lines(vec![line(1)], then), MockReply::Lines(vec![], then)]);
            let mut log = ContainerLog::open(&cluster, &order(None)).await.unwrap();
            let read = log.next(ALL).await.unwrap();
            assert_eq!((read.lines.len(), read.then), (1, LogEnd::Broken));
            let mut log = ContainerLog::open(&cluster, &order(None)).await.unwrap();
            let told = log.next(ALL).await.unwrap_err().line();
            assert!(told.contains(error), "{told}");
        }
        let (cluster, _) = mock::cluster(vec![MockReply::Silence]);
        assert!(ContainerLog::open(&cluster, &order(None)).await.is_err());
    }
}
