//! Expressions, zones and changes of summer time. Zones of `/usr/share/zoneinfo`; without them the tests say so.

use std::io::Write as _;

use super::*;

fn read(text: &str) -> Result<Windows, String> {
    serde_json::from_str(text).map_err(|it| it.to_string())
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn has_zones() -> bool {
    let has = TimeZone::get("Europe/Berlin").is_ok();
    if !has {
        writeln!(std::io::stderr(), "skipped: no /usr/share/zoneinfo on this machine").unwrap();
    }
    has
}

/// Whether a drain may start, by windows of one entry.
fn open(start: &str, zone: &str, minutes: u32, now: &str) -> bool {
    let text = format!(r#"[{{"start":"{start}","zone":"{zone}","minutes":{minutes}}}]"#);
    read(&text).unwrap().closed(at(now)).is_none()
}

#[test]
fn u9_a_window_is_open_from_its_start_for_its_minutes_by_its_own_zone() {
    if !has_zones() {
        return;
    }
    // 2026-11-28 is a Saturday; Berlin is an hour ahead of UTC then, Tokyo nine, Kathmandu five and three quarters.
    for (start, zone, minutes, now, expected) in [
        ("0 22 * * SAT", "Europe/Berlin", 60, "2026-11-28T20:59:59Z", false),
        ("0 22 * * SAT", "Europe/Berlin", 60, "2026-11-28T21:00:00Z", true),
        ("0 22 * * SAT", "Europe/Berlin", 60, "2026-11-28T21:59:59Z", true),
        ("0 22 * * SAT", "Europe/Berlin", 60, "2026-11-28T22:00:00Z", false),
        ("0 22 * * 6", "Europe/Berlin", 60, "2026-11-27T21:30:00Z", false),
        ("0 22 * * SAT", "UTC", 60, "2026-11-28T22:30:00Z", true),
        ("0 22 * * SAT", "Asia/Tokyo", 60, "2026-11-28T13:30:00Z", true),
        ("0 22 * * SAT", "Asia/Kathmandu", 60, "2026-11-28T16:14:00Z", false),
        ("0 22 * * SAT", "Asia/Kathmandu", 60, "2026-11-28T16:15:00Z", true),
        // Over midnight, over the end of a year, for a whole week.
        ("30 23 * * *", "UTC", 120, "2026-12-31T23:30:00Z", true),
        ("30 23 * * *", "UTC", 120, "2027-01-01T01:29:59Z", true),
        ("30 23 * * *", "UTC", 120, "2027-01-01T01:30:00Z", false),
        ("0 0 * * MON", "UTC", 10_080, "2026-11-28T05:00:00Z", true),
        // Lists, steps, ranges, days of the month, a day that comes every four years.
        ("0 1-5/2 * * *", "UTC", 30, "2026-11-28T03:29:00Z", true),
        ("0 1-5/2 * * *", "UTC", 30, "2026-11-28T04:00:00Z", false),
        ("0 2 1,15 * *", "UTC", 30, "2026-12-15T02:10:00Z", true),
        ("0 2 1,15 * *", "UTC", 30, "2026-12-16T02:10:00Z", false),
        ("0 2 29 2 *", "UTC", 30, "2028-02-29T02:10:00Z", true),
        // Windows that follow each other without a break.
        ("0 * * * *", "UTC", 60, "2026-11-28T04:00:00Z", true),
        ("0 * * * *", "UTC", 60, "2026-11-28T04:59:59Z", true),
    ] {
        assert_eq!(open(start, zone, minutes, now), expected, "{start} {zone} {minutes} at {now}");
    }
}

#[test]
fn u9_a_change_of_summer_time_neither_loses_a_window_nor_makes_it_longer() {
    if !has_zones() {
        return;
    }
    // Berlin: on 2026-03-29 02:00 becomes 03:00, on 2026-10-25 03:00 becomes 02:00 again.
    for (start, minutes, now, expected) in [
        // Before it, an hour of UTC earlier after it.
        ("0 4 * * *", 30, "2026-03-28T03:10:00Z", true),
        ("0 4 * * *", 30, "2026-03-29T02:10:00Z", true),
        ("0 4 * * *", 30, "2026-03-29T03:10:00Z", false),
        // Over the change: minutes that have gone by count, not those on the wall.
        ("0 1 * * *", 120, "2026-03-29T00:00:00Z", true),
        ("0 1 * * *", 120, "2026-03-29T01:59:00Z", true),
        ("0 1 * * *", 120, "2026-03-29T02:00:00Z", false),
        ("0 2 25 10 *", 120, "2026-10-25T00:00:00Z", true),
        ("0 2 25 10 *", 120, "2026-10-25T01:59:00Z", true),
    ] {
        assert_eq!(open(start, "Europe/Berlin", minutes, now), expected, "{start} {minutes} at {now}");
    }
    // A start in the hour that is skipped comes as much later, one in the hour that comes twice only once.
    for (start, now, opens) in [
        ("30 2 * * *", "2026-03-29T00:00:00Z", "2026-03-29T01:30:00Z"),
        ("30 2 * * *", "2026-03-29T02:00:00Z", "2026-03-30T00:30:00Z"),
        ("30 2 * * *", "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z"),
        ("30 2 * * *", "2026-10-25T01:00:00Z", "2026-10-26T01:30:00Z"),
        ("*/40 2 * * *", "2026-10-25T00:20:00Z", "2026-10-25T00:40:00Z"),
    ] {
        let text = format!(r#"[{{"start":"{start}","zone":"Europe/Berlin","minutes":15}}]"#);
        let opening = read(&text).unwrap().closed(at(now)).and_then(|it| it.opens);
        assert_eq!(opening, Some(GoTime::from(at(opens))), "{start} at {now}");
    }
    for (now, expected) in [("2026-10-25T00:40:00Z", true), ("2026-10-25T01:40:00Z", false)] {
        assert_eq!(open("30 2 * * *", "Europe/Berlin", 30, now), expected, "{now}");
    }
    assert!(open("30 2 * * *", "Europe/Berlin", 30, "2026-03-29T01:40:00Z"));
}

#[test]
fn u9_the_words_name_the_next_of_several_windows_by_its_zone_and_in_how_long() {
    if !has_zones() {
        return;
    }
    let windows = read(
        r#"[{"start":"0 22 * * SAT","zone":"Europe/Berlin","minutes":360},
            {"start":"0 3 1 * *","zone":"Asia/Tokyo","minutes":90}]"#,
    )
    .unwrap();
    let closed = windows.closed(at("2026-11-27T16:30:00Z")).unwrap();
    assert_eq!(
        closed.why,
        "outside its windows: \"0 22 * * SAT\" Europe/Berlin opens next, 2026-11-28 22:00 +01:00 there, in 1 d 4 h and \
         for 6 h"
    );
    assert_eq!(closed.opens, Some(GoTime::from(at("2026-11-28T21:00:00Z"))));
    let closed = windows.closed(at("2026-11-30T17:50:01Z")).unwrap();
    assert!(
        closed.why.contains("Asia/Tokyo opens next, 2026-12-01 03:00 +09:00 there, in 10 min"),
        "{}",
        closed.why
    );
    assert!(closed.why.ends_with("for 1 h 30 min"), "{}", closed.why);
    // Either opens it.
    assert_eq!(windows.closed(at("2026-11-30T18:10:00Z")), None);
}

#[test]
fn u9_without_windows_it_is_open_and_with_a_clock_out_of_any_calendar_it_is_closed_and_says_so() {
    let none = read("[]").unwrap();
    for now in [Timestamp::MIN, Timestamp::UNIX_EPOCH, at("2026-11-28T21:00:00Z"), Timestamp::MAX] {
        assert_eq!(none.closed(now), None);
        assert_eq!(none.closed_by("whatever"), None);
    }
    let windows = read(r#"[{"start":"* * * * *","zone":"UTC","minutes":60}]"#).unwrap();
    assert_eq!(windows.closed(at("2026-11-28T21:00:00Z")), None);
    for now in [Timestamp::MIN, Timestamp::UNIX_EPOCH, at("9999-01-01T00:00:00Z"), Timestamp::MAX] {
        let closed = windows.closed(now).unwrap();
        assert!(
            closed.why.contains("the clock of this node shows") && closed.opens.is_none(),
            "{}",
            closed.why
        );
    }
    let closed = windows.closed_by("it follows no time server").unwrap();
    assert!(closed.why.contains("cannot be trusted: it follows no time server"), "{}", closed.why);
}

#[test]
fn u9_what_is_no_window_is_refused_with_the_member_the_value_and_what_to_write() {
    let one = |start: &str, zone: &str, minutes: &str| {
        format!(r#"[{{"start":"{start}","zone":"{zone}","minutes":{minutes}}}]"#)
    };
    for (text, words) in [
        (one("0 22 * *", "UTC", "60"), ["windows.start", "\"0 22 * *\"", "five fields"]),
        (one("0 22 * * SAT UTC", "UTC", "60"), ["windows.start", "SAT UTC\"", "five fields"]),
        (one("0 25 * * *", "UTC", "60"), ["windows.start", "\"0 25 * * *\"", "crontab(5)"]),
        (one("x 2 * * *", "UTC", "60"), ["windows.start", "\"x 2 * * *\"", "crontab(5)"]),
        (one("0 2 30 2 *", "UTC", "60"), ["windows.start", "\"0 2 30 2 *\"", "every four years"]),
        (one("0 2 * * *", "Mars/Olympus", "60"), ["windows.zone", "\"Mars/Olympus\"", "tzdata"]),
        (one("0 2 * * *", "", "60"), ["windows.zone", "\"\"", "tzdata"]),
        (one("0 2 * * *", "UTC", "0"), ["windows.minutes", "found 0", "1 to 10080"]),
        (one("0 2 * * *", "UTC", "10081"), ["windows.minutes", "found 10081", "1 to 10080"]),
        (one("0 2 * * *", "UTC", "-1"), ["-1", "", ""]),
        (r#"[{"start":"0 2 * * *","minutes":60}]"#.to_owned(), ["zone", "", ""]),
        (r#"[{"start":"0 2 * * *","zone":"UTC","hours":1}]"#.to_owned(), ["hours", "", ""]),
    ] {
        let refused = read(&text).unwrap_err();
        assert!(words.iter().all(|word| refused.contains(word)), "{text}: {refused}");
    }
}
