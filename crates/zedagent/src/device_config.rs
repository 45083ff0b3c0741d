//! The controller's device config, as the JSON mapping of its message: every fault in one report.
//!
//! Names may be lowerCamelCase or snake_case, zero values are left out, enums are names or numbers, 64-bit numbers
//! may be texts, unknown members are ignored. Source: lf-edge/eve-api config/devconfig.proto.
//! Pure: no clock, no I/O, no task.

use core::net::IpAddr;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;

use serde_json::{Map, Value};
use topics::{
    Base64, BaseOsConfig, CipherBlockStatus, ClusterType, DeviceOpsCmd, EdgeNodeClusterConfig, EdgeNodeInfo,
    GoIp, GoUuid, IpNet, UuidAndVersion, by_length, number,
};
use uuid::Uuid;

/// Its sections: `None` where one is invalid, and zero where it is absent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceConfig {
    pub node: Option<EdgeNodeInfo>,
    pub reboot: Option<Option<DeviceOpsCmd>>,
    pub shutdown: Option<Option<DeviceOpsCmd>>,
    /// In order.
    pub items: Option<Vec<(String, String)>>,
    pub maintenance: Option<bool>,
    /// If wanted.
    pub base_os: Option<Option<BaseOsConfig>>,
    /// Membership in a cluster; initialized and not valid where there is none.
    pub cluster: Option<EdgeNodeClusterConfig>,
    pub faults: Vec<ConfigFault>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// Line of the text, from 1.
    pub line: usize,
    /// Names from the outside in.
    pub member: String,
    /// Found and expected.
    pub text: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}, member {}: {}", self.line, self.member, self.text)
    }
}

/// Faults in these members show kind and length only: they may hold a misplaced password.
const SECRETS: [&str; 2] = ["encryptedClusterToken", ITEMS];
const ITEMS: &str = "configItems";
/// A longer value is not shown either.
const SHOWN_CHARACTERS: usize = 60;
/// Reported faults; further ones are counted: a config may be nothing but faults.
pub const MOST_FAULTS: usize = 100;

/// Errors: the text is no JSON object.
pub fn parse(text: &[u8]) -> Result<DeviceConfig, ConfigFault> {
    let whole = |line, text: String| ConfigFault { line, member: ".".to_owned(), text };
    let root: Value =
        serde_json::from_slice(text).map_err(|error| whole(error.line(), format!("no JSON: {error}")))?;
    let Value::Object(object) = &root else { return Err(whole(1, "found no object".to_owned())) };
    let report =
        Report { text: String::from_utf8_lossy(text), faults: RefCell::default(), untold: Cell::default() };
    let root = &At { object, path: Vec::new(), report: &report };
    let mut config = DeviceConfig {
        node: report.section(|| node(root)),
        reboot: report.section(|| command(root, "reboot")),
        shutdown: report.section(|| command(root, "shutdown")),
        items: report.section(|| items(root)),
        maintenance: report.section(|| root.flag("maintenanceMode")),
        base_os: report.section(|| base_os(root)),
        cluster: report.section(|| cluster(root)),
        faults: report.faults.take(),
    };
    if report.untold.get() > 0 {
        let text = format!("{} not listed; fix these first", number(report.untold.get(), "more fault"));
        config.faults.push(whole(1, text));
    }
    Ok(config)
}

/// All faults of a text.
struct Report<'a> {
    text: Cow<'a, str>,
    faults: RefCell<Vec<ConfigFault>>,
    /// Counted only: finding a line takes a walk through the text.
    untold: Cell<usize>,
}

impl Report<'_> {
    fn count(&self) -> usize {
        self.faults.borrow().len() + self.untold.get()
    }

    /// `None` when something in it was invalid.
    fn section<T>(&self, read: impl FnOnce() -> T) -> Option<T> {
        let before = self.count();
        let content = read();
        (self.count() == before).then_some(content)
    }

    fn fault(&self, path: &[String], text: String) {
        if self.count() >= MOST_FAULTS {
            self.untold.set(self.untold.get() + 1);
            return;
        }
        let fault = ConfigFault { line: self.line(path), member: path.join("."), text };
        self.faults.borrow_mut().push(fault);
    }

    /// The line of a member: each name of its path is searched after the one before it.
    fn line(&self, path: &[String]) -> usize {
        let mut at = 0;
        for name in path {
            let Some(rest) = self.text.get(at..) else { break };
            let quoted = [name.clone(), snake_case(name)].map(|name| format!("\"{name}\""));
            if let Some(found) = quoted.iter().filter_map(|name| rest.find(name.as_str())).min() {
                at += found;
            }
        }
        self.text.get(..at).map_or(1, |before| before.matches('\n').count() + 1)
    }
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// `found` in a fault: a short value unchanged, a long or possibly secret one by kind and length.
fn shown(path: &[String], found: &Value) -> String {
    let is_secret = path.iter().any(|name| SECRETS.iter().any(|it| name.split('[').next() == Some(it)));
    let whole = found.to_string();
    let is_shown = !is_secret && whole.chars().count() <= SHOWN_CHARACTERS;
    match found {
        Value::Null => whole,
        Value::Bool(_) | Value::Number(_) | Value::String(_) if is_shown => whole,
        Value::Bool(_) => "true or false".to_owned(),
        Value::Number(_) => format!("a number of {} characters", whole.chars().count()),
        Value::String(text) => by_length(text),
        Value::Array(list) => format!("a list of length {}", list.len()),
        Value::Object(object) => format!("an object of length {}", object.len()),
    }
}

/// An object of the text, and the names that lead to it. Of its members, an absent one is zero, and an invalid one is zero
/// and reported.
struct At<'a> {
    object: &'a Map<String, Value>,
    path: Vec<String>,
    report: &'a Report<'a>,
}

impl<'a> At<'a> {
    /// The member `name`, given in lowerCamelCase, under either of its names; `null` counts as absent.
    fn get(&self, name: &str) -> Option<&'a Value> {
        let found = self.object.get(name).or_else(|| self.object.get(&snake_case(name)));
        found.filter(|value| !value.is_null())
    }

    fn path(&self, name: &str) -> Vec<String> {
        self.path.iter().cloned().chain([name.to_owned()]).collect()
    }

    fn wrong<T: Default>(&self, name: &str, found: &Value, expected: &str) -> T {
        let path = self.path(name);
        self.report.fault(&path, format!("found {}, expected {expected}", shown(&path, found)));
        T::default()
    }

    /// A member as `read` takes it.
    fn member<T: Default>(&self, name: &str, expected: &str, read: impl FnOnce(&'a Value) -> Option<T>) -> T {
        let Some(value) = self.get(name) else { return T::default() };
        read(value).unwrap_or_else(|| self.wrong(name, value, expected))
    }

    fn object(&self, name: &str) -> Option<Self> {
        let at = |it: &'a Value| Some(Self { object: it.as_object()?, path: self.path(name), ..*self });
        self.member(name, "an object", |it| at(it).map(Some))
    }

    fn text(&self, name: &str) -> String {
        self.member(name, "a text", |it| it.as_str().map(str::to_owned))
    }

    fn flag(&self, name: &str) -> bool {
        self.member(name, "true or false", Value::as_bool)
    }

    fn number(&self, name: &str) -> u32 {
        self.member(name, "a number from 0 to 4294967295", |it| {
            let number = it.as_u64().or_else(|| it.as_str()?.parse().ok())?;
            u32::try_from(number).ok()
        })
    }

    /// Parsed from a text; an empty one is zero too.
    fn parsed<T: Default>(&self, name: &str, expected: &str, parse: impl FnOnce(&str) -> Option<T>) -> T {
        self.member(name, expected, |it| match it.as_str()? {
            "" => Some(T::default()),
            text => parse(text),
        })
    }

    fn uuid(&self, name: &str) -> GoUuid {
        self.parsed(name, "a UUID", |text| text.parse::<Uuid>().ok().map(GoUuid))
    }

    fn bytes(&self, name: &str) -> Option<Base64> {
        self.member(name, "base64", |it| match it.as_str()? {
            "" => Some(None),
            _ => serde_json::from_value::<Base64>(it.clone()).ok().map(Some),
        })
    }
}

fn node(root: &At<'_>) -> EdgeNodeInfo {
    EdgeNodeInfo {
        device_id: root.object("id").map(|id| id.uuid("uuid")).unwrap_or_default(),
        device_name: root.text("deviceName"),
        project_name: root.text("projectName"),
        project_id: root.uuid("projectId"),
        enterprise_name: root.text("enterpriseName"),
        enterprise_id: root.text("enterpriseId"),
    }
}

fn command(root: &At<'_>, name: &str) -> Option<DeviceOpsCmd> {
    let at = root.object(name)?;
    Some(DeviceOpsCmd {
        counter: at.number("counter"),
        desired_state: at.flag("desiredState"),
        ops_time: at.text("opsTime"),
    })
}

fn items(root: &At<'_>) -> Vec<(String, String)> {
    let list = root.member(ITEMS, "a list", |it| it.as_array().map(Vec::as_slice));
    let item = |(index, item): (usize, &Value)| {
        let name = format!("{ITEMS}[{index}]");
        let Value::Object(object) = item else { return root.wrong(&name, item, "an object") };
        let at = At { object, path: root.path(&name), ..*root };
        Some((at.text("key"), at.text("value")))
    };
    list.iter().enumerate().filter_map(item).collect()
}

fn base_os(root: &At<'_>) -> Option<BaseOsConfig> {
    let at = root.object("baseos")?;
    let config = BaseOsConfig {
        retry_update_counter: at.object("retryUpdate").map(|it| it.number("counter")).unwrap_or_default(),
        base_os_version: at.text("baseOsVersion"),
        content_tree_uuid: at.text("contentTreeUuid"),
        activate: at.flag("activate"),
    };
    // It is the key of the topic.
    if config.content_tree_uuid.parse::<Uuid>().is_err() {
        let found = Value::String(config.content_tree_uuid);
        return at.wrong("contentTreeUuid", &found, "the UUID of a content tree");
    }
    Some(config)
}

fn cluster(root: &At<'_>) -> EdgeNodeClusterConfig {
    let none = EdgeNodeClusterConfig { initialized: true, ..EdgeNodeClusterConfig::default() };
    if root.get("cluster").is_none() && root.get("id").is_none() {
        // A damaged config, such as `{}`, must not take the node out of its cluster.
        let expected = "found neither `id` nor `cluster`: no whole device config, so it does not say that the node is \
                        in no cluster";
        root.report.fault(&root.path("cluster"), expected.to_owned());
    }
    let Some(at) = root.object("cluster") else { return none };
    let expected = "an address with its length, as 10.244.244.2/28";
    let cluster_ip_prefix = match at.get("clusterIpPrefix") {
        Some(_) => at.parsed("clusterIpPrefix", expected, prefix),
        None => at.wrong("clusterIpPrefix", &Value::Null, expected),
    };
    let join = at.parsed("joinServerIp", "an address", |text| text.parse::<IpAddr>().ok().map(Some));
    let id = at.uuid("clusterId");
    let token = at.object("encryptedClusterToken").map(|token| cipher_block(&token, id)).unwrap_or_default();
    let of = |uuid| UuidAndVersion { uuid, version: String::new() };
    EdgeNodeClusterConfig {
        valid: true,
        cluster_name: at.text("clusterName"),
        cluster_id: of(id),
        cluster_interface: at.text("clusterInterface"),
        bootstrap_node: join.is_some() && cluster_ip_prefix.as_ref().and_then(|it: &IpNet| it.ip.0) == join,
        cluster_ip_prefix,
        is_worker_node: at.flag("isWorkerNode"),
        join_server_ip: GoIp(join),
        cipher_token: token.clone(),
        cipher_gzip_registration_manifest_yaml: token,
        cluster_type: cluster_type(&at),
        tie_breaker_node_id: of(at.uuid("tieBreakerNodeId")),
        enable_native_k8s_orchestration: at.flag("enableNativeK8sOrchestration"),
        lb_interfaces: None,
        master_node_ids: masters(&at),
        // A witness and a forced recovery of etcd are only handed on where the reference's zedagent has checked them.
        ..none
    }
}

/// One bad entry makes the whole list unknown, and nothing else.
fn masters(at: &At<'_>) -> Option<Vec<GoUuid>> {
    let list = at.get("masterNodeUuids")?.as_array()?;
    list.iter().map(|it| it.as_str()?.parse::<Uuid>().ok().map(GoUuid)).collect()
}

fn cipher_block(at: &At<'_>, id: GoUuid) -> CipherBlockStatus {
    CipherBlockStatus {
        cipher_block_id: id.to_string(),
        cipher_context_id: at.text("cipherContextId"),
        initial_value: at.bytes("initialValue"),
        cipher_data: at.bytes("cipherData"),
        clear_text_hash: at.bytes("clearTextSha256"),
        is_cipher: true,
        ..CipherBlockStatus::default()
    }
}

fn cluster_type(at: &At<'_>) -> ClusterType {
    const NAMES: [&str; 4] = [
        "CLUSTER_TYPE_UNSPECIFIED",
        "CLUSTER_TYPE_K3S_BASE",
        "CLUSTER_TYPE_REPLICATED_STORAGE",
        "CLUSTER_TYPE_HA",
    ];
    at.member("clusterType", "one of the CLUSTER_TYPE names", |it| {
        let by_name = |name: &str| -> Option<u8> { NAMES.iter().position(|it| *it == name)?.try_into().ok() };
        let number = it.as_str().map_or_else(|| it.as_u64()?.try_into().ok(), by_name)?;
        Some(ClusterType::from(number))
    })
}

#[expect(clippy::option_option, reason = "no prefix, and a text that is none, differ")]
fn prefix(text: &str) -> Option<Option<IpNet>> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let length: usize = length.parse().ok()?;
    let bytes = if address.is_ipv4() { 4 } else { 16 };
    if length > bytes * 8 {
        return None;
    }
    let mask = (0..bytes).map(|byte| {
        let ones = length.saturating_sub(byte * 8).min(8);
        u8::try_from(0xff00_u32 >> ones & 0xff).unwrap_or_default()
    });
    Some(Some(IpNet { ip: GoIp(Some(address)), mask: Some(Base64(mask.collect())) }))
}

#[cfg(test)]
mod tests;
