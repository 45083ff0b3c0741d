//! Arguments of `zedbox drain plan` and `zedbox drain pass`.

use std::path::PathBuf;

use clap::Args as Group;

/// What a person has the preflight pass.
#[derive(Debug, Clone, Group)]
pub(crate) struct PassOptions {
    /// Codes of findings, as `backups`; they take the place of those that were passed before.
    #[arg(value_name = "CODE", value_parser = checks::DRAIN_CODES, required_unless_present = "remove")]
    pub(crate) codes: Vec<String>,
    /// Why, in at most 200 bytes; history and log show it with your name.
    #[arg(long, value_name = "TEXT", required_unless_present = "remove")]
    pub(crate) reason: Option<String>,
    /// Have nothing pass any more.
    #[arg(long, conflicts_with_all = ["codes", "reason"])]
    pub(crate) remove: bool,
}

/// Whose drain is predicted.
#[derive(Debug, Clone, Group)]
pub(crate) struct PlanOptions {
    /// Node object to plan for [default: this device's, by its name].
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Cluster to read from [default: that of the settings file, else
    /// <root>/run/.kube/k3s/k3s.yaml].
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The limits file of the agents: its machines_policy and surge count [default: their defaults].
    #[arg(long, value_name = "FILE")]
    pub(crate) limits: Option<PathBuf>,
}
