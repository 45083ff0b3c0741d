//! ENClusterAppStatus as a file.

use std::time::Duration;

use kubesim::ScriptedFault;

use super::stage::{LAUNCHER, POD, Stage, VM, WEB};

fn golden(sample: &str) -> String {
    let path = format!("{}/../../tests/golden/ENClusterAppStatus/{sample}.json", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_golden_samples_come_out_of_configs_and_pods_byte_for_byte() {
    let mut stage = Stage::new();
    stage.configure(WEB, "Web", 4, true);
    stage.configure(VM, "Ubuntu", 0, true);
    stage.pod(LAUNCHER, "n1", "Running", &["compute"]);
    stage.start();
    stage.until("no pod", |stage| stage.text(WEB) == Some(golden("not-in-cluster"))).await;
    stage.until("a machine", |stage| stage.text(VM) == Some(golden("vmi-running-dnid"))).await;
    // On this node, and not begun.
    stage.pod(POD, "n1", "Succeeded", &["web"]);
    stage.until("a pod", |stage| stage.text(WEB) == Some(golden("not-running"))).await;
    stage.sim.faults().script("GET", "/pods", u32::MAX, ScriptedFault::Cut);
    stage.until("the API away", |stage| stage.text(WEB) == Some(golden("api-unreachable"))).await;
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
            stage.until("a status", |stage| stage.text(WEB).is_some()).await;
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
        let late = stage.until("the API away", |stage| stage.kube_status(WEB) == Some(1)).await;
        assert!(late <= Duration::from_secs(100), "{fault:?}: {late:?}");
        assert!(!stage.status(WEB).unwrap().scheduled_on_this_node);
        stage.pass(Duration::from_secs(600)).await;
        stage.sim.faults().clear();
        let late = stage.until("the API back", |stage| stage.kube_status(WEB) == Some(4)).await;
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
    stage.until("the other one", |stage| stage.text(VM).is_some()).await;
    stage.unconfigure(WEB);
    stage.until("it to go", |stage| stage.text(WEB).is_none()).await;
    assert!(stage.text(VM).is_some());
    stage.kill().await;
    assert!(stage.text(VM).is_some(), "a crash takes nothing back");
    stage.unconfigure(VM);
    stage.start();
    stage.until("what was left to go", |stage| stage.text(VM).is_none()).await;
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
    stage.until("a status", |stage| stage.text(WEB).is_some()).await;
    assert_eq!(stage.requests("/pods").1, 1);
    let before = stage.requests("/").0;
    stage.pass(Duration::from_secs(600)).await;
    let (all, lists) = stage.requests("/");
    assert_eq!(lists, 1);
    assert!((18..=21).contains(&(all - before)), "{}", all - before);
    // And none any more once it is gone.
    stage.unconfigure(WEB);
    stage.until("it to go", |stage| stage.text(WEB).is_none()).await;
    let before = stage.requests("/").0;
    stage.pass(Duration::from_secs(600)).await;
    assert_eq!(stage.requests("/").0, before);
}
