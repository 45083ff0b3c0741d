//! The role in `docs/reference/role.yaml` is what the agents need, and no more.

mod beside;
mod disks;
mod machines;
mod maintenance;
mod reports;
mod responders;
mod site;
mod surge;
mod turns;

use std::collections::BTreeSet;
use std::time::Duration;

use agent::{AgentContext, Clock, Stop, Stopper, Troubles, wire};
use clusterview::leader::Leadership;
use clusterview::prune;
use clusterview::stats;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kubeapi::{NodeName, OwnNode};
use kubenodeop::leave::{self, Leave};
use kubenodeop::{AttemptRules, CordonAnnotation, DrainOrder, RuntimeQuery};
use outage::Ours;
use outage::keeper::{self, Ask, KeeperReport, TurnRequest};
use outage::margin::calls::{Addresses, EtcdAccess, EtcdSettings};
use outage::margin::facts::Paths;
use outage::turn::event::TurnState;
use outage::turn::record::{HOLDERS, LEASE, Op};
use pubsub::{Change, TopicRoot};
use scenarios::{At, UUID, World};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use topics::{AppLogMarks, DrainMarks, DrainStatus, KubeLeaderElectInfo, KubeStatsState, LeavePhase};

/// A request as a role sees it: API group, resource, verb. `None` for what needs no role, as `/readyz`.
fn needed((method, uri): &(String, String)) -> Option<(String, String, String)> {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let mut parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let group = match parts[0] {
        "api" => String::new(),
        "apis" => parts.remove(1).to_owned(),
        _ => return None,
    };
    // What is left: `api(s)`, version, [`namespaces`, name,] resource, [name, [subresource]].
    parts.drain(..2.min(parts.len()));
    if parts.len() > 2 && parts[0] == "namespaces" {
        parts.drain(..2);
    }
    let (resource, named) = match parts[..] {
        [] => return None,
        [resource] => (resource.to_owned(), false),
        [resource, _] => (resource.to_owned(), true),
        [resource, _, sub, ..] => (format!("{resource}/{sub}"), true),
    };
    let verb = match (method.as_str(), named) {
        ("GET", true) => "get",
        ("GET", false) if query.contains("watch=") => "watch",
        ("GET", false) => "list",
        ("POST", _) => "create",
        ("PATCH", _) => "patch",
        ("PUT", _) => "update",
        ("DELETE", true) => "delete",
        (other, _) => other,
    };
    Some((group, resource, verb.to_owned()))
}

const LEASE_ROLE: &str = "pillar-rs-stats-leader";
/// What a node needs on the Lease of turns.
const OUTAGE_ROLE: &str = "pillar-rs-outage";
/// The role for the lease of our kubelet.
const NODE_LEASE_ROLE: &str = "pillar-rs-node-lease";
/// The role for the look before a drain.
const PREFLIGHT_ROLE: &str = "pillar-rs-preflight";
const STATS_ROLE: &str = "pillar-rs-cluster-stats";

/// The roles for what the node shows of its drain.
const REPORT_ROLES: [&str; 2] = ["pillar-rs-node-report", "pillar-rs-node-events"];

/// The role for virtual machines of a node that is drained, and of nodes that have been.
const MACHINES_ROLE: &str = "pillar-rs-machines";
/// The role for room on the disks of the node.
const DISKS_ROLE: &str = "pillar-rs-disk-reserve";
const PROPERTIES_ROLE: &str = "pillar-rs-longhorn-properties";
/// The role for applications, in their namespace.
const APPS_ROLE: &str = "pillar-rs-apps";
/// An application of the role's scenario, and its pod.
const APP: &str = "d4f3a2b1-6d5e-4f70-9bac-1d2e3f4a5b6c";
const APP_POD: &str = "web-d4f3a-0-x7k2p";

/// A pod of an application that writes a line, on another node than ours.
fn add_application(world: &World) {
    let sim = world.cluster.sim();
    sim.apply(
        "pods",
        json!({
            "metadata": { "name": APP_POD, "namespace": "eve-kube-app" },
            "spec": { "nodeName": "edge-node-2", "containers": [{ "name": "web", "image": "i" }] },
            "status": { "phase": "Running" },
        }),
    );
    sim.run_container("eve-kube-app", APP_POD, "web", 0, &json!({ "running": {} }));
    sim.log("eve-kube-app", APP_POD, "web", "2026-03-14T09:30:00Z", "a line");
    let config = json!({
        "UUIDandVersion": { "UUID": APP }, "DisplayName": "Web", "IsDesignatedNodeID": true,
        "FixedResources": { "VirtualizationMode": 4 },
    });
    world.put(&format!("run/zedagent/AppInstanceConfig/{APP}.json"), &config.to_string());
}

fn our_node() -> NodeName {
    NodeName::parse("edge-node-1").unwrap()
}

fn own_node() -> OwnNode {
    let own_node = OwnNode::default();
    own_node.set(our_node(), UUID.to_owned());
    own_node
}

/// The first attempt to empty our node.
fn order(rules: AttemptRules) -> DrainOrder {
    let (device_uuid, owner, marks) = (UUID.to_owned(), CordonAnnotation::default(), DrainMarks::default());
    DrainOrder {
        node: our_node(),
        device_uuid,
        owner,
        runtime: RuntimeQuery::default(),
        rules,
        marks,
        seen: None,
    }
}

/// What a duty of zedkube is given, for as long as it is kept.
fn context(world: &World) -> (Stopper, AgentContext, Troubles) {
    let (stopper, stop) = Stop::new();
    let (topic_root, boot_id) = (world.topic_root.clone(), "b1".to_owned());
    let context = AgentContext { topic_root, clock: Clock::new(), stop, boot_id };
    let troubles = Troubles::open(&world.topic_root, context.clock, "zedkube");
    (stopper, context, troubles)
}

type Grants = BTreeSet<(String, String, String)>;

/// A ClusterRole, or a Role in a namespace.
#[derive(Deserialize)]
struct Role {
    metadata: Meta,
    rules: Vec<PolicyRule>,
}

#[derive(Deserialize)]
struct Meta {
    name: String,
    namespace: Option<String>,
}

fn role(name: &str) -> Role {
    let roles = include_str!("../../docs/reference/role.yaml").split("\n---\n");
    let mut roles = roles.map(|text| serde_saphyr::from_str::<Role>(text).unwrap());
    roles.find(|role| role.metadata.name == name).unwrap()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    kind: String,
    metadata: Meta,
    role_ref: Meta,
}

/// The namespace in which the role of this name is given, and only there.
fn place(name: &str) -> String {
    let files = [
        include_str!("../../docs/reference/role-bindings.yaml"),
        include_str!("../../docs/reference/role-bindings-apps.yaml"),
    ];
    let bindings = files.iter().flat_map(|file| file.split("\n---\n"));
    let mut bindings = bindings.map(|text| serde_saphyr::from_str::<Binding>(text).unwrap());
    let binding = bindings.find(|it| it.role_ref.name == name).unwrap();
    assert_eq!(binding.kind, "RoleBinding", "{name}");
    assert!(bindings.all(|it| it.role_ref.name != name), "{name}");
    binding.metadata.namespace.unwrap()
}

/// `kubectl apply -f` makes the objects of a file in their order, and none in a namespace that is not there.
#[test]
fn the_roles_can_be_applied_in_one_go_before_the_namespace_of_applications_exists() {
    let whole =
        |text: &'static str| text.split("\n---\n").map(|it| serde_saphyr::from_str::<Value>(it).unwrap());
    let (roles, bindings) = (
        include_str!("../../docs/reference/role.yaml"),
        include_str!("../../docs/reference/role-bindings.yaml"),
    );
    for object in whole(roles).chain(whole(bindings)) {
        // Each cluster has these.
        let namespace = object["metadata"]["namespace"].as_str();
        assert!(
            namespace.is_none_or(|it| matches!(it, "kube-node-lease" | "kube-system" | "default")),
            "{object}"
        );
    }
    // A namespace that belongs to somebody is not touched.
    let apps = include_str!("../../docs/reference/role-bindings-apps.yaml");
    for object in whole(roles).chain(whole(bindings)).chain(whole(apps)) {
        assert_ne!(object["kind"], "Namespace");
    }
    assert!(whole(apps).all(|it| it["metadata"]["namespace"] == "eve-kube-app"));
}

fn granted(names: &[&str]) -> Grants {
    let mut granted = BTreeSet::new();
    for rule in names.iter().flat_map(|name| role(name).rules) {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    granted.insert((group.clone(), resource.clone(), verb.clone()));
                }
            }
        }
    }
    granted
}

fn granted_and_used(roles: &[&str], asked: &[(String, String)]) {
    let granted = granted(roles);
    let used: Grants = asked.iter().filter_map(needed).collect();
    let missing: Vec<_> = used.difference(&granted).collect();
    assert!(missing.is_empty(), "asked for, but not granted: {missing:?}");
    let unused: Vec<_> = granted.difference(&used).collect();
    assert!(unused.is_empty(), "granted, but never asked for: {unused:?}");
}

#[tokio::test(start_paused = true)]
async fn s1_turns_ask_for_what_their_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    // A worker: no etcd is asked.
    world.cluster.sim().edit("nodes", "", "edge-node-1", |it| it["metadata"]["labels"] = json!({}));
    let (ask, mut asks) = mpsc::unbounded_channel();
    let (tell, mut told) = mpsc::unbounded_channel();
    let (handle, clock) = (world.cluster.handle(), Clock::new());
    let ours = Ours {
        node: our_node(),
        device_uuid: UUID.to_owned(),
        boot_id: "b1".to_owned(),
        etcd: EtcdAccess {
            addresses: Addresses::default(),
            paths: Paths::usual("/nowhere".as_ref()),
            settings: EtcdSettings { metrics: "", gateway: "", data: "" },
        },
        port: 0,
    };
    let (leases, lease) = watch::channel(None);
    let clocks = (|| clock.now(), || clock.wall().to_timestamp());
    let keep = keeper::keep(&handle, &ours, &lease, clocks, &mut asks, &tell);
    let life = async {
        let mut until = async |is: &dyn Fn(&TurnState) -> bool| {
            while !matches!(told.recv().await.unwrap(), KeeperReport::TurnState(it) if is(&it)) {}
        };
        ask.send(Ask::Want(Some(TurnRequest { op: Op::Reboot, counter: 1, emergency: false, fit: true })))
            .unwrap();
        until(&|it| matches!(it, TurnState::Held { .. })).await;
        // Only the watch shows that somebody took it away.
        world.cluster.sim().edit("coordination/leases", "eve-kube-app", LEASE, |it| {
            it["metadata"]["annotations"][HOLDERS] = json!("[]");
        });
        until(&|it| matches!(it, TurnState::Lost { .. })).await;
        ask.send(Ask::Want(None)).unwrap();
        until(&|it| matches!(it, TurnState::NotWanted { .. })).await;
    };
    tokio::select! {
        () = keep => panic!("it ends with its asker"),
        () = outage::calls::follow(&handle, &leases) => panic!("a watch that ends"),
        () = life => {}
    }
    let (own, rest): (Vec<_>, Vec<_>) =
        world.cluster.asked_by_agents().into_iter().partition(|it| is_in_place("pillar-rs-outage", it));
    granted_and_used(&["pillar-rs-outage"], &own);
    let granted = granted(&["pillar-rs-node-drain", NODE_LEASE_ROLE]);
    assert!(rest.iter().filter_map(needed).all(|it| granted.contains(&it)), "{rest:?}");
}

/// Whether a request is one of leases that the role of this name grants, by place and name.
fn is_in_place(role_name: &str, (method, uri): &(String, String)) -> bool {
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", place(role_name));
    let Some(rest) = uri.strip_prefix(&leases) else { return false };
    let named = role(role_name).rules.into_iter().any(|it| it.resource_names == Some(vec![LEASE.to_owned()]));
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let by_name =
        path == format!("/{LEASE}") || query.contains(&format!("fieldSelector=metadata.name%3D{LEASE}"));
    assert!(named && (by_name || method == "POST"), "{method} {uri}");
    true
}

/// Whether all that agents ask for in a whole-site operation is granted to them.
pub(crate) fn is_granted(asked: &[(String, String)]) {
    let roles = [
        "pillar-rs-node-drain",
        PREFLIGHT_ROLE,
        NODE_LEASE_ROLE,
        LEASE_ROLE,
        OUTAGE_ROLE,
        STATS_ROLE,
        APPS_ROLE,
        "pillar-rs-site",
        "pillar-rs-site-restart",
        MACHINES_ROLE,
        DISKS_ROLE,
        PROPERTIES_ROLE,
        REPORT_ROLES[0],
        REPORT_ROLES[1],
    ];
    let granted = granted(&roles);
    let missing: Vec<_> = asked.iter().filter_map(needed).filter(|it| !granted.contains(it)).collect();
    assert!(missing.is_empty(), "asked for, but not granted: {missing:?}");
}

#[tokio::test(start_paused = true)]
async fn s1_leaving_the_cluster_asks_for_what_its_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    let sim = world.cluster.sim();
    sim.add_bare_pod("eve-kube-app", "app", "edge-node-1");
    sim.until("pods", |pods| pods.iter().all(|pod| pod["status"]["phase"] == "Running")).await;
    let handle = world.cluster.handle();
    sim.add_sharded_volume("shop", "parts", "pvc-2", &["edge-node-2", "edge-node-3"], 1);
    // No node of this cluster is on that list: none is deleted.
    assert!(prune::look(&handle, &["another".to_owned()], "").await.unwrap().stale.is_empty());
    let order = Leave {
        drain: order(AttemptRules::default()),
        attempt: watch::Sender::new(Duration::ZERO).subscribe(),
        tries: 1,
        pause: Duration::ZERO,
        reach: Duration::ZERO,
    };
    let clock = Clock::new();
    let told = watch::Sender::new(leave::LeaveState::default());
    let (phase, why) = leave::leave(&handle, &order, || clock.now(), &told).await;
    assert_eq!((phase, &told.borrow().passed_over), (LeavePhase::Left, &vec![]), "{why}");
    granted_and_used(&["pillar-rs-node-leave"], &world.cluster.asked_by_agents());
}

#[tokio::test(start_paused = true)]
async fn s1_the_statistics_ask_for_what_their_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    let root = tempfile::tempdir().unwrap();
    let topic_root = TopicRoot::open(root.path()).unwrap();
    let clock = Clock::new();
    let (_leading, leading) =
        watch::channel(Leadership { until: Some(clock.now() + Duration::from_hours(1)) });
    let (_configs, config) = watch::channel(Some(std::sync::Arc::default()));
    let troubles = Troubles::open(&topic_root, clock, "zedkube");
    let mut told =
        topic_root.subscription(&wire::name::<KubeStatsState>("zedkube"), wire::codec::<KubeStatsState>());
    // Said a while after the last list: by then each watch has been asked for.
    let followed = async {
        loop {
            if let Change::Put { value, .. } = told.next().await
                && value.requests_open == 10
            {
                return;
            }
        }
    };
    tokio::select! {
        ended = stats::run(&troubles, world.cluster.handle(), clock, leading, config) => panic!("{ended:?}"),
        () = followed => {}
    }
    granted_and_used(&[STATS_ROLE], &world.cluster.asked_by_agents());
}

#[tokio::test(start_paused = true)]
async fn s1_applications_ask_for_what_their_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    add_application(&world);
    let (_stopper, context, troubles) = context(&world);
    let (cluster, wanted) = (world.cluster.handle(), watch::Sender::default());
    let pipe = clusterview::apps::Pipe::new(tokio::io::sink());
    // A line is marked, and the status is there.
    let marked = world.has::<AppLogMarks>("zedkube", "a line to be handed on", |it| {
        it.containers.iter().any(|container| !container.moments.is_empty())
    });
    tokio::select! {
        ended = clusterview::apps::run(&context, &troubles, cluster, own_node(), wanted, pipe) => panic!("{ended:?}"),
        _ = marked => {}
    }
    assert!(world.text(&format!("run/zedkube/ENClusterAppStatus/{APP}.json")).is_some());
    let asked = world.cluster.asked_by_agents();
    granted_and_used(&[APPS_ROLE], &asked);
    let place = format!("/api/v1/namespaces/{}/pods", place(APPS_ROLE));
    assert!(asked.iter().all(|(_, uri)| uri.starts_with(&place)), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn s1_the_role_grants_what_a_whole_reboot_asks_for_and_nothing_else() {
    let mut world = World::new().await;
    // One pod mounts a volume, one has two budgets, and another volume has its last copy here.
    let sim = world.cluster.sim();
    crate::storage::install(sim, "");
    crate::storage::shards(sim);
    sim.add_claim("shop", "films", "pv-films");
    sim.add_mounting_pod("shop", "player", "edge-node-1", "films");
    sim.add_bare_pod("shop", "twice", "edge-node-1");
    for budget in ["one", "other"] {
        sim.add_budget("shop", budget, "twice", &json!({ "minAvailable": 0 }));
    }
    sim.until("pods", |pods| pods.iter().all(|pod| pod["status"]["phase"] == "Running")).await;
    // A budget that blocks first, so that budgets are looked at and followed.
    world.prepare(At::Status(DrainStatus::Cordoned)).await;
    add_application(&world);
    crate::starts(&mut world).await;
    world
        .has::<AppLogMarks>("zedkube", "a line of an application to be handed on", |it| {
            it.containers.iter().any(|container| !container.moments.is_empty())
        })
        .await;
    world.has::<KubeLeaderElectInfo>("zedkube", "this node to lead", |it| it.is_stats_leader).await;
    world
        .has::<KubeStatsState>("zedkube", "all that the report is made of to be followed", |it| {
            it.requests_open == 10
        })
        .await;
    world.ask_reboot(7);
    world
        .progress("a blocker with the name of its budget", |it| {
            it.blockers.iter().any(|blocker| blocker.reason.contains("web"))
        })
        .await;
    // A Node is told of what stays for some seconds.
    let sim = world.cluster.sim();
    sim.until("nodes", |all| all.iter().any(|it| it.to_string().contains("pillar-rs/Drained"))).await;
    world.release().await;
    let sim = world.cluster.sim();
    sim.until("longhorn/volumes", |_| crate::storage::wanted(sim).0 == 2).await;
    crate::storage::rebuild(sim, "RW");
    world.recorded_count(1).await;
    crate::comes_back(&mut world, 7).await;
    // Whether a drain has asked anything of machines is looked for before the cordon goes; their role has its own test.
    let drained = granted(&[STATS_ROLE, PREFLIGHT_ROLE]);
    let machines = granted(&[MACHINES_ROLE]);
    let of_machines = |it: &(String, String)| {
        needed(it).is_some_and(|it| it.0 == "kubevirt.io" && machines.contains(&it) && !drained.contains(&it))
    };
    let mut asked = world.cluster.asked_by_agents();
    // The config says how much room is kept on the disks, and when snapshots are made: that has roles and tests of its
    // own, too.
    let of_disks = |it: &(String, String)| {
        needed(it).is_some_and(|it| {
            granted(&[DISKS_ROLE]).contains(&it) && it.2 == "get" || granted(&[PROPERTIES_ROLE]).contains(&it)
        })
    };
    asked.retain(|it| !of_machines(it) && !of_disks(it));
    // The preflight lists Events; what writes them has a role in one namespace.
    let writes_events = |it: &(String, String)| it.0 != "GET" && it.1.contains("/events");
    let (events, asked): (Vec<_>, Vec<_>) = asked.into_iter().partition(writes_events);
    granted_and_used(
        &[
            "pillar-rs-node-drain",
            PREFLIGHT_ROLE,
            NODE_LEASE_ROLE,
            LEASE_ROLE,
            OUTAGE_ROLE,
            STATS_ROLE,
            APPS_ROLE,
            REPORT_ROLES[0],
        ],
        &asked,
    );
    reports::are_events_of_the_node(&events);
    // A lease's role holds in one namespace, and but for create the election's for one lease.
    let places = [NODE_LEASE_ROLE, LEASE_ROLE, OUTAGE_ROLE, "pillar-rs-virtual-ips"].map(|name| {
        let role = role(name);
        let limited = role.rules.iter().filter(|rule| rule.verbs != ["create"]);
        let names: Vec<String> =
            limited.flat_map(|rule| rule.resource_names.clone().unwrap_or_default()).collect();
        (format!("/namespaces/{}/leases", place(name)), names)
    });
    for (method, uri) in asked.iter().filter(|(_, uri)| uri.contains("/leases")) {
        let path = uri.split('?').next().unwrap();
        let granted = |(place, names): &(String, Vec<String>)| {
            let Some((_, rest)) = path.split_once(place.as_str()) else { return false };
            rest.is_empty() && (method == "POST" || names.is_empty())
                || names.iter().any(|it| {
                    // A list of one name is granted by that name.
                    let only = format!("fieldSelector=metadata.name%3D{it}");
                    rest == format!("/{it}") || rest.is_empty() && uri.contains(&only)
                })
        };
        assert!(places.iter().any(granted), "{method} {uri}");
    }
}
