use topics::{OperationPause, PauseScope};

#[test]
fn t9_a_length_counts_by_the_clock_of_its_boot_and_what_is_left_counts_in_the_next_one() {
    let pause = OperationPause {
        lasts_secs: 600,
        boot_id: "a".to_owned(),
        at_secs: 1000,
        ..OperationPause::default()
    };
    let rows =
        [("a", 1000, 600), ("a", 1100, 500), ("a", 9000, 0), ("b", 0, 600), ("b", 60, 540), ("", 1100, 0)];
    for (boot, now, left) in rows {
        assert_eq!(pause.left_secs(boot, now), Some(left), "{boot} {now}");
    }
    assert_eq!(OperationPause::default().left_secs("a", 7), None);
    let rest = OperationPause { lasts_secs: 7, at_secs: 9, ..pause.clone() };
    assert!(rest.is_same(&pause) && !rest.is_same(&OperationPause { by: "x".to_owned(), ..pause }));
}

#[test]
fn x3_a_pause_says_who_why_since_when_and_until_when_and_what_ends_it() {
    let at = |text: &str| text.parse().unwrap();
    let pause = OperationPause {
        by: "field".to_owned(),
        reason: "new disk".to_owned(),
        since: at("2026-03-14T09:30:00Z"),
        ..OperationPause::default()
    };
    assert_eq!(pause.words(), "paused by field: new disk, since 2026-03-14 09:30:00 UTC");
    let refused =
        OperationPause { scope: PauseScope::Controller, until: at("2026-03-14T11:30:00Z"), ..pause.clone() };
    assert_eq!(
        refused.words(),
        "refused by field: new disk, since 2026-03-14 09:30:00 UTC, until 2026-03-14 11:30:00 UTC"
    );
    assert!(pause.next_step().contains("zedbox resume") && refused.next_step().contains("zedbox resume"));
    assert!(pause.is_set() && !OperationPause::default().is_set());
}
