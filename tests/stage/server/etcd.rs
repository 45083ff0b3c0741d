//! Real members of etcd, of the versions below `ETCD_DIR`: started here, killed and restarted by a test, ended with it.
//!
//! Not here: the stand-in (`kubesim::Etcd`). A member has its own addresses on the loopback network, as its
//! node's agents have.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use agent::Clock;
use kubeapi::connect::endpoint::Endpoint;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::child;

pub const NO_ETCD: &str = "ETCD_DIR (a folder with a sub-folder for each version, and etcd in it) is not set";
/// Until a member is healthy.
const PATIENCE: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(5);

/// One program per version, the oldest first.
pub fn etcd_programs() -> Vec<PathBuf> {
    let Some(folder) = std::env::var_os("ETCD_DIR").filter(|it| !it.is_empty()) else { return Vec::new() };
    let folder = PathBuf::from(folder);
    let all = std::fs::read_dir(&folder)
        .unwrap_or_else(|cause| panic!("cannot read {}: {cause}", folder.display()));
    let mut programs: Vec<PathBuf> =
        all.map(|it| it.unwrap().path().join("etcd")).filter(|it| it.exists()).collect();
    programs.sort();
    assert!(!programs.is_empty(), "no etcd in a sub-folder of {}", folder.display());
    programs
}

pub fn assets() -> Option<PathBuf> {
    std::env::var_os("KUBEBUILDER_ASSETS").filter(|it| !it.is_empty()).map(PathBuf::from)
}

pub struct RealEtcd {
    program: PathBuf,
    /// As `3.5.16`.
    pub version: String,
    members: Vec<RealMember>,
    dir: TempDir,
}

struct RealMember {
    node: String,
    address: IpAddr,
    /// Of peers, clients, metrics and JSON calls.
    ports: [u16; 4],
    process: Option<Child>,
}

impl RealMember {
    fn url(&self, nth: usize) -> String {
        format!("http://{}", SocketAddr::new(self.address, self.ports[nth]))
    }
}

impl RealEtcd {
    pub async fn start(program: &Path, nodes: &[&str]) -> Self {
        let member = |(nth, node): (u8, &&str)| {
            let address = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 160 + nth));
            // Held until all four are known, so that they differ.
            let held = [0; 4].map(|_: u8| TcpListener::bind((address, 0)).unwrap());
            let ports = held.each_ref().map(|it| it.local_addr().unwrap().port());
            RealMember { node: (*node).to_owned(), address, ports, process: None }
        };
        let members = (1..).zip(nodes).map(member).collect();
        let mut etcd = Self {
            program: program.to_owned(),
            version: etcd_version(program),
            members,
            dir: tempfile::tempdir().unwrap(),
        };
        for node in nodes {
            etcd.run(node);
        }
        for node in nodes {
            etcd.until_healthy(node).await;
        }
        etcd
    }

    fn member(&self, node: &str) -> &RealMember {
        self.members.iter().find(|it| it.node == node).unwrap()
    }

    pub fn run(&mut self, node: &str) {
        let named = |it: &RealMember| format!("{}={}", self.member_name(&it.node), it.url(0));
        let all: Vec<String> = self.members.iter().map(named).collect();
        let it = self.member(node);
        let mut words = vec![
            format!("--name={}", self.member_name(node)),
            format!("--data-dir={}", self.dir.path().join(node).display()),
            format!("--initial-cluster={}", all.join(",")),
            format!("--initial-advertise-peer-urls={}", it.url(0)),
            format!("--listen-peer-urls={}", it.url(0)),
            format!("--listen-client-urls={}", it.url(1)),
            format!("--advertise-client-urls={}", it.url(1)),
            format!("--listen-metrics-urls={}", it.url(2)),
        ];
        if self.has_gateway() {
            words.push(format!("--listen-client-http-urls={}", it.url(3)));
            words.push("--unsafe-no-fsync".to_owned());
        }
        let folder = self.program.parent().unwrap().to_owned();
        let at = self.members.iter().position(|it| it.node == node).unwrap();
        self.members[at].process = Some(child(&folder, "etcd", &words));
    }

    pub fn kill(&mut self, node: &str) {
        let at = self.members.iter().position(|it| it.node == node).unwrap();
        let mut process = self.members[at].process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Stops all members, calls `meanwhile` with their data folder, and restarts them.
    pub async fn stopped(&mut self, meanwhile: impl FnOnce(&Path)) {
        let nodes: Vec<String> = self.members.iter().map(|it| it.node.clone()).collect();
        for node in &nodes {
            self.kill(node);
        }
        meanwhile(self.dir.path());
        for node in &nodes {
            self.run(node);
        }
        for node in &nodes {
            self.until_healthy(node).await;
        }
    }

    /// Whether this version has a separate port for JSON calls.
    fn has_gateway(&self) -> bool {
        !self.version.starts_with("3.4.")
    }

    /// Waits until a node's member reads through a majority.
    pub async fn until_healthy(&self, node: &str) {
        let clock = Clock::new();
        let end = clock.now() + PATIENCE;
        loop {
            let door = Endpoint::new(&self.metrics_url(node), None, LIMIT, 1 << 20).unwrap();
            match door.get("ask for its health", "/health").await {
                Ok(_healthy) => return,
                Err(cause) => assert!(clock.now() < end, "etcd of {node}: {}", cause.line()),
            }
            clock.sleep_until(Some(clock.now() + Duration::from_millis(50))).await;
        }
    }

    pub async fn call(&self, node: &str, path: &str, body: Value) -> Value {
        let door = Endpoint::new(&self.gateway_url(node), None, LIMIT, 1 << 20).unwrap();
        door.post::<Value>("call etcd", path, &body)
            .await
            .unwrap_or_else(|cause| json!({ "error": cause.line() }))
    }

    pub fn metrics_url(&self, node: &str) -> String {
        self.member(node).url(2)
    }

    pub fn gateway_url(&self, node: &str) -> String {
        self.member(node).url(if self.has_gateway() { 3 } else { 1 })
    }

    /// Client addresses, for a kube-apiserver.
    pub fn clients(&self) -> String {
        self.members.iter().map(|it| it.url(1)).collect::<Vec<_>>().join(",")
    }

    pub fn member_name(&self, node: &str) -> String {
        let nth = self.members.iter().position(|it| it.node == node).unwrap();
        format!("{node}-{:08x}", 0xa1 + nth)
    }

    pub fn address(&self, node: &str) -> IpAddr {
        self.member(node).address
    }
}

/// As `3.5.16`.
pub fn etcd_version(program: &Path) -> String {
    let said = Command::new(program).arg("--version").output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    said.lines().find_map(|it| it.strip_prefix("etcd Version: ")).unwrap().trim().to_owned()
}

impl Drop for RealEtcd {
    fn drop(&mut self) {
        for process in self.members.iter_mut().filter_map(|it| it.process.as_mut()) {
            drop(process.kill());
            drop(process.wait());
        }
    }
}
