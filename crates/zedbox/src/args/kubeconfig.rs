//! Arguments of `zedbox kubeconfig`.

use std::path::PathBuf;

use clap::Args as Group;
use kubeapi::connect::account::Account;

use super::role::ACCOUNT;

/// Make a kubeconfig for the agents out of a service account: for each node the same, once for a cluster.
///
/// Its token is asked for with the kubeconfig of an administrator, on a server of the cluster or on any workstation, or
/// read from a file. The account is one of `zedbox role | kubectl apply -f -`.
#[derive(Debug, Clone, Group)]
#[command(
    arg_required_else_help = true,
    after_help = "Exit codes: 0 written, 1 it could not be done (standard error says why and what to do), 2 invalid \
    arguments."
)]
pub(crate) struct KubeconfigCommand {
    /// File to write, for its owner alone (mode 0600); one that is there is replaced. `-` prints it, with the token.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
    /// Service account of the agents.
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = ACCOUNT)]
    pub(crate) service_account: Account,
    /// Kubeconfig of an administrator [default: that of k3s or rke2 on a server].
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Address of the API server, as https://10.0.0.1:6443 [default: that of the administrator's kubeconfig].
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// How long the token is to last; the server may grant less.
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u64).range(1..=3650))]
    pub(crate) days: u64,
    /// File with a token, in place of asking for one.
    #[arg(long, value_name = "FILE", requires_all = ["server", "ca"])]
    pub(crate) token_file: Option<PathBuf>,
    /// File with the certificates of the cluster's authorities, with --token-file.
    #[arg(long, value_name = "FILE", requires = "token_file")]
    pub(crate) ca: Option<PathBuf>,
}
