//! What every command that works on the cluster's own record takes: directory, kubeconfig, form of the output.

use std::path::PathBuf;

use clap::Args as Group;
use kubeapi::ApiClient;

use super::{Output, kubeconfig_of};

/// Whoever works on the cluster's own record.
#[derive(Debug, Clone, Group)]
#[command(after_help = "Exit codes:\n  \
    0    done\n  \
    1    it could not be done; standard error says why and what to do\n  \
    2    invalid arguments\n\
    With -o json standard output holds JSON and nothing else; errors are text on standard error.")]
pub(crate) struct OverCluster {
    /// Directory that holds `run` and `persist`.
    #[arg(long, value_name = "DIR", default_value = "/", global = true)]
    pub(crate) root: PathBuf,
    /// Cluster to work on [default: <root>/run/.kube/k3s/k3s.yaml].
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", global = true)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// For people or for programs.
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t, global = true)]
    pub(crate) output: Output,
}

impl OverCluster {
    /// The cluster: the flag, the variable, or the cluster software's own place.
    pub(crate) fn cluster(&self) -> ApiClient {
        ApiClient::from_kubeconfig(kubeconfig_of(self.kubeconfig.as_deref(), &self.root))
    }
}
