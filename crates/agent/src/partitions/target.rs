//! Where the bytes of one image partition are, and that nobody uses them while they are written.
//!
//! Not here: what is written.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, major, minor};

/// The first sector of an image, which a disk writes whole or not at all: without it no kernel finds a file system in a
/// partition. It is written last.
pub(super) const HEAD_BYTES: usize = 512;

/// A partition as a device of its own, or as a part of a disk image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) path: PathBuf,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl Target {
    /// What other parts of the system call it.
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

    /// Whether it is a device, which the kernel can mount.
    pub(super) fn is_device(&self) -> io::Result<bool> {
        Ok(self.path.metadata()?.file_type().is_block_device())
    }

    /// Opens it to be written by nobody else; `mounts` is the kernel's list of mounts.
    pub(super) fn open(&self, mounts: &Path) -> Result<File, String> {
        let shown = self.path.display();
        let told = |cause: io::Error| format!("{shown}: {cause}");
        let about = self.path.metadata().map_err(told)?;
        let mut options = OpenOptions::new();
        options.write(true);
        if about.file_type().is_block_device() {
            // A list that cannot be read is no proof that nothing is mounted.
            let list = std::fs::read_to_string(mounts);
            let list = list.map_err(|cause| format!("{}: {cause}", mounts.display()))?;
            if let Some(place) = mounted(&list, (major(about.rdev()), minor(about.rdev()))) {
                return Err(format!("{shown} is mounted at {place}; type umount {place}"));
            }
            // The kernel refuses a device that is mounted in any namespace, or is part of another one.
            options.custom_flags(OFlags::EXCL.bits().cast_signed());
        }
        options.open(&self.path).map_err(|cause| {
            if cause.kind() == io::ErrorKind::ResourceBusy {
                format!("{shown} is in use: mounted in another namespace, or part of another device")
            } else {
                told(cause)
            }
        })
    }
}

/// Where the device with these numbers is mounted. Third and fifth field of a line, see proc_pid_mountinfo(5).
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
    fn a_mounted_device_is_known_by_its_numbers() {
        let list = "22 27 0:21 / /proc rw - proc proc rw\n31 27 8:3 / /mnt/other\\040one ro - squashfs /dev/sda3 ro\n";
        assert_eq!(mounted(list, (8, 3)), Some("/mnt/other\\040one"));
        assert_eq!(mounted(list, (8, 33)), None);
    }
}
