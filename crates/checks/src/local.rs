//! Reading this machine: certificates in files and those that its servers show, room on disks, the server's token, volume
//! groups of guests, and where its address in the cluster is from.
//!
//! It blocks, each server for [`LIMIT`] at most: for a thread of its own. A server that nobody runs here is no finding.
//! Who signed a certificate is not judged, and nothing is sent to a server but the handshake.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use kubeapi::connect::credential::Credential;
use kubeapi::connect::shown::ShownCertificate;
use rustls_pki_types::ServerName;
use serde::de::DeserializeOwned;
use step::SmallSort as _;
use tokio_rustls::rustls::ClientConnection;
use topics::{EdgeNodeClusterStatus, Secret, go_json};

use crate::certificates::{self, Dated, Dates, dated};
use crate::finding::unreadable;
use crate::nodes::{self, DiskRoom};
use crate::{Finding, Severity, network};

/// The time for a connection, and for each answer.
pub const LIMIT: Duration = Duration::from_secs(2);
/// The time for everything.
const WHOLE: Duration = Duration::from_secs(20);
/// The kubelet and etcd of this node.
pub const SERVERS: [(&str, &str); 2] = [("kubelet", "127.0.0.1:10250"), ("etcd", "127.0.0.1:2379")];
/// Data of k3s and rke2, below the root.
const DATA: [&str; 2] = ["var/lib/rancher/k3s", "var/lib/rancher/rke2"];
/// Folders with certificates, below the data.
const FOLDERS: [&str; 3] = ["server/tls", "server/tls/etcd", "agent"];
/// The ports of the machine.
const PORTS: &str = "run/nim/DeviceNetworkStatus/global.json";
/// A folder with more is not read to its end.
const FILES: usize = 64;
/// No certificate is longer.
const FILE_BYTES: u64 = 64 << 10;
/// Renews what k3s and rke2 have made.
const RESTART: &str = "check the clock with date; if it is right, restart k3s or rke2 on this node, which renews all but authorities \
                       (*-ca.crt): systemctl restart k3s (k3s-agent, rke2-server, rke2-agent)";

/// What is looked at.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// `/` on a device.
    pub root: PathBuf,
    /// Servers by what they are and `host:port`.
    pub servers: Vec<(String, String)>,
    /// What we show the cluster, by the file that it is from; or why it cannot be read.
    pub own: Option<(String, Result<Credential, String>)>,
    /// Folders whose disks are looked at, below the root.
    pub disks: Vec<String>,
}

/// [`look`] off the runtime, and for no longer than a disk that hangs lets it be; `now` is the wall clock.
pub async fn looked(machine: Host, now: Timestamp) -> Vec<Finding> {
    let found = tokio::time::timeout(WHOLE, tokio::task::spawn_blocking(move || look(&machine, now))).await;
    let cannot = |why: String| {
        let next = "a disk of this machine may not answer: dmesg shows it; then type the command again";
        vec![Finding::unread("certificates", &why, next).with(Severity::Warns)]
    };
    match found {
        Ok(Ok(found)) => found,
        Ok(Err(cause)) => cannot(cause.to_string()),
        Err(_) => cannot(format!("no answer within {} s", WHOLE.as_secs())),
    }
}

/// Everything that is found; `now` is the wall clock.
pub fn look(machine: &Host, now: Timestamp) -> Vec<Finding> {
    let (mut all, mut found) = (Vec::new(), Vec::new());
    let mut take = |read: Result<Option<Dated>, String>| match read {
        Ok(it) => all.extend(it),
        Err(why) => found.push(unreadable("certificates", &why)),
    };
    for file in files(&machine.root, &mut take) {
        take(of_file(&file).map(Some));
    }
    for (what, address) in &machine.servers {
        take(of_server(what, address));
    }
    match &machine.own {
        None => {}
        Some((place, Err(why))) => take(Err(format!("{place}: {why}"))),
        Some((place, Ok(Credential::Certificate(pem)))) => {
            let next = format!("renew {place}: k3s writes it again when it starts");
            let own = Dates::of_pem(pem).ok_or_else(|| format!("{place}: {}", no_certificate()));
            take(own.map(|dates| Some(Dated { place: place.clone(), dates, next })));
        }
        Some((place, Ok(Credential::Token(life)))) => found.extend(certificates::token(place, life, now)),
    }
    found.extend(dated(&all, now));
    let rooms = machine.disks.iter().filter_map(|it| match room(&machine.root.join(it)) {
        Ok(room) => room,
        Err(why) => {
            found.push(unreadable("disk", &why));
            None
        }
    });
    let rooms: Vec<DiskRoom> = rooms.collect();
    found.extend(nodes::disks(&rooms));
    found.extend(DATA.iter().filter_map(|data| token(&machine.root, data)));
    found.extend(lvm(&machine.root));
    let (cluster, ports) = (topic(&machine.root, STATUS), topic(&machine.root, PORTS));
    found.extend(cluster.zip(ports).and_then(|(cluster, ports)| network::leased(&cluster, &ports)));
    found
}

/// The value of a topic; `None` where it is not there or makes no sense, which its readers report.
fn topic<T: DeserializeOwned>(root: &Path, path: &str) -> Option<T> {
    // One of them holds the token of the cluster.
    go_json::from_slice(read_secret(&root.join(path)).ok()?.reveal().as_bytes()).ok()
}

fn no_certificate() -> String {
    "it holds no X.509 certificate".to_owned()
}

/// Files of certificates; folders that are not there hold none.
fn files(root: &Path, take: &mut impl FnMut(Result<Option<Dated>, String>)) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for folder in DATA.iter().flat_map(|data| FOLDERS.map(|it| root.join(data).join(it))) {
        match folder.read_dir() {
            Ok(entries) => {
                let names = entries.filter_map(Result::ok).map(|it| it.path());
                all.extend(names.filter(|it| it.extension().is_some_and(|it| it == "crt")).take(FILES));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => take(Err(format!("{}: {error}", folder.display()))),
        }
    }
    all.order();
    all
}

fn of_file(path: &Path) -> Result<Dated, String> {
    let place = path.display().to_string();
    let mut pem = Vec::new();
    let read = File::open(path).and_then(|it| it.take(FILE_BYTES).read_to_end(&mut pem));
    read.map_err(|error| format!("{place}: {error}"))?;
    let dates = Dates::of_pem(&pem).ok_or_else(|| format!("{place}: {}", no_certificate()))?;
    Ok(Dated { place, dates, next: RESTART.to_owned() })
}

/// The certificate that a server shows; `None` where there is no server.
fn of_server(what: &str, address: &str) -> Result<Option<Dated>, String> {
    let place = format!("{what} at {address}");
    let wrong = |error: &dyn std::fmt::Display| format!("{place}: {error}");
    let at: SocketAddr = match address.to_socket_addrs().map(|mut all| all.next()) {
        Ok(Some(at)) => at,
        Ok(None) => return Err(wrong(&"no address")),
        Err(error) => return Err(wrong(&error)),
    };
    let mut stream = match TcpStream::connect_timeout(&at, LIMIT) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
        Err(error) => return Err(wrong(&error)),
    };
    let limited = stream.set_read_timeout(Some(LIMIT)).and_then(|()| stream.set_write_timeout(Some(LIMIT)));
    limited.map_err(|error| wrong(&error))?;
    let (shown, config) = ShownCertificate::client(None).map_err(|error| wrong(&error))?;
    let name = ServerName::IpAddress(at.ip().into());
    let mut tls = ClientConnection::new(config, name).map_err(|error| wrong(&error))?;
    // A server may end the handshake, for want of our certificate, once it has shown its own.
    let ended = tls.complete_io(&mut stream);
    match (shown.der(), ended) {
        (Some(der), _) => {
            let dates = Dates::of_der(&der).ok_or_else(|| wrong(&"its certificate cannot be read"))?;
            Ok(Some(Dated { place, dates, next: RESTART.to_owned() }))
        }
        (None, Err(error)) => Err(wrong(&error)),
        (None, Ok(_)) => Err(wrong(&"it has shown no certificate")),
    }
}

/// Room on the disk of a folder; `None` where there is no folder.
fn room(path: &Path) -> Result<Option<DiskRoom>, String> {
    match rustix::fs::statvfs(path) {
        Ok(facts) => Ok(Some(DiskRoom {
            path: path.display().to_string(),
            free: facts.f_bavail.saturating_mul(facts.f_frsize),
            total: facts.f_blocks.saturating_mul(facts.f_frsize),
        })),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Below the data of k3s or rke2: only a server has it.
const SERVER_DATA: &str = "server/tls";
const TOKEN: &str = "server/token";
/// What k3s of this node is started with next, where zedkube knows.
const STATUS: &str = "run/zedkube/EdgeNodeClusterStatus/global.json";
/// No such file is longer.
const SECRET_BYTES: usize = 64 << 10;

/// What is the matter with the token of the server whose data is there, without which it may not rejoin; code `token`.
/// Only whether it is there, can be read and is the one of the node's config is said; nothing of it is shown. A worker
/// keeps none. Source: the k3s page "k3s token".
fn token(root: &Path, data: &str) -> Option<Finding> {
    let data = root.join(data);
    let path = data.join(TOKEN);
    if !data.join(SERVER_DATA).exists() {
        return None;
    }
    let shown = path.display();
    let found = |text: String, next: &str| Some(Finding::new("token", text, next).with(Severity::Warns));
    let copy = "copy it from another server (mode 0600), or set `token` in its config to that of the cluster";
    let own = match read_secret(&path) {
        Ok(own) => own,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Secret::default(),
        Err(error) => return Some(unreadable("token", &format!("{shown}: {error}"))),
    };
    if own.reveal().trim().is_empty() {
        let text = format!(
            "this node is a server, and {shown} is missing or empty: after a reboot it may not rejoin"
        );
        return found(text, copy);
    }
    // A file that is not there, or that nobody can read, says nothing.
    let wanted = topic::<EdgeNodeClusterStatus>(root, STATUS)?.encrypted_cluster_token;
    if wanted.reveal().is_empty() || password(&own) == password(&wanted) {
        return None;
    }
    let text = format!(
        "the token in {shown} is not the one of this node's cluster config: after a reboot it may not rejoin"
    );
    let next = "compare it with server/token of another server: after k3s token rotate each server needs the new token in its config";
    Some(Finding::new("token", text, next))
}

/// The secret part: k3s writes `K10<hash>::server:<password>`, and takes the password alone as well.
fn password(token: &Secret) -> &str {
    let token = token.reveal().trim();
    let full =
        token.strip_prefix("K10").and_then(|it| it.split_once("::")).and_then(|it| it.1.split_once(':'));
    full.map_or(token, |(_, password)| password)
}

/// What is in a file that may hold it, in memory that is wiped.
fn read_secret(path: &Path) -> io::Result<Secret> {
    // In one piece: what it would be moved from is not wiped.
    let mut text = String::with_capacity(SECRET_BYTES);
    File::open(path)?.take(SECRET_BYTES as u64).read_to_string(&mut text)?;
    Ok(Secret::new(text))
}

const BLOCK: &str = "sys/class/block";
/// What the iSCSI target of Longhorn's engine calls its disks.
const MODEL: &str = "VIRTUAL-DISK";
/// LVM on encryption on a path: no device lies on more.
const DEEPEST: u32 = 4;

/// Volumes of LVM on disks of Longhorn; code `lvm`: a host that holds them open keeps the volume attached, and its
/// machine from migrating. Read from sysfs: a device of LVM (`dm/uuid`) that lies on a disk of Longhorn, which shows
/// its maker's model; disks of its second engine show none. Source: Documentation/ABI/testing/sysfs-block-dm of Linux;
/// tgt's SCSI inquiry.
fn lvm(root: &Path) -> Vec<Finding> {
    let devices = match entries(&root.join(BLOCK)) {
        Ok(devices) => devices,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => return vec![unreadable("lvm", &format!("{}: {error}", root.join(BLOCK).display()))],
    };
    let all = devices.into_iter().filter_map(|device| {
        let at = root.join(BLOCK).join(&device);
        let lvm = member(&at.join("dm/uuid")).starts_with("LVM-");
        let disk = lvm.then(|| guest_disk(root, &device, DEEPEST)).flatten()?;
        Some((member(&at.join("dm/name")), disk))
    });
    let all: Vec<(String, String)> = all.collect();
    let shown: Vec<String> = all.iter().map(|(name, disk)| format!("{name} on {disk}")).collect();
    let what = "LVM volumes that look like those of guests are active on this machine, so that these guests cannot migrate";
    Finding::listing(("lvm", Severity::Warns), what, &shown, |_| {
        let first = all.first().map(|(name, _)| group(name)).unwrap_or_default();
        format!(
            "if lsblk shows no mount point of them here: vgchange -an {first}, and have LVM leave such disks alone: global_filter = [ \"r|/dev/longhorn/|\", \"r|/dev/disk/by-path/.*iscsi.*longhorn.*|\" ] \
             in /etc/lvm/lvm.conf"
        )
    })
}

/// The disk of Longhorn below a device.
fn guest_disk(root: &Path, device: &str, deep: u32) -> Option<String> {
    let at = fs::canonicalize(root.join(BLOCK).join(device)).ok()?;
    // A partition is a folder of its disk.
    let model =
        [Some(at.as_path()), at.parent()].into_iter().flatten().map(|it| member(&it.join("device/model")));
    if model.into_iter().any(|it| it == MODEL) {
        return Some(device.to_owned());
    }
    // A disk lies on nothing, and a partition has no such folder.
    let below = entries(&at.join("slaves")).unwrap_or_default().into_iter();
    below.filter(|_| deep > 0).find_map(|it| guest_disk(root, &it, deep - 1))
}

/// `vm--data` of `vm--data-root`: a hyphen of a name is written twice.
fn group(name: &str) -> String {
    let name = name.replace("--", "\0");
    name.split('-').next().unwrap_or_default().replace('\0', "-")
}

fn entries(folder: &Path) -> io::Result<Vec<String>> {
    let all = fs::read_dir(folder)?.map(|it| Ok(it?.file_name().to_string_lossy().into_owned()));
    let mut all = all.collect::<io::Result<Vec<String>>>()?;
    all.order();
    Ok(all)
}

/// A member of sysfs without its newline, empty where a device has none.
fn member(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}
