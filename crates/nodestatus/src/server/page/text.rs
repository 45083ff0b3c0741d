//! Times and texts for a person. Pure: no clock, no I/O, no task.

use sheet::text::span;
use topics::GoTime;

/// Prefixes of libraries' texts, useless for the page's reader.
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

/// `3 min ago`, `in 48 min`, or `now`.
pub(super) fn away(at: GoTime, now: GoTime) -> String {
    match at.apart(now).as_secs() {
        0 => "now".to_owned(),
        secs if at > now => format!("in {}", span(secs)),
        secs => format!("{} ago", span(secs)),
    }
}

/// `text` without libraries' words: they end at the next `; `.
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
    fn distances_of_time_read_at_a_glance() {
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
