//! A real API server for the scenarios: the one of `KUBECONFIG`, or etcd and kube-apiserver of `KUBEBUILDER_ASSETS`,
//! started here and ended with the test.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use agent::Clock;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use pubsub::store;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::real::create;

pub(crate) mod etcd;
pub(crate) mod handlers;
pub(crate) mod kubevirt;

pub(crate) mod longhorn;
pub(crate) mod virt_api;

pub const SKIPPED: &str = "neither KUBECONFIG (a throw-away cluster) nor KUBEBUILDER_ASSETS (a directory with etcd \
                           and kube-apiserver) is set";
const API: &str = "kube-apiserver";
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const TOKEN: &str = "scenario-token";
/// Service accounts of virt-api and virt-controller, as their webhooks know them.
const VIRT_API: &str = "virt-api-token";
const CONTROLLER: &str = "virt-controller-token";
/// Starts of a server: its free port may be taken before it listens.
const STARTS: u8 = 5;
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(90);

pub(crate) struct ApiServer {
    pub(crate) client: Client,
    config: Config,
    /// A controller manager keeps budgets up to date.
    pub(crate) has_controllers: bool,
    /// Of one started here: its folder, and its processes.
    own: Option<(PathBuf, Mutex<Processes>)>,
}

/// kube-apiserver first; they end with this.
struct Processes {
    children: Vec<Child>,
    /// Folder and arguments of kube-apiserver.
    started: (PathBuf, Vec<String>),
    _dir: TempDir,
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.children {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

impl ApiServer {
    pub(crate) async fn of_environment() -> Option<Self> {
        if let Some(file) = std::env::var_os("KUBECONFIG").filter(|it| !it.is_empty()) {
            return Some(Self::of_kubeconfig(Path::new(&file)).await);
        }
        Some(Self::of_assets(&etcd::assets()?).await)
    }

    pub(crate) async fn of_assets(assets: &Path) -> Self {
        Self::start(assets, None, LOOPBACK).await
    }

    /// Of `assets`, with the etcd at these addresses.
    pub(crate) async fn keeping_in(assets: &Path, etcd: &str) -> Self {
        Self::start(assets, Some(etcd), LOOPBACK).await
    }

    pub(crate) async fn listening_at(assets: &Path, address: IpAddr) -> Self {
        Self::start(assets, None, address).await
    }

    pub(crate) async fn of_kubeconfig(file: &Path) -> Self {
        let kubeconfig = Kubeconfig::read_from(file)
            .unwrap_or_else(|cause| panic!("cannot read the kubeconfig {}: {cause}", file.display()));
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Self { client: Client::try_from(config.clone()).unwrap(), config, has_controllers: true, own: None }
    }

    /// The administrator's, of a server started here.
    pub(crate) fn kubeconfig(&self) -> Option<String> {
        self.own.as_ref().map(|_| self.kubeconfig_with(TOKEN))
    }

    /// Of a server started here.
    pub(crate) fn dir(&self) -> &Path {
        &self.own.as_ref().unwrap().0
    }

    pub(crate) fn kubeconfig_file(&self, name: &str, token: &str) -> PathBuf {
        let file = self.dir().join(name);
        store::replace(&file, self.kubeconfig_with(token).as_bytes()).unwrap();
        file
    }

    fn kubeconfig_with(&self, token: &str) -> String {
        let ca = self.dir().join("certs/apiserver.crt");
        let cluster = json!({ "server": self.config.cluster_url.to_string(), "certificate-authority": ca });
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
            "clusters": [{ "name": "k", "cluster": cluster }],
            "users": [{ "name": "u", "user": { "token": token } }],
        });
        kubeconfig.to_string()
    }

    pub(crate) fn port(&self) -> u16 {
        self.config.cluster_url.port_u16().unwrap()
    }

    /// Without retries; as `user` where given, with that one's rights only.
    pub(crate) fn unretried(&self, user: Option<String>) -> Client {
        let mut config = self.config.clone();
        config.default_retry = false;
        config.auth_info.impersonate = user;
        Client::try_from(config).unwrap()
    }

    async fn start(assets: &Path, etcd: Option<&str>, address: IpAddr) -> Self {
        for _ in 0..STARTS {
            if let Some(started) = Self::try_start(assets, etcd, address).await {
                return started;
            }
        }
        panic!("etcd or kube-apiserver ended before it answered, {STARTS} times");
    }

    /// `None` when a process ended before the server answered.
    async fn try_start(assets: &Path, others: Option<&str>, address: IpAddr) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let (etcd, etcd_peer, api) = (free_port(), free_port(), free_port());
        let own = format!("http://127.0.0.1:{etcd}");
        let at = |name: &str| dir.path().join(name);
        let key = at("service-account.pem");
        openssl(Command::new("openssl").args(["genrsa", "-out"]).arg(&key).arg("2048"));
        // Identifies the server to aggregated APIs, and virt-api to the server.
        let front = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=front"];
        let name = "subjectAltName=DNS:virt-api.kubevirt.svc";
        let mut made = Command::new("openssl");
        made.args(front).args(["-addext", name, "-keyout"]).arg(at("front.key")).arg("-out");
        openssl(made.arg(at("front.crt")));
        let account = |token: &str, name: &str| {
            format!("{token},system:serviceaccount:kubevirt:{name},{name},system:masters\n")
        };
        let tokens = [
            format!("{TOKEN},scenario,scenario,system:masters\n"),
            account(VIRT_API, "kubevirt-apiserver"),
            account(CONTROLLER, "kubevirt-controller"),
        ];
        store::replace(&at("tokens.csv"), tokens.concat().as_bytes()).unwrap();
        let words = vec![
            format!("--etcd-servers={}", others.unwrap_or(&own)),
            format!("--bind-address={address}"),
            format!("--secure-port={api}"),
            format!("--cert-dir={}", at("certs").display()),
            format!("--token-auth-file={}", at("tokens.csv").display()),
            "--authorization-mode=RBAC".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            // Webhooks are called without a proxy on a node; Longhorn's pods are privileged.
            "--enable-aggregator-routing=true".to_owned(),
            "--allow-privileged=true".to_owned(),
            // There is no controller for service accounts.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--service-account-issuer=https://127.0.0.1/".to_owned(),
            format!("--service-account-key-file={}", key.display()),
            format!("--service-account-signing-key-file={}", key.display()),
            format!("--requestheader-client-ca-file={}", at("front.crt").display()),
            "--requestheader-allowed-names=front".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            format!("--proxy-client-cert-file={}", at("front.crt").display()),
            format!("--proxy-client-key-file={}", at("front.key").display()),
        ];
        let mut children = vec![child(assets, API, &words)];
        let started = (assets.to_owned(), words);
        if others.is_none() {
            let words = [
                format!("--data-dir={}", at("etcd").display()),
                format!("--listen-client-urls={own}"),
                format!("--advertise-client-urls={own}"),
                format!("--listen-peer-urls=http://127.0.0.1:{etcd_peer}"),
                "--unsafe-no-fsync".to_owned(),
            ];
            children.push(child(assets, "etcd", &words));
        }
        let mut config = Config::new(format!("https://{address}:{api}").parse().unwrap());
        // It makes its own certificate at the start.
        config.accept_invalid_certs = true;
        config.auth_info.token = Some(TOKEN.to_owned().into());
        let client = Client::try_from(config.clone()).unwrap();
        let place = dir.path().to_owned();
        let mut own = Processes { children, started, _dir: dir };
        if !until_it_answers(&client, &mut own).await {
            return None;
        }
        // Namespace of the agents' lease.
        let apps = json!({ "metadata": { "name": "eve-kube-app" } });
        create::<Namespace>(&Api::all(client.clone()), apps).await;
        Some(Self { client, config, has_controllers: false, own: Some((place, Mutex::new(own))) })
    }

    /// Stops kube-apiserver, and restarts it after `meanwhile`.
    pub(crate) async fn away_during(&self, meanwhile: impl AsyncFnOnce()) {
        let (_, own) = self.own.as_ref().expect("a server that was started here");
        let mut own = own.lock().await;
        let mut api = own.children.remove(0);
        api.kill().unwrap();
        api.wait().unwrap();
        meanwhile().await;
        let (folder, words) = &own.started;
        let again = child(folder, API, words);
        own.children.insert(0, again);
        assert!(until_it_answers(&self.client, &mut own).await, "{API} ended before it answered");
    }
}

fn openssl(command: &mut Command) {
    let made = command.output().expect("openssl is needed to make keys; install it");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// A free port, for use in a moment.
fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// Kills the program that replaces this shell once standard input is closed.
const WATCHED: &str = r#"exec 3<&0; { read -r _ <&3; kill -9 $$; } & exec "$0" "$@" </dev/null 3<&-"#;

/// A program that ends with this process in any case. Its input has to be a pipe.
pub fn watched(program: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", WATCHED]).arg(program).stdin(Stdio::piped());
    shell
}

fn child(assets: &Path, name: &str, words: &[String]) -> Child {
    let program: PathBuf = assets.join(name);
    watched(&program)
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|cause| panic!("cannot start {}: {cause}", program.display()))
}

/// `false` when one of its processes ended before.
async fn until_it_answers(client: &Client, own: &mut Processes) -> bool {
    let clock = Clock::new();
    let end = clock.now() + PATIENCE;
    loop {
        let ready = http::Request::get("/readyz").body(Vec::new()).unwrap();
        let answer = client.request_text(ready).await;
        // One that answers without its own etcd is unusable: it would share another test's.
        if own.children.iter_mut().any(|child| child.try_wait().unwrap().is_some()) {
            return false;
        }
        let Err(cause) = answer else { return true };
        assert!(clock.now() < end, "the API server is not ready after {} s: {cause}", PATIENCE.as_secs());
        clock.sleep_until(Some(clock.now() + std::time::Duration::from_millis(100))).await;
    }
}
