//! Volume groups of guests that this machine has activated: a host that holds them open keeps the volume attached, and its
//! machine from migrating.
//!
//! Read from sysfs: a device of LVM (`dm/uuid`) that lies on a disk of Longhorn, which shows its maker's model. Disks of
//! Longhorn's second engine show none, and are not seen. Blocks on sysfs alone. Source: seed row 0-18; Documentation/ABI/testing/sysfs-block-dm of Linux; tgt's SCSI inquiry.

use std::path::Path;
use std::{fs, io};

use kubeapi::names::listed;

use crate::finding::unreadable;
use crate::{Finding, Severity};

const BLOCK: &str = "sys/class/block";
/// What the iSCSI target of Longhorn's engine calls its disks.
const MODEL: &str = "VIRTUAL-DISK";
/// LVM on encryption on a path: no device lies on more.
const DEEPEST: u32 = 4;

/// Volumes of LVM on disks of Longhorn; code `lvm`. Where there is no sysfs there are none.
pub(crate) fn look(root: &Path) -> Option<Finding> {
    let devices = match names(&root.join(BLOCK)) {
        Ok(devices) => devices,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            return Some(unreadable("lvm", &format!("{}: {error}", root.join(BLOCK).display())));
        }
    };
    let all = devices.into_iter().filter_map(|device| {
        let at = root.join(BLOCK).join(&device);
        let lvm = text(&at.join("dm/uuid")).starts_with("LVM-");
        let disk = lvm.then(|| guest_disk(root, &device, DEEPEST)).flatten()?;
        Some((text(&at.join("dm/name")), disk))
    });
    let all: Vec<(String, String)> = all.collect();
    let (first, _) = all.first()?;
    let shown: Vec<String> = all.iter().map(|(name, disk)| format!("{name} on {disk}")).collect();
    let text = format!(
        "LVM volumes that look like those of guests are active on this machine, so that these guests cannot migrate: {}",
        listed(&shown, ", ")
    );
    let next = format!(
        "if lsblk shows no mount point of them here: vgchange -an {}, and have LVM leave such disks alone: global_filter = [ \"r|/dev/longhorn/|\", \"r|/dev/disk/by-path/.*iscsi.*longhorn.*|\" ] \
         in /etc/lvm/lvm.conf",
        group(first)
    );
    Some(Finding::new("lvm", text, next).with(Severity::Warns))
}

/// The disk of Longhorn below a device.
fn guest_disk(root: &Path, device: &str, deep: u32) -> Option<String> {
    let at = fs::canonicalize(root.join(BLOCK).join(device)).ok()?;
    // A partition is a folder of its disk.
    let model =
        [Some(at.as_path()), at.parent()].into_iter().flatten().map(|it| text(&it.join("device/model")));
    if model.into_iter().any(|it| it == MODEL) {
        return Some(device.to_owned());
    }
    // A disk lies on nothing, and a partition has no such folder.
    let below = names(&at.join("slaves")).unwrap_or_default().into_iter();
    below.filter(|_| deep > 0).find_map(|it| guest_disk(root, &it, deep - 1))
}

/// `vm--data` of `vm--data-root`: a hyphen of a name is written twice.
fn group(name: &str) -> String {
    let name = name.replace("--", "\0");
    name.split('-').next().unwrap_or_default().replace('\0', "-")
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let all = fs::read_dir(folder)?.map(|it| Ok(it?.file_name().to_string_lossy().into_owned()));
    let mut all = all.collect::<io::Result<Vec<String>>>()?;
    all.sort();
    Ok(all)
}

/// A member of sysfs without its newline, empty where a device has none.
fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}
