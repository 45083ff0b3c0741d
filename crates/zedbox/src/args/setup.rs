//! Arguments of `zedbox setup`.

use std::path::PathBuf;

use agent::device::DeviceChoice;
use clap::Args as Group;

/// Set this machine up as a node: the device config, the settings file, and with --admin the roles and the kubeconfig. On a
/// terminal it asks for what is not named. Done again it changes nothing.
#[derive(Debug, Clone, Group)]
#[command(
    after_help = "Nothing is started. What is there and says otherwise stays, unless --replace is given.\n\
    Exit codes: 0 set up, 1 something is open or failed (said with what to type), 2 invalid arguments."
)]
pub(crate) struct SetupCommand {
    /// Directory that holds `etc`, `run` and `persist`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// The cluster, the same on each of its nodes; `uuidgen` makes one.
    #[arg(long, value_name = "UUID")]
    pub(crate) cluster_id: Option<String>,
    /// Address of this node in the cluster with the length of its network, as 10.244.244.2/28.
    #[arg(long, value_name = "ADDRESS/LENGTH")]
    pub(crate) address: Option<String>,
    /// How a reboot takes this machine down: systemd, exec:/path/to/program, or record (it is only written down).
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<DeviceChoice>,
    /// Address of the cluster's first server [default: that of this node].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) join_server: Option<String>,
    /// This node is no server of the cluster.
    #[arg(long)]
    pub(crate) worker: bool,
    /// Name of the Node [default: that of this machine].
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Kubeconfig of the agents [default: <root>/etc/zedbox/kubeconfig].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Kubeconfig of an administrator: `kubectl` applies the roles with it, and a missing kubeconfig of the agents is made.
    #[arg(long, value_name = "FILE")]
    pub(crate) admin: Option<PathBuf>,
    /// Address of the API server in that kubeconfig, as https://10.0.0.1:6443 [default: that of the administrator's].
    #[arg(long, value_name = "URL", requires = "admin")]
    pub(crate) server: Option<String>,
    /// Replace what is there and says otherwise.
    #[arg(long)]
    pub(crate) replace: bool,
}

impl SetupCommand {
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone().unwrap_or_else(|| self.root.join("etc/zedbox/kubeconfig"))
    }
}
