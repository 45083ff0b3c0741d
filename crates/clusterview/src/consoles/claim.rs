//! Whether the file of consoles may be written, is to be removed, or has to wait.
//!
//! The kube container looks at the file once a second, and at its content only while it runs no proxy: to
//! change a console the file is removed, its port closes, and then it is written. Source: spec/eve-rest.md
//! 3.4, row "claim". Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::time::Duration;

use step::Mono;
use topics::VmiVnc;

use crate::apps::Console;

/// After so long the kube container has noticed that the file is gone.
pub(super) const GONE: Duration = Duration::from_secs(2);
/// How long edgeview waits for the port of a file that it has written.
pub(super) const OPENING: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConsoleFileState {
    Absent,
    /// Not JSON, or without a port.
    Unusable,
    Console(VmiVnc),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConsoleAction {
    Rest,
    /// Look again in a second; the reason is for a person.
    Wait(&'static str),
    Remove,
    Write(VmiVnc),
}

pub(super) trait HostProbe {
    /// Whether a process listens at this TCP port; true where unknown.
    fn listens(&self, port: u32) -> bool;
    /// Whether this process is a live edgeview; true where unknown.
    fn is_edgeview(&self, pid: i64) -> bool;
}

#[derive(Debug, Default)]
pub(super) struct ConsoleFileHistory {
    /// The file as last seen while a console was wanted, and since when; without a wanted console it is not
    /// read.
    seen: Option<(ConsoleFileState, Mono)>,
    /// Of its last console.
    port: Option<u32>,
}

impl ConsoleFileHistory {
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

/// For a file without an edgeview process.
fn own(wanted: &BTreeMap<String, Console>, console: &VmiVnc, machine: &impl HostProbe) -> ConsoleAction {
    match wanted.get(&console.app_uuid) {
        Some(app) if *console == file(&console.app_uuid, app) => ConsoleAction::Rest,
        None if console.app_uuid.is_empty() && wanted.is_empty() => ConsoleAction::Rest,
        None if console.app_uuid.is_empty() && machine.listens(console.vnc_port) => {
            ConsoleAction::Wait("a console of no application is open")
        }
        // Of another machine of this application, or unwanted: a file without a caller is ours.
        Some(_) | None => ConsoleAction::Remove,
    }
}

/// For a file that an edgeview process has written, unchanged `since` then.
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

fn file(app_uuid: &str, console: &Console) -> VmiVnc {
    VmiVnc {
        vmi_name: console.machine.clone(),
        vnc_port: console.port.into(),
        app_uuid: app_uuid.to_owned(),
        caller_pid: 0,
    }
}

/// Whether a line of `/proc/net/tcp` or `tcp6` shows a listener at `port`.
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
