//! Arguments of what scripts call: `zedbox join`, and `zedkube pubKubeClusterUpdateStatus`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as Group;

use super::time::span;

/// The way of this node into its cluster, for scripts of an image: wait until a server says at `/status` that it is one of
/// this node's cluster, and print what it says.
///
/// A server that does not answer, or says otherwise, is asked again: after 1 s first, every 8 s at last. What holds it up is
/// one line on standard error each time that it changes.
#[derive(Debug, Clone, Group)]
#[command(
    arg_required_else_help = true,
    after_help = "Exit codes:\n  \
    0    the server is one of this node's cluster, and says so\n  \
    1    it could not be done; standard error says why and what to do\n  \
    2    invalid arguments\n  \
    3    not within --limit\n  \
    4    not within --limit, and the server is one of another cluster"
)]
pub(crate) struct JoinCommand {
    /// Directory that holds `run` and `persist`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// What to do.
    #[arg(required = true, value_parser = ["wait"])]
    pub(crate) action: String,
    /// Server to ask: a name or an address, `10.244.0.1` or `[fd00::1]`, with `:PORT` where that is not 12346.
    #[arg(long, value_name = "ADDRESS", value_parser = server)]
    pub(crate) server: String,
    /// Cluster that it must be of [default: that of EdgeNodeClusterConfig, read again each time].
    #[arg(long, value_name = "UUID")]
    pub(crate) cluster: Option<uuid::Uuid>,
    /// Time after which to give up, as 90s, 5m or 2h [default: never].
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(crate) limit: Option<Duration>,
}

const PORT: u16 = 12346;

fn server(text: &str) -> Result<String, String> {
    let wrong =
        || format!("`{text}` is no address; use a name, 10.244.0.1, [fd00::1] or one of these with :PORT");
    let is_host = |host: &str| {
        let name =
            !host.is_empty() && host.bytes().all(|it| it.is_ascii_alphanumeric() || b".-".contains(&it));
        let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        name || inner.is_some_and(|it| it.parse::<std::net::Ipv6Addr>().is_ok())
    };
    match text.rsplit_once(':') {
        _ if is_host(text) => Ok(format!("{text}:{PORT}")),
        Some((host, port)) if is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0) => {
            Ok(text.to_owned())
        }
        _ => Err(wrong()),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_name_or_an_address_with_or_without_a_port() {
        let rows = [
            ("10.244.0.1", Some("10.244.0.1:12346")),
            ("10.244.0.1:80", Some("10.244.0.1:80")),
            ("node-1.site", Some("node-1.site:12346")),
            ("[fd00::1]", Some("[fd00::1]:12346")),
            ("[fd00::1]:80", Some("[fd00::1]:80")),
            ("fd00::1", None),
            ("http://10.244.0.1", None),
            ("10.244.0.1:0", None),
            ("10.244.0.1:99999", None),
            ("a/../b", None),
            ("", None),
        ];
        for (text, expected) in rows {
            assert_eq!(server(text).ok().as_deref(), expected, "{text}");
        }
    }
}
