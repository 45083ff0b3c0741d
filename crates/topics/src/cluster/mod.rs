//! The node and its cluster.
//!
//! Beside this file: what happens in the cluster (`kube_info`, `kube_state`, with a node's answer to its peers), what hangs on a
//! dead node (`failover`), logs of applications (`app_logs`), services of users and consoles (`user_services`). Not here: the drain protocol (`drain`). Source: lf-edge/eve
//! pkg/pillar/types/{cluster,cipherinfo,edgenode}types.go. Pure: no clock, no I/O, no task.

mod app_logs;
mod failover;
mod kube_info;
mod kube_state;
mod user_services;

pub use app_logs::*;
pub use failover::*;
pub use kube_info::*;
pub use kube_state::*;
pub use user_services::*;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::numbers::numbers;
use crate::{
    Base64, ErrorDescription, ErrorEntity, ErrorSeverity, GoIp, GoTime, GoUuid, IpNet, Kind, Most, Secret,
    Topic, UuidAndVersion, topic,
};

numbers! {
    /// The kind of a cluster.
    ClusterType: u8 {
        None = 0, K3sBase = 1, ReplicatedStorage = 2,
        /// With replicated volumes and moving applications.
        Ha = 3,
    }
}

/// How a block is encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct CipherContext {
    /// Its identity.
    #[serde(rename = "ContextID")]
    pub context_id: String,
    /// Hash in use.
    pub hash_scheme: i32,
    /// Key exchange in use.
    pub key_exchange_scheme: i32,
    /// Cipher in use.
    pub encryption_scheme: i32,
    /// Certificate of the controller.
    pub controller_cert_hash: Option<Base64>,
    /// Certificate of the device.
    pub device_cert_hash: Option<Base64>,
    /// What is wrong, or empty.
    pub error: String,
    /// Since when it is wrong.
    pub error_time: GoTime,
    /// How bad it is.
    pub error_severity: ErrorSeverity,
    /// When it will be tried again, in words.
    pub error_retry_condition: String,
    /// What it is about.
    pub error_entities: Option<Vec<ErrorEntity>>,
}

/// An encrypted block.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct CipherBlockStatus {
    /// Its identity.
    #[serde(rename = "CipherBlockID")]
    pub cipher_block_id: String,
    /// How it is encrypted.
    #[serde(rename = "CipherContextID")]
    pub cipher_context_id: String,
    /// Start of the cipher.
    pub initial_value: Option<Base64>,
    /// The encrypted bytes.
    #[serde(rename = "pubsub-large-CipherData")]
    pub cipher_data: Option<Base64>,
    /// Hash of the clear text.
    pub clear_text_hash: Option<Base64>,
    /// Whether there is a block at all.
    pub is_cipher: bool,
    /// How it is encrypted, once known.
    pub cipher_context: Option<CipherContext>,
    /// What is wrong, or empty.
    pub error: String,
    /// Since when it is wrong.
    pub error_time: GoTime,
    /// How bad it is.
    pub error_severity: ErrorSeverity,
    /// When it will be tried again, in words.
    pub error_retry_condition: String,
    /// What it is about.
    pub error_entities: Option<Vec<ErrorEntity>>,
}

/// An interface that serves load-balanced addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct LbInterface {
    /// Its name.
    pub interface: String,
    /// Its addresses, as `a.b.c.d/n`.
    #[serde(rename = "IPPrefix")]
    pub ip_prefix: String,
}

/// Membership of this node in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct EdgeNodeClusterConfig {
    /// Whether this has been decided.
    pub initialized: bool,
    /// Whether the node belongs to a cluster.
    pub valid: bool,
    /// Its name.
    pub cluster_name: String,
    /// Its identity.
    #[serde(rename = "ClusterID")]
    pub cluster_id: UuidAndVersion,
    /// Label of the port that the cluster uses.
    pub cluster_interface: String,
    /// This node's address in it.
    #[serde(rename = "ClusterIPPrefix")]
    pub cluster_ip_prefix: Option<IpNet>,
    /// Whether the node is no server.
    pub is_worker_node: bool,
    /// Server to join.
    #[serde(rename = "JoinServerIP")]
    pub join_server_ip: GoIp,
    /// Whether this node is that server.
    pub bootstrap_node: bool,
    /// Token, encrypted.
    pub cipher_token: CipherBlockStatus,
    /// The same block again.
    pub cipher_gzip_registration_manifest_yaml: CipherBlockStatus,
    /// The kind.
    pub cluster_type: ClusterType,
    /// The node that only votes.
    #[serde(rename = "TieBreakerNodeID")]
    pub tie_breaker_node_id: UuidAndVersion,
    /// Whether users run their own workloads.
    #[serde(rename = "EnableNativeK8SOrchestration")]
    pub enable_native_k8s_orchestration: bool,
    /// Interfaces with load-balanced addresses.
    #[serde(rename = "LBInterfaces")]
    pub lb_interfaces: Option<Vec<LbInterface>>,
    /// Control-plane nodes; null when not known.
    #[serde(rename = "MasterNodeIDs")]
    pub master_node_ids: Option<Vec<GoUuid>>,
    /// Address of a witness, which votes on the machine of `JoinServerIP`.
    #[serde(rename = "WitnessIP")]
    pub witness_ip: GoIp,
    /// Why zedagent has refused a witness.
    pub witness_config_error: String,
    /// Raised when the server of `JoinServerIP` is to continue alone, by a forced reset of etcd.
    pub quorum_recovery_generation: u32,
    /// Why zedagent has refused to raise it.
    pub quorum_recovery_error: String,
}

impl EdgeNodeClusterConfig {
    /// Whether the node belongs to a cluster; `None` while undecided.
    pub fn member(&self) -> Option<bool> {
        self.initialized.then_some(self.valid)
    }
}

topic!(EdgeNodeClusterConfig: Volatile);

/// The cluster as this node sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct EdgeNodeClusterStatus {
    /// Its name.
    pub cluster_name: String,
    /// Its identity.
    #[serde(rename = "ClusterID")]
    pub cluster_id: UuidAndVersion,
    /// Interface in use; empty while not known.
    pub cluster_interface: String,
    /// This node's address in it.
    #[serde(rename = "ClusterIPPrefix")]
    pub cluster_ip_prefix: Option<IpNet>,
    /// Whether that address is up.
    #[serde(rename = "ClusterIPIsReady")]
    pub cluster_ip_is_ready: bool,
    /// Whether the node is no server.
    pub is_worker_node: bool,
    /// Server to join.
    #[serde(rename = "JoinServerIP")]
    pub join_server_ip: GoIp,
    /// Whether this node is that server.
    pub bootstrap_node: bool,
    /// Token, decrypted in spite of its name: a secret.
    pub encrypted_cluster_token: Secret,
    /// Interfaces with load-balanced addresses.
    #[serde(rename = "LBInterfaces")]
    pub lb_interfaces: Option<Vec<LbInterface>>,
    /// Their addresses.
    #[serde(rename = "LBIPPrefixes")]
    pub lb_ip_prefixes: Option<Vec<String>>,
    /// What is wrong with them.
    #[serde(rename = "LBConfigError")]
    pub lb_config_error: ErrorDescription,
    /// Address of a witness, which votes on the machine of `JoinServerIP`.
    #[serde(rename = "WitnessIP")]
    pub witness_ip: GoIp,
    /// Why zedagent has refused a witness.
    pub witness_config_error: ErrorDescription,
    /// As in the config.
    pub quorum_recovery_generation: u32,
    /// Why zedagent has refused to raise it.
    pub quorum_recovery_error: ErrorDescription,
    /// What is wrong with the token.
    pub error: ErrorDescription,
}

impl Topic for EdgeNodeClusterStatus {
    const NAME: &'static str = "EdgeNodeClusterStatus";
    const KIND: Kind = Kind::Volatile;

    fn cut(&mut self, most: Most) {
        let errors = [
            &mut self.lb_config_error,
            &mut self.witness_config_error,
            &mut self.quorum_recovery_error,
            &mut self.error,
        ];
        for it in errors {
            most.text(&mut it.error);
        }
    }
}

/// Names of this node at the controller.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct EdgeNodeInfo {
    /// Its name; the Kubernetes node has it in lower case with `_` as `-`.
    pub device_name: String,
    /// Its identity.
    #[serde(rename = "DeviceID")]
    pub device_id: GoUuid,
    /// Its project.
    pub project_name: String,
    /// Identity of the project.
    #[serde(rename = "ProjectID")]
    pub project_id: GoUuid,
    /// Its owner.
    pub enterprise_name: String,
    /// Identity of the owner.
    #[serde(rename = "EnterpriseID")]
    pub enterprise_id: String,
}

impl EdgeNodeInfo {
    /// Name of the Kubernetes node, as the reference makes it; unchecked.
    pub fn kube_name(&self) -> String {
        self.device_name.to_lowercase().replace('_', "-")
    }
}

topic!(EdgeNodeInfo: Volatile);
