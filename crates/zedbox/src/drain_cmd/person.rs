//! The person at the shell: the name that goes into requests and force files, the reason, and the right to write.

use std::io;

use agent::outlet::next_step_of_io;
use anyhow::bail;
use pubsub::store;
use rustix::process::{geteuid, getuid};
use rustix::system::uname;

use crate::args::Surroundings;

/// A reason has to fit into a line of a log and of a console.
const REASON_BYTES: usize = 200;
/// Names of users by number.
const USERS: &str = "/etc/passwd";
/// It is not longer.
const USERS_BYTES: u64 = 1 << 20;
/// Who logged in, also after `su`; the kernel keeps it. Source: proc(5).
const LOGIN: &str = "/proc/self/loginuid";
/// No number is longer.
const NUMBER_BYTES: u64 = 64;
/// Nobody logged in: a service, or a kernel without audit.
const NO_LOGIN: u32 = u32::MAX;
/// A user's name is not longer.
const NAME_CHARS: usize = 32;

/// Who asks: whoever called `sudo`, else whoever logged in, else the user of this process; by name, else by number.
pub(super) fn name(surroundings: &Surroundings) -> String {
    let sudo = surroundings.sudo_user.clone().filter(|name| plain(name));
    sudo.unwrap_or_else(|| {
        let login = store::read(LOGIN.as_ref(), NUMBER_BYTES).ok().flatten();
        let login = login.and_then(|it| String::from_utf8_lossy(&it).trim().parse().ok());
        named(login.filter(|uid| *uid != NO_LOGIN).unwrap_or_else(|| getuid().as_raw()))
    })
}

/// The same with the name of this machine, for words that are kept elsewhere: `field on edge-node-1`.
pub(super) fn at(surroundings: &Surroundings) -> String {
    let host = uname().nodename().to_string_lossy().into_owned();
    let host = if plain(&host) { host } else { "an unnamed machine".to_owned() };
    format!("{} on {host}", name(surroundings))
}

/// The user whose rights this process has.
pub(crate) fn user() -> String {
    named(geteuid().as_raw())
}

fn named(uid: u32) -> String {
    let users = store::read(USERS.as_ref(), USERS_BYTES).ok().flatten().unwrap_or_default();
    of_number(&String::from_utf8_lossy(&users), uid).unwrap_or_else(|| format!("uid {uid}"))
}

/// The user `uid` in a text of the form of `/etc/passwd`.
fn of_number(users: &str, uid: u32) -> Option<String> {
    let line = |line: &str| {
        let mut parts = line.split(':');
        let (name, number) = (parts.next()?, parts.nth(1)?);
        (number.parse() == Ok(uid) && plain(name)).then(|| name.to_owned())
    };
    users.lines().find_map(line)
}

/// Whether a name cannot be taken for anything else in a line of a log.
fn plain(name: &str) -> bool {
    let letter = |it: char| it.is_ascii_alphanumeric() || "._-@$+\\".contains(it);
    !name.is_empty() && name.chars().count() <= NAME_CHARS && name.chars().all(letter)
}

/// A reason as it may go into a request or a force file: one plain line.
pub(crate) fn reason(text: &str) -> anyhow::Result<&str> {
    let text = text.trim();
    if text.is_empty() {
        bail!("the reason is empty; say why, as --reason \"new disk in bay 2\"");
    }
    if text.len() > REASON_BYTES {
        bail!("the reason has {} bytes, the limit is {REASON_BYTES}; shorten it", text.len());
    }
    if text.chars().any(char::is_control) {
        bail!("the reason holds control characters; write it in one plain line");
    }
    Ok(text)
}

/// Adds what a person can do to an error of a file: who must run this, or what the disk needs.
pub(crate) fn root_needed(error: pubsub::Error) -> anyhow::Error {
    let next = if let pubsub::Error::Io { step, path, source } = &error {
        let denied =
            matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem);
        if denied && !geteuid().is_root() {
            Some("this needs root, run it with sudo".to_owned())
        } else {
            is_of_the_disk(source).then(|| next_step_of_io(step, path, source))
        }
    } else {
        None
    };
    let error = anyhow::Error::new(error);
    match next {
        Some(next) => error.context(next),
        None => error,
    }
}

/// Whether a disk takes nothing, whoever asks.
pub(crate) fn is_of_the_disk(source: &io::Error) -> bool {
    // EIO has no name of its own.
    matches!(
        source.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::ReadOnlyFilesystem
    ) || source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_named_by_sudo_then_by_the_list_then_by_number() {
        let sudo = Surroundings { sudo_user: Some("field".to_owned()), ..Surroundings::default() };
        assert_eq!(name(&sudo), "field");
        let users = "root:x:0:0:root:/root:/bin/sh\nfield:x:1000:1000::/:/bin/sh\nbad name:x:7:7::/:\n";
        assert_eq!(of_number(users, 1000).unwrap(), "field");
        assert_eq!((of_number(users, 7), of_number(users, 8)), (None, None));
    }

    #[test]
    fn a_reason_is_one_plain_line_of_at_most_200_bytes() {
        assert_eq!(reason("  new disk ").unwrap(), "new disk");
        assert!(reason(&"x".repeat(200)).is_ok());
        for (text, word) in [
            ("", "empty"),
            (" \t", "empty"),
            ("a\nb", "control"),
            ("a\x1b[2J", "control"),
            (&"x".repeat(201), "201 bytes"),
            (&"\u{e9}".repeat(101), "202 bytes"),
        ] {
            let told = reason(text).unwrap_err().to_string();
            assert!(told.contains(word), "{text:?}: {told}");
        }
    }

    #[test]
    fn a_name_that_would_forge_a_line_is_not_taken() {
        for forged in ["", "field: reboot", "a\nb", "\x1b[2J", "operator root", &"x".repeat(33)] {
            let sudo = Surroundings { sudo_user: Some(forged.to_owned()), ..Surroundings::default() };
            assert_ne!(name(&sudo), forged);
        }
    }
}
