//! Values as the reference's texts show them, which are those of Go's `%v`.
//!
//! Source: Go package fmt; lf-edge/eve pkg/pillar/types for the names of states. Pure: no clock, no I/O, no task.

use core::net::IpAddr;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sheet::text::seconds;
use topics::{AppKubeStatus, Base64, GoIp, GoUuid, IpNet, SwState};

/// Go's text for a nil pointer or address.
const NIL: &str = "<nil>";

/// An address, and a number for its source.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct AssignedAddress {
    address: GoIp,
    assigned_by: u8,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Assigned {
    #[serde(rename = "IPv4Addrs")]
    ipv4: Option<Vec<AssignedAddress>>,
    #[serde(rename = "IPv6Addrs")]
    ipv6: Option<Vec<AssignedAddress>>,
}

/// `text` with members of `topic` in place of `{Member}`, `{Member:kind}` and `{List/Member:kind}`; a missing one is
/// zero. Errors: which one is not of its kind.
pub(super) fn filled(text: &str, topic: &Map<String, Value>) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, (named, after))) =
        rest.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    {
        let (path, kind) = named.split_once(':').unwrap_or((named, ""));
        let value = member(path, kind, topic).ok_or_else(|| format!("member /{path} is of a wrong kind"))?;
        (out, rest) = (out + before + &value, after);
    }
    Ok(out + rest)
}

fn member(path: &str, kind: &str, topic: &Map<String, Value>) -> Option<String> {
    let at = |name: &str| topic.get(name).unwrap_or(&Value::Null);
    let Some((name, within)) = path.split_once('/') else { return value(kind, at(path)) };
    let items: Vec<Value> = read(at(name))?;
    let each = items.iter().map(|it| value(kind, it.pointer(&format!("/{within}")).unwrap_or(&Value::Null)));
    Some(list(each.collect::<Option<Vec<_>>>()?))
}

/// A value of Go's: its zero in place of `null`.
fn read<T: DeserializeOwned + Default>(value: &Value) -> Option<T> {
    if value.is_null() { Some(T::default()) } else { T::deserialize(value).ok() }
}

/// In the form of its kind; `None` where it is of another.
fn value(kind: &str, value: &Value) -> Option<String> {
    Some(match kind {
        "yes" => read::<bool>(value)?.to_string(),
        "ready" => if read(value)? { "" } else { "Not " }.to_owned(),
        "uint" => read::<u64>(value)?.to_string(),
        "int" => read::<i64>(value)?.to_string(),
        "percent" => format!("{:.6}", read::<f64>(value)?),
        "uuid" => read::<GoUuid>(value)?.to_string(),
        "ip" => ip(read(value)?),
        "mac" => mac(read::<Option<Base64>>(value)?.as_ref()),
        "prefix" => prefix(read::<Option<IpNet>>(value)?.as_ref()),
        "addresses" => addresses(&read::<Vec<AssignedAddress>>(value)?),
        "assignments" => assignments(&read(value)?),
        "time" => seconds(read(value)?),
        "state" => state(read(value)?),
        "kube" => kube_status(read(value)?).to_owned(),
        "" => read(value)?,
        _ => return None,
    })
}

/// A list: `[a b]`.
fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(" "))
}

fn ip(address: GoIp) -> String {
    address.0.map_or_else(|| NIL.to_owned(), |_| address.to_string())
}

/// Six bytes as `02:16:3e:00:00:01`.
fn mac(bytes: Option<&Base64>) -> String {
    digits(bytes.map_or(&[], |it| &it.0)).join(":")
}

fn digits(bytes: &[u8]) -> Vec<String> {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `10.244.244.1/24`; the mask in digits where its ones are not leading.
fn prefix(net: Option<&IpNet>) -> String {
    let parts = net.and_then(|net| Some((net.ip.0?.to_canonical(), net.mask.as_ref()?.0.as_slice())));
    let Some((address, mask)) = parts else { return NIL.to_owned() };
    let mask = match (address, mask.len()) {
        (IpAddr::V4(_), 4) | (IpAddr::V6(_), 16) => mask,
        (IpAddr::V4(_), 16) => &mask[12..],
        _ => return NIL.to_owned(),
    };
    let bits = mask.iter().fold(0_u128, |all, byte| all << 8 | u128::from(*byte)) << (128 - 8 * mask.len());
    if bits.leading_ones() == bits.count_ones() {
        format!("{address}/{}", bits.leading_ones())
    } else {
        format!("{address}/{}", digits(mask).concat())
    }
}

/// Of one family: `[{10.1.0.2 2}]`.
fn addresses(all: &[AssignedAddress]) -> String {
    list(all.iter().map(|it| format!("{{{} {}}}", ip(it.address), it.assigned_by)))
}

/// Addresses by the hardware address of their interface: `map[02:16:3e:00:00:01:{[{10.1.0.2 2}] []}]`.
fn assignments(all: &BTreeMap<String, Assigned>) -> String {
    let family = |all: &Option<Vec<AssignedAddress>>| addresses(all.as_deref().unwrap_or_default());
    let one =
        |(mac, to): (&String, &Assigned)| format!("{mac}:{{{} {}}}", family(&to.ipv4), family(&to.ipv6));
    format!("map{}", list(all.iter().map(one)))
}

fn state(state: SwState) -> String {
    let word = match state {
        SwState::Initial => "INITIAL",
        SwState::ResolvingTag => "RESOLVING_TAG",
        SwState::ResolvedTag => "RESOLVED_TAG",
        SwState::Downloading => "DOWNLOADING",
        SwState::Downloaded => "DOWNLOADED",
        SwState::Verifying => "VERIFYING",
        SwState::Verified => "VERIFIED",
        SwState::Loading => "LOADING",
        SwState::Loaded => "LOADED",
        SwState::CreatingVolume => "CREATING_VOLUME",
        SwState::CreatedVolume => "CREATED_VOLUME",
        SwState::Installed => "INSTALLED",
        SwState::AwaitNetworkInstance => "AWAITNETWORKINSTANCE",
        SwState::StartDelayed => "START_DELAYED",
        SwState::Booting => "BOOTING",
        SwState::Running => "RUNNING",
        SwState::Pausing => "PAUSING",
        SwState::Paused => "PAUSED",
        SwState::Halting => "HALTING",
        SwState::Halted => "HALTED",
        SwState::Broken => "BROKEN",
        SwState::Unknown => "UNKNOWN",
        SwState::Pending => "PENDING",
        SwState::Scheduling => "SCHEDULING",
        SwState::Failed => "FAILED",
        SwState::RemoteLoaded => "REMOTELOADED",
        SwState::Unset | SwState::MaxState | SwState::Stranger(_) => {
            return format!("Unknown state {}", state.number());
        }
    };
    word.to_owned()
}

fn kube_status(status: AppKubeStatus) -> &'static str {
    match status {
        AppKubeStatus::Unknown => "Unknown",
        AppKubeStatus::ApiUnreachable => "APIUnreachable",
        AppKubeStatus::NotInCluster => "NotInCluster",
        AppKubeStatus::NotRunning => "NotRunningState",
        AppKubeStatus::Running => "RunningState",
        AppKubeStatus::Stranger(_) => "Invalid",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topics::go_json;

    #[test]
    fn prefixes_are_printed_as_go_prints_them() {
        for (net, text) in [
            ("null", "<nil>"),
            (r#"{"IP":"10.244.244.1","Mask":"////AA=="}"#, "10.244.244.1/24"),
            (r#"{"IP":"10.244.244.1","Mask":"AAAAAAAAAAAAAAAA////AA=="}"#, "10.244.244.1/24"),
            (r#"{"IP":"10.0.0.1","Mask":"AAAAAA=="}"#, "10.0.0.1/0"),
            (r#"{"IP":"10.0.0.1","Mask":"/wD/AA=="}"#, "10.0.0.1/ff00ff00"),
            (r#"{"IP":"fd00::1","Mask":"//////////8AAAAAAAAAAA=="}"#, "fd00::1/64"),
            (r#"{"IP":"fd00::1","Mask":"////AA=="}"#, "<nil>"),
            (r#"{"IP":"","Mask":"////AA=="}"#, "<nil>"),
            (r#"{"IP":"10.0.0.1","Mask":null}"#, "<nil>"),
        ] {
            let net: Option<IpNet> = go_json::from_slice(net.as_bytes()).unwrap();
            assert_eq!(prefix(net.as_ref()), text, "{net:?}");
        }
    }

    #[test]
    fn assignments_are_printed_as_go_prints_them() {
        let text = r#"{"02:16:3e:00:00:02":{"IPv4Addrs":null,"IPv6Addrs":[{"Address":"","AssignedBy":16}]},
            "02:16:3e:00:00:01":{"IPv4Addrs":[{"Address":"10.1.0.2","AssignedBy":4},{"Address":"10.1.0.3"}]}}"#;
        let all: BTreeMap<String, Assigned> = go_json::from_slice(text.as_bytes()).unwrap();
        assert_eq!(
            assignments(&all),
            "map[02:16:3e:00:00:01:{[{10.1.0.2 4} {10.1.0.3 0}] []} 02:16:3e:00:00:02:{[] [{<nil> 16}]}]"
        );
        assert_eq!(assignments(&BTreeMap::new()), "map[]");
    }

    #[test]
    fn every_state_has_its_name_or_number() {
        let names: Vec<String> =
            [0, 100, 112, 113, 120, 121, 125, 126, 7].map(|it: u8| state(it.into())).into();
        let expected = "Unknown state 0|INITIAL|AWAITNETWORKINSTANCE|START_DELAYED|BROKEN|UNKNOWN|REMOTELOADED|\
             Unknown state 126|Unknown state 7";
        assert_eq!(names.join("|"), expected);
        let all = [0, 1, 2, 3, 4, 5].map(|it: u8| kube_status(it.into()));
        assert_eq!(
            all,
            ["Unknown", "APIUnreachable", "NotInCluster", "NotRunningState", "RunningState", "Invalid"]
        );
    }

    #[test]
    fn times_and_hardware_addresses_are_short() {
        assert_eq!(seconds("2026-03-14T10:30:00.5+01:00".parse().unwrap()), "2026-03-14T09:30:00Z");
        assert_eq!(seconds(topics::GoTime::ZERO), "0001-01-01T00:00:00Z");
        assert_eq!(mac(Some(&Base64(vec![2, 0x16, 0x3e, 0, 0, 1]))), "02:16:3e:00:00:01");
        assert_eq!(mac(None), "");
    }
}
