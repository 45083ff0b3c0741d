//! Containers that end and begin again (D-K23).

use std::time::Duration;

use kubesim::ScriptedFault;
use serde_json::{Value, json};

use super::logs::numbers;
use super::stage::{APPS, POD, Stage, WEB};

#[tokio::test(start_paused = true)]
async fn d_k23_the_rest_of_a_run_is_told_once_before_the_next_run() {
    let stage = Stage::web().await;
    stage.write_lines(0..4);
    stage.until_said(4).await;
    for restarts in 1..6 {
        let first = 4 * i64::from(restarts);
        // Written and ended between two rounds.
        stage.write_lines(first..first + 2);
        stage.sim.renew_log(APPS, POD, "web");
        stage.run(POD, "web", restarts);
        stage.write_lines(first + 2..first + 4);
        stage.until_said(usize::try_from(first).unwrap() + 4).await;
        stage.pass(Duration::from_secs(15)).await;
    }
    assert_eq!(stage.said.messages(), numbers(0..24));
}

#[tokio::test(start_paused = true)]
async fn d_k23_a_new_run_that_is_read_before_its_status_is_told_once_and_loses_nothing() {
    let stage = Stage::web().await;
    stage.write_lines(0..4);
    stage.until_said(4).await;
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
    let stage = Stage::web().await;
    stage.write_lines(0..2);
    stage.until_said(2).await;
    stage.write_lines(2..3);
    // The last line has no end.
    stage.sim.log_part(APPS, POD, "web", &super::logs::at(9_000_000), "3");
    stage.sim.run_container(APPS, POD, "web", 0, &json!({ "terminated": { "exitCode": 1 } }));
    assert!(stage.until_said(4).await <= Duration::from_secs(1), "it is read at once");
    let asked = stage.requests("/log").0;
    stage.pass(Duration::from_secs(120)).await;
    assert_eq!((stage.requests("/log").0, stage.said.messages()), (asked, numbers(0..4)));
    // It begins again: what came before is known.
    stage.sim.renew_log(APPS, POD, "web");
    stage.run(POD, "web", 1);
    stage.sim.log(APPS, POD, "web", &super::logs::at(10_000_000), "4");
    stage.until_said(5).await;
    stage.pass(Duration::from_secs(30)).await;
    assert_eq!(stage.said.messages(), numbers(0..5));
}

#[tokio::test(start_paused = true)]
async fn d_k23_the_last_words_of_a_pod_are_told_before_it_goes() {
    let asked = |pod: &mut Value| pod["metadata"]["deletionTimestamp"] = "2026-03-14T09:26:53Z".into();
    let failed = |pod: &mut Value| pod["status"]["phase"] = "Failed".into();
    let ends: [fn(&mut Value); 2] = [asked, failed];
    for (nth, end) in ends.into_iter().enumerate() {
        let stage = Stage::web().await;
        stage.write_lines(0..2);
        stage.until_said(2).await;
        assert!(stage.sim.edit("pods", APPS, POD, end));
        stage.pass(Duration::from_secs(3)).await;
        stage.write_lines(2..4);
        stage.pass(Duration::from_secs(2)).await;
        assert!(stage.sim.remove("pods", APPS, POD));
        stage.pass(Duration::from_secs(30)).await;
        assert_eq!(stage.said.messages(), numbers(0..4), "{nth}");
        // One that came and went: none of its lines is known.
        let mut stage = Stage::new();
        stage.configure(WEB, "Web", 4, true);
        stage.pod(POD, "n1", "Running", &["web"]);
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
    let stage = Stage::web().await;
    stage.write_lines(0..2);
    stage.until_said(2).await;
    stage.sim.rotate_log(APPS, POD, "web");
    // There is none before it.
    stage.run(POD, "web", 1);
    stage.write_lines(2..4);
    stage.until_said(4).await;
    assert_eq!(stage.said.messages(), numbers(0..4));
    assert!(stage.sim.faults().count("GET", "previous=true") >= 1);
}

#[tokio::test(start_paused = true)]
async fn marks_go_with_their_pod_and_another_pod_of_the_same_application_is_read_from_its_beginning() {
    let stage = Stage::web().await;
    stage.write_lines(0..2);
    stage.until_said(2).await;
    let marks = || {
        let file = stage.topic_root.path(&format!("run/zedkube/AppLogMarks/{WEB}.json"));
        std::fs::read_to_string(file).unwrap_or_default()
    };
    assert!(marks().contains(POD));
    let next = "web-d4f3a-0-bbbbb";
    stage.pod(next, "n2", "Running", &["web"]);
    stage.sim.log(APPS, next, "web", &super::logs::at(1), "2");
    assert!(stage.sim.remove("pods", APPS, POD));
    stage.until_said(3).await;
    stage.pass(Duration::from_secs(30)).await;
    assert_eq!(stage.said.messages(), numbers(0..3));
    assert!(marks().contains(next) && !marks().contains(POD), "{}", marks());
    assert!(stage.sim.remove("pods", APPS, next));
    stage.until("no marks", |_| marks().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn while_pods_cannot_be_followed_nothing_is_read_and_all_is_told_after() {
    let stage = Stage::web().await;
    stage.write_lines(0..2);
    stage.until_said(2).await;
    stage.sim.faults().script("GET", "/eve-kube-app/pods", u32::MAX, ScriptedFault::Cut);
    stage.pass(Duration::from_secs(60)).await;
    let asked = stage.requests("/log").0;
    stage.write_lines(2..4);
    stage.sim.renew_log(APPS, POD, "web");
    stage.run(POD, "web", 1);
    stage.write_lines(4..6);
    stage.pass(Duration::from_secs(300)).await;
    assert_eq!(stage.requests("/log").0, asked);
    stage.sim.faults().clear();
    stage.until_said(6).await;
    stage.pass(Duration::from_secs(30)).await;
    assert_eq!(stage.said.messages(), numbers(0..6));
}
