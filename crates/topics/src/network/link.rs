//! Bonds, VLANs and access control of network ports; parts of DeviceNetworkStatus.
//!
//! Source: lf-edge/eve pkg/pillar/types/{bond,dpc,pnac}.go. Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::numbers::numbers;
use crate::{Base64, ErrorDescription, GoIp, GoTime, is_zero};

numbers! {
    /// Whether a port is put together from others.
    L2LinkType: u8 {
        /// It is not.
        None = 0,
        /// A VLAN of another port.
        Vlan = 1,
        /// A bond of other ports.
        Bond = 2,
    }
}

/// A VLAN of another port. Zero members are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct VlanConfig {
    /// The other port.
    #[serde(skip_serializing_if = "is_zero")]
    pub parent_port: String,
    /// Number of the VLAN.
    #[serde(rename = "ID", skip_serializing_if = "is_zero")]
    pub id: u16,
}

/// A bond as it is wanted. Zero members are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct BondConfig {
    /// Its ports.
    #[serde(skip_serializing_if = "is_zero")]
    pub aggregated_ports: Vec<String>,
    /// How packets are spread.
    #[serde(skip_serializing_if = "is_zero")]
    pub mode: BondMode,
    /// How often a partner is asked to speak.
    #[serde(skip_serializing_if = "is_zero")]
    pub lacp_rate: LacpRate,
    /// Check of the links.
    #[serde(rename = "MIIMonitor")]
    pub mii_monitor: BondMiiMonitor,
    /// Check by requests; at most one of the two is in use.
    #[serde(rename = "ARPMonitor")]
    pub arp_monitor: BondArpMonitor,
}

/// Check of a bond's links as it is wanted, in milliseconds. Zero members are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct BondMiiMonitor {
    /// Whether it is in use.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: bool,
    /// Between two checks.
    #[serde(skip_serializing_if = "is_zero")]
    pub interval: u32,
    /// From link up to use.
    #[serde(skip_serializing_if = "is_zero")]
    pub up_delay: u32,
    /// From link down to no use.
    #[serde(skip_serializing_if = "is_zero")]
    pub down_delay: u32,
}

/// Check of a bond by requests as it is wanted. Zero members are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct BondArpMonitor {
    /// Whether it is in use.
    #[serde(skip_serializing_if = "is_zero")]
    pub enabled: bool,
    /// Between two requests, in milliseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub interval: u32,
    /// Who is asked.
    #[serde(rename = "IPTargets", skip_serializing_if = "is_zero")]
    pub ip_targets: Vec<GoIp>,
}

numbers! {
    /// How a bond spreads packets.
    BondMode: u8 {
        /// Not said: in turn.
        Unspecified = 0,
        /// In turn.
        BalanceRr = 1,
        /// Over one port, the others stand by.
        ActiveBackup = 2,
        /// By a hash.
        BalanceXor = 3,
        /// Over all.
        Broadcast = 4,
        /// IEEE 802.3ad.
        Ieee8023ad = 5,
        /// By load when sending.
        BalanceTlb = 6,
        /// By load.
        BalanceAlb = 7,
    }
}

numbers! {
    /// How often a partner of a bond speaks.
    LacpRate: u8 {
        /// Not said: slow.
        Unspecified = 0,
        /// Every 30 seconds.
        Slow = 1,
        /// Every second.
        Fast = 2,
    }
}

/// A bond as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct BondStatus {
    /// How packets are spread.
    pub mode: BondMode,
    /// The port in use, when there is just one.
    pub active_member: String,
    /// Check of the links.
    #[serde(rename = "MIIMonitor")]
    pub mii_monitor: BondMiiMonitorStatus,
    /// Check by requests.
    #[serde(rename = "ARPMonitor")]
    pub arp_monitor: BondArpMonitorStatus,
    /// IEEE 802.3ad.
    #[serde(rename = "LACP")]
    pub lacp: BondLacpStatus,
    /// Its ports.
    pub members: Option<Vec<BondMemberStatus>>,
}

/// Check of a bond's links as it is, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct BondMiiMonitorStatus {
    /// Whether it is in use.
    pub enabled: bool,
    /// Between two checks.
    pub polling_interval: u32,
    /// From link up to use.
    pub up_delay: u32,
    /// From link down to no use.
    pub down_delay: u32,
}

/// Check of a bond by requests as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct BondArpMonitorStatus {
    /// Whether it is in use.
    pub enabled: bool,
    /// Between two requests, in milliseconds.
    pub polling_interval: u32,
    /// Who is asked.
    #[serde(rename = "IPTargets")]
    pub ip_targets: Option<Vec<GoIp>>,
    /// Answers that may be missed.
    pub missed_max: u32,
}

/// IEEE 802.3ad of a bond.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct BondLacpStatus {
    /// Whether it is in use.
    pub enabled: bool,
    /// How often the partner speaks.
    #[serde(rename = "LACPRate")]
    pub lacp_rate: LacpRate,
    /// The group in use.
    #[serde(rename = "ActiveAggregatorID")]
    pub active_aggregator_id: u16,
    /// MAC address of the partner, six bytes.
    #[serde(rename = "PartnerMAC")]
    pub partner_mac: Option<Base64>,
    /// Own key.
    pub actor_key: u16,
    /// The partner's key.
    pub partner_key: u16,
}

/// One port of a bond.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct BondMemberStatus {
    /// Its name.
    pub logicallabel: String,
    /// Whether its link is up.
    #[serde(rename = "MIIUp")]
    pub mii_up: bool,
    /// Its part in IEEE 802.3ad.
    #[serde(rename = "LACP")]
    pub lacp: Option<BondMemberLacpStatus>,
}

/// IEEE 802.3ad of one port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct BondMemberLacpStatus {
    /// Its group.
    #[serde(rename = "AggregatorID")]
    pub aggregator_id: u16,
    /// Whether our side is settled.
    pub actor_churn_state: LacpChurnState,
    /// Whether the partner is settled.
    pub partner_churn_state: LacpChurnState,
}

numbers! {
    /// Whether a side of IEEE 802.3ad is settled.
    LacpChurnState: u8 {
        /// It is.
        None = 0,
        /// Not yet known.
        Monitoring = 1,
        /// It keeps changing.
        Churned = 2,
    }
}

/// Access control of a port, IEEE 802.1X.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct PnacStatus {
    /// Whether it is in use.
    pub enabled: bool,
    /// How far it is.
    pub state: SupplicantState,
    /// When the port was last let in.
    pub last_auth_timestamp: GoTime,
    /// Why it was not.
    pub error: ErrorDescription,
}

numbers! {
    /// How far access control is.
    SupplicantState: i32 {
        /// Not said.
        Unspecified = 0,
        /// Nobody answers.
        Disconnected = 1,
        /// Looks for an answer.
        Connecting = 2,
        /// Is being checked.
        Authenticating = 3,
        /// Let in.
        Authenticated = 4,
        /// Refused.
        Failed = 5,
        /// Refused, waits before it tries again.
        Held = 6,
    }
}
