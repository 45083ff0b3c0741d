//! Durations on the command line.

use std::time::Duration;

/// `90s`, `5m` or `2h`; a number alone is seconds.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        _ => None,
    };
    let number: Option<u64> = digits.parse().ok();
    let secs = number.zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    secs.map(Duration::from_secs).ok_or_else(|| format!("`{text}` is no time; use 90s, 5m or 2h"))
}

/// The same for a length that a person relies on: without a unit, seconds, minutes or hours could be meant.
pub(super) fn span_with_unit(text: &str) -> Result<Duration, String> {
    if !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit()) {
        return Err(format!("`{text}` has no unit; type {text}s, {text}m or {text}h"));
    }
    span(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_a_person_relies_on_has_a_unit() {
        assert_eq!(span_with_unit("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(span_with_unit("2").unwrap_err(), "`2` has no unit; type 2s, 2m or 2h");
        assert!(span_with_unit("").is_err() && span_with_unit("soon").is_err());
    }

    #[test]
    fn a_time_is_a_number_with_its_unit() {
        for (text, secs) in [("90", 90), ("90s", 90), ("5m", 300), ("2h", 7200), ("0", 0)] {
            assert_eq!(span(text), Ok(Duration::from_secs(secs)), "{text}");
        }
        for wrong in ["", "m", "-1", "1.5h", "5d", "5 m", "5mm", "18446744073709551615h", "\u{663}s"] {
            assert!(span(wrong).unwrap_err().contains("90s, 5m or 2h"), "{wrong}");
        }
    }
}
