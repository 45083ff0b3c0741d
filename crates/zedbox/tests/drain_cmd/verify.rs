//! `zedbox verify` exit codes, JSON by its schema, from a node and from a workstation, and one row per layer
//! that this machine, turns or a probe can break.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubesim::ScriptedFault;
use serde_json::{Value, json};
use topics::GoTime;

use crate::drain_cmd::node::{Ended, Node, has, holds, top};
use crate::drain_cmd::place::Place;
use crate::serve;

const KUBECONFIG: &str = "run/.kube/k3s/k3s.yaml";
const BALANCER: &str = "# pxname,svname,status,\nweb,n1,DOWN,\nweb,BACKEND,DOWN,\n";
/// Length of a date in a header, as `YYMMDDHHMMSSZ` in a certificate.
const DATE: usize = 29;
const UTC_TIME: &[u8] = &[0x17, 13];

/// A healthy cluster of two nodes, seen from the first.
fn place() -> Place {
    let place = Place::new(2, |sim| {
        sim.add_node("edge-node-1", "uuid-1");
        sim.add_node("n2", "uuid-2");
        sim.add_deployment("shop", "web", 2);
    });
    // The kubelets renew them later.
    let now = agent::Clock::new().wall();
    for node in ["edge-node-1", "n2"] {
        place.sim.apply(
            "coordination/leases",
            json!({ "metadata": { "namespace": "kube-node-lease", "name": node },
                "spec": { "holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now } }),
        );
    }
    place.node.put("dev/kmsg", "");
    // The disk of this machine does not count.
    fs::remove_dir_all(place.node.path("persist")).unwrap();
    place
}

impl Place {
    fn verify(&self, line: &str) -> Ended {
        let ended = self.node.drain(&format!("verify {line}"));
        assert_eq!(self.written(), [], "it writes nothing");
        ended
    }

    fn held_by(&self, node: &str) {
        let holder = json!({ "node": node, "nodeUID": "u", "op": "reboot", "fence": 7, "phase": "draining" });
        self.lease(&[("holders", json!([holder]).to_string()), ("version", "1".to_owned())]);
    }

    fn probe(&self, lines: &str) {
        self.node.put("etc/zedbox/probes.toml", &format!("[[probe]]\n{lines}\n"));
    }

    /// A service at this loopback port, with an end point that is ready or not.
    fn service(&self, port: u16, ready: bool) {
        let labels = json!({ "kubernetes.io/service-name": "kube-dns" });
        self.sim.apply(
            "discovery/endpointslices",
            json!({ "metadata": { "namespace": "kube-system", "name": "kube-dns-1", "labels": labels },
                "addressType": "IPv4", "endpoints": [{ "addresses": ["10.42.0.2"], "conditions": { "ready": ready } }] }),
        );
        let udp = json!({ "name": "dns", "port": port, "protocol": "UDP" });
        let tcp = json!({ "name": "dns-tcp", "port": port, "protocol": "TCP" });
        self.sim.apply(
            "services",
            json!({ "metadata": { "namespace": "kube-system", "name": "kube-dns" },
                "spec": { "clusterIP": "127.0.0.1", "ports": [udp, tcp] } }),
        );
        self.probe("name = \"dns\"\nservice = \"kube-system/kube-dns\"");
    }
}

#[test]
fn a_pause_of_this_node_is_a_warning_and_shut_windows_are_said() {
    let place = place();
    place.windows_on_leap_days();
    place.verify("").ends(0).says(&[", outside its windows: \"0 0 29 2 *\" UTC"]);
    place.node.drain("pause --reason disk").ends(0);
    place.node.put("limits.json", "{");
    let paused = place.verify("").ends(4).warns(&["limits.json"]);
    paused.says(&["warn operations of this node are paused by ", "zedbox resume"]);
}

fn layer<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["Layers"].as_array().unwrap().iter().find(|it| it["Layer"] == name).unwrap()
}

/// A report in JSON, checked against its schema.
fn report(ended: &Ended) -> Value {
    let schema = fs::read_to_string(top().join("schemas/commands/verify.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let schema = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
    let report = ended.json();
    let wrong: Vec<String> = schema.iter_errors(&report).map(|it| it.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:?}: {report:#}");
    report
}

fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A relay to this kubeconfig's cluster that sets its clock back by years; returns its kubeconfig.
fn years_behind(kubeconfig: &str) -> String {
    let server = kubeconfig.split("http://").nth(1).unwrap().lines().next().unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let relay = listener.local_addr().unwrap().to_string();
    let behind = kubeconfig.replace(&server, &relay);
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            thread::spawn(move || put_back(server, client));
        }
    });
    behind
}

/// Passes answers on, each with another date.
fn put_back(mut server: TcpStream, mut client: TcpStream) {
    const HEADER: &[u8] = b"date: ";
    let mut part = vec![0; 1 << 16];
    while let Ok(read @ 1..) = server.read(&mut part) {
        let said = &mut part[..read];
        if let Some(at) = said.windows(HEADER.len()).position(|it| it == HEADER) {
            said[at + HEADER.len()..][..DATE].copy_from_slice(b"Tue, 14 Mar 2023 09:30:00 GMT");
        }
        if client.write_all(said).is_err() {
            return;
        }
    }
}

/// Puts a certificate with this end on the node. Its signature is not checked.
fn certificate(node: &Node, hours: u64) {
    let pem = fs::read_to_string(top().join("crates/checks/tests/certificate.pem")).unwrap();
    let body: String = pem.lines().filter(|it| !it.starts_with('-')).collect();
    let mut der = STANDARD.decode(body).unwrap();
    let ends = agent::Clock::new().wall().to_timestamp() + Duration::from_secs(hours * 3600 + 1800);
    let ends: String = GoTime::from(ends).rfc3339()[2..19].chars().filter(char::is_ascii_digit).collect();
    // The second of the two times.
    let at = der.windows(2).rposition(|it| it == UTC_TIME).unwrap() + UTC_TIME.len();
    der[at..][..ends.len()].copy_from_slice(ends.as_bytes());
    let text = STANDARD.encode(der);
    let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    node.put("var/lib/rancher/k3s/agent/client-kubelet.crt", &pem);
}

/// Breakage, layer and result, text of its first finding, next step.
type Row = (fn(&Place), &'static str, &'static str, &'static str);

const ROWS: [Row; 14] = [
    (
        |it| fs::remove_file(it.node.path("dev/kmsg")).unwrap(),
        "devices fail",
        "device nodes that are missing: /dev/kmsg",
        "systemctl start zedbox-kmsg",
    ),
    (
        |it| it.node.put("var/lib", "no folder"),
        "devices unknown",
        "var/lib/rancher: Not a directory",
        "look at the file that it names",
    ),
    (
        |it| certificate(&it.node, 5),
        "certificates fail",
        "client-kubelet.crt (in 5 h)",
        "restart k3s or rke2 on this node",
    ),
    (
        |it| certificate(&it.node, 73),
        "certificates warn",
        "client-kubelet.crt (in 3 days)",
        "restart k3s or rke2 on this node",
    ),
    (
        |it| it.node.put(KUBECONFIG, &years_behind(&it.node.text(KUBECONFIG))),
        "clock fail",
        " s ahead of that of the API server",
        "check NTP: chronyc tracking, or timedatectl",
    ),
    (
        |it| {
            it.node.put("var/lib/rancher/k3s/server/tls/x.key", "");
            it.node.put("var/lib/rancher/k3s/server/token", "K10ab::server:own");
            let status = r#"{"EncryptedClusterToken":"another"}"#;
            it.node.put("run/zedkube/EdgeNodeClusterStatus/global.json", status);
        },
        "etcd fail",
        "is not the one of this node's cluster config: after a reboot it may not rejoin",
        "compare it with server/token of another server",
    ),
    (
        |it| {
            it.node.put("run/zedkube/EdgeNodeClusterStatus/global.json", r#"{"ClusterInterface":"eth0"}"#);
            let ports = r#"{"Ports":[{"IfName":"eth0","Logicallabel":"lan","Dhcp":4}]}"#;
            it.node.put("run/nim/DeviceNetworkStatus/global.json", ports);
        },
        "network warn",
        "the address of port eth0 (label lan), by which this node is in the cluster, is leased by DHCP",
        "give the node a fixed address in its cluster config",
    ),
    (
        |it| it.held_by("n9"),
        "turns fail",
        "node n9 may be out of service: it holds the turn for a reboot (phase draining), and there is no such node any \
         more: no other node may go",
        "once its machine is off: zedbox lock release n9 --fence 7 --reason '...'",
    ),
    (
        |it| it.held_by("n2"),
        "turns warn",
        "node n2 may be out of service: it holds the turn for a reboot (phase draining)",
        "wait until it is back: zedbox lock status",
    ),
    (
        |it| {
            let shop = serve(|_, _| Some((503, String::new())));
            it.probe(&format!("name = \"shop\"\nurl = \"http://{shop}/healthz\""));
        },
        "probes fail",
        "/healthz answers 503, not 200",
        "look at what serves it: curl -v http://127.0.0.1:",
    ),
    (
        |it| it.probe(&format!("name = \"shop\"\nurl = \"http://127.0.0.1:{}/\"", closed_port())),
        "probes fail",
        "/: nobody listens there",
        "look at what serves it: curl -v http://127.0.0.1:",
    ),
    (
        |it| {
            let balancer = serve(|_, _| Some((200, BALANCER.to_owned())));
            it.probe(&format!("name = \"balancer\"\nhaproxy = \"http://{balancer}/stats;csv\""));
        },
        "probes fail",
        "balancer: back ends without a server that is up: web (n1 DOWN)",
        "look at its servers: curl 'http://127.0.0.1:",
    ),
    (
        |it| it.service(closed_port(), false),
        "probes fail",
        "dns: service kube-system/kube-dns has no ready end point",
        "kubectl -n kube-system get endpointslices,pods",
    ),
    (
        |it| it.service(closed_port(), true),
        "probes fail",
        "dns: service kube-system/kube-dns has ready end points, but no connection to its ClusterIP 127.0.0.1:",
        "kubectl -n kube-system describe service kube-dns",
    ),
];

#[test]
fn v1_what_is_broken_is_named_in_its_layer_with_the_next_step_and_is_the_exit_code() {
    for (breaks, expected, text, next) in ROWS {
        let place = place();
        breaks(&place);
        let (name, result) = expected.split_once(' ').unwrap();
        let ended = place.verify("-o json");
        let report = report(&ended);
        let layer = layer(&report, name);
        assert_eq!(layer["Result"], result, "{text}: {layer:#}");
        let found = &layer["Findings"][0];
        holds(found, &json!({ "Result": result }));
        has(found["Text"].as_str().unwrap(), &[text]);
        has(found["NextStep"].as_str().unwrap(), &[next]);
        let codes = [("fail", 1), ("unknown", 3), ("warn", 4)];
        assert!(codes.contains(&(result, ended.code)), "{text}: {report:#}");
        let names = report["Layers"].as_array().unwrap().windows(2);
        assert!(names.into_iter().all(|it| it[0]["Layer"] != it[1]["Layer"]), "a layer twice: {report:#}");
        assert_eq!(report["Result"], result, "{text}: {report:#}");
    }
}

/// Breakage, arguments, exit code, a word of the output.
type Case = (fn(&Place), &'static str, i32, &'static str);

#[test]
fn v1_each_exit_code_has_its_case() {
    let cases: [Case; 6] = [
        (|_| {}, "", 0, "nodes pass 2 nodes, 2 leases"),
        (
            |it| {
                let volume = json!({ "metadata": { "namespace": "longhorn-system", "name": "pvc-1" },
                    "spec": { "numberOfReplicas": 2 }, "status": { "state": "detached", "robustness": "faulted" } });
                it.sim.apply("longhorn/volumes", volume);
            },
            "",
            1,
            "pvc-1: faulted",
        ),
        (|_| {}, "--patience", 2, "unexpected argument '--patience'"),
        (|it| it.probe("name = \"a\""), "", 2, "probe `a`: one of url, haproxy and service is needed"),
        (
            |it| it.sim.faults().script("GET", "/api/v1/pods", 9, ScriptedFault::status(403, "Forbidden")),
            "",
            3,
            "zedbox role | kubectl apply",
        ),
        (|it| it.cordon("n2", true), "", 4, "next kubectl uncordon n2"),
    ];
    for (breaks, line, code, said) in cases {
        let place = place();
        breaks(&place);
        let ended = place.verify(line).ends(code);
        has(&format!("{}{}", ended.out, ended.err), &[said]);
        assert!(ended.out.lines().all(|it| it.chars().count() <= 80), "{}", ended.out);
        assert_eq!(ended.out.is_empty(), code == 2, "{ended:?}");
    }
}

#[test]
fn v1_a_workstation_needs_a_kubeconfig_and_nothing_else() {
    let place = place();
    let here = Node::empty();
    here.put("kubeconfig", &place.node.text(KUBECONFIG));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    place.service(listener.local_addr().unwrap().port(), true);
    here.put("probes.toml", &place.node.text("etc/zedbox/probes.toml"));
    let verify = |with: &str, named: Option<&Path>| {
        let with = with.replace("HERE", here.root().to_str().unwrap());
        let mut command = here.command(&format!("verify -o json {with}"));
        Ended::of(command.envs(named.map(|it| ("KUBECONFIG", it))))
    };
    let report = report(&verify("--kubeconfig HERE/kubeconfig --probes HERE/probes.toml", None).ends(0));
    holds(&report, &json!({ "Node": "", "Result": "pass" }));
    assert_eq!(layer(&report, "devices")["Result"], "skipped");
    assert_eq!(layer(&report, "nodes")["Read"], "2 nodes, 2 leases");
    assert_eq!(layer(&report, "probes")["Read"], "dns (end points only: this machine is no node)");
    // The same by the variable, and on the node, which tries the address.
    verify("", Some(&here.path("kubeconfig"))).ends(0);
    // An empty one counts as unset.
    let (none, empty) = (verify("", None), verify("", Some(Path::new(""))));
    assert_eq!((empty.code, &empty.err), (none.code, &none.err));
    verify("--kubeconfig HERE/kubeconfig", Some(Path::new(""))).ends(0);
    let told = place.verify("-o json").ends(0);
    let read = format!("dns at {}", listener.local_addr().unwrap());
    assert_eq!(layer(&told.json(), "probes")["Read"], read);
    let mut left: Vec<_> = fs::read_dir(here.root()).unwrap().map(|it| it.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["kubeconfig", "probes.toml"], "nothing is written here");
    // Repairs need a node, and every look a kubeconfig.
    verify("--fix --kubeconfig HERE/kubeconfig", None).ends(1).warns(&["type the command on the node"]);
    verify("", None).ends(3);
}
