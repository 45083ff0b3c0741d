//! Arguments of `zedkube pubKubeClusterUpdateStatus`, for scripts of the kube container.

use std::path::PathBuf;

use clap::Args as Group;

/// What the kube container reports. All words are texts, also those that begin with a dash.
#[derive(Debug, Clone, Group)]
pub(crate) struct UpdateStatus {
    /// Directory that holds `persist`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Device, component, status, version and error, which may be empty.
    #[arg(value_name = "WORD", num_args = 5, required = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}
