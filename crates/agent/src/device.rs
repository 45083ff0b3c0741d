//! The seam to the machine: reboot, shutdown, power off, sync, and the identity of this boot.
//!
//! `record` is the default and only writes under the root what it would have done; the others must be named,
//! so that no test and no demo can take its machine down.

pub mod hooks;
mod inhibit;
pub mod program;

use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;

use pubsub::{TopicRoot, store};
use serde::{Deserialize, Serialize};

pub use program::{HV_TYPE, ImageKind};

use crate::{Clock, Error};

/// Recorded operations, under the root. It survives a simulated reboot.
pub const RECORD: &str = "persist/device/recorded.jsonl";
/// Boot identity of the recorded device, under the root. It goes with `/run`.
pub const RECORDED_BOOT_ID: &str = "run/device/boot-id";
const KERNEL_BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const RECORD_LINES: usize = 100;
const ANY_MAY_RUN: u32 = 0o111;
const RECORD_BYTES: u64 = 1 << 20;

/// What can be done to the machine. Calls are short, except `sync`; the machine goes down some time after
/// they return.
pub trait Device: Send + Sync {
    /// Asks for it; `why` goes to the machine's log. A shutdown reports that all applications are down and the disks are
    /// clean; power stays on.
    fn operate(&self, operation: MachineOperation, why: &str) -> Result<(), Error>;
    fn sync(&self) -> Result<(), Error>;
    /// Blocks or allows others to take the machine down, where the machine can; these agents are never
    /// blocked. May take some seconds.
    fn hold_others(&self, _holds: bool) {}
}

/// As given on the command line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// `record`: write down what would have been done.
    #[default]
    Record,
    /// `systemd`: `systemctl reboot`, `systemctl poweroff`.
    Systemd,
    /// `exec:PROGRAM`: an absolute path, called as `PROGRAM reboot|shutdown|poweroff REASON`.
    Exec(PathBuf),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.strip_prefix("exec:")) {
            ("record", _) => Ok(Self::Record),
            ("systemd", _) => Ok(Self::Systemd),
            (_, Some(program)) if program.starts_with('/') => Ok(Self::Exec(PathBuf::from(program))),
            (_, Some(program)) => Err(format!("exec: needs an absolute path, not `{program}`")),
            (_, None) => Err(format!("`{text}` is no device; use record, systemd or exec:/path/to/program")),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record => out.write_str("record"),
            Self::Systemd => out.write_str("systemd"),
            Self::Exec(program) => write!(out, "exec:{}", program.display()),
        }
    }
}

impl DeviceChoice {
    pub fn open(&self, topic_root: &TopicRoot, clock: Clock) -> Box<dyn Device> {
        match self {
            Self::Record => Box::new(RecordingDevice { topic_root: topic_root.clone(), clock }),
            Self::Systemd => {
                let programs = Programs { by: self.to_string(), command: systemctl };
                Box::new(inhibit::Systemd::new(programs, systemctl_path()))
            }
            Self::Exec(program) => {
                let program = program.clone();
                Box::new(Programs {
                    by: self.to_string(),
                    command: move |operation: MachineOperation, why: &str| {
                        Some((program.clone(), vec![operation.word().to_owned(), why.to_owned()]))
                    },
                })
            }
        }
    }

    /// The kernel's, or for the recorded device one that lives as long as `/run`.
    pub fn boot_id(&self, topic_root: &TopicRoot) -> Result<String, Error> {
        match self {
            Self::Record => recorded_boot_id(topic_root),
            Self::Systemd | Self::Exec(_) => kernel_boot_id(),
        }
    }

    /// Whether the program that takes the machine down exists, so that a fault shows at the start.
    pub fn check(&self) -> Result<(), Error> {
        let refuse =
            |reason: String| Error::Device { operation: "any operation", by: self.to_string(), reason };
        let program = match self {
            Self::Record => return Ok(()),
            Self::Systemd => systemctl_path(),
            Self::Exec(program) => program.clone(),
        };
        let shown = program.display();
        let seen = std::fs::metadata(&program).map_err(|cause| {
            refuse(format!("{shown} cannot be looked at: {cause}; put the program there"))
        })?;
        if !seen.is_file() || seen.permissions().mode() & ANY_MAY_RUN == 0 {
            return Err(refuse(format!("{shown} is no program; chmod 755 {shown}")));
        }
        Ok(())
    }
}

pub fn kernel_boot_id() -> Result<String, Error> {
    let path = PathBuf::from(KERNEL_BOOT_ID);
    // The kernel's file has no length, so the store cannot read it.
    let id = std::fs::read_to_string(&path).map_err(|source| Error::Read { path, source })?;
    Ok(id.trim().to_owned())
}

/// Agents in processes of their own may ask at the same moment: the first answer counts for all.
fn recorded_boot_id(topic_root: &TopicRoot) -> Result<String, Error> {
    let path = topic_root.path(RECORDED_BOOT_ID);
    let failed = || Error::pubsub(RECORDED_BOOT_ID);
    store::create(&path, uuid::Uuid::new_v4().to_string().as_bytes()).map_err(failed())?;
    let held = store::read(&path, RECORD_BYTES).map_err(failed())?.unwrap_or_default();
    match String::from_utf8_lossy(&held).trim() {
        "" => Err(Error::Effect {
            doing: "learn the identity of this boot",
            reason: format!("{RECORDED_BOOT_ID} is empty; remove it"),
        }),
        known => Ok(known.to_owned()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineOperation {
    Reboot,
    /// Applications down, power on.
    Shutdown,
    Poweroff,
}

impl MachineOperation {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reboot => "reboot",
            Self::Shutdown => "shutdown",
            Self::Poweroff => "poweroff",
        }
    }
}

/// One line of [`RECORD`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Recorded {
    /// RFC 3339, by the wall clock.
    pub at: String,
    pub operation: MachineOperation,
    pub reason: String,
    /// The boot in which it would have been done.
    #[serde(rename = "BootID")]
    pub boot_id: String,
}

/// Operations recorded under this root, oldest first.
pub fn recorded(topic_root: &TopicRoot) -> Result<Vec<Recorded>, Error> {
    let path = topic_root.path(RECORD);
    let bytes = store::read(&path, RECORD_BYTES).map_err(Error::pubsub(RECORD))?.unwrap_or_default();
    let parse = |line: &str| {
        serde_json::from_str(line).map_err(|source| Error::Effect {
            doing: "read the recorded operations",
            reason: format!("{RECORD}: {source}"),
        })
    };
    String::from_utf8_lossy(&bytes).lines().filter(|line| !line.is_empty()).map(parse).collect()
}

struct RecordingDevice {
    topic_root: TopicRoot,
    clock: Clock,
}

impl Device for RecordingDevice {
    fn operate(&self, operation: MachineOperation, why: &str) -> Result<(), Error> {
        let boot_id = DeviceChoice::Record.boot_id(&self.topic_root)?;
        let line = Recorded { at: self.clock.wall().rfc3339(), operation, reason: why.to_owned(), boot_id };
        let line = serde_json::to_string(&line)
            .map_err(|source| Error::Effect { doing: "record an operation", reason: source.to_string() })?;
        // Earlier lines stay as they are: a spoilt one must not prevent this note.
        let held = store::read(&self.topic_root.path(RECORD), RECORD_BYTES).map_err(Error::pubsub(RECORD))?;
        let held = held.unwrap_or_default();
        let held = String::from_utf8_lossy(&held);
        let mut lines: Vec<&str> = held.lines().filter(|it| !it.is_empty()).collect();
        lines.push(&line);
        let mut text = lines.split_off(lines.len().saturating_sub(RECORD_LINES)).join("\n");
        text.push('\n');
        store::replace(&self.topic_root.path(RECORD), text.as_bytes()).map_err(Error::pubsub(RECORD))
    }

    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Runs a program for each operation; `command` gives it, or `None` where there is nothing to run.
struct Programs<C> {
    by: String,
    command: C,
}

type CommandLine = (PathBuf, Vec<String>);

/// An absolute path: no search path decides what runs as root.
fn systemctl_path() -> PathBuf {
    let usual = PathBuf::from("/usr/bin/systemctl");
    if usual.exists() { usual } else { PathBuf::from("/bin/systemctl") }
}

fn systemctl(operation: MachineOperation, why: &str) -> Option<CommandLine> {
    let verb = match operation {
        MachineOperation::Reboot => "reboot",
        MachineOperation::Poweroff => "poweroff",
        // The reference stops its applications and leaves the power on; systemd has no such state.
        MachineOperation::Shutdown => return None,
    };
    Some((systemctl_path(), vec![format!("--message={why}"), verb.to_owned()]))
}

impl<C: Fn(MachineOperation, &str) -> Option<CommandLine> + Send + Sync> Device for Programs<C> {
    fn operate(&self, operation: MachineOperation, why: &str) -> Result<(), Error> {
        let Some((program, arguments)) = (self.command)(operation, why) else {
            return Ok(());
        };
        let refuse =
            |reason: String| Error::Device { operation: operation.word(), by: self.by.clone(), reason };
        let output = program::unless_busy(|| Command::new(&program).args(&arguments).output())
            .map_err(|source| refuse(format!("cannot run {}: {source}", program.display())))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(refuse(format!("{} ended with {}: {}", program.display(), output.status, said.trim())))
    }

    fn sync(&self) -> Result<(), Error> {
        rustix::fs::sync();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_root() -> (tempfile::TempDir, TopicRoot) {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        (root, topic_root)
    }

    #[test]
    fn the_choice_is_read_from_words_and_a_wrong_word_names_the_right_ones() {
        assert_eq!("record".parse(), Ok(DeviceChoice::Record));
        assert_eq!("systemd".parse(), Ok(DeviceChoice::Systemd));
        assert_eq!("exec:/sbin/down".parse(), Ok(DeviceChoice::Exec("/sbin/down".into())));
        assert!("exec:down".parse::<DeviceChoice>().unwrap_err().contains("absolute"));
        assert!("docker".parse::<DeviceChoice>().unwrap_err().contains("record, systemd or exec:"));
        assert_eq!(DeviceChoice::default(), DeviceChoice::Record);
    }

    #[test]
    fn systemd_is_asked_for_reboot_and_poweroff_and_for_nothing_on_shutdown() {
        let line = |operation| systemctl(operation, "a reason").map(|(_, words)| words);
        assert_eq!(line(MachineOperation::Reboot).unwrap(), ["--message=a reason", "reboot"]);
        assert_eq!(line(MachineOperation::Poweroff).unwrap(), ["--message=a reason", "poweroff"]);
        let (program, _) = systemctl(MachineOperation::Reboot, "").unwrap();
        assert!(program.is_absolute(), "{}", program.display());
        assert_eq!(line(MachineOperation::Shutdown), None);
    }

    #[tokio::test]
    async fn the_recorded_device_writes_down_each_operation_with_its_boot() {
        let (_root, topic_root) = new_root();
        let device = DeviceChoice::Record.open(&topic_root, Clock::new());
        device.operate(MachineOperation::Reboot, "first").unwrap();
        device.sync().unwrap();
        device.operate(MachineOperation::Poweroff, "second").unwrap();
        let boot = DeviceChoice::Record.boot_id(&topic_root).unwrap();
        let seen: Vec<_> = recorded(&topic_root)
            .unwrap()
            .into_iter()
            .map(|it| (it.operation, it.reason, it.boot_id))
            .collect();
        let expected = [
            (MachineOperation::Reboot, "first".into(), boot.clone()),
            (MachineOperation::Poweroff, "second".into(), boot),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn the_recorded_boot_lasts_until_run_is_wiped() {
        let (root, topic_root) = new_root();
        let first = DeviceChoice::Record.boot_id(&topic_root).unwrap();
        assert_eq!(DeviceChoice::Record.boot_id(&topic_root).unwrap(), first);
        std::fs::remove_dir_all(root.path().join("run")).unwrap();
        assert_ne!(DeviceChoice::Record.boot_id(&topic_root).unwrap(), first);
    }

    #[tokio::test]
    async fn a_program_gets_the_operation_and_the_reason_and_its_refusal_is_told() {
        let (root, topic_root) = new_root();
        let program = root.path().join("down");
        let said = root.path().join("said");
        let script = format!(
            "#!/bin/sh\necho \"$1 $2\" >>{}\n[ \"$1\" = reboot ] || {{ echo no >&2; exit 3; }}\n",
            said.display()
        );
        store::replace(&program, script.as_bytes()).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let device = DeviceChoice::Exec(program).open(&topic_root, Clock::new());
        device.operate(MachineOperation::Reboot, "NORMAL: controller reboot").unwrap();
        assert_eq!(std::fs::read_to_string(&said).unwrap(), "reboot NORMAL: controller reboot\n");
        let refusal = device.operate(MachineOperation::Poweroff, "x").unwrap_err().to_string();
        assert!(refusal.contains("poweroff") && refusal.ends_with("no"), "{refusal}");
    }

    #[test]
    fn a_program_that_is_not_there_is_told_at_the_start() {
        let (root, _bus) = new_root();
        let program = root.path().join("down");
        let choice = DeviceChoice::Exec(program.clone());
        let missing = choice.check().unwrap_err().to_string();
        assert!(missing.contains("down cannot be looked at"), "{missing}");
        store::replace(&program, b"#!/bin/sh\n").unwrap();
        let refused = choice.check().unwrap_err().to_string();
        assert!(refused.contains("chmod 755"), "{refused}");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        choice.check().unwrap();
        DeviceChoice::Record.check().unwrap();
    }

    #[test]
    fn a_spoilt_line_of_the_record_keeps_no_operation_from_being_noted() {
        let (_root, topic_root) = new_root();
        store::replace(&topic_root.path(RECORD), b"{\"At\":\n").unwrap();
        let device = DeviceChoice::Record.open(&topic_root, Clock::new());
        device.operate(MachineOperation::Reboot, "next").unwrap();
        let text = store::read(&topic_root.path(RECORD), RECORD_BYTES).unwrap().unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("{\"At\":\n{") && text.contains("next"), "{text}");
    }

    #[test]
    fn a_recorded_device_never_reads_the_kernel() {
        let (_root, topic_root) = new_root();
        let kernel = std::fs::read_to_string(KERNEL_BOOT_ID).unwrap();
        assert_ne!(DeviceChoice::Record.boot_id(&topic_root).unwrap(), kernel.trim());
    }
}
