//! What can go wrong in the shell of an agent.

use std::path::PathBuf;

/// Ends the agent; its supervisor restarts it after a pause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("serve {what}")]
    Pubsub {
        what: String,
        #[source]
        source: pubsub::Error,
    },
    #[error("encode {what}")]
    Encode {
        what: &'static str,
        #[source]
        source: topics::Error,
    },
    #[error("start: process {pid} of {} is this agent already; stop it first", path.display())]
    Already { pid: String, path: PathBuf },
    #[error("carry out {operation} by {by}: {reason}")]
    Device { operation: &'static str, by: String, reason: String },
    #[error("read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{doing}: {reason}")]
    Effect { doing: &'static str, reason: String },
}

impl Error {
    pub fn pubsub(what: impl Into<String>) -> impl FnOnce(pubsub::Error) -> Self {
        let what = what.into();
        move |source| Self::Pubsub { what, source }
    }
}
