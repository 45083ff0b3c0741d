//! Limits of the migration of one machine, how it is copied, and how long that is estimated to take.
//!
//! KubeVirt's settings hold where no MigrationPolicy that matches says otherwise, and what a migration that runs says of
//! itself goes before both. Not here: what follows when one is over (`rules`). Source: spec/vm-storage.md A6; KubeVirt's
//! user guide, page "Migration Policies". Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubeapi::objects::{items, text};
use serde_json::Value;

use super::{MigrationSettings, VirtualMachine};
use crate::plan::placement::thousandths;

const GIBIBYTE: u64 = 1 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationLimits {
    /// It may take so long for each GiB; none for ever.
    pub completion_per_gib: Option<Duration>,
    /// So long may it have no progress; none for ever.
    pub progress: Option<Duration>,
    /// Bytes in a second; none without a limit.
    pub bandwidth: Option<u64>,
    /// The guest is slowed down so that the copy ends.
    pub auto_converge: bool,
    /// At its limit the guest is switched over before all is copied.
    pub post_copy: bool,
    /// At its limit the guest is paused or switched over, and has as much time again.
    pub disrupts: bool,
}

impl MigrationLimits {
    /// These, with what `said` says otherwise: the settings of KubeVirt, a policy, or a migration of itself.
    #[must_use]
    pub fn with(mut self, said: &Value) -> Self {
        let limit =
            |name: &str| said[name].as_u64().map(|secs| (secs > 0).then(|| Duration::from_secs(secs)));
        let bandwidth = said["bandwidthPerMigration"].as_str().and_then(thousandths).map(|it| it / 1000);
        let flag = |name: &str| said[name].as_bool();
        self.completion_per_gib = limit("completionTimeoutPerGiB").unwrap_or(self.completion_per_gib);
        self.progress = limit("progressTimeout").unwrap_or(self.progress);
        self.bandwidth = bandwidth.map_or(self.bandwidth, |it| Some(it).filter(|it| *it > 0));
        self.auto_converge = flag("allowAutoConverge").unwrap_or(self.auto_converge);
        let post_copy = flag("allowPostCopy");
        self.disrupts = flag("allowWorkloadDisruption").or(post_copy).unwrap_or(self.disrupts);
        self.post_copy = post_copy.unwrap_or(self.post_copy);
        self
    }
}

/// The policy that KubeVirt takes for `guest`: of those whose labels all match the one with the most labels, then with the
/// most labels of the instance, then the first by name.
#[must_use]
pub fn policy<'a>(policies: &'a [Value], guest: &Value, namespace: &Value) -> Option<&'a Value> {
    let count = |selector: &Value, labels: &Value| {
        let mut wanted = selector.as_object().into_iter().flatten();
        let count = selector.as_object().map_or(0, serde_json::Map::len);
        wanted.all(|(key, value)| labels.get(key) == Some(value)).then_some(count)
    };
    let score = |it: &Value| {
        let selectors = Some(&it["spec"]["selectors"]).filter(|it| it.is_object())?;
        let of = |name: &str, object: &Value| count(&selectors[name], &object["metadata"]["labels"]);
        let (guest, namespace) =
            (of("virtualMachineInstanceSelector", guest)?, of("namespaceSelector", namespace)?);
        Some((guest + namespace, guest))
    };
    let matching = policies.iter().filter_map(|it| Some((it, score(it)?)));
    let first = |it: &Value| std::cmp::Reverse(text(&it["metadata"]["name"]));
    matching.max_by_key(|(it, score)| (*score, first(it))).map(|it| it.0)
}

/// Limits that hold for `guest`, and who says so; `migration` is the UID of its migration that runs.
#[must_use]
pub fn of(
    settings: &MigrationSettings,
    policies: &[Value],
    (guest, namespace): (&Value, &Value),
    migration: Option<&str>,
) -> (MigrationLimits, String) {
    let state = &guest["status"]["migrationState"];
    let own = &state["migrationConfiguration"];
    if own.is_object() && migration.is_some_and(|it| state["migrationUid"] == it) {
        return (settings.limits.with(own), "its migration".to_owned());
    }
    match policy(policies, guest, namespace) {
        Some(it) => {
            let name = text(&it["metadata"]["name"]);
            (settings.limits.with(&it["spec"]), format!("MigrationPolicy {name}"))
        }
        None => (settings.limits, "KubeVirt".to_owned()),
    }
}

/// Memory of the guest in bytes.
fn memory(guest: &Value) -> u64 {
    let domain = &guest["spec"]["domain"];
    let memory =
        domain["memory"]["guest"].as_str().or_else(|| domain["resources"]["requests"]["memory"].as_str());
    memory.and_then(thousandths).unwrap_or_default() / 1000
}

/// Bytes of the disks that a block migration copies too: those that no other node can mount.
fn disks(guest: &Value) -> u64 {
    let is_shared = |claim: &Value| items(&claim["accessModes"]).iter().any(|it| it == "ReadWriteMany");
    let size = |disk: &Value| {
        let claim = &disk["persistentVolumeClaimInfo"];
        let capacity = || claim["capacity"]["storage"].as_str().and_then(thousandths).map(|it| it / 1000);
        (!is_shared(claim)).then(|| disk["size"].as_u64().or_else(capacity).unwrap_or_default())
    };
    items(&guest["status"]["volumeStatus"]).iter().filter_map(size).fold(0, u64::saturating_add)
}

/// Whether its disks are copied too.
#[must_use]
pub fn copies_disks(guest: &Value) -> bool {
    guest["status"]["migrationMethod"] == "BlockMigration"
}

/// What a migration copies, in bytes.
#[must_use]
pub fn bytes(guest: &Value) -> u64 {
    memory(guest).saturating_add(if copies_disks(guest) { disks(guest) } else { 0 })
}

/// How long the copy of `it` may take until KubeVirt ends it; none for ever.
#[must_use]
pub fn longest(it: &VirtualMachine) -> Option<Duration> {
    let begun = u32::try_from(it.bytes.div_ceil(GIBIBYTE)).unwrap_or(u32::MAX).max(1);
    let whole = it.limits.completion_per_gib?.saturating_mul(begun);
    Some(if it.limits.disrupts { whole.saturating_mul(2) } else { whole })
}

/// How long one copy of `it` takes at its bandwidth, and no longer than it may; none without a limit of the bandwidth, as
/// nothing is known of the network.
#[must_use]
pub fn estimate(it: &VirtualMachine) -> Option<Duration> {
    let copy = Duration::from_secs(it.bytes.div_ceil(it.limits.bandwidth?));
    Some(longest(it).map_or(copy, |longest| copy.min(longest)))
}

/// How long `machines` take together, each with what is left of it, as many at the same time as the settings allow.
#[must_use]
pub fn together(settings: &MigrationSettings, machines: &[Duration]) -> Duration {
    let places = settings.at_once.min(settings.from_node).max(1);
    let sum = machines.iter().fold(Duration::ZERO, |sum, it| sum.saturating_add(*it));
    machines.iter().copied().max().unwrap_or_default().max(sum / places)
}

/// How `it` is migrated, for a person.
#[must_use]
pub fn words(it: &VirtualMachine) -> String {
    let mut out = if it.copies_disks { "block migration" } else { "live migration" }.to_owned();
    out.push_str(if it.limits.post_copy { ", pre-copy then post-copy" } else { ", pre-copy" });
    if it.limits.auto_converge {
        out.push_str(", auto-converge");
    }
    let mebibytes = it.bytes.div_ceil(1 << 20);
    let bandwidth = it.limits.bandwidth.unwrap_or_default().div_ceil(1 << 20);
    let time = match estimate(it) {
        Some(time) => format!("estimated {} s for {mebibytes} MiB at {bandwidth} MiB/s", time.as_secs()),
        None => format!("{mebibytes} MiB, no estimate as the bandwidth has no limit"),
    };
    let most = longest(it).map(|it| format!(", at most {} s", it.as_secs())).unwrap_or_default();
    format!("{out}; {time}{most} (limits of {})", it.limits_of)
}
