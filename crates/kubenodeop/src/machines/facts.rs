//! What the objects of KubeVirt say of a machine.
//!
//! Members of a wrong type count as left out. Not here: reading them (`kubevirt`).
//!
//! The volumes of Longhorn that virtual machines use, and how each is. Read only for machines that have one and of
//! which it matters.

use std::fmt;

use futures::future::try_join;
use kubeapi::machines::calls::{MACHINES, described, is_over};
use kubeapi::machines::{DRAIN, MachineSeen};
use kubeapi::names::{PodRef, PodUid};
use kubeapi::objects::{condition, items, text};
use kubeapi::slim::PersistentVolume;
use kubeapi::slim::longhorn::{Engine, Volume, scope};
use kubeapi::{ApiClient, Error, found};
use serde_json::Value;
use step::{Inserted as _, LiteMap, SmallSort as _};

use super::{
    ASKED, EvictionStrategy, Launcher, MachineOwner, MachinePolicy, Migratable, Migration, MigrationRequest,
    MigrationSettings, POLICY, REBUILDING,
};

/// Label of an instance, and selector: its node.
pub const NODE_LABEL: &str = "kubevirt.io/nodeName";
/// Key of the taint by which KubeVirt empties a node, where its settings name no other.
const DRAIN_TAINT: &str = "kubevirt.io/drain";
/// Label of a launcher: UID of its instance.
pub(super) const CREATED_BY: &str = "kubevirt.io/created-by";

/// Name and identity of an object.
#[must_use]
pub fn named(object: &Value) -> PodRef {
    let meta = &object["metadata"];
    PodRef {
        namespace: text(&meta["namespace"]),
        name: text(&meta["name"]),
        uid: PodUid::new(text(&meta["uid"])),
    }
}

/// What of a machine is not as KubeVirt writes it, so that it is not known what becomes of it: of its instance, its
/// VirtualMachine, or migrations in its namespace.
#[must_use]
pub fn unread(guest: &Value, machine: Option<&Value>, migrations: &[Value]) -> Option<String> {
    let is_text = |it: &Value| it.is_null() || it.is_string();
    let is_condition = |it: &Value| it["type"].is_string() && it["status"].is_string();
    let strategy = &guest["spec"]["evictionStrategy"];
    let is_word = |it: &EvictionStrategy| strategy == it.text();
    let conditions = &guest["status"]["conditions"];
    let state = &guest["status"]["migrationState"];
    let place = named(guest);
    let there = |it: &&Value| it["metadata"]["namespace"] == place.namespace.as_str();
    let bad = |it: &&Value| !it["spec"]["vmiName"].is_string() || !is_text(&it["status"]["phase"]);
    let shown = |object: &str, member: &str, it: &Value| Some(format!("{member} of its {object} is {it}"));
    let texts = ["phase", "nodeName", "evacuationNodeName"].map(|it| (it, &guest["status"][it]));
    if !strategy.is_null() && !EvictionStrategy::ALL.iter().any(is_word) {
        return shown("instance", "spec.evictionStrategy", strategy);
    }
    if let Some((member, it)) = texts.into_iter().find(|(_, it)| !is_text(it)) {
        return shown("instance", &format!("status.{member}"), it);
    }
    if !conditions.is_null() && !conditions.as_array().is_some_and(|all| all.iter().all(is_condition)) {
        return shown("instance", "status.conditions", conditions);
    }
    let is_state = state.is_object() && is_text(&state["mode"]) && is_text(&state["migrationUid"]);
    if !(state.is_null() || is_state) {
        return shown("instance", "status.migrationState", state);
    }
    if let Some(it) = migrations.iter().filter(there).find(bad) {
        return Some(format!(
            "migration {} has no spec.vmiName or a status.phase that is no word",
            named(it)
        ));
    }
    let spec = &machine?["spec"];
    let is_running = spec["running"].is_null() || spec["running"].is_boolean();
    if is_running && is_text(&spec["runStrategy"]) { None } else { shown("VirtualMachine", "spec", spec) }
}

#[must_use]
pub fn is_ending(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// The strategy of an instance; `default` where it names none.
#[must_use]
pub fn strategy(guest: &Value, default: EvictionStrategy) -> EvictionStrategy {
    let word = guest["spec"]["evictionStrategy"].as_str();
    word.map_or(default, strategy_of)
}

fn strategy_of(word: &str) -> EvictionStrategy {
    EvictionStrategy::ALL.iter().copied().find(|it| it.text() == word).unwrap_or(EvictionStrategy::None)
}

/// KubeVirt's word for a guest that an IO error of a disk has paused.
pub const IO_ERROR: &str = "PausedIOError";

/// What the condition of an instance says.
#[must_use]
pub fn migratable(guest: &Value) -> Migratable {
    let paused = condition(&guest["status"], "Paused");
    if paused["status"] == "True" && paused["reason"] == IO_ERROR {
        return Migratable::No(IO_ERROR.to_owned(), "an IO error of a disk has paused it".to_owned());
    }
    let said = condition(&guest["status"], "LiveMigratable");
    match said["status"].as_str() {
        Some("True") => Migratable::Yes,
        Some("False") => Migratable::No(text(&said["reason"]), reason(guest, said)),
        Some(_) | None => Migratable::Unknown,
    }
}

/// KubeVirt's sentence, with the devices of the node that it does not name.
fn reason(guest: &Value, said: &Value) -> String {
    let devices = &guest["spec"]["domain"]["devices"];
    let all = items(&devices["hostDevices"]).iter().chain(items(&devices["gpus"]));
    let device = |it: &Value| format!("{} {}", text(&it["name"]), text(&it["deviceName"])).trim().to_owned();
    let names: Vec<String> = all.map(device).collect();
    let sentence = text(&said["message"]);
    if names.is_empty() { sentence } else { format!("{sentence} (it has {})", names.join(", ")) }
}

/// What a drain of `node` has written there.
#[must_use]
pub fn asked(guest: &Value, node: &str) -> Option<MigrationRequest> {
    let written = guest["metadata"]["annotations"][ASKED].as_str()?;
    serde_json::from_str::<MigrationRequest>(written).ok().filter(|it| it.node == node)
}

/// A migration that is not over, as its instance has it too.
#[must_use]
pub fn migration(migration: &Value, guest: &Value) -> Migration {
    let object = named(migration);
    let state = &guest["status"]["migrationState"];
    let own = state["migrationUid"] == object.uid.as_str();
    Migration {
        phase: text(&migration["status"]["phase"]),
        target: if own { text(&state["targetNode"]) } else { String::new() },
        post_copy: own && state["mode"] == "PostCopy" && state["completed"] != true,
        ending: is_ending(migration),
        object,
    }
}

/// The migrations among `all` that belong to `guest`: the one that is not over, and those that have failed since one
/// succeeded, the newest first.
#[must_use]
pub fn migrations(all: &[Value], guest: &Value) -> (Option<Migration>, Vec<(String, String)>) {
    let place = named(guest);
    let mut own: Vec<&Value> = all
        .iter()
        .filter(|it| {
            it["spec"]["vmiName"] == place.name.as_str()
                && it["metadata"]["namespace"] == place.namespace.as_str()
        })
        .collect();
    own.order_by_key(|it| {
        std::cmp::Reverse((text(&it["metadata"]["creationTimestamp"]), text(&it["metadata"]["name"])))
    });
    let open = own.iter().find(|it| !is_over(it)).map(|it| migration(it, guest));
    let ended = own.iter().filter(|it| is_over(it));
    let failed = ended.take_while(|it| it["status"]["phase"] == "Failed").map(|it| {
        let why = text(&it["status"]["migrationState"]["failureReason"]);
        let why = if why.is_empty() { "KubeVirt gives no reason".to_owned() } else { why };
        (named(it).uid.to_string(), why)
    });
    (open, failed.collect())
}

/// A pod of a machine, unless it has ended.
#[must_use]
pub fn launcher(pod: &Value) -> Option<Launcher> {
    (!is_over(pod)).then(|| Launcher { pod: named(pod), ending: is_ending(pod) })
}

/// Name of the instance of a launcher.
#[must_use]
pub fn launched(pod: &Value) -> Option<&str> {
    let owners = items(&pod["metadata"]["ownerReferences"]);
    let owner = owners.iter().find(|it| it["kind"] == "VirtualMachineInstance").map(|it| &it["name"]);
    pod["metadata"]["annotations"]["kubevirt.io/domain"].as_str().or_else(|| owner?.as_str())
}

/// Whether `pod` is a launcher of `guest`.
#[must_use]
pub fn launches(pod: &Value, guest: &Value) -> bool {
    pod["metadata"]["labels"][CREATED_BY] == guest["metadata"]["uid"]
}

/// The kind and the name of the controller of an instance.
#[must_use]
pub fn controller(guest: &Value) -> Option<(String, String)> {
    let owners = items(&guest["metadata"]["ownerReferences"]);
    let owner = owners.iter().find(|it| it["controller"] == true)?;
    Some((text(&owner["kind"]), text(&owner["name"])))
}

/// A machine, with its instance `guest` if it has one.
#[must_use]
pub fn machine(object: &Value, guest: Option<&Value>) -> MachineSeen {
    described(MACHINES, object, guest.filter(|it| !is_over(it)), &DRAIN)
}

/// Who made an instance; `machine` is its machine, where it has one that was read.
#[must_use]
pub fn owner(guest: &Value, machine: Option<&Value>) -> MachineOwner {
    match controller(guest) {
        Some((kind, _)) if kind == "VirtualMachine" => {
            MachineOwner::Machine(machine.map(|it| Box::new(self::machine(it, Some(guest)))))
        }
        Some((kind, name)) => MachineOwner::Other(format!("{kind}/{name}")),
        None => MachineOwner::Nobody,
    }
}

/// The policy of a machine, and what sets it: its VirtualMachine, its instance, its namespace, then the limits file. An
/// unknown word holds the machine.
#[must_use]
pub fn policy(objects: [(&str, Option<&Value>); 3], default: MachinePolicy) -> (MachinePolicy, String) {
    for (of, object) in objects {
        let word = object.and_then(|it| it["metadata"]["annotations"][POLICY].as_str());
        if let Some(word) = word {
            return MachinePolicy::parse(word).map_or_else(
                || {
                    (
                        MachinePolicy::MigrateOrHold,
                        format!("{POLICY} of its {of} has the unknown word \"{word}\""),
                    )
                },
                |policy| (policy, format!("{POLICY} of its {of}")),
            );
        }
    }
    (default, "machines_policy of the limits file".to_owned())
}

/// Whether the nearest of them that says so lets it be migrated while a volume of it is rebuilt.
#[must_use]
pub fn although_rebuilding(objects: [(&str, Option<&Value>); 3]) -> bool {
    let word = |(_, object): (&str, Option<&Value>)| {
        object.and_then(|it| it["metadata"]["annotations"][REBUILDING].as_str().map(str::to_owned))
    };
    objects.into_iter().find_map(word).is_some_and(|it| it == "migrate")
}

/// How an instance is that is not up, with since when; `None` for one that is.
#[must_use]
pub fn not_up(guest: &Value) -> Option<String> {
    let (meta, status) = (&guest["metadata"], &guest["status"]);
    let phase = status["phase"].as_str().filter(|it| !it.is_empty()).unwrap_or("new");
    if is_ending(guest) {
        return Some(format!("being ended since {}, phase {phase}", text(&meta["deletionTimestamp"])));
    }
    let ready = condition(status, "Ready");
    let is_down = ready["status"] == "False";
    if phase == "Running" && !is_down {
        return None;
    }
    let since = if is_down { &ready["lastTransitionTime"] } else { &meta["creationTimestamp"] };
    let why = [&ready["reason"], &ready["message"]].map(text).into_iter().filter(|it| !it.is_empty());
    let why = why.collect::<Vec<_>>().join(": ");
    let why = if why.is_empty() { String::new() } else { format!(", {why}") };
    let place = if status["nodeName"].is_string() { "" } else { ", no node has taken it" };
    Some(format!("not up since {}, phase {phase}{place}{why}", text(since)))
}

/// Since when an instance is paused; none while it is not, or by its migration alone.
#[must_use]
pub fn paused(guest: &Value) -> Option<String> {
    let paused = condition(&guest["status"], "Paused");
    let is_paused = paused["status"] == "True" && paused["reason"] != "PausedByMigrationMonitor";
    is_paused.then(|| text(&paused["lastTransitionTime"]))
}

/// Kind and name of what made a VirtualMachine, and may make it again or start it.
#[must_use]
pub fn manager(machine: &Value) -> Option<String> {
    let owner = items(&machine["metadata"]["ownerReferences"]).first()?;
    Some(format!("{}/{}", text(&owner["kind"]), text(&owner["name"])))
}

/// Settings of KubeVirt's migrations that are not as usual and change what a drain does to machines, each in a sentence.
#[must_use]
pub fn unusual(kubevirt: &Value) -> Vec<String> {
    let said = &kubevirt["spec"]["configuration"]["migrations"];
    let taint = said["nodeDrainTaintKey"].as_str().filter(|it| *it != DRAIN_TAINT);
    let sentences = [
        (said["unsafeMigrationOverride"] == true).then(|| {
            "KubeVirt's unsafeMigrationOverride is true: machines are migrated also where KubeVirt calls that unsafe for the \
             guest"
                .to_owned()
        }),
        (said["disableTLS"] == true).then(|| {
            "KubeVirt's disableTLS is true: the memory of machines that are migrated crosses the network unencrypted"
                .to_owned()
        }),
        taint.map(|it| {
            format!(
                "KubeVirt's nodeDrainTaintKey is {it}, not {DRAIN_TAINT}: a taint of that name moves machines; a drain sets \
                 none"
            )
        }),
    ];
    sentences.into_iter().flatten().collect()
}

/// Limits of migrations, and the strategy of instances that name none, from KubeVirt's settings.
#[must_use]
pub fn settings(kubevirt: &Value) -> (MigrationSettings, EvictionStrategy) {
    let version = text(&kubevirt["status"]["observedKubeVirtVersion"]);
    let mut numbers = version.trim_start_matches('v').split('.').map(|it| it.parse::<u32>().ok());
    // Where nothing is said, limits are those of the oldest, and what it offers is asked for.
    let version = match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor),
        _ => (0, 0),
    };
    let configuration = &kubevirt["spec"]["configuration"];
    let (said, usual) = (&configuration["migrations"], MigrationSettings::of_version(version));
    let count =
        |name: &str, usual: u32| said[name].as_u64().and_then(|it| u32::try_from(it).ok()).unwrap_or(usual);
    let settings = MigrationSettings {
        version,
        at_once: count("parallelMigrationsPerCluster", usual.at_once),
        from_node: count("parallelOutboundMigrationsPerNode", usual.from_node),
        limits: usual.limits.with(said),
    };
    (settings, configuration["evictionStrategy"].as_str().map_or(EvictionStrategy::None, strategy_of))
}

const DRIVER: &str = "driver.longhorn.io";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineDisk {
    /// As `shop/data (pvc-1)`.
    pub name: String,
    pub robustness: String,
    pub rebuilds: bool,
    pub percent: Option<u8>,
}

/// For a person: `volume shop/data (pvc-1) is degraded and being rebuilt, 42 %`.
impl fmt::Display for MachineDisk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "volume {} is {}", self.name, self.robustness)?;
        if self.rebuilds {
            out.write_str(" and being rebuilt")?;
        }
        self.percent.map_or(Ok(()), |percent| write!(out, ", {percent} %"))
    }
}

/// Names in Longhorn of the volumes of `claims`, with the claim.
pub(super) fn names(
    (namespace, claims): (&str, &[String]),
    volumes: &[PersistentVolume],
) -> Vec<(String, String)> {
    let name = |volume: &PersistentVolume| {
        let spec = volume.spec.as_ref()?;
        let claim = spec.claim_ref.as_ref()?;
        let csi = spec.csi.as_ref().filter(|it| it.driver == DRIVER)?;
        let own = claim.namespace.as_deref() == Some(namespace);
        let name = claim.name.clone().filter(|it| own && claims.contains(it))?;
        Some((csi.volume_handle.clone(), format!("{namespace}/{name} ({})", csi.volume_handle)))
    };
    volumes.iter().filter_map(name).collect()
}

/// All volumes of Longhorn, by name; none without it.
pub(super) async fn read(cluster: &ApiClient) -> Result<LiteMap<String, MachineDisk>, Error> {
    let (volumes, engines) = (scope("volumes"), scope("engines"));
    let all = try_join(volumes.list_all::<Volume>(cluster), engines.list_all::<Engine>(cluster)).await;
    let Some((volumes, engines)) = found(all)? else { return Ok(LiteMap::new()) };
    let disk = |volume: Volume| {
        let name = volume.metadata.name.unwrap_or_default();
        let own = || engines.items.iter().filter(|it| it.spec.volume_name == name).map(|it| &it.status);
        let rebuilt = own().flat_map(|it| it.rebuild_status.values()).filter(|it| it.is_rebuilding);
        let percent = rebuilt.map(|it| it.progress.min(100)).max();
        let disk = MachineDisk {
            name: String::new(),
            robustness: volume.status.robustness,
            rebuilds: own().any(|it| it.replica_mode_map.values().any(|mode| mode == "WO")),
            percent,
        };
        (name, disk)
    };
    Ok(volumes.items.into_iter().map(disk).into_lite())
}
