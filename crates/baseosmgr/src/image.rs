//! From a content tree to the bytes of an image.
//!
//! Not here: when it is written. Source of the members: lf-edge/eve pkg/pillar/types (`ContentTreeStatus`).

use std::fs::Metadata;
use std::path::{Component, Path, PathBuf};

use agent::partitions::{Bytes, ImageToWrite, VERSION_LINE, is_layout};
use pubsub::TopicRoot;
use topics::ContentTreeStatus;

use crate::core::PartitionWrite;

/// Where volumemgr keeps blobs once they are verified, and where containerd keeps them, under the root.
const BLOBS: &str = "persist/vault/verifier/verified";
const CONTENTS: &str = "persist/vault/containerd/io.containerd.content.v1.content";

/// The image that `write` asks for: what `tree` names as its place, a file or an OCI image layout; else its image
/// among the contents of containerd, whose first blob is the root of the tree; else its largest verified blob; else
/// a few lines that say which content it stands for. A file that is missing is found out by the write.
pub(crate) fn of(topic_root: &TopicRoot, write: &PartitionWrite, tree: &ContentTreeStatus) -> ImageToWrite {
    let image = |bytes, sha256: &str| ImageToWrite {
        content: write.content.clone(),
        version: write.version.clone(),
        bytes,
        sha256: sha256.to_owned(),
    };
    if !tree.file_location.is_empty() {
        let path = inside(topic_root, &tree.file_location);
        let bytes = if is_layout(&path) { Bytes::Layout(path) } else { Bytes::File(path) };
        return image(bytes, &tree.content_sha256);
    }
    let (contents, root) = (topic_root.path(CONTENTS), tree.blobs.iter().flatten().next());
    if let Some(root) =
        root.filter(|root| inside(topic_root, &format!("{CONTENTS}/blobs/sha256/{root}")).is_file())
    {
        return image(Bytes::Layout(contents), root);
    }
    match largest_blob(topic_root, tree) {
        // A blob is named by its digest.
        Some((path, name)) => image(Bytes::File(path), &name),
        None => image(Bytes::Inline(stand_in(write, tree)), ""),
    }
}

/// `location` below the root: steps that climb are left out, so that no name leads out of it.
fn inside(topic_root: &TopicRoot, location: &str) -> PathBuf {
    let steps = Path::new(location).components().filter(|step| matches!(step, Component::Normal(_)));
    topic_root.root().join(steps.collect::<PathBuf>())
}

fn largest_blob(topic_root: &TopicRoot, tree: &ContentTreeStatus) -> Option<(PathBuf, String)> {
    let files =
        tree.blobs.iter().flatten().map(|name| (inside(topic_root, &format!("{BLOBS}/{name}")), name));
    let sized = files.filter_map(|(path, name)| {
        path.metadata().ok().filter(Metadata::is_file).map(|it| (it.len(), path, name))
    });
    sized.max().map(|(_, path, name)| (path, name.clone()))
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
    fn the_named_file_comes_before_blobs_and_blobs_before_a_stand_in() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let mut tree =
            ContentTreeStatus { blobs: Some(vec!["small".into(), "large".into()]), ..Default::default() };
        let Bytes::Inline(text) = image(&topic_root, &tree) else { panic!("no blob is there") };
        assert!(text.starts_with("version: 2.0\ncontent: tree\n"), "{text}");
        for (name, bytes) in [("small", 1), ("large", 9)] {
            store::replace(&topic_root.path(&format!("{BLOBS}/{name}")), &vec![0; bytes]).unwrap();
        }
        assert_eq!(image(&topic_root, &tree), Bytes::File(topic_root.path(&format!("{BLOBS}/large"))));
        tree.file_location = "/persist/images/new".to_owned();
        assert_eq!(image(&topic_root, &tree), Bytes::File(topic_root.path("persist/images/new")));
    }

    #[test]
    fn no_name_leads_out_of_the_root() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let tree = ContentTreeStatus {
            file_location: "/persist/../../etc/./shadow".to_owned(),
            ..Default::default()
        };
        assert_eq!(image(&topic_root, &tree), Bytes::File(topic_root.path("persist/etc/shadow")));
    }
}
