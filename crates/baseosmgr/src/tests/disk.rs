//! Whole OS updates on the image of a disk with two partitions, booted by a boot loader that reads only the table, with
//! power cut off at every write on the way.

#[path = "../../../agent/src/partitions/tests/loader.rs"]
#[expect(unreachable_pub, reason = "the stage of the whole-system tests has it too")]
mod loader;

use std::collections::BTreeMap;
use std::io::Read as _;

use agent::partitions::PartitionsChoice;

use super::*;

/// As sgdisk makes it, with the layout of the reference: IMGA active, IMGB unused.
const DISK: &[u8] = include_bytes!("../../../agent/testdata/eve.img.gz");
const NEW: &str = "14.5.0-k-amd64";
const LABELS: [&str; 2] = ["IMGA", "IMGB"];
const IMAGE: &str = "persist/images/new";
/// Where IMGB is on the disk.
const IMGB: usize = 704 * 512;
/// Of [`content`].
const SHA256: &str = "7c843739479f0768cc43a7909050a98939f8b2fc5270f7b5348428974f5d3898";

/// What outlives a power cut: the disk and the persistent files.
#[derive(Clone, PartialEq)]
struct Left {
    disk: Vec<u8>,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Device {
    /// A device whose partitions are on a disk; nothing runs yet.
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

    /// The boot loader, the kernel and the image do their part; then the agent starts. Returns what runs.
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

    /// The controller wants the image, and volumemgr has it.
    fn ask(&self) {
        self.want();
        let tree = ContentTreeStatus {
            file_location: format!("/{IMAGE}"),
            content_sha256: SHA256.to_owned(),
            max_download_size: content().len() as u64,
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

    /// The power fails: the agent ends, and this is what is left.
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

    /// From wherever it is to the new image, and no way may end anywhere else.
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

fn content() -> Vec<u8> {
    (0..50_000_u32).flat_map(u32::to_le_bytes).collect()
}

/// The disk after each sector by which `after` differs from `before`, in the order in which a table is written: header
/// and entries of the backup copy, header and entries of the primary one.
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
    let failed = |it: &BaseOsStatus| it.error.contains("kernel panic");
    let status = device.until::<BaseOsStatus>("baseosmgr", KEY, failed).await;
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

    // While the image is written: no head, half of it, all but the head, all but the note of it.
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
