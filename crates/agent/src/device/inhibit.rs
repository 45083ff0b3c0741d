//! Blocks a person's plain `systemctl reboot` while pods run: an inhibitor lock of systemd's logind, held by
//! systemd-inhibit.
//!
//! Since systemd 257 a lock of mode `block` counts for root as well, and on a terminal `systemctl` names its
//! holder and reason; on older versions none is taken. The program holds the lock while its standard input is
//! open, so the lock ends with this process in any case. `systemctl start reboot.target` ignores it; so does
//! `systemctl reboot -i` where polkit allows that. Not here: when pods run (nodeagent).
//!
//! Source: systemd-inhibit(1), org.freedesktop.login1(5).

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tracing::{info, warn};

use super::program::unless_busy;
use super::{Device, MachineOperation};
use crate::Error;

const SINCE: u32 = 257;
/// Time for the program to end once its input is closed.
const ENDS: Duration = Duration::from_secs(2);
/// Pause between checks for its end.
const LOOK: Duration = Duration::from_millis(20);
/// Run by systemd-inhibit; ends with its input.
const READER: &str = "/bin/cat";
/// Shown to the person whose command is blocked.
const WHY: &str =
    "pods run on this node; `zedbox reboot --reason TEXT` or `zedbox shutdown --reason TEXT` drains it first";

/// systemd; our own lock is released before each order.
pub(super) struct Systemd<D> {
    programs: D,
    inhibitor: Inhibitor,
}

impl<D> Systemd<D> {
    /// `systemctl` is used for the version.
    pub(super) fn new(programs: D, systemctl: PathBuf) -> Self {
        Self { programs, inhibitor: Inhibitor::new(systemctl) }
    }
}

impl<D: Device> Device for Systemd<D> {
    fn operate(&self, operation: MachineOperation, why: &str) -> Result<(), Error> {
        self.inhibitor.end();
        self.programs.operate(operation, why)
    }

    fn sync(&self) -> Result<(), Error> {
        self.programs.sync()
    }

    fn hold_others(&self, holds: bool) {
        self.inhibitor.hold(holds);
    }
}

struct Inhibitor {
    systemctl: PathBuf,
    program: PathBuf,
    state: Mutex<InhibitorState>,
}

#[derive(Default)]
struct InhibitorState {
    holder: Option<Child>,
    /// No lock any more: the machine goes down by our own order, or locks do not count for root.
    ended: bool,
}

impl Inhibitor {
    fn new(systemctl: PathBuf) -> Self {
        let program = systemctl.with_file_name("systemd-inhibit");
        Self { systemctl, program, state: Mutex::default() }
    }

    /// Takes or releases the lock. May take some seconds.
    fn hold(&self, holds: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !holds {
            release(&mut state.holder);
            return;
        }
        let still = state.holder.as_mut().is_some_and(|it| matches!(it.try_wait(), Ok(None)));
        if still || state.ended {
            return;
        }
        match version(&self.systemctl) {
            Ok(version) if version >= SINCE => {}
            found => {
                state.ended = true;
                let found =
                    found.map_or_else(|why| why, |it| format!("systemd is {it}, and {SINCE} is the first"));
                info!(
                    "no lock holds a plain `systemctl reboot` of root while pods run: {found}; \
                     zedbox-drain-at-shutdown.service drains the node then"
                );
                return;
            }
        }
        match take(&self.program) {
            Ok(holder) => {
                if state.holder.replace(holder).is_none() {
                    info!(
                        "a plain `systemctl reboot` is held while pods run; `zedbox reboot` drains the node first"
                    );
                }
            }
            Err(cause) => {
                state.ended = true;
                warn!(program = %self.program.display(), error = %cause, "a plain `systemctl reboot` is not held");
            }
        }
    }

    /// Releases the lock for good: the machine goes down by our own order.
    fn end(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.ended = true;
        release(&mut state.holder);
    }
}

impl Drop for Inhibitor {
    fn drop(&mut self) {
        self.end();
    }
}

fn take(program: &Path) -> std::io::Result<Child> {
    let mut command = Command::new(program);
    command.args(["--what=shutdown", "--mode=block", "--who=zedbox"]).arg(format!("--why={WHY}")).arg(READER);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    unless_busy(|| command.spawn())
}

/// Closes its input: the program ends, and logind releases the lock.
fn release(holder: &mut Option<Child>) {
    let Some(mut child) = holder.take() else { return };
    drop(child.stdin.take());
    if has_ended(&mut child) {
        return;
    }
    if let Err(cause) = child.kill() {
        warn!(error = %cause, "systemd-inhibit cannot be ended");
    }
    // A process that does not end must not block the order: the device is asked again when it refuses.
    has_ended(&mut child);
}

/// Waits at most [`ENDS`].
fn has_ended(child: &mut Child) -> bool {
    let mut waited = Duration::ZERO;
    while matches!(child.try_wait(), Ok(None)) {
        if waited >= ENDS {
            return false;
        }
        std::thread::sleep(LOOK);
        waited += LOOK;
    }
    true
}

fn version(systemctl: &Path) -> Result<u32, String> {
    let output = unless_busy(|| Command::new(systemctl).arg("--version").stdin(Stdio::null()).output());
    let output = output.map_err(|cause| format!("{} cannot be run: {cause}", systemctl.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.split_whitespace().nth(1).and_then(|it| {
        let digits: String = it.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    number.ok_or_else(|| format!("{} --version says no number", systemctl.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pubsub::store;
    use std::os::unix::fs::PermissionsExt as _;

    struct InhibitorFixture {
        root: tempfile::TempDir,
        inhibitor: Inhibitor,
    }

    impl InhibitorFixture {
        /// With programs that stand in for systemd's.
        fn of(version: &str, holds: &str) -> Self {
            let root = tempfile::tempdir().unwrap();
            let held = root.path().join("held");
            let script = |name: &str, text: String| {
                let path = root.path().join(name);
                store::replace(&path, format!("#!/bin/sh\n{text}\n").as_bytes()).unwrap();
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
                path
            };
            let systemctl = script("systemctl", format!("echo 'systemd {version}'"));
            let held = held.display();
            script(
                "systemd-inhibit",
                format!(
                    "for it; do last=$it; done; echo \"$*\" >{held}.part; mv {held}.part {held}; {holds}; rm {held}"
                ),
            );
            let inhibitor = Inhibitor::new(systemctl);
            Self { root, inhibitor }
        }

        fn held(&self) -> Option<String> {
            std::fs::read_to_string(self.root.path().join("held")).ok()
        }

        fn taken(&self) -> String {
            loop {
                if let Some(words) = self.held() {
                    return words;
                }
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn x3_pods_that_run_hold_a_plain_reboot_with_what_to_type_and_our_own_order_gives_it_back_for_good() {
        let machine = InhibitorFixture::of("257 (257.9-1)", "\"$last\" >/dev/null");
        machine.inhibitor.hold(true);
        let words = machine.taken();
        for word in ["--what=shutdown --mode=block --who=zedbox", "zedbox reboot --reason TEXT", "/bin/cat"] {
            assert!(words.contains(word), "{words}");
        }
        machine.inhibitor.hold(true);
        machine.inhibitor.hold(false);
        assert_eq!(machine.held(), None, "it has ended by then");
        machine.inhibitor.hold(true);
        machine.taken();
        machine.inhibitor.end();
        assert_eq!(machine.held(), None);
        machine.inhibitor.hold(true);
        assert!(machine.held().is_none() && machine.inhibitor.state.lock().unwrap().holder.is_none());
    }

    #[test]
    fn x3_it_goes_with_this_process_and_one_that_hangs_is_ended() {
        let machine = InhibitorFixture::of("258~rc3", "exec sleep 1000");
        machine.inhibitor.hold(true);
        machine.taken();
        let pid = machine.inhibitor.state.lock().unwrap().holder.as_ref().unwrap().id();
        machine.inhibitor.end();
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "it runs on");
        let machine = InhibitorFixture::of("257", "\"$last\" >/dev/null");
        machine.inhibitor.hold(true);
        machine.taken();
        // Closing our end of the pipe is the only signal, as when this process dies.
        drop(machine.inhibitor.state.lock().unwrap().holder.as_mut().unwrap().stdin.take());
        while machine.held().is_some() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn x3_where_no_lock_counts_for_root_none_is_taken() {
        for version in ["256 (256.4)", "252.39-1~deb12u1", "", "of no number"] {
            let machine = InhibitorFixture::of(version, "\"$last\" >/dev/null");
            machine.inhibitor.hold(true);
            let state = machine.inhibitor.state.lock().unwrap();
            assert!(state.holder.is_none() && state.ended, "{version}");
        }
        let nowhere = Inhibitor::new("/nowhere/systemctl".into());
        nowhere.hold(true);
        assert!(nowhere.state.lock().unwrap().ended);
    }
}
