//! How the boot before this one ended, from its files.
//!
//! Pure: no clock, no I/O, no task.

use serde::{Deserialize, Serialize};
use topics::{BootReason, GoTime};

/// A longer stack is cut.
const STACK_LONGEST: usize = 1700;
/// Kept of its end, which matters more.
const STACK_KEPT: usize = 1600;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct LastBoot {
    pub reason: String,
    pub boot_reason: BootReason,
    /// Of a crashed agent.
    pub stack: String,
    /// When it ended, or when this one began.
    pub time: GoTime,
    /// Its partition.
    pub image: String,
    /// Earlier starts of the device.
    pub restart_counter: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stored {
    pub reason: Option<String>,
    pub boot_reason: Option<BootReason>,
    /// Of a crashed agent.
    pub stack: Option<String>,
    /// Its partition.
    pub image: Option<String>,
    /// When the number was stored, else the words: the start of its shutdown.
    pub time: Option<GoTime>,
}

/// The machine's own evidence of a restart that stored nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evidence {
    /// The installer's mark: no boot before.
    pub first_boot: bool,
    /// The disk counts one more power cycle; `None` without such a disk.
    pub power_cycled: Option<bool>,
    /// The hardware watchdog reset the board.
    pub watchdog_reset: bool,
}

impl LastBoot {
    /// From the traces; `now` where there are none.
    pub fn from_traces(stored: Stored, evidence: Evidence, now: GoTime, restart_counter: u32) -> Self {
        let image = stored.image.unwrap_or_default();
        let time = stored.time.unwrap_or(now);
        let (reason, boot_reason, stack) = if let Some(reason) = stored.reason {
            (reason, stored.boot_reason.unwrap_or_default(), cut(stored.stack.unwrap_or_default()))
        } else {
            // A number without words is the better evidence: then the machine is not asked.
            let evidence = if stored.boot_reason.is_some() { Evidence::default() } else { evidence };
            let (reason, boot_reason) = guess(evidence, now);
            (reason, stored.boot_reason.unwrap_or(boot_reason), String::new())
        };
        Self { reason, boot_reason, stack, time, image, restart_counter }
    }
}

/// The first line that fits.
fn guess(evidence: Evidence, now: GoTime) -> (String, BootReason) {
    let at = now.rfc3339();
    if evidence.first_boot {
        (format!("NORMAL: First boot of device - at {at}"), BootReason::First)
    } else if evidence.power_cycled == Some(true) {
        (format!("Reboot reason - device powered off. Restarted at {at}"), BootReason::PowerFail)
    } else if evidence.watchdog_reset {
        (format!("Reboot reason - hardware watchdog reset the device - at {at}"), BootReason::HWWatchdog)
    } else if evidence.power_cycled.is_some() {
        (
            format!(
                "Reboot reason - system reset, reboot or kernel panic due to watchdog or kernel bug (no kdump) - at {at}"
            ),
            BootReason::Kernel,
        )
    } else {
        (format!("Unknown reboot reason - power failure or crash - at {at}"), BootReason::Unknown)
    }
}

fn cut(stack: String) -> String {
    let runes = stack.chars().count();
    if runes <= STACK_LONGEST {
        return stack;
    }
    let kept: String = stack.chars().skip(runes - STACK_KEPT).collect();
    format!("...\n{kept}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> GoTime {
        "2026-03-14T09:26:53.589793238Z".parse().unwrap()
    }

    #[test]
    fn a_restart_without_words_is_told_by_the_first_rule_that_fits() {
        let rows = [
            (true, Some(true), true, "NORMAL: First boot of device - at", BootReason::First),
            (
                false,
                Some(true),
                true,
                "Reboot reason - device powered off. Restarted at",
                BootReason::PowerFail,
            ),
            (
                false,
                Some(false),
                true,
                "Reboot reason - hardware watchdog reset the device - at",
                BootReason::HWWatchdog,
            ),
            (
                false,
                None,
                true,
                "Reboot reason - hardware watchdog reset the device - at",
                BootReason::HWWatchdog,
            ),
            (false, Some(false), false, "Reboot reason - system reset", BootReason::Kernel),
            (false, None, false, "Unknown reboot reason - power failure or crash - at", BootReason::Unknown),
        ];
        for (first_boot, power_cycled, watchdog_reset, text, number) in rows {
            let evidence = Evidence { first_boot, power_cycled, watchdog_reset };
            let told = LastBoot::from_traces(Stored::default(), evidence, now(), 3);
            assert!(
                told.reason.starts_with(text) && told.reason.ends_with(&now().rfc3339()),
                "{}",
                told.reason
            );
            assert_eq!((told.boot_reason, told.time, told.restart_counter), (number, now(), 3));
        }
    }

    #[test]
    fn what_was_stored_goes_before_every_guess() {
        let earlier: GoTime = "2026-03-14T09:00:00Z".parse().unwrap();
        let stored = Stored {
            reason: Some("NORMAL: controller reboot".into()),
            boot_reason: Some(BootReason::RebootCmd),
            image: Some("IMGA".into()),
            stack: None,
            time: Some(earlier),
        };
        let told =
            LastBoot::from_traces(stored, Evidence { first_boot: true, ..Evidence::default() }, now(), 0);
        assert_eq!(
            (told.reason.as_str(), told.boot_reason),
            ("NORMAL: controller reboot", BootReason::RebootCmd)
        );
        assert_eq!((told.time, told.image.as_str()), (earlier, "IMGA"));
    }

    #[test]
    fn a_number_without_words_stays() {
        let stored = Stored { boot_reason: Some(BootReason::OOM), ..Stored::default() };
        let told = LastBoot::from_traces(stored, Evidence::default(), now(), 0);
        assert_eq!(told.boot_reason, BootReason::OOM);
        assert!(told.reason.starts_with("Unknown reboot reason"), "{}", told.reason);
    }

    #[test]
    fn of_a_long_stack_the_end_is_kept() {
        let stack = |runes: usize| {
            let stored =
                Stored { reason: Some("x".into()), stack: Some("é".repeat(runes)), ..Stored::default() };
            LastBoot::from_traces(stored, Evidence::default(), now(), 0).stack
        };
        assert_eq!(stack(1700), "é".repeat(1700));
        assert_eq!(stack(1701), format!("...\n{}", "é".repeat(1600)));
    }
}
