//! Each row of what becomes of a machine.
//!
//! Limits of migrations, who sets them, and the estimate.

use kubeapi::machines::{MachineAction, Stopped};
use serde_json::{Value, json};

use super::super::rules::{Action, FLAPPING};
use super::super::{MachineDisk, MigrationLimits};
use super::*;
use crate::machines::rules::{self, estimate, together, words};
use crate::progress::{BlockCode, MachineState};

const ALL: [MachinePolicy; 4] = [
    MachinePolicy::MigrateOrShutdown,
    MachinePolicy::MigrateOrHold,
    MachinePolicy::Shutdown,
    MachinePolicy::Fail,
];

fn word(decision: &Decision) -> &'static str {
    match &decision.act {
        None => "nothing",
        Some(Action::Mark(asked)) if asked.gave_up.is_empty() => "mark",
        Some(Action::Mark(_)) => "give-up",
        Some(Action::Evict(_)) => "evict",
        Some(Action::ClearMark) => "clear",
        Some(Action::DeleteMigration(_)) => "delete",
        Some(Action::Stop(_)) => "stop",
    }
}

/// One that this drain has asked for, and that KubeVirt has marked.
fn marked(migration: Option<Migration>) -> VirtualMachine {
    VirtualMachine { marked: true, asked: Some(asked()), migration, ..machine("db") }
}

fn worded(decision: &Decision) -> (&'static str, MachineState) {
    (word(decision), decision.state)
}

#[test]
fn d12_one_that_can_be_migrated_is_marked_then_evicted_then_followed_and_never_asked_twice() {
    use MachineState::{Asked, Gone, Moving, Waiting};
    let mut it = machine("db");
    assert_eq!(worded(&now(&it)), ("mark", Waiting));
    it.asked = Some(asked());
    assert_eq!(worded(&now(&it)), ("evict", Waiting));
    it.marked = true;
    assert_eq!(worded(&now(&it)), ("nothing", Asked));
    for phase in ["", "Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running"] {
        it.migration = Some(migration(phase));
        assert_eq!(worded(&now(&it)), ("nothing", Moving), "{phase}");
    }
    // Also where the mark is somebody else's, or a drain taint asked for it.
    let mut taint = VirtualMachine { migration: Some(migration("Running")), ..machine("db") };
    assert_eq!(worded(&now(&taint)), ("nothing", Moving));
    // Moved: the source pod that has Succeeded is no launcher any more, and holds nothing up.
    (it.here, it.node, it.marked, it.migration) = (false, "n2".into(), false, None);
    assert_eq!(worded(&now(&it)), ("nothing", Moving), "its pod here has not ended yet");
    it.launchers.clear();
    assert_eq!(worded(&now(&it)), ("nothing", Gone));
    taint.launchers.clear();
    assert!(taint.here);
    assert_ne!(now(&taint).state, Gone, "its instance says that it is here");
}

#[test]
fn d12_one_that_cannot_be_migrated_follows_its_policy_for_each_reason() {
    use MachineState::{Failed, Held, ShuttingDown};
    let reasons = "InterfaceNotLiveMigratable CPUModeLiveMigratable HostDeviceNotLiveMigratable SEVNotLiveMigratable \
        TDXNotLiveMigratable SecureExecutionNotLiveMigratable NoTSCFrequencyNotLiveMigratable \
        HypervPassthroughNotLiveMigratable DisksNotLiveMigratable PausedIOError";
    for reason in reasons.split(' ') {
        let stops = ("stop", ShuttingDown);
        for (policy, expected) in ALL.into_iter().zip([stops, ("nothing", Held), stops, ("nothing", Failed)])
        {
            let it = VirtualMachine { migratable: no(reason), policy, ..machine("db") };
            let found = now(&it);
            assert_eq!(worded(&found), expected, "{reason} {policy:?}");
            assert!(policy == MachinePolicy::Shutdown || found.text.contains(reason), "{}", found.text);
        }
    }
    // No peer fits: none is asked for, as KubeVirt would try for ever.
    let nowhere = VirtualMachine { target: Err("node n2 is cordoned".into()), ..machine("db") };
    assert_eq!(worded(&now(&nowhere)), ("stop", ShuttingDown));
    assert!(now(&nowhere).text.contains("node n2 is cordoned"));
    let held = VirtualMachine { policy: MachinePolicy::MigrateOrHold, ..nowhere };
    assert_eq!(worded(&now(&held)), ("nothing", Held));
}

#[test]
fn d12_a_reason_that_kubevirt_does_not_know_is_no_reason_to_evict_as_it_would_migrate() {
    for reason in ["PausedIOError", FLAPPING] {
        let it = |owner| VirtualMachine {
            strategy: EvictionStrategy::LiveMigrateIfPossible,
            migratable: no(reason),
            owner,
            ..machine("db")
        };
        assert_eq!(worded(&now(&it(vm("db", "Always")))), ("stop", MachineState::ShuttingDown), "{reason}");
        assert_eq!(worded(&now(&it(MachineOwner::Nobody))), ("nothing", MachineState::Held), "{reason}");
    }
}

#[test]
fn d12_a_machine_that_only_lacks_room_is_shut_down_once_that_lasts() {
    let it = VirtualMachine { target: Err("node n2 is full".into()), lacks_room: true, ..machine("db") };
    let waits = after(&it, 299);
    assert_eq!(worded(&waits), ("nothing", MachineState::Waiting));
    assert_eq!(waits.code, Some(BlockCode::NoOtherNode));
    assert_eq!(waits.text, "waits up to 300 s for room on another node: node n2 is full");
    assert_eq!(worded(&after(&it, 300)), ("stop", MachineState::ShuttingDown));
    // Where nothing is shut down, it is said at once.
    let held = VirtualMachine { policy: MachinePolicy::MigrateOrHold, ..it };
    assert_eq!(worded(&now(&held)), ("nothing", MachineState::Held));
}

#[test]
fn a_limit_without_end_is_no_panic() {
    let limits = MigrationLimits { completion_per_gib: Some(Duration::MAX), ..settings().limits };
    let it = VirtualMachine { limits, ..marked(Some(migration("Running"))) };
    assert_eq!(worded(&after(&it, 1 << 40)), ("nothing", MachineState::Moving));
}

#[test]
fn d12_under_hold_and_fail_no_launcher_is_evicted_that_would_be_shut_down() {
    for strategy in EvictionStrategy::ALL {
        for policy in [MachinePolicy::MigrateOrHold, MachinePolicy::Fail] {
            let other = MachineOwner::Other("x".into());
            for owner in [vm("db", "Always"), vm("db", "Manual"), other, MachineOwner::Nobody] {
                let (strategy, migratable) = (*strategy, no("x"));
                let it = VirtualMachine { strategy, migratable, owner, policy, ..machine("db") };
                assert_eq!(word(&now(&it)), "nothing", "{strategy:?} {policy:?}");
            }
        }
    }
}

#[test]
fn strategy_none_is_shut_down_by_the_eviction_only_where_somebody_starts_it_again_or_nobody_ever_would() {
    let none = |owner| VirtualMachine { strategy: EvictionStrategy::None, owner, ..machine("db") };
    let nowhere = |owner| VirtualMachine { target: Err("none".into()), ..none(owner) };
    let set = || MachineOwner::Other("VirtualMachineInstanceReplicaSet/app".into());
    assert_eq!(word(&now(&none(vm("db", "Always")))), "evict");
    assert_eq!(word(&now(&nowhere(vm("db", "Always")))), "stop");
    for strategy in ["RerunOnFailure", "Manual", "Once"] {
        assert_eq!(word(&now(&none(vm("db", strategy)))), "stop", "{strategy}: it would stay down");
    }
    assert_eq!(word(&now(&none(set()))), "evict");
    assert_eq!(word(&now(&nowhere(set()))), "evict", "it comes back by itself after the boot");
    let lonely = now(&none(MachineOwner::Nobody));
    assert_eq!(word(&lonely), "evict");
    assert!(lonely.left.contains("nobody starts it again"), "{}", lonely.left);
    // LiveMigrate that cannot be migrated: its eviction is refused for ever.
    for owner in [set(), MachineOwner::Nobody] {
        let it = VirtualMachine { migratable: no("DisksNotLiveMigratable"), owner, ..machine("db") };
        assert_eq!(worded(&now(&it)), ("nothing", MachineState::Held));
    }
    let possible = VirtualMachine {
        strategy: EvictionStrategy::LiveMigrateIfPossible,
        migratable: no("DisksNotLiveMigratable"),
        owner: set(),
        ..machine("db")
    };
    assert_eq!(word(&now(&possible)), "evict");
}

#[test]
fn what_is_shut_down_is_stopped_once_as_is_written_on_it() {
    let mut it =
        VirtualMachine { policy: MachinePolicy::Shutdown, owner: vm("db", "Manual"), ..machine("db") };
    let found = now(&it);
    let Some(Action::Stop(work)) = &found.act else { panic!("{found:?}") };
    let MachineAction::Stop(mark) = &work.turn else { panic!("{work:?}") };
    assert_eq!((mark.id.as_str(), mark.node.as_str()), ("drain of node n1, request 2 of t", "n1"));
    assert_eq!(mark.was.run_strategy.as_deref(), Some("Manual"));
    assert!(found.left.contains("started again once node n1 is back"), "{}", found.left);
    let MachineOwner::Machine(Some(seen)) = &mut it.owner else { panic!() };
    (seen.mark, seen.stopping) = (Some(mark.clone()), true);
    assert_eq!(worded(&now(&it)), ("nothing", MachineState::ShuttingDown), "it was asked to stop");
    // Its mark was written and the stop was not: a restart asks for it, whatever the policy has become.
    let mut cut = VirtualMachine { policy: MachinePolicy::MigrateOrHold, ..it.clone() };
    let MachineOwner::Machine(Some(seen)) = &mut cut.owner else { panic!() };
    seen.stopping = false;
    assert_eq!(word(&now(&cut)), "stop");
    // The mark of an earlier drain is not this one's.
    let MachineOwner::Machine(Some(seen)) = &mut cut.owner else { panic!() };
    seen.mark = Some(Stopped { id: "drain of node n1, request 1 of t".into(), ..mark.clone() });
    cut.policy = MachinePolicy::MigrateOrHold;
    assert_eq!(word(&now(&cut)), "mark");
    it.launchers[0].ending = true;
    assert_eq!(worded(&now(&it)), ("nothing", MachineState::ShuttingDown));
    it.over = true;
    it.launchers.clear();
    assert_eq!(now(&it).state, MachineState::Gone);
}

#[test]
fn d12_after_three_failed_migrations_the_mark_goes_then_the_migration_then_the_policy_holds() {
    use MachineState::{Aborting, Asked, Moving, ShuttingDown};
    let mut it = VirtualMachine { failed: failures(2), ..marked(None) };
    assert_eq!(worded(&now(&it)), ("nothing", Asked));
    assert!(now(&it).text.contains("2 of 3 tries failed"));
    it.failed = failures(3);
    it.migration = Some(migration("Pending"));
    let found = now(&it);
    assert_eq!(worded(&found), ("give-up", Aborting));
    let Some(Action::Mark(written)) = found.act else { panic!() };
    assert!(written.gave_up.contains("stuck for 150 seconds"), "{written:?}");
    it.asked = Some(written);
    assert_eq!(worded(&now(&it)), ("clear", Aborting));
    // Before 1.7 the mark stays, and each migration that is ended is followed by another.
    let kept = VirtualMachine { clearable: false, ..it.clone() };
    assert_eq!(worded(&now(&kept)), ("stop", ShuttingDown));
    it.marked = false;
    assert_eq!(worded(&now(&it)), ("delete", Aborting));
    it.migration.as_mut().unwrap().ending = true;
    assert_eq!(worded(&now(&it)), ("nothing", Aborting));
    it.migration = None;
    assert_eq!(worded(&now(&it)), ("stop", ShuttingDown));
    // What had failed before this drain asked does not count.
    let mut later = VirtualMachine { failed: failures(4), ..marked(None) };
    let before = (1..4).map(|nth| format!("m{nth}")).collect();
    later.asked = Some(MigrationRequest { failed_before: before, ..asked() });
    assert_eq!(worded(&now(&later)), ("nothing", Asked));
    later.asked = None;
    later.migration = Some(migration("Running"));
    later.failed = failures(0);
    assert_eq!(worded(&now(&later)), ("nothing", Moving));
}

#[test]
fn d12_a_migration_without_progress_for_the_limits_of_kubevirt_is_given_up_in_each_phase() {
    let rows = [
        ("Pending", 960),
        ("Scheduling", 960),
        ("Scheduled", 150),
        ("PreparingTarget", 150),
        ("TargetReady", 150),
        // 2 GiB at 150 s each, and once more the time without progress.
        ("Running", 450),
    ];
    for (phase, limit) in rows {
        let it = marked(Some(migration(phase)));
        assert_eq!(word(&after(&it, limit - 1)), "nothing", "{phase}");
        assert_eq!(word(&after(&it, limit)), "give-up", "{phase}");
    }
    let unanswered = marked(None);
    assert_eq!((word(&after(&unanswered, 299)), word(&after(&unanswered, 300))), ("nothing", "give-up"));
    // Where others run it waits for its place, for ever.
    let waits = decide(&drain(), &unanswered, Duration::from_secs(9999), 1);
    assert_eq!(word(&waits), "nothing");
    // No limit set, none of ours.
    let limits = settings().limits;
    for phase in ["Scheduled", "Running"] {
        let limits = MigrationLimits { completion_per_gib: None, progress: None, ..limits };
        let it = VirtualMachine { limits, ..marked(Some(migration(phase))) };
        assert_eq!(word(&after(&it, 99_999)), "nothing");
    }
    let slow = |limits| VirtualMachine { limits, ..marked(Some(migration("Running"))) };
    let old = MigrationSettings::of_version((1, 3)).limits;
    assert_eq!((word(&after(&slow(old), 1749)), word(&after(&slow(old), 1750))), ("nothing", "give-up"));
    let twice = MigrationLimits { disrupts: true, ..limits };
    assert_eq!(word(&after(&slow(twice), 749)), "nothing");
}

#[test]
fn d12_post_copy_is_never_ended() {
    let running = Migration { post_copy: true, ..migration("Running") };
    let mut it = VirtualMachine { failed: failures(5), ..marked(Some(running)) };
    assert_eq!(word(&after(&it, 99_999)), "nothing");
    it.asked.as_mut().unwrap().gave_up = "why".into();
    assert_eq!(word(&after(&it, 99_999)), "nothing");
}

#[test]
fn one_that_kubevirt_has_not_reported_on_is_waited_for_and_then_counts_as_not_migratable() {
    let it = VirtualMachine { migratable: Migratable::Unknown, ..machine("db") };
    assert_eq!(worded(&after(&it, 59)), ("nothing", MachineState::Waiting));
    assert_eq!(worded(&after(&it, 60)), ("stop", MachineState::ShuttingDown));
}

#[test]
fn nothing_ever_deletes_a_launcher_and_an_eviction_asks_only_for_one_on_this_node() {
    // Over all facts: there is no such action, and whoever is marked or moves is not evicted again.
    for is_marked in [false, true] {
        for running in [None, Some(migration("Running"))] {
            for here in [false, true] {
                let it = VirtualMachine { marked: is_marked, here, ..marked(running.clone()) };
                let evicts = word(&now(&it)) == "evict";
                assert_eq!(evicts, !is_marked && here && running.is_none());
            }
        }
    }
}

#[test]
fn d12_one_that_cannot_be_read_is_let_alone_under_each_policy() {
    for policy in ALL {
        for strategy in EvictionStrategy::ALL {
            let it =
                VirtualMachine { unread: Some("odd".into()), policy, strategy: *strategy, ..machine("db") };
            assert_eq!(worded(&now(&it)), ("nothing", MachineState::Unreadable), "{policy:?} {strategy:?}");
        }
    }
}

fn disk(rebuilds: bool) -> MachineDisk {
    let name = "shop/data (pvc-1)".into();
    MachineDisk { name, robustness: "degraded".into(), rebuilds, percent: rebuilds.then_some(42) }
}

#[test]
fn while_a_volume_of_it_is_rebuilt_a_machine_is_not_asked_to_migrate_unless_its_annotation_says_so() {
    let mut it = VirtualMachine { disks: vec![disk(true)], ..machine("db") };
    let found = now(&it);
    assert_eq!(
        (worded(&found), found.code),
        (("nothing", MachineState::Waiting), Some(BlockCode::Rebuilding))
    );
    let volume = "volume shop/data (pvc-1) is degraded and being rebuilt, 42 %";
    assert!(
        found.text.contains(volume) && found.text.contains("fstrim") && found.text.contains("/etc/fstab")
    );
    it.although_rebuilding = true;
    assert_eq!(word(&now(&it)), "mark");
    // One that is degraded and not rebuilt, and a shutdown, wait for nothing.
    let still = VirtualMachine { disks: vec![disk(false)], ..machine("db") };
    assert_eq!((word(&now(&still)), now(&still).code), ("mark", None));
    it = VirtualMachine { policy: MachinePolicy::Shutdown, although_rebuilding: false, ..it };
    assert_eq!(word(&now(&it)), "stop");
}

#[test]
fn one_that_is_paused_by_an_io_error_or_again_and_again_is_named_with_its_volumes_and_the_hint() {
    for reason in ["PausedIOError", FLAPPING] {
        let mut it = VirtualMachine {
            migratable: no(reason),
            disks: vec![disk(false)],
            policy: MachinePolicy::MigrateOrHold,
            ..machine("db")
        };
        let found = now(&it);
        assert_eq!(worded(&found), ("nothing", MachineState::Held), "{reason}");
        let said = format!(
            "cannot move: {reason}: because; volume shop/data (pvc-1) is degraded; a guest that trims"
        );
        assert!(found.text.contains(&said), "{}", found.text);
        // A migration that runs is given up for the second only: an IO error may pass on the other node.
        (it.marked, it.migration) = (true, Some(migration("Running")));
        assert_eq!(word(&now(&it)), if reason == FLAPPING { "give-up" } else { "nothing" }, "{reason}");
        it.migration = Some(Migration { post_copy: true, ..migration("Running") });
        assert_eq!(word(&now(&it)), "nothing", "{reason}");
    }
    let other = VirtualMachine { disks: vec![disk(false)], policy: MachinePolicy::Fail, ..machine("db") };
    assert!(
        !now(&VirtualMachine { migratable: no("DisksNotLiveMigratable"), ..other }).text.contains("trims")
    );
}

#[test]
fn d12_what_an_earlier_drain_gave_up_does_not_count_once_the_machine_is_back() {
    let gave_up = |request: &str| {
        let (request, gave_up) = (request.to_owned(), "3 migrations failed".to_owned());
        VirtualMachine { asked: Some(MigrationRequest { request, gave_up, ..asked() }), ..machine("db") }
    };
    assert_eq!(worded(&now(&gave_up(&drain().request))), ("stop", MachineState::ShuttingDown));
    assert_eq!(worded(&now(&gave_up("request 1 of an hour ago"))), ("mark", MachineState::Waiting));
}

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
