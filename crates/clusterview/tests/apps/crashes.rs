//! zedkube that ends and begins again, and whoever reads the pipe (D-K23).

use std::time::Duration;

use clusterview::apps::Pipe;
use kubesim::ScriptedFault;

use super::logs::numbers;
use super::stage::{APPS, POD, Stage, WEB};

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
    let mut stage = Stage::new();
    stage.configure(WEB, "Web", 4, true);
    stage.pod(POD, "n1", "Running", &["web"]);
    stage.write_lines(0..100);
    let (pipe, _reader) = tokio::io::duplex(64);
    stage.start_into(Pipe::new(pipe));
    stage.until("a status", |stage| stage.kube_status(WEB) == Some(4)).await;
    stage.pass(Duration::from_secs(60)).await;
    stage.pod(POD, "n1", "Pending", &["web"]);
    let late = stage.until("another status", |stage| stage.kube_status(WEB) == Some(3)).await;
    assert!(late <= Duration::from_secs(1), "{late:?}");
    let began = stage.now();
    stage.leave().await;
    assert!(stage.now().since(began) <= Duration::from_secs(2));
    // What was not handed on is reported by the next run.
    stage.start();
    stage.until_said(100).await;
    assert_eq!(stage.said.messages(), numbers(0..100));
}

#[tokio::test(start_paused = true)]
async fn a_pipe_that_is_closed_is_told_once_and_nothing_is_marked() {
    let mut stage = Stage::new();
    stage.configure(WEB, "Web", 4, true);
    stage.pod(POD, "n1", "Running", &["web"]);
    stage.write_lines(0..3);
    let (pipe, reader) = tokio::io::duplex(64);
    drop(reader);
    stage.start_into(Pipe::new(pipe));
    stage.pass(Duration::from_secs(120)).await;
    let log = stage.lines.text();
    assert_eq!(log.matches("logs of applications are held up").count(), 1, "{log}");
    stage.kill().await;
    stage.start();
    stage.until_said(3).await;
    assert_eq!(stage.said.messages(), numbers(0..3));
}

#[tokio::test(start_paused = true)]
async fn marks_that_cannot_be_read_tell_everything_again_rather_than_nothing() {
    let mut stage = Stage::web().await;
    stage.write_lines(0..2);
    stage.until_said(2).await;
    stage.kill().await;
    let file = stage.topic_root.path(&format!("run/zedkube/AppLogMarks/{WEB}.json"));
    pubsub::store::replace(&file, b"{").unwrap();
    stage.start();
    stage.until_said(4).await;
    assert_eq!(stage.said.messages(), ["0", "1", "0", "1"]);
}
