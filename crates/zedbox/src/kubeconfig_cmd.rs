//! `zedbox kubeconfig`: a kubeconfig for the agents from a service account.
//!
//! Not here: its content (`kubeapi::connect::account`), and the account's rights (`zedbox role`). The token
//! goes only into the named file.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use kubeapi::connect::ClusterEndpoint;
use kubeapi::connect::account::{self, ServiceAccountToken};
use kubeapi::{ApiClient, Error};
use pubsub::store;

use crate::args::KubeconfigCommand;
use crate::drain_cmd::voice::Voice;

/// Kubeconfigs of administrators, the cluster software's own first.
const ADMINS: [&str; 3] =
    ["/run/.kube/k3s/k3s.yaml", "/etc/rancher/k3s/k3s.yaml", "/etc/rancher/rke2/rke2.yaml"];
const STANDARD_OUTPUT: &str = "-";
const SECS_A_DAY: u64 = 24 * 60 * 60;
const NO_RIGHT: u16 = 403;
const NO_ACCOUNT: u16 = 404;

pub(crate) async fn make(command: &KubeconfigCommand) -> anyhow::Result<()> {
    let (mut place, token) = match (&command.token_file, &command.ca, &command.server) {
        (Some(file), Some(ca), Some(server)) => {
            let token = account::token_of(file).map_err(anyhow::Error::msg).context("read the token")?;
            let place = ClusterEndpoint::new(server.clone(), ca).map_err(anyhow::Error::msg);
            (place.context("read the authorities of the cluster")?, token)
        }
        _ => by_admin(command).await?,
    };
    if let Some(server) = &command.server {
        place.server.clone_from(server);
    }
    let address = place.server.strip_prefix("https://");
    if address.is_none_or(|it| it.trim_matches('/').is_empty()) {
        bail!("use the server {}: an address as https://10.0.0.1:6443 is needed (--server)", place.server);
    }
    let user = command.service_account.user();
    let text = account::kubeconfig(&place, &user, &token);
    kubeapi::trial::kubeconfig(text.as_bytes()).map_err(anyhow::Error::msg).context("read what was made")?;
    if command.to == Path::new(STANDARD_OUTPUT) {
        Voice::print(&text)?;
        return Ok(());
    }
    let to = command.to.display();
    store::replace(&command.to, text.as_bytes()).with_context(|| format!("write {to}"))?;
    let until = token.expires.map_or_else(String::new, |it| {
        let it = it.parse().map_or(it, topics::GoTime::shown);
        format!(", until {it}; this command makes another one in its place, also while the agents run")
    });
    Voice::print(&format!("{to}: {user} at {}{until}\n", place.server))?;
    if ["//127.", "//localhost", "//[::1]"].iter().any(|it| place.server.contains(it)) {
        let (server, port) = (&place.server, place.server.rsplit(':').next().unwrap_or_default());
        let warning =
            format!("{server} is this machine alone; for other nodes: --server https://ADDRESS:{port}");
        Voice::warn_of("kubeconfig", &warning);
    }
    Ok(())
}

/// An administrator's cluster, and a token of the account from it.
async fn by_admin(command: &KubeconfigCommand) -> anyhow::Result<(ClusterEndpoint, ServiceAccountToken)> {
    let of_server = || ADMINS.iter().map(PathBuf::from).find(|it| it.exists());
    let admin = command.kubeconfig.clone().or_else(of_server).ok_or_else(|| {
        anyhow!("find the kubeconfig of an administrator: name it with --kubeconfig, or use --token-file with --server and --ca")
    })?;
    let cluster = ApiClient::from_kubeconfig(admin);
    let advise = |error: Error| {
        let account = &command.service_account;
        let code = if let Error::Refused { answer, .. } = &error { answer.code } else { 0 };
        let next = match code {
            NO_ACCOUNT => format!(
                "make the account: `zedbox role --service-account {}/{} | kubectl apply -f -`",
                account.namespace, account.name
            ),
            NO_RIGHT => "use a kubeconfig that may create serviceaccounts/token".to_owned(),
            _ => error.next_step(),
        };
        anyhow!("{}; {next}", error.line())
    };
    let token = account::token(&cluster, &command.service_account, command.days * SECS_A_DAY);
    let token = token.await.map_err(advise)?;
    let place = cluster.place().map_err(advise)?.context("find the address of the cluster")?;
    Ok((place, token))
}
