//! Arguments of `zedbox bundle`.

use std::path::PathBuf;

use clap::Args as Group;

use super::OverCluster;

/// One archive for whoever helps from afar: what the agents publish and keep, what the commands say, the log, and the state
/// of the cluster, without secrets.
#[derive(Debug, Clone, Group)]
pub(crate) struct BundleCommand {
    #[command(flatten)]
    pub(crate) place: OverCluster,
    /// The archive [default: zedbox-bundle-<time>.tar.gz here].
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
}
