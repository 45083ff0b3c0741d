use topics::{Answer, DeviceOp, GoTime, NodeDrainProgress, RequestId, Requester, SkipKind, go_json};

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
