//! Times and texts for a person. Pure: no clock, no I/O, no task.

use topics::GoTime;

/// What texts of the libraries begin with: who shows the page cannot do anything with them.
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

/// A length of time in its largest unit, two below ten minutes and above an hour.
pub(super) fn span(secs: u64) -> String {
    let (mins, hours, days) = (secs / 60, secs / 3600, secs / 86_400);
    match (days, hours, mins) {
        (0, 0, 0) => format!("{secs} s"),
        (0, 0, mins) => format!("{mins} min"),
        (0, hours, mins) if mins % 60 == 0 => format!("{hours} h"),
        (0, hours, mins) => format!("{hours} h {} min", mins % 60),
        (1, ..) => "1 day".to_owned(),
        (days, ..) => format!("{days} days"),
    }
}

/// `3 min ago`, `in 48 min`, or `now`.
pub(super) fn away(at: GoTime, now: GoTime) -> String {
    match at.apart(now).as_secs() {
        0 => "now".to_owned(),
        secs if at > now => format!("in {}", span(secs)),
        secs => format!("{} ago", span(secs)),
    }
}

/// `text` without the words of libraries: they end at the next `; `.
pub(super) fn spoken(text: &str) -> String {
    let parts = text.split("; ").map(|part| {
        let raw = RAW.iter().filter_map(|word| part.find(word)).min();
        raw.map_or(part, |at| part.get(..at).unwrap_or(part).trim_end_matches([' ', ':', '(']))
    });
    parts.filter(|it| !it.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_distances_of_time_read_at_a_glance() {
        for (secs, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3599, "59 min"),
            (3600, "1 h"),
            (5400, "1 h 30 min"),
            (86_399, "23 h 59 min"),
            (86_400, "1 day"),
            (200_000, "2 days"),
        ] {
            assert_eq!(span(secs), text);
        }
        let at = |text: &str| text.parse::<GoTime>().unwrap();
        let now = at("2026-03-14T09:41:00Z");
        for (then, text) in [
            ("2026-03-14T09:38:00Z", "3 min ago"),
            ("2026-03-14T11:29:00+01:00", "in 48 min"),
            ("2026-03-14T09:41:00.5Z", "now"),
        ] {
            assert_eq!(away(at(then), now), text);
        }
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
