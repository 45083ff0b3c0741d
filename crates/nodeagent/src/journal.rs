//! The state for a restart of this agent within one boot. In `/run`, so a boot ends it.
//!
//! Not here: what survives the boot (`reasons`).

use agent::Error;
use pubsub::{TopicRoot, store};
use serde::{Deserialize, Serialize};
use topics::GoTime;
use tracing::warn;

use crate::core::{LastBoot, Resumed};

pub(crate) const PATH: &str = "run/nodeagent/journal.json";
const LIMIT_BYTES: u64 = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Journal {
    #[serde(rename = "BootID")]
    pub(crate) boot_id: String,
    /// How the boot before ended; its files are gone once this is written.
    pub(crate) last_boot: LastBoot,
    /// When this boot began, by the wall clock that gave `LastBoot` its time; zero where that was stored
    /// before.
    pub(crate) booted_at: GoTime,
    pub(crate) operation: Option<Resumed>,
}

impl Journal {
    /// The journal of boot `boot_id`. An invalid one is ignored: the facts lead to the same state later.
    ///
    /// Errors: it cannot be read. Without it the operation under way would be forgotten.
    pub(crate) fn read(topic_root: &TopicRoot, boot_id: &str) -> Result<Option<Self>, Error> {
        let path = topic_root.path(PATH);
        let bytes = match store::read(&path, LIMIT_BYTES) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(cause) if cause.is_refusal() => {
                warn!(path = %path.display(), error = %step::chain(&cause), "ignored the journal");
                return Ok(None);
            }
            Err(cause) => return Err(Error::pubsub(PATH)(cause)),
        };
        match serde_json::from_slice::<Self>(&bytes) {
            Ok(journal) => Ok((journal.boot_id == boot_id).then_some(journal)),
            Err(cause) => {
                warn!(path = %path.display(), error = %cause, "ignored a journal that makes no sense");
                Ok(None)
            }
        }
    }

    pub(crate) fn write(&self, topic_root: &TopicRoot) -> Result<(), Error> {
        let encode = |source: serde_json::Error| Error::Effect {
            doing: "write the journal",
            reason: source.to_string(),
        };
        let bytes = serde_json::to_vec(self).map_err(encode)?;
        store::replace(&topic_root.path(PATH), &bytes).map_err(Error::pubsub(PATH))
    }
}
