//! This machine: its clock and the room on its disks.
//!
//! Not here: reading them (`local`, `cluster`). Sources: spec/cluster-lock.md 8, spec/vm-storage.md C1.
//! Pure: no clock, no I/O, no task.

use jiff::{SignedDuration, Timestamp};

use crate::{Finding, Severity};

/// A larger difference of clocks is a warning; k3s refuses tokens and certificates from some minutes on.
pub const CLOCKS_WARN: SignedDuration = SignedDuration::from_secs(5);
/// A larger difference of clocks blocks.
pub const CLOCKS_BLOCK: SignedDuration = SignedDuration::from_secs(60);
/// Less free room on a disk is a warning, in percent.
pub const LEAST_FREE_PERCENT: u64 = 5;

/// Our clock against the API server's, which has whole seconds; code `clock`.
pub fn clock(server: Timestamp, own: Timestamp) -> Vec<Finding> {
    let offset = own.duration_since(server);
    let severity = match offset.abs() {
        it if it > CLOCKS_BLOCK => Severity::Blocks,
        it if it > CLOCKS_WARN => Severity::Warns,
        _ => return Vec::new(),
    };
    let side = if offset.is_negative() { "behind" } else { "ahead of" };
    let text =
        format!("the clock of this node is {} s {side} that of the API server", offset.abs().as_secs());
    let next = "compare the clocks with date on both, and check NTP: chronyc tracking, or timedatectl";
    vec![Finding::new("clock", text, next).with(severity)]
}

/// Device nodes that the cluster software cannot start without, as paths under the root.
pub const DEVICE_NODES: [&str; 1] = ["dev/kmsg"];

/// Device nodes that are missing; code `devices`.
pub fn devices(exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let missing = DEVICE_NODES.into_iter().filter(|path| !exists(path));
    let all: Vec<String> = missing.map(|path| format!("/{path}")).collect();
    Finding::listing(("devices", Severity::Blocks), "device nodes that are missing", &all, |_| {
        "`systemctl start zedbox-kmsg` makes /dev/kmsg; without that unit `mknod /dev/kmsg c 1 11`".to_owned()
    })
}

/// A wall clock that cannot be right, by what is known without a server; code `clock`.
pub fn wrong_clock(why: String) -> Finding {
    let next =
        "check the time source with `timedatectl` or `chronyc tracking`, or set the clock with `date -s`";
    Finding::new("clock", why, next)
}

/// A container runtime that does not answer, and why; code `runtime`.
pub fn runtime(why: String) -> Finding {
    let next = "look at `crictl ps`, `systemctl status k3s` (rke2-server, containerd) and its log; `runtime_socket` of the \
                limits file names the socket that counts";
    Finding::new("runtime", why, next)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskRoom {
    /// Mount point, or a folder on it.
    pub path: String,
    /// Available to a process.
    pub free: u64,
    pub total: u64,
}

/// File systems with less than [`LEAST_FREE_PERCENT`] free; code `disk`.
pub fn disks(all: &[DiskRoom]) -> Vec<Finding> {
    let full = |it: &&DiskRoom| it.free.saturating_mul(100) < it.total.saturating_mul(LEAST_FREE_PERCENT);
    let finding = |it: &DiskRoom| {
        let text = format!("{} has {} MiB of {} MiB free", it.path, it.free >> 20, it.total >> 20);
        let next = format!("make room: du -x -d 2 {}", it.path);
        Finding::new("disk", text, next).with(Severity::Warns)
    };
    all.iter().filter(full).map(finding).collect()
}
