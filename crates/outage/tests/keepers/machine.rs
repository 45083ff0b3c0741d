//! The Node that bears this node's name was reported by another machine: no turn, and no last look.

use super::*;

/// The kubelet of `n0` reports this machine.
fn reported(sim: &Sim, boot: &str, machine: &str) {
    sim.edit("nodes", "", "n0", |node| {
        node["status"]["nodeInfo"]["bootID"] = boot.into();
        node["status"]["nodeInfo"]["machineID"] = machine.into();
    });
}

#[tokio::test(start_paused = true)]
async fn t10_a_node_that_another_machine_reports_gets_no_turn_and_no_last_look_and_both_are_named() {
    let sim = sim();
    sleep(Duration::from_secs(60)).await;
    reported(&sim, "boot-9", "machine-9");
    let mut keepers = JoinSet::new();
    let (asks, mut told) = keeper(&sim, 0, start(), &mut keepers);
    asks.send(reboot()).unwrap();
    let named =
        |why: &str| ["machineID machine-9", "machineID machine-0", "n0"].iter().all(|it| why.contains(it));
    until_waiting(&mut told, |it| named(&it.why)).await;
    // Before the kubelet has reported the boot, the installation is the same.
    reported(&sim, "boot-before", "machine-0");
    let held = until_held(&mut told).await;
    cordon(&sim, 0, Some(held));
    let mut look = async |number| look(&asks, &mut told, number).await;
    assert_eq!(look(1).await, Ok(()));
    reported(&sim, "boot-9", "machine-9");
    let Err(Unconfirmed::Unknown(why)) = look(2).await else { panic!("a look at another machine's node") };
    assert!(named(&why), "{why}");
    reported(&sim, "boot-0", "machine-9");
    assert_eq!(look(3).await, Ok(()), "the boot is this one");
}
