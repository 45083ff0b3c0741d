//! The role for virtual machines: what a drain of a node that has some asks for besides.

use kubenodeop::machines::undo;
use kubenodeop::{AttemptRules, CordonAnnotation, DrainOrder, Progress, drain, node};
use scenarios::{UUID, World};
use tokio::sync::watch;

use super::{Clock, MACHINES_ROLE, granted, needed, order, our_node};
use crate::machines::add_machines;

#[tokio::test(start_paused = true)]
async fn s1_machines_ask_for_what_their_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    add_machines(&world, "hang").await;
    let (sim, handle) = (world.cluster.sim(), world.cluster.handle());
    let hand = "hand";
    sim.add_machine_on("shop", hand, "Manual", "edge-node-1", &serde_json::json!({}));
    sim.until("kubevirt/virtualmachineinstances", |all| {
        all.len() == 3 && all.iter().all(|it| it["status"]["phase"] == "Running")
    })
    .await;
    let node = our_node();
    let owner = CordonAnnotation { boot_id: "b".to_owned(), requested_by: 2, ..CordonAnnotation::default() };
    node::cordon(&handle, &node, UUID, &owner).await.unwrap();
    let order = DrainOrder { owner, ..order(AttemptRules::default()) };
    let clock = Clock::new();
    let (sender, mut progress) = watch::channel(Progress::default());
    let running = progress.wait_for(|it| {
        it.machines.iter().any(|it| it.reason.contains("phase Running"))
            && it.machines.iter().filter(|it| it.state == "gone").count() == 2
    });
    tokio::select! {
        outcome = drain(&handle, &order, || clock.now(), &sender) => panic!("{outcome:?}"),
        seen = running => drop(seen.unwrap()),
    }
    undo::take_back(&handle, &node).await.unwrap();
    undo::start_again(&handle, |of| of == "edge-node-1").await.unwrap();
    let granted = granted(&[MACHINES_ROLE]);
    let used: super::Grants = world.cluster.asked_by_agents().iter().filter_map(needed).collect();
    let others = super::granted(&["pillar-rs-node-drain"]);
    let missing: Vec<_> = used.iter().filter(|it| !granted.contains(it) && !others.contains(it)).collect();
    assert!(missing.is_empty(), "asked for, but not granted: {missing:?}");
    // Kubernetes sees `evacuate` as the subresource, virt-api all of it.
    let whole = |it: &&(String, String, String)| it.1 == "virtualmachineinstances/evacuate/cancel";
    let unused: Vec<_> = granted.difference(&used).filter(|it| !whole(it)).collect();
    assert!(unused.is_empty(), "granted, but never asked for: {unused:?}");
}
