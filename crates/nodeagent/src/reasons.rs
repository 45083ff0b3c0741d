//! What outlives a boot: why it ended, and how often the device has started.
//!
//! Not here: what is made of it (`core::LastBoot`). Source: spec topics.md 6, agents.md 2.2.

use std::fs;
use std::path::Path;

use agent::{Error, report};
use pubsub::{Bus, store};
use topics::{BootReason, GoTime};
use tracing::warn;

use crate::core::{Evidence, Order, Stored};

/// Why, in words.
pub(crate) const REASON: &str = "persist/reboot-reason";
/// Why, as the name of a number.
pub(crate) const NUMBER: &str = "persist/boot-reason";
/// The partition that ran.
pub(crate) const IMAGE: &str = "persist/reboot-image";
/// Trace of an agent that ended badly; written by others.
pub(crate) const STACK: &str = "persist/reboot-stack";
/// Every reason, for people.
pub(crate) const LOG: &str = "persist/log/reboot-reason.log";
/// How often the device has started.
pub(crate) const COUNTER: &str = "persist/status/restartcounter";
/// Left by the installer, gone with the first boot.
pub(crate) const FIRST_BOOT: &str = "run/global/first-boot";

/// No file of these is longer, but for a stack, of which the end is what matters.
const LIMIT_BYTES: u64 = 1 << 20;
/// So much of the log is kept.
const LOG_KEPT_BYTES: usize = 64 << 10;
/// What the names of numbers begin with.
const PREFIX: &str = "BootReason";

/// Reads what the boot before left. A file that is broken for good counts as absent and is logged.
///
/// # Errors
/// Descriptors or memory are short: what is there now must not count as absent, and be removed.
pub(crate) fn read(bus: &Bus) -> Result<Stored, Error> {
    Ok(Stored {
        reason: text(bus, REASON)?,
        boot_reason: text(bus, NUMBER)?.map(|name| number(&name)),
        stack: content(bus, STACK)?,
        image: text(bus, IMAGE)?,
        time: written_at(&bus.path(NUMBER)).or_else(|| written_at(&bus.path(REASON))),
    })
}

/// What the machine says by itself. Disks and watchdog are not asked yet.
pub(crate) fn evidence(bus: &Bus) -> Evidence {
    Evidence { first_boot: bus.path(FIRST_BOOT).exists(), ..Evidence::default() }
}

/// Removes what was read. The file whose time stands for all of them goes last, so that what a crash leaves here
/// is still known for what it is.
pub(crate) fn forget(bus: &Bus) {
    for file in [IMAGE, STACK, REASON, NUMBER] {
        if let Err(cause) = store::remove(&bus.path(file)) {
            warn!(path = file, error = %report::chain(&cause), "cannot remove the reason of the last boot; remove it by hand");
        }
    }
}

/// Stores why this boot ends. A file that is there stays: the first reason is the cause, later ones follow from it
/// (D-N4: the reference overwrites it). One that cannot be written keeps no other one from being written.
pub(crate) fn write(bus: &Bus, order: &Order, image: &str, now: GoTime) -> Result<(), Error> {
    let number = name(order.boot_reason);
    let mut outcome = Ok(());
    for (file, text) in [(IMAGE, image), (REASON, &order.reason), (NUMBER, &number)] {
        let path = bus.path(file);
        if !path.exists() {
            outcome = outcome.and(store::replace(&path, text.as_bytes()).map_err(Error::pubsub(file)));
        }
    }
    outcome.and_then(|()| append(bus, &format!("{now} {number} {}\n", order.reason)))
}

/// Notes `why` beside the reason of this boot's end, in the log and, where that is the one of `order`, behind it.
pub(crate) fn mark(bus: &Bus, order: &Order, why: &str, now: GoTime) -> Result<(), Error> {
    let mut outcome = Ok(());
    if text(bus, REASON)?.as_deref() == Some(order.reason.trim()) {
        let marked = format!("{}; {why}", order.reason.trim());
        outcome = store::replace(&bus.path(REASON), marked.as_bytes()).map_err(Error::pubsub(REASON));
    }
    outcome.and(append(bus, &format!("{now} {} {}; {why}\n", name(order.boot_reason), order.reason)))
}

/// How often the device had started before; a text that is no number counts as none and is logged.
///
/// # Errors
/// As [`read`].
pub(crate) fn counter(bus: &Bus) -> Result<u32, Error> {
    let Some(text) = text(bus, COUNTER)? else { return Ok(0) };
    Ok(text.parse().unwrap_or_else(|cause| {
        warn!(path = COUNTER, error = %cause, "the restart counter is no number, it begins at 0 again");
        0
    }))
}

/// Counts this start.
pub(crate) fn count(bus: &Bus, before: u32) {
    let next = before.saturating_add(1).to_string();
    if let Err(cause) = store::replace(&bus.path(COUNTER), next.as_bytes()) {
        warn!(path = COUNTER, error = %report::chain(&cause), "cannot count this start");
    }
}

/// The name of a number, as on disk. A number without a name is written so that it reads as a parse failure.
fn name(reason: BootReason) -> String {
    format!("{PREFIX}{reason:?}")
}

fn number(text: &str) -> BootReason {
    let known = BootReason::NAMED.iter().find(|reason| name(**reason) == text);
    known.copied().unwrap_or(BootReason::ParseFail)
}

/// One line; a blank one counts as absent.
fn text(bus: &Bus, file: &str) -> Result<Option<String>, Error> {
    let text = content(bus, file)?.map(|text| text.trim().to_owned());
    Ok(text.filter(|text| !text.is_empty()))
}

fn content(bus: &Bus, file: &str) -> Result<Option<String>, Error> {
    match store::read(&bus.path(file), LIMIT_BYTES) {
        Ok(bytes) => Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())),
        Err(cause) if cause.is_shortage() => Err(Error::pubsub(file.to_owned())(cause)),
        Err(cause) => {
            warn!(path = file, error = %report::chain(&cause), "cannot be read, ignored");
            Ok(None)
        }
    }
}

fn written_at(path: &Path) -> Option<GoTime> {
    let modified = fs::symlink_metadata(path).ok()?.modified().ok()?;
    jiff::Timestamp::try_from(modified).ok().map(GoTime::from)
}

fn append(bus: &Bus, line: &str) -> Result<(), Error> {
    let path = bus.path(LOG);
    // A log that cannot be read or is too long begins again.
    let before = store::read(&path, LIMIT_BYTES).ok().flatten().unwrap_or_default();
    let mut all = String::from_utf8_lossy(&before).into_owned();
    all.push_str(line);
    if all.len() > LOG_KEPT_BYTES {
        let from = all.len() - LOG_KEPT_BYTES;
        let whole =
            all.bytes().skip(from).position(|byte| byte == b'\n').map_or(0, |newline| from + newline + 1);
        all.drain(..whole);
    }
    store::replace(&path, all.as_bytes()).map_err(Error::pubsub(LOG))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::device::Operation;

    fn root() -> (tempfile::TempDir, Bus) {
        let dir = tempfile::tempdir().unwrap();
        let bus = Bus::open(dir.path()).unwrap();
        (dir, bus)
    }

    fn order(reason: &str, boot_reason: BootReason) -> Order {
        Order { operation: Operation::Reboot, reason: reason.into(), boot_reason }
    }

    #[test]
    fn what_is_written_is_read_and_then_forgotten() {
        let (_dir, bus) = root();
        write(&bus, &order("NORMAL: controller reboot", BootReason::RebootCmd), "IMGA", GoTime::ZERO)
            .unwrap();
        let stored = read(&bus).unwrap();
        assert_eq!(stored.reason.as_deref(), Some("NORMAL: controller reboot"));
        assert_eq!(stored.boot_reason, Some(BootReason::RebootCmd));
        assert_eq!(stored.image.as_deref(), Some("IMGA"));
        assert!(stored.time.is_some());
        assert_eq!(text(&bus, NUMBER).unwrap().as_deref(), Some("BootReasonRebootCmd"));
        forget(&bus);
        assert_eq!(read(&bus).unwrap(), Stored::default());
    }

    #[test]
    fn d_n4_the_first_reason_stays_and_the_second_is_only_logged() {
        let (_dir, bus) = root();
        write(&bus, &order("first", BootReason::Fatal), "IMGA", GoTime::ZERO).unwrap();
        write(&bus, &order("second", BootReason::RebootCmd), "IMGB", GoTime::ZERO).unwrap();
        let stored = read(&bus).unwrap();
        assert_eq!((stored.reason.as_deref(), stored.boot_reason), (Some("first"), Some(BootReason::Fatal)));
        assert_eq!(stored.image.as_deref(), Some("IMGA"));
        let log = text(&bus, LOG).unwrap().unwrap();
        assert_eq!(
            log,
            "0001-01-01T00:00:00Z BootReasonFatal first\n0001-01-01T00:00:00Z BootReasonRebootCmd second"
        );
    }

    #[test]
    fn every_number_is_read_by_its_name_and_any_other_text_is_a_parse_failure() {
        for reason in BootReason::NAMED {
            assert_eq!(number(&name(*reason)), *reason);
        }
        for text in ["BootReason", "RebootCmd", "BootReason77", ""] {
            assert_eq!(number(text), BootReason::ParseFail, "{text}");
        }
    }

    #[test]
    fn the_counter_begins_at_zero_and_rises_by_one() {
        let (_dir, bus) = root();
        assert_eq!(counter(&bus).unwrap(), 0);
        count(&bus, 0);
        assert_eq!(counter(&bus).unwrap(), 1);
        store::replace(&bus.path(COUNTER), b"many").unwrap();
        assert_eq!(counter(&bus).unwrap(), 0);
    }

    #[test]
    fn the_log_keeps_its_end_in_whole_lines() {
        let (_dir, bus) = root();
        store::replace(&bus.path(LOG), "x".repeat(LOG_KEPT_BYTES).as_bytes()).unwrap();
        append(&bus, "one\n").unwrap();
        append(&bus, "two\n").unwrap();
        let log = text(&bus, LOG).unwrap().unwrap();
        assert!(log.len() <= LOG_KEPT_BYTES && log.ends_with("two"), "{}", log.len());
        store::replace(&bus.path(LOG), "short\n".repeat(LOG_KEPT_BYTES / 6).as_bytes()).unwrap();
        append(&bus, "last\n").unwrap();
        let log = text(&bus, LOG).unwrap().unwrap();
        assert!(log.starts_with("short\n") && log.ends_with("\nlast"));
    }

    #[test]
    fn a_link_in_the_place_of_a_reason_is_left_out() {
        let (dir, bus) = root();
        fs::create_dir_all(dir.path().join("persist")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", dir.path().join(REASON)).unwrap();
        assert_eq!(read(&bus).unwrap().reason, None);
    }
}
