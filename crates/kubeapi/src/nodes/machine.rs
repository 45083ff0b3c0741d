//! Which machine this is, by what kernel, image and firmware say of it, and whether a Node was reported by it.
//!
//! The boot tells machines apart for certain, once the kubelet has reported it: some seconds after the boot the Node still
//! has the one before, which is why it alone is no disagreement. The other two stay for the life of an installation and of
//! a main board; images made from one another may share them, and a kubelet in a container may see another `machine-id`
//! than the agents. So a Node is another machine's when its boot is another one, and not one of the other two agrees.
//! What is not known is no disagreement.
//! Source: Kubernetes API reference (`NodeSystemInfo`); google/cadvisor machine (where a kubelet has them from).

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::slim::NodeObject;

/// Where this machine says it, under the root. They are followed where they are links, as a kubelet does.
const MACHINE: &str = "etc/machine-id";
const SYSTEM: &str = "sys/class/dmi/id/product_uuid";
const BYTES: u64 = 128;

/// What tells a machine from others; a text that is empty is not known.
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
    /// Of this machine, in the boot `boot`. A text that cannot be read is not known.
    pub fn here(root: &Path, boot: &str) -> Self {
        let text = |path: &str| {
            let mut text = String::new();
            let read =
                File::open(root.join(path)).and_then(|file| file.take(BYTES).read_to_string(&mut text));
            read.map(|_| text.trim().to_owned()).unwrap_or_default()
        };
        Self { boot: boot.to_owned(), machine: text(MACHINE), system: text(SYSTEM) }
    }

    /// What the kubelet said last of its machine.
    pub fn reported(node: &NodeObject) -> Self {
        let info = node.status.as_ref().and_then(|it| it.node_info.as_ref());
        info.map_or_else(Self::default, |it| Self {
            boot: it.boot_id.clone(),
            machine: it.machine_id.clone(),
            system: it.system_uuid.clone(),
        })
    }

    /// Whether the two are certainly not one machine. What is not known is no disagreement.
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
