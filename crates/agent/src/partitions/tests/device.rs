//! Real block devices, where this machine lets a test have one: a loop device that holds a squashfs.

use std::io::Write as _;
use std::process::Command;

use super::*;

/// Made by mksquashfs, with 2.5.0-k-amd64 in its etc/eve-release.
pub(super) const SQUASHFS: &[u8] = include_bytes!("../../../testdata/image.squashfs.gz");

/// IMGB as a loop device, reached by a program.
struct Loop {
    machine: Machine,
    device: String,
    image: PathBuf,
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["-d", &self.device]).unwrap();
    }
}

fn run(program: &str, words: &[&str]) -> Result<String, String> {
    let out = Command::new(program).args(words).output().map_err(|cause| format!("{program}: {cause}"))?;
    let said = String::from_utf8_lossy(if out.status.success() { &out.stdout } else { &out.stderr });
    let said = said.trim().to_owned();
    if out.status.success() { Ok(said) } else { Err(format!("{program} {}: {said}", words.join(" "))) }
}

impl Loop {
    /// `None` where no loop device can be had or no squashfs be mounted, and that is said.
    fn new() -> Option<Self> {
        let machine = Machine::new();
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(SQUASHFS).read_to_end(&mut bytes).unwrap();
        let image = machine.put("new.squashfs", &bytes);
        let place = machine.dir.path().join("try");
        std::fs::create_dir_all(&place).unwrap();
        let (file, at) = (image.to_str().unwrap(), place.to_str().unwrap());
        let tried = run("mount", &["-o", "loop,ro", "-t", "squashfs", file, at])
            .and_then(|_| run("umount", &[at]))
            .and_then(|_| {
                let part = machine.put("part", &vec![0; usize::try_from(PART_BYTES).unwrap()]);
                run("losetup", &["-f", "--show", part.to_str().unwrap()])
            });
        let device = match tried {
            Ok(device) => device,
            Err(why) => {
                writeln!(std::io::stderr(), "not tried on a block device: {why}").unwrap();
                return None;
            }
        };
        // The kernel's own list.
        std::fs::create_dir_all(machine.dir.path().join("proc/self")).unwrap();
        std::os::unix::fs::symlink("/proc/self/mountinfo", machine.dir.path().join("proc/self/mountinfo"))
            .unwrap();
        machine.program(&format!(
            "case $1 in curpart) echo IMGA ;; partdev) echo {device} ;; partdevsize) echo {PART_BYTES} ;; \
             partstate) [ $2 = IMGA ] && echo active || cat $here/state 2>/dev/null || echo unused ;; \
             set_partstate) echo $3 >$here/state ;; esac"
        ));
        Some(Self { machine, device, image })
    }

    fn store(&self) -> ExecStore {
        ExecStore::new(&self.machine.topic_root, &self.machine.dir.path().join("program"))
    }

    async fn write(&self) -> Result<String, String> {
        let image = image(Bytes::Path(self.image.clone()));
        self.store().write_image(Label::B, image, nobody()).await.map_err(|cause| step::chain(&cause))
    }
}

#[tokio::test]
async fn the_version_of_the_other_partition_is_read_from_its_squashfs() {
    let Some(device) = Loop::new() else { return };
    let spare = device.store().read().await.unwrap().spare().clone();
    assert_eq!(spare.short_version, "", "an empty partition has no version");
    // Its own, not the one that was wanted.
    assert_eq!(device.write().await.unwrap(), "2.5.0-k-amd64");
    let spare = device.store().read().await.unwrap().spare().clone();
    assert_eq!((spare.short_version.as_str(), spare.content.as_str()), ("2.5.0-k-amd64", "tree#0"));
    // Somebody else has written it.
    std::fs::remove_file(device.machine.topic_root.path("persist/partitions/IMGB.json")).unwrap();
    let spare = device.store().read().await.unwrap().spare().clone();
    assert_eq!((spare.short_version.as_str(), spare.content.as_str()), ("2.5.0-k-amd64", ""));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(device.machine.dir.path().to_str().unwrap()), "left mounted: {mounts}");
}

#[tokio::test]
async fn b3_a_partition_that_is_mounted_or_in_use_is_not_written() {
    let Some(device) = Loop::new() else { return };
    device.write().await.unwrap();
    let place = device.machine.dir.path().join("mounted");
    std::fs::create_dir_all(&place).unwrap();
    let at = place.to_str().unwrap().to_owned();
    run("mount", &["-t", "squashfs", &device.device, &at]).unwrap();
    let before = std::fs::read(&device.device).unwrap();
    let refused = device.write().await.unwrap_err();
    // Where the list does not name it, as for a mount of another namespace, the kernel refuses it.
    let list = device.machine.dir.path().join("proc/self/mountinfo");
    std::fs::remove_file(&list).unwrap();
    let unreadable = device.write().await.unwrap_err();
    device.machine.put("proc/self/mountinfo", b"");
    let in_use = device.write().await.unwrap_err();
    assert_eq!(std::fs::read(&device.device).unwrap(), before);
    run("umount", &[&at]).unwrap();
    assert!(refused.contains(&format!("is mounted at {at}; type umount {at}")), "{refused}");
    assert!(unreadable.contains("mountinfo: No such file"), "{unreadable}");
    assert!(in_use.contains("is in use"), "{in_use}");
    device.write().await.unwrap();
}

#[tokio::test]
async fn an_image_without_a_file_system_has_no_version() {
    let Some(device) = Loop::new() else { return };
    let image = image(Bytes::Path(device.machine.put("junk", &root_fs(vec![7; 9000]))));
    let refused = device.store().write_image(Label::B, image, nobody()).await.unwrap_err().to_string();
    assert!(refused.contains("no squashfs can be mounted"), "{refused}");
    assert_eq!(device.store().read().await.unwrap().spare().short_version, "");
}
