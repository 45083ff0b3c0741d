//! From a content tree to the bytes of an image.
//!
//! Not here: when it is written. Source of the members: lf-edge/eve pkg/pillar/types (`ContentTreeStatus`).

use std::path::{Component, Path, PathBuf};

use agent::partitions::{Bytes, ImageToWrite, VERSION_LINE};
use pubsub::TopicRoot;
use topics::ContentTreeStatus;

use crate::core::PartitionWrite;

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
