//! Long lists are read page by page, and are of one moment all the same.

use std::time::Duration;

use kube::Client;
use kubeapi::{ApiClient, NodeName};
use kubenodeop::calls::pods;
use kubesim::{ScriptedFault, Sim, SimConfig};
use tokio::time::sleep;

const PODS: usize = 1100;

fn cluster() -> (Sim, ApiClient) {
    let sim = Sim::new(SimConfig::default());
    sim.add_node("n1", "uuid-1");
    for number in 0..PODS {
        sim.add_bare_pod("shop", &format!("pod-{number:04}"), "n1");
    }
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    (sim, cluster)
}

/// What is asked for, in a word, while something happens after the first page.
async fn listed(sim: &Sim, cluster: &ApiClient, amid: impl FnOnce(&Sim)) -> (Vec<String>, Vec<&'static str>) {
    let second = Duration::from_secs(1);
    sim.faults().script("GET", "/api/v1/pods", u32::MAX, ScriptedFault::Delay(second));
    let node = NodeName::parse("n1").unwrap();
    let (found, ()) = tokio::join!(pods::list(cluster, &node), async {
        sleep(second * 3 / 2).await;
        amid(sim);
    });
    let seen = sim.faults().requests();
    let lists = seen.iter().filter(|it| it.uri.starts_with("/api/v1/pods?"));
    let word = |uri: &str| match (uri.contains("limit=250"), uri.contains("continue=")) {
        (true, false) => "first",
        (true, true) => "next",
        (false, _) => "all",
    };
    (found.unwrap().into_iter().map(|it| it.pod.name).collect(), lists.map(|it| word(&it.uri)).collect())
}

#[tokio::test(start_paused = true)]
async fn a_long_list_is_read_in_pages_that_are_of_one_moment() {
    let (sim, cluster) = cluster();
    let (names, asked) = listed(&sim, &cluster, |sim| {
        assert!(sim.remove("pods", "shop", "pod-0000"));
        assert!(sim.remove("pods", "shop", "pod-1099"));
    })
    .await;
    assert_eq!((names.len(), asked), (PODS, vec!["first", "next", "next", "next", "next"]));
    assert_eq!((names[0].as_str(), names[PODS - 1].as_str()), ("pod-0000", "pod-1099"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_old_is_no_error_the_whole_list_is_read_at_once() {
    let (sim, cluster) = cluster();
    let (names, asked) = listed(&sim, &cluster, |sim| {
        assert!(sim.remove("pods", "shop", "pod-0000"));
        sim.expire_watches();
    })
    .await;
    assert_eq!((names.len(), asked), (PODS - 1, vec!["first", "next", "all"]));
    assert_eq!(names[0], "pod-0001");
}
