//! A reboot withdrawn in each phase of a migration, and while a machine is shut down: within five seconds no
//! migration begins any more, and marks are undone.

use agent::Clock;
use scenarios::within_still;

use super::*;

const LIMIT: Duration = Duration::from_secs(5);
/// Longer than KubeVirt's pauses before a retry.
const LATER: Duration = Duration::from_secs(400);

/// Phases of a migration, `marked` before there is one, and `off` for a machine that was shut down.
const PHASES: &str =
    "marked new Pending Scheduling Scheduled PreparingTarget TargetReady Running PostCopy off";

async fn withdrawn(version: &str) {
    // Phases are long enough for a withdrawal within one.
    let config = SimConfig { phase_time: Duration::from_secs(20), ..SimConfig::default() };
    let mut world = world(config, version).await;
    let (sim, clock) = (world.cluster.sim().clone(), Clock::new());
    sim.add_machine_on("shop", "db", "Always", NODE, &migratable());
    up(&sim, 1).await;
    world.start_all();
    let uid = || sim.get(GUESTS, "shop", "db").map(|it| it["metadata"]["uid"].clone()).unwrap_or_default();
    let migrations = || -> BTreeSet<String> {
        sim.list(MIGRATIONS).iter().map(|it| it["metadata"]["uid"].to_string()).collect()
    };
    let first = uid();
    for (nth, phase) in (7..).zip(PHASES.split(' ')) {
        let what = format!("KubeVirt {version}, {phase}");
        world.status(DrainStatus::NotRequested).await;
        let outcome = match phase {
            "PostCopy" => "post-copy",
            "Running" => "hang",
            _ => "succeed",
        };
        sim.script_migrations("shop", "db", outcome);
        annotate(
            &sim,
            MACHINES,
            "db",
            "pillar-rs/drain-policy",
            if phase == "off" { "shutdown" } else { "migrate-or-shutdown" },
        );
        let before = migrations();
        world.ask_reboot(nth);
        let open = |it: &&Value| !matches!(it["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let now = |all: &[Value]| {
            all.iter().find(open).map(|it| it["status"]["phase"].as_str().unwrap_or("new").to_owned())
        };
        match phase {
            "marked" => until(&sim, GUESTS, |all| all[0]["status"]["evacuationNodeName"] == NODE).await,
            "PostCopy" => {
                until(&sim, GUESTS, |all| all[0]["status"]["migrationState"]["mode"] == "PostCopy").await;
            }
            "off" => until(&sim, GUESTS, <[Value]>::is_empty).await,
            _ => until(&sim, MIGRATIONS, |all| now(all).as_deref() == Some(phase)).await,
        }
        let asked = clock.now();
        world.ask_reboot(6);
        let unmarked =
            |it: &Value| it["status"]["evacuationNodeName"].as_str().unwrap_or_default().is_empty();
        if phase != "PostCopy" {
            until(&sim, GUESTS, |all| all.iter().all(unmarked)).await;
            until(&sim, MIGRATIONS, |all| {
                all.iter().filter(open).all(|it| !it["metadata"]["deletionTimestamp"].is_null())
            })
            .await;
        }
        world.cluster.until_schedulable().await;
        assert!(clock.now().since(asked) <= LIMIT, "{what}: {:?}", clock.now().since(asked));
        clock.sleep_until(Some(asked + LIMIT)).await;
        let begun = migrations();
        assert!(begun.difference(&before).count() <= 1, "{what}");
        if phase == "PostCopy" {
            // It cannot be aborted, and arrives.
            let open: Vec<Value> = sim.list(MIGRATIONS).into_iter().filter(|it| open(&it)).collect();
            assert!(
                open.len() == 1 && open[0]["metadata"]["deletionTimestamp"].is_null(),
                "{what}: {open:?}"
            );
            sim.script_migrations("shop", "db", "succeed");
            until(&sim, GUESTS, |all| all[0]["status"]["nodeName"] != NODE).await;
        }
        clock.sleep_until(Some(asked + LATER)).await;
        assert!(migrations().is_subset(&begun), "{what}: another migration began after {LIMIT:?}");
        assert_eq!(world.recorded(), [], "{what}");
        let guest = sim.get(GUESTS, "shop", "db").unwrap();
        assert_eq!(guest["status"]["phase"], "Running", "{what}");
        let machine = sim.get(MACHINES, "shop", "db").unwrap();
        assert_eq!(machine["spec"]["runStrategy"], "Always", "{what}");
        assert!(guest["metadata"]["annotations"]["pillar-rs/drain-asked"].is_null(), "{what}");
        assert_eq!(uid() == first, phase != "off", "{what}");
        if phase == "PostCopy" {
            // Back to our node, for the next row.
            let back = json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
                "metadata": { "name": "back", "namespace": "shop" },
                "spec": { "vmiName": "db", "addedNodeSelector": { "kubernetes.io/hostname": NODE } },
            });
            sim.apply(MIGRATIONS, back);
            until(&sim, GUESTS, |all| all[0]["status"]["nodeName"] == NODE).await;
        }
    }
    world.kill_all().await;
}

#[test]
fn d19_within_five_seconds_of_a_withdrawal_in_any_phase_no_migration_begins_any_more() {
    for version in ["v1.7.3", "v1.9.0"] {
        within_still(Box::pin(withdrawn(version)));
    }
}
