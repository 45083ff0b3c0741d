//! What a node does for services, consoles, networks and places of applications. The consumer of consoles behaves like the
//! kube container: it looks once a second, at the content only while it has no proxy.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use clusterview::apps::{AppRequirements, Console};
use clusterview::consoles::{self, ConsoleFiles};
use clusterview::{networks, places, services};
use kubesim::ScriptedFault;
use pubsub::store;
use serde_json::{Value, json};
use step::Inserted as _;
use tokio::sync::watch;
use topics::{Affinity, KubeUserServices, VmiVnc, go_json};

use crate::stage::{APPS, Stage, golden, own_node};

/// Runs `duty` for as long as `course` lasts.
async fn beside<T>(duty: impl Future<Output = T>, course: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = course => {}
        _ = duty => unreachable!("the duty has ended"),
    }
}

const FILE: &str = "run/edgeview/VncParams/vmiVNC.run";
const OLDER: &str = "run/zedkube/vmiVNC.run";
const APP: &str = "b3e2f1a0-5c4d-4e6f-8a9b-0c1d2e3f4a5b";
const OTHER: &str = "d4f3a2b1-6d5e-4f70-9bac-1d2e3f4a5b6c";
const MACHINE: &str = "ubuntu-b3e2f-0ab1cd";
const EDGEVIEW: i64 = 4711;

struct Bench {
    stage: Stage,
    wanted: watch::Sender<AppRequirements>,
    /// What the proxy serves, each time that it was started.
    served: watch::Sender<Vec<VmiVnc>>,
    open: watch::Sender<Option<VmiVnc>>,
}

impl Bench {
    fn new() -> Self {
        let bench = Self {
            stage: Stage::new(),
            wanted: watch::Sender::default(),
            served: watch::Sender::default(),
            open: watch::Sender::default(),
        };
        bench.listen(None);
        bench
    }

    /// The kernel's table says that something listens at this port, or nothing does.
    fn listen(&self, port: Option<u32>) {
        let line =
            port.map(|it| format!("   0: 0100007F:{it:04X} 00000000:0000 0A 0:0\n")).unwrap_or_default();
        let table = format!("  sl  local_address rem_address   st\n{line}");
        store::replace(&self.stage.context.topic_root.path("proc/net/tcp"), table.as_bytes()).unwrap();
    }

    async fn consume(&self, file: &str) {
        loop {
            self.stage.pass(Duration::from_secs(1)).await;
            let text = self.stage.text(file);
            let open = self.open.borrow().clone();
            match (open, text) {
                (None, Some(text)) => {
                    let Ok(console) = go_json::from_slice::<VmiVnc>(text.as_bytes()) else { continue };
                    self.listen(Some(console.vnc_port));
                    self.served.send_modify(|it| it.push(console.clone()));
                    self.open.send_replace(Some(console));
                }
                (Some(_), None) => {
                    self.open.send_replace(None);
                    self.listen(None);
                }
                (None, None) | (Some(_), Some(_)) => {}
            }
        }
    }

    fn wants(&self, apps: &[(&str, &str, u16)]) {
        let console = |(app, machine, port): &(&str, &str, u16)| {
            ((*app).to_owned(), Console { machine: (*machine).to_owned(), port: *port })
        };
        let consoles = apps.iter().map(console).into_lite();
        self.wanted.send_replace(AppRequirements { consoles: Some(consoles), ..AppRequirements::default() });
    }

    fn write(&self, console: &VmiVnc) {
        let bytes = go_json::to_vec(console).unwrap();
        store::replace(&self.stage.context.topic_root.path(FILE), &bytes).unwrap();
    }

    fn serves(&self) -> Option<String> {
        self.open.borrow().as_ref().map(|it| it.vmi_name.clone())
    }

    /// Runs duty and consumer for as long as `course` lasts.
    async fn run(&self, files: ConsoleFiles, course: impl Future<Output = ()>) {
        let duty = consoles::run(&self.stage.context, files, self.wanted.subscribe());
        let file = if files == ConsoleFiles::Zedkube { OLDER } else { FILE };
        let all = async { tokio::join!(duty, self.consume(file)) };
        beside(all, course).await;
    }
}

fn vnc(machine: &str, port: u32, app: &str, caller_pid: i64) -> VmiVnc {
    VmiVnc { vmi_name: machine.to_owned(), vnc_port: port, app_uuid: app.to_owned(), caller_pid }
}

fn ours() -> String {
    golden("vmiVNC.run", "remote-console")
}

#[tokio::test(start_paused = true)]
async fn e7_d_v3_a_console_is_opened_in_the_references_bytes_at_create_and_restart_and_closed_when_the_app_goes()
 {
    let bench = Bench::new();
    let stage = &bench.stage;
    bench.wants(&[(APP, MACHINE, 5901)]);
    bench
        .run(ConsoleFiles::Both, async {
            let late = stage.until("a proxy", |_| bench.serves().is_some()).await;
            assert!(late <= Duration::from_secs(5), "{late:?}");
            assert_eq!((stage.text(FILE), stage.text(OLDER)), (Some(ours()), Some(ours())));
        })
        .await;
    // Nothing changes by a restart, while what is wanted is not known yet too.
    let inode = stage.inode(FILE);
    let before = bench.wanted.send_replace(AppRequirements::default());
    bench
        .run(ConsoleFiles::Both, async {
            stage.pass(Duration::from_mins(1)).await;
            bench.wanted.send_replace(before);
            stage.pass(Duration::from_mins(1)).await;
            assert_eq!((stage.inode(FILE), bench.served.borrow().len()), (inode, 1));
            // Somebody has removed it.
            store::remove(&stage.context.topic_root.path(FILE)).unwrap();
            stage.until("it again", |it| it.text(FILE) == Some(ours())).await;
        })
        .await;
    // The application went while nobody ran.
    bench.wants(&[]);
    bench
        .run(ConsoleFiles::Both, async {
            stage.until("no proxy", |_| bench.serves().is_none()).await;
            stage.until("no file", |it| it.text(FILE).is_none() && it.text(OLDER).is_none()).await;
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn e7_d_v4_d_v5_a_machine_that_moved_gets_a_proxy_of_its_own_however_fast_it_is_switched() {
    let bench = Bench::new();
    let stage = &bench.stage;
    bench
        .run(ConsoleFiles::Both, async {
            bench.wants(&[(APP, MACHINE, 5901)]);
            stage.until("a proxy", |_| bench.serves().is_some()).await;
            bench.wants(&[(APP, "ubuntu-b3e2f-0zzzzz", 5901)]);
            stage
                .until("another machine", |_| bench.serves().as_deref() == Some("ubuntu-b3e2f-0zzzzz"))
                .await;
            bench.wants(&[(APP, "ubuntu-b3e2f-0zzzzz", 5907)]);
            stage
                .until("another port", |_| bench.open.borrow().as_ref().is_some_and(|it| it.vnc_port == 5907))
                .await;
            // Off, on, off, on within one second of the consumer.
            for _ in 0..5 {
                bench.wants(&[]);
                stage.pass(Duration::from_millis(100)).await;
                bench.wants(&[(APP, MACHINE, 5902)]);
                stage.pass(Duration::from_millis(100)).await;
            }
            stage
                .until("the last one", |_| bench.open.borrow().as_ref().is_some_and(|it| it.vnc_port == 5902))
                .await;
            stage.pass(Duration::from_mins(1)).await;
            assert_eq!(bench.serves().as_deref(), Some(MACHINE));
            bench.wants(&[]);
            stage.until("no proxy", |_| bench.serves().is_none()).await;
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn e7_d_v2_of_two_applications_one_has_its_console_and_the_other_comes_after_it() {
    let bench = Bench::new();
    let stage = &bench.stage;
    bench
        .run(ConsoleFiles::Both, async {
            bench.wants(&[(OTHER, "web", 5903)]);
            stage.until("a proxy", |_| bench.serves().is_some()).await;
            // It comes first by its name, and waits all the same.
            bench.wants(&[(OTHER, "web", 5903), (APP, MACHINE, 5901)]);
            stage.pass(Duration::from_mins(5)).await;
            assert_eq!((bench.serves().as_deref(), bench.served.borrow().len()), (Some("web"), 1));
            // The waiting one is switched off: the open one stays.
            bench.wants(&[(OTHER, "web", 5903)]);
            stage.pass(Duration::from_mins(1)).await;
            assert_eq!(bench.served.borrow().len(), 1);
            bench.wants(&[(APP, MACHINE, 5901)]);
            stage.until("the other", |_| bench.serves().as_deref() == Some(MACHINE)).await;
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn e7_a_console_of_edgeview_is_never_removed_while_it_lives_and_is_taken_once_it_is_dead() {
    let bench = Bench::new();
    let stage = &bench.stage;
    let theirs = vnc("web", 5905, OTHER, EDGEVIEW);
    let comm = format!("proc/{EDGEVIEW}/comm");
    store::replace(&stage.context.topic_root.path(&comm), b"edge-view\n").unwrap();
    bench.write(&theirs);
    // Its copy in the older place is not ours either.
    store::replace(&stage.context.topic_root.path(OLDER), &go_json::to_vec(&theirs).unwrap()).unwrap();
    bench
        .run(ConsoleFiles::Both, async {
            stage.until("its proxy", |_| bench.serves().as_deref() == Some("web")).await;
            for apps in [&[][..], &[(APP, MACHINE, 5901)], &[(OTHER, "web", 5905)], &[]] {
                bench.wants(apps);
                stage.pass(Duration::from_mins(10)).await;
                assert_eq!(bench.served.borrow().as_slice(), std::slice::from_ref(&theirs), "{apps:?}");
                assert!(stage.text(FILE).is_some() && stage.text(OLDER).is_some());
            }
            store::remove(&stage.context.topic_root.path(&comm)).unwrap();
            stage.pass(Duration::from_mins(10)).await;
            assert_eq!(bench.served.borrow().len(), 1, "nobody claims it");
            bench.wants(&[(APP, MACHINE, 5901)]);
            stage.until("ours", |_| bench.serves().as_deref() == Some(MACHINE)).await;
            // Another process of the same number.
            store::replace(&stage.context.topic_root.path(&comm), b"bash\n").unwrap();
            bench.write(&theirs);
            stage.until("ours again", |it| it.text(FILE) == Some(ours())).await;
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn e7_a_setting_turns_one_of_the_two_files_off() {
    for (files, shared, older) in
        [(ConsoleFiles::Edgeview, true, false), (ConsoleFiles::Zedkube, false, true)]
    {
        let bench = Bench::new();
        bench.wants(&[(APP, MACHINE, 5901)]);
        bench
            .run(files, async {
                bench.stage.until("a proxy", |_| bench.serves().is_some()).await;
                let there = |file| bench.stage.text(file).is_some();
                assert_eq!((there(FILE), there(OLDER)), (shared, older));
                for dir in ["run/edgeview", "run/edgeview/VncParams"].into_iter().filter(|_| shared) {
                    let mode = std::fs::metadata(bench.stage.context.topic_root.path(dir))
                        .unwrap()
                        .permissions()
                        .mode();
                    assert_eq!(mode & 0o777, 0o755, "{dir}: others share it");
                }
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_may_not_be_read_is_left_alone() {
    let bench = Bench::new();
    let path = bench.stage.context.topic_root.path(FILE);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    bench.wants(&[(APP, MACHINE, 5901)]);
    bench
        .run(ConsoleFiles::Edgeview, async {
            bench.stage.pass(Duration::from_mins(1)).await;
            assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink());
            let log = bench.stage.lines.text();
            assert_eq!(log.matches("cannot keep the file of consoles").count(), 1, "{log}");
        })
        .await;
}

const KIND: &str = "k8s/network-attachment-definitions";
const PATH: &str = "network-attachment-definitions";

fn want(sender: &watch::Sender<AppRequirements>, ports: &[&str]) {
    let ports = ports.iter().map(|it| (*it).to_owned()).collect();
    sender.send_replace(AppRequirements { ports: Some(ports), ..AppRequirements::default() });
}

fn config(stage: &Stage, port: &str) -> Option<String> {
    let object = stage.sim.get(KIND, APPS, &format!("host-{port}"))?;
    Some(object["spec"]["config"].as_str().unwrap().to_owned())
}

fn writes(stage: &Stage) -> usize {
    ["POST", "PATCH", "DELETE"].iter().map(|it| stage.sim.faults().count(it, PATH)).sum()
}

fn text(port: &str) -> String {
    format!(r#"{{"cniVersion":"0.3.1","plugins":[{{"type":"host-device","device":"{port}"}}]}}"#)
}

#[tokio::test(start_paused = true)]
async fn e8_each_port_has_its_attachment_and_repeating_it_changes_nothing() {
    let stage = Stage::new();
    let sender = watch::Sender::default();
    let duty = networks::run(stage.cluster(), stage.context.clock, own_node("n1"), sender.subscribe());
    beside(duty, async {
        stage.pass(Duration::from_hours(1)).await;
        want(&sender, &[]);
        stage.pass(Duration::from_hours(1)).await;
        assert_eq!(stage.requests("/"), (0, 0), "no application, no question");
        want(&sender, &["eth1", "eth2", "Eth_3", "../pods"]);
        stage.until("both", |it| config(it, "eth2") == Some(text("eth2"))).await;
        assert_eq!(config(&stage, "eth1"), Some(text("eth1")));
        let before = stage.requests(PATH).0;
        stage.pass(Duration::from_hours(2)).await;
        assert_eq!(stage.requests(PATH).0 - before, 24, "each of two every 10 min, whatever a bad name says");
        assert_eq!(stage.requests("labelSelector").0, 1, "listed only when the interfaces change");
        assert_eq!(
            (stage.sim.list(KIND).len(), writes(&stage)),
            (2, 2),
            "names are checked, and equal is not written"
        );
        assert_eq!(stage.lines.text().matches("names no interface").count(), 2, "{}", stage.lines.text());
        // Drift, and a failure in between (D-V9: none is remembered as made).
        stage.sim.faults().script("PATCH", PATH, 1, ScriptedFault::status(503, "ServiceUnavailable"));
        stage.sim.edit(KIND, APPS, "host-eth1", |it| it["spec"]["config"] = "{}".into());
        stage.until("it again", |it| config(it, "eth1") == Some(text("eth1"))).await;
        assert!(stage.sim.remove(KIND, APPS, "host-eth2"));
        stage.until("it made again", |it| config(it, "eth2").is_some()).await;
        // D-V8: an adapter that a config dropped. A race with another node is tried again.
        stage.sim.faults().script("DELETE", PATH, 1, ScriptedFault::status(409, "Conflict"));
        want(&sender, &["eth1"]);
        stage.until("it gone", |it| config(it, "eth2").is_none()).await;
        want(&sender, &[]);
        stage.until("both gone", |it| it.sim.list(KIND).is_empty()).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_attachments_is_asked_less_and_less_and_served_once_they_are_known() {
    let stage = Stage::new();
    for verb in ["GET", "POST"] {
        stage.sim.faults().script(verb, PATH, u32::MAX, ScriptedFault::status(404, "NotFound"));
    }
    let sender = watch::Sender::default();
    let duty = networks::run(stage.cluster(), stage.context.clock, own_node("n1"), sender.subscribe());
    beside(duty, async {
        want(&sender, &["eth1"]);
        stage.pass(Duration::from_hours(1)).await;
        let asked = stage.requests(PATH).0;
        // A GET and a POST every 60 to 120 s, a few more at first, and one list.
        assert!((60..=130).contains(&asked), "{asked}");
        stage.sim.faults().clear();
        let late = stage.until("it", |it| config(it, "eth1").is_some()).await;
        assert!(late <= Duration::from_secs(121), "{late:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn e8_d_v7_an_attachment_is_not_taken_from_another_node_or_another_maker() {
    let stage = Stage::new();
    let object = |name: &str, config: Value| {
        json!({ "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": { "name": name, "namespace": APPS }, "spec": { "config": config.to_string() } })
    };
    // Made by somebody else: one in other spacing, one with other content.
    let same = json!({ "plugins": [{ "device": "eth7", "type": "host-device" }], "cniVersion": "0.3.1" });
    stage.sim.apply(KIND, object("host-eth7", same.clone()));
    stage.sim.apply(KIND, object("host-eth8", json!({ "type": "macvlan" })));
    let senders = [watch::Sender::default(), watch::Sender::default()];
    let run = |node: &'static str, nth: usize| {
        networks::run(stage.cluster(), stage.context.clock, own_node(node), senders[nth].subscribe())
    };
    let both = async { tokio::join!(run("n1", 0), run("n2", 1)) };
    beside(both, async {
        want(&senders[0], &["eth1", "eth7", "eth8"]);
        want(&senders[1], &["eth1"]);
        let notes = |it: &Stage| {
            let object = it.sim.get(KIND, APPS, "host-eth1");
            object.map_or(0, |it| it["metadata"]["annotations"].as_object().unwrap().len())
        };
        stage.until("the notes of both", |it| notes(it) == 2).await;
        assert_eq!(
            writes(&stage),
            2 + stage.sim.faults().count("POST", PATH) - 1,
            "one makes it, one adds its note"
        );
        want(&senders[0], &[]);
        stage.until("one note", |it| notes(it) == 1).await;
        stage.pass(Duration::from_hours(1)).await;
        assert_eq!(config(&stage, "eth1"), Some(text("eth1")), "the other node needs it");
        assert_eq!(stage.sim.faults().count("DELETE", PATH), 0, "nor was it deleted in between");
        want(&senders[1], &["eth2"]);
        stage.until("it gone", |it| config(it, "eth1").is_none()).await;
        assert_eq!(config(&stage, "eth7"), Some(same.to_string()));
        assert_eq!(config(&stage, "eth8"), Some(json!({ "type": "macvlan" }).to_string()));
        let log = stage.lines.text();
        assert_eq!(log.matches("host-eth8 is left as it is: somebody else made it").count(), 1, "{log}");
    })
    .await;
}

const SETS: &str = "kubevirt/virtualmachineinstancereplicasets";
const SET: &str = "ubuntu-b3e2f-0";

fn affinity(stage: &Stage) -> Value {
    stage.sim.get(SETS, APPS, SET).unwrap()["spec"]["template"]["spec"]["affinity"].clone()
}

fn here(name: &str) -> Value {
    let here = json!([{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"] }]);
    match name {
        "required" => json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
            { "nodeSelectorTerms": [{ "matchExpressions": here }] } } }),
        _ => json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution":
            [{ "weight": 100, "preference": { "matchExpressions": here } }] } }),
    }
}

#[tokio::test(start_paused = true)]
async fn the_affinity_of_a_machines_set_follows_its_designated_node_and_is_written_only_where_it_differs() {
    let stage = Stage::new();
    let sender = watch::Sender::default();
    let want = |how: Option<Affinity>| {
        let places = how.map(|it| (SET.to_owned(), it)).into_iter().collect();
        sender.send_replace(AppRequirements { places: Some(places), ..AppRequirements::default() });
    };
    let duty = places::run(stage.cluster(), stage.context.clock, own_node("n1"), sender.subscribe());
    beside(duty, async {
        stage.pass(Duration::from_hours(1)).await;
        want(None);
        stage.pass(Duration::from_hours(1)).await;
        assert_eq!(stage.requests("/"), (0, 0), "designated elsewhere");
        want(Some(Affinity::Preferred));
        stage.pass(Duration::from_mins(10)).await;
        stage.sim.add_machine_set(APPS, SET, 1);
        stage.until("preferred", |it| affinity(it) == here("preferred")).await;
        stage.pass(Duration::from_hours(1)).await;
        let patches = || stage.sim.faults().count("PATCH", SET);
        assert_eq!(patches(), 1, "equal is not written");
        stage.sim.faults().script("PATCH", SET, 1, ScriptedFault::status(409, "Conflict"));
        want(Some(Affinity::Required));
        stage.until("required", |it| affinity(it) == here("required")).await;
        // Somebody has written another one, with more in it.
        stage.sim.edit(SETS, APPS, SET, |it| {
            it["spec"]["template"]["spec"]["affinity"] = json!({ "podAffinity": { "a": [] }, "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [],
                "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [] },
            } });
        });
        stage.until("required again", |it| affinity(it) == here("required")).await;
        let before = patches();
        want(Some(Affinity::from(2)));
        stage.pass(Duration::from_hours(1)).await;
        assert_eq!(patches(), before, "of an unknown number");
        want(None);
        stage.pass(Duration::from_secs(1)).await;
        stage.sim.edit(SETS, APPS, SET, |it| it["spec"]["template"]["spec"]["affinity"] = json!({}));
        stage.pass(Duration::from_hours(1)).await;
        assert_eq!(patches(), before, "it is designated elsewhere by now");
        assert_eq!(affinity(&stage), json!({}));
    })
    .await;
}

const SERVICES_FILE: &str = "run/zedkube/KubeUserServices/global.json";
const PATHS: [&str; 3] = ["/api/v1/services", "/ingresses", "/configmaps"];

fn stage() -> Stage {
    let stage = Stage::new();
    stage.sim.apply(
        "services",
        json!({
            "metadata": { "namespace": "shop", "name": "web" },
            "spec": { "type": "NodePort", "ports": [{ "protocol": "TCP", "port": 80, "nodePort": 31080 }] },
        }),
    );
    stage.sim.apply(
        "networking/ingresses",
        json!({
            "metadata": { "namespace": "shop", "name": "web" },
            "spec": { "rules": [{ "host": "h", "http": { "paths": [{ "path": "/", "pathType": "Prefix",
                "backend": { "service": { "name": "web", "port": { "number": 80 } } } }] } }] },
            "status": { "loadBalancer": { "ingress": [{ "ip": "192.168.86.10" }] } },
        }),
    );
    stage
}

fn with_ports(stage: &Stage, address: &str) {
    let ports = json!({ "Ports": [{ "IfName": "eth0", "AddrInfoList": [{ "Addr": address }] }] });
    stage.write("run/nim/DeviceNetworkStatus/global.json", &ports);
}

fn published(stage: &Stage) -> Option<KubeUserServices> {
    stage.text(SERVICES_FILE).map(|text| go_json::from_slice(text.as_bytes()).unwrap())
}

/// Ports, and the addresses of each path.
fn counts(stage: &Stage) -> Option<(usize, Vec<Vec<String>>)> {
    let found = published(stage)?;
    let paths = found.user_ingress.unwrap_or_default().into_iter();
    let paths = paths.map(|it| it.ingress_ip.unwrap_or_default()).collect();
    Some((found.user_service.unwrap_or_default().len(), paths))
}

#[tokio::test(start_paused = true)]
async fn what_users_serve_follows_services_ingresses_and_addresses_by_watches_alone() {
    let stage = stage();
    beside(services::run(&stage.context, &stage.troubles, stage.cluster()), async {
        stage.pass(Duration::from_mins(10)).await;
        assert_eq!((stage.requests("/"), published(&stage)), ((0, 0), None), "nobody opens ports");
        with_ports(&stage, "192.168.86.10");
        let served = |ip: &str| vec![vec![ip.to_owned()]];
        stage.until("all", |it| counts(it) == Some((1, served("192.168.86.10")))).await;
        let inode = stage.inode(SERVICES_FILE);
        stage.pass(Duration::from_mins(10)).await;
        assert_eq!(stage.inode(SERVICES_FILE), inode, "no change, no publication");
        for path in PATHS {
            assert_eq!(stage.requests(path).1, 1, "{path}: one list, then watches");
        }
        // An annotation that nobody reads.
        stage.sim.edit("services", "shop", "web", |it| it["metadata"]["labels"]["a"] = "b".into());
        stage.pass(Duration::from_mins(1)).await;
        assert_eq!(stage.inode(SERVICES_FILE), inode);
        let port = json!({ "protocol": "TCP", "port": 81 });
        stage.sim.edit("services", "shop", "web", |it| {
            it["spec"]["ports"].as_array_mut().unwrap().push(port.clone());
        });
        let late = stage.until("a port", |it| counts(it).unwrap().0 == 2).await;
        assert!(late <= Duration::from_secs(1), "{late:?}");
        with_ports(&stage, "192.168.86.99");
        stage.until("another address", |it| counts(it) == Some((2, vec![vec![]]))).await;
        stage.sim.apply(
            "configmaps",
            json!({ "metadata": { "namespace": "kube-system", "name": "kubevip" },
                "data": { "interface-global": "eth1", "cidr-global": "192.168.86.200/29" } }),
        );
        stage.until("a pool", |it| published(it).unwrap().lb_pool_status.is_some()).await;
        stage.sim.apply(
            "configmaps",
            json!({ "metadata": { "namespace": "kube-system", "name": "other" }, "data": {} }),
        );
        assert!(stage.sim.remove("networking/ingresses", "shop", "web"));
        stage.until("no path", |it| counts(it) == Some((2, vec![]))).await;
        // What is wrong with our own config.
        stage.write(
            "run/zedkube/EdgeNodeClusterStatus/global.json",
            &json!({ "LBConfigError": { "Error": "no" } }),
        );
        let error = |it: &Stage| published(it).unwrap().lb_pool_status.unwrap().error.error;
        stage.until("an error of our config", |it| error(it) == "no").await;
    })
    .await;
    let inode = stage.inode(SERVICES_FILE);
    beside(services::run(&stage.context, &stage.troubles, stage.cluster()), async {
        stage.pass(Duration::from_mins(1)).await;
        assert_eq!(stage.inode(SERVICES_FILE), inode, "a restart publishes nothing");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn settings_of_the_load_balancer_that_cannot_be_read_leave_what_was_published_of_them() {
    let stage = stage();
    with_ports(&stage, "192.168.86.10");
    let balanced = json!({ "metadata": { "namespace": "shop", "name": "lb" },
        "spec": { "type": "LoadBalancer", "loadBalancerIP": "192.168.86.201",
            "ports": [{ "protocol": "TCP", "port": 80 }] } });
    stage.sim.apply("services", balanced);
    let pool = json!({ "metadata": { "namespace": "kube-system", "name": "kubevip" },
        "data": { "interface-global": "eth1", "cidr-global": "192.168.86.200/29" } });
    stage.sim.apply("configmaps", pool);
    beside(services::run(&stage.context, &stage.troubles, stage.cluster()), async {
        stage.until("a pool", |it| published(it).is_some_and(|it| it.lb_pool_status.is_some())).await;
    })
    .await;
    let before = published(&stage).unwrap();
    // A restart, with a service less.
    stage.sim.faults().script("GET", "/configmaps", u32::MAX, ScriptedFault::status(403, "Forbidden"));
    assert!(stage.sim.remove("services", "shop", "web"));
    beside(services::run(&stage.context, &stage.troubles, stage.cluster()), async {
        stage.until("a service less", |it| counts(it).is_some_and(|it| it.0 == 1)).await;
        let now = published(&stage).unwrap();
        assert_eq!((now.lb_pool_status, now.service_error), (before.lb_pool_status, before.service_error));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn d_v10_d_v11_a_list_that_fails_publishes_nothing_and_one_that_fails_later_takes_nothing_away() {
    for path in PATHS {
        for fault in
            [ScriptedFault::status(503, "ServiceUnavailable"), ScriptedFault::Cut, ScriptedFault::Hang]
        {
            let stage = stage();
            with_ports(&stage, "192.168.86.10");
            stage.sim.faults().script("GET", path, u32::MAX, fault.clone());
            beside(services::run(&stage.context, &stage.troubles, stage.cluster()), async {
                stage.pass(Duration::from_mins(10)).await;
                // Without kube-vip's settings ports are open all the same.
                let open = (path == "/configmaps").then(|| (1, vec![vec!["192.168.86.10".to_owned()]]));
                assert_eq!(counts(&stage), open, "{path} {fault:?}");
                stage.sim.faults().clear();
                stage.until("all", |it| counts(it).is_some()).await;
                let before = stage.inode(SERVICES_FILE);
                stage.sim.faults().script("GET", path, u32::MAX, fault.clone());
                stage.sim.expire_watches();
                stage.pass(Duration::from_mins(10)).await;
                assert_eq!(stage.inode(SERVICES_FILE), before, "{path} {fault:?}");
                let log = stage.lines.text();
                assert!(log.matches("cannot follow").count() <= 2, "{log}");
            })
            .await;
        }
    }
}
