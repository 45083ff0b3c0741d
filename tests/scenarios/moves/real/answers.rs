//! Each answer of KubeVirt that kubesim gives from its table, as real KubeVirt gives it.
//!
//! Rows of other versions are skipped.

use std::collections::BTreeMap;

use super::*;

const TABLE: &str = include_str!("../../../golden/kubesim/answers.json");
const SUBRESOURCES: &str = "/apis/subresources.kubevirt.io/v1";

/// Answers by row, and the names in them.
type Answers = BTreeMap<&'static str, (Value, Vec<(&'static str, String)>)>;

struct Course<'a> {
    world: &'a World,
    kubevirt: &'a KubeVirt,
    node: String,
    space: String,
    answers: Answers,
}

/// In a row's form.
fn said((code, answer): (u16, Value)) -> Value {
    match (&answer["message"], &answer) {
        (Value::String(text), it) => {
            json!({ "code": code, "reason": it["reason"].as_str().unwrap_or_default(), "message": text })
        }
        (_, Value::String(text)) if code >= 300 => json!({ "code": code, "text": text }),
        _ => json!({ "code": code }),
    }
}

fn filled(answer: &Value, names: &[(&str, String)]) -> Value {
    let mut answer = answer.clone();
    if let Some(text) = answer["message"].as_str() {
        let fill = |text: String, (what, with): &(&str, String)| text.replace(&format!("{{{what}}}"), with);
        answer["message"] = names.iter().fold(text.to_owned(), fill).into();
    }
    answer
}

impl Course<'_> {
    fn names(&self, guest: &str) -> Vec<(&'static str, String)> {
        vec![("namespace", self.space.clone()), ("guest", guest.to_owned())]
    }

    fn of(&self, kind: &str, name: &str) -> String {
        format!("/apis/kubevirt.io/v1/namespaces/{}/{kind}/{name}", self.space)
    }

    async fn put(&self, kind: &str, name: &str, what: &str, body: &Value) -> (u16, Value) {
        let path = format!("{SUBRESOURCES}/namespaces/{}/{kind}/{name}/{what}", self.space);
        self.kubevirt.door().call("PUT", &path, body).await
    }

    fn take(&mut self, row: &'static str, answer: Value, names: Vec<(&'static str, String)>) {
        assert!(self.answers.insert(row, (answer, names)).is_none(), "{row} twice");
    }

    /// The pod of a machine on our node, or of one that arrives elsewhere.
    async fn launcher(&self, guest: &str, own: bool) -> String {
        let path =
            format!("/api/v1/namespaces/{}/pods?labelSelector=vm.kubevirt.io%2Fname%3D{guest}", self.space);
        let all = self.kubevirt.list(&path).await;
        let here =
            |it: &&Value| (it["spec"]["nodeName"] == *self.node) == own && it["status"]["phase"] == "Running";
        all.iter().find(here).unwrap()["metadata"]["name"].as_str().unwrap().to_owned()
    }

    async fn evict(&self, pod: &str) -> (u16, Value) {
        let order = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod } });
        let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", self.space);
        self.kubevirt.door().call("POST", &path, &order).await
    }

    async fn migrate(&self, name: &str, guest: &str, priority: Option<&str>) -> (u16, Value) {
        let mut job = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration", "metadata": { "name": name },
            "spec": { "vmiName": guest },
        });
        if let Some(priority) = priority {
            job["spec"]["priority"] = priority.into();
        }
        self.kubevirt
            .door()
            .call("POST", self.of("virtualmachineinstancemigrations", "").trim_end_matches('/'), &job)
            .await
    }

    async fn phases(&self, of: &[&str], phase: &str) -> usize {
        let all = self.kubevirt.list(MIGRATIONS).await;
        let counts = |it: &&Value| {
            of.iter().any(|name| it["spec"]["vmiName"] == *name) && it["status"]["phase"] == phase
        };
        all.iter().filter(counts).count()
    }

    async fn until(&self, guest: &str, phase: &str) {
        let what = format!("the migration of {guest} to be {phase}");
        self.kubevirt.until(&what, || async { self.phases(&[guest], phase).await == 1 }).await;
    }

    async fn cordon(&self, nodes: &[String], is: bool) {
        for node in nodes {
            let patch = json!({ "spec": { "unschedulable": is } });
            self.kubevirt.door().done("PATCH", &format!("/api/v1/nodes/{node}"), &patch).await;
        }
    }

    /// A machine with an eviction mark.
    async fn marked(&mut self) {
        let unmarked = self.put("virtualmachineinstances", "db", "evacuate/cancel", &Value::Null).await;
        self.take("cancel/not-marked", said(unmarked), vec![]);
        self.kubevirt.hang(&["db", "free"]);
        let pod = self.launcher("db", true).await;
        for row in ["launcher/first", "launcher/marked"] {
            let answer = said(self.evict(&pod).await);
            self.take(row, answer, self.names("db"));
        }
        self.until("db", "Running").await;
        let job = self.kubevirt.list(MIGRATIONS).await.remove(0);
        self.take("evacuation/priority", json!({ "priority": job["spec"]["priority"] }), vec![]);
        let patch = json!([{ "op": "remove", "path": "/status/evacuationNodeName" }]);
        let (code, _) =
            self.kubevirt.door().call("PATCH", &self.of("virtualmachineinstances", "db"), &patch).await;
        let kept = guest(self.world, self.kubevirt, "db").await["status"]["evacuationNodeName"] == *self.node;
        self.take("status/of-others", json!({ "code": code, "kept": kept }), vec![]);
        let (own, other) =
            (json!({ "evacuationNodeName": self.node }), json!({ "evacuationNodeName": "other" }));
        let refused = said(self.put("virtualmachineinstances", "db", "evacuate/cancel", &other).await);
        self.take("cancel/other-node", refused, vec![]);
        let node = format!("/api/v1/nodes/{}", self.node);
        let taint = json!({ "key": "kubevirt.io/drain", "effect": "NoSchedule" });
        self.kubevirt.freeze(true);
        self.kubevirt.door().done("PATCH", &node, &json!({ "spec": { "taints": [taint] } })).await;
        let tainted = said(self.put("virtualmachineinstances", "db", "evacuate/cancel", &own).await);
        self.take(
            "cancel/tainted",
            tainted,
            vec![("node", self.node.clone()), ("taint", "kubevirt.io/drain".to_owned())],
        );
        self.kubevirt.door().done("PATCH", &node, &json!({ "spec": { "taints": null } })).await;
        self.kubevirt.freeze(false);
    }

    async fn by_hand(&mut self) {
        let refused = said(self.migrate("m0", "gone", None).await);
        self.take("migration/no-guest", refused, self.names("gone"));
        let refused = said(self.migrate("m1", "free", Some("system-critical")).await);
        self.take("migration/priority", refused, vec![]);
        let refused = said(self.migrate("m2", "fixed", None).await);
        let mut names = self.names("fixed");
        names.push(("reason", "DisksNotLiveMigratable".to_owned()));
        names.push(("message", "cannot migrate VMI with non-shared HostDisk".to_owned()));
        self.take("migration/not-migratable", refused, names);
        let pod = self.launcher("fixed", true).await;
        let refused = said(self.evict(&pod).await);
        self.take("launcher/not-migratable", refused, self.names("fixed"));
        // One with a target that has no node yet is ended.
        let peers = self.kubevirt.peers().to_vec();
        self.cordon(&peers, true).await;
        let made = self.migrate("m3", "free", None).await;
        assert_eq!(made.0, 201, "{}", made.1);
        self.until("free", "Scheduling").await;
        let path = self.of("virtualmachineinstancemigrations", "m3");
        let all = self.of("virtualmachineinstancemigrations", "").trim_end_matches('/').to_owned();
        let door = self.kubevirt.door();
        let since = door.done("GET", &all, &Value::Null).await["metadata"]["resourceVersion"].clone();
        door.done("DELETE", &path, &json!({})).await;
        let since = since.as_str().unwrap();
        let watch = format!("{all}?watch=true&timeoutSeconds=10&resourceVersion={since}");
        let events = door.call("GET", &watch, &Value::Null).await;
        let text = events.1.as_str().map_or_else(|| events.1.to_string(), str::to_owned);
        let condition = |line: &str| {
            let event: Value = serde_json::from_str(line).ok()?;
            event["object"]["status"]["conditions"][0]["type"].as_str().map(str::to_owned)
        };
        self.take("abort/before-hand-over", json!({ "condition": text.lines().find_map(condition) }), vec![]);
        self.cordon(&peers, false).await;
        // One that runs.
        let made = || async { self.migrate("m4", "free", None).await.0 == 201 };
        self.kubevirt.until("another, once the first has ended", made).await;
        self.until("free", "Running").await;
        let refused = said(self.migrate("m5", "free", None).await);
        let job = door.done("GET", &self.of("virtualmachineinstancemigrations", "m4"), &Value::Null).await;
        let mut names = self.names("free");
        names.push(("uid", job["metadata"]["uid"].as_str().unwrap().to_owned()));
        self.take("migration/second", refused, names);
        let pod = self.launcher("free", false).await;
        let refused = said(self.evict(&pod).await);
        self.take("launcher/target", refused, vec![]);
    }

    async fn pods(&mut self) {
        let pod = |name: &str, kind: &str| {
            json!({
                "metadata": { "name": name, "labels": { "kubevirt.io": kind } },
                "spec": {
                    "schedulerName": "nobody", "automountServiceAccountToken": false,
                    "containers": [{ "name": "c", "image": "i" }],
                },
            })
        };
        let all = format!("/api/v1/namespaces/{}/pods", self.space);
        let mut lost = pod("virt-launcher-gone-1", "virt-launcher");
        lost["metadata"]["annotations"] = json!({ "kubevirt.io/domain": "gone" });
        self.kubevirt.door().done("POST", &all, &lost).await;
        let refused = said(self.evict("virt-launcher-gone-1").await);
        self.take("launcher/no-guest", refused, self.names("gone"));
        // A disk that no machine uses is removed.
        self.kubevirt.freeze(true);
        let launcher = self.launcher("fixed", true).await;
        let it = self.kubevirt.door().done("GET", &format!("{all}/{launcher}"), &Value::Null).await;
        let mut disk = pod("hp-volume-1", "hotplug-disk");
        disk["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "Pod", "name": launcher, "uid": it["metadata"]["uid"], "controller": true,
        }]);
        self.kubevirt.door().done("POST", &all, &disk).await;
        let refused = said(self.evict("hp-volume-1").await);
        let mut names = self.names("fixed");
        names.push(("pod", "hp-volume-1".to_owned()));
        self.take("hotplug/plugged", refused, names);
        self.kubevirt.freeze(false);
    }

    /// Machines switched on and off, without a controller.
    async fn switched(&mut self) {
        let machine = |name: &str| vec![("machine", name.to_owned())];
        let refused = said(self.put("virtualmachines", "fixed", "start", &json!({})).await);
        self.take("start/running", refused, machine("fixed"));
        self.kubevirt.freeze(true);
        let spec = json!({
            "metadata": {},
            "spec": { "architecture": "amd64", "domain": { "devices": {}, "resources": { "requests": { "memory": "64Mi" } } } },
        });
        let door = self.kubevirt.door();
        for (name, strategy) in [("always", "Always"), ("manual", "Manual")] {
            let new = json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": name },
                "spec": { "runStrategy": strategy, "template": spec },
            });
            door.done("POST", self.of("virtualmachines", "").trim_end_matches('/'), &new).await;
        }
        let refused = said(self.put("virtualmachines", "always", "start", &json!({})).await);
        let mut names = machine("always");
        names.push(("strategy", "Always".to_owned()));
        self.take("start/always", refused, names);
        let done = said(self.put("virtualmachines", "always", "stop", &json!({})).await);
        self.take("stop/always-without-guest", done, vec![]);
        let refused = said(self.put("virtualmachines", "manual", "stop", &json!({})).await);
        self.take("stop/manual-without-guest", refused, machine("manual"));
        let fixed = self.of("virtualmachines", "fixed");
        door.done("PATCH", &fixed, &json!({ "spec": { "runStrategy": "Halted" } })).await;
        let refused = said(self.put("virtualmachines", "fixed", "stop", &json!({})).await);
        self.take("stop/halted", refused, machine("fixed"));
        let over = json!({ "status": { "phase": "Succeeded" } });
        let guest = self.of("virtualmachineinstances", "fixed");
        assert_eq!(door.call_as(Some(&self.node), "PATCH", &guest, &over).await.0, 200);
        let refused = said(self.migrate("m6", "fixed", None).await);
        self.take("migration/over", refused, vec![]);
        self.kubevirt.freeze(false);
    }

    async fn at_once(&mut self) {
        const FIVE: [&str; 5] = ["vm0", "vm1", "vm2", "vm3", "vm4"];
        self.kubevirt.hang(&FIVE);
        let moved = || async { self.phases(&["db", "free"], "Succeeded").await == 2 };
        self.kubevirt.until("the others to have moved", moved).await;
        for name in FIVE {
            self.kubevirt.machine(&self.space, name, &self.node, true).await;
        }
        // All are marked before the first migration runs.
        self.kubevirt.freeze(true);
        for name in FIVE {
            let pod = self.launcher(name, true).await;
            assert_eq!(self.evict(&pod).await.0, 429);
        }
        self.kubevirt.freeze(false);
        let counted = async || {
            let all = self.kubevirt.list(MIGRATIONS).await;
            all.iter().filter(|it| FIVE.iter().any(|name| it["spec"]["vmiName"] == *name)).count()
        };
        let leave = || async { counted().await == 5 && self.phases(&FIVE, "Running").await == 2 };
        self.kubevirt.until("two of five to leave", leave).await;
        let leaving = self.phases(&FIVE, "Running").await + self.phases(&FIVE, "Scheduling").await;
        self.take("evacuation/at-once", json!({ "made": counted().await, "leaving": leaving }), vec![]);
    }

    /// virt-api is away, at last because no node takes it.
    async fn away(&mut self) {
        let pod = self.launcher("vm0", true).await;
        let job = self.kubevirt.list(MIGRATIONS).await.remove(0);
        let job = job["metadata"]["name"].as_str().unwrap().to_owned();
        self.kubevirt.virt_api(false).await;
        // Its endpoint goes later.
        let gone = || async { self.evict(&pod).await.1["message"].to_string().contains("no endpoints") };
        self.kubevirt.until("virt-api to have no endpoint", gone).await;
        let answer = said(self.evict(&pod).await);
        self.take("away/launcher", answer, vec![]);
        let note = json!({ "metadata": { "annotations": { "seen": "yes" } } });
        for (row, kind, name) in [
            ("away/virtualmachineinstances", "virtualmachineinstances", "vm0"),
            ("away/virtualmachines", "virtualmachines", "vm0"),
            ("away/virtualmachineinstancemigrations", "virtualmachineinstancemigrations", job.as_str()),
        ] {
            let answer = said(self.kubevirt.door().call("PATCH", &self.of(kind, name), &note).await);
            self.take(row, answer, vec![]);
        }
        let answer = said(self.migrate("m7", "vm0", None).await);
        self.take("away/new-migration", answer, vec![]);
        let answer = said(self.put("virtualmachineinstances", "vm0", "evacuate/cancel", &json!({})).await);
        self.take("away/subresource", answer, vec![]);
        self.kubevirt.down(self.kubevirt.peers()).await;
        self.cordon(std::slice::from_ref(&self.node), true).await;
        self.kubevirt.allow_virt_api(true);
        let says = "1 node(s) were unschedulable";
        let pods = || async { self.kubevirt.list("/api/v1/namespaces/kubevirt/pods").await };
        let told = |it: &Value| it["status"]["conditions"].to_string().contains(says);
        self.kubevirt.until("virt-api to have no node", || async { pods().await.iter().any(told) }).await;
        let scheduled = pods().await.iter().any(|it| !it["spec"]["nodeName"].is_null());
        self.take("away/no-node", json!({ "scheduled": scheduled, "says": says }), vec![]);
    }
}

#[tokio::test]
async fn t4_real_each_answer_in_the_table_is_that_of_kubevirt() {
    let Some((world, kubevirt)) = stage("the table of answers").await else { return };
    let node = world.cluster.device_name().to_owned();
    let space = node.clone();
    kubevirt.machine(&space, "fixed", &node, false).await;
    let mut course = Course { world: &world, kubevirt: &kubevirt, node, space, answers: Answers::new() };
    course.marked().await;
    // After the taint, which would mark it.
    kubevirt.machine(&course.space, "free", &course.node, true).await;
    course.by_hand().await;
    course.pods().await;
    course.switched().await;
    course.at_once().await;
    course.away().await;
    let mut answers = course.answers;
    let rows: Vec<Value> = serde_json::from_str(TABLE).unwrap();
    let mut wrong = Vec::new();
    let minor = kubevirt.minor();
    let holds = |it: &&Value| {
        let bound = |nth: usize| it["minors"][nth].as_u64();
        it["component"] == "KubeVirt"
            && (bound(0).unwrap_or(0)..=bound(1).unwrap_or(u64::MAX)).contains(&minor)
    };
    for row in rows.iter().filter(holds) {
        let name = row["name"].as_str().unwrap();
        let Some((answer, names)) = answers.remove(name) else {
            wrong.push(format!("{name}: not asked"));
            continue;
        };
        let expected = filled(&row["answer"], &names);
        if answer != expected {
            wrong.push(format!("{name}\n  real:  {answer}\n  table: {expected}"));
        }
    }
    wrong.extend(answers.iter().map(|(name, (answer, _))| format!("{name}: no row\n  real:  {answer}")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
