//! `zedbox setup`: the files that make a machine without a controller a node, and a look whether they are right.
//!
//! All of it can be done by hand: docs/integrate.md. Not here: what the files mean (`zedagent::device_config`,
//! `args::settings`), roles (`role_cmd`), the agents' kubeconfig (`kubeconfig_cmd`).

use std::io::Write as _;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use kubeapi::{ApiClient, Error, NodeName, nodes};
use pubsub::store;
use rustix::system::uname;
use serde_json::{Value, json};

use crate::Exit;
use crate::args::{KubeconfigCommand, RoleCommand, SetupCommand, settings};
use crate::drain_cmd::orders::answer;
use crate::drain_cmd::voice::Voice;
use crate::{kubeconfig_cmd, role_cmd};

const LIMIT_BYTES: u64 = 4 << 20;
/// Members of the device config.
const NAME: &str = "/deviceName";
const ID: &str = "/cluster/clusterId";
const ADDRESS: &str = "/cluster/clusterIpPrefix";
const JOIN: &str = "/cluster/joinServerIp";
const DEVICE: &str = "/id/uuid";
/// What a person types to make the roles and the kubeconfig elsewhere.
const BY_HAND: &str = "by hand, where kubectl is an administrator: `zedbox role --create-namespace | kubectl apply -f -`, then \
                       `zedbox kubeconfig --to FILE --server https://ADDRESS:6443`";

/// What is to be known of this machine, as the words say, else the files, else a person at a terminal: members of the device
/// config, the device, and an administrator's kubeconfig.
type Wanted = (Vec<(&'static str, Value)>, String, Option<PathBuf>);

fn wanted(options: &SetupCommand, before: &Value, set: &[(String, String)]) -> anyhow::Result<Wanted> {
    let SetupCommand { cluster_id, address, join_server, node, .. } = options.clone();
    let ask = |given: Option<String>, at: &str, question: &str, else_: Option<&str>| {
        let known = before.pointer(at).and_then(Value::as_str).map(str::to_owned);
        given.or(known).map_or_else(|| answer(question, else_), Ok)
    };
    let cluster = ask(cluster_id, ID, "--cluster-id: UUID of the cluster, the same on each node", None)?;
    let address = ask(address, ADDRESS, "--address: of this node in the cluster, as 10.0.0.2/24", None)?;
    let own = address.split('/').next();
    let join = ask(join_server, JOIN, "--join-server: address of the first server of the cluster", own)?;
    let host = uname().nodename().to_string_lossy().into_owned();
    let name = ask(node, NAME, "--node: name of the Node", Some(&host))?;
    let mut members =
        vec![(NAME, json!(name)), (ID, json!(cluster)), (ADDRESS, json!(address)), (JOIN, json!(join))];
    let role = match (options.worker, before["cluster"].is_null()) {
        (true, _) => "worker".to_owned(),
        (false, true) => answer("--worker: is it a server or a worker", Some("server"))?,
        (false, false) => String::new(),
    };
    ensure!(["server", "worker", ""].contains(&role.as_str()), "use {role}: type server or worker");
    if role == "worker" {
        members.push(("/cluster/isWorkerNode", json!(true)));
    }
    let device = options.device.as_ref().map(ToString::to_string);
    let device = device.or_else(|| Some(set.iter().find(|it| it.0 == "device")?.1.clone()));
    let real = "--device: systemd (a reboot is real) or record (it is only written down)";
    let device = device.map_or_else(|| answer(real, None), Ok)?;
    let mut admin = options.admin.clone();
    if admin.is_none() && !options.kubeconfig().exists() {
        let file = "--admin: kubeconfig of an administrator, as /etc/rancher/k3s/k3s.yaml, or nothing";
        admin = Some(answer(file, Some(""))?).filter(|it| !it.is_empty()).map(PathBuf::from);
    }
    Ok((members, device, admin))
}

pub(crate) async fn set_up(options: &SetupCommand) -> anyhow::Result<Exit> {
    let config_at = options.root.join(zedagent::CONFIG);
    let settings_at = options.root.join("etc/zedbox").join(settings::NAME);
    let unread = || format!("read {}: `zedbox check` says more, or remove it", config_at.display());
    let before: Value = match store::read(&config_at, LIMIT_BYTES)? {
        None => json!({}),
        Some(bytes) => serde_json::from_slice(&bytes).with_context(unread)?,
    };
    let is_object = |at| before.pointer(at).is_none_or(|it| it.is_object() || it.is_null());
    ensure!(["", "/cluster", "/id"].into_iter().all(is_object), unread());
    let text = store::read(&settings_at, LIMIT_BYTES)?.unwrap_or_default();
    let text = String::from_utf8(text).with_context(|| format!("read {}", settings_at.display()))?;
    let set = settings::values(&options.root)?;
    // One that is named already stays where nobody names another.
    let named = set.iter().find(|it| it.0 == "kubeconfig").map(|it| it.1.clone().into());
    let options = &SetupCommand { kubeconfig: options.kubeconfig.clone().or(named), ..options.clone() };
    let (members, device, admin) = wanted(options, &before, &set)?;
    let kubeconfig = std::path::absolute(options.kubeconfig())?.display().to_string();
    let lines = [("device", &device), ("kubeconfig", &kubeconfig)];
    let old = |name: &str| set.iter().find(|it| it.0 == name).map(|it| json!(it.1));
    let differs = (members.iter().map(|(at, new)| (*at, before.pointer(at).cloned(), new.clone())))
        .chain(lines.map(|(name, new)| (name, old(name), json!(new))))
        .filter_map(|(what, old, new)| Some((what, old.filter(|old| *old != new)?, new)))
        .map(|(what, old, new)| format!("{what} is {old}, not {new}"));
    let differs = differs.collect::<Vec<_>>().join("; ");
    let is_kept = options.replace || differs.is_empty();
    ensure!(is_kept, "keep what is there: {differs}; --replace changes it");

    let mut config = before.clone();
    for (at, new) in members {
        put(&mut config, at, new);
    }
    if config.pointer("/cluster/clusterType").is_none() {
        put(&mut config, "/cluster/clusterType", json!("CLUSTER_TYPE_HA"));
    }
    let is_new = config.pointer(DEVICE).is_none();
    if is_new {
        put(&mut config, DEVICE, json!(uuid::Uuid::new_v4().to_string()));
    }
    judge(&config)?;
    let with_lines = lines.iter().fold(text.clone(), |text, (name, value)| with_line(&text, name, value));

    if let Some(admin) = &admin {
        make_access(options, admin).await?;
    }
    let mut open: Vec<String> = look_at_node(options, &mut config, is_new).await.err().into_iter().collect();
    let [name, cluster, address] = [NAME, ID, ADDRESS].map(|at| text_at(&config, at));
    let own = address.split('/').next().unwrap_or_default();
    if !own.parse::<IpAddr>().is_ok_and(|it| UdpSocket::bind((it, 0)).is_ok()) {
        open.push(format!(
            "no interface of this machine has {own}: give it to one, or name another --address --replace"
        ));
    }
    if config != before {
        let bytes = serde_json::to_vec_pretty(&config)?;
        store::replace(&config_at, &bytes).with_context(|| format!("write {}", config_at.display()))?;
    }
    if with_lines != text {
        let write = store::replace(&settings_at, with_lines.as_bytes());
        write.with_context(|| format!("write {}", settings_at.display()))?;
    }
    for fault in settings::faults(&settings_at) {
        open.push(format!("{} {}: expected {}", settings_at.display(), fault.place(), fault.expected));
    }
    for line in &open {
        Voice::warn_of("setup", line);
    }
    let real = if device == "record" { "a reboot is only written down" } else { "a reboot is real" };
    let end = match open.len() {
        0 => format!(
            "{name} is set up in cluster {cluster}, and {real}: `systemctl enable --now zedbox` starts it.\n"
        ),
        1 => format!("{name} is set up but for what standard error names; {real}.\n"),
        many => format!("{name} is set up but for {many} things that standard error names; {real}.\n"),
    };
    Voice::print(&end)?;
    Ok(if open.is_empty() { Exit::Done } else { Exit::Failed })
}

fn text_at<'a>(config: &'a Value, at: &str) -> &'a str {
    config.pointer(at).and_then(Value::as_str).unwrap_or_default()
}

/// At a pointer of one name, or of two where the first has an object or nothing.
fn put(config: &mut Value, at: &str, new: Value) {
    match at.trim_start_matches('/').split_once('/') {
        None => config[&at[1..]] = new,
        Some((section, name)) => config[section][name] = new,
    }
}

fn judge(config: &Value) -> anyhow::Result<()> {
    let read = zedagent::device_config::parse(config.to_string().as_bytes());
    let faults = read.map_or_else(|fault| vec![fault], |it| it.faults);
    let words: Vec<String> = faults.iter().map(|it| format!("{}: {}", it.member, it.text)).collect();
    ensure!(faults.is_empty(), "make the device config: {}", words.join("; "));
    Ok(())
}

/// The settings with this value: in the line that has it, or has it behind a `#`, else in a new one.
fn with_line(text: &str, name: &str, value: &str) -> String {
    let line = format!("{name} = {}", json!(value));
    let is_it = |it: &&str| it.split('=').next().is_some_and(|it| it.trim() == name) && it.contains('=');
    let is_hidden = |it: &&str| it.strip_prefix('#').is_some_and(|it| is_it(&it));
    let mut lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(is_it).or_else(|| lines.iter().position(is_hidden));
    match at.and_then(|at| lines.get_mut(at)) {
        Some(it) => *it = &line,
        None => lines.push(&line),
    }
    format!("{}\n", lines.join("\n"))
}

/// The roles by `kubectl`, then the kubeconfig, unless there is one.
async fn make_access(options: &SetupCommand, admin: &Path) -> anyhow::Result<()> {
    let doing = || format!("apply the roles with `kubectl apply -f -`; {BY_HAND}");
    let mut kubectl = Command::new("kubectl");
    kubectl.arg("--kubeconfig").arg(admin).args(["apply", "-f", "-"]);
    kubectl.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut applied = kubectl.spawn().with_context(doing)?;
    let text = role_cmd::manifests(&RoleCommand { create_namespace: true, ..RoleCommand::default() });
    if let Some(mut to) = applied.stdin.take() {
        to.write_all(text.as_bytes()).with_context(doing)?;
    }
    ensure!(applied.wait().with_context(doing)?.success(), "{}; it failed, as it says above", doing());
    if options.kubeconfig().exists() && !options.replace {
        return Ok(());
    }
    let make = KubeconfigCommand {
        to: options.kubeconfig(),
        kubeconfig: Some(admin.to_owned()),
        server: options.server.clone(),
        days: 365,
        ..KubeconfigCommand::default()
    };
    kubeconfig_cmd::make(&make).await
}

/// Whether the cluster has this node; a new device takes the identity that its Node has already.
///
/// Errors: what is open, and what to do.
async fn look_at_node(options: &SetupCommand, config: &mut Value, is_new: bool) -> Result<(), String> {
    let file = options.kubeconfig();
    if !file.exists() {
        let file = file.display();
        return Err(format!("there is no kubeconfig {file}: setup again with --admin FILE, or {BY_HAND}"));
    }
    let node = NodeName::parse(&text_at(config, NAME).to_lowercase().replace('_', "-"))
        .map_err(|why| format!("{why}; name another --node"))?;
    match nodes::own(&ApiClient::from_kubeconfig(file), &node, text_at(config, DEVICE)).await {
        Err(Error::WrongNode { label, .. }) if is_new && label.parse::<uuid::Uuid>().is_ok() => {
            put(config, DEVICE, json!(label));
        }
        seen => drop(seen.map_err(|it| it.advice())?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x4_a_line_of_the_settings_is_changed_in_its_place_and_every_other_stays() {
        let package = include_str!("../../xtask/package/zedbox.toml");
        let text = with_line(package, "device", "systemd");
        let changed: Vec<_> = package.lines().zip(text.lines()).filter(|(old, new)| old != new).collect();
        assert_eq!(changed, [("#device = \"systemd\"", "device = \"systemd\"")]);
        assert_eq!(with_line(&text, "device", "systemd"), text);
        assert_eq!(with_line("log = \"x\"\n", "device", "record"), "log = \"x\"\ndevice = \"record\"\n");
        assert_eq!(
            with_line("device=\"record\"\n#device = 1\n", "device", "a"),
            "device = \"a\"\n#device = 1\n"
        );
    }
}
