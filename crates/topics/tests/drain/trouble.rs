use topics::{AgentTrouble, Topic, Trouble, fit, go_json};

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
