//! Whole OS updates on the image of a disk with two partitions, booted by a boot loader that reads only the
//! table, with power cuts at every write.

#[path = "../../../agent/src/partitions/tests/loader.rs"]
#[expect(unreachable_pub, reason = "the stage of the whole-system tests has it too")]
mod loader;

use std::collections::BTreeMap;
use std::io::Read as _;

use super::*;

/// As sgdisk makes it, with the layout of the reference: IMGA active, IMGB unused.
const DISK: &[u8] = include_bytes!("../../../agent/testdata/eve.img.gz");
const NEW: &str = "14.5.0-k-amd64";
const LABELS: [&str; 2] = ["IMGA", "IMGB"];
const IMAGE: &str = "persist/images/new";
const IMGB: usize = 704 * 512;
const SHA256: &str = "621ad827e2c08b08f2495aac59271e857c04227751b1d1ae3874ed971b43e784";

/// What survives a power cut: the disk and the persistent files.
#[derive(Clone, PartialEq)]
struct Left {
    disk: Vec<u8>,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Device {
    fn with_disk() -> Self {
        let mut device = Self::at_rest();
        let mut disk = Vec::new();
        flate2::read::GzDecoder::new(DISK).read_to_end(&mut disk).unwrap();
        store::replace(&device.disk(), &disk).unwrap();
        store::replace(&device.topic_root.path(IMAGE), &content()).unwrap();
        device.partitions = PartitionsChoice::Gpt(device.disk());
        device
    }

    fn disk(&self) -> PathBuf {
        self.dir.path().join("disk.img")
    }

    /// Boot loader, kernel and image start; then the agent. Returns the running version.
    fn power_on(&mut self) -> String {
        let run = self.dir.path().join("run");
        if run.exists() {
            std::fs::remove_dir_all(run).unwrap();
        }
        let mut disk = std::fs::read(self.disk()).unwrap();
        let booted = loader::boot(&mut disk).expect("the boot loader finds nothing to boot");
        store::replace(&self.disk(), &disk).unwrap();
        let line = format!("quiet root=PARTUUID={} rootdelay=3\n", booted.partuuid);
        store::replace(&self.topic_root.path("proc/cmdline"), line.as_bytes()).unwrap();
        let version = if booted.label == "IMGA" { OLD } else { NEW };
        store::replace(&self.topic_root.path("run/eve-release"), version.as_bytes()).unwrap();
        self.boots += 1;
        self.cluster();
        self.ask();
        self.start();
        booted.label
    }

    fn ask(&self) {
        self.want();
        let tree = ContentTreeStatus {
            file_location: format!("/{IMAGE}"),
            content_sha256: SHA256.to_owned(),
            ..sample("loaded")
        };
        self.put("volumemgr", KEY, &tree);
    }

    fn left(&self) -> Left {
        let mut files = BTreeMap::new();
        let mut open = vec![self.dir.path().join("persist")];
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    drop(files.insert(path.clone(), std::fs::read(path).unwrap()));
                }
            }
        }
        Left { disk: std::fs::read(self.disk()).unwrap(), files }
    }

    async fn power_off(&mut self, left: &Left) {
        if self.agent.is_some() {
            self.kill().await;
        }
        std::fs::remove_dir_all(self.dir.path().join("persist")).unwrap();
        for (path, bytes) in &left.files {
            store::replace(path, bytes).unwrap();
        }
        store::replace(&self.disk(), &left.disk).unwrap();
    }

    fn words(&self) -> [usize; 2] {
        loader::words(&std::fs::read(self.disk()).unwrap(), LABELS).expect("no table")
    }

    async fn until_updating(&self) {
        self.answer(DrainStatus::Complete).await;
        self.until::<ZbootStatus>("baseosmgr", "IMGB", |it| it.partition_state == "updating").await;
        assert_eq!(self.words(), [0x102, 0x13]);
    }

    async fn until_marked(&self) {
        self.until::<ZbootStatus>("baseosmgr", "IMGB", |it| it.partition_state == "inprogress").await;
        self.put("nodeagent", "IMGB", &sample::<ZbootConfig>("imgb-testcomplete"));
        self.until::<ZbootStatus>("baseosmgr", "IMGB", |it| it.partition_state == "active").await;
        assert_eq!(self.words(), [0, 0x102]);
    }

    async fn until_done(&self) {
        let done = |it: &BaseOsStatus| it.activated && it.state == SwState::Installed && it.error.is_empty();
        let status = self.until::<BaseOsStatus>("baseosmgr", KEY, done).await;
        assert_eq!((status.base_os_version.as_str(), status.partition_label.as_str()), (NEW, "IMGB"));
    }

    /// From any state to the new image, with no other end.
    async fn until_the_end(&mut self, running: &str) {
        if running == "IMGA" {
            self.until_updating().await;
            let status = self.until::<BaseOsStatus>("baseosmgr", KEY, |_| true).await;
            assert!(!status.activated, "done before it was booted");
            self.kill().await;
            assert_eq!(self.power_on(), "IMGB");
        }
        if self.words()[1] != 0x102 {
            self.until_marked().await;
        }
        self.until_done().await;
        assert!(loader::is_primary_whole(&std::fs::read(self.disk()).unwrap()));
        assert_eq!(std::fs::read(self.disk()).unwrap()[IMGB..][..content().len()], content());
    }
}

/// Bytes with the superblock of a squashfs in front.
fn content() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..50_000_u32).flat_map(u32::to_le_bytes).collect();
    let length = bytes.len() as u64;
    bytes[..96].fill(0);
    for (at, field) in [(0, b"hsqs".as_slice()), (12, &[0, 0, 2, 0]), (22, &[17]), (28, &[4])] {
        bytes[at..at + field.len()].copy_from_slice(field);
    }
    for (at, value) in [(40, length), (48, length - 1), (64, length - 1), (72, length - 1)] {
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// The disk after each sector that differs between `before` and `after`, in the order of a table's writes:
/// header and entries of the backup copy, header and entries of the primary one.
fn cuts(before: &Left, after: &Left) -> Vec<Left> {
    let last = before.disk.len() / 512 - 1;
    let order = [last..last + 1, last - 32..last, 1..2, 2..34];
    let mut disk = before.disk.clone();
    let mut all = vec![before.clone()];
    for sector in order.into_iter().flatten().map(|nth| nth * 512..(nth + 1) * 512) {
        if disk[sector.clone()] != after.disk[sector.clone()] {
            disk[sector.clone()].copy_from_slice(&after.disk[sector]);
            all.push(Left { disk: disk.clone(), files: before.files.clone() });
        }
    }
    assert_eq!(all.last().unwrap().disk, after.disk, "something else was written");
    all
}

#[tokio::test]
async fn b4_an_update_on_a_disk_goes_its_whole_way_and_is_done_once_it_was_booted() {
    let mut device = Device::with_disk();
    assert_eq!(device.power_on(), "IMGA");
    let request = device.until::<NodeDrainRequest>("baseosmgr", "global", |_| true).await;
    assert_eq!(request.context, KEY);
    assert_eq!(device.words(), [0x102, 0], "nothing is switched before the drain");
    device.until_the_end("IMGA").await;
    device.kill().await;
    assert_eq!(device.power_on(), "IMGB");
    device.until_done().await;
}

#[tokio::test]
async fn t8_for_what_is_no_root_file_system_nothing_is_written_or_asked_for_and_the_right_image_goes_ahead_at_once()
 {
    let half = content()[..content().len() / 2].to_vec();
    for bytes in [b"x".to_vec(), b"<html>404 Not Found</html>".to_vec(), vec![0; 9000], half] {
        let mut device = Device::with_disk();
        store::replace(&device.topic_root.path(IMAGE), &bytes).unwrap();
        device.limits.again_first_ms = 3_600_000;
        device.limits.again_longest_ms = 3_600_000;
        let before = std::fs::read(device.disk()).unwrap();
        device.power_on();
        let tree = ContentTreeStatus { file_location: format!("/{IMAGE}"), ..sample("loaded") };
        device.put("volumemgr", KEY, &tree);
        let why = |it: &BaseOsStatus| {
            ["no root file system", "is cut off"].iter().any(|why| it.error.contains(why))
        };
        device.until::<BaseOsStatus>("baseosmgr", KEY, why).await;
        assert!(!device.file::<NodeDrainRequest>("global").exists());
        assert_eq!(std::fs::read(device.disk()).unwrap(), before);
        store::replace(&device.topic_root.path(IMAGE), &content()).unwrap();
        device.ask();
        device.until::<NodeDrainRequest>("baseosmgr", "global", |_| true).await;
    }
}

#[tokio::test]
async fn t8_of_what_may_be_downloaded_only_the_root_counts_against_its_partition() {
    let mut device = Device::with_disk();
    device.power_on();
    device.want();
    // 512 MiB, and IMGB has 256 KiB.
    let mut tree: serde_json::Value =
        serde_json::from_slice(&golden("ContentTreeStatus/loaded.json")).unwrap();
    assert_eq!(tree["MaxDownloadSize"], 512 << 20);
    tree["FileLocation"] = format!("/{IMAGE}").into();
    let path =
        wire::name::<ContentTreeStatus>("volumemgr").dir(device.dir.path()).join(format!("{KEY}.json"));
    store::replace(&path, tree.to_string().as_bytes()).unwrap();
    device.until_the_end("IMGA").await;
}

#[tokio::test]
async fn t8_the_image_of_a_larger_disk_shows_its_partitions_and_its_update_the_command() {
    let mut device = Device::with_disk();
    let short = std::fs::read(device.disk()).unwrap()[..3000 * 512].to_vec();
    store::replace(&device.disk(), &short).unwrap();
    device.power_on();
    device.until::<ZbootStatus>("baseosmgr", "IMGA", |it| it.partition_state == "active").await;
    let command = format!("type sgdisk -e {}", device.disk().display());
    device.until::<BaseOsStatus>("baseosmgr", KEY, |it| it.error.contains(&command)).await;
    assert!(!device.file::<NodeDrainRequest>("global").exists());
    assert_eq!(std::fs::read(device.disk()).unwrap(), short);
}

#[tokio::test]
async fn b4_an_image_that_does_not_pass_falls_back_and_is_reported_with_its_reason() {
    let mut device = Device::with_disk();
    device.power_on();
    device.until_updating().await;
    device.kill().await;
    assert_eq!(device.power_on(), "IMGB");
    device.until::<ZbootStatus>("baseosmgr", "IMGB", |it| it.partition_state == "inprogress").await;
    device.kill().await;
    assert_eq!(device.power_on(), "IMGA", "its only try is used up");
    let reason = NodeAgentStatus {
        reboot_reason: "kernel panic".to_owned(),
        reboot_image: "IMGB".to_owned(),
        ..NodeAgentStatus::default()
    };
    device.put("nodeagent", "nodeagent", &reason);
    let (failed, told) = (|it: &BaseOsStatus| it.error.contains("kernel panic"), device.clock.now());
    let status = device.until::<BaseOsStatus>("baseosmgr", KEY, failed).await;
    assert!(device.clock.now().since(told) < Duration::from_mins(1));
    assert_eq!((status.activated, status.state), (false, SwState::Downloaded));
    assert_eq!(device.words(), [0x102, 0x3], "nobody switches to it again");
    // The controller asks for another try.
    device.put("zedagent", KEY, &BaseOsConfig { retry_update_counter: 1, ..sample("activate") });
    device.until_the_end("IMGA").await;
}

#[tokio::test]
async fn b1_power_cut_off_at_any_write_of_an_update_ends_in_the_new_image_or_in_a_reported_fallback() {
    let mut device = Device::with_disk();
    device.power_on();
    device.until::<NodeDrainRequest>("baseosmgr", "global", |_| true).await;
    let written = device.left();
    device.until_updating().await;
    let switched = device.left();
    device.kill().await;
    device.power_on();
    device.until::<ZbootStatus>("baseosmgr", "IMGB", |it| it.partition_state == "inprogress").await;
    let in_test = device.left();
    device.until_marked().await;
    let marked = device.left();

    // While the image is written: no head, half of it, all but the head, all but its note.
    let note = device.topic_root.path("persist/partitions/IMGB.json");
    for (head, length) in [(false, 512), (false, 100_000), (false, content().len()), (true, content().len())]
    {
        let mut left = written.clone();
        assert!(left.files.remove(&note).is_some());
        left.disk[IMGB + length..][..content().len() - length].fill(0);
        if !head {
            left.disk[IMGB..][..512].fill(0);
        }
        device.power_off(&left).await;
        assert_eq!(device.power_on(), "IMGA");
        device.until_the_end("IMGA").await;
    }
    let mut cut = 0;
    for left in cuts(&written, &switched) {
        device.power_off(&left).await;
        let running = device.power_on();
        device.until_the_end(&running).await;
        cut += 1;
    }
    for left in cuts(&in_test, &marked) {
        device.power_off(&left).await;
        let running = device.power_on();
        if running == "IMGA" {
            // The mark was not made before the cut, and its only try is used up.
            let failed = |it: &BaseOsStatus| it.error.contains("was booted before and did not pass its test");
            let status = device.until::<BaseOsStatus>("baseosmgr", KEY, failed).await;
            assert!(!status.activated);
        } else {
            device.until_the_end(&running).await;
        }
        cut += 1;
    }
    assert_eq!(cut, 10);
}
