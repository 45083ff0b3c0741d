//! The form on a socket, made of the form on disk.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;
use topics::go_json::{Error, to_wire};

fn wire(disk: &str) -> Result<String, Error> {
    let mut store =
        |name: &str, content: &[u8]| Ok(format!("/large/{name}<{}>", String::from_utf8_lossy(content)));
    to_wire(disk.as_bytes(), &mut store).map(|bytes| String::from_utf8(bytes).unwrap())
}

#[test]
fn members_are_sorted_and_empty_arrays_are_null_at_every_level() {
    for (disk, wired) in [
        (
            r#"{"b":1,"a":{"d":[],"c":{}},"B":[[],{"y":1,"x":2}]}"#,
            r#"{"B":[null,{"x":2,"y":1}],"a":{"c":{},"d":null},"b":1}"#,
        ),
        (r#"{"a":1,"a":2,"A":3}"#, r#"{"A":3,"a":2}"#),
        ("[]", "null"),
        (r#"{"t":"\u003c\u2028\u0001é\/"}"#, r#"{"t":"\u003c\u2028\u0001é/"}"#),
        ("[true,false,null,-7]", "[true,false,null,-7]"),
    ] {
        assert_eq!(wire(disk).unwrap(), wired);
    }
    assert!(matches!(wire("{"), Err(Error::Syntax(_))));
}

#[test]
fn d_p3_whole_numbers_keep_their_digits_and_others_are_written_as_go_writes_them() {
    for number in [u64::MAX, (1 << 53) + 1] {
        assert_eq!(wire(&number.to_string()).unwrap(), number.to_string());
        // The reference's double loses digits of this number.
        assert_ne!(Value::from(number).as_f64().unwrap().to_string(), number.to_string());
    }
    assert_eq!(wire(&i64::MIN.to_string()).unwrap(), i64::MIN.to_string());
    for (disk, wired) in [
        ("1.0", "1"),
        ("0.000001", "0.000001"),
        ("0.00000012", "1.2e-7"),
        ("1e20", "100000000000000000000"),
        ("1.5E21", "1.5e+21"),
        ("-0.5", "-0.5"),
        ("0.0", "0"),
    ] {
        assert_eq!(wire(disk).unwrap(), wired);
    }
}

fn plain() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("[]".to_owned()),
        Just("{}".to_owned()),
        Just(format!("\"{}\"", "<".repeat(40))),
        any::<i64>().prop_map(|number| number.to_string()),
        (1..10_u8, -30..30_i8).prop_map(|(digit, exponent)| format!("{digit}e{exponent}")),
        any::<f64>().prop_filter_map("no JSON", |number| serde_json::to_string(&number).ok()),
        "[<>&\u{2028}é a-z/]{0,12}".prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(("[<a-c]{0,3}", inner), 1..4).prop_map(|members| {
                let members = members.iter().map(|(name, value)| format!("{name:?}:{value}"));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn without_a_member_of_pubsub_the_wire_form_is_at_most_six_times_as_long_and_never_fails(disk in plain()) {
        let wired = to_wire(disk.as_bytes(), &mut |_, _| Err("nothing is stored".into())).unwrap();
        prop_assert!(wired.len() <= 6 * disk.len(), "{} of {disk}", wired.len());
    }
}

#[test]
fn large_members_leave_their_place_at_any_depth() {
    let disk =
        r#"{"z":[{"pubsub-large-A":[]}],"pubsub-large-B_2":{"y":1,"x":{"pubsub-large-C":3}},"pubsub":0}"#;
    let mut files = BTreeMap::new();
    let mut store = |name: &str, content: &[u8]| {
        let path = format!("/large/<{name}>");
        files.insert(path.clone(), content.to_vec());
        Ok(path)
    };
    let wired = String::from_utf8(to_wire(disk.as_bytes(), &mut store).unwrap()).unwrap();
    assert_eq!(
        wired,
        r#"{"pubsub":0,"pubsub-file-B_2":"\"/large/\\u003cB_2\\u003e\"","z":[{"pubsub-file-A":"\"/large/\\u003cA\\u003e\""}]}"#
    );
    assert_eq!(files["/large/<A>"], br#"{"pubsub-large-A":null}"#);
    assert_eq!(files["/large/<B_2>"], br#"{"pubsub-large-B_2":{"x":{"pubsub-large-C":3},"y":1}}"#);
}

#[test]
fn names_that_could_lead_astray_are_no_files() {
    for rest in ["", "../../x", "a/b", "a b", "a.b", &"x".repeat(101)] {
        let disk = format!(r#"{{"pubsub-large-{rest}":1}}"#);
        assert_eq!(wire(&disk).unwrap(), disk);
    }
    let refused = wire(r#"{"a":[{"pubsub-file-A":"\"/persist/x\""}]}"#).unwrap_err().to_string();
    assert!(refused.contains("pubsub-file-A"), "{refused}");
}
