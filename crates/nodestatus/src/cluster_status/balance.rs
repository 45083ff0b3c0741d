//! Load-balanced addresses: which of them the bootstrap node serves, and which collide with an address of this node.
//!
//! Pure: no clock, no I/O, no task.

use topics::{Cidr, EdgeNodeClusterConfig, LbInterface, NetworkPortStatus};

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Balance {
    /// Served by the bootstrap node, by Linux names; empty on every other node.
    pub(super) serves: Vec<LbInterface>,
    /// Empty when nothing is wrong. On the bootstrap node the last fault, elsewhere the first, as in the
    /// reference.
    pub(super) fault: String,
}

pub(super) fn balance(config: &EdgeNodeClusterConfig, ports: &[NetworkPortStatus]) -> Balance {
    let wanted = config.lb_interfaces.as_deref().unwrap_or_default();
    let mut found = Balance::default();
    if config.bootstrap_node {
        for entry in wanted {
            match serve(entry, ports) {
                Ok(interface) => {
                    let ip_prefix = entry.ip_prefix.clone();
                    found.serves.push(LbInterface { interface, ip_prefix });
                }
                Err(fault) => found.fault = format!("{fault}; kube-vip not applied"),
            }
        }
    } else {
        let named = |port: &&NetworkPortStatus| !port.if_name.is_empty();
        let conflict = |entry| conflict(entry, ports.iter().filter(named));
        found.fault = wanted.iter().find_map(conflict).unwrap_or_default();
    }
    found
}

/// The Linux interface for `entry`, or why there is none.
fn serve(entry: &LbInterface, ports: &[NetworkPortStatus]) -> Result<String, String> {
    let label = &entry.interface;
    let Some(port) = ports.iter().find(|port| port.logicallabel == *label) else {
        return Err(format!("LB interface {label:?} not found in device network status"));
    };
    if port.if_name.is_empty() {
        return Err(format!("LB interface {label:?} has empty Linux interface name"));
    }
    if Cidr::parse(&entry.ip_prefix).is_none() {
        let prefix = &entry.ip_prefix;
        return Err(format!(
            "invalid LB CIDR {prefix:?} for interface {label:?}: invalid CIDR address: {prefix}"
        ));
    }
    conflict(entry, ports.iter()).map_or_else(|| Ok(port.if_name.clone()), Err)
}

/// The node's address that the load balancer could assign: the first one of a layer 3 port in the prefix.
fn conflict<'a>(
    entry: &LbInterface,
    mut ports: impl Iterator<Item = &'a NetworkPortStatus>,
) -> Option<String> {
    let cidr = Cidr::parse(&entry.ip_prefix)?;
    ports.find_map(|port| {
        let addresses = port.addr_info_list.as_deref().filter(|_| port.is_l3_port).unwrap_or_default();
        let local = addresses.iter().filter_map(|it| it.addr.0).find(|it| cidr.contains(*it))?;
        Some(format!(
            "LB CIDR {} contains local IP {} on port {}",
            entry.ip_prefix,
            local.to_canonical(),
            port.logicallabel
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use topics::{AddrInfo, GoIp};

    fn port(label: &str, linux: &str, address: &str) -> NetworkPortStatus {
        let addr = GoIp(Some(address.parse().unwrap()));
        NetworkPortStatus {
            if_name: linux.to_owned(),
            logicallabel: label.to_owned(),
            is_l3_port: true,
            addr_info_list: Some(vec![AddrInfo { addr }]),
            ..NetworkPortStatus::default()
        }
    }

    fn judge(
        bootstrap: bool,
        entries: &[(&str, &str)],
        ports: &[NetworkPortStatus],
    ) -> (Vec<String>, String) {
        let entry = |(interface, prefix): &(&str, &str)| LbInterface {
            interface: (*interface).to_owned(),
            ip_prefix: (*prefix).to_owned(),
        };
        let config = EdgeNodeClusterConfig {
            bootstrap_node: bootstrap,
            lb_interfaces: Some(entries.iter().map(entry).collect()),
            ..EdgeNodeClusterConfig::default()
        };
        let found = balance(&config, ports);
        (
            found.serves.into_iter().map(|it| format!("{} {}", it.interface, it.ip_prefix)).collect(),
            found.fault,
        )
    }

    #[test]
    fn the_bootstrap_node_serves_what_it_can_and_tells_each_fault() {
        let ports = [
            port("lan", "eth1", "10.0.0.9"),
            port("nameless", "", "10.1.0.9"),
            port("six", "eth2", "fd00::5"),
        ];
        let none = "; kube-vip not applied";
        for (entry, fault) in [
            (("wan", "10.9.0.0/24"), "LB interface \"wan\" not found in device network status"),
            (("nameless", "10.9.0.0/24"), "LB interface \"nameless\" has empty Linux interface name"),
            (
                ("lan", "10.9.0.0"),
                "invalid LB CIDR \"10.9.0.0\" for interface \"lan\": invalid CIDR address: 10.9.0.0",
            ),
            (("lan", "10.0.0.14/29"), "LB CIDR 10.0.0.14/29 contains local IP 10.0.0.9 on port lan"),
            // Any port of the node counts, also one that no load balancer uses.
            (("lan", "fd00::/64"), "LB CIDR fd00::/64 contains local IP fd00::5 on port six"),
        ] {
            let (serves, found) = judge(true, &[("lan", "10.8.0.0/24"), entry], &ports);
            assert_eq!(serves, ["eth1 10.8.0.0/24"]);
            assert_eq!(found, format!("{fault}{none}"));
        }
        assert_eq!(judge(true, &[("lan", "10.8.0.0/24")], &ports).1, "");
    }

    #[test]
    fn any_other_node_serves_nothing_and_tells_its_conflict_alone() {
        let mut ports = [port("lan", "eth1", "10.0.0.9")];
        let entries = [("wan", "10.9.0.0/24"), ("lan", "10.0.0.8/29")];
        let told = "LB CIDR 10.0.0.8/29 contains local IP 10.0.0.9 on port lan";
        assert_eq!(judge(false, &entries, &ports), (vec![], told.to_owned()));
        ports[0].is_l3_port = false;
        assert_eq!(judge(false, &entries, &ports), (vec![], String::new()));
        assert_eq!(judge(false, &[("lan", "bad")], &ports), (vec![], String::new()));
    }
}
