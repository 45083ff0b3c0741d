//! Pods of applications as facts, and the logs of their containers: lines, each with the time at which it was written.
//!
//! Members of a wrong type count as missing: one odd pod must not break the others. The node's text in place of an
//! unreadable log has no time and is not from the application. Not here: which pod belongs to which application, and which
//! lines were reported already; `apps` decides. Sources: the Kubernetes pages "Pod Lifecycle" and "Logging Architecture",
//! the API reference, "read log of the specified Pod".

use std::time::Duration;

use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::api::LogParams;
use kube::core::Request;
use kubeapi::names::APP_NAMESPACE;
use kubeapi::objects::{items, text};
use kubeapi::watch::{Manner, ObjectMirror, SLOT, WatchScope};
use kubeapi::{ApiClient, CausedBody, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

/// The pods of the namespace of applications, by name, kept up to date.
pub type Pods = ObjectMirror<AppPod, String, AppPod>;

/// Follows them. One watch is open for 30 s, so that an API server that has gone without a word is noticed soon: whoever
/// follows must say within minutes that it cannot be reached.
pub fn follow(cluster: &ApiClient, seed: u64) -> Pods {
    let path = format!("/api/v1/namespaces/{APP_NAMESPACE}/pods");
    let manner = Manner { slot: SLOT, ..Manner::default() };
    ObjectMirror::open(cluster, WatchScope::all("pods of applications", path), manner, seed, |it: AppPod| {
        (it.name.clone(), Some(it))
    })
}

/// Kept of a line.
pub const LINE_LIMIT_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// By the clock of the container's node.
    pub at: Timestamp,
    pub text: String,
    /// Cut bytes.
    pub left_out: usize,
}

#[derive(Debug, Default)]
struct LineSplitter {
    begun: Vec<u8>,
    left_out: usize,
    /// Number of lines without a time.
    strange: usize,
}

impl LineSplitter {
    /// Adds the lines that `bytes` complete to `out`. Returns their bytes of text.
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<LogLine>) -> usize {
        let (mut rest, mut taken) = (bytes, 0);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.keep(&rest[..end]);
            taken += self.complete(out);
            rest = &rest[end + 1..];
        }
        self.keep(rest);
        taken
    }

    /// Takes the rest as a line without an end: its writer has ended.
    fn finish(&mut self, out: &mut Vec<LogLine>) {
        if !self.begun.is_empty() {
            self.complete(out);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_LIMIT_BYTES.saturating_sub(self.begun.len()).min(bytes.len());
        self.begun.extend_from_slice(&bytes[..room]);
        self.left_out += bytes.len() - room;
    }

    fn complete(&mut self, out: &mut Vec<LogLine>) -> usize {
        let bytes = std::mem::take(&mut self.begun);
        let left_out = std::mem::take(&mut self.left_out);
        let text = String::from_utf8_lossy(&bytes);
        let (time, text) = text.split_once(' ').unwrap_or((&text, ""));
        let Ok(at) = time.parse::<Timestamp>() else {
            self.strange += 1;
            return 0;
        };
        out.push(LogLine { at, text: text.to_owned(), left_out });
        bytes.len()
    }
}

/// Bytes parsed at a time.
const PIECE_BYTES: usize = 4 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRange {
    /// The run before the present one.
    pub previous: bool,
    /// Lines of this second and later; `None` for all.
    pub since: Option<Timestamp>,
    /// The run has ended: a last line without its end counts.
    pub ended: bool,
    /// Runs before it have ended unread.
    pub missed: bool,
}

#[derive(Debug, Default)]
pub struct LogChunk {
    pub lines: Vec<LogLine>,
    pub then: LogEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogEnd {
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
    body: CausedBody,
    lines: LineSplitter,
    /// Received bytes, and how many of them were parsed.
    come: (Vec<u8>, usize),
    ended: bool,
}

impl ContainerLog {
    /// Opens it, within the limit of a call.
    pub async fn open(
        cluster: &ApiClient,
        pod: &str,
        container: &str,
        range: LogRange,
    ) -> Result<Self, Error> {
        let run = if range.previous { "the previous run of " } else { "" };
        let what = format!("read the log of {run}{APP_NAMESPACE}/{pod} {container}");
        let how = LogParams {
            container: Some(container.to_owned()),
            previous: range.previous,
            // The client would round to the nearest second, and skip lines.
            since_time: range.since.map(whole_second),
            timestamps: true,
            ..LogParams::default()
        };
        let path = format!("/api/v1/namespaces/{APP_NAMESPACE}/pods");
        let request = Request::new(path).logs(pod, &how);
        let (body, limit) = cluster.open(&what, request).await?;
        let lines = LineSplitter::default();
        Ok(Self { what, limit, body, lines, come: (Vec::new(), 0), ended: range.ended })
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
                    if self.lines.strange > 0 {
                        debug!(call = self.what, lines = self.lines.strange, "lines without a time");
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
                    return Err(Error::Connection { what, via, source });
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

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AppPod {
    pub name: String,
    pub uid: String,
    /// Empty before it is scheduled.
    pub node: String,
    /// `status.phase`, as `Running`.
    pub phase: String,
    pub ending: bool,
    /// Its containers and init containers, if its node has reported them.
    pub containers: Vec<Container>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub name: String,
    /// One of the init containers, such as the one that prints the console of a virtual machine.
    pub init: bool,
    /// Number of restarts. With the pod's UID it identifies one run of the container.
    pub restarts: u32,
    pub state: ContainerState,
}

/// Of the newest run of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerState {
    /// Not begun: there is no log.
    Waiting,
    Running,
    /// Not restarted so far.
    Ended,
    /// Ended, and waiting for a restart: the run before it is gone.
    BackingOff,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawPod {
    metadata: Value,
    spec: Value,
    status: Value,
}

/// No two whole objects of a list are in memory at the same time.
impl<'de> Deserialize<'de> for AppPod {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let RawPod { metadata, spec, status, .. } = RawPod::deserialize(from)?;
        let list = |name: &str, init: bool| items(&status[name]).iter().map(move |it| container(it, init));
        let containers = list("initContainerStatuses", true).chain(list("containerStatuses", false));
        Ok(Self {
            name: text(&metadata["name"]),
            uid: text(&metadata["uid"]),
            node: text(&spec["nodeName"]),
            phase: text(&status["phase"]),
            ending: !metadata["deletionTimestamp"].is_null(),
            containers: containers.collect(),
        })
    }
}

fn container(status: &Value, init: bool) -> Container {
    let state = &status["state"];
    let state = if !state["running"].is_null() {
        ContainerState::Running
    } else if !state["terminated"].is_null() {
        ContainerState::Ended
    } else if !status["lastState"]["terminated"].is_null() {
        ContainerState::BackingOff
    } else {
        ContainerState::Waiting
    };
    Container {
        name: text(&status["name"]),
        init,
        restarts: status["restartCount"].as_u64().and_then(|it| u32::try_from(it).ok()).unwrap_or_default(),
        state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubeapi::mock::{self, MockReply};
    use serde_json::json;

    const AT: &str = "2026-03-14T09:30:00.000000001Z";

    fn read(pieces: &[&[u8]]) -> (Vec<LogLine>, LineSplitter) {
        let (mut lines, mut out) = (LineSplitter::default(), Vec::new());
        for piece in pieces {
            lines.feed(piece, &mut out);
        }
        (out, lines)
    }

    fn line(text: &str, left_out: usize) -> LogLine {
        LogLine { at: AT.parse().unwrap(), text: text.to_owned(), left_out }
    }

    #[test]
    fn lines_come_out_whole_however_the_bytes_are_cut() {
        let whole = format!("{AT} one  two\n{AT} \n{AT}\n{AT} ä\n");
        let expected = [line("one  two", 0), line("", 0), line("", 0), line("ä", 0)];
        assert_eq!(read(&[whole.as_bytes()]).0, expected);
        let single: Vec<&[u8]> = whole.as_bytes().chunks(1).collect();
        assert_eq!(read(&single).0, expected);
    }

    #[test]
    fn a_line_whose_end_has_not_come_is_taken_only_when_its_writer_has_ended() {
        let begun = format!("{AT} one\n{AT} tw");
        let (mut out, mut lines) = read(&[begun.as_bytes()]);
        assert_eq!(out, [line("one", 0)]);
        lines.finish(&mut out);
        lines.finish(&mut out);
        assert_eq!(out, [line("one", 0), line("tw", 0)]);
    }

    #[test]
    fn a_long_line_is_cut_and_says_by_how_much_and_takes_no_more_memory() {
        let long = format!("{AT} {}\n{AT} next\n", "x".repeat(3 * LINE_LIMIT_BYTES));
        let pieces: Vec<&[u8]> = long.as_bytes().chunks(1000).collect();
        let (out, lines) = read(&pieces);
        assert_eq!(out[0].text.len() + out[0].left_out, 3 * LINE_LIMIT_BYTES);
        assert_eq!((out[0].text.len(), &out[1]), (LINE_LIMIT_BYTES - AT.len() - 1, &line("next", 0)));
        assert!(lines.begun.capacity() <= 2 * LINE_LIMIT_BYTES);
    }

    #[test]
    fn what_has_no_time_is_no_line_and_bytes_that_are_no_text_are_shown_as_such() {
        let text = [b"unable to retrieve container logs for containerd://1\n", AT.as_bytes(), b" a\xffb\n"];
        let (out, lines) = read(&text);
        assert_eq!((out, lines.strange), (vec![line("a\u{fffd}b", 0)], 1));
        // An offset is the same instant.
        let (out, _) = read(&[b"2026-03-14T11:30:00.000000001+02:00 a\n"]);
        assert_eq!(out, [line("a", 0)]);
    }

    const ALL: usize = 1 << 20;

    /// What is read from then on, or of the run before.
    async fn opened(cluster: &ApiClient, since: Option<&str>) -> Result<ContainerLog, Error> {
        let (previous, since) = (since.is_none(), since.map(|it| it.parse().unwrap()));
        let range = LogRange { previous, since, ended: false, missed: false };
        ContainerLog::open(cluster, "web-1", "web", range).await
    }

    fn numbered(nth: u32) -> String {
        format!("2026-03-14T09:30:{nth:02}Z line {nth}")
    }

    #[tokio::test(start_paused = true)]
    async fn the_request_names_the_whole_second_before_and_never_one_after() {
        let answer = || MockReply::Lines(vec![numbered(1), numbered(2)], mock::AfterLines::End);
        let (cluster, calls) = mock::cluster(vec![answer(), answer()]);
        let mut log = opened(&cluster, Some("2026-03-14T09:30:00.999999999Z")).await.unwrap();
        let read = log.next(ALL).await.unwrap();
        assert_eq!((read.lines.len(), read.lines[1].text.as_str(), read.then), (2, "line 2", LogEnd::End));
        opened(&cluster, None).await.unwrap();
        let path = "GET /api/v1/namespaces/eve-kube-app/pods/web-1/log?&container=web";
        let expected = [
            format!("{path}&sinceTime=2026-03-14T09%3A30%3A00Z&timestamps=true"),
            format!("{path}&previous=true&timestamps=true"),
        ];
        assert_eq!(calls.lines(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_comes_in_pieces_and_no_more_is_held_than_was_asked_for() {
        let all: Vec<String> = (0..60).map(numbered).collect();
        let (cluster, _) = mock::cluster(vec![MockReply::Lines(all, mock::AfterLines::End)]);
        let mut log = opened(&cluster, None).await.unwrap();
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
        let all: Vec<String> =
            (0..60).map(|nth| format!("{}{}\n", numbered(nth), "x".repeat(1000))).collect();
        let (cluster, _) = mock::cluster(vec![MockReply::Full(200, vec![], all.concat())]);
        let mut log = opened(&cluster, None).await.unwrap();
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
            let (cluster, _) = mock::cluster(vec![
                MockReply::Lines(vec![numbered(1)], then),
                MockReply::Lines(vec![], then),
            ]);
            let mut log = opened(&cluster, None).await.unwrap();
            let read = log.next(ALL).await.unwrap();
            assert_eq!((read.lines.len(), read.then), (1, LogEnd::Broken));
            let mut log = opened(&cluster, None).await.unwrap();
            let told = log.next(ALL).await.unwrap_err().line();
            assert!(told.contains(error), "{told}");
        }
        let (cluster, _) = mock::cluster(vec![MockReply::Silence]);
        assert!(opened(&cluster, None).await.is_err());
    }

    fn app_pod(object: Value) -> AppPod {
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_pod_is_read_with_all_its_containers() {
        let ended = json!({ "terminated": { "exitCode": 1 } });
        let pod = app_pod(json!({
            "metadata": { "name": "web-11111-0-abcde", "uid": "u1", "deletionTimestamp": "2026-03-14T09:30:00Z" },
            "spec": { "nodeName": "n1" },
            "status": {
                "phase": "Running",
                "initContainerStatuses": [{ "name": "i", "restartCount": 0, "state": { "running": {} } }],
                "containerStatuses": [
                    { "name": "a", "restartCount": 3, "state": { "waiting": {} }, "lastState": ended },
                    { "name": "b", "restartCount": 0, "state": ended },
                    { "name": "c", "restartCount": 0, "state": { "waiting": {} }, "lastState": {} },
                ],
            },
        }));
        let container =
            |name: &str, init, restarts, state| Container { name: name.to_owned(), init, restarts, state };
        let expected = AppPod {
            name: "web-11111-0-abcde".to_owned(),
            uid: "u1".to_owned(),
            node: "n1".to_owned(),
            phase: "Running".to_owned(),
            ending: true,
            containers: vec![
                container("i", true, 0, ContainerState::Running),
                container("a", false, 3, ContainerState::BackingOff),
                container("b", false, 0, ContainerState::Ended),
                container("c", false, 0, ContainerState::Waiting),
            ],
        };
        assert_eq!(pod, expected);
    }

    #[test]
    fn what_is_missing_or_odd_is_empty() {
        let odd = json!({ "metadata": { "name": 7 }, "spec": null, "status": { "containerStatuses": "x" } });
        assert_eq!(app_pod(odd), AppPod::default());
    }
}
