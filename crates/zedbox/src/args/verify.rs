//! Arguments of `zedbox verify`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as Group;

use super::OverCluster;
use super::time::span;

/// Whether the cluster is well again, layer by layer: on a node, or from any machine with a kubeconfig.
#[derive(Debug, Clone, Group)]
#[command(after_help = "Exit codes:\n  \
    0    every layer that is here passed\n  \
    1    a layer fails, or the report cannot be made; standard error says why\n  \
    2    invalid arguments, or a probes file that makes no sense\n  \
    3    no layer fails, but one could not be looked at\n  \
    4    no layer fails, but one has a warning\n\
    With -o json standard output holds JSON and nothing else (schemas/commands/verify.schema.json).")]
pub(crate) struct VerifyCommand {
    #[command(flatten)]
    pub(crate) place: OverCluster,
    /// Ingresses, load balancers and services to try [default: <root>/etc/zedbox/probes.toml, where there is one].
    #[arg(long, value_name = "FILE")]
    pub(crate) probes: Option<PathBuf>,
    /// Look again every 5 s until nothing fails and everything could be looked at, twice in a row.
    #[arg(long)]
    pub(crate) wait: bool,
    /// On a node, first: remove its stale taints and the pods that its former boot has left, as its agents do.
    #[arg(long)]
    pub(crate) fix: bool,
    /// Time after which to wait, or to repair, no longer, as 90s, 5m or 2h.
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "15m")]
    pub(crate) timeout: Duration,
}
