use topics::{KubeNodeStatus, go_json};

#[test]
fn every_number_is_written_as_it_was_read() {
    for number in i8::MIN..=i8::MAX {
        let text = number.to_string();
        let status: KubeNodeStatus = go_json::from_slice(text.as_bytes()).unwrap();
        assert_eq!(go_json::to_vec(&status).unwrap(), text.as_bytes());
        assert_eq!(KubeNodeStatus::from(status.number()), status);
    }
    assert_eq!([-7, 2].map(KubeNodeStatus::from), [KubeNodeStatus::Stranger(-7), KubeNodeStatus::NotReady]);
    assert_eq!(KubeNodeStatus::default(), KubeNodeStatus::Unknown);
}

#[test]
fn words_fractions_and_other_ranges_are_no_numbers() {
    for wrong in ["\"Ready\"", "\"0\"", "0.0", "1e1", "128", "-129", "true", "[]", "{}"] {
        assert!(go_json::from_slice::<KubeNodeStatus>(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn the_schema_says_range_and_names() {
    let schema = schemars::schema_for!(KubeNodeStatus).to_value();
    assert_eq!((&schema["minimum"], &schema["maximum"]), (&(-128).into(), &127.into()));
    assert_eq!(
        schema["description"],
        "Ready condition of a node.\n\n0 Unknown, 1 Ready, 2 NotReady, 3 NotReachable"
    );
}
