//! The place of one image partition, and the proof that no other program uses it during a write.
//!
//! Not here: what is written.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{OFlags, major, minor};

/// The first sector of an image, written last and atomically: without it no kernel finds a file system in the
/// partition.
pub(super) const HEAD_BYTES: usize = 512;

/// Tries, and their pause, for a busy device.
const TRIES: u32 = 10;
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// A device of its own, or a part of a disk image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PartitionTarget {
    pub(super) path: PathBuf,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl PartitionTarget {
    /// For display.
    pub(super) fn device(&self) -> String {
        self.path.display().to_string()
    }

    /// Its first bytes, fewer where it is shorter.
    pub(super) fn head(&self) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.bytes).unwrap_or(HEAD_BYTES).min(HEAD_BYTES);
        let mut head = vec![0; length];
        File::open(&self.path)?.read_exact_at(&mut head, self.offset)?;
        Ok(head)
    }

    pub(super) fn is_device(&self) -> io::Result<bool> {
        Ok(self.path.metadata()?.file_type().is_block_device())
    }

    /// Opens it exclusively for writing; `mounts` is the kernel's list of mounts.
    pub(super) fn open(&self, mounts: &Path) -> Result<File, String> {
        let shown = self.path.display();
        let told = |cause: io::Error| format!("{shown}: {cause}");
        let about = self.path.metadata().map_err(told)?;
        let mut options = OpenOptions::new();
        options.write(true);
        if about.file_type().is_block_device() {
            // An unreadable list is no proof that nothing is mounted.
            let list = std::fs::read_to_string(mounts);
            let list = list.map_err(|cause| format!("{}: {cause}", mounts.display()))?;
            if let Some(place) = mounted(&list, (major(about.rdev()), minor(about.rdev()))) {
                return Err(format!("{shown} is mounted at {place}; type umount {place}"));
            }
            // The kernel refuses a device that is mounted in any namespace, or is part of another one.
            options.custom_flags(OFlags::EXCL.bits().cast_signed());
        }
        when_free(PAUSE, || options.open(&self.path)).map_err(|cause| {
            if cause.kind() == io::ErrorKind::ResourceBusy {
                format!("{shown} is in use: mounted in another namespace, or part of another device")
            } else {
                told(cause)
            }
        })
    }
}

/// Repeats `ask` while the device is busy. A process that is being started holds its parent's files until it
/// runs its program, so a device can be busy for a moment after it was closed.
pub(super) fn when_free<T>(pause: Duration, mut ask: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..TRIES {
        match ask() {
            Err(cause) if cause.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(pause),
            answer => return answer,
        }
    }
    ask()
}

/// Where the device is mounted: third and fifth field of a line, see proc_pid_mountinfo(5).
fn mounted(list: &str, (major, minor): (u32, u32)) -> Option<&str> {
    let device = format!("{major}:{minor}");
    list.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        (fields.next() == Some(device.as_str())).then(|| fields.nth(1).unwrap_or("an unknown place"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_busy_for_a_moment_is_asked_for_again_and_one_that_stays_so_is_refused() {
        let asked = |free_at: u32, otherwise: io::ErrorKind| {
            let mut tries = 0;
            let answer = when_free(Duration::ZERO, || {
                tries += 1;
                if tries == free_at { Ok(()) } else { Err(io::Error::from(otherwise)) }
            });
            (answer.map_err(|cause| cause.kind()), tries)
        };
        assert_eq!(asked(3, io::ErrorKind::ResourceBusy), (Ok(()), 3));
        assert_eq!(asked(TRIES, io::ErrorKind::ResourceBusy), (Ok(()), TRIES));
        assert_eq!(asked(0, io::ErrorKind::ResourceBusy), (Err(io::ErrorKind::ResourceBusy), TRIES));
        assert_eq!(asked(3, io::ErrorKind::NotFound), (Err(io::ErrorKind::NotFound), 1));
    }

    #[test]
    fn a_mounted_device_is_known_by_its_numbers() {
        let list = "22 27 0:21 / /proc rw - proc proc rw\n31 27 8:3 / /mnt/other\\040one ro - squashfs /dev/sda3 ro\n";
        assert_eq!(mounted(list, (8, 3)), Some("/mnt/other\\040one"));
        assert_eq!(mounted(list, (8, 33)), None);
    }
}
