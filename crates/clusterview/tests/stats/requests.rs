//! What the statistics cost the API server while they continue.

use std::time::Duration;

use kubesim::{Sim, SimConfig};

use super::stage::Stage;
use super::{crowd, seeds};

#[tokio::test(start_paused = true)]
async fn no_list_is_asked_for_in_steady_state_however_much_happens() {
    let stage = Stage::new();
    seeds::golden(&stage.sim);
    crowd::crowd(&stage.sim, 3, 300);
    stage.lead(Duration::from_hours(1));
    stage.until("the cluster", |_| true).await;
    // Ten parts, 321 pods in pages of 250.
    assert_eq!(stage.requests(), (21, 11), "an opening");
    for second in 0..600 {
        let name = format!("application-{:05}-0-abcde", second % 300);
        assert!(stage.sim.edit("pods", "eve-kube-app", &name, |pod| {
            pod["status"]["containerStatuses"][0]["restartCount"] = second.into();
        }));
        stage.pass(Duration::from_secs(1)).await;
    }
    let (all, lists) = stage.requests();
    assert_eq!((all, lists), (41, 11), "each watch is opened anew every four minutes");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_leads_to_one_list_of_each_part() {
    let stage = Stage::on(Sim::new(SimConfig { history: 50, ..SimConfig::default() }));
    seeds::golden(&stage.sim);
    stage.lead(Duration::from_hours(1));
    let whole = stage.until("the cluster", |_| true).await;
    let lists = stage.requests().1;
    stage.sim.expire_watches();
    stage.pass(Duration::from_secs(600)).await;
    assert_eq!(stage.requests().1, lists + 10);
    assert_eq!(stage.info().unwrap(), whole);
}
