//! From a content tree to the bytes of an image.
//!
//! Not here: when it is written. Source of the members: lf-edge/eve pkg/pillar/types (`ContentTreeStatus`).
//!
//! Container images of an OS image, pulled and removed by an integrator's program:
//!
//! | Words | When | What it does |
//! |---|---|---|
//! | `pull VERSION` | before VERSION is written, and so before the drain | returns once all that VERSION needs is on this node; else it fails and says what is missing |
//! | `clean VERSION` | once VERSION has passed its test | removes what only versions before the other partition's needed |

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use agent::device::program;
use agent::partitions::{Bytes, ImageToWrite, VERSION_LINE};
use pubsub::TopicRoot;
use tokio::time::Instant;
use topics::ContentTreeStatus;
use tracing::{info, warn};

use crate::Limits;
use crate::core::PartitionWrite;
use crate::limits::IMAGE_PROGRAM_LIMIT;

/// Folders with blobs named by their digest, under the root: containerd's contents, and volumemgr's verified
/// ones.
const STORES: [&str; 2] = [
    "persist/vault/containerd/io.containerd.content.v1.content/blobs/sha256",
    "persist/vault/verifier/verified",
];

/// The image for `write`: the file or OCI image layout of `tree`; else its blobs, with the root named by the
/// manifest; else a few lines that name the content. The write finds out whether a file is missing.
pub(crate) fn of(topic_root: &TopicRoot, write: &PartitionWrite, tree: &ContentTreeStatus) -> ImageToWrite {
    let names: Vec<String> = tree.blobs.iter().flatten().cloned().collect();
    let store = STORES.map(|store| topic_root.path(store)).into_iter().find(|folder| {
        let path = |name: &String| folder.join(steps(name.trim_start_matches("sha256:")));
        names.iter().any(|name| path(name).is_file())
    });
    let bytes = match store {
        _ if !tree.file_location.is_empty() => {
            Bytes::Path(topic_root.root().join(steps(&tree.file_location)))
        }
        Some(folder) => Bytes::Blobs { folder, names },
        None => Bytes::Inline(stand_in(write, tree)),
    };
    let is_here = !matches!(bytes, Bytes::Inline(_));
    ImageToWrite {
        content: write.content.clone(),
        version: write.version.clone(),
        bytes,
        sha256: if is_here { tree.content_sha256.clone() } else { String::new() },
    }
}

/// `location` without `..`, so that no name leads out of its folder.
fn steps(location: &str) -> PathBuf {
    Path::new(location).components().filter(|step| matches!(step, Component::Normal(_))).collect()
}

fn stand_in(write: &PartitionWrite, tree: &ContentTreeStatus) -> String {
    format!(
        "{VERSION_LINE}{}\ncontent: {}\nname: {}\nurl: {}\nsha256: {}\n",
        write.version, write.tree, tree.display_name, tree.relative_url, tree.content_sha256
    )
}

#[derive(Debug, Clone)]
pub(crate) struct ContainerProgram {
    program: PathBuf,
    limit: Duration,
}

impl ContainerProgram {
    /// `None` without a program.
    pub(crate) fn of(limits: &Limits) -> Option<Self> {
        let program = PathBuf::from(&limits.image_program);
        (!limits.image_program.is_empty()).then_some(Self { program, limit: IMAGE_PROGRAM_LIMIT })
    }

    /// Returns once the container images of `version` are here; the error says why not.
    pub(crate) async fn pull(&self, version: &str) -> Result<(), String> {
        let began = now();
        let said = self.call("pull", version).await;
        let said = said.map_err(|why| format!("the container images of {version} are not here: {why}"))?;
        info!(version, secs = began.elapsed().as_secs(), said, "container images are here before the drain");
        Ok(())
    }

    /// Removes unneeded images; a failure blocks nothing.
    pub(crate) async fn clean(&self, version: &str) {
        match self.call("clean", version).await {
            Ok(said) => info!(version, said, "old container images are cleaned up"),
            Err(why) => warn!(version, why, "old container images are not all cleaned up"),
        }
    }

    async fn call(&self, word: &str, version: &str) -> Result<String, String> {
        if !self.program.is_absolute() {
            return Err(format!("image_program needs an absolute path, not `{}`", self.program.display()));
        }
        Ok(program::call(&self.program, &[word, version], self.limit).await?.trim().to_owned())
    }
}

#[expect(clippy::disallowed_methods, reason = "how long a call took, for the log")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::partitions::Label;
    use pubsub::store;

    fn image(topic_root: &TopicRoot, tree: &ContentTreeStatus) -> Bytes {
        let write = PartitionWrite {
            nth: 1,
            key: "key".to_owned(),
            tree: "tree".to_owned(),
            label: Label::B,
            version: "2.0".to_owned(),
            content: "tree#0".to_owned(),
        };
        of(topic_root, &write, tree).bytes
    }

    #[test]
    fn the_named_file_comes_before_blobs_containerds_before_verified_ones_and_any_before_a_stand_in() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let names = vec!["sha256:one".to_owned(), "two".to_owned()];
        let mut tree = ContentTreeStatus { blobs: Some(names.clone()), ..Default::default() };
        let Bytes::Inline(text) = image(&topic_root, &tree) else { panic!("no blob is there") };
        assert!(text.starts_with("version: 2.0\ncontent: tree\n"), "{text}");
        for (store, name) in STORES.iter().zip(["one", "two"]).rev() {
            let folder = topic_root.path(store);
            store::replace(&folder.join(name), b"x").unwrap();
            assert_eq!(image(&topic_root, &tree), Bytes::Blobs { folder, names: names.clone() });
        }
        tree.file_location = "/persist/images/new".to_owned();
        assert_eq!(image(&topic_root, &tree), Bytes::Path(topic_root.path("persist/images/new")));
    }

    #[test]
    fn no_name_leads_out_of_the_root() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let tree = ContentTreeStatus {
            file_location: "/persist/../../etc/./shadow".to_owned(),
            ..Default::default()
        };
        assert_eq!(image(&topic_root, &tree), Bytes::Path(topic_root.path("persist/etc/shadow")));
    }
}
