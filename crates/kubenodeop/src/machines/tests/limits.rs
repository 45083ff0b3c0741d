//! Limits of migrations, who sets them, and the estimate.

use serde_json::{Value, json};

use super::super::MigrationLimits;
use super::*;
use crate::machines::rules::{self, estimate, together, words};

fn policy(name: &str, guest: &Value, namespace: &Value, spec: &Value) -> Value {
    let mut policy = json!({ "metadata": { "name": name }, "spec": spec });
    policy["spec"]["selectors"] =
        json!({ "virtualMachineInstanceSelector": guest, "namespaceSelector": namespace });
    policy
}

#[test]
fn the_settings_go_behind_the_matching_policy_and_that_behind_a_migration_that_runs() {
    let mut guest = json!({ "metadata": { "labels": { "size": "big", "os": "linux" } },
        "status": { "migrationState": { "migrationUid": "m1",
            "migrationConfiguration": { "progressTimeout": 3, "bandwidthPerMigration": "1Mi" } } } });
    let namespace = json!({ "metadata": { "labels": { "team": "shop" } } });
    let spec =
        json!({ "completionTimeoutPerGiB": 10, "bandwidthPerMigration": "64Mi", "allowPostCopy": true });
    let policies = [policy("big", &json!({ "size": "big" }), &json!({}), &spec)];
    let of = |guest: &Value, migration| rules::of(&settings(), &policies, (guest, &namespace), migration);
    let (found, who) = of(&guest, None);
    assert_eq!(who, "MigrationPolicy big");
    assert_eq!(
        (found.completion_per_gib, found.progress, found.bandwidth),
        (Some(Duration::from_secs(10)), Some(Duration::from_secs(150)), Some(64 << 20))
    );
    assert!(found.post_copy && found.disrupts, "what is said of the one holds for the other");
    let (found, who) = of(&guest, Some("m1"));
    assert_eq!(
        (who.as_str(), found.progress, found.bandwidth),
        ("its migration", Some(Duration::from_secs(3)), Some(1 << 20))
    );
    // That of an earlier migration stays on the instance.
    assert_eq!(of(&guest, Some("m2")).1, "MigrationPolicy big");
    guest["metadata"]["labels"]["size"] = "small".into();
    assert_eq!(of(&guest, None), (settings().limits, "KubeVirt".to_owned()));
    // 0 is no limit.
    let none = settings().limits.with(&json!({ "bandwidthPerMigration": "0", "completionTimeoutPerGiB": 0 }));
    assert_eq!((none.bandwidth, none.completion_per_gib), (None, None));
}

#[test]
fn of_policies_the_one_with_the_most_labels_wins_then_with_the_most_of_the_guest_then_by_name() {
    let guest = json!({ "metadata": { "labels": { "a": "1", "b": "2" } } });
    let namespace = json!({ "metadata": { "labels": { "n": "1", "m": "2" } } });
    let bare = |name: &str, guest: &Value, namespace: &Value| policy(name, guest, namespace, &json!({}));
    let one = bare("one", &json!({ "a": "1" }), &json!({}));
    let space = bare("space", &json!({}), &json!({ "n": "1", "m": "2" }));
    let mixed = bare("mixed", &json!({ "a": "1" }), &json!({ "n": "1" }));
    let other = bare("other", &json!({ "a": "1" }), &json!({ "n": "1" }));
    let wrong = bare("wrong", &json!({ "a": "1", "b": "9" }), &json!({ "n": "1", "m": "2" }));
    let everybody = bare("everybody", &json!({}), &json!({}));
    let nobody = json!({ "metadata": { "name": "nobody" }, "spec": {} });
    let wins = |all: &[&Value]| {
        let all: Vec<Value> = all.iter().map(|it| (*it).clone()).collect();
        rules::policy(&all, &guest, &namespace).map(|it| it["metadata"]["name"].as_str().unwrap().to_owned())
    };
    assert_eq!(wins(&[&one, &space]).unwrap(), "space");
    assert_eq!(wins(&[&space, &mixed]).unwrap(), "mixed", "as many in all, more of the guest");
    assert_eq!(wins(&[&other, &mixed]).unwrap(), "mixed", "by name");
    assert_eq!(wins(&[&everybody, &one, &wrong]).unwrap(), "one");
    assert_eq!(wins(&[&everybody]).unwrap(), "everybody");
    assert_eq!(wins(&[&nobody, &wrong]), None);
}

#[test]
fn a_block_migration_copies_the_disks_that_no_other_node_can_mount() {
    let mut guest = json!({ "spec": { "domain": { "memory": { "guest": "1Gi" } } },
        "status": { "migrationMethod": "LiveMigration", "volumeStatus": [
            { "name": "own", "persistentVolumeClaimInfo":
                { "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "2Gi" } } },
            { "name": "shared", "persistentVolumeClaimInfo":
                { "accessModes": ["ReadWriteMany"], "capacity": { "storage": "9Gi" } } },
            { "name": "cd", "size": 1_073_741_824 }] } });
    assert_eq!(rules::bytes(&guest), 1 << 30);
    guest["status"]["migrationMethod"] = "BlockMigration".into();
    assert_eq!((rules::bytes(&guest), rules::copies_disks(&guest)), (4 << 30, true));
}

#[test]
fn the_estimate_is_size_by_bandwidth_within_the_limits_and_by_the_places_there_are() {
    let of = |bandwidth| VirtualMachine {
        limits: MigrationLimits { bandwidth, auto_converge: true, ..settings().limits },
        ..machine("db")
    };
    // 2 GiB.
    assert_eq!(estimate(&of(Some(64 << 20))), Some(Duration::from_secs(32)));
    assert_eq!(estimate(&of(Some(1 << 20))), Some(Duration::from_secs(300)), "KubeVirt ends it then");
    assert_eq!(estimate(&of(None)), None);
    let said = words(&of(Some(64 << 20)));
    assert_eq!(
        said,
        "live migration, pre-copy, auto-converge; estimated 32 s for 2048 MiB at 64 MiB/s, at most 300 s (limits of \
         KubeVirt)"
    );
    assert!(words(&of(None)).contains("no estimate as the bandwidth has no limit"));
    let all = |each: &[u64]| {
        let each: Vec<Duration> = each.iter().map(|it| Duration::from_secs(*it)).collect();
        together(&settings(), &each).as_secs()
    };
    assert_eq!(
        (all(&[]), all(&[30]), all(&[30, 30, 30, 30]), all(&[90, 10])),
        (0, 30, 60, 90),
        "two at a time"
    );
}
