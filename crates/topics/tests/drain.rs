//! Answers, pauses, progress and trouble: what belongs together, what counts, what fits.

use topics::{
    AgentTrouble, Answer, Defer, DeviceOp, DrainStatus, GoTime, NodeDrainProgress, NodeDrainStatus,
    OperationPause, PauseScope, RequestId, Requester, SkipKind, Topic, Trouble, fit, go_json,
};

#[test]
fn p2_every_status_has_its_decision_and_a_stranger_waits() {
    let table = [
        (0, "Unknown", Defer::Proceed),
        (1, "Not Supported", Defer::Proceed),
        (2, "Not Requested", Defer::Ask),
        (3, "Requested", Defer::Wait),
        (4, "Starting", Defer::Wait),
        // D-A1: the reference goes ahead here.
        (5, "Cordoned", Defer::Wait),
        (6, "Failed Cordon", Defer::Ask),
        (7, "Drain Retrying", Defer::Wait),
        (8, "Failed Drain", Defer::Ask),
        (9, "Complete", Defer::Proceed),
        (10, "Unknown", Defer::Wait),
        (255, "Unknown", Defer::Wait),
    ];
    for (number, text, defer) in table {
        let status = DrainStatus::from(number);
        assert_eq!((status.number(), status.text(), status.defer()), (number, text, defer));
    }
}

#[test]
fn a_status_is_shown_as_the_reference_shows_it() {
    let status = NodeDrainStatus { status: DrainStatus::Complete, requested_by: Requester::DeviceOp };
    assert_eq!(status.to_string(), "{Complete 2}");
}

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

#[test]
fn an_answer_belongs_to_one_request() {
    let at = |text: &str| text.parse::<GoTime>().unwrap();
    let asked = RequestId { by: Requester::DeviceOp, at: at("2026-03-14T09:30:00Z") };
    let answer = Answer { requested_by: asked.by, requested_at: asked.at, ..Answer::default() };
    let progress = NodeDrainProgress { answers: vec![answer.clone()], ..NodeDrainProgress::default() };
    // The same instant in another offset is the same request.
    let same = RequestId { at: at("2026-03-14T10:30:00+01:00"), ..asked };
    assert_eq!(progress.answer(same), Some(&answer));
    assert_eq!(progress.answer(RequestId { by: Requester::Update, ..asked }), None);
    assert_eq!(progress.answer(RequestId { at: at("2026-03-14T09:30:00.000000001Z"), ..asked }), None);
    let read = |text: &str| go_json::from_slice::<Answer>(text.as_bytes()).unwrap().skip_kind;
    assert_eq!(read(r#"{"Forced":true}"#), SkipKind::Forced, "as an earlier version has written it");
    assert_eq!(read(r#"{"SkipKind":"other"}"#), SkipKind::Other);
}

#[test]
fn a_word_that_nobody_knows_names_its_member_and_the_words_known() {
    for (text, words) in [
        (r#"{"Phase":"sleeping"}"#, ["Phase", "failed-cordon"]),
        (r#"{"Cordon":"Ours"}"#, ["Cordon", "foreign"]),
        (r#"{"Phase":4}"#, ["Phase", "found 4"]),
    ] {
        let told = go_json::from_slice::<NodeDrainProgress>(text.as_bytes()).unwrap_err().to_string();
        assert!(words.iter().all(|word| told.contains(word)), "{text}: {told}");
    }
}

#[test]
fn the_word_of_an_operation_is_the_one_on_disk() {
    for op in [DeviceOp::Reboot, DeviceOp::Shutdown] {
        assert_eq!(go_json::to_vec(&op).unwrap(), format!("\"{}\"", op.word()).into_bytes());
    }
}

#[test]
fn k1_a_thousand_long_troubles_fit_the_message_and_what_waits_comes_first() {
    let long = "\u{1}".repeat(5000);
    let all = |nth: usize| Trouble {
        what: format!("{nth:04}"),
        path: long.clone(),
        error: long.clone(),
        holds: if nth == 999 { vec![long.clone(); 99] } else { Vec::new() },
        next_step: long.clone(),
        ..Trouble::default()
    };
    let bytes = AgentTrouble::of((0..1000).map(all).collect()).encode().unwrap();
    assert!((20_000..=fit::VALUE_BYTES).contains(&bytes.len()), "{}", bytes.len());
    let told: AgentTrouble = go_json::from_slice(&bytes).unwrap();
    assert_eq!((told.troubles[0].what.as_str(), told.troubles[1].what.as_str()), ("0999", "0000"));
    assert_eq!(told.troubles.len() + usize::try_from(told.more).unwrap(), 1000);
    assert!(told.holds_something());
    let short = AgentTrouble::of(vec![Trouble::default(); 1000]);
    assert_eq!((short.troubles.len(), short.more), (24, 976));
}
