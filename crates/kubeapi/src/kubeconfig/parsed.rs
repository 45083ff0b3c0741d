//! The cluster and the user of a kubeconfig's current context.
//!
//! Not here: reading files. Source: the page "Organizing Cluster Access Using kubeconfig Files" of
//! Kubernetes. Refused by name: login programs, cloud logins, proxies, impersonation, and unverified server
//! certificates. Pure: no clock, no I/O, no task.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

use super::yaml;
use crate::objects;

/// Members as in the file; others are ignored.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct KubeconfigDocument {
    current_context: Option<String>,
    clusters: Vec<NamedEntry<ClusterEntry>>,
    contexts: Vec<NamedEntry<Context>>,
    users: Vec<NamedEntry<UserEntry>>,
}

#[derive(Deserialize)]
struct NamedEntry<T> {
    name: String,
    #[serde(alias = "cluster", alias = "context", alias = "user")]
    entry: Option<T>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct ClusterEntry {
    server: Option<String>,
    tls_server_name: Option<String>,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    insecure_skip_tls_verify: bool,
    proxy_url: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct UserEntry {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    username: Option<String>,
    password: Option<String>,
    exec: Option<Value>,
    auth_provider: Option<Value>,
    #[serde(rename = "as")]
    acting_as: Option<Value>,
}

/// Inline bytes, or a file with them.
pub(super) enum InlineOrFile {
    Here(Vec<u8>),
    File(PathBuf),
}

impl InlineOrFile {
    pub(super) fn bytes(
        self,
        read: &mut dyn FnMut(&Path) -> Result<Vec<u8>, String>,
    ) -> Result<Vec<u8>, String> {
        match self {
            Self::Here(bytes) => Ok(bytes),
            Self::File(path) => read(&path),
        }
    }
}

pub(super) enum HeaderCredential {
    Token(InlineOrFile),
    Password { user: String, password: String },
}

/// The current context, before its files are read.
pub(super) struct Parsed {
    pub(super) server: String,
    pub(super) server_name: Option<String>,
    pub(super) authorities: Option<InlineOrFile>,
    pub(super) identity: Option<(InlineOrFile, InlineOrFile)>,
    pub(super) proof: Option<HeaderCredential>,
}

/// Relative paths begin at `dir`. The error never quotes the text, which may hold secrets.
pub(super) fn parse(text: &[u8], dir: &Path) -> Result<Parsed, String> {
    let no_kubeconfig = "it is not the YAML of a kubeconfig";
    let text = std::str::from_utf8(text).map_err(|_quotes| no_kubeconfig.to_owned())?;
    let value = yaml::read(text)
        .map_err(|at| format!("{no_kubeconfig} at line {}, column {}", at.line, at.column))?;
    let file: Option<KubeconfigDocument> =
        objects::typed(&value).map_err(|_quotes| no_kubeconfig.to_owned())?;
    let file = file.unwrap_or_default();
    let current = file.current_context.filter(|it| !it.is_empty()).ok_or("it has no current context")?;
    let context = pick("context", file.contexts, &current)?;
    let place = pick("cluster", file.clusters, &context.cluster)?;
    let login =
        if context.user.is_empty() { UserEntry::default() } else { pick("user", file.users, &context.user)? };
    for (named, what) in [
        (login.exec.is_some(), "exec"),
        (login.auth_provider.is_some(), "auth-provider"),
        (login.acting_as.is_some(), "as"),
        (place.proxy_url.is_some_and(|url| !url.is_empty()), "proxy-url"),
        (place.insecure_skip_tls_verify, "insecure-skip-tls-verify"),
    ] {
        if named {
            return Err(format!("it says {what}, which is not supported: use certificates or a token"));
        }
    }
    let at = |path: PathBuf| InlineOrFile::File(dir.join(path));
    let source = |what: &str, data: Option<String>, path: Option<PathBuf>| match data {
        Some(data) if !data.is_empty() => {
            // A YAML block has line ends.
            let data: String = data.split_ascii_whitespace().collect();
            let bytes = STANDARD.decode(data).map_err(|why| format!("{what}-data is no base64: {why}"))?;
            Ok::<_, String>(Some(InlineOrFile::Here(bytes)))
        }
        _ => Ok(path.filter(|it| !it.as_os_str().is_empty()).map(at)),
    };
    let authorities =
        source("certificate-authority", place.certificate_authority_data, place.certificate_authority)?;
    let certificate = source("client-certificate", login.client_certificate_data, login.client_certificate)?;
    let identity = match (certificate, source("client-key", login.client_key_data, login.client_key)?) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (Some(_), None) => return Err("it has a client-certificate without client-key".to_owned()),
        (None, Some(_)) => return Err("it has a client-key without client-certificate".to_owned()),
    };
    // A token file has precedence over a token, as for kubectl: the inline text is its last content.
    let token = login.token_file.filter(|it| !it.as_os_str().is_empty()).map(at);
    let token = token.or_else(|| login.token.map(|token| InlineOrFile::Here(token.into_bytes())));
    let proof = match (token, login.username) {
        (Some(token), _) => Some(HeaderCredential::Token(token)),
        (None, Some(user)) => {
            Some(HeaderCredential::Password { user, password: login.password.unwrap_or_default() })
        }
        (None, None) => None,
    };
    let server = place.server.filter(|it| !it.is_empty()).ok_or("its cluster has no cluster url")?;
    Ok(Parsed { server, server_name: place.tls_server_name, authorities, identity, proof })
}

fn pick<T: Default>(what: &str, entries: Vec<NamedEntry<T>>, name: &str) -> Result<T, String> {
    let named = entries.into_iter().find(|it| it.name == name);
    Ok(named.ok_or_else(|| format!("it has no {what}: {name}"))?.entry.unwrap_or_default())
}
