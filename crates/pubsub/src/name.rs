//! Where a topic lives, and which keys can be files.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Error;

/// The longest file name of the file systems in use.
pub(crate) const NAME_LIMIT_BYTES: usize = 255;
pub(crate) const SUFFIX: &str = ".json";
pub(crate) const BACKUP: &str = ".bak";
const SOCKET: &str = ".sock";
/// In place of the agent, for topics without one.
const GLOBAL: &str = "global";
/// The file that counts restarts.
pub(crate) const RESTARTED: &str = "restarted";

/// A topic of an agent: its place, and whether it survives a reboot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    agent: String,
    topic: String,
    persistent: bool,
}

impl Name {
    /// `/run/<agent>/<topic>`: lost at a reboot.
    pub fn volatile(agent: &str, topic: &str) -> Self {
        Self { agent: agent.to_owned(), topic: topic.to_owned(), persistent: false }
    }

    /// `/persist/status/<agent>/<topic>`: survives a reboot.
    pub fn persistent(agent: &str, topic: &str) -> Self {
        Self { persistent: true, ..Self::volatile(agent, topic) }
    }

    /// `/run/global/<topic>`: without an agent.
    pub fn global(topic: &str) -> Self {
        Self::volatile(GLOBAL, topic)
    }

    pub const fn is_persistent(&self) -> bool {
        self.persistent
    }

    pub fn dir(&self, root: &Path) -> PathBuf {
        self.below(&root.join(if self.persistent { "persist/status" } else { "run" }))
    }

    /// The socket of its publisher: beside the directory of a volatile topic, and where that would be for a
    /// persistent one. `None` for topics without an agent, which have files only.
    ///
    /// The reference names `/var/run`, which is a link to `/run` on a device and does not exist under other roots.
    pub fn socket(&self, root: &Path) -> Option<PathBuf> {
        let mut path = self.below(&root.join("run")).into_os_string();
        path.push(SOCKET);
        (self.agent != GLOBAL).then(|| path.into())
    }

    /// Two directories below `base`.
    pub(crate) fn below(&self, base: &Path) -> PathBuf {
        base.join(&self.agent).join(&self.topic)
    }

    /// The topic alone, as in records of a socket.
    pub(crate) fn topic(&self) -> &str {
        &self.topic
    }

    pub(crate) fn file(&self, key: &str) -> Result<String, Error> {
        let refuse = |reason| Err(Error::Key { topic: self.to_string(), key: key.to_owned(), reason });
        if key.is_empty() {
            return refuse("it is empty");
        }
        if key.contains(['/', '\0']) {
            return refuse("it holds `/` or NUL");
        }
        if key.contains(SUFFIX) {
            return refuse("it holds `.json`, which readers would cut");
        }
        if key.len() + SUFFIX.len() > NAME_LIMIT_BYTES {
            return refuse("it is longer than 250 bytes");
        }
        Ok(format!("{key}{SUFFIX}"))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.agent, self.topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_lie_where_the_reference_looks_for_them() {
        let root = Path::new("/");
        let dir = |name: Name| name.dir(root).display().to_string();
        assert_eq!(dir(Name::volatile("zedkube", "NodeDrainStatus")), "/run/zedkube/NodeDrainStatus");
        assert_eq!(dir(Name::persistent("zedkube", "KubeConfig")), "/persist/status/zedkube/KubeConfig");
        assert_eq!(dir(Name::global("X")), "/run/global/X");
        let socket = |name: Name| name.socket(root).map(|path| path.display().to_string());
        assert_eq!(
            socket(Name::volatile("zedkube", "NodeDrainStatus")).unwrap(),
            "/run/zedkube/NodeDrainStatus.sock"
        );
        assert_eq!(
            socket(Name::persistent("zedkube", "KubeConfig")).unwrap(),
            "/run/zedkube/KubeConfig.sock"
        );
        assert_eq!(socket(Name::global("X")), None);
    }

    #[test]
    fn a_key_that_cannot_be_a_file_is_refused_with_the_rule() {
        let name = Name::volatile("a", "T");
        assert_eq!(name.file("global").unwrap(), "global.json");
        assert_eq!(name.file(&"k".repeat(250)).unwrap().len(), 255);
        for (key, rule) in [("", "empty"), ("a/b", "`/`"), ("a\0", "NUL"), ("a.json", "cut")] {
            let refused = name.file(key).unwrap_err().to_string();
            assert!(refused.contains(rule) && refused.contains("a/T"), "{refused}");
        }
        assert!(name.file(&"k".repeat(251)).unwrap_err().to_string().contains("250"));
    }
}
