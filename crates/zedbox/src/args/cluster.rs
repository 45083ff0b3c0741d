//! Arguments of every command on the cluster: directory, kubeconfig, output format.

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args as Group;
use kubeapi::ApiClient;

use super::{Output, settings};

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
    /// Directory that holds `run` and `persist`.
    #[arg(long, value_name = "DIR", default_value = "/", global = true)]
    pub(crate) root: PathBuf,
    /// Cluster to work on [default: that of the settings file, else
    /// <root>/run/.kube/k3s/k3s.yaml].
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", global = true)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// For people or for programs.
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t, global = true)]
    pub(crate) output: Output,
}

impl OverCluster {
    /// Errors: as [`kubeconfig_of`].
    pub(crate) fn cluster(&self) -> anyhow::Result<ApiClient> {
        Ok(ApiClient::from_kubeconfig(kubeconfig_of(self.kubeconfig.as_deref(), &self.root)?))
    }
}

/// The kubeconfig of agents and commands: the one `named` by an argument or `KUBECONFIG`, that of the
/// settings file below `root`, or the cluster software's own. It may not exist.
///
/// Errors: the settings file is invalid, as for agents; or several files are named.
pub(crate) fn kubeconfig_of(named: Option<&Path>, root: &Path) -> anyhow::Result<PathBuf> {
    let Some(named) = named else {
        return Ok(settings::kubeconfig(root)?.unwrap_or_else(|| root.join(KUBECONFIG)));
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
        let refused = of(None).unwrap_err().to_string();
        assert!(
            refused.contains("zedbox.toml, line 2: expected") && refused.contains("zedbox check"),
            "{refused}"
        );
        assert_eq!(of(Some("/k")).unwrap(), Path::new("/k"));
    }
}
