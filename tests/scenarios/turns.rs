//! Three to five nodes that are ordered to reboot together, with random troubles.
//!
//! The soak of zedbox repeats this any number of times: `cargo test -p zedbox --test soak -- --turns 200`.

use std::hash::{BuildHasher as _, RandomState};

use topics::DrainStatus;

use scenarios::{AT_ONCE, Cluster, World, by_chance, turns_in_trouble, within_still};

/// Each takes some ten minutes of the agents' clock, and seconds of a machine.
const RUNS: u64 = 10;

#[test]
fn u1_u14_nodes_told_together_go_one_at_a_time_whatever_happens_to_them_and_to_the_lease() {
    let seed = RandomState::new().hash_one(0);
    println!("as `cargo test -p zedbox --test soak -- --turns {RUNS} --seed {seed}`");
    let outcome =
        by_chance("turns", seed, (RUNS, AT_ONCE), |dice| within_still(turns_in_trouble(dice, None, None)));
    assert!(outcome.violations.is_empty(), "{}", outcome.violations.join("\n\n"));
    assert_eq!(outcome.runs, usize::try_from(RUNS).unwrap());
}

pub(crate) async fn u1_two_nodes_told_together_are_never_cordoned_together(cluster: Cluster) {
    // Its pods are not replaced elsewhere.
    cluster.guard_nothing().await;
    let other = cluster.as_node(1);
    let mut both = [World::on(cluster), World::on(other)];
    for world in &mut both {
        crate::starts(world).await;
    }
    for world in &both {
        world.ask_reboot(7);
    }
    let [first, second] = &mut both;
    let (cluster, other) = (first.cluster.clone(), second.cluster.clone());
    let clusters = [cluster.clone(), other];
    tokio::select! {
        _ = async { tokio::join!(reboot(first), reboot(second)) } => {}
        () = Cluster::until_two_out(&clusters) => panic!("both nodes carry our cordon"),
    }
    cluster.tear_down().await;
}

async fn reboot(world: &mut World) {
    world.recorded_count(1).await;
    crate::comes_back(world, 7).await;
    world.status(DrainStatus::NotRequested).await;
    assert_eq!(world.recorded().len(), 1);
    world.kill_all().await;
}
