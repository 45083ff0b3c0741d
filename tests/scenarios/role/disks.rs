//! The role for room on the disks of the node.

use kubenodeop::storage::reserve;
use scenarios::World;

use super::{DISKS_ROLE, granted_and_used, our_node};

#[tokio::test(start_paused = true)]
async fn s1_room_on_disks_asks_for_what_its_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    let sim = world.cluster.sim();
    sim.add_longhorn("");
    sim.until("longhorn/nodes", |all| all.len() == 3).await;
    let disks = reserve(&world.cluster.handle(), &our_node(), 2 << 30).await.unwrap().unwrap();
    assert_eq!(disks, ["default"]);
    granted_and_used(&[DISKS_ROLE], &world.cluster.asked_by_agents());
}
