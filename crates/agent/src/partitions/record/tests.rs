//! The file store against the states of the reference.

use std::path::PathBuf;

use pubsub::{TopicRoot, store};

use tokio::sync::watch;

use super::super::Bytes;
use super::*;

struct Fixture {
    dir: tempfile::TempDir,
    topic_root: TopicRoot,
    zboot: RecordStore,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let topic_root = TopicRoot::open(dir.path()).unwrap();
    let zboot = RecordStore::open(&topic_root).unwrap();
    assert_eq!(zboot.choose_once("boot-1").unwrap(), BootResult::Same);
    Fixture { dir, topic_root, zboot }
}

impl Fixture {
    fn states(&self) -> (Label, PartitionState, PartitionState) {
        let now = self.zboot.now().unwrap();
        (now.current, now.a.state, now.b.state)
    }

    fn image_file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join("image");
        store::replace(&path, bytes).unwrap();
        path
    }

    async fn write(&self, bytes: Bytes) -> Result<String, Error> {
        let image = ImageToWrite {
            content: "tree#0".to_owned(),
            version: "2.0-k-amd64".to_owned(),
            bytes,
            sha256: String::new(),
        };
        self.zboot.begin(Label::B, image, nobody())?.await
    }

    async fn updating() -> Self {
        let root = fixture();
        root.write(Bytes::Inline("image".to_owned())).await.unwrap();
        root.zboot.set(Label::B, PartitionState::Updating).unwrap();
        root
    }
}

fn nobody() -> Percent {
    watch::Sender::default()
}

const ACTIVE: PartitionState = PartitionState::Active;
const INPROGRESS: PartitionState = PartitionState::Inprogress;
const UPDATING: PartitionState = PartitionState::Updating;
const UNUSED: PartitionState = PartitionState::Unused;

#[test]
fn a_fresh_root_runs_imga_and_has_imgb_to_spare() {
    let root = fixture();
    assert_eq!(root.states(), (Label::A, ACTIVE, UNUSED));
    let spare = root.zboot.now().unwrap().get(Label::B).clone();
    assert_eq!(
        (spare.device.as_str(), spare.short_version.as_str(), spare.size_bytes),
        ("/dev/sda3", "", 536_870_912)
    );
    assert_eq!(root.zboot.now().unwrap().get(Label::A).clone().device, "/dev/sda2");
    assert_eq!(root.zboot.now().unwrap().current, Label::A);
}

#[test]
fn a_fresh_root_takes_its_version_from_the_release_file() {
    let dir = tempfile::tempdir().unwrap();
    let topic_root = TopicRoot::open(dir.path()).unwrap();
    store::replace(&topic_root.path("etc/eve-release"), b"14.4.0-k-amd64\n").unwrap();
    let zboot = RecordStore::open(&topic_root).unwrap();
    assert_eq!(zboot.now().unwrap().get(Label::A).clone().short_version, "14.4.0-k-amd64");
}

#[tokio::test]
async fn one_boot_chooses_once_however_often_the_agents_start() {
    let root = Fixture::updating().await;
    assert_eq!(root.zboot.choose_once("boot-1").unwrap(), BootResult::Again);
    assert_eq!(root.states(), (Label::A, ACTIVE, UPDATING));
    root.zboot.choose_once("boot-2").unwrap();
    let again = RecordStore::open(&root.topic_root).unwrap();
    assert_eq!(again.choose_once("boot-2").unwrap(), BootResult::Again);
    assert_eq!(root.states(), (Label::B, ACTIVE, INPROGRESS));
}

#[tokio::test]
async fn power_lost_while_the_boot_loader_chooses_is_a_failed_try() {
    let root = Fixture::updating().await;
    root.zboot.choose_once("boot-2").unwrap();
    // As if `current` and `boot-id` had not been reached.
    store::replace(&root.topic_root.path("persist/zboot/current"), b"IMGA").unwrap();
    assert_eq!(root.zboot.choose_once("boot-3").unwrap(), BootResult::Same);
    assert_eq!(root.states(), (Label::A, ACTIVE, INPROGRESS));
}

#[tokio::test]
async fn r1_killed_between_any_two_writes_of_a_choice_the_same_boot_makes_the_same_choice() {
    // In the order in which they are written.
    let files = ["choice", "IMGB.json", "current", "boot-id"];
    for written in 0..files.len() {
        let root = Fixture::updating().await;
        let path = |name: &str| root.topic_root.path("persist/zboot").join(name);
        let before = files.map(|name| std::fs::read(path(name)).unwrap());
        root.zboot.choose_once("boot-2").unwrap();
        for (name, bytes) in files.iter().zip(before).skip(written) {
            store::replace(&path(name), &bytes).unwrap();
        }
        let again = RecordStore::open(&root.topic_root).unwrap();
        assert_eq!(again.choose_once("boot-2").unwrap(), BootResult::Tried, "killed after {written} writes");
        assert_eq!(root.states(), (Label::B, ACTIVE, INPROGRESS), "killed after {written} writes");
        assert_eq!(again.choose_once("boot-2").unwrap(), BootResult::Again);
    }
}

#[tokio::test]
async fn a_mark_that_was_cut_in_two_is_finished_by_the_next_one() {
    let root = Fixture::updating().await;
    root.zboot.choose_once("boot-2").unwrap();
    let record = root.topic_root.path("persist/zboot/IMGB.json");
    let text = std::fs::read_to_string(&record).unwrap().replace("inprogress", "active");
    store::replace(&record, text.as_bytes()).unwrap();
    assert_eq!(root.states(), (Label::B, ACTIVE, ACTIVE));
    assert_eq!(root.zboot.choose_once("boot-3").unwrap(), BootResult::Same);
    root.zboot.mark().unwrap();
    assert_eq!(root.states(), (Label::B, UNUSED, ACTIVE));
}

#[test]
fn without_a_partition_to_boot_the_one_before_goes_on() {
    let root = fixture();
    let record = root.topic_root.path("persist/zboot/IMGA.json");
    let text = std::fs::read_to_string(&record).unwrap().replace("active", "inprogress");
    store::replace(&record, text.as_bytes()).unwrap();
    assert_eq!(root.zboot.choose_once("boot-2").unwrap(), BootResult::LastResort);
    assert_eq!(root.states(), (Label::A, INPROGRESS, UNUSED));
}

#[tokio::test]
async fn an_image_is_copied_and_its_own_version_counts() {
    let root = fixture();
    let bytes: Vec<u8> = b"version: 3.1-k-amd64\n"
        .iter()
        .copied()
        .chain((0..3 << 20).map(|n: u32| n.to_le_bytes()[0]))
        .collect();
    let file = root.image_file(&bytes);
    assert_eq!(root.write(Bytes::Path(file)).await.unwrap(), "3.1-k-amd64");
    let spare = root.zboot.now().unwrap().get(Label::B).clone();
    assert_eq!(
        (spare.short_version.as_str(), spare.content.as_str(), spare.state),
        ("3.1-k-amd64", "tree#0", UNUSED)
    );
    assert_eq!(std::fs::read(root.topic_root.path("persist/zboot/IMGB.img")).unwrap(), bytes);
}

#[tokio::test]
async fn a_write_that_fails_leaves_no_image_and_says_why() {
    let root = fixture();
    root.write(Bytes::Inline("good".to_owned())).await.unwrap();
    let missing = root.dir.path().join("missing");
    let refused = root.write(Bytes::Path(missing)).await.unwrap_err().to_string();
    assert!(refused.contains("missing"), "{refused}");
    let empty = root.image_file(b"");
    assert!(root.write(Bytes::Path(empty)).await.unwrap_err().to_string().contains("empty"));
    let spare = root.zboot.now().unwrap().get(Label::B).clone();
    assert_eq!((spare.short_version.as_str(), spare.content.as_str(), spare.state), ("", "", UNUSED));
}

#[tokio::test]
async fn an_image_larger_than_its_partition_is_refused() {
    let root = fixture();
    let record = root.topic_root.path("persist/zboot/IMGB.json");
    let text = std::fs::read_to_string(&record).unwrap().replace("536870912", "4");
    store::replace(&record, text.as_bytes()).unwrap();
    let refused = root.write(Bytes::Inline("12345".to_owned())).await.unwrap_err().to_string();
    assert!(refused.contains("4 bytes"), "{refused}");
    assert_eq!(root.zboot.now().unwrap().get(Label::B).clone().short_version, "");
    assert!(root.write(Bytes::Inline("1234".to_owned())).await.is_ok());
}

#[tokio::test]
async fn from_the_start_of_a_write_an_updating_partition_is_not_booted() {
    let root = Fixture::updating().await;
    let image = ImageToWrite {
        content: "other#0".to_owned(),
        version: "3".to_owned(),
        bytes: Bytes::Inline("x".to_owned()),
        sha256: String::new(),
    };
    let writing = root.zboot.begin(Label::B, image, nobody()).unwrap();
    assert_eq!(root.states(), (Label::A, ACTIVE, UNUSED));
    drop(writing);
    assert_eq!(root.zboot.now().unwrap().get(Label::B).clone().short_version, "");
    assert!(root.zboot.set(Label::B, UPDATING).is_err());
}

#[tokio::test]
async fn a_newer_write_is_not_ended_by_an_older_one() {
    let root = fixture();
    let image = |text: &str| ImageToWrite {
        content: text.to_owned(),
        version: text.to_owned(),
        bytes: Bytes::Inline(text.to_owned()),
        sha256: String::new(),
    };
    let older = root.zboot.begin(Label::B, image("older"), nobody()).unwrap();
    let newer = root.zboot.begin(Label::B, image("newer"), nobody()).unwrap();
    assert!(older.await.unwrap_err().to_string().contains("another write"));
    assert_eq!(root.zboot.now().unwrap().get(Label::B).clone().short_version, "");
    assert_eq!(newer.await.unwrap(), "newer");
    let left: Vec<_> =
        std::fs::read_dir(root.topic_root.path(FOLDER)).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("tmp")), "{left:?}");
}

#[test]
fn a_broken_record_is_named_with_its_file() {
    let root = fixture();
    store::replace(&root.topic_root.path("persist/zboot/IMGB.json"), b"{").unwrap();
    let refused = root.zboot.now().unwrap_err().to_string();
    assert!(refused.contains("IMGB.json"), "{refused}");
}

#[tokio::test]
async fn nothing_is_written_outside_of_the_folder() {
    let root = Fixture::updating().await;
    let at = |path: &Path| -> Vec<_> {
        let mut names: Vec<_> = std::fs::read_dir(path).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(at(root.dir.path()), ["persist"]);
    assert_eq!(at(&root.dir.path().join("persist")), ["zboot"]);
    let names = ["IMGA.json", "IMGB.img", "IMGB.json", "boot-id", "choice", "current"];
    assert_eq!(at(&root.dir.path().join("persist/zboot")), names);
}
