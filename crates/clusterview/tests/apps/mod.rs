//! Applications as a node reports them: ENClusterAppStatus as a file, and the lines of containers as newlogd reads them
//! from the pipe, also over restarts of containers and of zedkube (D-K23).

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use clusterview::apps::Pipe;
use kubesim::ScriptedFault;
use serde_json::{Value, json};
use tokio::io::AsyncWrite;

use self::stage::{LAUNCHER, POD, Stage, VM, WEB};
use crate::stage::{APPS, golden};

mod stage;

#[tokio::test(start_paused = true)]
async fn d_k23_whenever_zedkube_is_killed_and_the_api_fails_each_line_is_told_once() {
    let mut stage = Stage::web().await;
    let (mut next, mut restarts) = (0, 0);
    for round in 0_u64..40 {
        stage.write_lines(next..next + 3);
        next += 3;
        match round % 4 {
            0 => stage.sim.faults().script("GET", "/log", 2, ScriptedFault::Cut),
            1 => {
                stage.sim.faults().script(
                    "GET",
                    "/pods",
                    3,
                    ScriptedFault::status(503, "ServiceUnavailable"),
                );
            }
            2 => {
                stage.sim.renew_log(APPS, POD, "web");
                restarts += 1;
                stage.run(POD, "web", restarts);
            }
            _ => {}
        }
        stage.pass(Duration::from_millis(round * 277 % 12_000)).await;
        if round % 3 == 0 {
            stage.kill().await;
            stage.write_lines(next..next + 1);
            next += 1;
            stage.start();
        }
        // All runs but the last two are gone at the node.
        let expected = usize::try_from(next).unwrap();
        if round % 4 == 2 || round % 4 == 1 {
            stage.until_said(expected).await;
        }
    }
    stage.until_said(usize::try_from(next).unwrap()).await;
    stage.pass(Duration::from_secs(60)).await;
    assert_eq!(stage.said.messages(), numbers(0..next));
}

#[tokio::test(start_paused = true)]
async fn a_pipe_that_nobody_reads_holds_up_neither_the_status_nor_the_end() {
    let mut stage = Stage::of_web();
    stage.write_lines(0..100);
    let (pipe, _reader) = tokio::io::duplex(64);
    stage.start_into(Pipe::new(pipe));
    stage.until_status(WEB, 4).await;
    stage.pass(Duration::from_secs(60)).await;
    stage.pod(POD, "n1", "Pending", &["web"]);
    let late = stage.until_status(WEB, 3).await;
    assert!(late <= Duration::from_secs(1), "{late:?}");
    let began = stage.now();
    stage.leave().await;
    assert!(stage.now().since(began) <= Duration::from_secs(2));
    // What was not handed on is reported by the next run.
    stage.start();
    stage.says(0..100).await;
}

#[tokio::test(start_paused = true)]
async fn a_pipe_that_is_closed_is_told_once_and_nothing_is_marked() {
    let mut stage = Stage::of_web();
    stage.write_lines(0..3);
    let (pipe, reader) = tokio::io::duplex(64);
    drop(reader);
    stage.start_into(Pipe::new(pipe));
    stage.pass(Duration::from_secs(120)).await;
    let log = stage.lines.text();
    assert_eq!(log.matches("logs of applications are held up").count(), 1, "{log}");
    stage.kill().await;
    stage.start();
    stage.says(0..3).await;
}

#[tokio::test(start_paused = true)]
async fn marks_that_cannot_be_read_tell_everything_again_rather_than_nothing() {
    let mut stage = Stage::told(2).await;
    stage.kill().await;
    let file = stage.context.topic_root.path(&format!("run/zedkube/AppLogMarks/{WEB}.json"));
    pubsub::store::replace(&file, b"{").unwrap();
    stage.start();
    stage.until_said(4).await;
    assert_eq!(stage.said.messages(), ["0", "1", "0", "1"]);
}

/// The moment `nanos` after the beginning.
pub(crate) fn at(nanos: i64) -> String {
    let begin = 1_773_480_600_000_000_000_i128;
    jiff::Timestamp::from_nanosecond(begin + i128::from(nanos)).unwrap().to_string()
}

impl Stage {
    /// The native application runs, and its first lines were handed on.
    async fn told(lines: u8) -> Self {
        let stage = Self::web().await;
        stage.write_lines(0..lines.into());
        stage.until_said(lines.into()).await;
        stage
    }

    /// The native application writes a line for each number, two in each millisecond.
    pub(crate) fn write_lines(&self, numbers: std::ops::Range<i64>) {
        for nth in numbers {
            self.sim.log(APPS, POD, "web", &at(nth / 2 * 1_000_000), &nth.to_string());
        }
    }

    /// Waits for lines of all these numbers, and they are all that was said.
    pub(crate) async fn says(&self, expected: std::ops::Range<i64>) {
        self.until_said(usize::try_from(expected.end).unwrap()).await;
        assert_eq!(self.said.messages(), numbers(expected));
    }

    /// Ends the run of the native application; the next one has this number.
    fn restart(&self, restarts: u32) {
        self.sim.renew_log(APPS, POD, "web");
        self.run(POD, "web", restarts);
    }

    pub(crate) async fn until_said(&self, count: usize) -> Duration {
        self.until(&format!("{count} lines"), |_| self.said.messages().len() >= count).await
    }
}

pub(crate) fn numbers(numbers: std::ops::Range<i64>) -> Vec<String> {
    numbers.map(|it| it.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn lines_are_handed_on_once_as_objects_that_newlogd_reads() {
    let stage = Stage::web().await;
    stage.write_lines(0..3);
    assert!(stage.until_said(3).await <= Duration::from_secs(13));
    let told = stage.said.objects().remove(2);
    let expected = json!({
        "level": "info", "time": told["time"], "msg": "2", "source": "zedkube", "appuuid": WEB, "container": "web",
        "eventtime": at(1_000_000),
    });
    assert_eq!(told, expected);
    assert!(told["time"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    for round in 1..20 {
        stage.write_lines(3 * round..3 * round + 3);
        stage.pass(Duration::from_secs(7)).await;
    }
    stage.pass(Duration::from_secs(20)).await;
    assert_eq!(stage.said.messages(), numbers(0..60));
    let log = stage.lines.text();
    assert!(!log.contains("WARN"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn d_k23_each_designated_application_gets_its_backlog_and_machines_their_console() {
    let mut stage = Stage::new();
    let other = "11111111-1111-4111-8111-111111111111";
    let elsewhere = "22222222-2222-4222-8222-222222222222";
    stage.configure(WEB, "Web", 4, true);
    stage.configure(other, "Other_App", 4, true);
    stage.configure(elsewhere, "elsewhere", 4, false);
    stage.configure(VM, "Ubuntu", 0, true);
    let pods = [
        (POD, vec!["web", "side"]),
        ("other-app-11111-0-aaaaa", vec!["other"]),
        ("elsewhere-22222-0-aaaaa", vec!["elsewhere"]),
        (LAUNCHER, vec!["guest-console-log", "compute"]),
    ];
    for (pod, containers) in &pods {
        // Where it runs does not matter: its designated node reads it.
        stage.pod(pod, "n2", "Running", containers);
        for container in containers {
            stage.sim.log(APPS, pod, container, &at(1), &format!("{container} says"));
        }
    }
    stage.start();
    stage.until_said(4).await;
    stage.pass(Duration::from_secs(60)).await;
    let mut web = stage.said.of(WEB);
    web.sort();
    assert_eq!(
        (web, stage.said.of(other)),
        (vec!["side says".to_owned(), "web says".to_owned()], vec!["other says".to_owned()])
    );
    assert_eq!(stage.said.of(VM), ["guest-console-log says"]);
    assert_eq!(stage.said.messages().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_hangs_or_fails_delays_no_other() {
    for fault in [
        ScriptedFault::Hang,
        ScriptedFault::Cut,
        ScriptedFault::status(403, "Forbidden"),
        ScriptedFault::status(500, "InternalError"),
    ] {
        let mut stage = Stage::new();
        stage.configure(WEB, "Web", 4, true);
        stage.configure(VM, "Ubuntu", 0, true);
        stage.pod(POD, "n1", "Running", &["web"]);
        stage.pod(LAUNCHER, "n1", "Running", &["guest-console-log"]);
        stage.sim.faults().script("GET", &format!("{LAUNCHER}/log"), u32::MAX, fault.clone());
        stage.sim.log(APPS, LAUNCHER, "guest-console-log", &at(1), "boots");
        stage.start();
        for round in 0..10 {
            stage.write_lines(round..round + 1);
            let late = stage.until_said(usize::try_from(round).unwrap() + 1).await;
            assert!(late <= Duration::from_secs(13), "{fault:?}: {late:?}");
        }
        // The status continues.
        stage.pod(POD, "n1", "Pending", &["web"]);
        stage.until_status(WEB, 3).await;
        stage.sim.faults().clear();
        stage.until("its lines", |_| stage.said.of(VM) == ["boots"]).await;
        assert_eq!(stage.said.of(WEB), numbers(0..10));
        let log = stage.lines.text();
        assert_eq!(log.matches("WARN").count(), 1, "{fault:?}: {log}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_log_is_read_in_rounds_and_each_line_is_told_once() {
    let stage = Stage::web().await;
    let long = "x".repeat(3000);
    for nth in 0..1500 {
        stage.sim.log(APPS, POD, "web", &at(nth * 1000), &format!("{nth} {long}"));
    }
    stage.until_said(300).await;
    let asked = stage.requests("/log").0;
    assert!(stage.said.messages().len() < 500, "more than a round at once");
    stage.until_said(1500).await;
    stage.pass(Duration::from_secs(30)).await;
    let said: Vec<String> =
        stage.said.messages().iter().map(|it| it.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(said, numbers(0..1500));
    assert!(stage.requests("/log").0 - asked >= 4);
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_still_being_written_is_told_when_it_is_whole() {
    let stage = Stage::web().await;
    stage.sim.log(APPS, POD, "web", &at(1), "one");
    stage.sim.log_part(APPS, POD, "web", &at(2), "tw");
    stage.until_said(1).await;
    stage.pass(Duration::from_secs(30)).await;
    assert_eq!(stage.said.messages(), ["one"]);
    stage.sim.rotate_log(APPS, POD, "web");
    stage.sim.log(APPS, POD, "web", &at(1), "one");
    stage.sim.log(APPS, POD, "web", &at(2), "two");
    stage.until_said(2).await;
    assert_eq!(stage.said.messages(), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_the_node_has_put_away_begins_anew_and_nothing_is_told_twice() {
    let stage = Stage::told(10).await;
    stage.sim.rotate_log(APPS, POD, "web");
    stage.write_lines(10..12);
    assert!(stage.until_said(12).await <= Duration::from_secs(13));
    stage.write_lines(12..14);
    stage.says(0..14).await;
}

#[derive(Clone, Default)]
pub(crate) struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    pub(crate) fn objects(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn messages(&self) -> Vec<String> {
        self.objects().iter().map(|it| it["msg"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn of(&self, uuid: &str) -> Vec<String> {
        let all = self.objects();
        all.iter()
            .filter(|it| it["appuuid"] == uuid)
            .map(|it| it["msg"].as_str().unwrap().to_owned())
            .collect()
    }
}

impl AsyncWrite for Said {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().unwrap().extend(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn d_k23_the_rest_of_a_run_is_told_once_before_the_next_run() {
    let stage = Stage::told(4).await;
    for restarts in 1..6 {
        let first = 4 * i64::from(restarts);
        // Written and ended between two rounds.
        stage.write_lines(first..first + 2);
        stage.restart(restarts);
        stage.write_lines(first + 2..first + 4);
        stage.until_said(usize::try_from(first).unwrap() + 4).await;
        stage.pass(Duration::from_secs(15)).await;
    }
    assert_eq!(stage.said.messages(), numbers(0..24));
}

#[tokio::test(start_paused = true)]
async fn d_k23_a_new_run_that_is_read_before_its_status_is_told_once_and_loses_nothing() {
    let stage = Stage::told(4).await;
    for restarts in 1..20 {
        let first = 4 * i64::from(restarts);
        stage.write_lines(first..first + 2);
        stage.sim.renew_log(APPS, POD, "web");
        stage.write_lines(first + 2..first + 4);
        // The status comes late: a round may have come by meanwhile.
        stage.pass(Duration::from_millis(1_900)).await;
        stage.run(POD, "web", restarts);
        stage.until_said(usize::try_from(first).unwrap() + 4).await;
        stage.pass(Duration::from_millis(u64::from(restarts) * 511)).await;
    }
    assert_eq!(stage.said.messages(), numbers(0..80));
}

#[tokio::test(start_paused = true)]
async fn d_k23_a_container_that_ends_for_good_is_read_to_its_end_and_no_more() {
    let stage = Stage::told(2).await;
    stage.write_lines(2..3);
    // The last line has no end.
    stage.sim.log_part(APPS, POD, "web", &at(9_000_000), "3");
    stage.sim.run_container(APPS, POD, "web", 0, &json!({ "terminated": { "exitCode": 1 } }));
    assert!(stage.until_said(4).await <= Duration::from_secs(1), "it is read at once");
    let asked = stage.requests("/log").0;
    stage.pass(Duration::from_secs(120)).await;
    assert_eq!((stage.requests("/log").0, stage.said.messages()), (asked, numbers(0..4)));
    // It begins again: what came before is known.
    stage.restart(1);
    stage.sim.log(APPS, POD, "web", &at(10_000_000), "4");
    stage.until_said(5).await;
    stage.pass(Duration::from_secs(30)).await;
    stage.says(0..5).await;
}

#[tokio::test(start_paused = true)]
async fn d_k23_the_last_words_of_a_pod_are_told_before_it_goes() {
    let asked = |pod: &mut Value| pod["metadata"]["deletionTimestamp"] = "2026-03-14T09:26:53Z".into();
    let failed = |pod: &mut Value| pod["status"]["phase"] = "Failed".into();
    let ends: [fn(&mut Value); 2] = [asked, failed];
    for (nth, end) in ends.into_iter().enumerate() {
        let stage = Stage::told(2).await;
        assert!(stage.sim.edit("pods", APPS, POD, end));
        stage.pass(Duration::from_secs(3)).await;
        stage.write_lines(2..4);
        stage.pass(Duration::from_secs(2)).await;
        assert!(stage.sim.remove("pods", APPS, POD));
        stage.pass(Duration::from_secs(30)).await;
        assert_eq!(stage.said.messages(), numbers(0..4), "{nth}");
        // One that came and went: none of its lines is known.
        let mut stage = Stage::of_web();
        stage.write_lines(0..2);
        assert!(stage.sim.edit("pods", APPS, POD, end));
        stage.sim.run_container(APPS, POD, "web", 0, &json!({ "terminated": { "exitCode": 1 } }));
        stage.start();
        stage.pass(Duration::from_secs(1)).await;
        assert!(stage.sim.remove("pods", APPS, POD));
        stage.pass(Duration::from_secs(30)).await;
        assert_eq!(stage.said.messages(), numbers(0..2), "{nth}");
    }
}

#[tokio::test(start_paused = true)]
async fn d_k23_a_run_whose_log_is_gone_is_given_up_and_the_next_one_read() {
    let stage = Stage::told(2).await;
    stage.sim.rotate_log(APPS, POD, "web");
    // There is none before it.
    stage.run(POD, "web", 1);
    stage.write_lines(2..4);
    stage.says(0..4).await;
    assert!(stage.sim.faults().count("GET", "previous=true") >= 1);
}

#[tokio::test(start_paused = true)]
async fn marks_go_with_their_pod_and_another_pod_of_the_same_application_is_read_from_its_beginning() {
    let stage = Stage::told(2).await;
    let marks = || {
        let file = stage.context.topic_root.path(&format!("run/zedkube/AppLogMarks/{WEB}.json"));
        std::fs::read_to_string(file).unwrap_or_default()
    };
    assert!(marks().contains(POD));
    let next = "web-d4f3a-0-bbbbb";
    stage.pod(next, "n2", "Running", &["web"]);
    stage.sim.log(APPS, next, "web", &at(1), "2");
    assert!(stage.sim.remove("pods", APPS, POD));
    stage.until_said(3).await;
    stage.pass(Duration::from_secs(30)).await;
    stage.says(0..3).await;
    assert!(marks().contains(next) && !marks().contains(POD), "{}", marks());
    assert!(stage.sim.remove("pods", APPS, next));
    stage.until("no marks", |_| marks().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn while_pods_cannot_be_followed_nothing_is_read_and_all_is_told_after() {
    let stage = Stage::told(2).await;
    stage.sim.faults().script("GET", "/eve-kube-app/pods", u32::MAX, ScriptedFault::Cut);
    stage.pass(Duration::from_secs(60)).await;
    let asked = stage.requests("/log").0;
    stage.write_lines(2..4);
    stage.restart(1);
    stage.write_lines(4..6);
    stage.pass(Duration::from_secs(300)).await;
    assert_eq!(stage.requests("/log").0, asked);
    stage.sim.faults().clear();
    stage.until_said(6).await;
    stage.pass(Duration::from_secs(30)).await;
    stage.says(0..6).await;
}

#[tokio::test(start_paused = true)]
async fn the_golden_samples_come_out_of_configs_and_pods_byte_for_byte() {
    let mut stage = Stage::new();
    stage.configure(WEB, "Web", 4, true);
    stage.configure(VM, "Ubuntu", 0, true);
    stage.pod(LAUNCHER, "n1", "Running", &["compute"]);
    stage.start();
    stage
        .until("no pod", |_| stage.published(WEB) == Some(golden("ENClusterAppStatus", "not-in-cluster")))
        .await;
    stage
        .until("a machine", |_| stage.published(VM) == Some(golden("ENClusterAppStatus", "vmi-running-dnid")))
        .await;
    // On this node, and not begun.
    stage.pod(POD, "n1", "Succeeded", &["web"]);
    stage.until("a pod", |_| stage.published(WEB) == Some(golden("ENClusterAppStatus", "not-running"))).await;
    stage.sim.faults().script("GET", "/pods", u32::MAX, ScriptedFault::Cut);
    stage
        .until("the API away", |_| {
            stage.published(WEB) == Some(golden("ENClusterAppStatus", "api-unreachable"))
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn designated_and_scheduled_are_told_apart_in_all_four_ways() {
    for designated in [true, false] {
        for (node, here) in [("n1", true), ("n2", false)] {
            let mut stage = Stage::new();
            stage.configure(WEB, "Web", 4, designated);
            // That of another purge does not count.
            stage.pod("web-d4f3a-00-x7k2p", "n1", "Running", &["web"]);
            stage.pod(POD, node, "Running", &["web"]);
            stage.start();
            stage.until("a status", |_| stage.published(WEB).is_some()).await;
            let told = stage.status(WEB).unwrap();
            assert_eq!((told.is_dnid_node, told.scheduled_on_this_node), (designated, here));
            assert_eq!((told.app_kube_status.number(), told.app_is_vmi), (4, false));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_that_is_away_for_two_minutes_is_told_once_and_one_that_is_back_at_once() {
    for fault in [ScriptedFault::Cut, ScriptedFault::Hang, ScriptedFault::status(503, "ServiceUnavailable")] {
        let stage = Stage::web().await;
        stage.sim.faults().script("GET", "/pods", u32::MAX, fault.clone());
        stage.pass(Duration::from_secs(119)).await;
        assert_eq!(stage.kube_status(WEB), Some(4), "{fault:?}: too early");
        let late = stage.until_status(WEB, 1).await;
        assert!(late <= Duration::from_secs(100), "{fault:?}: {late:?}");
        assert!(!stage.status(WEB).unwrap().scheduled_on_this_node);
        stage.pass(Duration::from_secs(600)).await;
        stage.sim.faults().clear();
        let late = stage.until_status(WEB, 4).await;
        assert!(late <= Duration::from_secs(46), "{fault:?}: {late:?}");
        let log = stage.lines.text();
        assert_eq!(log.matches("cannot follow the pods of applications").count(), 1, "{log}");
        assert_eq!(log.matches("status=1").count(), 1, "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_goes_with_its_config_also_when_nobody_ran_meanwhile() {
    let mut stage = Stage::web().await;
    stage.configure(VM, "Ubuntu", 0, false);
    stage.until("the other one", |_| stage.published(VM).is_some()).await;
    stage.unconfigure(WEB);
    stage.until("it to go", |_| stage.published(WEB).is_none()).await;
    assert!(stage.published(VM).is_some());
    stage.kill().await;
    assert!(stage.published(VM).is_some(), "a crash takes nothing back");
    stage.unconfigure(VM);
    stage.start();
    stage.until("what was left to go", |_| stage.published(VM).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_run_said_stays_when_it_is_still_true() {
    let mut stage = Stage::web().await;
    stage.kill().await;
    stage.start();
    stage.pass(Duration::from_secs(60)).await;
    let log = stage.lines.text();
    assert_eq!(log.matches("application in the cluster").count(), 1, "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_node_without_applications_asks_for_nothing_and_one_with_some_lists_once() {
    let mut stage = Stage::new();
    stage.start();
    stage.pass(Duration::from_secs(600)).await;
    assert_eq!(stage.requests("/"), (0, 0));
    // Not designated: nothing but its status is wanted.
    stage.configure(WEB, "Web", 4, false);
    stage.pod(POD, "n1", "Running", &["web"]);
    stage.until("a status", |_| stage.published(WEB).is_some()).await;
    assert_eq!(stage.requests("/pods").1, 1);
    let before = stage.requests("/").0;
    stage.pass(Duration::from_secs(600)).await;
    let (all, lists) = stage.requests("/");
    assert_eq!(lists, 1);
    assert!((18..=21).contains(&(all - before)), "{}", all - before);
    // And none any more once it is gone.
    stage.unconfigure(WEB);
    stage.until("it to go", |_| stage.published(WEB).is_none()).await;
    let before = stage.requests("/").0;
    stage.pass(Duration::from_secs(600)).await;
    assert_eq!(stage.requests("/").0, before);
}
