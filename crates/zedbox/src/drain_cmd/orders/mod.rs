//! Words of a person that let a drain begin, keep operations from starting or force a status, and the end of a person's
//! own drain.
//!
//! Called by `zedbox` alone. Not here: what they do (the agents).

pub(super) mod at_shutdown;
pub(crate) mod confirm;
pub(super) mod done;
pub(super) mod force;
pub(super) mod go;
pub(super) mod pause;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use agent::operator::WORD;
use anyhow::bail;
use pubsub::{FileState, TopicRoot, store, trust};
use serde::Serialize;
use topics::go_json;

use super::person;

/// Puts an order where the agents read it, and looks with their eyes: what they refuse must not look done.
pub(super) async fn write(
    topic_root: &TopicRoot,
    place: &str,
    order: &impl Serialize,
) -> anyhow::Result<PathBuf> {
    let file = topic_root.path(place);
    refuse_directory(&file)?;
    store::replace(&file, &go_json::to_vec(order)?).map_err(person::root_needed)?;
    read_as_agents_do(topic_root, &file).await?;
    Ok(file)
}

async fn read_as_agents_do(topic_root: &TopicRoot, file: &Path) -> anyhow::Result<()> {
    match topic_root.file(file, WORD).next().await {
        FileState::Bad(finding) => bail!("the agents refuse the file {}: {}", file.display(), finding.reason),
        // An agent may have used it up already.
        FileState::Absent | FileState::Present(_) => Ok(()),
    }
}

/// Refuses a directory in which others could put orders, or one that is somewhere else.
fn refuse_directory(file: &Path) -> anyhow::Result<()> {
    let Some(dir) = file.parent() else { return Ok(()) };
    let Ok(seen) = fs::symlink_metadata(dir) else { return Ok(()) };
    let path = dir.display();
    if seen.file_type().is_symlink() {
        bail!("{path} is a link; an order is not written through it: remove the link");
    }
    if !seen.is_dir() {
        bail!("{path} is no directory; remove it");
    }
    if let Some(owner) = trust::foreign_owner(&seen) {
        bail!("{path} belongs to user {owner}, not to root; chown root {path}");
    }
    if trust::others_may_write(&seen) {
        bail!("others may put files into {path} (mode {:o}); chmod 700 {path}", seen.mode() & 0o777);
    }
    Ok(())
}
