//! The identity of this machine, from kernel, image and firmware, and whether it reported a Node.
//!
//! The boot identity is certain once the kubelet has reported it: for some seconds after a boot the Node
//! still has the former one, so it alone is no disagreement. The other two last as long as an installation
//! and a main board; cloned images may share them, and a kubelet in a container may see another `machine-id`
//! than the agents. So a Node is another machine's when its boot differs and neither of the other two agrees.
//! Unknown values do not disagree. Source: Kubernetes API reference (`NodeSystemInfo`); google/cadvisor
//! machine (where a kubelet has them from).

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::slim::NodeObject;

/// Files of this machine, under the root. Links are followed, as a kubelet does.
const MACHINE: &str = "etc/machine-id";
const SYSTEM: &str = "sys/class/dmi/id/product_uuid";
const BYTES: u64 = 128;

/// Empty texts are unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineIds {
    /// The kernel's identity of this boot: `bootID`.
    pub boot: String,
    /// The identity of the installation, `/etc/machine-id`: `machineID`.
    pub machine: String,
    /// The identity of the board, by its firmware: `systemUUID`.
    pub system: String,
}

impl MachineIds {
    /// Of this machine in `boot`. Unreadable values are unknown.
    pub fn here(root: &Path, boot: &str) -> Self {
        let text = |path: &str| {
            let mut text = String::new();
            let read =
                File::open(root.join(path)).and_then(|file| file.take(BYTES).read_to_string(&mut text));
            read.map(|_| text.trim().to_owned()).unwrap_or_default()
        };
        Self { boot: boot.to_owned(), machine: text(MACHINE), system: text(SYSTEM) }
    }

    /// As the kubelet last reported.
    pub fn reported(node: &NodeObject) -> Self {
        let info = node.status.as_ref().and_then(|it| it.node_info.as_ref());
        info.map_or_else(Self::default, |it| Self {
            boot: it.boot_id.clone(),
            machine: it.machine_id.clone(),
            system: it.system_uuid.clone(),
        })
    }

    /// Whether they are certainly different machines.
    pub fn differs(&self, other: &Self) -> bool {
        let same = |one: &str, other: &str| {
            (!one.is_empty() && !other.is_empty()).then(|| one.eq_ignore_ascii_case(other))
        };
        let boot = same(&self.boot, &other.boot);
        let steady = [same(&self.machine, &other.machine), same(&self.system, &other.system)];
        boot == Some(false) && steady.contains(&Some(false)) && !steady.contains(&Some(true))
    }
}

impl fmt::Display for MachineIds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [("bootID", &self.boot), ("machineID", &self.machine), ("systemUUID", &self.system)];
        let known: Vec<String> =
            all.iter().filter(|(_, id)| !id.is_empty()).map(|(name, id)| format!("{name} {id}")).collect();
        out.write_str(&known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(boot: &str, machine: &str, system: &str) -> MachineIds {
        MachineIds { boot: boot.to_owned(), machine: machine.to_owned(), system: system.to_owned() }
    }

    #[test]
    fn t10_another_machine_is_one_of_another_boot_of_which_nothing_agrees() {
        let here = ids("b1", "m1", "S1");
        let rows = [
            ("the same", ids("b1", "m1", "s1"), false),
            ("not reported since the boot", ids("b0", "m1", "s1"), false),
            ("a kubelet in a container, after the boot", ids("b0", "m9", "s1"), false),
            ("another main board, after the boot", ids("b0", "m1", "s9"), false),
            ("a kubelet in a container, on a board without an identity", ids("b1", "m9", ""), false),
            ("another machine", ids("b9", "m9", "s9"), true),
            ("another machine, without firmware's word", ids("b9", "m9", ""), true),
            ("another machine, by firmware alone", ids("b9", "", "s9"), true),
            ("boots alone", ids("b9", "", ""), false),
            ("nothing is known", ids("", "", ""), false),
            ("the boot is not known", ids("", "m9", "s9"), false),
        ];
        for (what, other, differs) in rows {
            assert_eq!(here.differs(&other), differs, "{what}");
            assert_eq!(other.differs(&here), differs, "{what}");
        }
        assert_eq!(ids("b", "", "s").to_string(), "bootID b, systemUUID s");
    }

    #[test]
    fn what_this_machine_says_is_read_as_far_as_it_is_there() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(MachineIds::here(root.path(), "b"), ids("b", "", ""));
        std::fs::create_dir_all(root.path().join("etc")).unwrap();
        std::fs::create_dir_all(root.path().join("sys/class/dmi/id")).unwrap();
        for (path, text) in [("m", "4c0f\n"), (SYSTEM, "0A1B-2C\n")] {
            std::io::Write::write_all(&mut File::create(root.path().join(path)).unwrap(), text.as_bytes())
                .unwrap();
        }
        std::os::unix::fs::symlink("../m", root.path().join(MACHINE)).unwrap();
        assert_eq!(MachineIds::here(root.path(), "b"), ids("b", "4c0f", "0A1B-2C"));
    }
}
