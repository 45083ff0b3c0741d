//! Images: plain and packed, what is no root file system, cut off.

use std::io;

use ring::digest::{SHA256, digest};

use super::super::contents;
use super::super::table::Sectors;
use super::super::target::PartitionTarget;
use super::*;

fn content() -> Vec<u8> {
    root_fs((0..60_000_u32).flat_map(|nth| (nth / 3).to_le_bytes()).collect())
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

async fn write(machine: &Machine, bytes: Bytes, sha256: &str) -> Result<String, String> {
    let image = ImageToWrite { sha256: sha256.to_owned(), ..image(bytes) };
    let mut store = GptStore::new(&machine.topic_root, &machine.disk, None);
    store.write_image(Label::B, image, nobody()).await.map_err(|cause| step::chain(&cause))
}

fn held(machine: &Machine) -> Vec<u8> {
    machine.bytes()[704 * 512..][..content().len()].to_vec()
}

#[tokio::test]
async fn b3_a_file_is_written_plain_or_unpacked_and_its_digest_is_of_the_file() {
    for bytes in [content(), gzip(&content())] {
        let machine = Machine::new();
        let outside = machine.bytes();
        let file = machine.put("new", &bytes);
        for digest in [sha256(&bytes), format!("sha256:{}", sha256(&bytes).to_uppercase())] {
            write(&machine, Bytes::Path(file.clone()), &digest).await.unwrap();
        }
        assert_eq!(held(&machine), content());
        let (begin, end) = (704 * 512, 1216 * 512);
        assert_eq!(machine.bytes()[..begin], outside[..begin]);
        assert_eq!(machine.bytes()[end..], outside[end..]);
    }
}

#[tokio::test]
async fn b3_what_cannot_be_an_image_is_refused_with_the_reason() {
    let machine = Machine::new();
    let large = root_fs(vec![7; usize::try_from(PART_BYTES).unwrap() + 1]);
    let torn = gzip(&content());
    let rows = [
        (Vec::new(), "is empty"),
        (large.clone(), "of 262145 bytes is larger than IMGB of 262144 bytes"),
        (gzip(&large), "of 262145 bytes is larger than IMGB of 262144 bytes"),
        (gzip(&[content(), vec![0; 64 << 10]].concat()), "is larger than IMGB of 262144 bytes"),
        (torn[..torn.len() / 2].to_vec(), "cannot be read"),
        (
            vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 14 << 3, 1, 0, 0],
            "is packed by zstd; give it plain or packed by gzip",
        ),
    ];
    for (bytes, why) in rows {
        let file = machine.put("new", &bytes);
        let refused = write(&machine, Bytes::Path(file), &sha256(&bytes)).await.unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    let refused = write(&machine, Bytes::Inline("stand-in".to_owned()), "").await.unwrap_err();
    assert!(refused.contains("2.0-k-amd64 is not on this device"), "{refused}");
    let refused = write(&machine, Bytes::Path(machine.dir.path().join("no")), "").await.unwrap_err();
    assert!(refused.contains("/no: No such file"), "{refused}");
}

/// What is no root file system, or less of one than it says, by name and with the words that it is refused with.
fn not_to_boot() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let with = |at: usize, bytes: &[u8]| {
        let mut content = content();
        content[at..at + bytes.len()].copy_from_slice(bytes);
        content
    };
    let mut iso = vec![0; 40 << 10];
    iso[32_769..32_774].copy_from_slice(b"CD001");
    let mut tar = content();
    tar[..100].fill(b'x');
    tar[257..262].copy_from_slice(b"ustar");
    let noise = (0..75_000_u32).map(|nth| nth.wrapping_mul(2_654_435_761)).flat_map(u32::to_le_bytes);
    vec![
        ("one byte", b"x".to_vec(), "begins with `x`"),
        ("a page", b"<html>404 Not Found</html>".to_vec(), "begins with `<html>404 Not Fo`"),
        ("noise", noise.take(200_000).collect(), "no superblock of a squashfs"),
        ("zeros", vec![0; 9000], "begins with `\\x00"),
        ("an ISO", iso, "begins with `\\x00"),
        ("a tar archive", tar, "it is a tar archive"),
        ("the first bytes alone", content()[..95].to_vec(), "no superblock of a squashfs"),
        ("another version", with(28, &[3, 0, 1]), "is a squashfs of version 3.1"),
        ("no such blocks", with(22, &[18]), "contradicts itself"),
        ("tables beyond its end", with(64, &u64::MAX.to_le_bytes()), "contradicts itself"),
        ("half of it", content()[..120_000].to_vec(), "has 120000 bytes, and 240000 by its own superblock"),
        (
            "all but a byte",
            content()[..239_999].to_vec(),
            "has 239999 bytes, and 240000 by its own superblock",
        ),
        ("larger by its own word", with(40, &(1_u64 << 40).to_le_bytes()), "is larger than IMGB"),
    ]
}

#[tokio::test]
async fn t8_what_is_no_root_file_system_or_less_than_it_says_changes_nothing() {
    let machine = Machine::new();
    let file = machine.put("whole", &content());
    write(&machine, Bytes::Path(file), "").await.unwrap();
    let before = machine.bytes();
    for (what, bytes, why) in not_to_boot() {
        let file = machine.put("new", &bytes);
        let refused = write(&machine, Bytes::Path(file), "").await.unwrap_err();
        assert!(refused.contains(why), "{what}: {refused}");
        assert_eq!(machine.bytes(), before, "{what}");
    }
}

#[tokio::test]
async fn t8_what_is_packed_or_a_layer_is_looked_at_like_a_file_and_its_head_is_never_written() {
    for (what, bytes, why) in not_to_boot() {
        let machine = Machine::new();
        let rows = [
            ("packed", Bytes::Path(machine.put("new", &gzip(&bytes)))),
            ("a layer", layouts::Layout::new(&machine).image(&[(&bytes, None)]).path()),
            (
                "a packed layer",
                layouts::Layout::new(&machine).image(&[(&gzip(&bytes), Some("disk-root"))]).path(),
            ),
        ];
        for (how, bytes) in rows {
            let refused = write(&machine, bytes, "").await.unwrap_err();
            // How much is packed is known at its end.
            let why = if why.contains("by its own superblock") { "by its own superblock" } else { why };
            assert!(refused.contains(why), "{what}, {how}: {refused}");
            assert!(machine.bytes()[704 * 512..][..512].iter().all(|byte| *byte == 0), "{what}, {how}");
            let spare = GptStore::new(&machine.topic_root, &machine.disk, None).read().await.unwrap();
            assert_eq!(spare.spare().short_version, "", "{what}, {how}");
        }
    }
}

#[test]
fn what_mksquashfs_makes_is_a_root_file_system() {
    let mut made = Vec::new();
    flate2::read::GzDecoder::new(device::SQUASHFS).read_to_end(&mut made).unwrap();
    assert_eq!(trial::root(&made).unwrap(), 290);
}

#[tokio::test]
async fn b3_an_image_that_is_known_to_be_too_large_changes_nothing() {
    let machine = Machine::new();
    let file = machine.put("new", &content());
    write(&machine, Bytes::Path(file), "").await.unwrap();
    GptStore::new(&machine.topic_root, &machine.disk, None)
        .set_state(Label::B, PartitionState::Updating)
        .await
        .unwrap();
    let before = machine.bytes();
    let large = machine.put("large", &root_fs(vec![7; usize::try_from(PART_BYTES).unwrap() + 1]));
    write(&machine, Bytes::Path(large), "").await.unwrap_err();
    assert_eq!(machine.bytes(), before);
}

/// A partition under a write that power may cut off anywhere: what is synced stays, anything else may or may not.
struct Cut {
    synced: Vec<u8>,
    open: Vec<(usize, Vec<u8>)>,
    target: PartitionTarget,
    image: Vec<u8>,
    moments: usize,
}

impl Cut {
    /// As long as any of the image may be missing, its head is not there.
    fn judge(&mut self) {
        let head = &self.image[..512];
        let at = usize::try_from(self.target.offset).unwrap();
        let may_begin = self.open.iter().any(|(open, bytes)| *open == at && bytes.starts_with(head));
        if may_begin || self.synced[at..].starts_with(head) {
            assert_eq!(self.synced[at + 512..][..self.image.len() - 512], self.image[512..]);
        }
        self.moments += 1;
    }
}

impl Sectors for Cut {
    fn bytes(&mut self) -> io::Result<u64> {
        Ok(self.synced.len() as u64)
    }

    fn read_at(&mut self, _at: u64, _into: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let inside = self.target.offset..=self.target.offset + self.target.bytes;
        assert!(inside.contains(&at) && inside.contains(&(at + bytes.len() as u64)), "outside at {at}");
        self.open.push((usize::try_from(at).unwrap(), bytes.to_vec()));
        self.judge();
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        for (at, bytes) in std::mem::take(&mut self.open) {
            self.synced[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        self.judge();
        Ok(())
    }
}

#[test]
fn b3_a_cut_at_any_write_of_an_image_leaves_the_whole_image_or_none() {
    let machine = Machine::new();
    // Several pieces, over another image.
    let whole = root_fs((0..700_000_u32).flat_map(u32::to_le_bytes).collect());
    let mut before = vec![0; 4096];
    before.extend(whole.iter().map(|byte| !byte));
    let file = machine.put("new", &whole);
    let bytes = whole.len() as u64;
    let target = PartitionTarget { path: machine.disk.clone(), offset: 4096, bytes };
    let mut cut = Cut { synced: before, open: Vec::new(), target: target.clone(), image: whole, moments: 0 };
    let opened = contents::open(Label::B, &target, &image(Bytes::Path(file)), nobody()).unwrap();
    contents::copy(&mut cut, (Label::B, &target), opened, &AtomicBool::new(false)).unwrap();
    assert_eq!(cut.synced[4096..], cut.image);
    assert!(cut.moments >= 7, "{}", cut.moments);
}

#[tokio::test]
async fn b3_what_a_cut_left_is_no_image_and_the_next_write_starts_over() {
    let machine = Machine::new();
    let file = machine.put("new", &content());
    write(&machine, Bytes::Path(file.clone()), "").await.unwrap();
    let note = machine.topic_root.path("persist/partitions/IMGB.json");
    let kept = std::fs::read(&note).unwrap();
    let mut store = GptStore::new(&machine.topic_root, &machine.disk, None);
    // The note of a write says nothing about a head that is another one, or not there.
    let mut cut = machine.bytes();
    cut[704 * 512..][..512].fill(0);
    machine.put("disk.img", &cut);
    let spare = store.read().await.unwrap().spare().clone();
    assert_eq!((spare.short_version.as_str(), spare.content.as_str()), ("", ""));
    assert!(store.set_state(Label::B, PartitionState::Updating).await.is_err());
    // Nor does a head without a note, on the image of a disk.
    write(&machine, Bytes::Path(file.clone()), "").await.unwrap();
    assert_eq!(std::fs::read(&note).unwrap(), kept);
    std::fs::remove_file(&note).unwrap();
    assert_eq!(store.read().await.unwrap().spare().short_version, "");
    write(&machine, Bytes::Path(file), "").await.unwrap();
    assert_eq!(store.read().await.unwrap().spare().short_version, "2.0-k-amd64");
}
