//! Times, lengths and counts for a person. Pure: no clock, no I/O, no task.

pub use topics::number;

use topics::GoTime;

/// Columns of a bar between its brackets.
const BAR: usize = 20;

/// `[#####.....]`: `part` of `whole`; full only when nothing is left.
pub fn bar(part: u32, whole: u32) -> String {
    let steps = u64::try_from(BAR).unwrap_or_default();
    let full = (u64::from(part) * steps).checked_div(u64::from(whole)).unwrap_or_default().min(steps);
    let full = usize::try_from(full).unwrap_or_default();
    format!("[{}{}]", "#".repeat(full), ".".repeat(BAR.saturating_sub(full)))
}

/// A length of time in its two largest units.
pub fn span(secs: u64) -> String {
    let (mins, hours, days) = (secs / 60, secs / 3600, secs / 86_400);
    let two = |large: u64, unit: &str, small: u64, of: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {of}"),
    };
    match (days, hours, mins) {
        (0, 0, 0) => format!("{secs} s"),
        (0, 0, mins) if mins < 10 => two(mins, "min", secs % 60, "s"),
        (0, 0, mins) => format!("{mins} min"),
        (0, hours, mins) => two(hours, "h", mins % 60, "min"),
        (days, hours, _) => two(days, "d", hours % 24, "h"),
    }
}

/// Seconds on the Unix clock.
pub fn unix_secs(at: GoTime) -> i64 {
    at.to_timestamp().as_second()
}

/// `09:30:04 UTC`, with the date when it is not today's.
pub fn clock_time(at: GoTime, now: GoTime) -> String {
    let (date, time) = date_and_time(at);
    if date_and_time(now).0 == date { format!("{time} UTC") } else { format!("{date} {time} UTC") }
}

/// `2026-03-14` and `09:30:04`, in UTC.
pub fn date_and_time(at: GoTime) -> (String, String) {
    let at = at.to_timestamp();
    (at.strftime("%Y-%m-%d").to_string(), at.strftime("%H:%M:%S").to_string())
}

/// `text` without the date of today before its times.
pub fn of_today(text: &str, now: GoTime) -> String {
    text.replace(&format!("{} ", date_and_time(now).0), "")
}

/// In UTC to the second as RFC 3339, for lines of a log and for programs.
pub fn seconds(at: GoTime) -> String {
    at.to_timestamp().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `at` in both ways: `09:30:04 UTC, 11 min ago`, or `10:30:00 UTC, in 48 min`.
pub fn moment(at: GoTime, now: GoTime) -> String {
    format!("{}, {}", clock_time(at, now), away(at, now))
}

/// `3 min ago`, `in 48 min`, or `now`.
pub fn away(at: GoTime, now: GoTime) -> String {
    let away = unix_secs(at) - unix_secs(now);
    let length = span(away.unsigned_abs());
    match away {
        0 => "now".to_owned(),
        1.. => format!("in {length}"),
        _ => format!("{length} ago"),
    }
}

/// Prefixes of libraries' texts, useless for a person.
const RAW: [&str; 9] = [
    "client error",
    "tcp connect error",
    "dns error",
    "connection error",
    "error trying",
    "error sending",
    "Os {",
    "hyper::",
    " (os error",
];

/// `text` without libraries' words: they end at the next `; `.
pub fn spoken(text: &str) -> String {
    let parts = text.split("; ").map(|part| {
        let raw = RAW.iter().filter_map(|word| part.find(word)).min();
        raw.map_or(part, |at| part.get(..at).unwrap_or(part).trim_end_matches([' ', ':', '(']))
    });
    parts.filter(|it| !it.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> GoTime {
        text.parse().unwrap()
    }

    #[test]
    fn a_bar_is_full_only_when_all_is_done() {
        for (part, whole, full) in
            [(0, 0, 0), (0, 4, 0), (1, 4, 5), (199, 200, 19), (200, 200, 20), (9, 4, 20)]
        {
            assert_eq!(bar(part, whole).matches('#').count(), full, "{part} of {whole}");
            assert_eq!(bar(part, whole).len(), 22);
        }
    }

    #[test]
    fn lengths_of_time_have_two_units_at_most() {
        for (secs, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (61, "1 min 1 s"),
            (3599, "59 min"),
            (3600, "1 h"),
            (86_399, "23 h 59 min"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(span(secs), text);
        }
    }

    #[test]
    fn a_moment_is_told_in_utc_and_from_now_with_its_date_when_it_is_another_day() {
        let now = at("2026-03-14T09:41:00Z");
        assert_eq!(moment(at("2026-03-14T10:30:04+01:00"), now), "09:30:04 UTC, 10 min ago");
        assert_eq!(moment(at("2026-03-15T09:30:02Z"), now), "2026-03-15 09:30:02 UTC, in 23 h 49 min");
        assert_eq!(moment(now, now), "09:41:00 UTC, now");
    }

    #[test]
    fn words_of_libraries_are_left_out_and_what_follows_stays() {
        for (text, left) in [
            ("no drain requested", "no drain requested"),
            (
                "the API is not reachable: get version with kubeconfig k: client error (Connect): tcp connect error: \
                 Connection refused (os error 111); the drain is not skipped for that",
                "the API is not reachable: get version with kubeconfig k; the drain is not skipped for that",
            ),
            ("hyper::Error(Canceled)", ""),
            ("no space left on device (os error 28); it continues", "no space left on device; it continues"),
            ("", ""),
        ] {
            assert_eq!(spoken(text), left);
        }
    }
}
