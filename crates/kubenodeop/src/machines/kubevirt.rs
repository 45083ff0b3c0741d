//! Reading the machines of a node, and the calls that a drain makes about them.
//!
//! Nothing of KubeVirt is read while no launcher runs on the node. Not here: which call, and when (`rules`,
//! `engine::machines`). Dropping a call leaves open whether it was carried out; what it did is read back from
//! the objects.
//!
//! What may change the fate of the machines of a node, as it changes. Nothing is kept but a mark of each object.
//! Trouble with reading is found by whoever looks.

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::Resource;
use kube::api::{DeleteParams, GetParams, Patch, Preconditions};
use kube::core::Request;
use kubeapi::machines::calls::{GUESTS, LAUNCHERS, MACHINES, act, in_namespace, is_over, path, subresource};
use kubeapi::names::{NodeName, PodRef};
use kubeapi::nodes::signed;
use kubeapi::reply::Reply;
use kubeapi::slim::longhorn::{self, Engine};
use kubeapi::slim::{Known, Meta, NodeObject, PersistentVolume, Pod};
use kubeapi::watch::{Manner, ObjectMirror, WatchScope};
use kubeapi::{ApiClient, Error, found};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use step::{Inserted as _, LiteMap};

use super::forecast::{self, Asks};
use super::rules::{self, Action, needs_target};
use super::{
    ASKED, EvictionStrategy, MachineDisk, MachinePolicy, MachinesView, MigrationRequest, MigrationSettings,
    VirtualMachine, facts,
};
use crate::calls::{pods, remove, volumes};
use crate::plan::placement::{PeerNode, needs, peer};
use crate::plan::residents::{Resident, Residents, resident};

pub(super) const MIGRATIONS: &str = "virtualmachineinstancemigrations";
const MIGRATION_POLICIES: &str = "/apis/migrations.kubevirt.io/v1alpha1/migrationpolicies";
/// Objects read at the same time.
const AT_ONCE: usize = 8;

pub(super) fn launchers(node: &NodeName) -> WatchScope {
    WatchScope { labels: Some(LAUNCHERS.to_owned()), ..pods::scope(node) }
}

pub(super) fn guests(node: &NodeName) -> WatchScope {
    WatchScope {
        what: format!("virtual machine instances of node {node}"),
        path: path(GUESTS),
        fields: None,
        labels: Some(format!("{}={node}", facts::NODE_LABEL)),
    }
}

/// Reads the machines of one node. What does not change in an attempt is read once.
#[derive(Debug)]
pub struct MachineReader {
    node: NodeName,
    policy: MachinePolicy,
    settings: Option<(MigrationSettings, EvictionStrategy)>,
    unusual: Vec<String>,
    volumes: Option<Vec<PersistentVolume>>,
    policies: Option<Vec<Value>>,
    /// Volumes of Longhorn by name, as they were read last.
    disks: LiteMap<String, MachineDisk>,
    namespaces: LiteMap<String, Value>,
    /// All pods, where the caller has read them for the next look.
    pods: Option<Vec<Resident>>,
}

impl MachineReader {
    /// `policy` holds where no object names one.
    #[must_use]
    pub const fn new(node: NodeName, policy: MachinePolicy) -> Self {
        Self {
            node,
            policy,
            settings: None,
            unusual: Vec::new(),
            volumes: None,
            policies: None,
            disks: LiteMap::new(),
            namespaces: LiteMap::new(),
            pods: None,
        }
    }

    /// The next look takes the pods of the cluster to be these.
    #[must_use]
    pub(crate) fn with_pods(mut self, pods: &[Pod]) -> Self {
        self.pods = Some(pods.iter().filter_map(resident).collect());
        self
    }

    pub async fn look(&mut self, cluster: &ApiClient) -> Result<MachinesView, Error> {
        let (all, here) =
            (WatchScope::all("migrations of virtual machines", path(MIGRATIONS)), guests(&self.node));
        let nodes = WatchScope::all("nodes", NodeObject::url_path(None));
        let pods = launchers(&self.node);
        // Launchers first: an instance that comes to this node is there before its pod runs.
        let pods = pods.list_all::<Value>(cluster).await?.items;
        let (mut guests, migrations, nodes) = futures::try_join!(
            here.list_all::<Value>(cluster),
            all.list_all::<Value>(cluster),
            nodes.list_all::<NodeObject>(cluster),
        )?;
        self.add_those_elsewhere(cluster, &pods, &mut guests.items).await?;
        self.read_once(cluster, &guests.items).await?;
        let read = machines(cluster, &guests.items).await?;
        let is_own = |it: &&NodeObject| it.metadata.name.as_deref() == Some(self.node.as_str());
        let (own, others): (Vec<&NodeObject>, Vec<&NodeObject>) = nodes.items.iter().partition(is_own);
        let own = own.first();
        let labels = own.and_then(|it| it.metadata.labels.clone()).unwrap_or_default();
        let peers: Vec<PeerNode> = others.into_iter().map(peer).collect();
        let (settings, default) =
            self.settings.unwrap_or((MigrationSettings::of_version((1, 0)), EvictionStrategy::None));
        let of = |guest: &Value| {
            let machine = read.get(&key(guest));
            self.machine(guest, machine, &pods, &migrations.items, (&settings, default))
        };
        let mut machines: Vec<(VirtualMachine, Asks)> = guests.items.iter().map(of).collect();
        let given = self.pods.take();
        let mut residents = if machines.iter().any(|it| needs_target(&it.0)) {
            let labels = |it: &NodeObject| {
                (it.metadata.name.clone().unwrap_or_default(), it.metadata.labels.clone().unwrap_or_default())
            };
            let pods = match given {
                Some(pods) => pods,
                None => residents(cluster).await?,
            };
            Some(Residents { pods, nodes: nodes.items.iter().map(labels).into_lite() })
        } else {
            None
        };
        for (machine, asks) in &mut machines {
            let residents = residents.as_ref().filter(|_| needs_target(machine));
            machine.target = forecast::target(asks, &labels, &peers, residents);
            machine.start = match &machine.target {
                Err(_) if asks.host_model => {
                    let any_model = Asks { host_model: false, ..asks.clone() };
                    forecast::target(&any_model, &labels, &peers, residents)
                }
                found => found.clone(),
            };
            machine.lacks_room =
                machine.target.is_err() && forecast::target(asks, &labels, &peers, None).is_ok();
        }
        if let Some(residents) = &mut residents {
            forecast::set_off(&mut machines, &labels, &peers, residents);
        }
        self.add_disks(cluster, &mut machines).await?;
        Ok(MachinesView {
            settings,
            unusual: self.unusual.clone(),
            machines: machines.into_iter().map(|it| it.0).collect(),
            running: migrations
                .items
                .iter()
                .filter(|it| super::runs(it["status"]["phase"].as_str().unwrap_or_default()))
                .count(),
        })
    }

    /// Reads how the volumes of Longhorn are, where a machine that would be migrated or is paused has one. What was read
    /// last is shown for the others too.
    async fn add_disks(
        &mut self,
        cluster: &ApiClient,
        machines: &mut [(VirtualMachine, Asks)],
    ) -> Result<(), Error> {
        let volumes = self.volumes.as_deref().unwrap_or_default();
        let names =
            |it: &(VirtualMachine, Asks)| facts::names((&it.0.guest.namespace, &it.0.claims), volumes);
        let matters = |it: &&(VirtualMachine, Asks)| needs_target(&it.0) || it.0.paused.is_some();
        if machines.iter().filter(matters).any(|it| !names(it).is_empty()) {
            self.disks = facts::read(cluster).await?;
        }
        for it in machines {
            let own =
                names(it).into_iter().filter_map(|(volume, name)| Some((self.disks.get(&volume)?, name)));
            it.0.disks = own.map(|(disk, name)| MachineDisk { name, ..disk.clone() }).collect();
        }
        Ok(())
    }

    /// A launcher may be here while its instance is on another node, or has no node yet.
    async fn add_those_elsewhere(
        &self,
        cluster: &ApiClient,
        pods: &[Value],
        guests: &mut Vec<Value>,
    ) -> Result<(), Error> {
        let active = pods.iter().filter(|it| !is_over(it));
        let missing: Vec<&Value> =
            active.filter(|pod| !guests.iter().any(|it| facts::launches(pod, it))).collect();
        for pod in missing {
            let (namespace, name) = (pod["metadata"]["namespace"].as_str(), facts::launched(pod));
            let (Some(namespace), Some(name)) = (namespace, name) else { continue };
            let path = in_namespace(GUESTS, namespace);
            let one = WatchScope::one("virtual machine instances", path, name);
            let found = one.list_all::<Value>(cluster).await?.items;
            guests.extend(found.into_iter().filter(|it| facts::launches(pod, it)));
        }
        Ok(())
    }

    async fn read_once(&mut self, cluster: &ApiClient, guests: &[Value]) -> Result<(), Error> {
        if self.settings.is_none() {
            let all =
                WatchScope::all("settings of KubeVirt", path("kubevirts")).list_all::<Value>(cluster).await?;
            let kubevirt = all.items.first().unwrap_or(&Value::Null);
            (self.settings, self.unusual) = (Some(facts::settings(kubevirt)), facts::unusual(kubevirt));
        }
        if self.policies.is_none() {
            let all = WatchScope::all("migration policies", MIGRATION_POLICIES.to_owned());
            // KubeVirt before 0.53 has none.
            self.policies = Some(all.list_installed::<Value>(cluster).await?.unwrap_or_default());
        }
        if self.volumes.is_none() {
            self.volumes = Some(volumes::volume_scope().list_all(cluster).await?.items);
        }
        for guest in guests {
            let name = facts::named(guest).namespace;
            if self.namespaces.contains_key(&name) {
                continue;
            }
            let all = Request::new(Namespace::url_path(&(), None));
            let what = format!("read namespace {name}");
            let read = found(cluster.ask::<Value>(&what, all.get(&name, &GetParams::default())).await)?;
            self.namespaces.insert(name, read.unwrap_or_default());
        }
        Ok(())
    }

    fn machine(
        &self,
        guest: &Value,
        machine: Option<&Value>,
        pods: &[Value],
        migrations: &[Value],
        (settings, default): (&MigrationSettings, EvictionStrategy),
    ) -> (VirtualMachine, Asks) {
        let name = facts::named(guest);
        let status = &guest["status"];
        let node = kubeapi::objects::text(&status["nodeName"]);
        let own: Vec<&Value> = pods.iter().filter(|pod| facts::launches(pod, guest)).collect();
        let (migration, failed) = facts::migrations(migrations, guest);
        let namespace = self.namespaces.get(&name.namespace);
        let objects = [("VirtualMachine", machine), ("instance", Some(guest)), ("namespace", namespace)];
        let (policy, policy_from) = facts::policy(objects, self.policy);
        let policies = self.policies.as_deref().unwrap_or_default();
        let (labels, uid) =
            (namespace.unwrap_or(&Value::Null), migration.as_ref().map(|it| it.object.uid.as_str()));
        let (limits, limits_of) = rules::of(settings, policies, (guest, labels), uid);
        let model = guest["spec"]["domain"]["cpu"]["model"].as_str();
        let host_model = matches!(model, None | Some("host-model"));
        let launcher = own.first().map(|it| kubeapi::objects::typed::<Pod>(it)).transpose();
        let garbled = launcher.as_ref().err().map(|why| format!("a pod of it: {why}"));
        let launcher = launcher.ok().flatten();
        let claims = launcher.as_ref().map(|pod| pods::facts(pod).claims).unwrap_or_default();
        let asks = launcher.map(|pod| {
            let needs = needs(&pod, &claims, self.volumes.as_deref().unwrap_or_default());
            Asks { needs, host_model, launcher: resident(&pod).unwrap_or_default() }
        });
        let machine = VirtualMachine {
            here: node == self.node.as_str(),
            node,
            unread: garbled.or_else(|| facts::unread(guest, machine, migrations)),
            over: is_over(guest),
            ending: facts::is_ending(guest),
            strategy: facts::strategy(guest, default),
            migratable: facts::migratable(guest),
            marked: status["evacuationNodeName"] == self.node.as_str(),
            clearable: settings.cancels(),
            asked: facts::asked(guest, self.node.as_str()),
            owner: facts::owner(guest, machine),
            manager: machine.and_then(facts::manager),
            migration,
            failed,
            paused: facts::paused(guest),
            claims,
            disks: Vec::new(),
            although_rebuilding: facts::although_rebuilding(objects),
            launchers: own.into_iter().filter_map(facts::launcher).collect(),
            policy,
            policy_from,
            target: Err(String::new()),
            start: Err(String::new()),
            lacks_room: false,
            crowded: None,
            bytes: rules::bytes(guest),
            copies_disks: rules::copies_disks(guest),
            limits,
            limits_of,
            guest: name,
        };
        (machine, asks.unwrap_or_default())
    }
}

fn key(object: &Value) -> (String, String) {
    let name = facts::named(object);
    (name.namespace, name.name)
}

/// Of each pod of the cluster that has a node nothing but what it takes of it.
async fn residents(cluster: &ApiClient) -> Result<Vec<Resident>, Error> {
    #[derive(Debug, Clone)]
    struct ResidentItem(Option<Resident>);
    impl<'de> Deserialize<'de> for ResidentItem {
        fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            Ok(Self(resident(&Pod::deserialize(from)?)))
        }
    }
    let all = WatchScope::all("pods", Pod::url_path(None)).list_all::<ResidentItem>(cluster).await?;
    Ok(all.items.into_iter().filter_map(|it| it.0).collect())
}

/// The machines of these instances, by namespace and name.
async fn machines(cluster: &ApiClient, guests: &[Value]) -> Result<LiteMap<(String, String), Value>, Error> {
    let owned = guests.iter().filter_map(|guest| {
        let (kind, name) = facts::controller(guest)?;
        (kind == "VirtualMachine").then(|| (facts::named(guest).namespace, name))
    });
    let read = owned.map(|(namespace, name)| async move {
        let what = format!("read virtual machine {namespace}/{name}");
        let all = Request::new(in_namespace(MACHINES, &namespace));
        let machine = found(cluster.ask::<Value>(&what, all.get(&name, &GetParams::default())).await)?;
        Ok::<_, Error>(machine.map(|it| ((namespace, name), it)))
    });
    let read: Vec<_> = stream::iter(read.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).try_collect().await?;
    Ok(read.into_iter().flatten().into_lite())
}

/// One call about the instance `guest`. What follows from its reply is seen on the objects.
pub(crate) async fn perform(cluster: &ApiClient, node: &NodeName, guest: &PodRef, action: &Action) -> Reply {
    let done = match action {
        Action::Evict(pod) => return remove::evict(cluster, pod, false).await,
        Action::Mark(asked) => mark(cluster, guest, Some(asked), None).await,
        Action::ClearMark => clear(cluster, node, guest).await,
        Action::DeleteMigration(migration) => delete(cluster, migration).await,
        Action::Stop(work) => act(cluster, work).await,
    };
    match done {
        Ok(()) => Reply::Done,
        Err(error) => error.reply(),
    }
}

/// Writes on an instance what the drain does with it, or removes that; with `version` only if nobody has written since.
pub(crate) async fn mark(
    cluster: &ApiClient,
    guest: &PodRef,
    asked: Option<&MigrationRequest>,
    version: Option<&str>,
) -> Result<(), Error> {
    let what = format!("mark virtual machine instance {guest}");
    let written = asked.map(serde_json::to_string).transpose();
    let written = written.map_err(|source| Error::Unaskable { what: what.clone(), source: source.into() })?;
    let mut body = json!({ "metadata": { "uid": guest.uid.as_str(), "annotations": { ASKED: written } } });
    if let Some(version) = version {
        body["metadata"]["resourceVersion"] = version.into();
    }
    let all = Request::new(in_namespace(GUESTS, &guest.namespace));
    cluster.order(&what, all.patch(&guest.name, &signed(), &Patch::Merge(body))).await
}

/// Removes the mark by which KubeVirt makes one migration after the other, if it is for our node.
/// Not before 1.7: there virt-api answers a patch of the mark with 200, and puts it back.
pub(crate) async fn clear(cluster: &ApiClient, node: &NodeName, guest: &PodRef) -> Result<(), Error> {
    let what = format!("cancel the evacuation of virtual machine instance {guest}");
    let body = json!({ "evacuationNodeName": node.as_str() }).to_string().into_bytes();
    let request = subresource(GUESTS, &guest.namespace, &guest.name, "evacuate/cancel", body);
    cluster.order(&what, request).await
}

pub(crate) async fn delete(cluster: &ApiClient, migration: &PodRef) -> Result<(), Error> {
    let exactly_this = Preconditions { uid: Some(migration.uid.to_string()), resource_version: None };
    let how = DeleteParams { preconditions: Some(exactly_this), ..DeleteParams::default() };
    let all = Request::new(in_namespace(MIGRATIONS, &migration.namespace));
    cluster.order(&format!("delete migration {migration}"), all.delete(&migration.name, &how)).await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineChange {
    Look,
    /// Something that is read once in an attempt.
    Once,
}

/// One item whenever an instance of `node`, a launcher there, a migration, or the spec or an annotation of a machine or a
/// namespace has changed, or what another node offers. It never ends.
pub(crate) fn changes(cluster: &ApiClient, node: &NodeName, seed: u64) -> BoxStream<'static, MachineChange> {
    let scope = |what: &str, kind: &str| WatchScope::all(what, path(kind));
    let version = |it: &Known| (named(&it.metadata), it.metadata.resource_version.clone());
    let all = |scope, seed| marked(cluster, scope, seed, version, MachineChange::Look);
    // The status of a machine follows that of its instance.
    let wanted = |it: &Known| {
        let Meta { uid, generation, annotations, labels, .. } = it.metadata.clone();
        (named(&it.metadata), (uid, generation, annotations, labels))
    };
    let (machines, namespaces) =
        (scope("virtual machines", MACHINES), WatchScope::all("namespaces", Namespace::url_path(&(), None)));
    let nodes = WatchScope::all("nodes", NodeObject::url_path(None));
    let offered = |it: &NodeObject| ((None, it.metadata.name.clone()), peer(it));
    stream::select_all([
        all(guests(node), seed),
        all(launchers(node), seed ^ 1),
        all(scope("migrations of virtual machines", MIGRATIONS), seed ^ 2),
        marked(cluster, machines, seed ^ 3, wanted, MachineChange::Look),
        marked(cluster, namespaces, seed ^ 4, wanted, MachineChange::Once),
        marked(cluster, nodes, seed ^ 5, offered, MachineChange::Look),
    ])
    .boxed()
}

/// One item whenever a copy of a volume of Longhorn is in sync, or is not any more. For who knows that Longhorn is there.
pub(crate) fn copies(cluster: &ApiClient, seed: u64) -> BoxStream<'static, MachineChange> {
    let modes = |it: &Engine| (named(&it.metadata), it.status.replica_mode_map.clone());
    marked(cluster, longhorn::scope("engines"), seed, modes, MachineChange::Look)
}

/// One item whenever a pod of the cluster has got a node, has left it or has ended. For who waits for room.
pub(crate) fn room(cluster: &ApiClient, seed: u64) -> BoxStream<'static, MachineChange> {
    let node = |it: &Pod| {
        let phase = it.status.as_ref().and_then(|it| it.phase.as_deref());
        let over = matches!(phase, Some("Succeeded" | "Failed"));
        (named(&it.metadata), it.spec.as_ref().and_then(|it| it.node_name.clone()).filter(|_| !over))
    };
    marked(cluster, WatchScope::all("pods", Pod::url_path(None)), seed, node, MachineChange::Look)
}

/// `change` whenever the mark of one of these objects is another one, or they were read again after trouble; `keep` says
/// which object it is, and its mark.
fn marked<K: DeserializeOwned + Send + 'static, M: PartialEq + Send + Sync + 'static>(
    cluster: &ApiClient,
    scope: WatchScope,
    seed: u64,
    keep: impl Fn(&K) -> (MarkedName, M) + Send + Sync + 'static,
    change: MachineChange,
) -> BoxStream<'static, MachineChange> {
    let keep = move |it: K| {
        let (name, mark) = keep(&it);
        (name, Some(mark))
    };
    let changes = ObjectMirror::open(cluster, scope, Manner::default(), seed, keep).changes(move |_| change);
    changes.filter_map(|heard| std::future::ready(heard.ok())).boxed()
}

/// Namespace and name of an object.
type MarkedName = (Option<String>, Option<String>);

fn named(meta: &Meta) -> MarkedName {
    (meta.namespace.clone(), meta.name.clone())
}
