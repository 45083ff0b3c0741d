//! The files behind `/app`: found by topic and UUID, read within limits, never through a link.
//!
//! Only a UUID of a request comes in here. Error texts name no path and quote nothing of the file.

use std::path::PathBuf;

use pubsub::{Error, FILE_LIMIT_BYTES, TopicRoot, store};
use serde_json::{Map, Value};
use step::LiteMap;
use topics::go_json;
use uuid::Uuid;

/// Limit of names: a larger directory is not searched.
const NAMES: usize = 4096;
/// The log of the cluster's installation, and how much of its end is read.
const INSTALL_LOG: &str = "persist/kubelog/k3s-install.log";
const INSTALL_LOG_BYTES: u32 = 16 << 10;
/// Shown of it.
const INSTALL_LOG_LINES: usize = 10;
/// Words of lines that may hold a secret. Such a line is left out.
const SECRET: [&str; 6] = ["token", "password", "passwd", "secret", "private key", "credential"];

#[derive(Debug, Clone, Copy)]
pub(super) enum TopicKey {
    Global,
    Of(Uuid),
}

impl std::fmt::Display for TopicKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Global => out.write_str("global"),
            Self::Of(uuid) => uuid.fmt(out),
        }
    }
}

/// Topics on disk, for one answer.
pub(super) struct TopicReader<'a> {
    topic_root: &'a TopicRoot,
    /// Names in directories that were read.
    seen: LiteMap<PathBuf, Vec<String>>,
}

impl<'a> TopicReader<'a> {
    pub(super) fn new(topic_root: &'a TopicRoot) -> Self {
        Self { topic_root, seen: LiteMap::new() }
    }

    /// The value of `agent`'s topic under `key`, or why there is none.
    pub(super) fn read(
        &mut self,
        agent: &str,
        topic: &str,
        key: TopicKey,
    ) -> Result<Map<String, Value>, String> {
        let dir = self.topic_root.path("run").join(agent).join(topic);
        let name = match key {
            TopicKey::Global => Some("global.json".to_owned()),
            TopicKey::Of(uuid) => self.name(&dir, uuid)?,
        };
        let bytes = match name {
            Some(name) => store::read(&dir.join(name), FILE_LIMIT_BYTES).map_err(|error| plain(&error))?,
            None => None,
        };
        let bytes = bytes.ok_or_else(|| "there is no file".to_owned())?;
        go_json::from_slice(&bytes).map_err(|error| match error {
            go_json::Error::Syntax(error) => format!("no JSON in line {}", error.line()),
            go_json::Error::Member { pointer, .. } => format!("member {pointer} is of a wrong kind"),
            go_json::Error::Large { .. } | go_json::Error::Write(_) => "it makes no sense".to_owned(),
        })
    }

    /// The first file of the object: named by the UUID, or the UUID, `#` or `-`, and a suffix.
    fn name(&mut self, dir: &PathBuf, uuid: Uuid) -> Result<Option<String>, String> {
        if !self.seen.contains_key(dir) {
            let names = store::names(dir, NAMES).map_err(|error| plain(&error))?;
            self.seen.insert(dir.clone(), names);
        }
        let start = uuid.to_string();
        let of = |name: &&String| {
            let rest = name.strip_prefix(&start).and_then(|rest| rest.strip_suffix(".json"));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['#', '-']))
        };
        Ok(self.seen.get(dir).and_then(|names| names.iter().find(of)).cloned())
    }

    pub(super) fn install_log(&self) -> Option<String> {
        let bytes = store::read_end(&self.topic_root.path(INSTALL_LOG), INSTALL_LOG_BYTES).ok()??;
        Some(last_lines(&String::from_utf8_lossy(&bytes)))
    }
}

/// Cut like the reference: after the last line end there is one more line.
fn last_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.rsplit('\n').take(INSTALL_LOG_LINES).map(without_secret).collect();
    lines.reverse();
    lines.join("\n")
}

fn without_secret(line: &str) -> &str {
    let low = line.to_lowercase();
    if SECRET.iter().any(|word| low.contains(word)) { "(left out: may hold a secret)" } else { line }
}

/// An error without its path.
fn plain(error: &Error) -> String {
    if let Error::Refused { reason, .. } = error {
        reason.clone()
    } else if let Error::Io { source, .. } = error {
        source.kind().to_string()
    } else {
        "it cannot be read".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ten_lines_are_cut_at_line_ends_and_no_secret_is_shown() {
        let text: Vec<String> = (0..30).map(|nth| format!("line {nth}\n")).collect();
        let shown = last_lines(&text.concat());
        assert!(shown.starts_with("line 21\n") && shown.ends_with("line 29\n"), "{shown}");
        assert_eq!(last_lines("one"), "one");
        let shown = last_lines("a\nexec k3s --Token=K10abc\nb");
        assert_eq!(shown, "a\n(left out: may hold a secret)\nb");
    }
}
