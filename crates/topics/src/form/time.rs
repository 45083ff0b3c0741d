//! Time as Go writes it: RFC 3339, up to nine digits of a second without trailing zeros, the offset kept.
//!
//! Pure: no clock, no I/O, no task.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::or_zero;

/// An instant with the offset that it was written in. Two are equal when they are the same instant.
#[derive(Clone, Copy, JsonSchema)]
#[schemars(
    with = "String",
    description = "RFC 3339 with up to nine digits of a second; 0001-01-01T00:00:00Z means not set",
    extend("format" = "date-time")
)]
pub struct GoTime {
    instant: Timestamp,
    offset: Offset,
}

/// Seconds of Go's zero time, 0001-01-01T00:00:00Z, on the Unix clock.
const ZERO_SECS: i64 = -62_135_596_800;

impl GoTime {
    /// Go's zero time: "not set".
    pub const ZERO: Self = Self { instant: Timestamp::constant(ZERO_SECS, 0), offset: Offset::UTC };

    /// `None` beyond every calendar.
    pub fn from_unix_nanos(nanos: i128) -> Option<Self> {
        Timestamp::from_nanosecond(nanos).ok().map(Self::from)
    }

    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// Saturates at the end of time.
    #[must_use]
    pub fn plus(self, wait: Duration) -> Self {
        let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
        Self { instant: self.instant.saturating_add(wait).unwrap_or(Timestamp::MAX), offset: self.offset }
    }

    /// Saturates at the beginning of time.
    #[must_use]
    pub fn minus(self, before: Duration) -> Self {
        let before = SignedDuration::try_from(before).unwrap_or(SignedDuration::MAX);
        Self { instant: self.instant.saturating_sub(before).unwrap_or(Timestamp::MIN), offset: self.offset }
    }

    /// The absolute difference.
    pub fn apart(self, other: Self) -> Duration {
        self.instant.duration_since(other.instant).unsigned_abs()
    }

    /// This instant by a clock that was set from `before` to `now`; "not set" stays so.
    #[must_use]
    pub fn moved(self, before: Self, now: Self) -> Self {
        match (self.is_zero(), now >= before) {
            (true, _) => self,
            (false, true) => self.plus(now.apart(before)),
            (false, false) => self.minus(now.apart(before)),
        }
    }

    pub const fn to_timestamp(self) -> Timestamp {
        self.instant
    }
}

impl From<Timestamp> for GoTime {
    fn from(instant: Timestamp) -> Self {
        Self { instant, offset: Offset::UTC }
    }
}

impl Default for GoTime {
    fn default() -> Self {
        Self::ZERO
    }
}

impl PartialEq for GoTime {
    fn eq(&self, other: &Self) -> bool {
        self.instant == other.instant
    }
}

impl Eq for GoTime {}

impl Hash for GoTime {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.instant.hash(state);
    }
}

impl PartialOrd for GoTime {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for GoTime {
    fn cmp(&self, other: &Self) -> Ordering {
        self.instant.cmp(&other.instant)
    }
}

impl GoTime {
    /// As Go writes it.
    pub fn rfc3339(self) -> String {
        let at = self.offset.to_datetime(self.instant);
        let mut text = format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            at.year(),
            at.month(),
            at.day(),
            at.hour(),
            at.minute(),
            at.second()
        );
        if at.subsec_nanosecond() != 0 {
            let digits = format!(".{:09}", at.subsec_nanosecond());
            text.push_str(digits.trim_end_matches('0'));
        }
        let minutes = self.offset.seconds() / 60;
        if minutes == 0 {
            return text + "Z";
        }
        let sign = if minutes < 0 { '-' } else { '+' };
        format!("{text}{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
    }

    /// For a person: in UTC without fractions, as `2026-03-14 11:14:58 UTC`. There is no `Display`: whoever writes a time
    /// chooses.
    pub fn shown(self) -> String {
        Offset::UTC.to_datetime(self.instant).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
    }
}

impl fmt::Debug for GoTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.rfc3339())
    }
}

impl FromStr for GoTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("found `{text}`, expected an RFC 3339 time such as 2026-03-14T09:26:53Z");
        if !shaped(text) {
            return Err(wrong());
        }
        let offset = match text.strip_suffix('Z') {
            Some(_) => Offset::UTC,
            None => offset(text).ok_or_else(wrong)?,
        };
        let instant = match nine_digits(text).parse() {
            Ok(instant) => instant,
            // The last day of the year 9999, used as "for ever", is beyond jiff's last instant and within
            // Go's calendar.
            Err(_) if text.starts_with("9999-12-3") && ends_the_calendar(text, offset) => Timestamp::MAX,
            Err(cause) => return Err(format!("{}: {cause}", wrong())),
        };
        Ok(Self { instant, offset })
    }
}

/// Without digits of a second after the ninth: Go drops them, jiff refuses them.
fn nine_digits(text: &str) -> Cow<'_, str> {
    let Some((whole, rest)) = text.split_once('.') else { return text.into() };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    match (rest.get(..9), rest.get(digits..)) {
        (Some(kept), Some(tail)) if digits > 9 => format!("{whole}.{kept}{tail}").into(),
        _ => text.into(),
    }
}

/// Whether a time is a calendar date beyond the last instant with this offset.
fn ends_the_calendar(text: &str, offset: Offset) -> bool {
    let day: Option<DateTime> = text.get(..SHAPE.len()).and_then(|day| day.parse().ok());
    day.is_some_and(|day| offset.to_timestamp(day).is_err())
        && text.get(SHAPE.len()..).is_some_and(|rest| {
            format!("2000-01-01T00:00:00{}", nine_digits(rest)).parse::<Timestamp>().is_ok()
        })
}

/// Shape before the digits of a second and the offset.
const SHAPE: &str = "0000-00-00T00:00:00";

/// Whether a text starts in Go's form, `2026-03-14T09:26:53`; jiff accepts other forms of ISO 8601 as well.
fn shaped(text: &str) -> bool {
    let like = |(letter, shape): (&u8, &u8)| match shape {
        b'0' => letter.is_ascii_digit(),
        other => letter == other,
    };
    let leap = text.get(17..19) == Some("60");
    text.len() > SHAPE.len() && text.as_bytes().iter().zip(SHAPE.as_bytes()).all(like) && !leap
}

fn offset(text: &str) -> Option<Offset> {
    let tail = text.get(text.len().checked_sub(6)?..)?;
    let (sign, rest) = match tail.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    if hours > 24 {
        return None;
    }
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
}

impl Serialize for GoTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.rfc3339())
    }
}

impl<'de> Deserialize<'de> for GoTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        or_zero(deserializer, str::parse)
    }
}
