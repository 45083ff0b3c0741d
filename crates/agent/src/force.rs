//! The force file, by which a person with a shell overrides NodeDrainStatus: one reading of it for all agents.
//!
//! Not here: what an order means to an agent. Source: spec agents.md 4.6, pubsub.md; the refusals are ours.

use std::path::PathBuf;

use pubsub::{Bus, FileRule, FileState, FileWatch, store};
use topics::{FORCE_FILE, ForceFile, GoTime, NodeDrainStatus, read_force};
use tracing::warn;

use crate::{Error, Station, Tasks};

/// Identity of the boot in which an agent last looked for orders that an earlier boot left.
const LOOKED_IN: &str = "run/force-NodeDrainStatus-boot";
/// No force file is longer, nor is the note about it.
pub const LIMIT_BYTES: u64 = 4096;
/// No list of users is longer.
const USERS_BYTES: u64 = 1 << 20;

/// Removes an order that was given in an earlier boot: it was meant for that boot. Every agent that reads orders
/// calls this before it follows them, so that none acts on an old one, whichever agent starts first. An order that
/// is given after the first of these calls stays.
///
/// # Errors
/// The order cannot be removed, or that it was looked for cannot be noted. Reading orders would not be safe then.
pub fn forget_earlier_boot(station: &Station) -> Result<(), Error> {
    let (bus, boot) = (&station.bus, station.boot_id.as_bytes());
    let looked_in = bus.path(LOOKED_IN);
    let held = |path| store::read(path, LIMIT_BYTES);
    if held(&looked_in).map_err(Error::pubsub(LOOKED_IN))?.is_some_and(|it| it == boot) {
        return Ok(());
    }
    // Only for the log: a link or an overlong file is removed as well.
    let order = held(&bus.path(FORCE_FILE)).ok().flatten().unwrap_or_default();
    if remove(bus)? {
        warn!(path = FORCE_FILE, content = %String::from_utf8_lossy(&order), "removed a force file of an earlier boot");
    }
    store::replace(&looked_in, boot).map_err(Error::pubsub(LOOKED_IN))
}

/// Takes an order away, as one that was carried out is; false when there was none.
///
/// # Errors
/// It cannot be removed.
pub fn remove(bus: &Bus) -> Result<bool, Error> {
    store::remove(&bus.path(FORCE_FILE)).map_err(Error::pubsub(FORCE_FILE))
}

/// Who gave an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderedBy {
    /// User who owns the file.
    pub uid: u32,
    /// Name of that user, or empty.
    pub name: String,
    /// When the file was written, as its time stamp says.
    pub written: GoTime,
    /// Who gave it by its own words, as whoever called `sudo`, or empty.
    pub by: String,
    /// Why, or empty.
    pub reason: String,
}

/// The force file as a level, with who gave the order.
pub struct Orders {
    bus: Bus,
    watch: FileWatch,
}

impl Orders {
    /// Follows the force file from now on. To be called within a runtime.
    #[must_use]
    pub fn open(bus: &Bus) -> Self {
        let rule = FileRule { limit_bytes: LIMIT_BYTES, order: true };
        Self { bus: bus.clone(), watch: bus.file(bus.path(FORCE_FILE), rule) }
    }

    /// The present order at the first call, then each new one: the status that it orders, `None` without a file, or
    /// why the file does not count; and whose it is, where that can be had. Dropping it loses nothing.
    pub async fn next(&mut self) -> (Result<Option<NodeDrainStatus>, String>, Option<OrderedBy>) {
        let file = self.watch.next().await;
        let note = match &file {
            FileState::Present(bytes) => ForceFile::read(bytes),
            FileState::Absent | FileState::Bad(_) => ForceFile::default(),
        };
        let by = self.watch.author().map(|it| OrderedBy {
            uid: it.uid,
            name: user_name(&self.bus, it.uid).unwrap_or_default(),
            written: jiff::Timestamp::try_from(it.written).map(GoTime::from).unwrap_or_default(),
            by: note.by,
            reason: note.reason,
        });
        (order(file), by)
    }
}

/// The name of a user, from the list under the root or that of the machine.
fn user_name(bus: &Bus, uid: u32) -> Option<String> {
    [bus.path("etc/passwd"), PathBuf::from("/etc/passwd")].iter().find_map(|path| {
        let bytes = store::read(path, USERS_BYTES).ok().flatten()?;
        name_in(&String::from_utf8_lossy(&bytes), uid)
    })
}

/// The name beside `uid` in lines such as `root:x:0:0:root:/root:/bin/sh`.
fn name_in(users: &str, uid: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut members = line.split(':');
        let (name, number) = (members.next()?, members.nth(1)?);
        (number.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

impl<E: Send + 'static> Tasks<E> {
    /// Follows the force file for good, as a level: the status that it orders, `None` without a file, or why the
    /// file does not count. Only root, or whoever runs this program, can give an order.
    pub fn follow_force(
        &mut self,
        bus: &Bus,
        mut to_event: impl FnMut(Result<Option<NodeDrainStatus>, String>) -> E + Send + 'static,
    ) {
        let rule = FileRule { limit_bytes: LIMIT_BYTES, order: true };
        self.follow_file(bus, bus.path(FORCE_FILE), rule, move |file| Some(to_event(order(file))));
    }
}

fn order(file: FileState) -> Result<Option<NodeDrainStatus>, String> {
    match file {
        FileState::Absent => Ok(None),
        FileState::Present(bytes) => read_force(&bytes).map(Some).map_err(|cause| cause.to_string()),
        FileState::Bad(finding) => Err(finding.reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::station;

    #[tokio::test]
    async fn an_order_of_an_earlier_boot_is_removed_by_the_first_agent_and_one_of_this_boot_stays() {
        let root = tempfile::tempdir().unwrap();
        let there = || root.path().join(FORCE_FILE).exists();
        let give =
            || store::replace(&root.path().join(FORCE_FILE), br#"{"Status":9,"RequestedBy":2}"#).unwrap();
        give();
        forget_earlier_boot(&station(root.path(), "boot-1").1).unwrap();
        assert!(!there());
        give();
        // Another agent of the same boot, or the same one started again.
        forget_earlier_boot(&station(root.path(), "boot-1").1).unwrap();
        assert!(there());
        // `/run` goes with a boot; where it does not, the identity tells.
        forget_earlier_boot(&station(root.path(), "boot-2").1).unwrap();
        assert!(!there());
    }

    #[tokio::test]
    async fn s6_an_order_says_who_gives_it_and_why_and_one_that_does_not_is_as_good() {
        let root = tempfile::tempdir().unwrap();
        let bus = Bus::open(root.path()).unwrap();
        for (more, by, reason) in [
            (r#","Reason":"server is lost","By":"field""#, "field", "server is lost"),
            ("", "", ""),
            // What is no text says nothing, and spoils nothing.
            (r#","Reason":7,"By":["field"]"#, "", ""),
        ] {
            let text = format!(r#"{{"Status":9,"RequestedBy":2{more}}}"#);
            store::replace(&bus.path(FORCE_FILE), text.as_bytes()).unwrap();
            let (order, author) = Orders::open(&bus).next().await;
            assert_eq!(order.unwrap().unwrap().to_string(), "{Complete 2}", "{text}");
            let author = author.unwrap();
            assert_eq!((author.by.as_str(), author.reason.as_str()), (by, reason), "{text}");
        }
    }
}
