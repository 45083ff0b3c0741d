//! Arguments of the commands on a cluster: directory, kubeconfig, output format; `bundle`, `lock`, `machines`, `role`,
//! `kubeconfig`, `verify`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::builder::PossibleValuesParser;
use clap::{Args as Group, Subcommand};
use kubeapi::connect::credential::Account;
use outage::failover::rule::FailoverRule;

use super::time::span;
use super::{NodePlace, settings};
use crate::manifests::{SURGE, parts};

/// The cluster software's kubeconfig, below the root.
const KUBECONFIG: &str = "run/.kube/k3s/k3s.yaml";

/// Whoever works on the cluster's own record.
#[derive(Debug, Clone, Group)]
#[command(after_help = "Exit codes:\n  \
    0    done\n  \
    1    it could not be done; standard error says why and what to do\n  \
    2    invalid arguments\n\
    With -o json standard output holds JSON and nothing else; errors are text on standard error.")]
pub(crate) struct OverCluster {
    #[command(flatten)]
    pub(crate) at: NodePlace,
    /// Cluster to work on [default: that of the settings file, else
    /// <root>/run/.kube/k3s/k3s.yaml].
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", global = true)]
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// The kubeconfig of agents and commands: the one `named` by an argument or `KUBECONFIG`, that of the
/// settings file below `root`, or the cluster software's own. It may not exist.
///
/// Errors: the settings file is invalid, as for agents; or several files are named.
pub(crate) fn kubeconfig_of(named: Option<&Path>, root: &Path) -> anyhow::Result<PathBuf> {
    let Some(named) = named else {
        let set = settings::values(root)
            .context("find the cluster, or name it with --kubeconfig FILE")?
            .into_iter();
        let mut named = set.filter(|(name, _)| name == "kubeconfig");
        return Ok(named.next().map_or_else(|| root.join(KUBECONFIG), |(_, file)| file.into()));
    };
    let list = named.to_string_lossy();
    let files: Vec<&str> = list.split(':').filter(|it| !it.is_empty()).collect();
    match files[..] {
        [one] => Ok(one.into()),
        [first, ..] if !named.exists() => bail!(
            "{list} names {} kubeconfigs, and one file is taken: name that of this cluster, --kubeconfig {first}",
            files.len()
        ),
        _ => Ok(named.to_owned()),
    }
}

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

/// The turns of the cluster's nodes to be down, from any machine with a kubeconfig.
#[derive(Debug, Clone, Group)]
#[command(arg_required_else_help = true)]
pub(crate) struct LockCommand {
    #[command(flatten)]
    pub(crate) place: OverCluster,
    /// What to do.
    #[command(subcommand)]
    pub(crate) action: LockAction,
}

/// What can be done about turns.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum LockAction {
    /// Show who holds a turn, who waits and why, who counts as down, and what to type. Nothing is written.
    Status {
        /// Node to explain [default: the first of the queue].
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
    },
    /// Take the turn from a node that will not continue. It stops and starts over when it looks next.
    Release {
        /// The node that holds the turn.
        #[arg(value_name = "NODE")]
        node: String,
        /// Number of its turn, as `status` shows it; another one is refused.
        #[arg(long, value_name = "F")]
        fence: u32,
        /// Why, in at most 200 bytes; it is kept with your name.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Say that a node is away for long and does not count as down. Refused for a member of etcd.
    Ignore {
        /// The node.
        #[arg(value_name = "NODE")]
        node: String,
        /// Why, in at most 200 bytes; it is kept with your name.
        #[arg(long, value_name = "TEXT", required_unless_present = "undo", conflicts_with = "undo")]
        reason: Option<String>,
        /// The node counts again.
        #[arg(long)]
        undo: bool,
    },
    /// Set how many nodes may be down at once; of the control plane it is always one.
    Limit {
        /// A number from 1.
        #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
}

/// Nodes that die, from any machine with a kubeconfig that reaches the agents of the nodes.
#[derive(Debug, Clone, Group)]
#[command(arg_required_else_help = true)]
pub(crate) struct FailoverCommand {
    #[command(flatten)]
    pub(crate) place: OverCluster,
    /// What to do.
    #[command(subcommand)]
    pub(crate) action: FailoverAction,
}

/// What can be done about them.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum FailoverAction {
    /// Show of each node what of its work would run elsewhere if it died. Nothing is written.
    Check,
    /// Show nodes that were declared dead, and where their work runs by now. Nothing is written.
    Status,
    /// Say that a node is off: Kubernetes then starts its work elsewhere. Refused while it shows life.
    Declare(DeclareOptions),
}

/// A person's word that a node is off.
#[derive(Debug, Clone, Group)]
pub(crate) struct DeclareOptions {
    /// The node.
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// You have switched it off yourself, or see that it is off.
    #[arg(long, required = true)]
    powered_off: bool,
    /// Why, in at most 200 bytes; it is kept with your name.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Although other nodes are away too.
    #[arg(long)]
    although_others_away: bool,
    /// Although volumes have no good copy elsewhere: what Longhorn has of them there may be old.
    #[arg(long)]
    although_lone_copies: bool,
    /// Although other software acts on silent nodes without knowing that they are off.
    #[arg(long)]
    although_others_act: bool,
    /// Do not ask for the node's name.
    #[arg(long)]
    pub(crate) yes: bool,
}

impl DeclareOptions {
    /// The words by which rules are passed.
    pub(crate) fn although(&self) -> Vec<&'static str> {
        let rules = [
            (self.although_others_away, FailoverRule::Others),
            (self.although_lone_copies, FailoverRule::Copies),
            (self.although_others_act, FailoverRule::Actors),
        ];
        rules.iter().filter(|it| it.0).filter_map(|it| it.1.pass()).collect()
    }
}

/// Virtual machines that drains have stopped, from any machine with a kubeconfig.
#[derive(Debug, Clone, Group)]
#[command(arg_required_else_help = true)]
pub(crate) struct MachinesCommand {
    #[command(flatten)]
    pub(crate) place: OverCluster,
    /// What to do.
    #[command(subcommand)]
    pub(crate) action: MachinesAction,
}

/// What can be done about them.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum MachinesAction {
    /// Show which are stopped, and by the drain of which node. Nothing is written.
    List,
    /// Start them again now. One that somebody has changed since stays as it is.
    Restore {
        /// Only those of this node's drains [default: all].
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
    },
}

/// Default service account of the agents.
const ACCOUNT: &str = "kube-system/pillar-rs";

/// Print the roles that the agents need, and bind them to a user, as `zedbox role | kubectl apply -f -`.
#[derive(Debug, Clone, Default, Group)]
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

/// Make a kubeconfig for the agents out of a service account: for each node the same, once for a cluster.
///
/// Its token is asked for with the kubeconfig of an administrator, on a server of the cluster or on any workstation, or
/// read from a file. The account is one of `zedbox role | kubectl apply -f -`.
#[derive(Debug, Clone, Default, Group)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t11_the_kubeconfig_is_the_one_of_the_words_else_of_the_settings_file_else_the_cluster_softwares() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let of = |named: Option<&str>| kubeconfig_of(named.map(Path::new), root);
        assert_eq!(of(None).unwrap(), root.join("run/.kube/k3s/k3s.yaml"));
        let set = |text: &str| {
            pubsub::store::replace(&root.join("etc/zedbox/zedbox.toml"), text.as_bytes()).unwrap();
        };
        set("device = \"systemd\"");
        assert_eq!(of(None).unwrap(), root.join("run/.kube/k3s/k3s.yaml"));
        set("kubeconfig = \"/etc/zedbox/kubeconfig\"");
        assert_eq!(of(None).unwrap(), Path::new("/etc/zedbox/kubeconfig"));
        assert_eq!(of(Some("/k")).unwrap(), Path::new("/k"));
        assert_eq!(of(Some("/k:")).unwrap(), Path::new("/k"));
        let refused = of(Some("/a:/b")).unwrap_err().to_string();
        assert!(
            refused.contains("/a:/b names 2 kubeconfigs") && refused.contains("--kubeconfig /a"),
            "{refused}"
        );
        // An invalid settings file is an error, as for agents.
        set("\nkubeconfig = 5");
        let refused = format!("{:#}", of(None).unwrap_err());
        assert!(
            refused.contains("zedbox.toml, line 2: expected") && refused.contains("zedbox check"),
            "{refused}"
        );
        assert_eq!(of(Some("/k")).unwrap(), Path::new("/k"));
    }
}
