//! The role of second copies of Deployments.

use std::time::Duration;

use kubeapi::NodeName;
use kubenodeop::SurgeRule;
use kubenodeop::calls::surge::{self, SurgeAnswer};
use kubenodeop::pods;
use scenarios::World;

use super::granted_and_used;

#[tokio::test(start_paused = true)]
async fn s1_a_second_copy_asks_for_what_its_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    let (sim, cluster) = (world.cluster.sim(), world.cluster.handle());
    sim.add_deployment("shop", "solo", 1);
    let runs = |it: &serde_json::Value| {
        it["metadata"]["labels"]["app"] == "solo" && it["status"]["conditions"][0]["status"] == "True"
    };
    sim.until("pods", |all| all.iter().any(runs)).await;
    let pod = sim.list("pods").into_iter().find(runs).unwrap();
    let node = NodeName::parse(pod["spec"]["nodeName"].as_str().unwrap()).unwrap();
    // The second copy has no place to come up on, however long the calls take.
    for place in sim.list("nodes") {
        let name = place["metadata"]["name"].as_str().unwrap();
        sim.edit("nodes", "", name, |it| it["spec"]["unschedulable"] = true.into());
    }
    let all = pods::list(&cluster, &node).await.unwrap();
    let facts = all.into_iter().find(|it| it.pod.name.starts_with("solo-")).unwrap();
    let before = world.cluster.asked_by_agents().len();
    let answer = surge::surge(&cluster, &node, SurgeRule::All, (&facts, None)).await.unwrap();
    assert_eq!(answer, SurgeAnswer::UnderWay("shop/solo".to_owned()));
    let over = Some(Duration::from_secs(1));
    let answer = surge::surge(&cluster, &node, SurgeRule::All, (&facts, over)).await.unwrap();
    assert!(matches!(answer, SurgeAnswer::Without(_)), "{answer:?}");
    surge::settle(&cluster, &node, true).await.1.unwrap();
    granted_and_used(&["pillar-rs-surge"], &world.cluster.asked_by_agents()[before..]);
}
