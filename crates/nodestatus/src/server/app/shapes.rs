//! The members that `/app` reads of larger topics, so that no secret is read. Missing members are zero.
//!
//! Source: lf-edge/eve pkg/pillar/types. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use serde::Deserialize;
use topics::{Base64, GoIp, GoTime, GoUuid, IpNet, SwState};

/// Members of a topic under their Go names.
macro_rules! shapes {
    ($( $(#[doc = $doc:literal])* $name:ident { $( $(#[serde($attr:meta)])? $field:ident: $kind:ty ),+ $(,)? } )+) => { $(
        $(#[doc = $doc])*
        #[derive(Debug, Default, Deserialize)]
        #[serde(rename_all = "PascalCase", default)]
        pub(super) struct $name { $( $(#[serde($attr)])? pub(super) $field: $kind, )+ }
    )+ };
}

shapes! {
    /// Of EdgeNodeClusterStatus. Its token is not read.
    ClusterStatus {
        cluster_interface: String,
        #[serde(rename = "ClusterIPPrefix")]
        cluster_ip_prefix: Option<IpNet>,
        #[serde(rename = "ClusterIPIsReady")]
        cluster_ip_is_ready: bool,
        #[serde(rename = "JoinServerIP")]
        join_server_ip: GoIp,
        bootstrap_node: bool,
    }
    /// Of AppInstanceConfig.
    AppConfig {
        display_name: String,
        activate: bool,
        #[serde(rename = "IsDesignatedNodeID")]
        is_designated_node_id: bool,
        volume_ref_config_list: Option<Vec<VolumeRef>>,
        app_net_adapter_list: Option<Vec<Adapter>>,
    }
    VolumeRef {
        #[serde(rename = "VolumeID")]
        volume_id: GoUuid,
    }
    Adapter {
        name: String,
        app_mac_addr: Option<Base64>,
        #[serde(rename = "AppIPAddr")]
        app_ip_addr: GoIp,
        network: GoUuid,
    }
    /// Of VolumeConfig.
    VolumeConfig {
        #[serde(rename = "VolumeID")]
        volume_id: GoUuid,
        #[serde(rename = "ContentID")]
        content_id: GoUuid,
        display_name: String,
        is_replicated: bool,
    }
    /// Of NetworkInstanceStatus.
    NetworkStatus {
        display_name: String,
        activated: bool,
        #[serde(rename = "IPAssignments")]
        ip_assignments: Option<BTreeMap<String, Assigned>>,
    }
    Assigned {
        #[serde(rename = "IPv4Addrs")]
        ipv4: Option<Vec<Address>>,
        #[serde(rename = "IPv6Addrs")]
        ipv6: Option<Vec<Address>>,
    }
    /// An address, and a number for its source.
    Address {
        address: GoIp,
        assigned_by: u8,
    }
    /// Of AppNetworkConfig.
    AppNetworkConfig {
        display_name: String,
        activate: bool,
        app_net_adapter_list: Option<Vec<Adapter>>,
    }
    /// Of AppNetworkStatus.
    AppNetworkStatus {
        app_num: i64,
        activated: bool,
        display_name: String,
        app_net_adapter_list: Option<Vec<AdapterStatus>>,
    }
    AdapterStatus {
        assigned_addresses: Assigned,
    }
    /// Of VolumeStatus.
    VolumeStatus {
        state: SwState,
        total_size: i64,
        current_size: i64,
        reference_name: String,
        is_replicated: bool,
    }
    /// Of ContentTreeStatus.
    ContentStatus {
        #[serde(rename = "RelativeURL")]
        relative_url: String,
        display_name: String,
        state: SwState,
        total_size: i64,
        current_size: i64,
    }
    /// Of AppInstanceStatus.
    AppStatus {
        domain_name: String,
        activated: bool,
        state: SwState,
        #[serde(rename = "IsDesignatedNodeID")]
        is_designated_node_id: bool,
    }
    /// Of DomainConfig.
    DomainConfig {
        display_name: String,
        activate: bool,
        app_num: i64,
        kube_image_name: String,
        #[serde(rename = "IsDNidNode")]
        is_dnid_node: bool,
    }
    /// Of DomainStatus.
    DomainStatus {
        display_name: String,
        state: SwState,
        activated: bool,
        app_num: i64,
        #[serde(rename = "IsDNidNode")]
        is_dnid_node: bool,
        node_name: String,
    }
    /// Of DomainMetric.
    DomainMetric {
        #[serde(rename = "AllocatedMB")]
        allocated_mb: u32,
        used_memory_percent: f64,
        last_heard: GoTime,
        activated: bool,
    }
    /// Of AppDiskMetric.
    DiskMetric {
        disk_path: String,
        provisioned_bytes: u64,
        used_bytes: u64,
        disk_type: String,
        dirty: bool,
    }
}
