//! The controller's device config, as the JSON mapping of its message: every fault in one report.
//!
//! Names may be lowerCamelCase or snake_case, zero values are left out, enums are names or numbers, 64-bit numbers
//! may be texts, unknown members are ignored. Source: lf-edge/eve-api config/devconfig.proto.
//! Pure: no clock, no I/O, no task.

use core::net::IpAddr;
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
    let Value::Object(root) = &root else { return Err(whole(1, "found no object".to_owned())) };
    let mut reader =
        ConfigReader { text: String::from_utf8_lossy(text).into_owned(), faults: Vec::new(), untold: 0 };
    let mut config = DeviceConfig {
        node: reader.section(|it| node(it, root)),
        reboot: reader.section(|it| command(it, root, "reboot")),
        shutdown: reader.section(|it| command(it, root, "shutdown")),
        items: reader.section(|it| items(it, root)),
        maintenance: reader.section(|it| it.flag(&LocatedObject::root(root), "maintenanceMode")),
        base_os: reader.section(|it| base_os(it, root)),
        cluster: reader.section(|it| cluster(it, root)),
        faults: Vec::new(),
    };
    config.faults = reader.faults;
    if reader.untold > 0 {
        let text = format!("{} not listed; fix these first", number(reader.untold, "more fault"));
        config.faults.push(whole(1, text));
    }
    Ok(config)
}

struct LocatedObject<'a> {
    object: &'a Map<String, Value>,
    path: Vec<String>,
}

impl<'a> LocatedObject<'a> {
    fn root(object: &'a Map<String, Value>) -> Self {
        Self { object, path: Vec::new() }
    }

    /// The member `name`, given in lowerCamelCase, under either of its names; `null` counts as absent.
    fn get(&self, name: &str) -> Option<&'a Value> {
        let found = self.object.get(name).or_else(|| self.object.get(&snake_case(name)));
        found.filter(|value| !value.is_null())
    }

    fn path(&self, name: &str) -> Vec<String> {
        self.path.iter().cloned().chain([name.to_owned()]).collect()
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

struct ConfigReader {
    text: String,
    faults: Vec<ConfigFault>,
    /// Counted only: finding a line takes a walk through the text.
    untold: usize,
}

impl ConfigReader {
    /// `None` when something in it was invalid.
    fn section<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let before = self.faults.len() + self.untold;
        let content = read(self);
        (self.faults.len() + self.untold == before).then_some(content)
    }

    fn fault(&mut self, path: &[String], text: String) {
        if self.faults.len() == MOST_FAULTS {
            self.untold += 1;
            return;
        }
        let fault = ConfigFault { line: self.line(path), member: path.join("."), text };
        self.faults.push(fault);
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

    fn wrong<T: Default>(&mut self, at: &LocatedObject<'_>, name: &str, found: &Value, expected: &str) -> T {
        let path = at.path(name);
        self.fault(&path, format!("found {}, expected {expected}", shown(&path, found)));
        T::default()
    }

    /// A member as `read` takes it; absent, it is zero.
    fn member<'a, T: Default>(
        &mut self,
        at: &LocatedObject<'a>,
        name: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> T {
        let Some(value) = at.get(name) else { return T::default() };
        read(value).unwrap_or_else(|| self.wrong(at, name, value, expected))
    }

    fn object<'a>(&mut self, at: &LocatedObject<'a>, name: &str) -> Option<LocatedObject<'a>> {
        self.member(at, name, "an object", |it| {
            Some(Some(LocatedObject { object: it.as_object()?, path: at.path(name) }))
        })
    }

    fn text(&mut self, at: &LocatedObject<'_>, name: &str) -> String {
        self.member(at, name, "a text", |it| it.as_str().map(str::to_owned))
    }

    fn flag(&mut self, at: &LocatedObject<'_>, name: &str) -> bool {
        self.member(at, name, "true or false", Value::as_bool)
    }

    fn number(&mut self, at: &LocatedObject<'_>, name: &str) -> u32 {
        self.member(at, name, "a number from 0 to 4294967295", |it| {
            let number = it.as_u64().or_else(|| it.as_str()?.parse().ok())?;
            u32::try_from(number).ok()
        })
    }

    /// Parsed from a text; an empty one is zero too.
    fn parsed<T: Default>(
        &mut self,
        at: &LocatedObject<'_>,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> T {
        self.member(at, name, expected, |it| match it.as_str()? {
            "" => Some(T::default()),
            text => parse(text),
        })
    }

    fn uuid(&mut self, at: &LocatedObject<'_>, name: &str) -> GoUuid {
        self.parsed(at, name, "a UUID", |text| text.parse::<Uuid>().ok().map(GoUuid))
    }

    fn bytes(&mut self, at: &LocatedObject<'_>, name: &str) -> Option<Base64> {
        self.parsed(at, name, "base64", |text| {
            serde_json::from_value::<Base64>(Value::String(text.to_owned())).ok().map(Some)
        })
    }
}

fn node(reader: &mut ConfigReader, root: &Map<String, Value>) -> EdgeNodeInfo {
    let root = LocatedObject::root(root);
    let device_id = reader.object(&root, "id").map(|id| reader.uuid(&id, "uuid")).unwrap_or_default();
    EdgeNodeInfo {
        device_name: reader.text(&root, "deviceName"),
        device_id,
        project_name: reader.text(&root, "projectName"),
        project_id: reader.uuid(&root, "projectId"),
        enterprise_name: reader.text(&root, "enterpriseName"),
        enterprise_id: reader.text(&root, "enterpriseId"),
    }
}

fn command(reader: &mut ConfigReader, root: &Map<String, Value>, name: &str) -> Option<DeviceOpsCmd> {
    let at = reader.object(&LocatedObject::root(root), name)?;
    Some(DeviceOpsCmd {
        counter: reader.number(&at, "counter"),
        desired_state: reader.flag(&at, "desiredState"),
        ops_time: reader.text(&at, "opsTime"),
    })
}

fn items(reader: &mut ConfigReader, root: &Map<String, Value>) -> Vec<(String, String)> {
    let root = LocatedObject::root(root);
    match root.get(ITEMS) {
        None => Vec::new(),
        Some(Value::Array(list)) => {
            let mut items = Vec::new();
            for (index, item) in list.iter().enumerate() {
                let name = format!("{ITEMS}[{index}]");
                let Value::Object(object) = item else {
                    reader.wrong::<()>(&root, &name, item, "an object");
                    continue;
                };
                let at = LocatedObject { object, path: root.path(&name) };
                items.push((reader.text(&at, "key"), reader.text(&at, "value")));
            }
            items
        }
        Some(other) => reader.wrong(&root, ITEMS, other, "a list"),
    }
}

fn base_os(reader: &mut ConfigReader, root: &Map<String, Value>) -> Option<BaseOsConfig> {
    let at = reader.object(&LocatedObject::root(root), "baseos")?;
    let retry = reader.object(&at, "retryUpdate").map(|retry| reader.number(&retry, "counter"));
    let config = BaseOsConfig {
        base_os_version: reader.text(&at, "baseOsVersion"),
        content_tree_uuid: reader.text(&at, "contentTreeUuid"),
        retry_update_counter: retry.unwrap_or_default(),
        activate: reader.flag(&at, "activate"),
    };
    // It is the key of the topic.
    if config.content_tree_uuid.parse::<Uuid>().is_err() {
        let found = Value::String(config.content_tree_uuid.clone());
        return reader.wrong(&at, "contentTreeUuid", &found, "the UUID of a content tree");
    }
    Some(config)
}

fn cluster(reader: &mut ConfigReader, root: &Map<String, Value>) -> EdgeNodeClusterConfig {
    let none = EdgeNodeClusterConfig { initialized: true, ..EdgeNodeClusterConfig::default() };
    let root = LocatedObject::root(root);
    if root.get("cluster").is_none() && root.get("id").is_none() {
        // A damaged config, such as `{}`, must not take the node out of its cluster.
        let expected = "found neither `id` nor `cluster`: no whole device config, so it does not say that the node is \
                        in no cluster";
        reader.fault(&root.path("cluster"), expected.to_owned());
    }
    let Some(at) = reader.object(&root, "cluster") else { return none };
    let prefix = match at.get("clusterIpPrefix") {
        Some(_) => {
            reader.parsed(&at, "clusterIpPrefix", "an address with its length, as 10.244.244.2/28", prefix)
        }
        None => reader.wrong(
            &at,
            "clusterIpPrefix",
            &Value::Null,
            "an address with its length, as 10.244.244.2/28",
        ),
    };
    let join = reader.parsed(&at, "joinServerIp", "an address", |text| text.parse::<IpAddr>().ok().map(Some));
    let id = reader.uuid(&at, "clusterId");
    let token = reader.object(&at, "encryptedClusterToken").map(|token| cipher_block(reader, &token, id));
    let token = token.unwrap_or_default();
    EdgeNodeClusterConfig {
        valid: true,
        cluster_name: reader.text(&at, "clusterName"),
        cluster_id: UuidAndVersion { uuid: id, version: String::new() },
        cluster_interface: reader.text(&at, "clusterInterface"),
        bootstrap_node: join.is_some() && prefix.as_ref().and_then(|it: &IpNet| it.ip.0) == join,
        cluster_ip_prefix: prefix,
        is_worker_node: reader.flag(&at, "isWorkerNode"),
        join_server_ip: GoIp(join),
        cipher_token: token.clone(),
        cipher_gzip_registration_manifest_yaml: token,
        cluster_type: cluster_type(reader, &at),
        tie_breaker_node_id: UuidAndVersion {
            uuid: reader.uuid(&at, "tieBreakerNodeId"),
            version: String::new(),
        },
        enable_native_k8s_orchestration: reader.flag(&at, "enableNativeK8sOrchestration"),
        lb_interfaces: None,
        master_node_ids: masters(&at),
        // A witness and a forced recovery of etcd are only handed on where the reference's zedagent has checked them.
        ..none
    }
}

/// One bad entry makes the whole list unknown, and nothing else.
fn masters(at: &LocatedObject<'_>) -> Option<Vec<GoUuid>> {
    let Value::Array(list) = at.get("masterNodeUuids")? else { return None };
    list.iter().map(|it| it.as_str()?.parse::<Uuid>().ok().map(GoUuid)).collect()
}

fn cipher_block(reader: &mut ConfigReader, at: &LocatedObject<'_>, id: GoUuid) -> CipherBlockStatus {
    CipherBlockStatus {
        cipher_block_id: id.to_string(),
        cipher_context_id: reader.text(at, "cipherContextId"),
        initial_value: reader.bytes(at, "initialValue"),
        cipher_data: reader.bytes(at, "cipherData"),
        clear_text_hash: reader.bytes(at, "clearTextSha256"),
        is_cipher: true,
        ..CipherBlockStatus::default()
    }
}

fn cluster_type(reader: &mut ConfigReader, at: &LocatedObject<'_>) -> ClusterType {
    const NAMES: [&str; 4] = [
        "CLUSTER_TYPE_UNSPECIFIED",
        "CLUSTER_TYPE_K3S_BASE",
        "CLUSTER_TYPE_REPLICATED_STORAGE",
        "CLUSTER_TYPE_HA",
    ];
    reader.member(at, "clusterType", "one of the CLUSTER_TYPE names", |it| {
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
