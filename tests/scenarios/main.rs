//! Whole agents on real files and a cluster: as seen by a person at a device.
//!
//! Each test waits for states of the topics, never for a time. Limits shorten waits; rules and counts are a device's.
//! Most scenarios run twice: on the embedded cluster, and on a real API server when the environment names one.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

use std::io::Write as _;

use scenarios::{Cluster, SKIPPED, World};
use topics::DrainStatus;

mod begin;
mod boot;
mod etcd;
mod failover;
mod force;
mod look;
mod machines;
mod moves;
mod order;
mod person;
mod pods;
mod power;
mod reboot;
mod role;
mod site;
mod storage;
mod turns;
mod update;
mod windows;
mod withdraw;

/// All agents, and no drain is requested.
async fn starts(world: &mut World) {
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
}

/// The machine is up again, reboot `counter` counts as executed, and the node takes pods.
async fn comes_back(world: &mut World, counter: u32) {
    world.reboot().await;
    world.start_all();
    world.executed(counter).await;
    world.cluster.until_schedulable().await;
}

macro_rules! on_both {
    ($($room:ident::$name:ident),+ $(,)?) => {
        mod embedded { $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                crate::$room::$name(&mut scenarios::World::new().await).await;
            }
        )+ }

        mod real { $(
            #[tokio::test]
            async fn $name() {
                crate::on_a_real_server(stringify!($name), crate::$room::$name).await;
            }
        )+ }
    };
}

on_both! {
    reboot::a_reboot_is_drained_carried_out_once_and_the_node_comes_back,
    reboot::o3_a_reboot_is_shown_on_the_node_by_events_a_condition_and_an_annotation,
    reboot::a_reboot_that_the_controller_takes_back_gives_the_node_back,
    begin::p4_a_reboot_whose_requester_hears_nothing_but_complete_begins_within_ten_seconds,
    begin::p4_a_shutdown_whose_requester_hears_nothing_but_complete_begins_within_ten_seconds,
    begin::p4_an_update_whose_requester_hears_nothing_but_complete_begins_within_ten_seconds,
    reboot::r3_a_power_cut_before_the_reboot_runs_it_again_exactly_once,
    reboot::d_a12_a_broken_cluster_section_is_never_taken_for_leaving,
    reboot::a_device_config_that_is_lost_never_takes_the_node_out_of_its_cluster,
    reboot::a_node_in_no_cluster_reboots_without_a_drain,
    reboot::somebody_elses_cordon_is_kept_through_the_reboot,
    force::a_forced_complete_releases_the_waiting_reboot_and_is_used_up,
    force::a_forced_complete_for_the_update_does_not_release_the_reboot,
    force::a_refused_force_file_changes_nothing_and_is_explained,
    force::a_forced_not_supported_lets_the_reboot_go_ahead,
    update::an_image_is_switched_to_only_after_its_own_drain_and_then_booted,
    pods::d15_a_drain_over_its_limit_fails_is_undone_and_is_not_carried_out,
    windows::u9_outside_of_its_window_nothing_starts_but_by_a_persons_word,
    windows::u9_hooks_come_before_the_drain_before_the_reboot_and_after_the_boot,
    windows::u9_a_drain_that_is_withdrawn_while_zedkube_is_down_is_undone_after_its_start,
    person::x3_a_person_takes_the_machine_down_behind_a_drain_and_once,
    person::x3_an_order_that_is_withdrawn_gives_the_node_back_and_outlives_an_agent,
    person::x3_a_paused_node_is_not_rebooted_in_this_boot_or_the_next_until_a_person_says_so,
    person::x3_a_refused_reboot_gives_the_node_back_and_is_carried_out_once_it_may,
    update::p5_two_requesters_get_one_drain_and_an_answer_each,
}

/// Embedded cluster only: a real one would miss its node.
#[tokio::test(start_paused = true)]
async fn a_device_config_without_a_cluster_section_takes_the_node_out_after_an_announcement() {
    let mut world = World::new().await;
    reboot::a_device_config_without_a_cluster_section_takes_the_node_out_after_an_announcement(&mut world)
        .await;
}

/// Embedded cluster only, like the hooks' stand-in for kubectl.
#[tokio::test(start_paused = true)]
async fn seed_2_15_2_26_what_a_hook_scales_down_before_the_drain_is_up_again_after_the_boot() {
    let mut world = World::new().await;
    windows::what_a_hook_scales_down_is_up_again_after_the_boot(&mut world).await;
}

#[tokio::test(start_paused = true)]
async fn seed_2_15_what_a_hook_scales_down_before_the_drain_is_up_again_when_it_is_withdrawn() {
    let mut world = World::new().await;
    windows::what_a_hook_scales_down_is_up_again_when_the_operation_is_withdrawn(&mut world).await;
}

/// Prints why a test did nothing, past its captured output.
#[expect(clippy::explicit_write, reason = "a test that passes must not swallow why it did nothing")]
pub(crate) fn say(text: &str) {
    writeln!(std::io::stderr(), "{text}").unwrap();
}

/// The cluster that the environment names, or why `name` is skipped.
async fn real_cluster(name: &str) -> Option<Cluster> {
    let cluster = Cluster::of_environment().await;
    if cluster.is_none() {
        say(&format!("skipped on a real API server: {name}: {SKIPPED}"));
    }
    cluster
}

async fn on_a_real_server(name: &str, scenario: impl AsyncFnOnce(&mut World)) {
    if let Some(cluster) = real_cluster(name).await {
        played_on(cluster, scenario).await;
    }
}

async fn played_on(cluster: Cluster, scenario: impl AsyncFnOnce(&mut World)) {
    let mut world = World::on(cluster);
    scenario(&mut world).await;
    world.kill_all().await;
    world.cluster.tear_down().await;
}

/// The stage for real servers, tested on a server: the embedded cluster's, over HTTP.
async fn on_a_stranger(scenario: impl AsyncFnOnce(Cluster)) {
    let sim = kubesim::Sim::new(kubesim::SimConfig::default());
    let server = sim.serve().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubeconfig");
    pubsub::store::replace(&file, server.kubeconfig().as_bytes()).unwrap();
    scenario(Cluster::of_kubeconfig(&file).await).await;
    assert_eq!(sim.list("nodes").len(), 0, "the stage left nodes behind");
    assert_eq!(sim.list("pods").len(), 0, "the stage left pods behind");
}

#[tokio::test(start_paused = true)]
async fn the_stage_for_real_servers_plays_a_whole_reboot() {
    let reboot = reboot::a_reboot_is_drained_carried_out_once_and_the_node_comes_back;
    on_a_stranger(|cluster| played_on(cluster, reboot)).await;
}

#[tokio::test(start_paused = true)]
async fn the_stage_for_real_servers_plays_two_reboots() {
    on_a_stranger(turns::u1_two_nodes_told_together_are_never_cordoned_together).await;
}

#[tokio::test]
async fn u1_two_nodes_told_together_are_never_cordoned_together_on_a_real_server() {
    if let Some(cluster) = real_cluster("two nodes told together").await {
        turns::u1_two_nodes_told_together_are_never_cordoned_together(cluster).await;
    }
}

/// Embedded cluster only, where two hundred pods take no time.
#[tokio::test(start_paused = true)]
async fn u10_a_drain_of_200_pods_asks_for_little_more_than_its_evictions() {
    pods::u10_a_drain_of_200_pods_asks_for_little_more_than_its_evictions(&mut World::new().await).await;
}
