//! Migrations: from phase to phase, a second launcher pod, and the hand-over of the guest or its failure.
//!
//! Its outcome is the guest's annotation `kubesim/migration`: `succeed` (also without it), `fail: REASON`,
//! `hang` in Running, `hang-pending`, or `post-copy`, which hangs in Running and cannot be aborted.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::settings::KubevirtSettings;
use super::{
    GUESTS, MIGRATIONS, active, annotation, budgets, current, guests, is_ending, is_final, is_over, launcher,
    put_condition, record_event, text,
};
use crate::answers;
use crate::failure::Failure;
use crate::store::{ObjectKey, ObjectStore, all, is_true, name, namespace, stamp, uid};
use crate::timers::Tick;

pub(super) const FINALIZER: &str = "kubevirt.io/migrationJobFinalize";
pub(super) const LABEL: &str = "kubevirt.io/vmi-name";
/// On a migration for an evacuation: the node to leave.
pub(super) const MADE_FOR: &str = "kubevirt.io/evacuationMigration";
const TARGET_OF: &str = "kubevirt.io/migrationJobUID";
const TARGET_NODE: &str = "kubevirt.io/migrationTargetNodeName";
/// On a migration: its pause after a failed one is over.
const WAITED: &str = "kubesim/waited";
const ABORT: &str = "migrationAbortRequested";
/// Pause between looks for a free slot.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Number of finished ones kept per guest.
const KEPT: usize = 5;

/// Of a guest, the last changed at the end.
pub(super) fn of(store: &ObjectStore, guest: &Value) -> impl Iterator<Item = Arc<Value>> + use<> {
    let mut jobs = all(store, MIGRATIONS);
    jobs.retain(|it| namespace(it) == namespace(guest) && it["spec"]["vmiName"] == guest["metadata"]["name"]);
    jobs.sort_by_key(|it| text(it, "/metadata/resourceVersion").parse::<u64>().unwrap_or_default());
    jobs.into_iter()
}

fn target(store: &ObjectStore, guest: &Value, job: &Value) -> Option<Arc<Value>> {
    active(store, guest).into_iter().find(|pod| pod["metadata"]["labels"][TARGET_OF] == uid(job))
}

/// In the cluster and from this node.
fn has_slot(store: &ObjectStore, settings: &KubevirtSettings, node: &str) -> bool {
    let (mut running, mut leaving) = (0, 0);
    for job in store.list(MIGRATIONS).filter(|it| !is_final(it)) {
        let Some(guest) = store.get(GUESTS, &namespace(job), text(job, "/spec/vmiName")) else { continue };
        let waits = matches!(text(job, "/status/phase"), "" | "Pending");
        let runs = !waits || target(store, guest, job).is_some();
        running += u64::from(runs);
        leaving += u64::from(runs && text(guest, "/status/nodeName") == node);
    }
    running < settings.number("parallelMigrationsPerCluster", 5)
        && leaving < settings.number("parallelOutboundMigrationsPerNode", 2)
}

/// Refuses and defaults as KubeVirt does.
pub(crate) fn admit(store: &ObjectStore, job: &mut Value) -> Result<(), Failure> {
    let settings = KubevirtSettings::read(store);
    if settings.is_down {
        return answers::check("away/new-migration", settings.minor, &[]);
    }
    let (place, named) = (namespace(job), text(job, "/spec/vmiName").to_owned());
    let refused = |row: &str, more: &[(&str, &str)]| {
        let mut filled = vec![("namespace", place.as_str()), ("guest", &named)];
        filled.extend_from_slice(more);
        answers::check(row, settings.minor, &filled)
    };
    if !job["spec"]["priority"].is_null() {
        refused("migration/priority", &[])?;
    }
    let Some(guest) = store.get(GUESTS, &place, &named) else { return refused("migration/no-guest", &[]) };
    if is_over(guest) {
        refused("migration/over", &[])?;
    }
    let conditions = guest["status"]["conditions"].as_array().into_iter().flatten();
    let no = |it: &&Value| it["type"] == "LiveMigratable" && it["status"] == "False";
    if let Some(why) = conditions.clone().find(no) {
        let (reason, message) = (text(why, "/reason"), text(why, "/message"));
        refused("migration/not-migratable", &[("reason", reason), ("message", message)])?;
    }
    if let Some(other) = of(store, guest).find(|it| !is_final(it)) {
        refused("migration/second", &[("uid", &uid(&other))])?;
    }
    job["metadata"]["labels"][LABEL] = named.into();
    job["metadata"]["finalizers"] = json!([FINALIZER]);
    job["status"] = json!({});
    Ok(())
}

pub(super) fn round(store: &mut ObjectStore, tick: &mut Tick<'_>, key: &ObjectKey, job: &Value) {
    if is_final(job) {
        return tidy(store, job);
    }
    let settings = KubevirtSettings::read(store);
    let Some(guest) = store.found(GUESTS, &key.1, text(job, "/spec/vmiName")).cloned() else {
        return fail(store, job, None, "Migration failed because vmi does not exist.", "");
    };
    let mut fails = |why: &str, reason: &str| fail(store, job, Some(&guest), why, reason);
    if is_over(&guest) || is_ending(&guest) {
        return fails("Migration failed vmi shutdown during migration.", "");
    }
    let phase = text(job, "/status/phase");
    let handed = matches!(phase, "PreparingTarget" | "TargetReady" | "Running");
    if is_ending(job) && !handed {
        if answers::answer("abort/before-hand-over", settings.minor).is_some() {
            edit(store, job, |it| put_condition(it, ABORT, Some((true, "", ""))));
        }
        return fail(store, job, Some(&guest), "Migration failed due to being canceled", "");
    }
    let target = target(store, &guest, job);
    if !matches!(phase, "" | "Pending") && target.as_deref().is_none_or(is_ending) {
        let why = "Migration failed because target pod shutdown during migration";
        return fail(store, job, Some(&guest), why, "Target pod is down");
    }
    if is_ending(job) {
        edit(store, job, |it| put_condition(it, ABORT, Some((true, "", ""))));
    }
    let step = format!("{} {phase}", uid(job));
    let delay = tick.config.phase_time;
    match phase {
        "Pending" if target.is_none() => pending(store, tick, &settings, key, job, &guest),
        "Scheduling" if !target.as_deref().is_some_and(|it| is_true(it, "Ready")) => {
            unplaced(store, tick, key, job, &guest, target.as_deref());
        }
        "Running" => running(store, tick, &settings, key, job, &guest),
        _ if !tick.is_time(key, &step, delay) => {}
        "" => go(store, job, "Pending"),
        "Pending" => go(store, job, "Scheduling"),
        "Scheduling" => go(store, job, "Scheduled"),
        "Scheduled" => {
            let (source, target) = (current(store, &guest).unwrap_or_default(), target.unwrap_or_default());
            let state = json!({
                "migrationUid": uid(job), "sourceNode": guest["status"]["nodeName"], "sourcePod": name(&source),
                "targetNode": target["spec"]["nodeName"], "targetPod": name(&target), "mode": "PreCopy",
                "migrationConfiguration": settings.configuration_of(store, &guest),
            });
            edit(store, &guest, |it| {
                it["metadata"]["labels"][TARGET_NODE] = state["targetNode"].clone();
                it["status"]["migrationState"] = state;
            });
            go(store, job, "PreparingTarget");
        }
        "PreparingTarget" => {
            put_state(store, &guest, &json!({ "targetNodeAddress": "10.42.0.9" }));
            go(store, job, "TargetReady");
        }
        _ => {
            put_state(
                store,
                &guest,
                &json!({ "startTimestamp": stamp(0), "targetNodeDomainDetected": true }),
            );
            go(store, job, "Running");
        }
    }
}

fn pending(
    store: &mut ObjectStore,
    tick: &mut Tick<'_>,
    settings: &KubevirtSettings,
    key: &ObjectKey,
    job: &Value,
    guest: &Value,
) {
    if outcome(guest) == "hang-pending" {
        return;
    }
    let failed = if annotation(job, MADE_FOR).is_empty() { 0 } else { failures(store, guest) };
    if failed > 0 && annotation(job, WAITED).is_empty() {
        let wait = Duration::from_secs(20 << (failed - 1).min(4));
        if tick.is_time(key, &format!("{} waits", uid(job)), wait) {
            edit(store, job, |it| it["metadata"]["annotations"][WAITED] = "true".into());
        }
        return;
    }
    if text(guest, "/status/phase") != "Running" || active(store, guest).len() > 1 {
        return;
    }
    if !has_slot(store, settings, text(guest, "/status/nodeName")) {
        return tick.again(key, "slot", LOOK_AGAIN);
    }
    if !budgets::is_ready(store, settings, guest, job) {
        return tick.again(key, "budget", tick.config.phase_time);
    }
    let mut pod = launcher(guest);
    pod["metadata"]["labels"][TARGET_OF] = uid(job).into();
    pod["metadata"]["annotations"]["kubevirt.io/migrationJobName"] = name(job).into();
    for (label, value) in job["spec"]["addedNodeSelector"].as_object().into_iter().flatten() {
        pod["spec"]["nodeSelector"][label] = value.clone();
    }
    let apart =
        &mut pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let mut terms = apart.as_array().cloned().unwrap_or_default();
    terms.push(json!({
        "labelSelector": { "matchLabels": { "kubevirt.io/created-by": uid(guest) } },
        "topologyKey": "kubernetes.io/hostname",
    }));
    *apart = terms.into();
    store.put("pods", pod);
}

fn failures(store: &ObjectStore, guest: &Value) -> u32 {
    let done: Vec<_> = of(store, guest).filter(|it| is_final(it) && !is_ending(it)).collect();
    let failed = done.iter().rev().take_while(|it| it["status"]["phase"] == "Failed").count();
    u32::try_from(failed).unwrap_or(u32::MAX)
}

/// Gives up a target pod that does not start.
fn unplaced(
    store: &mut ObjectStore,
    tick: &mut Tick<'_>,
    key: &ObjectKey,
    job: &Value,
    guest: &Value,
    target: Option<&Value>,
) {
    let nowhere = target.is_some_and(|it| it["spec"]["nodeName"].is_null());
    let (limit, default) = if nowhere {
        ("kubevirt.io/migrationUnschedulablePodTimeoutSeconds", 300)
    } else {
        ("kubevirt.io/migrationPendingPodTimeoutSeconds", 900)
    };
    let secs = annotation(job, limit).parse().unwrap_or(default);
    if tick.is_time(key, &format!("{} {limit}", uid(job)), Duration::from_secs(secs)) {
        if nowhere {
            let why = format!(
                "Migration target pod for VMI [{}/{}] is currently unschedulable",
                key.1,
                name(guest)
            );
            record_event(store, super::CONTROLLER, job, "Warning", "migrationTargetPodUnschedulable", &why);
        }
        fail(store, job, Some(guest), "Migration failed because target pod is not scheduled in time", "");
    }
}

fn outcome(guest: &Value) -> &str {
    annotation(guest, "kubesim/migration")
}

/// The transfer: ends as the guest's annotation says, or by an abort or a limit.
fn running(
    store: &mut ObjectStore,
    tick: &mut Tick<'_>,
    settings: &KubevirtSettings,
    key: &ObjectKey,
    job: &Value,
    guest: &Value,
) {
    let step = |name: &str| format!("{} {name}", uid(job));
    let delay = tick.config.phase_time;
    let is_post_copy = guest["status"]["migrationState"]["mode"] == "PostCopy";
    if is_ending(job) && !is_post_copy {
        put_state(store, guest, &json!({ "abortRequested": true, "abortStatus": "Aborting" }));
        if tick.is_time(key, &step("abort"), delay) {
            put_state(store, guest, &json!({ "abortStatus": "Succeeded" }));
            fail(
                store,
                job,
                Some(guest),
                "Migration failed due to being canceled",
                "Live migration aborted ",
            );
        }
        return;
    }
    match outcome(guest) {
        "hang" if is_post_copy => {}
        "hang" => {
            let stuck = settings.number("progressTimeout", 150);
            let per_gib = if settings.minor >= 4 { 150 } else { 800 };
            let slow = settings.number("completionTimeoutPerGiB", per_gib) * gib(guest);
            let mut is_over =
                |name: &str, secs: u64| secs > 0 && tick.is_time(key, &step(name), Duration::from_secs(secs));
            if is_over("completion", slow) {
                if settings.migrations("allowPostCopy") == true {
                    return put_state(store, guest, &json!({ "mode": "PostCopy" }));
                }
                let why =
                    format!("Live migration is not completed after {slow} seconds and has been aborted");
                fail(store, job, Some(guest), "source node reported migration failed", &why);
            } else if is_over("progress", stuck) {
                let why = format!("Live migration stuck for {stuck} seconds and has been aborted");
                fail(store, job, Some(guest), "source node reported migration failed", &why);
            }
        }
        "post-copy" => put_state(store, guest, &json!({ "mode": "PostCopy" })),
        _ if !tick.is_time(key, &step("Running"), delay) => {}
        other => match other.strip_prefix("fail") {
            Some(why) => {
                let why = why.trim_start_matches([':', ' ']);
                let why = if why.is_empty() { "Live migration failed" } else { why };
                fail(store, job, Some(guest), "source node reported migration failed", why);
            }
            None => succeed(store, job, guest),
        },
    }
}

fn gib(guest: &Value) -> u64 {
    let size = text(guest, "/spec/domain/memory/guest");
    let number = |unit: &str| size.strip_suffix(unit).and_then(|it| it.parse::<u64>().ok());
    number("Gi").or_else(|| number("Mi").map(|it| it.div_ceil(1024))).unwrap_or(1).max(1)
}

fn succeed(store: &mut ObjectStore, job: &Value, guest: &Value) {
    let (Some(source), Some(target)) = (current(store, guest), target(store, guest, job)) else { return };
    store.edit("pods", &namespace(&source), &name(&source), |it| {
        it["status"]["phase"] = "Succeeded".into();
        it["status"]["conditions"] = json!([crate::store::condition("Ready", false)]);
    });
    store.edit("pods", &namespace(&target), &name(&target), |it| {
        it["metadata"]["annotations"]["kubevirt.io/migration-target-ready-timestamp"] = stamp(0).into();
    });
    edit(store, guest, |it| {
        guests::put_node(it, &target["spec"]["nodeName"]);
        let (labels, status) = ("/metadata/labels", "/status");
        for (parent, member) in [(labels, TARGET_NODE), (status, "evacuationNodeName")] {
            if let Some(members) = it.pointer_mut(parent).and_then(Value::as_object_mut) {
                members.remove(member);
            }
        }
    });
    put_state(store, guest, &json!({ "completed": true, "endTimestamp": stamp(0) }));
    record_event(
        store,
        super::CONTROLLER,
        guest,
        "Normal",
        "Migrated",
        "The VirtualMachineInstance migrated to a new node.",
    );
    go(store, job, "Succeeded");
}

/// `why` is its event, `reason` goes into the guest's state.
fn fail(store: &mut ObjectStore, job: &Value, guest: Option<&Value>, why: &str, reason: &str) {
    if let Some(guest) = guest {
        if guest["status"]["migrationState"]["migrationUid"] == uid(job) {
            let end = json!({ "completed": true, "failed": true, "endTimestamp": stamp(0), "failureReason": reason });
            put_state(store, guest, &end);
        }
        if let Some(pod) = target(store, guest, job) {
            store.retire("pods", &namespace(&pod), &name(&pod), None);
        }
    }
    record_event(store, super::CONTROLLER, job, "Warning", "FailedMigration", why);
    go(store, job, "Failed");
}

fn edit(store: &mut ObjectStore, object: &Value, change: impl FnOnce(&mut Value)) {
    let resource = if object["kind"] == "VirtualMachineInstance" { GUESTS } else { MIGRATIONS };
    store.edit(resource, &namespace(object), &name(object), change);
}

/// Merges into the guest's migration state.
fn put_state(store: &mut ObjectStore, guest: &Value, members: &Value) {
    edit(store, guest, |it| json_patch::merge(&mut it["status"]["migrationState"], members));
}

fn go(store: &mut ObjectStore, job: &Value, phase: &str) {
    let guest = store.get(GUESTS, &namespace(job), text(job, "/spec/vmiName"));
    let state =
        guest.map(|it| it["status"]["migrationState"].clone()).filter(|it| it["migrationUid"] == uid(job));
    edit(store, job, |it| {
        it["status"]["phase"] = phase.into();
        let mut times = it["status"]["phaseTransitionTimestamps"].as_array().cloned().unwrap_or_default();
        times.push(json!({ "phase": phase, "phaseTransitionTimestamp": stamp(0) }));
        it["status"]["phaseTransitionTimestamps"] = times.into();
        if let Some(state) = state.filter(|_| is_final(it)) {
            it["status"]["migrationState"] = state;
        }
    });
}

/// Removes the finalizer of a finished one; of a guest's the newest five stay, older ones go with their pods.
fn tidy(store: &mut ObjectStore, job: &Value) {
    if !job["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
        edit(store, job, |it| it["metadata"]["finalizers"] = json!([]));
    }
    if is_ending(job) {
        store.remove(MIGRATIONS, &namespace(job), &name(job));
    }
    let Some(guest) = store.get(GUESTS, &namespace(job), text(job, "/spec/vmiName")).cloned() else { return };
    let done: Vec<_> = of(store, &guest).filter(|it| is_final(it)).collect();
    for old in done.iter().rev().skip(KEPT) {
        store.remove(MIGRATIONS, &namespace(old), &name(old));
        let pods = store.owned("pods", &uid(&guest));
        for pod in pods.iter().filter(|it| is_over(it) && it["metadata"]["labels"][TARGET_OF] == uid(old)) {
            store.retire("pods", &namespace(pod), &name(pod), Some(0));
        }
    }
}
