//! What outlives a boot: why the device went down, and how often it started.
//!
//! Source: lf-edge/eve pkg/pillar/agentlog, pkg/pillar/cmd/nodeagent.

use agent::{Error, Station};
use pubsub::store;
use topics::{BootReason, NodeAgentStatus};
use tracing::warn;

const REASON: &str = "persist/reboot-reason";
const BOOT_REASON: &str = "persist/boot-reason";
const IMAGE: &str = "persist/reboot-image";
const STACK: &str = "persist/reboot-stack";
const LOG: &str = "persist/log/reboot-reason.log";
const COUNTER: &str = "persist/status/restartcounter";
const FIRST_BOOT: &str = "run/global/first-boot";
/// No reason or stack is longer.
const LIMIT_BYTES: u64 = 1 << 20;
/// A longer stack is cut to its end.
const STACK_RUNES: usize = 1600;
/// The log of reasons keeps this many.
const LOG_LINES: usize = 100;

/// Reads what the last boot left and removes it, so that the next one is not told the same.
pub(crate) fn take_last(station: &Station) -> Result<NodeAgentStatus, Error> {
    let text = |path: &str| -> Result<Option<String>, Error> {
        let bytes = store::read(&station.bus.path(path), LIMIT_BYTES).map_err(Error::pubsub(path))?;
        Ok(bytes
            .map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
            .filter(|text| !text.is_empty()))
    };
    let now = station.clock.wall();
    let first = text(FIRST_BOOT)?.is_some() || station.bus.path(FIRST_BOOT).exists();
    let mut last = NodeAgentStatus { reboot_time: now, ..NodeAgentStatus::default() };
    (last.reboot_reason, last.boot_reason) = match (text(REASON)?, text(BOOT_REASON)?, first) {
        (None, None, true) => (format!("NORMAL: First boot of device - at {now}"), BootReason::First),
        (None, None, false) => {
            (format!("Unknown reboot reason - power failure or crash - at {now}"), BootReason::Unknown)
        }
        (reason, number, _) => {
            let number = number.map_or(BootReason::Unknown, |name| boot_reason(&name));
            (reason.unwrap_or_else(|| "Unknown reboot reason".to_owned()), number)
        }
    };
    last.reboot_image = text(IMAGE)?.unwrap_or_default();
    last.reboot_stack = text(STACK)?.map(|stack| cut(&stack)).unwrap_or_default();
    last.restart_counter = match text(COUNTER)? {
        None => 0,
        Some(count) => count.parse().unwrap_or_else(|error| {
            warn!(path = COUNTER, %error, found = count, "the restart counter is no number, it starts again at 0");
            0
        }),
    };
    let next = last.restart_counter.saturating_add(1).to_string();
    store::replace(&station.bus.path(COUNTER), next.as_bytes()).map_err(Error::pubsub(COUNTER))?;
    for path in [REASON, BOOT_REASON, IMAGE, STACK] {
        store::remove(&station.bus.path(path)).map_err(Error::pubsub(path))?;
    }
    Ok(last)
}

/// Keeps why the device goes down. The first reason is the one that counts (D-N4).
pub(crate) fn keep(
    station: &Station,
    reason: &str,
    boot_reason: BootReason,
    image: &str,
) -> Result<(), Error> {
    let write = |path: &str, text: &str| {
        store::replace(&station.bus.path(path), text.as_bytes()).map_err(Error::pubsub(path))
    };
    let log =
        store::read(&station.bus.path(LOG), LIMIT_BYTES).map_err(Error::pubsub(LOG))?.unwrap_or_default();
    let log = String::from_utf8_lossy(&log).into_owned();
    let mut lines: Vec<&str> = log.lines().collect();
    let line = format!("{} {reason}", station.clock.wall());
    lines.push(&line);
    let kept = lines.split_off(lines.len().saturating_sub(LOG_LINES)).join("\n") + "\n";
    write(LOG, &kept)?;
    if station.bus.path(BOOT_REASON).exists() {
        warn!(reason, "an earlier reason to go down is kept already, it stays");
        return Ok(());
    }
    write(REASON, reason)?;
    write(IMAGE, image)?;
    // Last: its presence says that the others are there.
    write(BOOT_REASON, &format!("BootReason{boot_reason:?}"))
}

fn boot_reason(name: &str) -> BootReason {
    let known = BootReason::NAMED.iter().find(|it| format!("BootReason{it:?}") == name);
    known.copied().unwrap_or(BootReason::ParseFail)
}

fn cut(stack: &str) -> String {
    let runes = stack.chars().count();
    stack.chars().skip(runes.saturating_sub(STACK_RUNES)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::{Clock, Stop};
    use pubsub::Bus;

    fn station() -> (tempfile::TempDir, Station) {
        let root = tempfile::tempdir().unwrap();
        let bus = Bus::open(root.path()).unwrap();
        let (_, stop) = Stop::new();
        (root, Station { bus, clock: Clock::new(), stop, boot_id: "b1".into() })
    }

    #[tokio::test]
    async fn what_is_kept_is_told_at_the_next_start_and_once() {
        let (_root, station) = station();
        keep(&station, "NORMAL: controller reboot", BootReason::RebootCmd, "IMGA").unwrap();
        let last = take_last(&station).unwrap();
        assert_eq!(last.reboot_reason, "NORMAL: controller reboot");
        assert_eq!((last.boot_reason, last.reboot_image.as_str()), (BootReason::RebootCmd, "IMGA"));
        assert_eq!(last.restart_counter, 0);
        let next = take_last(&station).unwrap();
        assert_eq!((next.boot_reason, next.restart_counter), (BootReason::Unknown, 1));
    }

    #[tokio::test]
    async fn d_n4_the_first_reason_stays() {
        let (_root, station) = station();
        keep(&station, "first", BootReason::Update, "IMGA").unwrap();
        keep(&station, "second", BootReason::RebootCmd, "IMGA").unwrap();
        let last = take_last(&station).unwrap();
        assert_eq!((last.reboot_reason.as_str(), last.boot_reason), ("first", BootReason::Update));
        let log = std::fs::read_to_string(station.bus.path(LOG)).unwrap();
        assert!(log.contains("first") && log.contains("second"));
    }

    #[tokio::test]
    async fn a_first_boot_is_told_apart_from_a_power_failure() {
        let (_root, station) = station();
        store::replace(&station.bus.path(FIRST_BOOT), b"").unwrap();
        assert_eq!(take_last(&station).unwrap().boot_reason, BootReason::First);
    }

    #[tokio::test]
    async fn a_reason_and_a_counter_that_make_no_sense_stop_nothing() {
        let (_root, station) = station();
        store::replace(&station.bus.path(BOOT_REASON), b"BootReasonMagic").unwrap();
        store::replace(&station.bus.path(COUNTER), b"many").unwrap();
        let last = take_last(&station).unwrap();
        assert_eq!((last.boot_reason, last.restart_counter), (BootReason::ParseFail, 0));
    }
}
