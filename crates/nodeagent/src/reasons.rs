//! Files that survive a boot: why it ended, and how often the device has started.
//!
//! Not here: their use (`core::LastBoot`).

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use agent::Error;
use agent::device::MachineOperation;
use agent::reasons::{
    IMAGE, LOG, LOG_LIMIT_BYTES, NUMBER, REASON, RunningImage, STACK, UNWRITTEN, append, is_stored,
};
use pubsub::{TopicRoot, reach, store};
use serde::Deserialize;
use topics::{BootReason, GoTime};
use tracing::{debug, warn};

use crate::core::{Evidence, MachineOrder, Stored};

/// Number of starts of the device.
pub(crate) const COUNTER: &str = "persist/status/restartcounter";
/// Made by the image's boot script on a device that has never run; gone with the boot at the latest.
pub(crate) const FIRST_BOOT: &str = "run/global/first-boot";
/// Power cycles of the disk now, and in the boot before.
pub(crate) const DISK: [&str; 2] = ["persist/SMART_details.json", "persist/SMART_details_previous.json"];
/// The hardware watchdog's causes of the last reset, one per line.
pub(crate) const WATCHDOG: &str = "persist/hw_watchdog_bootstatus";
/// Its line for a reset of the board.
const CARD_RESET: &str = "CARDRESET";
/// Where a person at the machine sees why it goes down.
pub(crate) const CONSOLE: &str = "dev/tty";
/// Read of a file of words, and of a stack.
const WORDS_BYTES: u64 = 16 << 10;
const STACK_BYTES: u64 = 512 << 10;
/// Prefix of names of numbers.
const PREFIX: &str = "BootReason";

/// The files of the boot before. A permanently broken one counts as absent and is logged.
///
/// Errors: descriptors or memory are short: an existing file must not count as absent, and be removed.
pub(crate) fn read(topic_root: &TopicRoot) -> Result<Stored, Error> {
    Ok(Stored {
        reason: content(topic_root, REASON, WORDS_BYTES)?.filter(|text| !text.trim().is_empty()),
        boot_reason: text(topic_root, NUMBER)?.map(|name| number(&name)),
        stack: content(topic_root, STACK, STACK_BYTES)?,
        image: text(topic_root, IMAGE)?,
        time: written_at(&topic_root.path(NUMBER)).or_else(|| written_at(&topic_root.path(REASON))),
    })
}

/// The machine's own evidence.
pub(crate) fn evidence(topic_root: &TopicRoot) -> Result<Evidence, Error> {
    let [now, before] = DISK.map(|file| power_cycles(topic_root, file));
    let watchdog = text(topic_root, WATCHDOG)?.unwrap_or_default();
    Ok(Evidence {
        first_boot: topic_root.path(FIRST_BOOT).exists(),
        power_cycled: now?.zip(before?).map(|(now, before)| now > before),
        watchdog_reset: watchdog.lines().any(|line| line.trim() == CARD_RESET),
    })
}

/// Of a disk that counts them.
fn power_cycles(topic_root: &TopicRoot, file: &str) -> Result<Option<i64>, Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Details {
        power_cycle_count: i64,
    }
    let Some(text) = text(topic_root, file)? else { return Ok(None) };
    let details: Option<Details> = serde_json::from_str(&text).ok();
    Ok(details.map(|it| it.power_cycle_count).filter(|count| *count > -1))
}

/// Removes these files. The one whose time counts for all goes last, so that a crash leaves something
/// recognisable.
pub(crate) fn forget(topic_root: &TopicRoot) {
    for file in [IMAGE, STACK, REASON, NUMBER] {
        if let Err(cause) = store::remove(&topic_root.path(file)) {
            warn!(path = file, error = %step::chain(&cause), "cannot remove the reason of the last boot; remove it by hand");
        }
    }
}

/// Removes the reason of `order`, which was called off, unless others have stored a reason as well.
pub(crate) fn take_back(topic_root: &TopicRoot, order: &MachineOrder) -> Result<(), Error> {
    let own = up_to_time(&RunningImage::running(topic_root), &order.reason);
    let held = content(topic_root, REASON, LOG_LIMIT_BYTES)?;
    if held.is_some_and(|it| it.lines().all(|line| line.starts_with(&own))) {
        forget(topic_root);
    }
    Ok(())
}

/// The mark of the first boot counts once.
pub(crate) fn forget_first_boot(topic_root: &TopicRoot) {
    if let Err(cause) = store::remove(&topic_root.path(FIRST_BOOT)) {
        warn!(path = FIRST_BOOT, error = %step::chain(&cause), "cannot remove the mark of the first boot");
    }
}

/// Stores why this boot ends, and writes it to the console. An existing reason stays: the first one is the
/// cause, a later one follows from it and is a line after it (D-N4: the reference overwrites it), so that the
/// first writer does not remove both. Each file is tried; a later call writes missing ones.
pub(crate) fn write(
    topic_root: &TopicRoot,
    order: &MachineOrder,
    image: &str,
    now: GoTime,
) -> Result<(), Error> {
    let running = RunningImage::running(topic_root);
    let line = line(&running, &order.reason, now);
    console(topic_root, order.operation, &line);
    let label = running.label.clone().unwrap_or_else(|| image.to_owned());
    let is_none = order.boot_reason == BootReason::None;
    let put = |file: &'static str, text: &str| {
        store::replace(&topic_root.path(file), text.as_bytes()).map_err(Error::pubsub(file))
    };
    let mut outcome = match text(topic_root, IMAGE) {
        Ok(None) if !label.is_empty() => put(IMAGE, &label),
        held => held.map(drop),
    };
    let own = up_to_time(&running, &order.reason);
    outcome = outcome.and(match content(topic_root, REASON, LOG_LIMIT_BYTES) {
        Ok(Some(held)) if held.lines().any(|line| line.starts_with(&own)) => Ok(()),
        Ok(Some(held)) if !held.trim().is_empty() => {
            let end = if held.ends_with('\n') { "" } else { "\n" };
            append(topic_root, REASON, &format!("{end}{line}")).map_err(Error::pubsub(REASON))
        }
        Ok(_) => put(REASON, &line),
        Err(cause) => Err(cause),
    });
    // The file whose time counts for all comes last.
    if !is_none && !matches!(is_stored(topic_root), Ok(true)) {
        outcome = outcome.and(put(NUMBER, &name(order.boot_reason)));
    }
    outcome.and_then(|()| append(topic_root, LOG, &line).map_err(Error::pubsub(LOG)))
}

/// Notes `why` beside the reason of this boot's end, in the log and behind the stored reason of `order`;
/// foreign lines stay.
pub(crate) fn mark(
    topic_root: &TopicRoot,
    order: &MachineOrder,
    why: &str,
    now: GoTime,
) -> Result<(), Error> {
    let running = RunningImage::running(topic_root);
    let marked = line(&running, &format!("{}; {why}", order.reason.trim()), now);
    let held = content(topic_root, REASON, LOG_LIMIT_BYTES)?.unwrap_or_default();
    let own = up_to_time(&running, &order.reason);
    let line = |line| if str::starts_with(line, &own) { marked.as_str() } else { line };
    let all: String = held.split_inclusive('\n').map(line).collect();
    let mut outcome = Ok(());
    if all != held {
        outcome = store::replace(&topic_root.path(REASON), all.as_bytes()).map_err(Error::pubsub(REASON));
    }
    outcome.and(append(topic_root, LOG, &marked).map_err(Error::pubsub(LOG)))
}

/// A reason as stored and logged: one line.
fn line(running: &RunningImage, reason: &str, now: GoTime) -> String {
    format!("{}{}\n", up_to_time(running, reason), now.rfc3339())
}

fn up_to_time(running: &RunningImage, reason: &str) -> String {
    let reason = reason.trim().lines().collect::<Vec<_>>().join(" ");
    format!("{reason} at EVE version {} at ", running.version)
}

/// Best effort: no operation depends on the console.
fn console(topic_root: &TopicRoot, operation: MachineOperation, line: &str) {
    let what = match operation {
        MachineOperation::Reboot => "Rebooting EVE",
        MachineOperation::Shutdown | MachineOperation::Poweroff => "Power off EVE",
    };
    let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY).bits();
    let flags = i32::try_from(flags).unwrap_or_default();
    let opened = OpenOptions::new().append(true).custom_flags(flags).open(topic_root.path(CONSOLE));
    let said = opened.and_then(|mut console| console.write_all(format!("{what}. Reason: {line}").as_bytes()));
    if let Err(error) = said {
        debug!(path = CONSOLE, %error, "no console to say it on");
    }
}

/// Earlier starts of the device; an invalid number counts as none and is logged.
pub(crate) fn counter(topic_root: &TopicRoot) -> Result<u32, Error> {
    let Some(text) = text(topic_root, COUNTER)? else { return Ok(0) };
    Ok(text.parse().unwrap_or_else(|cause| {
        warn!(path = COUNTER, error = %cause, "the restart counter is no number, it begins at 0 again");
        0
    }))
}

pub(crate) fn count(topic_root: &TopicRoot, before: u32) {
    let next = before.saturating_add(1).to_string();
    if let Err(cause) = store::replace(&topic_root.path(COUNTER), next.as_bytes()) {
        warn!(path = COUNTER, error = %step::chain(&cause), "cannot count this start");
    }
}

/// As on disk. A number without a name is written so that it reads as a parse failure.
fn name(reason: BootReason) -> String {
    format!("{PREFIX}{reason:?}")
}

fn number(text: &str) -> BootReason {
    let known = BootReason::NAMED.iter().find(|reason| name(**reason) == text);
    known.copied().unwrap_or(BootReason::ParseFail)
}

/// A short text; `None` for a blank one.
fn text(topic_root: &TopicRoot, file: &str) -> Result<Option<String>, Error> {
    let text = content(topic_root, file, WORDS_BYTES)?.map(|text| text.trim().to_owned());
    Ok(text.filter(|text| !text.is_empty()))
}

fn content(topic_root: &TopicRoot, file: &str, limit: u64) -> Result<Option<String>, Error> {
    match store::read_start(&topic_root.path(file), limit) {
        Ok(bytes) => Ok(bytes.and_then(|mut bytes| {
            // Lost with the power: a block that was never written is ignored.
            bytes.retain(|it| *it != UNWRITTEN);
            (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
        })),
        Err(cause) if cause.is_shortage() => Err(Error::pubsub(file.to_owned())(cause)),
        Err(cause) => {
            warn!(path = file, error = %step::chain(&cause), "cannot be read, ignored");
            Ok(None)
        }
    }
}

fn written_at(path: &Path) -> Option<GoTime> {
    let file = path.to_owned();
    let modified = reach::look(path, move || fs::symlink_metadata(file)?.modified()).ok()?.ok()?;
    jiff::Timestamp::try_from(modified).ok().map(GoTime::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::reasons::STACK_LOG;

    fn root() -> (tempfile::TempDir, TopicRoot) {
        let dir = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(dir.path()).unwrap();
        (dir, topic_root)
    }

    fn order(reason: &str, boot_reason: BootReason) -> MachineOrder {
        MachineOrder { operation: MachineOperation::Reboot, reason: reason.into(), boot_reason }
    }

    #[test]
    fn what_is_written_is_read_and_then_forgotten() {
        let (_dir, topic_root) = root();
        write(&topic_root, &order("NORMAL: controller reboot", BootReason::RebootCmd), "IMGA", GoTime::ZERO)
            .unwrap();
        let stored = read(&topic_root).unwrap();
        assert_eq!(
            stored.reason.as_deref(),
            Some("NORMAL: controller reboot at EVE version Unknown at 0001-01-01T00:00:00Z\n")
        );
        assert_eq!(stored.boot_reason, Some(BootReason::RebootCmd));
        assert_eq!(stored.image.as_deref(), Some("IMGA"));
        assert!(stored.time.is_some());
        assert_eq!(text(&topic_root, NUMBER).unwrap().as_deref(), Some("BootReasonRebootCmd"));
        forget(&topic_root);
        assert_eq!(read(&topic_root).unwrap(), Stored::default());
    }

    #[test]
    fn a_reason_whose_block_was_never_written_counts_as_lost_and_is_in_nobodys_way() {
        let (_dir, topic_root) = root();
        for file in [REASON, NUMBER, IMAGE] {
            store::replace(&topic_root.path(file), &[0; 96]).unwrap();
        }
        let stored = read(&topic_root).unwrap();
        assert_eq!((stored.reason, stored.boot_reason, stored.image), (None, None, None));
        write(&topic_root, &order("first", BootReason::RebootCmd), "IMGA", GoTime::ZERO).unwrap();
        let stored = read(&topic_root).unwrap();
        assert!(stored.reason.unwrap().starts_with("first at EVE version"));
        assert_eq!(stored.boot_reason, Some(BootReason::RebootCmd));
    }

    #[test]
    fn d_n4_the_first_reason_stays_and_the_second_is_a_line_after_it() {
        let (_dir, topic_root) = root();
        write(&topic_root, &order("first", BootReason::Fatal), "IMGA", GoTime::ZERO).unwrap();
        write(&topic_root, &order("second", BootReason::RebootCmd), "IMGB", GoTime::ZERO).unwrap();
        let stored = read(&topic_root).unwrap();
        let line = |why: &str| format!("{why} at EVE version Unknown at 0001-01-01T00:00:00Z\n");
        let both = Some(line("first") + &line("second"));
        assert_eq!((&stored.reason, stored.boot_reason), (&both, Some(BootReason::Fatal)));
        assert_eq!(stored.image.as_deref(), Some("IMGA"));
        assert_eq!(content(&topic_root, LOG, WORDS_BYTES).unwrap(), both);
    }

    #[test]
    fn a_file_that_could_not_be_written_is_written_by_the_next_try_and_keeps_no_other_from_being_written() {
        let mut expected = None;
        for broken in [IMAGE, REASON, NUMBER, LOG] {
            let (_dir, topic_root) = root();
            fs::create_dir_all(topic_root.path(broken)).unwrap();
            let first = order("first", BootReason::RebootCmd);
            let write = || write(&topic_root, &first, "IMGA", GoTime::ZERO);
            let at = |file: &str| content(&topic_root, file, WORDS_BYTES).unwrap();
            let now = || [IMAGE, REASON, NUMBER, LOG].map(at);
            assert!(write().is_err(), "{broken}");
            for (file, held) in [(IMAGE, "IMGA"), (REASON, "first at EVE"), (NUMBER, "BootReasonRebootCmd")] {
                let is = at(file).is_some_and(|it| it.starts_with(held));
                assert_eq!(is, file != broken, "{file} while {broken} is broken");
            }
            fs::remove_dir(topic_root.path(broken)).unwrap();
            write().unwrap();
            assert!(now().iter().all(Option::is_some), "{broken}: {:?}", now());
            let expected = expected.get_or_insert_with(now);
            assert_eq!(&now(), expected, "{broken}: once in each");
        }
    }

    #[test]
    fn a_panic_that_is_over_does_not_take_the_reason_of_a_reboot_under_way_with_it() {
        let (_dir, topic_root) = root();
        agent::reasons::fatal(&topic_root, "zedkube", "x", "0: a", GoTime::ZERO).unwrap();
        write(&topic_root, &order("by a person", BootReason::RebootCmd), "IMGA", GoTime::ZERO).unwrap();
        assert_eq!(agent::reasons::survived(&topic_root, "zedkube").unwrap(), None);
        let stored = read(&topic_root).unwrap();
        let reason = stored.reason.unwrap();
        let lines: Vec<&str> = reason.lines().collect();
        assert!(lines[0].starts_with("Reboot from agent zedkube[") && lines.len() == 2, "{lines:?}");
        assert!(lines[1].starts_with("by a person at EVE version "), "{lines:?}");
        assert_eq!(stored.boot_reason, Some(BootReason::Fatal));
    }

    #[test]
    fn a_note_leaves_the_lines_that_others_have_written() {
        let (_dir, topic_root) = root();
        let (before, after) = ("Reboot from agent zedagent[7]: x\n", "Watchdog report for IMGA: zedagent\n");
        store::replace(&topic_root.path(REASON), before.as_bytes()).unwrap();
        let first = order("first", BootReason::RebootCmd);
        write(&topic_root, &first, "IMGA", GoTime::ZERO).unwrap();
        append(&topic_root, REASON, after).unwrap();
        mark(&topic_root, &first, "without its turn", GoTime::ZERO).unwrap();
        mark(&topic_root, &order("another", BootReason::RebootCmd), "x", GoTime::ZERO).unwrap();
        let own = "first; without its turn at EVE version Unknown at 0001-01-01T00:00:00Z\n";
        assert_eq!(content(&topic_root, REASON, WORDS_BYTES).unwrap(), Some(format!("{before}{own}{after}")));
    }

    #[test]
    fn what_is_written_has_the_forms_of_the_reference() {
        let (_dir, topic_root) = root();
        for (file, text) in [("run/eve-release", "14.5.0-k-amd64\n"), ("run/eve.id", "IMGB"), (CONSOLE, "")] {
            store::replace(&topic_root.path(file), text.as_bytes()).unwrap();
        }
        let now = "2026-03-14T09:26:53.589793238Z".parse().unwrap();
        let reboot = order("NORMAL: controller reboot\n", BootReason::RebootCmd);
        write(&topic_root, &reboot, "IMGA", now).unwrap();
        let line =
            "NORMAL: controller reboot at EVE version 14.5.0-k-amd64 at 2026-03-14T09:26:53.589793238Z\n";
        let rows = [
            (REASON, line.to_owned()),
            (LOG, line.to_owned()),
            (NUMBER, "BootReasonRebootCmd".to_owned()),
            (IMAGE, "IMGB".to_owned()),
            (CONSOLE, format!("Rebooting EVE. Reason: {line}")),
        ];
        for (file, expected) in rows {
            assert_eq!(content(&topic_root, file, WORDS_BYTES).unwrap(), Some(expected), "{file}");
        }
        let off = MachineOrder { operation: MachineOperation::Poweroff, ..order("x", BootReason::None) };
        forget(&topic_root);
        write(&topic_root, &off, "IMGA", now).unwrap();
        assert_eq!(
            content(&topic_root, NUMBER, WORDS_BYTES).unwrap(),
            None,
            "a reason without a number has none"
        );
        let said = content(&topic_root, CONSOLE, WORDS_BYTES).unwrap().unwrap();
        assert!(said.ends_with(
            "Power off EVE. Reason: x at EVE version 14.5.0-k-amd64 at 2026-03-14T09:26:53.589793238Z\n"
        ));
        mark(&topic_root, &off, "without its turn", now).unwrap();
        let marked = "x; without its turn at EVE version 14.5.0-k-amd64 at 2026-03-14T09:26:53.589793238Z\n";
        assert_eq!(content(&topic_root, REASON, WORDS_BYTES).unwrap().as_deref(), Some(marked));
        assert!(content(&topic_root, LOG, WORDS_BYTES).unwrap().unwrap().ends_with(marked));
    }

    #[test]
    fn what_others_write_is_read_as_it_is_and_no_further_than_its_limit() {
        let (_dir, topic_root) = root();
        // The watchdog and kube-init, after one of the reference's agents that ended.
        let lines = "Reboot from agent zedagent[7] in partition IMGA at EVE version 14.5.0-k at 2026-03-14T09:26:53Z: x\n\
                     Watchdog report for IMGA EVE version 14.5.0-k at 2026-03-14T09:32:00Z: zedagent\n \
                     [2026-05-15 14:23:45]: BootReasonKubeTransition, cluster to single\n";
        store::replace(&topic_root.path(REASON), lines.as_bytes()).unwrap();
        store::replace(&topic_root.path(NUMBER), b"BootReasonWatchdogHung\n").unwrap();
        store::replace(&topic_root.path(IMAGE), b"IMGA\n").unwrap();
        store::replace(&topic_root.path(STACK), b"goroutine 1 [running]:\n\n").unwrap();
        let stored = read(&topic_root).unwrap();
        assert_eq!((stored.reason.as_deref(), stored.image.as_deref()), (Some(lines), Some("IMGA")));
        assert_eq!(stored.boot_reason, Some(BootReason::WatchdogHung));
        assert_eq!(stored.stack.as_deref(), Some("goroutine 1 [running]:\n\n"));
        for (file, limit) in [(REASON, WORDS_BYTES), (STACK, STACK_BYTES)] {
            store::replace(&topic_root.path(file), &vec![b'x'; usize::try_from(limit).unwrap() + 1]).unwrap();
        }
        let stored = read(&topic_root).unwrap();
        let bytes = [stored.reason, stored.stack].map(|it| u64::try_from(it.unwrap().len()).unwrap());
        assert_eq!(bytes, [16 << 10, 512 << 10]);
        assert!(!topic_root.path(STACK_LOG).exists());
    }

    #[test]
    fn the_machine_says_by_disk_and_watchdog_how_it_went_down() {
        let count = |count: i64| format!(r#"{{"PowerCycleCount":{count},"Other":"x"}}"#);
        let rows = [
            (Some(count(8)), Some(count(7)), "", Some(true), false),
            (Some(count(7)), Some(count(7)), "OVERHEAT\nCARDRESET\n", Some(false), true),
            (Some(count(0)), Some(count(0)), "NOCARDRESET\n", Some(false), false),
            (Some(count(7)), Some(count(-1)), "", None, false),
            (Some(count(-1)), Some(count(7)), "", None, false),
            (Some(count(7)), None, "CARDRESET", None, true),
            (Some("{".to_owned()), Some(count(7)), "", None, false),
            (Some("{}".to_owned()), Some(count(7)), "", None, false),
        ];
        for (now, before, watchdog, power_cycled, watchdog_reset) in rows {
            let (_dir, topic_root) = root();
            for (file, text) in DISK.into_iter().zip([&now, &before]) {
                if let Some(text) = text {
                    store::replace(&topic_root.path(file), text.as_bytes()).unwrap();
                }
            }
            store::replace(&topic_root.path(WATCHDOG), watchdog.as_bytes()).unwrap();
            let expected = Evidence { first_boot: false, power_cycled, watchdog_reset };
            assert_eq!(evidence(&topic_root).unwrap(), expected, "{now:?} {before:?} {watchdog}");
        }
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
        let (_dir, topic_root) = root();
        assert_eq!(counter(&topic_root).unwrap(), 0);
        count(&topic_root, 0);
        assert_eq!(counter(&topic_root).unwrap(), 1);
        store::replace(&topic_root.path(COUNTER), b"many").unwrap();
        assert_eq!(counter(&topic_root).unwrap(), 0);
    }

    #[test]
    fn a_link_in_the_place_of_a_reason_is_left_out() {
        let (dir, topic_root) = root();
        fs::create_dir_all(dir.path().join("persist")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", dir.path().join(REASON)).unwrap();
        assert_eq!(read(&topic_root).unwrap().reason, None);
    }
}
