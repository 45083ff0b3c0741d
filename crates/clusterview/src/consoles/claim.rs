//! Whether the file of consoles may be written, has to go, or is to be waited for.
//!
//! The proxy in the kube container looks at the file once a second, and at its content only while it has no proxy: to
//! change a console the file is removed, its port closes, and then it is written. Source: spec/eve-rest.md 3.4, row
//! "claim". Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::time::Duration;

use step::Mono;
use topics::VmiVnc;

use crate::apps::Console;

/// A file that is gone has been missed by the proxy's look, once a second, after so long.
pub(super) const GONE: Duration = Duration::from_secs(2);
/// How long edgeview waits for the port of a file that it has written.
pub(super) const OPENING: Duration = Duration::from_secs(30);

/// The file as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConsoleFileState {
    Absent,
    /// Not JSON, or without a port.
    Unusable,
    Console(VmiVnc),
}

/// What is to be done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConsoleAction {
    /// All is as it should be.
    Rest,
    /// Look again in a second; why, for a person.
    Wait(&'static str),
    /// The file has to go.
    Remove,
    /// It is to be written, where none is.
    Write(VmiVnc),
}

/// What the machine says at this moment.
pub(super) trait HostProbe {
    /// Whether something listens at this TCP port; also where that cannot be known.
    fn listens(&self, port: u32) -> bool;
    /// Whether this process lives and is edgeview; also where that cannot be known.
    fn is_edgeview(&self, pid: i64) -> bool;
}

/// What was seen of the file so far.
#[derive(Debug, Default)]
pub(super) struct ConsoleFileHistory {
    /// The file as it was seen last while a console was wanted, and since when it has been so: while none is, nobody looks.
    seen: Option<(ConsoleFileState, Mono)>,
    /// Port of the last console in it.
    port: Option<u32>,
}

impl ConsoleFileHistory {
    /// Decides on the file, as it is `seen` now.
    pub(super) fn decide(
        &mut self,
        now: Mono,
        wanted: &BTreeMap<String, Console>,
        seen: &ConsoleFileState,
        machine: &impl HostProbe,
    ) -> ConsoleAction {
        let since = match &self.seen {
            Some((before, since)) if before == seen => *since,
            Some(_) | None => now,
        };
        self.seen = (!wanted.is_empty()).then(|| (seen.clone(), since));
        let first = || wanted.iter().find(|(_, app)| !machine.listens(app.port.into()));
        match seen {
            ConsoleFileState::Console(console) => {
                self.port = Some(console.vnc_port);
                if console.caller_pid > 0 {
                    of_edgeview((now, since), !wanted.is_empty(), console, machine)
                } else {
                    own(wanted, console, machine)
                }
            }
            // It may be half written.
            ConsoleFileState::Absent | ConsoleFileState::Unusable if wanted.is_empty() => ConsoleAction::Rest,
            ConsoleFileState::Unusable if now < since + GONE => {
                ConsoleAction::Wait("the file cannot be read")
            }
            ConsoleFileState::Unusable => ConsoleAction::Remove,
            ConsoleFileState::Absent if now < since + GONE => {
                ConsoleAction::Wait("the proxy has to see that the file is gone")
            }
            ConsoleFileState::Absent => match first() {
                None => ConsoleAction::Wait("its port is in use"),
                Some(_) if self.port.is_some_and(|it| machine.listens(it)) => {
                    ConsoleAction::Wait("the proxy of the console before it is still open")
                }
                Some((uuid, app)) => ConsoleAction::Write(file(uuid, app)),
            },
        }
    }
}

/// Of a file that names no process of edgeview.
fn own(wanted: &BTreeMap<String, Console>, console: &VmiVnc, machine: &impl HostProbe) -> ConsoleAction {
    match wanted.get(&console.app_uuid) {
        Some(app) if *console == file(&console.app_uuid, app) => ConsoleAction::Rest,
        None if console.app_uuid.is_empty() && wanted.is_empty() => ConsoleAction::Rest,
        None if console.app_uuid.is_empty() && machine.listens(console.vnc_port) => {
            ConsoleAction::Wait("a console of no application is open")
        }
        // Of another machine of this application, or nobody's any more: what has no caller is ours.
        Some(_) | None => ConsoleAction::Remove,
    }
}

/// Of a file that a process of edgeview has written, and that has been so `since` then.
fn of_edgeview(
    (now, since): (Mono, Mono),
    claimed: bool,
    console: &VmiVnc,
    machine: &impl HostProbe,
) -> ConsoleAction {
    if !claimed {
        ConsoleAction::Rest
    } else if !machine.is_edgeview(console.caller_pid) {
        ConsoleAction::Remove
    } else if machine.listens(console.vnc_port) {
        ConsoleAction::Wait("edgeview has a console open")
    } else if now < since + OPENING {
        ConsoleAction::Wait("edgeview opens a console")
    } else {
        ConsoleAction::Remove
    }
}

/// What the file says of a console.
fn file(app_uuid: &str, console: &Console) -> VmiVnc {
    VmiVnc {
        vmi_name: console.machine.clone(),
        vnc_port: console.port.into(),
        app_uuid: app_uuid.to_owned(),
        caller_pid: 0,
    }
}

/// Whether a line of `/proc/net/tcp` or `tcp6` says that something listens at `port`.
pub(super) fn is_listening(table: &str, port: u32) -> bool {
    let wanted = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next(), words.nth(1));
        local.is_some_and(|it| it.ends_with(&wanted)) && state == Some("0A")
    })
}

#[cfg(test)]
mod tests;
