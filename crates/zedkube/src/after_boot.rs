//! What is done and looked at on this machine after a boot, beside what the API shows.
//!
//! For the shell of zedkube, and for `zedbox verify`, which does the same by hand. Not here: what the gate makes of it
//! (`kubenodeop::node::gate`), hooks (`hooks`).
//!
//! Probes of ingresses, load balancers and services, from a small file:
//!
//! ```toml
//! delay = 5 # seconds to wait before the first one
//! [[probe]]
//! name = "shop"
//! url = "https://10.0.0.5/healthz"
//! code = 200 # expected; 200 where it is left out
//! [[probe]]
//! name = "balancer"
//! haproxy = "http://127.0.0.1:9000/stats;csv"
//! [[probe]]
//! name = "dns"
//! service = "kube-system/kube-dns"
//! ```
//!
//! The repairs of this node after a boot, stale taints and pods that the former boot has left: zedkube makes them for
//! as long as it runs, a person may have them made once.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use agent::wire::{self, GLOBAL};
use agent::{Clock, device};
use checks::{Finding, Severity, verify};
use futures::future::join_all;
use kubeapi::connect::endpoint::Endpoint;
use kubeapi::nodes::{self, MachineIds};
use kubeapi::objects::{items, text};
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, Error, NodeName};
use kubenodeop::node::boot::{self, BootWatch, GateReport};
use kubenodeop::node::gate::{Check, GateFact, Layer};
use kubenodeop::node::{LastSeen, leftovers};
use pubsub::{TopicRoot, store};
use serde::Deserialize;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use toml::de::{DeTable, DeValue};
use topics::{EdgeNodeInfo, VerifyLayer};

use crate::limits::Limits;
use crate::local::ClockCheck;
use crate::runtime;

/// Where the file is, below the root.
pub const FILE: &str = "etc/zedbox/probes.toml";
/// No file is longer.
const FILE_BYTES: u64 = 64 << 10;
/// The time for one answer, and its size.
const LIMIT: Duration = Duration::from_secs(5);
const ANSWER_BYTES: usize = 1 << 20;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ProbeFile {
    delay: u64,
    probe: Vec<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ProbeLine {
    name: String,
    url: Option<String>,
    code: Option<u16>,
    haproxy: Option<String>,
    service: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ProbeTarget {
    /// A GET is answered with this code.
    Url(String, u16),
    /// Each back end that HAProxy lists at this address is up.
    Haproxy(String),
    /// A service, by namespace and name, has a ready end point; on a node its ClusterIP also accepts connections.
    Service(String, String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Probe {
    name: String,
    target: ProbeTarget,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Probes {
    /// Before the first of them.
    delay: Duration,
    all: Vec<Probe>,
}

/// The probes of `given`, or of the file in its usual place below `root`, which may not be there.
/// Errors: the file cannot be read or is invalid, or the one that is given is not there: one sentence that says why.
pub fn read(root: &Path, given: Option<&Path>) -> Result<Probes, String> {
    let path = given.map_or_else(|| root.join(FILE), Path::to_owned);
    let wrong = |why: &dyn std::fmt::Display| format!("read the probes file {}: {why}", path.display());
    let Some(bytes) = store::read(&path, FILE_BYTES).map_err(|error| wrong(&error))? else {
        return if given.is_some() { Err(wrong(&"there is no such file")) } else { Ok(Probes::default()) };
    };
    let text = String::from_utf8(bytes).map_err(|error| wrong(&error))?;
    let table = DeTable::parse(&text).map_err(|error| wrong(&error))?;
    let file = ProbeFile::deserialize(members(table.get_ref())).map_err(|error| wrong(&error))?;
    let probes = file.probe.into_iter().enumerate().map(|(at, line)| {
        let line = ProbeLine::deserialize(line).map_err(|error| format!("probe {}: {error}", at + 1))?;
        probe(line)
    });
    let all: Result<Vec<Probe>, String> = probes.collect();
    Ok(Probes { delay: Duration::from_secs(file.delay), all: all.map_err(|error| wrong(&error))? })
}

/// As JSON, for which the program has all that reads members anyway.
fn members(table: &DeTable<'_>) -> Value {
    table.iter().map(|(name, it)| (name.get_ref().to_string(), member(it.get_ref()))).collect()
}

fn member(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => number.into(),
            Err(_) => number.as_str().into(),
        },
        DeValue::Boolean(is) => (*is).into(),
        // No member is one: its error has it as a text.
        DeValue::Float(number) => number.as_str().into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Array(all) => all.iter().map(|it| member(it.get_ref())).collect(),
        DeValue::Table(table) => members(table),
    }
}

fn probe(line: ProbeLine) -> Result<Probe, String> {
    let ProbeLine { name, url, code, haproxy, service } = line;
    let wrong = |what: &str| format!("probe `{name}`: {what}");
    let is_url = |it: &str| it.starts_with("http://") || it.starts_with("https://");
    let target = match (url, haproxy, service) {
        (Some(url), None, None) if is_url(&url) => ProbeTarget::Url(url, code.unwrap_or(200)),
        (None, Some(url), None) if is_url(&url) && code.is_none() => ProbeTarget::Haproxy(url),
        (None, None, Some(service)) if code.is_none() => match service.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
                ProbeTarget::Service(namespace.to_owned(), name.to_owned())
            }
            _ => return Err(wrong("service must be NAMESPACE/NAME, for example kube-system/kube-dns")),
        },
        _ => {
            return Err(wrong(
                "one of url, haproxy and service is needed; addresses begin with http:// or https://, and code goes with url",
            ));
        }
    };
    if name.is_empty() {
        return Err(wrong("it needs a name"));
    }
    Ok(Probe { name, target })
}

/// The layer `probes`, after the delay of the file; `here`: this machine is a node. Dropping it loses nothing.
pub async fn look(probes: &Probes, cluster: &ApiClient, here: bool) -> VerifyLayer {
    if probes.all.is_empty() {
        let place = if here { "on this node" } else { "on this machine" };
        return verify::skipped("probes", &format!("there are none {place}: /{FILE}"));
    }
    tokio::time::sleep(probes.delay).await;
    let (read, found) = try_all(probes, cluster, here).await;
    verify::LayerCheck::default().read(read.join(", ")).found(found).layer("probes")
}

/// Tries all of them at once: what was tried, and what was found.
async fn try_all(probes: &Probes, cluster: &ApiClient, here: bool) -> (Vec<String>, Vec<Finding>) {
    let tried = join_all(probes.all.iter().map(|it| ask(it, cluster, here))).await;
    let (read, found): (Vec<String>, Vec<Option<Finding>>) = tried.into_iter().unzip();
    (read, found.into_iter().flatten().collect())
}

/// What the probes of the node below `root` find, without a delay. Dropping it loses nothing.
pub(crate) async fn troubles(root: &Path, cluster: &ApiClient) -> Vec<Finding> {
    match read(root, None) {
        Ok(probes) => {
            let found = try_all(&probes, cluster, true).await.1;
            let texts: Vec<String> = found.iter().map(|it| it.text.clone()).collect();
            let next = |_: &String| found.first().map(|it| it.next.clone()).unwrap_or_default();
            Finding::listing(("probe", Severity::Blocks), "probes fail", &texts, next)
        }
        Err(why) => {
            vec![Finding::new("probe", why, format!("correct /{FILE}; zedbox verify reads it as well"))]
        }
    }
}

/// What was tried, and what is wrong with it; `here`: this machine is a node.
async fn ask(probe: &Probe, cluster: &ApiClient, here: bool) -> (String, Option<Finding>) {
    let (how, wrong) = match &probe.target {
        ProbeTarget::Url(url, code) => {
            let why = match got(url).await {
                Ok((seen, _)) if seen == *code => None,
                Ok((seen, _)) => Some(format!("{url} answers {seen}, not {code}")),
                Err(why) => Some(why),
            };
            (String::new(), why.map(|why| [why, format!("look at what serves it: curl -v {url}")]))
        }
        ProbeTarget::Haproxy(url) => {
            let why = match got(url).await {
                Ok((200, body)) => down(&String::from_utf8_lossy(&body)),
                Ok((seen, _)) => Some(format!("{url} answers {seen}, not 200")),
                Err(why) => Some(why),
            };
            (String::new(), why.map(|why| [why, format!("look at its servers: curl '{url}'")]))
        }
        ProbeTarget::Service(namespace, name) => match service(cluster, namespace, name, here).await {
            Ok(tried) => tried,
            Err(error) => return (probe.name.clone(), Some(Finding::unreadable("probe", &error))),
        },
    };
    let wrong = wrong.map(|[text, next]| Finding::new("probe", format!("{}: {text}", probe.name), next));
    (format!("{}{how}", probe.name), wrong)
}

/// How a service was tried, and what is wrong with it, with the next step.
async fn service(
    cluster: &ApiClient,
    namespace: &str,
    name: &str,
    here: bool,
) -> Result<(String, Option<[String; 2]>), Error> {
    let title = format!("service {namespace}/{name}");
    if !is_backed(cluster, namespace, name).await? {
        let next = format!("kubectl -n {namespace} get endpointslices,pods");
        return Ok((String::new(), Some([format!("{title} has no ready end point"), next])));
    }
    let addresses =
        if here { addresses(cluster, namespace, name).await? } else { Err("this machine is no node") };
    let addresses = match addresses {
        Ok(all) => all,
        Err(why) => return Ok((format!(" (end points only: {why})"), None)),
    };
    let refused: Vec<String> =
        join_all(addresses.iter().map(|it| refused(it))).await.into_iter().flatten().collect();
    let wrong = (!refused.is_empty()).then(|| {
        let next = format!("on this node check kube-proxy or its replacement, then kubectl -n {namespace} describe service {name}");
        [format!("{title} has ready end points, but {}", refused.join(", ")), next]
    });
    Ok((format!(" at {}", addresses.join(", ")), wrong))
}

/// Whether a service has an end point that is ready.
async fn is_backed(cluster: &ApiClient, namespace: &str, service: &str) -> Result<bool, Error> {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    let all = WatchScope::all(format!("end points of service {namespace}/{service}"), path);
    let scope = WatchScope { labels: Some(format!("kubernetes.io/service-name={service}")), ..all };
    Ok(scope.list_all::<Value>(cluster).await?.items.iter().any(is_ready))
}

/// The addresses and TCP ports of a service in the cluster; or why there are none.
async fn addresses(
    cluster: &ApiClient,
    namespace: &str,
    service: &str,
) -> Result<Result<Vec<String>, &'static str>, Error> {
    let path = format!("/api/v1/namespaces/{namespace}/services");
    let scope = WatchScope::one(format!("service {namespace}/{service}"), path, service);
    let found = scope.list_all::<Value>(cluster).await?.items;
    Ok(found.first().map_or(Err("there is no such service"), of_service))
}

fn of_service(service: &Value) -> Result<Vec<String>, &'static str> {
    let spec = &service["spec"];
    let Ok(address) = text(&spec["clusterIP"]).parse::<IpAddr>() else { return Err("it has no ClusterIP") };
    let ports =
        items(&spec["ports"]).iter().filter(|it| it["protocol"].as_str().is_none_or(|it| it == "TCP"));
    let ports = ports.filter_map(|it| u16::try_from(it["port"].as_u64()?).ok());
    let all: Vec<String> = ports.map(|it| SocketAddr::new(address, it).to_string()).collect();
    if all.is_empty() { Err("UDP cannot be tried") } else { Ok(all) }
}

/// Why a TCP connection to this address cannot be had.
async fn refused(address: &str) -> Option<String> {
    let why = match timeout(LIMIT, TcpStream::connect(address)).await {
        Ok(Ok(_)) => return None,
        Ok(Err(error)) => error.kind().to_string(),
        Err(_) => format!("no answer within {} s", LIMIT.as_secs()),
    };
    Some(format!("no connection to its ClusterIP {address}: {why}"))
}

/// An end point that says nothing counts as ready, as for kube-proxy.
fn is_ready(slice: &Value) -> bool {
    items(&slice["endpoints"]).iter().any(|it| it["conditions"]["ready"] != false)
}

/// The code and the body of a GET. Certificates are judged by the authorities of the system; none is sent.
async fn got(url: &str) -> Result<(u16, Vec<u8>), String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let (host, path) =
        rest.split_once('/').map_or((rest, String::from("/")), |(host, path)| (host, format!("/{path}")));
    let server = Endpoint::new(&format!("{scheme}://{host}"), None, LIMIT, ANSWER_BYTES)?;
    match server.get(&format!("ask {url}"), &path).await {
        Ok(body) => Ok((200, body)),
        Err(Error::Refused { answer, .. }) => Ok((answer.code, Vec::new())),
        Err(error) if error.is_connection_refused() => Err(format!("{url}: nobody listens there")),
        Err(error) => Err(error.line()),
    }
}

/// What HAProxy's statistics show as down: proxies with a BACKEND that is not UP, and their servers that are not.
fn down(csv: &str) -> Option<String> {
    let mut lines = csv.lines();
    let head: Vec<&str> = lines.next()?.trim_start_matches("# ").split(',').collect();
    let column = |name: &str| head.iter().position(|it| *it == name);
    let (Some(proxy), Some(server), Some(status)) = (column("pxname"), column("svname"), column("status"))
    else {
        return Some("these are no statistics of HAProxy".to_owned());
    };
    let rows: Vec<[&str; 3]> = lines
        .filter_map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            Some([*cells.get(proxy)?, *cells.get(server)?, *cells.get(status)?])
        })
        .collect();
    let up = |status: &str| status.starts_with("UP") || status == "OPEN" || status == "no check";
    let off: Vec<&[&str; 3]> = rows.iter().filter(|it| it[1] == "BACKEND" && !up(it[2])).collect();
    let first = off.first()?;
    let of = |it: &&[&str; 3]| it[0] == first[0] && it[1] != "BACKEND" && it[1] != "FRONTEND" && !up(it[2]);
    let servers: Vec<String> =
        rows.iter().filter(|it| of(it)).map(|it| format!("{} {}", it[1], it[2])).collect();
    let names: Vec<&str> = off.iter().map(|it| it[0]).collect();
    Some(format!("back ends without a server that is up: {} ({})", names.join(", "), servers.join(", ")))
}

/// Makes them until nothing is left to be made, or `limit` is over, and says what it does; says whether all was made. What
/// zedkube does beside it is the same, no more and no sooner.
/// Errors: nothing says which node this is, or which boot; or the Node of its name is another device's or machine's.
pub async fn once(
    topic_root: &TopicRoot,
    cluster: &ApiClient,
    clock: Clock,
    limit: Duration,
    say: impl Fn(&str),
) -> Result<bool, String> {
    let chain = |error: &(dyn std::error::Error + 'static)| step::chain(error);
    let info = wire::peek::<EdgeNodeInfo>(topic_root, "zedagent", GLOBAL).map_err(|it| chain(&it))?;
    let info = info.ok_or("zedagent has written no EdgeNodeInfo here: type the command on the node")?;
    let node = NodeName::parse(&info.kube_name()).map_err(|it| chain(&it))?;
    let (boot_id, limits) = (device::kernel_boot_id().map_err(|it| chain(&it))?, Limits::default());
    let cluster = &cluster.clone().on_machine(MachineIds::here(topic_root.root(), &boot_id));
    // An API that is away is waited for below.
    if let Err(error) = nodes::own(cluster, &node, &info.device_id.to_string()).await
        && error.is_of_another()
    {
        return Err(error.advice());
    }
    let boot = BootWatch {
        node,
        device_uuid: info.device_id.to_string(),
        boot_id,
        limits: limits.gate(),
        lost: Vec::new(),
        addresses: Vec::new(),
        seen: LastSeen::default(),
    };
    say("repairs what it may: its kubelet has to renew its lease for 60 s before anything is touched");
    let (sender, report) = watch::channel(GateReport::default());
    let nothing = || std::future::ready(String::new());
    tokio::select! {
        () = run(topic_root, cluster, &boot, &limits, clock, nothing, &sender) => Ok(false),
        () = until_made(report, &say) => Ok(true),
        () = clock.sleep_until(Some(clock.now() + limit)) => Ok(false),
    }
}

/// Ends once the node has neither stale taints nor pods of its former boot that are still looked after.
async fn until_made(mut report: watch::Receiver<GateReport>, say: &impl Fn(&str)) {
    let mut said = 0;
    while report.changed().await.is_ok() {
        let GateReport { verdict, repairs, leftovers, .. } = report.borrow_and_update().clone();
        let sum = repairs.values().sum::<u32>() + leftovers.cleared;
        if sum > said {
            said = sum;
            let (taints, pods) = (repairs.len(), leftovers.cleared);
            say(&format!("removed so far: stale taints {taints}, pods of the former boot {pods}"));
        }
        // Of a node that is not known to be Ready no taint is known, either.
        let unknown = |it: Layer| matches!(it, Layer::Service | Layer::Node | Layer::Lease);
        let clean =
            verdict.is_some_and(|it| it.shown.stale_taints.is_empty() && !it.layer.is_some_and(unknown));
        if clean && !leftovers.pending {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// Makes them for as long as the future is kept; it never ends. `waits` says
/// what an API that is away waits for, or nothing.
pub(crate) async fn run<W: Future<Output = String>>(
    topic_root: &TopicRoot,
    cluster: &ApiClient,
    boot: &BootWatch,
    limits: &Limits,
    clock: Clock,
    waits: impl Fn() -> W,
    report: &watch::Sender<GateReport>,
) {
    let (machine, runtime) = (ClockCheck::new(topic_root, clock), runtime::seam(topic_root.root(), limits));
    let socket = runtime::socket(topic_root.root(), limits);
    let upper = || {
        let (socket, cluster, root) = (socket.clone(), cluster.clone(), topic_root.root().to_owned());
        let asked = async move {
            let (runtime, probes) = tokio::join!(socket.trouble(), troubles(&root, &cluster));
            let runtime = runtime.map(checks::nodes::runtime).into_iter().collect();
            vec![GateFact::Found(Check::Runtime, runtime), GateFact::Found(Check::Probes, probes)]
        };
        Box::pin(asked) as Pin<Box<dyn Future<Output = Vec<GateFact>> + Send>>
    };
    tokio::select! {
        () = boot::watch_over(cluster, boot, || machine.look(), upper, waits, || clock.now(), report) => {}
        () = leftovers::clear(cluster, boot, &runtime, || clock.now(), report) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::runtime::mock::{RuntimeReply, pod, serve};
    use kube::Client;
    use kubesim::{Sim, SimConfig};
    use pubsub::store;
    use topics::go_json;

    fn parsed(text: &str) -> Result<Probes, String> {
        let root = tempfile::tempdir().unwrap();
        store::replace(&root.path().join(FILE), text.as_bytes()).unwrap();
        read(root.path(), None)
    }

    #[test]
    fn v1_a_probes_file_is_read_and_what_makes_no_sense_is_named() {
        let good = "delay = 5\n[[probe]]\nname = \"shop\"\nurl = \"https://10.0.0.5/healthz\"\n[[probe]]\nname = \"dns\"\n\
                    service = \"kube-system/kube-dns\"\n";
        let probes = parsed(good).unwrap();
        assert_eq!(probes.all[0].target, ProbeTarget::Url("https://10.0.0.5/healthz".to_owned(), 200));
        assert_eq!(
            probes.all[1].target,
            ProbeTarget::Service("kube-system".to_owned(), "kube-dns".to_owned())
        );
        assert_eq!(probes.delay, Duration::from_secs(5));
        let rows = [
            ("[[probe]]\nname = \"a\"\n", "one of url, haproxy and service"),
            ("[[probe]]\nname = \"a\"\nurl = \"10.0.0.5\"\n", "http://"),
            ("[[probe]]\nurl = \"http://10.0.0.5\"\n", "it needs a name"),
            ("[[probe]]\nname = \"a\"\nservice = \"dns\"\n", "NAMESPACE/NAME"),
            ("[[probe]]\nname = \"a\"\nservice = \"a/b\"\ncode = 200\n", "code goes with url"),
            ("[[probe]]\nname = \"a\"\nport = 1\n", "probe 1: unknown field `port`"),
            ("[[probe]]\nname = \"a\"\nurl = \"http://a\"\ncode = 0x1ffff\n", "131071"),
            ("delay = 1.5\n", "string \"1.5\""),
            ("probe", "probes.toml"),
        ];
        for (text, why) in rows {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(why) && error.contains("probes.toml"), "{text}: {error}");
        }
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read(root.path(), None).unwrap(), Probes::default());
        assert!(read(root.path(), Some(&root.path().join("none.toml"))).is_err());
    }

    #[test]
    fn v1_a_back_end_of_haproxy_that_is_down_is_named_with_its_servers() {
        let csv = |web: &str| {
            format!(
                "# pxname,svname,qcur,status,\nfront,FRONTEND,0,OPEN,\nweb,n1,0,{web},\nweb,n2,0,DOWN,\nweb,BACKEND,0,{web},\n"
            )
        };
        assert_eq!(down(&csv("UP")), None);
        assert_eq!(
            down(&csv("DOWN")).unwrap(),
            "back ends without a server that is up: web (n1 DOWN, n2 DOWN)"
        );
        assert!(down("<html>").unwrap().contains("no statistics"));
    }

    #[test]
    fn v1_of_a_service_each_tcp_port_is_tried_and_what_cannot_be_is_said() {
        let service = |ip: Value, ports: Value| {
            of_service(&serde_json::json!({ "spec": { "clusterIP": ip, "ports": ports } }))
        };
        let ports = |all: &[(&str, u16)]| -> Value {
            all.iter()
                .map(|(protocol, port)| serde_json::json!({ "protocol": protocol, "port": port }))
                .collect()
        };
        let dns = ports(&[("UDP", 53), ("TCP", 53), ("TCP", 9153)]);
        let at = |all: [&str; 2]| Ok(all.map(str::to_owned).to_vec());
        assert_eq!(service("10.43.0.10".into(), dns.clone()), at(["10.43.0.10:53", "10.43.0.10:9153"]));
        assert_eq!(service("fd00::a".into(), dns.clone()), at(["[fd00::a]:53", "[fd00::a]:9153"]));
        assert_eq!(service("None".into(), dns.clone()), Err("it has no ClusterIP"));
        assert_eq!(service(Value::Null, dns), Err("it has no ClusterIP"));
        assert_eq!(service("10.43.0.10".into(), ports(&[("UDP", 53)])), Err("UDP cannot be tried"));
    }

    #[tokio::test(start_paused = true)]
    async fn seed_1_13_the_first_probe_waits_for_the_delay_of_the_file() {
        let (cluster, calls) = kubeapi::mock::server(|_| kubeapi::mock::list("9", &[]));
        let (clock, asked) = (Clock::new(), || calls.lines().len());
        for delay in [0, 30] {
            let probes =
                parsed(&format!("delay = {delay}\n[[probe]]\nname = \"dns\"\nservice = \"a/b\"\n")).unwrap();
            let (before, began) = (asked(), clock.now());
            let looked = look(&probes, &cluster, true);
            tokio::pin!(looked);
            let early = timeout(probes.delay.saturating_sub(Duration::from_millis(1)), &mut looked).await;
            assert_eq!((early.is_ok(), asked()), (false, before), "{delay}");
            looked.await;
            assert_eq!((asked(), clock.now().since(began).as_secs()), (before + 1, delay), "{delay}");
        }
    }

    #[test]
    fn v1_an_end_point_is_ready_unless_it_says_otherwise() {
        let slice = |ready: Value| serde_json::json!({ "endpoints": [{ "conditions": { "ready": ready } }] });
        assert!(
            is_ready(&slice(true.into())) && is_ready(&slice(Value::Null)) && !is_ready(&slice(false.into()))
        );
        assert!(!is_ready(&serde_json::json!({ "endpoints": null })));
    }

    const TAINTED: [&str; 2] = ["NoSchedule", "NoExecute"];

    fn taints(sim: &Sim) -> usize {
        let node = sim.get("nodes", "", "n1").unwrap();
        node["spec"]["taints"].as_array().map_or(0, Vec::len)
    }

    /// A node that was away, and has kept the taints of that.
    async fn after_an_outage() -> (tempfile::TempDir, TopicRoot, Sim) {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let info = EdgeNodeInfo { device_name: "n1".to_owned(), ..EdgeNodeInfo::default() };
        let sim = Sim::new(SimConfig { stale_taints: true, ..SimConfig::default() });
        sim.add_node("n1", &info.device_id.to_string());
        let file = wire::path::<EdgeNodeInfo>(&topic_root, "zedagent", GLOBAL);
        store::replace(&file, &go_json::to_vec(&info).unwrap()).unwrap();
        sim.power("n1", false);
        let is_tainted =
            |it: &Value| it["spec"]["taints"].as_array().is_some_and(|it| it.len() == TAINTED.len());
        sim.until("nodes", |all| all.iter().all(is_tainted)).await;
        (root, topic_root, sim)
    }

    #[tokio::test(start_paused = true)]
    async fn v1_fix_removes_stale_taints_once_the_kubelet_is_back_and_ends() {
        let (_root, topic_root, sim) = after_an_outage().await;
        let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
        let clock = Clock::new();
        // While it is away nothing is touched, and the limit ends it.
        assert_eq!(once(&topic_root, &cluster, clock, Duration::from_mins(5), |_| ()).await, Ok(false));
        assert_eq!(taints(&sim), TAINTED.len());
        sim.power("n1", true);
        let began = clock.now();
        assert_eq!(once(&topic_root, &cluster, clock, Duration::from_mins(15), |_| ()).await, Ok(true));
        let took = clock.now().since(began);
        assert_eq!(taints(&sim), 0);
        assert!(took >= Duration::from_mins(1) && took < Duration::from_mins(5), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn v1_fix_deletes_pods_of_the_former_boot_but_none_whose_container_lives() {
        let (root, topic_root, sim) = after_an_outage().await;
        sim.power("n1", true);
        for name in ["web", "db"] {
            sim.add_bare_pod("shop", name, "n1");
        }
        sim.until("pods", |all| all.len() == 2 && all.iter().all(|it| it["status"]["phase"] == "Running"))
            .await;
        for name in ["web", "db"] {
            sim.leave_behind("shop", name, true);
        }
        let names = || sim.list("pods").iter().map(|it| it["metadata"]["name"].clone()).collect::<Vec<_>>();
        let lives = sim.get("pods", "shop", "db").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
        let socket = root.path().join(agent::runtime::SOCKETS[1]);
        let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
        let (clock, limit) = (Clock::new(), Duration::from_mins(5));
        // Without a word of the runtime nothing is deleted.
        assert_eq!(once(&topic_root, &cluster, clock, limit, |_| ()).await, Ok(false));
        assert_eq!(names(), ["db", "web"]);
        {
            let list = move || RuntimeReply::Pods(vec![pod(&lives, true)]);
            let _runtime = serve(&socket, list).unwrap();
            assert_eq!(once(&topic_root, &cluster, clock, limit, |_| ()).await, Ok(false));
            assert_eq!(names(), ["db"]);
        }
        std::fs::remove_file(&socket).unwrap();
        sim.add_bare_pod("shop", "known", "n1");
        sim.until("pods", |all| {
            all.iter().any(|it| it["metadata"]["name"] == "known" && it["status"]["phase"] == "Running")
        })
        .await;
        let live = sim.clone();
        let list =
            move || RuntimeReply::Pods(live.live_pods("n1").iter().map(|uid| pod(uid, true)).collect());
        let _runtime = serve(&socket, list).unwrap();
        assert_eq!(once(&topic_root, &cluster, clock, limit, |_| ()).await, Ok(true));
        assert_eq!(names(), ["known"]);
    }

    #[tokio::test(start_paused = true)]
    async fn t10_fix_leaves_a_node_alone_that_another_machine_or_device_reports_and_names_both() {
        let (root, topic_root, sim) = after_an_outage().await;
        sim.power("n1", true);
        store::replace(&root.path().join("etc/machine-id"), b"machine-here").unwrap();
        let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
        let refused = async || {
            let limit = Duration::from_mins(15);
            let refused = once(&topic_root, &cluster, Clock::new(), limit, |it| panic!("{it}")).await;
            assert_eq!(taints(&sim), TAINTED.len());
            refused.unwrap_err()
        };
        sim.edit("nodes", "", "n1", |node| {
            node["status"]["nodeInfo"]["bootID"] = "boot-there".into();
            node["status"]["nodeInfo"]["machineID"] = "machine-there".into();
        });
        let why = refused().await;
        for word in ["node n1", "machineID machine-there", "machineID machine-here"] {
            assert!(why.contains(word), "{why}");
        }
        sim.edit("nodes", "", "n1", |node| node["metadata"]["labels"]["node-uuid"] = "there".into());
        let why = refused().await;
        assert!(why.contains("there") && why.contains("node-uuid"), "{why}");
    }
}
