use topics::{acts, harmless_json, harmless_text, number};

#[test]
fn one_is_one_and_others_are_many() {
    assert_eq!([0, 1, 2].map(|it: u32| number(it, "attempt")), ["0 attempts", "1 attempt", "2 attempts"]);
}

#[test]
fn letters_that_act_are_escaped_or_replaced_and_all_others_stay() {
    let text = "a\u{1b}[2J\u{9b}1m\u{202e}b\u{e4}\u{1f600}\u{7f}";
    let json = serde_json::to_string_pretty(&[text]).unwrap();
    let escaped = harmless_json(&json);
    assert!(!escaped.chars().any(|it| it != '\n' && acts(it)), "{escaped:?}");
    assert_eq!(serde_json::from_str::<[String; 1]>(&escaped).unwrap(), [text]);
    assert_eq!(harmless_text(text), "a\u{fffd}[2J\u{fffd}1m\u{fffd}b\u{e4}\u{1f600}\u{fffd}");
}
