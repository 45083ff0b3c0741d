//! Lines of containers, handed on.

use std::time::Duration;

use kubesim::ScriptedFault;
use serde_json::json;

use super::stage::{APPS, LAUNCHER, POD, Stage, VM, WEB};

/// The moment `nanos` after the beginning.
pub(crate) fn at(nanos: i64) -> String {
    let begin = 1_773_480_600_000_000_000_i128;
    jiff::Timestamp::from_nanosecond(begin + i128::from(nanos)).unwrap().to_string()
}

impl Stage {
    /// The native application writes a line for each number, two in each millisecond.
    pub(crate) fn write_lines(&self, numbers: std::ops::Range<i64>) {
        for nth in numbers {
            self.sim.log(APPS, POD, "web", &at(nth / 2 * 1_000_000), &nth.to_string());
        }
    }

    pub(crate) async fn until_said(&self, count: usize) -> Duration {
        self.until(&format!("{count} lines"), |stage| stage.said.messages().len() >= count).await
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
        stage.until("a pod that does not run", |stage| stage.kube_status(WEB) == Some(3)).await;
        stage.sim.faults().clear();
        stage.until("its lines", |stage| stage.said.of(VM) == ["boots"]).await;
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
    let numbers: Vec<String> =
        stage.said.messages().iter().map(|it| it.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(numbers, self::numbers(0..1500));
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
    let stage = Stage::web().await;
    stage.write_lines(0..10);
    stage.until_said(10).await;
    stage.sim.rotate_log(APPS, POD, "web");
    stage.write_lines(10..12);
    assert!(stage.until_said(12).await <= Duration::from_secs(13));
    stage.write_lines(12..14);
    stage.until_said(14).await;
    assert_eq!(stage.said.messages(), numbers(0..14));
}
