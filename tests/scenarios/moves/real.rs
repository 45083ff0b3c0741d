//! The same on real KubeVirt: virt-api and virt-controller on a real API server with the real scheduler; handlers are
//! played.

use std::io::Write as _;

use scenarios::{KubeVirt, kubevirt_programs};

use super::*;

mod answers;

const MIGRATIONS: &str = "/apis/kubevirt.io/v1/virtualmachineinstancemigrations";

/// A device on a cluster with real KubeVirt, in a namespace named after our node, with machine `db` on it;
/// `None` with the reason printed where the environment names none.
#[expect(clippy::explicit_write, reason = "a test that passes must not swallow why it did nothing")]
async fn stage(what: &str) -> Option<(World, KubeVirt)> {
    let programs = match kubevirt_programs() {
        Ok(programs) => programs,
        Err(why) => {
            writeln!(std::io::stderr(), "skipped on real KubeVirt: {what}: {why}").unwrap();
            return None;
        }
    };
    let (cluster, kubevirt) = KubeVirt::start(&programs).await;
    cluster.guard_nothing().await;
    kubevirt.machine(cluster.device_name(), "db", cluster.device_name(), true).await;
    let mut world = World::on(cluster);
    world.patience = Duration::from_secs(180);
    Some((world, kubevirt))
}

async fn guest(world: &World, kubevirt: &KubeVirt, name: &str) -> Value {
    kubevirt.guest(world.cluster.device_name(), name).await
}

async fn machine(world: &World, kubevirt: &KubeVirt, name: &str) -> Value {
    let space = world.cluster.device_name();
    let path = format!("/apis/kubevirt.io/v1/namespaces/{space}/virtualmachines/{name}");
    kubevirt.door().done("GET", &path, &Value::Null).await
}

/// The progress names virt-api as the cause, and not the API server.
async fn named(world: &World) {
    let seen = world
        .progress("virt-api in the next step", |it| {
            it.next_step.contains("`kubectl get pods -A -l kubevirt.io=virt-api`")
        })
        .await;
    assert!(!seen.reason.contains("cannot be read"), "{}", seen.reason);
    assert!(!seen.next_step.contains("API server"), "{}", seen.next_step);
}

/// The machine's migration from our node hangs.
async fn leaving(world: &mut World, kubevirt: &KubeVirt) {
    kubevirt.hang(&["db"]);
    world.begin().await;
    kubevirt
        .until("the migration to run", || async {
            kubevirt.list(MIGRATIONS).await.iter().any(|it| it["status"]["phase"] == "Running")
        })
        .await;
}

/// No mark or migration is left, and the machine is where it was.
async fn taken_back(world: &World, kubevirt: &KubeVirt, uid: &Value) {
    kubevirt
        .until("the machine to be taken back", || async {
            let it = guest(world, kubevirt, "db").await;
            let over = |it: &Value| matches!(it["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            it["metadata"]["annotations"]["pillar-rs/drain-asked"].is_null()
                && it["status"]["evacuationNodeName"].as_str().unwrap_or_default().is_empty()
                && kubevirt.list(MIGRATIONS).await.iter().all(over)
        })
        .await;
    let it = guest(world, kubevirt, "db").await;
    assert_eq!((&it["metadata"]["uid"], &it["status"]["phase"]), (uid, &json!("Running")), "{it}");
    assert_eq!(it["status"]["nodeName"], world.cluster.device_name(), "{it}");
}

#[tokio::test]
async fn t2_real_a_drain_moves_one_machine_shuts_one_down_and_starts_it_again_after_the_boot() {
    let Some((mut world, kubevirt)) = stage("a whole reboot").await else { return };
    let node = world.cluster.device_name().to_owned();
    kubevirt.machine(&node, "own", &node, false).await;
    let before = guest(&world, &kubevirt, "db").await;
    world.begin().await;
    world.recorded_count(1).await;
    let moved = guest(&world, &kubevirt, "db").await;
    assert_eq!(moved["metadata"]["uid"], before["metadata"]["uid"], "it was never shut down");
    assert_ne!(moved["status"]["nodeName"], *node);
    assert_eq!(kubevirt.list(MIGRATIONS).await.len(), 1);
    assert_eq!(machine(&world, &kubevirt, "own").await["spec"]["runStrategy"], "Halted");
    assert!(guest(&world, &kubevirt, "own").await.is_null(), "it is off while its node is away");
    crate::comes_back(&mut world, 7).await;
    kubevirt
        .until("own to be up again", || async {
            guest(&world, &kubevirt, "own").await["status"]["phase"] == "Running"
        })
        .await;
    let own = machine(&world, &kubevirt, "own").await;
    assert_eq!(own["spec"]["runStrategy"], "Always");
    assert!(own["metadata"]["annotations"]["pillar-rs/drain-stopped"].is_null(), "{own}");
    assert_eq!(kubevirt.list(MIGRATIONS).await.len(), 1);
    world.kill_all().await;
}

/// virt-api is away before the drain begins, and then once a migration is under way: the drain waits, names
/// it, and continues.
#[tokio::test]
async fn t2_real_a_drain_waits_for_virt_api_and_goes_on_with_one_migration() {
    let Some((mut world, kubevirt)) = stage("virt-api away in a drain").await else { return };
    let before = guest(&world, &kubevirt, "db").await;
    kubevirt.hang(&["db"]);
    kubevirt.virt_api(false).await;
    world.begin().await;
    world
        .progress("the machine and virt-api", |it| {
            it.blockers.iter().any(|it| it.pod.ends_with("/db") && it.code == "webhook")
        })
        .await;
    named(&world).await;
    kubevirt.virt_api(true).await;
    kubevirt
        .until("the migration to run", || async {
            kubevirt.list(MIGRATIONS).await.iter().any(|it| it["status"]["phase"] == "Running")
        })
        .await;
    kubevirt.virt_api(false).await;
    kubevirt.hang(&[]);
    assert_eq!(world.recorded(), []);
    kubevirt.virt_api(true).await;
    world.recorded_count(1).await;
    let moved = guest(&world, &kubevirt, "db").await;
    assert_eq!(moved["metadata"]["uid"], before["metadata"]["uid"], "it was shut down");
    assert_ne!(moved["status"]["nodeName"], world.cluster.device_name());
    assert_eq!(kubevirt.list(MIGRATIONS).await.len(), 1);
    world.kill_all().await;
}

/// For every end of a drain while virt-api is away: our cordon goes at once and the rest later.
async fn uncordons(end: &str) {
    let Some((mut world, kubevirt)) = stage(&format!("virt-api away, the drain is over: {end}")).await else {
        return;
    };
    let uid = guest(&world, &kubevirt, "db").await["metadata"]["uid"].clone();
    if end == "failed" {
        world.limits["zedkube"]["drain_limit_ms"] = 30_000.into();
    }
    leaving(&mut world, &kubevirt).await;
    kubevirt.virt_api(false).await;
    away::ends(&mut world, end).await;
    uncordoned(&world, end).await;
    let it = guest(&world, &kubevirt, "db").await;
    assert!(!it["metadata"]["annotations"]["pillar-rs/drain-asked"].is_null(), "nobody could write it: {it}");
    world.ask_reboot(6);
    world.status(DrainStatus::NotRequested).await;
    named(&world).await;
    kubevirt.virt_api(true).await;
    taken_back(&world, &kubevirt, &uid).await;
    world.kill_all().await;
}

#[tokio::test]
async fn t2_real_our_cordon_goes_at_once_when_a_drain_is_withdrawn_while_virt_api_is_away() {
    uncordons("withdrawn").await;
}

#[tokio::test]
async fn t2_real_our_cordon_goes_at_once_when_a_drain_fails_while_virt_api_is_away() {
    uncordons("failed").await;
}

#[tokio::test]
async fn t2_real_our_cordon_goes_once_the_gate_is_open_while_virt_api_is_away() {
    uncordons("boot").await;
}

/// Both peers die, so only our node can run virt-api: the uncordon alone brings it back.
#[tokio::test]
async fn t2_real_where_only_our_node_can_run_virt_api_a_withdrawn_drain_ends_by_itself() {
    let Some((mut world, kubevirt)) = stage("virt-api without a node").await else { return };
    let uid = guest(&world, &kubevirt, "db").await["metadata"]["uid"].clone();
    world.limits["zedkube"]["take_turns"] = false.into();
    leaving(&mut world, &kubevirt).await;
    kubevirt.virt_api(false).await;
    kubevirt.down(kubevirt.peers()).await;
    kubevirt.allow_virt_api(true);
    let homeless =
        |it: &Value| it["status"]["conditions"].to_string().contains("1 node(s) were unschedulable");
    kubevirt
        .until("virt-api to have no node", || async {
            kubevirt.list("/api/v1/namespaces/kubevirt/pods").await.iter().any(homeless)
        })
        .await;
    world.ask_reboot(6);
    uncordoned(&world, "virt-api has no node").await;
    kubevirt.virt_api(true).await;
    taken_back(&world, &kubevirt, &uid).await;
    world.kill_all().await;
}
