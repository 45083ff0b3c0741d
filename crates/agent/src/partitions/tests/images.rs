//! Images: packed, in layouts, cut off.

use std::io;
use std::io::Write as _;

use ring::digest::{SHA256, digest};

use super::super::contents;
use super::super::source::ImageSource;
use super::super::table::Sectors;
use super::super::target::PartitionTarget;
use super::*;

fn content() -> Vec<u8> {
    (0..60_000_u32).flat_map(|nth| (nth / 3).to_le_bytes()).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// [`content`] as `zstd -19` packs it: a frame to be skipped, then each half as a frame of its own.
const ZSTD: &[u8] = include_bytes!("../../../testdata/content.zst");

async fn write(machine: &Machine, bytes: Bytes, sha256: &str) -> Result<String, String> {
    let image = ImageToWrite { sha256: sha256.to_owned(), ..image(bytes) };
    let mut store = GptStore::new(&machine.topic_root, &machine.disk, None);
    store.write_image(Label::B, image, nobody()).await.map_err(|cause| crate::report::chain(&cause))
}

fn held(machine: &Machine) -> Vec<u8> {
    machine.bytes()[704 * 512..][..content().len()].to_vec()
}

#[tokio::test]
async fn b3_a_file_is_written_plain_or_unpacked_and_its_digest_is_of_the_file() {
    for bytes in [content(), gzip(&content()), ZSTD.to_vec()] {
        let machine = Machine::new();
        let outside = machine.bytes();
        let file = machine.put("new", &bytes);
        write(&machine, Bytes::File(file), &sha256(&bytes)).await.unwrap();
        assert_eq!(held(&machine), content());
        let (begin, end) = (704 * 512, 1216 * 512);
        assert_eq!(machine.bytes()[..begin], outside[..begin]);
        assert_eq!(machine.bytes()[end..], outside[end..]);
    }
}

#[tokio::test]
async fn b3_what_cannot_be_an_image_is_refused_with_the_reason() {
    let machine = Machine::new();
    let mut tar = content();
    tar[257..262].copy_from_slice(b"ustar");
    let large = vec![7; usize::try_from(PART_BYTES).unwrap() + 1];
    let torn = gzip(&content());
    let [mut wrong, mut greedy] = [ZSTD.to_vec(), ZSTD.to_vec()];
    // The last byte is of the checksum; a window of 16 MiB.
    *wrong.last_mut().unwrap() ^= 1;
    greedy.splice(.., [0x28, 0xb5, 0x2f, 0xfd, 0x00, 14 << 3, 1, 0, 0]);
    let rows = [
        (Vec::new(), "is empty"),
        (tar, "is a tar archive"),
        (large.clone(), "of 262145 bytes is larger than IMGB of 262144 bytes"),
        (gzip(&large), "is larger than IMGB of 262144 bytes"),
        (torn[..torn.len() / 2].to_vec(), "cannot be read"),
        (ZSTD[..ZSTD.len() / 2].to_vec(), "cannot be read"),
        (ZSTD[..8].to_vec(), "cannot be read"),
        ([ZSTD, b"more"].concat(), "cannot be read"),
        (wrong, "the checksum of a zstd frame is wrong"),
        (greedy, "asks for 16777216 bytes of memory"),
    ];
    for (bytes, why) in rows {
        let file = machine.put("new", &bytes);
        let refused = write(&machine, Bytes::File(file), &sha256(&bytes)).await.unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    let refused = write(&machine, Bytes::Inline("stand-in".to_owned()), "").await.unwrap_err();
    assert!(refused.contains("2.0-k-amd64 is not on this device"), "{refused}");
    let refused = write(&machine, Bytes::File(machine.dir.path().join("no")), "").await.unwrap_err();
    assert!(refused.contains("/no: No such file"), "{refused}");
}

#[tokio::test]
async fn b3_an_image_that_is_known_to_be_too_large_changes_nothing() {
    let machine = Machine::new();
    let file = machine.put("new", &content());
    write(&machine, Bytes::File(file), "").await.unwrap();
    GptStore::new(&machine.topic_root, &machine.disk, None)
        .set_state(Label::B, PartitionState::Updating)
        .await
        .unwrap();
    let before = machine.bytes();
    let large = machine.put("large", &vec![7; usize::try_from(PART_BYTES).unwrap() + 1]);
    write(&machine, Bytes::File(large), "").await.unwrap_err();
    assert_eq!(machine.bytes(), before);
}

/// An OCI image layout of one root layer with these annotations.
struct Layout {
    machine: Machine,
    manifest: String,
    layer: String,
}

impl Layout {
    fn new(layers: &[(&[u8], bool)], index: bool) -> Self {
        let machine = Machine::new();
        let blob = |bytes: &[u8]| {
            machine.put(&format!("oci/blobs/sha256/{}", sha256(bytes)), bytes);
            sha256(bytes)
        };
        let layers: Vec<_> = layers
            .iter()
            .map(|(bytes, root)| {
                let role = if *root { "disk-root" } else { "disk-additional" };
                serde_json::json!({
                    "mediaType": "application/vnd.oci.image.layer.v1.tar",
                    "digest": format!("sha256:{}", blob(bytes)),
                    "size": bytes.len(),
                    "annotations": { "org.lfedge.eci.role": role },
                })
            })
            .collect();
        let config = format!("sha256:{}", blob(b"{}"));
        let manifest =
            serde_json::json!({ "schemaVersion": 2, "config": { "digest": config }, "layers": layers });
        let manifest = blob(manifest.to_string().as_bytes());
        if index {
            let named = serde_json::json!({ "manifests": [{ "digest": format!("sha256:{manifest}") }] });
            machine.put("oci/index.json", named.to_string().as_bytes());
            machine.put("oci/oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
        }
        Self { machine, manifest, layer: sha256(&content()) }
    }

    async fn write(&self, wanted: &str) -> Result<String, String> {
        write(&self.machine, Bytes::Layout(self.machine.dir.path().join("oci")), wanted).await
    }
}

#[tokio::test]
async fn b3_the_root_layer_of_an_oci_layout_is_written() {
    let (content, packed) = (content(), gzip(&content()));
    for layout in [
        Layout::new(&[(&content, false)], true),
        Layout::new(&[(b"other", false), (&content, true)], true),
        Layout::new(&[(&packed, true)], true),
    ] {
        for wanted in ["", layout.manifest.as_str()] {
            layout.write(wanted).await.unwrap();
            assert_eq!(held(&layout.machine), content);
        }
    }
    // As containerd keeps its contents: by digests alone.
    let layout = Layout::new(&[(&content, true)], false);
    layout.write(&layout.manifest).await.unwrap();
    assert_eq!(held(&layout.machine), content);
    assert!(layout.write("").await.unwrap_err().contains("no digest names the image"));
}

#[tokio::test]
async fn b3_a_layout_of_another_image_or_with_changed_blobs_is_refused() {
    let content = content();
    let layout = Layout::new(&[(&content, true)], true);
    let refused = layout.write(&"0".repeat(64)).await.unwrap_err();
    assert!(refused.contains("holds another image than sha256 000"), "{refused}");
    layout.write(&layout.layer).await.unwrap();
    let blob = |name: &str| format!("oci/blobs/sha256/{name}");
    layout.machine.put(&blob(&layout.layer), &content[..9000]);
    let refused = layout.write("").await.unwrap_err();
    assert!(refused.contains("has the sha256"), "{refused}");
    layout.machine.put(&blob(&layout.manifest), b"{}");
    let refused = layout.write("").await.unwrap_err();
    assert!(refused.contains("is not what its digest says"), "{refused}");
    let two = Layout::new(&[(&content, false), (b"other", false)], true);
    let refused = two.write("").await.unwrap_err();
    assert!(refused.contains("0 candidates for the one root layer"), "{refused}");
    let climbs = Layout::new(&[(&content, true)], true);
    climbs.machine.put("oci/index.json", br#"{"manifests":[{"digest":"sha256:../../../etc/passwd"}]}"#);
    assert!(climbs.write("").await.unwrap_err().contains("is no sha256 digest"));
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
    let whole: Vec<u8> = (0..700_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut before = vec![0; 4096];
    before.extend(whole.iter().map(|byte| !byte));
    let file = machine.put("new", &whole);
    let bytes = whole.len() as u64;
    let target = PartitionTarget { path: machine.disk.clone(), offset: 4096, bytes };
    let mut cut = Cut { synced: before, open: Vec::new(), target: target.clone(), image: whole, moments: 0 };
    let source = ImageSource::open(&image(Bytes::File(file)), nobody()).unwrap();
    contents::copy(&mut cut, (Label::B, &target), source, &AtomicBool::new(false)).unwrap();
    assert_eq!(cut.synced[4096..], cut.image);
    assert!(cut.moments >= 7, "{}", cut.moments);
}

#[tokio::test]
async fn b3_what_a_cut_left_is_no_image_and_the_next_write_starts_over() {
    let machine = Machine::new();
    let file = machine.put("new", &content());
    write(&machine, Bytes::File(file.clone()), "").await.unwrap();
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
    write(&machine, Bytes::File(file.clone()), "").await.unwrap();
    assert_eq!(std::fs::read(&note).unwrap(), kept);
    std::fs::remove_file(&note).unwrap();
    assert_eq!(store.read().await.unwrap().spare().short_version, "");
    write(&machine, Bytes::File(file), "").await.unwrap();
    assert_eq!(store.read().await.unwrap().spare().short_version, "2.0-k-amd64");
}
