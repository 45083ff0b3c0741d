//! What can go wrong in the shell of an agent.

use std::path::PathBuf;

/// An agent that meets one of these ends; its supervisor starts it again after a pause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A topic or file could not be written or its directory not be owned.
    #[error("serve {what}")]
    Pubsub {
        what: String,
        #[source]
        source: pubsub::Error,
    },
    /// A value could not be put into its form on disk.
    #[error("encode {what}")]
    Encode {
        what: &'static str,
        #[source]
        source: topics::Error,
    },
    /// Another process is this agent.
    #[error("start: process {pid} of {} is this agent already; stop it first", path.display())]
    Already { pid: String, path: PathBuf },
    /// The device refused an operation.
    #[error("carry out {operation} by {by}: {reason}")]
    Device { operation: &'static str, by: String, reason: String },
    /// A file of the machine could not be read.
    #[error("read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// An effect that the agent cannot continue without.
    #[error("{doing}: {reason}")]
    Effect { doing: &'static str, reason: String },
}

impl Error {
    /// A pubsub failure about `what`.
    pub fn pubsub(what: impl Into<String>) -> impl FnOnce(pubsub::Error) -> Self {
        let what = what.into();
        move |source| Self::Pubsub { what, source }
    }
}
