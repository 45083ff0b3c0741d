//! Services and ingresses that users have made in the cluster, for the firewall of the device.
//!
//! Source: lf-edge/eve pkg/pillar/types/kubeservicetypes.go. Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ErrorDescription, ErrorSeverity, Kind, Most, Topic};

/// What nim opens for users of the cluster; what is not in it is closed at the uplinks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeUserServices {
    /// Ports of services.
    pub user_service: Option<Vec<KubeServiceInfo>>,
    /// Paths of ingresses.
    pub user_ingress: Option<Vec<KubeIngressInfo>>,
    /// The load balancer's addresses, where there is one.
    #[serde(rename = "LBPoolStatus")]
    pub lb_pool_status: Option<KubeLbPoolStatus>,
    /// What a person must know about these services.
    pub service_error: ErrorDescription,
}

impl Topic for KubeUserServices {
    const NAME: &'static str = "KubeUserServices";
    const KIND: Kind = Kind::Volatile;

    fn cut(&mut self, most: Most) {
        let services = self.user_service.as_mut().map_or(0, |it| most.list(it));
        let paths = self.user_ingress.as_mut().map_or(0, |it| most.list(it));
        if let Some(pool) = &mut self.lb_pool_status {
            if let Some(addresses) = &mut pool.allocated_ips {
                most.texts(addresses);
            }
            most.text(&mut pool.error.error);
        }
        self.service_error.error = format!(
            "too many for one message; left out, and closed: ports of services {services}, paths of ingresses {paths}"
        );
        self.service_error.error_severity = ErrorSeverity::Error;
    }
}

/// A port of a service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeServiceInfo {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Port of the service.
    pub port: i32,
    /// Port on the nodes, or 0.
    pub node_port: i32,
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    pub r#type: String,
    /// The load balancer's address for it, or empty.
    #[serde(rename = "LoadBalancerIP")]
    pub load_balancer_ip: String,
    /// Whether the API of the cluster is to be reached through it, at port 6443 of every interface.
    #[serde(rename = "ACEenabled")]
    pub ace_enabled: bool,
}

/// A path of an ingress.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeIngressInfo {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Host that it serves, or empty for all.
    pub hostname: String,
    /// Path that it serves.
    pub path: String,
    /// `Prefix`, `Exact` or `ImplementationSpecific`.
    pub path_type: String,
    /// `http` or `https`.
    pub protocol: String,
    /// Service behind it.
    pub service: String,
    /// Port of that service; 0 where it is named.
    pub service_port: i32,
    /// Type of that service.
    pub service_type: String,
    /// Addresses of this node that serve it, and host names.
    #[serde(rename = "IngressIP")]
    pub ingress_ip: Option<Vec<String>>,
}

/// The load balancer's addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeLbPoolStatus {
    /// Interface that serves them.
    pub interface: String,
    /// All of them, as `a.b.c.d/n`.
    #[serde(rename = "IPPrefix")]
    pub ip_prefix: String,
    /// Those that services have.
    #[serde(rename = "AllocatedIPs")]
    pub allocated_ips: Option<Vec<String>>,
    /// What is wrong with the config of this node.
    pub error: ErrorDescription,
}

/// The console of one virtual machine, for the proxy in the kube container: the file `vmiVNC.run`, which zedkube and
/// edgeview write.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct VmiVnc {
    /// Name of the machine.
    #[serde(rename = "VMIName", default)]
    pub vmi_name: String,
    /// TCP port that the proxy listens at.
    #[serde(rename = "VNCPort", default)]
    pub vnc_port: u32,
    /// Its application.
    #[serde(rename = "AppUUID", default, skip_serializing_if = "String::is_empty")]
    pub app_uuid: String,
    /// Process of edgeview that wants it; 0 where zedkube does.
    #[serde(rename = "CallerPID", default, skip_serializing_if = "is_zero")]
    pub caller_pid: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}
