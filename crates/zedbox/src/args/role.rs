//! Arguments of `zedbox role`.

use clap::Args as Group;
use clap::builder::PossibleValuesParser;
use kubeapi::connect::account::Account;

use crate::manifests::{SURGE, parts};

/// Default service account of the agents.
pub(super) const ACCOUNT: &str = "kube-system/pillar-rs";

/// Print the roles that the agents need, and bind them to a user, as `zedbox role | kubectl apply -f -`.
#[derive(Debug, Clone, Group)]
#[command(
    after_help = "Nothing is asked of a cluster. Some bindings are in the namespace eve-kube-app: where the cluster has \
    none yet, add --create-namespace. `zedbox kubeconfig` makes the kubeconfig of the service account."
)]
pub(crate) struct RoleCommand {
    /// User of the kubeconfig that the agents get; of a client certificate its common name.
    #[arg(long, value_name = "NAME", conflicts_with = "service_account", value_parser = user)]
    pub(crate) user: Option<String>,
    /// Service account in place of a user; it is printed too.
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = ACCOUNT)]
    pub(crate) service_account: Account,
    /// Part to leave out, by the name of its role without `pillar-rs-`; may be repeated. The agents do without what it is
    /// for, and their log names what was refused.
    #[arg(long, value_name = "PART", value_parser = PossibleValuesParser::new(parts()))]
    pub(crate) without: Vec<String>,
    /// Also the role for second copies of Deployments: whoever may patch Deployments can have any pod made.
    #[arg(long, value_name = "PART", value_parser = [SURGE])]
    pub(crate) with: Vec<String>,
    /// Also the namespace eve-kube-app. Not where something else has applied it with labels: they would be removed.
    #[arg(long)]
    pub(crate) create_namespace: bool,
}

fn user(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty() && !text.contains(char::is_control);
    is_name.then(|| text.to_owned()).ok_or_else(|| "a user has a name in one line".to_owned())
}
