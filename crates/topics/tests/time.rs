//! Times as Go writes them.

use std::time::Duration;

use jiff::Timestamp;
use topics::{GoTime, go_json};

#[test]
fn times_are_written_as_they_were_read() {
    for text in [
        "0001-01-01T00:00:00Z",
        "2026-03-14T10:30:00.12+01:00",
        "2026-03-14T09:26:53.589793238Z",
        "2026-03-14T00:26:53-08:30",
    ] {
        assert_eq!(text.parse::<GoTime>().unwrap().rfc3339(), text);
    }
    assert!(GoTime::default().is_zero());
}

#[test]
fn the_same_instant_in_two_offsets_is_equal() {
    let one: GoTime = "2026-03-14T10:30:00+01:00".parse().unwrap();
    assert_eq!(one, "2026-03-14T09:30:00Z".parse().unwrap());
}

#[test]
fn a_wrong_time_is_told_with_an_example() {
    for wrong in [
        "",
        "14:00",
        "2026-03-14",
        "2026-03-14T09:26:53",
        "2026-03-14T09:26Z",
        "2026-03-14 09:26:53Z",
        "2026-03-14t09:26:53Z",
        "2026-03-14T09:26:53z",
        "20260314T092653Z",
        "2026-02-30T09:26:53Z",
        "2026-03-14T25:26:53Z",
        "2026-03-14T09:26:60Z",
        "2026-03-14T09:26:53+0100",
        "2026-03-14T09:26:53+01:00[Europe/Berlin]",
        "+002026-03-14T09:26:53Z",
        "2026-03-14T09:26:5\u{e9}Z",
        "2026-03-14T09:26:53+25:00",
        "9999-12-32T09:26:53Z",
        "9999-12-31T24:00:00Z",
        "9999-12-31T23:59:59.x9Z",
        "9999-12-31T23:59:59",
    ] {
        let told = wrong.parse::<GoTime>().unwrap_err();
        assert!(told.contains("RFC 3339 time such as"), "{wrong}: {told}");
    }
}

#[test]
fn digits_of_a_second_lose_their_trailing_zeros() {
    for (read, written) in [
        ("2026-03-14T09:26:53.100Z", "2026-03-14T09:26:53.1Z"),
        ("2026-03-14T09:26:53.000000000Z", "2026-03-14T09:26:53Z"),
        ("2026-03-14T09:26:53.000000001-00:30", "2026-03-14T09:26:53.000000001-00:30"),
        ("2026-03-14T09:26:53+00:00", "2026-03-14T09:26:53Z"),
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ("2026-03-14T09:26:53.12345678901234Z", "2026-03-14T09:26:53.123456789Z"),
        ("2026-03-14T09:26:53.0000000009+01:00", "2026-03-14T09:26:53+01:00"),
        ("9999-12-30T21:59:59.999999999Z", "9999-12-30T21:59:59.999999999Z"),
    ] {
        assert_eq!(read.parse::<GoTime>().unwrap().rfc3339(), written);
    }
}

#[test]
fn instants_come_from_nanoseconds() {
    let time = GoTime::from_unix_nanos(1_773_480_413_589_793_238).unwrap();
    assert_eq!(time.rfc3339(), "2026-03-14T09:26:53.589793238Z");
    assert_eq!(GoTime::from_unix_nanos(i128::MAX), None);
}

#[test]
fn a_wait_past_the_end_of_time_ends_there() {
    let time: GoTime = "2026-03-14T10:30:00+01:00".parse().unwrap();
    assert_eq!(time.plus(Duration::from_millis(1500)).rfc3339(), "2026-03-14T10:30:01.5+01:00");
    assert_eq!(time.plus(Duration::MAX).to_timestamp(), Timestamp::MAX);
    assert!(!time.plus(Duration::MAX).rfc3339().is_empty());
}

/// Go's calendar ends 26 hours later than that of instants here, with the year 9999.
#[test]
fn a_time_in_the_last_hours_of_the_calendar_is_the_end_of_time() {
    for last in [
        "9999-12-30T22:00:01Z",
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59.999999999Z",
        "9999-12-31T23:59:59.1234567891-08:30",
        "9999-12-31T23:59:59+01:00",
    ] {
        assert_eq!(last.parse::<GoTime>().unwrap().to_timestamp(), Timestamp::MAX, "{last}");
    }
}

#[test]
fn null_is_not_set() {
    let times: Vec<GoTime> = go_json::from_slice(br#"[null,"2026-03-14T09:30:00Z"]"#).unwrap();
    assert_eq!((times[0].is_zero(), times[1].is_zero()), (true, false));
}
