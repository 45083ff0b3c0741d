//! `zedbox setup`: the files that make a machine without a controller a node, and a look whether they are right.
//!
//! All of it can be done by hand: docs/integrate.md. Not here: what the files mean (`zedagent::device_config`,
//! `args::settings`), roles (`role_cmd`), the agents' kubeconfig (`kubeconfig_cmd`).

use std::io::{self, IsTerminal as _, Write as _};
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use kubeapi::{ApiClient, Error, NodeName, nodes};
use pubsub::store;
use rustix::system::uname;
use serde_json::{Value, json};

use crate::Exit;
use crate::args::{KubeconfigCommand, RoleCommand, SetupCommand, account, settings};
use crate::drain_cmd::voice::Voice;
use crate::{kubeconfig_cmd, role_cmd};

const LIMIT_BYTES: u64 = 4 << 20;
/// What a person types to make the roles and the kubeconfig elsewhere.
const BY_HAND: &str = "with a kubectl that is an administrator: `zedbox role --create-namespace | kubectl apply -f -`, then \
                       `zedbox kubeconfig --to FILE --server https://ADDRESS:6443`";

pub(crate) async fn run(options: &SetupCommand) -> Exit {
    Voice::exit("setup", set_up(options).await)
}

async fn set_up(options: &SetupCommand) -> anyhow::Result<Exit> {
    let config_at = options.root.join(zedagent::CONFIG);
    let settings_at = options.root.join("etc/zedbox").join(settings::NAME);
    let before: Value = match store::read(&config_at, LIMIT_BYTES)? {
        None => json!({}),
        Some(bytes) => serde_json::from_slice(&bytes).with_context(|| {
            format!("read {}: `zedbox check` says more, or remove it", config_at.display())
        })?,
    };
    let cluster = |member: &str| before["cluster"][member].as_str().map(str::to_owned);
    let ask = |given: &Option<String>, member: &str, question: &str| {
        given.clone().or_else(|| cluster(member)).map_or_else(|| answer(question), Ok)
    };
    let id =
        ask(&options.cluster_id, "clusterId", "--cluster-id: UUID of the cluster, the same on each node")?;
    let address =
        ask(&options.address, "clusterIpPrefix", "--address: of this node in the cluster, as 10.0.0.2/24")?;
    let own = address.split('/').next().unwrap_or_default().to_owned();
    let join = options.join_server.clone().or_else(|| cluster("joinServerIp")).unwrap_or_else(|| own.clone());
    let text = store::read(&settings_at, LIMIT_BYTES)?.unwrap_or_default();
    let text = String::from_utf8(text).with_context(|| format!("read {}", settings_at.display()))?;
    let set = settings::values(&options.root)?;
    let device = match (&options.device, set.iter().find(|it| it.0 == "device")) {
        (Some(device), _) => device.to_string(),
        (None, Some((_, device))) => device.clone(),
        (None, None) => answer("--device: systemd (a reboot is real) or record (it is only written down)")?,
    };

    let named = before["deviceName"].as_str().map(str::to_owned);
    let name =
        options.node.clone().or(named).unwrap_or_else(|| uname().nodename().to_string_lossy().into_owned());
    let mut members = vec![
        ("/deviceName", json!(name)),
        ("/cluster/clusterId", json!(id)),
        ("/cluster/clusterIpPrefix", json!(address)),
        ("/cluster/joinServerIp", json!(join)),
    ];
    if options.worker {
        members.push(("/cluster/isWorkerNode", json!(true)));
    }
    let kubeconfig = options.kubeconfig.display().to_string();
    let lines = [("device", &device), ("kubeconfig", &kubeconfig)];
    keeps(options, &before, &members, &set, &lines)?;

    let mut config = before.clone();
    for (at, new) in members {
        put(&mut config, at, new);
    }
    if config.pointer("/cluster/clusterType").is_none() {
        put(&mut config, "/cluster/clusterType", json!("CLUSTER_TYPE_HA"));
    }
    let is_new = config.pointer("/id/uuid").is_none();
    if is_new {
        put(&mut config, "/id/uuid", json!(uuid::Uuid::new_v4().to_string()));
    }
    judge(&config)?;
    let with_lines = lines.iter().fold(text.clone(), |text, (name, value)| with_line(&text, name, value));

    if let Some(admin) = &options.admin {
        make_access(options, admin).await?;
    }
    let mut open = Vec::new();
    look_at_node(options, &name, &mut config, is_new, &mut open).await;
    let here = own.parse::<IpAddr>().is_ok_and(|it| UdpSocket::bind((it, 0)).is_ok());
    if !here {
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
            "{name} is set up in cluster {id}, and {real}: `systemctl enable --now zedbox` starts it.\n"
        ),
        1 => format!("{name} is set up but for what standard error names; {real}.\n"),
        many => format!("{name} is set up but for {many} things that standard error names; {real}.\n"),
    };
    Voice::print(&end)?;
    Ok(if open.is_empty() { Exit::Done } else { Exit::Failed })
}

/// Errors: a value that is there differs from the new one, and nobody wants it replaced.
fn keeps(
    options: &SetupCommand,
    before: &Value,
    members: &[(&str, Value)],
    set: &[(String, String)],
    lines: &[(&str, &String)],
) -> anyhow::Result<()> {
    let others =
        members.iter().filter_map(|(at, new)| Some((*at, before.pointer(at)?.to_string(), new.to_string())));
    let ours = lines.iter().filter_map(|(name, new)| {
        let (_, old) = set.iter().find(|it| it.0 == *name)?;
        Some((*name, old.clone(), (*new).clone()))
    });
    let differs: Vec<String> = others
        .chain(ours)
        .filter(|(_, old, new)| old != new)
        .map(|(what, old, new)| format!("{what} is {old}, not {new}"))
        .collect();
    ensure!(
        options.replace || differs.is_empty(),
        "keep what is there: {}; --replace changes it",
        differs.join("; ")
    );
    Ok(())
}

/// What a person types; an error where nobody can be asked.
fn answer(question: &str) -> anyhow::Result<String> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        bail!("name {question}");
    }
    write!(io::stderr(), "{}: ", question.trim_start_matches("--")).context("ask")?;
    let mut line = String::new();
    io::stdin().read_line(&mut line).context("read the answer")?;
    ensure!(!line.trim().is_empty(), "nothing was changed, as nothing was typed; name {question}");
    Ok(line.trim().to_owned())
}

/// At a pointer of at most two names; what is no object on the way is one then.
fn put(value: &mut Value, at: &str, new: Value) {
    let mut at = at.trim_start_matches('/').splitn(2, '/');
    let (first, second) = (at.next().unwrap_or_default(), at.next());
    match second {
        None => value[first] = new,
        Some(second) => {
            if !value[first].is_object() {
                value[first] = json!({});
            }
            value[first][second] = new;
        }
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
    let doing = "apply the roles with `kubectl apply -f -`";
    let service_account = account();
    let role = RoleCommand {
        user: None,
        service_account: service_account.clone(),
        without: Vec::new(),
        with: Vec::new(),
        create_namespace: true,
    };
    let mut kubectl = Command::new("kubectl");
    kubectl
        .arg("--kubeconfig")
        .arg(admin)
        .args(["apply", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    let mut applied = kubectl.spawn().context(doing)?;
    let text = role_cmd::manifests(&role);
    if let Some(mut to) = applied.stdin.take() {
        to.write_all(text.as_bytes()).context(doing)?;
    }
    ensure!(applied.wait().context(doing)?.success(), "{doing}: it failed, as it says above");
    if options.kubeconfig.exists() && !options.replace {
        return Ok(());
    }
    let make = KubeconfigCommand {
        to: options.kubeconfig.clone(),
        service_account,
        kubeconfig: Some(admin.to_owned()),
        server: options.server.clone(),
        days: 365,
        token_file: None,
        ca: None,
    };
    kubeconfig_cmd::make(&make).await
}

/// Whether the cluster has this node; a new device takes the identity that its Node has already.
async fn look_at_node(
    options: &SetupCommand,
    name: &str,
    config: &mut Value,
    is_new: bool,
    open: &mut Vec<String>,
) {
    let file = options.kubeconfig.display();
    if !options.kubeconfig.exists() {
        open.push(format!("there is no kubeconfig {file}: setup again with --admin FILE, or {BY_HAND}"));
        return;
    }
    let node = match NodeName::parse(&name.to_lowercase().replace('_', "-")) {
        Ok(node) => node,
        Err(why) => return open.push(format!("{why}; name another --node")),
    };
    let uuid = config.pointer("/id/uuid").and_then(Value::as_str).unwrap_or_default().to_owned();
    match nodes::own(&ApiClient::from_kubeconfig(&options.kubeconfig), &node, &uuid).await {
        Ok(_) => {}
        Err(Error::WrongNode { label, .. }) if is_new => put(config, "/id/uuid", json!(label)),
        Err(error) => open.push(error.advice()),
    }
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
