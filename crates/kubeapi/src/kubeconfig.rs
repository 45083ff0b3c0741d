//! The kubeconfig file as a source of clients: read when needed, read again when it has changed.
//!
//! Not here: calls, and what the file says (`parsed`). Nothing comes from the environment; a file that changed is read again, and a missing or invalid one is an error with its path, never a crash.

mod parsed;
#[cfg(test)]
mod tests;
mod yaml;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use tracing::debug;

use self::parsed::{HeaderCredential, InlineOrFile, Parsed, parse};
use crate::connect::credential::{Credential, TokenLife};
use crate::connect::{self, Access, ClusterEndpoint, read_file, short_enough};
use crate::error::Error;

/// Time between two looks at a file while its renewal is waited for (it is seen within 2 s).
const LOOKS_APART: Duration = Duration::from_secs(1);

/// A kubeconfig that may not exist yet, and the last client made from it.
pub(crate) struct KubeconfigFile {
    path: PathBuf,
    /// Held while the files are looked at, so while their disk does not answer.
    looks: Arc<tokio::sync::Mutex<()>>,
    held: Mutex<Option<CachedClient>>,
    address: Mutex<String>,
}

/// Limit for the disk of the files; the next call tries again.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// A client and its files: the kubeconfig first, then those that it names.
#[derive(Clone)]
struct CachedClient {
    stamps: Vec<(PathBuf, Option<Stamp>)>,
    client: Client,
}

/// Identifies a content: a rewrite changes at least the change time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl KubeconfigFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, looks: Arc::default(), held: Mutex::new(None), address: Mutex::default() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Empty before the file was read.
    pub(crate) fn address(&self) -> String {
        self.address.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes the next call read everything again.
    pub(crate) fn forget(&self) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn wrong(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Kubeconfig { path: self.path.clone(), source: source.into() }
    }

    /// [`KubeconfigFile::client`] on a thread of its own, which may hang with the disk. Dropping it loses nothing.
    pub(crate) async fn client_within_limit(self: &Arc<Self>) -> Result<Client, Error> {
        let look = async {
            let one_at_a_time = Arc::clone(&self.looks).lock_owned().await;
            let file = Arc::clone(self);
            let look = move || {
                let client = file.client();
                drop(one_at_a_time);
                client
            };
            tokio::task::spawn_blocking(look).await
        };
        match tokio::time::timeout(LOOK_LIMIT, look).await {
            Ok(Ok(client)) => client,
            Ok(Err(ended)) => Err(self.wrong(ended)),
            Err(_elapsed) => Err(self.wrong("its disk does not answer")),
        }
    }

    /// The client in force, made again when the file, or one that it names, has changed.
    pub(crate) fn client(&self) -> Result<Client, Error> {
        if let Some(client) = self.known() {
            return Ok(client);
        }
        // A missing file is reported at each call.
        Stamp::of(&self.path)?;
        let mut stamps = Vec::new();
        let mut read = |path: &Path| {
            stamps.push((path.to_owned(), Stamp::of(path).ok()));
            read_file(path)
        };
        let text = read(&self.path).map_err(|it| self.wrong(it))?;
        let parsed = self.parse(&text).map_err(|it| self.wrong(it))?;
        let access = access(parsed, &mut read).map_err(|it| self.wrong(it))?;
        let client = connect::client(&access).map_err(|it| self.wrong(it))?;
        debug!(path = %self.path.display(), "kubeconfig read");
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = access.server;
        let held = CachedClient { stamps, client: client.clone() };
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        Ok(client)
    }

    pub(crate) fn credential(&self) -> Result<Option<Credential>, String> {
        let parsed = self.parsed()?.1;
        Ok(match (parsed.identity, parsed.proof) {
            (Some((certificate, _)), _) => Some(Credential::Certificate(certificate.bytes(&mut read_file)?)),
            (None, Some(HeaderCredential::Token(source))) => {
                let token = source.bytes(&mut read_file)?;
                TokenLife::of(&String::from_utf8_lossy(&token)).map(Credential::Token)
            }
            (None, Some(HeaderCredential::Password { .. }) | None) => None,
        })
    }

    pub(crate) fn inline_token(&self) -> Result<Option<(String, String)>, Error> {
        let (text, parsed) = self.parsed().map_err(|it| self.wrong(it))?;
        let Some(HeaderCredential::Token(InlineOrFile::Here(token))) = parsed.proof else { return Ok(None) };
        let both = String::from_utf8(text).ok().zip(String::from_utf8(token).ok());
        Ok(both.map(|(file, token)| (file, token.trim().to_owned())))
    }

    fn parsed(&self) -> Result<(Vec<u8>, Parsed), String> {
        let text = read_file(&self.path)?;
        let parsed = self.parse(&text)?;
        Ok((text, parsed))
    }

    fn parse(&self, text: &[u8]) -> Result<Parsed, String> {
        parse(text, self.path.parent().unwrap_or(Path::new("/")))
    }

    pub(crate) fn place(&self) -> Result<ClusterEndpoint, Error> {
        let (_, Parsed { server, server_name, authorities, .. }) =
            self.parsed().map_err(|it| self.wrong(it))?;
        let authorities = authorities.map(|it| it.bytes(&mut read_file)).transpose();
        let authorities = authorities.map_err(|it| self.wrong(it))?.unwrap_or_default();
        Ok(ClusterEndpoint { server, server_name, authorities })
    }

    /// Returns when the file changes or appears. Looks at the file once a second, without calls.
    pub(crate) async fn renewed(&self) {
        let before = Stamp::of(&self.path).ok();
        loop {
            tokio::time::sleep(LOOKS_APART).await;
            let now = Stamp::of(&self.path).ok();
            if now.is_some() && now != before {
                return;
            }
        }
    }

    fn known(&self) -> Option<Client> {
        // Not locked while the files are read: their disk may hang.
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let same = held.stamps.iter().all(|(path, stamp)| Stamp::of(path).ok() == *stamp);
        same.then_some(held.client)
    }
}

impl Stamp {
    fn of(path: &Path) -> Result<Self, Error> {
        let wrong = |source| Error::Kubeconfig { path: path.to_owned(), source };
        let facts = fs::metadata(path).map_err(|source| wrong(source.into()))?;
        short_enough(facts.len()).map_err(|reason| wrong(reason.into()))?;
        Ok(Self { inode: facts.ino(), bytes: facts.len(), changed: (facts.ctime(), facts.ctime_nsec()) })
    }
}

/// Parses a kubeconfig, without the files that it names.
pub(crate) fn understand(bytes: &[u8]) -> Result<(), String> {
    short_enough(bytes.len() as u64)?;
    parse(bytes, Path::new("/")).map(drop)
}

/// Its contents, with the files that it names read.
fn access(parsed: Parsed, read: &mut dyn FnMut(&Path) -> Result<Vec<u8>, String>) -> Result<Access, String> {
    let mut bytes = |source: InlineOrFile| source.bytes(read);
    let authorities = parsed.authorities.map(&mut bytes).transpose()?.unwrap_or_default();
    let identity = match parsed.identity {
        None => None,
        Some((certificate, key)) => Some((bytes(certificate)?, bytes(key)?)),
    };
    let authorization = match parsed.proof {
        None => None,
        Some(HeaderCredential::Token(source)) => {
            let token = String::from_utf8(bytes(source)?).map_err(|_quotes| "its token is no text")?;
            Some(format!("Bearer {}", token.trim()))
        }
        Some(HeaderCredential::Password { user, password }) => {
            Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
        }
    };
    Ok(Access {
        server: parsed.server,
        server_name: parsed.server_name,
        authorities,
        identity,
        authorization,
    })
}
