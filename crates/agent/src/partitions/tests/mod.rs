//! All doors to the partitions by one set of tests, and the table of a disk under power cuts.

mod corpus;
mod device;
mod disk;
mod doors;
mod images;
mod layouts;
#[expect(unreachable_pub, reason = "the stage of the whole-system tests has it too")]
mod loader;
mod places;
mod programs;
mod table;

use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use pubsub::{TopicRoot, store};

use super::*;

/// A disk as `sgdisk` makes it with the layout of the reference: IMGA active, IMGB unused, 256 KiB each.
const DISK: &[u8] = include_bytes!("../../../testdata/eve.img.gz");
const PART_BYTES: u64 = 256 << 10;
const PARTUUIDS: [&str; 2] = ["ad6871ee-31f9-4cf3-9e09-6f7a25c30052", "ad6871ee-31f9-4cf3-9e09-6f7a25c30053"];
const LABELS: [&str; 2] = ["IMGA", "IMGB"];

fn disk() -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(DISK).read_to_end(&mut bytes).unwrap();
    bytes
}

fn nobody() -> Percent {
    watch::Sender::default()
}

/// A machine with a disk, whose kernel was started from IMGA.
struct Machine {
    dir: tempfile::TempDir,
    topic_root: TopicRoot,
    disk: PathBuf,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(dir.path()).unwrap();
        let disk = dir.path().join("disk.img");
        let this = Self { dir, topic_root, disk };
        this.put("disk.img", &disk_bytes(|_| {}));
        this.runs(PARTUUIDS[0], "1.0-k-amd64");
        this
    }

    fn put(&self, path: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(path);
        store::replace(&path, bytes).unwrap();
        path
    }

    /// What the kernel and the image say of this boot.
    fn runs(&self, partuuid: &str, version: &str) {
        let line = format!("console=tty0 root=PARTUUID={partuuid} rootdelay=3 getty\n");
        self.put("proc/cmdline", line.as_bytes());
        self.put("run/eve-release", format!("{version}\n").as_bytes());
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.disk).unwrap()
    }

    /// A program of these lines, after which it may use `$here`.
    fn program(&self, lines: &str) -> PathBuf {
        let here = self.dir.path().display();
        let path = self.dir.path().join("program");
        // By another process: what this one writes, a child of another test may still have open, and then it is busy.
        let written = std::process::Command::new("sh")
            .args(["-c", r#"printf %s "$1" >"$0" && chmod 755 "$0""#])
            .arg(&path)
            .arg(format!("#!/bin/sh\nhere={here}\n{lines}\n"))
            .status();
        assert!(written.unwrap().success());
        path
    }
}

fn disk_bytes(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = disk();
    change(&mut bytes);
    bytes
}

/// `bytes` with the superblock of a squashfs in front that says their length, and nothing else of one.
fn root_fs(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = bytes.len() as u64;
    bytes[..96].fill(0);
    bytes[..4].copy_from_slice(b"hsqs");
    bytes[12..16].copy_from_slice(&(128_u32 << 10).to_le_bytes());
    for (at, value) in [(22, 17_u16), (28, 4)] {
        bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    for (at, value) in [(40, length), (48, length - 1), (64, length - 1), (72, length - 1)] {
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn image(bytes: Bytes) -> ImageToWrite {
    ImageToWrite {
        content: "tree#0".to_owned(),
        version: "2.0-k-amd64".to_owned(),
        bytes,
        sha256: String::new(),
    }
}

/// Whether `program` is installed; where it is not, that is said.
fn is_there(program: &str) -> bool {
    let there = [Path::new("/usr/sbin"), Path::new("/usr/bin")].iter().any(|dir| dir.join(program).exists());
    if !there {
        use std::io::Write as _;
        let said = writeln!(
            std::io::stderr(),
            "skipped: no comparison with {program}, which is not installed; the reader of these tests judges alone"
        );
        said.unwrap();
    }
    there
}
