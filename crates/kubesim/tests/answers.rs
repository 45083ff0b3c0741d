//! Each row of `tests/golden/kubesim/answers.json` against kubesim: a row without a trial here fails, as does a trial
//! with another answer. The rows were compared with the real component of the versions that they name.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use kubesim::{ScriptedFault, Sim};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::machines::{
    GUESTS, KUBEVIRTS, MACHINES, MIGRATIONS, cluster, evict, guest, launchers, running, send, set, soon,
    with_guest,
};

const TABLE: &str = include_str!("../../../tests/golden/kubesim/answers.json");
const SPACE: &str = "longhorn-system";
const VOLUMES: &str = "longhorn/volumes";
const TICKETS: &str = "longhorn/volumeattachments";

fn away(sim: &Sim) {
    sim.edit(KUBEVIRTS, "kubevirt", "kubevirt", |it| {
        it["metadata"]["annotations"]["kubesim/virt-api"] = "down".into();
    });
}

fn said((code, status): (u16, Value)) -> Value {
    match status["message"].as_str() {
        Some(text) => json!({ "code": code, "reason": status["reason"], "message": text }),
        None => json!({ "code": code }),
    }
}

fn filled(answer: &Value, names: &[(&str, &str)]) -> Value {
    let mut answer = answer.clone();
    if let Some(text) = answer["message"].as_str() {
        let text = names
            .iter()
            .fold(text.to_owned(), |text, (what, with)| text.replace(&format!("{{{what}}}"), with));
        answer["message"] = text.into();
    }
    answer
}

fn object(plural: &str, name: &str) -> String {
    format!("/apis/kubevirt.io/v1/namespaces/shop/{plural}/{name}")
}

fn call(plural: &str, name: &str, what: &str) -> String {
    format!("/apis/subresources.kubevirt.io/v1/namespaces/shop/{plural}/{name}/{what}")
}

/// A migration of a guest of this name, as a person asks for one.
async fn migrate(sim: &Sim, guest: &str, priority: Option<&str>) -> (u16, Value) {
    let job = json!({ "metadata": { "name": "m" }, "spec": { "vmiName": guest, "priority": priority } });
    send(sim, "POST", object("virtualmachineinstancemigrations", "").trim_end_matches('/'), &job.to_string())
        .await
}

/// A pod `target` of a migration of guest db that runs.
async fn target(sim: &Sim) -> String {
    sim.script_migrations("shop", "db", "hang");
    assert_eq!(migrate(sim, "db", None).await.0, 201);
    soon(sim, MIGRATIONS, |all| all[0]["status"]["phase"] == "Running").await;
    guest(sim, "db")["status"]["migrationState"]["targetPod"].as_str().unwrap().to_owned()
}

async fn launcher(row: &str, version: &str, answer: &Value) -> (Value, Value) {
    let sim = with_guest(version, "LiveMigrate").await;
    sim.script_migrations("shop", "db", "hang-pending");
    let mut names = [("namespace", "shop"), ("guest", "db")];
    let mut pod = launchers(&sim, "db").remove(0);
    match row {
        "marked" => drop(evict(&sim, &pod).await),
        "not-migratable" => {
            sim.edit(GUESTS, "shop", "db", |it| {
                it["metadata"]["annotations"]["kubesim/not-migratable"] = "No: why".into();
            });
            let no = |all: &[Value]| all[0]["status"]["conditions"].to_string().contains("why");
            soon(&sim, GUESTS, no).await;
        }
        "target" => pod = target(&sim).await,
        "no-guest" => {
            names[1].1 = "gone";
            sim.edit("pods", "shop", &pod, |it| {
                it["metadata"]["annotations"]["kubevirt.io/domain"] = "gone".into();
            });
        }
        _ => {}
    }
    (said(evict(&sim, &pod).await), filled(answer, &names))
}

async fn virt_api_away(row: &str, version: &str) -> Value {
    let sim = with_guest(version, "LiveMigrate").await;
    let pod = launchers(&sim, "db").remove(0);
    target(&sim).await;
    away(&sim);
    let patch = json!([{ "op": "add", "path": "/metadata/labels", "value": {} }]).to_string();
    match row {
        "launcher" => said(evict(&sim, &pod).await),
        "new-migration" => said(migrate(&sim, "db", None).await),
        "subresource" => {
            let uri = call("virtualmachineinstances", "db", "evacuate/cancel");
            let request = Request::builder().method("PUT").uri(uri).body(Full::from("{}")).unwrap();
            let response = sim.service().oneshot(request).await.unwrap();
            let code = response.status().as_u16();
            let text = response.into_body().collect().await.unwrap().to_bytes().to_vec();
            json!({ "code": code, "text": String::from_utf8(text).unwrap() })
        }
        plural => {
            let name = if plural == "virtualmachineinstancemigrations" { "m" } else { "db" };
            said(send(&sim, "PATCH", &object(plural, name), &patch).await)
        }
    }
}

/// virt-api's only pod was on a node that is down; what is left is cordoned.
async fn virt_api_without_a_node(version: &str) -> Value {
    let sim = cluster(version).await;
    sim.edit("nodes", "", "n1", |it| it["spec"]["unschedulable"] = true.into());
    sim.add_deployment("kubevirt", "virt-api", 1);
    let ready = |all: &[Value]| all[0]["status"]["readyReplicas"] == 1;
    soon(&sim, "apps/deployments", ready).await;
    for node in ["n2", "n3"] {
        sim.power(node, false);
    }
    let down = |it: &Value| it["status"]["conditions"][0]["status"] == "Unknown";
    soon(&sim, "nodes", |all| all.iter().filter(|it| down(it)).count() == 2).await;
    for pod in sim.list("pods") {
        sim.remove("pods", "kubevirt", pod["metadata"]["name"].as_str().unwrap());
    }
    let text = |it: &Value| it["status"]["conditions"].to_string();
    let says = "1 node(s) were unschedulable";
    soon(&sim, "pods", |all| all.iter().any(|it| text(it).contains(says))).await;
    let scheduled = !sim.list("pods")[0]["spec"]["nodeName"].is_null();
    let away = send(&sim, "PUT", &call("virtualmachines", "db", "stop"), "{}").await.0;
    assert_eq!(away, 503, "it is away as long as it has no node");
    json!({ "scheduled": scheduled, "says": says })
}

async fn cancel(row: &str, version: &str, answer: &Value) -> (Value, Value) {
    let sim = with_guest(version, "External").await;
    if row != "not-marked" {
        assert_eq!(evict(&sim, &launchers(&sim, "db")[0]).await.0, 429);
    }
    let (mut body, mut names) = (json!({}), vec![]);
    match row {
        "tainted" => {
            // That of another node does not count.
            for (node, key) in [("n1", "kubevirt.io/drain"), ("n2", "other")] {
                sim.edit("nodes", "", node, |it| {
                    it["spec"]["taints"] = json!([{ "key": key, "effect": "NoSchedule" }]);
                });
            }
            (body, names) =
                (json!({ "evacuationNodeName": "n2" }), vec![("node", "n1"), ("taint", "kubevirt.io/drain")]);
        }
        "other-node" => body = json!({ "evacuationNodeName": "n2" }),
        _ => {}
    }
    let body = if body == json!({}) { String::new() } else { body.to_string() };
    let uri = call("virtualmachineinstances", "db", "evacuate/cancel");
    (said(send(&sim, "PUT", &uri, &body).await), filled(answer, &names))
}

/// `stop` or `start` of a machine with this strategy whose guest runs, or which has none.
async fn switch(what: &str, row: &str, version: &str, answer: &Value) -> (Value, Value) {
    let sim = cluster(version).await;
    let (strategy, runs) = match (what, row) {
        ("stop", "always-without-guest") => ("Always", false),
        ("stop", "manual-without-guest") => ("Manual", false),
        ("stop", _) => ("Halted", true),
        ("start", "running") => ("Always", true),
        _ => ("Once", false),
    };
    sim.add_machine_on("shop", "db", "Always", "n1", &json!({}));
    running(&sim, "db").await;
    if runs {
        sim.edit(MACHINES, "shop", "db", |it| it["spec"]["runStrategy"] = strategy.into());
    } else {
        sim.remove(MACHINES, "shop", "db");
        sim.remove(GUESTS, "shop", "db");
        sim.add_machine("shop", "db", strategy);
        sim.remove(GUESTS, "shop", "db");
    }
    let answered = said(send(&sim, "PUT", &call("virtualmachines", "db", what), "{}").await);
    (answered, filled(answer, &[("machine", "db"), ("strategy", strategy)]))
}

async fn migration(row: &str, version: &str, answer: &Value) -> (Value, Value) {
    let sim = with_guest(version, "LiveMigrate").await;
    let mut names = vec![("namespace", "shop"), ("guest", "db")];
    let uid;
    let answered = match row {
        "no-guest" => {
            names[1].1 = "gone";
            migrate(&sim, "gone", None).await
        }
        "priority" => migrate(&sim, "db", Some("system-critical")).await,
        "over" => {
            sim.edit(GUESTS, "shop", "db", |it| it["status"]["phase"] = "Succeeded".into());
            migrate(&sim, "db", None).await
        }
        "not-migratable" => {
            sim.edit(GUESTS, "shop", "db", |it| {
                it["metadata"]["annotations"]["kubesim/not-migratable"] = "No: why".into();
            });
            soon(&sim, GUESTS, |all| all[0]["status"]["conditions"].to_string().contains("why")).await;
            names.extend([("reason", "No"), ("message", "why")]);
            migrate(&sim, "db", None).await
        }
        _ => {
            target(&sim).await;
            uid = sim.list(MIGRATIONS)[0]["metadata"]["uid"].as_str().unwrap().to_owned();
            names.push(("uid", &uid));
            migrate(&sim, "db", None).await
        }
    };
    (said(answered), filled(answer, &names))
}

async fn evacuation(row: &str, version: &str) -> Value {
    let sim = cluster(version).await;
    let count = if row == "at-once" { 5 } else { 1 };
    let names: Vec<String> = (0..count).map(|it| format!("vm{it}")).collect();
    for name in &names {
        sim.add_machine_on("shop", name, "Always", "n1", &json!({ "evictionStrategy": "LiveMigrate" }));
        sim.script_migrations("shop", name, "hang");
        running(&sim, name).await;
    }
    set(&sim, "parallelOutboundMigrationsPerNode", 2.into());
    for name in &names {
        assert_eq!(evict(&sim, &launchers(&sim, name)[0]).await.0, 429);
    }
    soon(&sim, MIGRATIONS, |all| all.len() == names.len()).await;
    let runs = |it: &Value| it["status"]["phase"] == "Running";
    soon(&sim, MIGRATIONS, |all| all.iter().filter(|it| runs(it)).count() == names.len().min(2)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let all = sim.list(MIGRATIONS);
    if row == "at-once" {
        return json!({ "made": all.len(), "leaving": all.iter().filter(|it| runs(it)).count() });
    }
    json!({ "priority": all[0]["spec"]["priority"] })
}

async fn aborted(version: &str) -> Value {
    let sim = with_guest(version, "LiveMigrate").await;
    // No node can take it: its target waits.
    for node in ["n2", "n3"] {
        sim.edit("nodes", "", node, |it| it["spec"]["unschedulable"] = true.into());
    }
    assert_eq!(migrate(&sim, "db", None).await.0, 201);
    soon(&sim, MIGRATIONS, |all| all[0]["status"]["phase"] == "Scheduling").await;
    let since = sim.list(MIGRATIONS)[0]["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let uri = object("virtualmachineinstancemigrations", "m");
    assert_eq!(send(&sim, "DELETE", &uri, "{}").await.0, 200);
    soon(&sim, MIGRATIONS, <[Value]>::is_empty).await;
    // All that it was on its way.
    let all = object("virtualmachineinstancemigrations", "").trim_end_matches('/').to_owned();
    let uri = format!("{all}?watch=true&resourceVersion={since}&timeoutSeconds=1");
    let request = Request::builder().uri(uri).body(Full::<Bytes>::default()).unwrap();
    let lines = sim.service().oneshot(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let lines = String::from_utf8(lines.to_vec()).unwrap();
    let named = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        event["object"]["status"]["conditions"][0]["type"].as_str().map(str::to_owned)
    };
    json!({ "condition": lines.lines().find_map(named) })
}

async fn status_of_others(version: &str) -> Value {
    let sim = with_guest(version, "External").await;
    assert_eq!(evict(&sim, &launchers(&sim, "db")[0]).await.0, 429);
    let patch = json!([{ "op": "remove", "path": "/status/evacuationNodeName" }]).to_string();
    let (code, _) = send(&sim, "PATCH", &object("virtualmachineinstances", "db"), &patch).await;
    json!({ "code": code, "kept": !guest(&sim, "db")["status"]["evacuationNodeName"].is_null() })
}

/// Longhorn under its own eviction, a volume with one copy on n1, and pod db there that uses it.
async fn volume(policy: &str) -> Sim {
    let sim = Sim::of_nodes(3);
    sim.add_longhorn(policy);
    soon(&sim, "policy/poddisruptionbudgets", |all| all.len() == 3).await;
    sim.add_longhorn_volume("shop", "data", "pvc-1", &["n1"]);
    sim.add_mounting_pod("shop", "db", "n1", "data");
    soon(&sim, VOLUMES, |all| all[0]["status"]["robustness"] == "healthy").await;
    sim
}

async fn ticket(row: &str) -> Value {
    let policy = "block-for-eviction-if-contains-last-replica";
    let sim = volume(if row == "event-first" { "always-allow" } else { policy }).await;
    if row == "event-first" {
        return event_first(&sim).await;
    }
    sim.edit("nodes", "", "n1", |it| it["spec"]["unschedulable"] = true.into());
    let types = |all: &[Value]| -> BTreeSet<String> {
        let tickets = all[0]["spec"]["attachmentTickets"].as_object().into_iter().flatten();
        tickets.map(|(_, it)| it["type"].as_str().unwrap().to_owned()).collect()
    };
    soon(&sim, TICKETS, |all| types(all).len() == 2).await;
    let held = sim.list(TICKETS);
    let owner = sim.list(VOLUMES)[0]["status"]["ownerID"].clone();
    let of_eviction = held[0]["spec"]["attachmentTickets"]["volume-eviction-controller-pvc-1"].clone();
    if row == "kept" {
        // The copy that leaves has been deleted.
        let here = |it: &Value| it["spec"]["nodeID"] == "n1";
        soon(&sim, "longhorn/replicas", |all| !all.iter().any(here)).await;
        return json!({ "kept": types(&sim.list(TICKETS)).contains("volume-eviction-controller") });
    }
    if row == "attached" {
        assert_eq!((&of_eviction["nodeID"], &owner), (&json!("n1"), &json!("n1")));
        return json!({ "tickets": types(&held), "node": "owner" });
    }
    sim.add_mounting_pod("shop", "moved", "n2", "data");
    sim.remove("pods", "shop", "db");
    let of_csi = |all: &[Value]| all[0]["spec"]["attachmentTickets"]["csi-pvc-1-n2"].is_object();
    soon(&sim, TICKETS, |all| of_csi(all) && types(all).len() == 2).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(sim.list(VOLUMES)[0]["status"]["currentNodeID"], owner);
    soon(&sim, VOLUMES, |all| all[0]["status"]["currentNodeID"] == "n2").await;
    let elsewhere = |it: &Value| it["spec"]["healthyAt"] != "" && it["spec"]["nodeID"] != "n1";
    assert!(sim.list("longhorn/replicas").iter().any(elsewhere), "not before the copy is whole");
    json!({ "attached": "owner", "after-the-copy": "other" })
}

/// Whether the reply to a PATCH or the event of it comes first.
async fn event_first(sim: &Sim) -> Value {
    sim.faults().script("PATCH", "volumes/pvc-1", 1, ScriptedFault::LateReply(Duration::from_secs(1)));
    let uri = format!("/apis/longhorn.io/v1beta2/namespaces/{SPACE}/volumes/pvc-1");
    let patch = json!([{ "op": "replace", "path": "/spec/numberOfReplicas", "value": 2 }]).to_string();
    let first = tokio::select! {
        (code, _) = send(sim, "PATCH", &uri, &patch) => json!(code),
        () = soon(sim, VOLUMES, |all| all[0]["spec"]["numberOfReplicas"] == 2) => json!("event"),
    };
    json!({ "first": first })
}

/// A pod with a finalizer in a namespace that is deleted.
async fn ending_namespace() -> Sim {
    let sim = cluster("v1.9.0").await;
    sim.add_bare_pod("going", "held", "n1");
    sim.edit("pods", "going", "held", |it| it["metadata"]["finalizers"] = json!(["own.example/held"]));
    assert_eq!(send(&sim, "DELETE", "/api/v1/namespaces/going", "{}").await.0, 200);
    sim
}

async fn kubernetes(row: &str, answer: &Value) -> (Value, Value) {
    let answered = match row {
        "delete/no-grace" => {
            let sim = cluster("v1.9.0").await;
            sim.add_bare_pod("shop", "a", "n1");
            sim.edit("pods", "shop", "a", |it| it["spec"]["terminationGracePeriodSeconds"] = 0.into());
            let (code, _) = send(&sim, "DELETE", "/api/v1/namespaces/shop/pods/a", "{}").await;
            json!({ "code": code, "left": sim.get("pods", "shop", "a").is_some() })
        }
        "namespace/held" => {
            let sim = ending_namespace().await;
            let phase = sim.get("namespaces", "", "going").unwrap()["status"]["phase"].clone();
            let patch = json!([{ "op": "remove", "path": "/metadata/finalizers" }]).to_string();
            send(&sim, "PATCH", "/api/v1/namespaces/going/pods/held", &patch).await;
            soon(&sim, "namespaces", |all| all.iter().all(|it| it["metadata"]["name"] != "going")).await;
            json!({ "phase": phase })
        }
        "namespace/new" => {
            let sim = ending_namespace().await;
            let refused = send(&sim, "POST", "/api/v1/namespaces/going/pods/held/eviction", "{}").await;
            assert_eq!(refused.1["details"]["causes"][0]["reason"], "NamespaceTerminating");
            let names = [("resource", "pods"), ("name", "held"), ("namespace", "going")];
            return (said(refused), filled(answer, &names));
        }
        "schedule/host-port" | "schedule/no-room" => {
            let sim = cluster("v1.9.0").await;
            for node in ["n1", "n2", "n3"] {
                sim.edit("nodes", "", node, |it| it["status"]["allocatable"]["cpu"] = "4".into());
            }
            let container = if row == "schedule/no-room" {
                json!({ "name": "c", "resources": { "requests": { "cpu": "1000" } } })
            } else {
                json!({ "name": "c", "ports": [{ "containerPort": 80, "hostPort": 80 }] })
            };
            for nth in 0..5 {
                let (name, spec) = (format!("p{nth}"), json!({ "containers": [container] }));
                let pod = json!({ "metadata": { "name": name }, "spec": spec }).to_string();
                assert_eq!(send(&sim, "POST", "/api/v1/namespaces/shop/pods", &pod).await.0, 201);
            }
            let says = answer["says"].as_str().unwrap();
            let placed = |it: &&Value| !it["spec"]["nodeName"].is_null();
            let unplaced = |it: &&Value| it["status"]["conditions"].to_string().contains(says);
            soon(&sim, "pods", |all| all.iter().filter(|it| placed(it) || unplaced(it)).count() == 5).await;
            json!({ "running": sim.list("pods").iter().filter(placed).count(), "says": says })
        }
        "served/groups" => {
            let sim = cluster("v1.9.0").await;
            let (_, groups) = send(&sim, "GET", "/apis", "").await;
            let served = |wanted: &&Value| groups["groups"].to_string().contains(wanted.as_str().unwrap());
            let wanted = answer["groups"].as_array().unwrap();
            json!({ "groups": wanted.iter().filter(served).collect::<Vec<_>>() })
        }
        _ => json!("no trial of this row"),
    };
    (answered, answer.clone())
}

/// A token of account `agents`, or of one that is not there.
async fn token(row: &str, answer: &Value) -> (Value, Value) {
    let sim = cluster("v1.9.0").await;
    sim.apply("serviceaccounts", json!({ "metadata": { "name": "agents", "namespace": "shop" } }));
    let secs = match row {
        "unsaid" => None,
        "short" => Some(60_u64),
        "long" => Some(1 << 33),
        _ => Some(86_400),
    };
    let account = if row == "no-account" { "nobody" } else { "agents" };
    let (uri, body) = (
        format!("/api/v1/namespaces/shop/serviceaccounts/{account}/token"),
        json!({
            "spec": { "expirationSeconds": secs },
        }),
    );
    let (code, made) = send(&sim, "POST", &uri, &body.to_string()).await;
    let secs = secs.unwrap_or_default().to_string();
    let mut expected = filled(answer, &[("secs", &secs), ("account", account)]);
    if row == "unsaid" {
        return (json!({ "code": code, "expirationSeconds": made["spec"]["expirationSeconds"] }), expected);
    }
    if code != 201 {
        return (said((code, made)), expected);
    }
    let claims = made["status"]["token"].as_str().unwrap().split('.').nth(1).unwrap();
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    expected["subject"] = "system:serviceaccount:shop:agents".into();
    let answered = json!({
        "code": code, "kind": made["kind"], "audiences": made["spec"]["audiences"], "subject": claims["sub"],
        "expirationSeconds": made["spec"]["expirationSeconds"],
        "claims": claims.as_object().unwrap().keys().collect::<Vec<_>>(),
        "lasts": claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(),
    });
    (answered, expected)
}

/// Short names in the discovery of a group.
async fn short_names(version: &str) -> Value {
    let sim = with_guest("v1.9.0", "LiveMigrate").await;
    sim.add_longhorn("block-if-contains-last-replica");
    sim.add_longhorn_volume("shop", "data", "pvc-1", &["n1"]);
    soon(&sim, "longhorn/engines", |all| !all.is_empty()).await;
    let root = if version == "v1" { "api" } else { "apis" };
    let (_, served) = send(&sim, "GET", &format!("/{root}/{version}"), "").await;
    let is_short = |it: &&Value| it["shortNames"].as_array().is_some_and(|all| !all.is_empty());
    let named = served["resources"].as_array().unwrap().iter().filter(is_short);
    named.map(|it| (it["name"].as_str().unwrap().to_owned(), it["shortNames"].clone())).collect()
}

/// kubesim's answer in a row's situation, and the row's, with the same names.
async fn tried(row: &str, version: &str, answer: &Value) -> (Value, Value) {
    let plain = |it: Value| (it, answer.clone());
    let (kind, rest) = row.split_once('/').unwrap();
    match (kind, rest) {
        ("launcher", rest) => launcher(rest, version, answer).await,
        ("hotplug", _) => {
            let sim = with_guest(version, "LiveMigrate").await;
            let pod = sim.plug_disk("shop", "db", "more").unwrap();
            soon(&sim, "pods", |all| all.len() == 2).await;
            let names = [("pod", pod.as_str()), ("guest", "db"), ("namespace", "shop")];
            (said(evict(&sim, &pod).await), filled(answer, &names))
        }
        ("away", "no-node") => plain(virt_api_without_a_node(version).await),
        ("away", rest) => plain(virt_api_away(rest, version).await),
        ("cancel", rest) => cancel(rest, version, answer).await,
        ("stop" | "start", rest) => switch(kind, rest, version, answer).await,
        ("migration", rest) => migration(rest, version, answer).await,
        ("evacuation", rest) => plain(evacuation(rest, version).await),
        ("abort", _) => plain(aborted(version).await),
        ("status", _) => plain(status_of_others(version).await),
        ("ticket", rest) => plain(ticket(rest).await),
        ("token", rest) => token(rest, answer).await,
        ("short", rest) => plain(short_names(rest).await),
        _ => kubernetes(row, answer).await,
    }
}

#[tokio::test(start_paused = true)]
async fn each_answer_is_that_of_the_real_component() {
    let rows: Vec<Value> = serde_json::from_str(TABLE).unwrap();
    let mut named = BTreeSet::new();
    for row in &rows {
        let (name, compared) = (row["name"].as_str().unwrap(), row["compared"].as_array().unwrap());
        assert!(matches!(row["how"].as_str(), Some("run" | "source")), "{row}");
        assert!(row["request"].is_string() && !compared.is_empty(), "{row}");
        assert!(named.insert((name, row["minors"].to_string())), "twice: {row}");
        for version in compared {
            let version = version.as_str().unwrap();
            let (answered, expected) = tried(name, version, &row["answer"]).await;
            assert_eq!(answered, expected, "{name}, {} {version}", row["component"]);
        }
    }
}
