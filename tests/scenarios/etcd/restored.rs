//! A real etcd that is restored from a copy, in each phase of a turn.
//!
//! The nodes are workers: a server's margin is tested elsewhere.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use agent::Clock;
use agent::device::DeviceChoice;
use outage::operator;
use outage::turn::rule::with_limit;
use scenarios::{
    Cluster, NO_ETCD, RealEtcd, SKIPPED, World, assets, etcd_programs, etcd_version, reboot_config,
};
use topics::{DrainPhase, DrainStatus};

use super::real::skipped;
use crate::say;

/// Sooner than a silent watch is given up.
const SOON: Duration = Duration::from_secs(60);

/// etcd, its API server, and copies of its data.
struct Store {
    etcd: RealEtcd,
    cluster: Cluster,
    copies: tempfile::TempDir,
}

impl Store {
    async fn copy(&mut self, name: &str) {
        let to = self.copies.path().join(name);
        self.etcd.stopped(|data| copied(data, &to)).await;
    }

    /// Restores etcd, and restarts the API server with it, as k3s does.
    async fn restore(&mut self, name: &str) {
        let from: PathBuf = self.copies.path().join(name);
        let back = |data: &Path| {
            std::fs::remove_dir_all(data).unwrap();
            copied(&from, data);
        };
        let (cluster, etcd) = (self.cluster.clone(), &mut self.etcd);
        cluster.without_api(async || etcd.stopped(back).await).await;
    }
}

fn copied(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
}

async fn starts(world: &mut World) {
    let boot = DeviceChoice::Record.boot_id(&world.topic_root).unwrap();
    world.cluster.reports_boot(&boot).await;
    world.start_all();
}

async fn waits(world: &World, words: &str) {
    world
        .progress(&format!("to wait: {words}"), |it| {
            it.phase == DrainPhase::WaitingForTurn && it.reason.contains(words)
        })
        .await;
}

#[tokio::test]
async fn t6_no_restore_of_etcd_takes_a_node_down_beside_the_holder_or_takes_a_cordon_or_stops_turns() {
    let what = "etcd restored in each phase of a turn";
    let (programs, Some(assets)) = (etcd_programs(), assets()) else { return skipped(what, SKIPPED) };
    if programs.is_empty() {
        return skipped(what, NO_ETCD);
    }
    for program in programs {
        if etcd_version(&program).starts_with("3.4.") {
            skipped(what, "kube-apiserver needs what etcd 3.4 does not have");
            continue;
        }
        let (clusters, etcd) = Cluster::kept_in_etcd(&assets, &program, 1).await;
        let store = Store { etcd, cluster: clusters[0].clone(), copies: tempfile::tempdir().unwrap() };
        let agents = &clusters[..2];
        tokio::select! {
            () = in_each_phase(store, &clusters) => {}
            () = Cluster::until_two_out(agents) => panic!("both nodes carry our cordon"),
        }
    }
}

/// Two nodes are ordered to reboot; a person has cordoned the third, for good.
async fn in_each_phase(mut store: Store, clusters: &[Cluster]) {
    let version = store.etcd.version.clone();
    let third = &clusters[2];
    third.cordon_by_hand().await;
    third.block().await;
    let mut worlds: Vec<World> = clusters[..2].iter().cloned().map(World::on).collect();
    for world in &mut worlds {
        world.patience *= 2;
        starts(world).await;
    }
    for world in &worlds {
        world.status(DrainStatus::NotRequested).await;
        world.config(&reboot_config(7));
    }
    for world in &worlds {
        waits(world, third.device_name()).await;
    }
    store.copy("waiting").await;

    // Before a turn is held.
    store.restore("waiting").await;
    say(&format!("etcd {version}: restored while both wait"));
    two_may_be_down(third).await;
    let ours = clusters[..2].iter().map(|it| Box::pin(it.until_ours()));
    let ((), nth, rest) = futures::future::select_all(ours).await;
    drop(rest);
    let mut holder = worlds.remove(nth);
    let mut other = worlds.remove(0);
    holder.status(DrainStatus::Cordoned).await;
    store.copy("draining").await;

    // The holder drains; etcd has no turn.
    store.restore("waiting").await;
    say(&format!("etcd {version}: restored while the holder drains"));
    two_may_be_down(third).await;
    holder.cluster.until_ours().await;
    waits(&other, "holds a turn").await;
    third.guard_nothing().await;
    holder.recorded_count(1).await;
    holder.kill_all().await;
    holder.cluster.power(false).await;
    holder.lose_run();

    // The holder is down; etcd shows it Ready and in service, and the other node's agents know no past.
    other.kill_all().await;
    store.restore("waiting").await;
    say(&format!("etcd {version}: restored while the holder is down"));
    two_may_be_down(third).await;
    third.guard_nothing().await;
    other.start_all();
    waits(&other, "has shown no sign of life for 40 s").await;
    assert_eq!((other.recorded(), other.cluster.cordoned().await), (vec![], false));
    holder.cluster.power(true).await;
    starts(&mut holder).await;
    holder.executed(7).await;
    other.recorded_count(1).await;
    other.reboot().await;
    starts(&mut other).await;
    other.executed(7).await;
    for world in [&holder, &other] {
        world.status(DrainStatus::NotRequested).await;
        world.cluster.until_schedulable().await;
    }

    // Both are in service; etcd shows the holder draining: our cordon goes, and the next turn comes.
    store.restore("draining").await;
    say(&format!("etcd {version}: restored after the return"));
    third.guard_nothing().await;
    let goes = tokio::time::timeout(SOON, holder.cluster.until_schedulable()).await;
    assert!(goes.is_ok(), "etcd {version}: our cordon of before is still there");
    other.config(&reboot_config(8));
    other.recorded_count(2).await;
    for world in [&mut holder, &mut other] {
        world.kill_all().await;
    }
    assert_eq!((holder.recorded().len(), other.recorded().len()), (1, 2));
    assert!(third.cordoned().await, "etcd {version}: a person's cordon is gone");
}

/// By a person's order, beside the third.
async fn two_may_be_down(cluster: &Cluster) {
    operator::change(&cluster.handle(), Clock::new().wall().to_timestamp(), |it| with_limit(it, 2))
        .await
        .unwrap();
}
