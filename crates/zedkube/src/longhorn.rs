//! Keeps Longhorn's policy for drained nodes and its recurring snapshot as the config of the node that leads wants them.
//!
//! Both are of the whole cluster: nodes with other configs would write against each other (D-V26), so one node writes.
//! Not here: the writes (`kubenodeop::storage`), the reserve on disks (`reserve`).

use std::collections::BTreeSet;
use std::time::Duration;

use agent::Clock;
use agent::settings::NODE_DOWN;
use clusterview::leader::Leadership;
use clusterview::leads_otherwise;
use kubeapi::ApiClient;
use kubeapi::slim::longhorn::{DRAIN_POLICY, NODE_DOWN_NOTHING, NODE_DOWN_POLICY};
use kubenodeop::storage::{SettingWrite, keep_setting, keep_snapshot_job};
use tokio::sync::watch;
use topics::{ConfigItemType, ConfigItemValueMap, by_length};
use tracing::{info, warn};

/// When a snapshot of each volume is made; empty for never.
const CRON: &str = "storage.longhorn.snapshot.cron";
/// What Longhorn does about a node that is drained.
const POLICY: &str = "storage.longhorn.node-drain-policy";
/// All that Longhorn knows.
const POLICIES: [&str; 5] = [
    "block-for-eviction-if-contains-last-replica",
    "block-for-eviction",
    "block-if-contains-last-replica",
    "allow-if-replica-is-stopped",
    "always-allow",
];
/// No time of a snapshot is longer.
const CRON_BYTES: usize = 128;
const LOOK: Duration = Duration::from_mins(1);

/// What is wanted; `None` where the config does not say, and nothing is written. Nor is an empty policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DesiredLonghorn {
    cron: Option<String>,
    policy: Option<String>,
    node_down: Option<String>,
}

/// Reads what is wanted; an invalid value leaves the one before it, with a line.
pub(crate) fn wanted(map: &ConfigItemValueMap, before: &DesiredLonghorn) -> (DesiredLonghorn, Vec<String>) {
    let mut refused = Vec::new();
    let mut text = |name: &str, before: &Option<String>, makes_sense: fn(&str) -> bool| {
        let item = map.global_settings.as_ref()?.get(name)?;
        let value = item.str_value.trim();
        if item.item_type == ConfigItemType::String && makes_sense(value) {
            return Some(value.to_owned());
        }
        refused.push(format!(
            "{name}: found {}, which makes no sense; what is in force stays",
            by_length(&item.str_value)
        ));
        before.clone()
    };
    let cron = text(CRON, &before.cron, |it| {
        let known = |it: char| it.is_ascii_alphanumeric() || "*?/,-@ ".contains(it);
        let fields = it.split_whitespace().count();
        it.len() <= CRON_BYTES
            && it.chars().all(known)
            && (fields == 5 || it.is_empty() || fields <= 2 && it.starts_with('@'))
    });
    let policy = text(POLICY, &before.policy, |it| it.is_empty() || POLICIES.contains(&it));
    let node_down = text(NODE_DOWN, &before.node_down, |it| it.is_empty() || it == NODE_DOWN_NOTHING);
    (DesiredLonghorn { cron, policy, node_down }, refused)
}

/// Runs until a sender, of who leads or of what is wanted, is gone. Dropping it loses nothing.
pub(crate) async fn run(
    cluster: ApiClient,
    clock: Clock,
    mut leading: watch::Receiver<Leadership>,
    mut wanted: watch::Receiver<DesiredLonghorn>,
) {
    let mut said = BTreeSet::new();
    loop {
        let leads = leading.borrow_and_update().holds(clock.now());
        let now = wanted.borrow_and_update().clone();
        let due = (leads && now != DesiredLonghorn::default()).then(|| clock.now() + LOOK);
        if due.is_some() {
            let failed = look(&cluster, clock, &leading, &now).await;
            for line in failed.difference(&said) {
                warn!("properties of Longhorn: {line}");
            }
            said = failed;
        }
        tokio::select! {
            known = leads_otherwise(&mut leading, clock, leads) => if !known { return },
            changed = wanted.changed() => if changed.is_err() { return },
            () = clock.sleep_until(due), if due.is_some() => {}
        }
    }
}

/// Compares and writes what differs. Returns what could not be done. Each write needs the right to it.
async fn look(
    cluster: &ApiClient,
    clock: Clock,
    leading: &watch::Receiver<Leadership>,
    wanted: &DesiredLonghorn,
) -> BTreeSet<String> {
    let mut failed = BTreeSet::new();
    let mut done = |name: &str, value: &str, kept: Result<SettingWrite, kubeapi::Error>| match kept {
        Ok(SettingWrite::Written) => info!(property = name, value, "wrote a property of Longhorn"),
        Ok(SettingWrite::Equal | SettingWrite::Absent) => {}
        Err(error) => {
            failed.insert(error.advice());
        }
    };
    let leads = || leading.borrow().holds(clock.now());
    let settings = [(POLICY, DRAIN_POLICY, &wanted.policy), (NODE_DOWN, NODE_DOWN_POLICY, &wanted.node_down)];
    for (property, setting, value) in settings {
        if let Some(value) = value.as_ref().filter(|it| !it.is_empty() && leads()) {
            done(property, value, keep_setting(cluster, setting, value).await);
        }
    }
    if let Some(cron) = wanted.cron.as_ref().filter(|_| leads()) {
        done(CRON, cron, keep_snapshot_job(cluster, cron).await);
    }
    failed
}

#[cfg(test)]
mod tests;
