//! Quantities as Kubernetes writes them, as `10Gi` or `1.5G`, in whole units.
//!
//! Source: the Kubernetes page on quantities; a part of a unit is rounded up, as the server does.
//! Pure: no clock, no I/O, no task.

/// 0 for none, a negative one, and an invalid text.
pub(super) fn whole(text: &str) -> u64 {
    parse(text.trim()).unwrap_or_default()
}

fn parse(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (units, parts) = number.split_once('.').unwrap_or((number, ""));
    let parts = parts.get(..parts.len().min(12))?;
    let digits: u128 = format!("{units}{parts}").parse().ok()?;
    let places = i32::try_from(parts.len()).ok()?;
    let (factor, power) = scale(suffix)?;
    let power = power - places;
    let tens = 10_u128.checked_pow(power.unsigned_abs())?;
    let scaled = digits.checked_mul(factor)?;
    let whole = if power < 0 { scaled.div_ceil(tens) } else { scaled.checked_mul(tens)? };
    u64::try_from(whole).ok()
}

/// Factor and power of ten of a suffix.
fn scale(suffix: &str) -> Option<(u128, i32)> {
    let binary = |power: u32| Some((1_u128 << (10 * power), 0));
    match suffix {
        "" => Some((1, 0)),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        "n" => Some((1, -9)),
        "u" => Some((1, -6)),
        "m" => Some((1, -3)),
        "k" => Some((1, 3)),
        "M" => Some((1, 6)),
        "G" => Some((1, 9)),
        "T" => Some((1, 12)),
        "P" => Some((1, 15)),
        "E" => Some((1, 18)),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            (-18..=18).contains(&power).then_some((1, power))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_in_all_their_forms() {
        for (text, number) in [
            ("10Gi", 10 << 30),
            ("10737418240", 10 << 30),
            ("1.5Gi", 3 << 29),
            ("2G", 2_000_000_000),
            ("1.5k", 1500),
            ("12e6", 12_000_000),
            ("12E-3", 1),
            ("100m", 1),
            ("+5", 5),
            ("7Ei", 7 << 60),
            ("0", 0),
            ("", 0),
            ("-5Gi", 0),
            ("five", 0),
            ("5 Gi", 0),
            ("1e99", 0),
            ("99Ei", 0),
            (".", 0),
        ] {
            assert_eq!(whole(text), number, "{text}");
        }
    }
}
