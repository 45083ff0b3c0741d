//! Times on the command line: a number with its unit.

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

#[cfg(test)]
mod tests {
    use super::*;

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
