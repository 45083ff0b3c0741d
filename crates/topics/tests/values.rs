//! Values inside of topics: addresses, words for a person, numbers with names, secrets, bytes.

use serde::Serialize;

use topics::{
    Base64, Cidr, EdgeNodeClusterConfig, EdgeNodeClusterStatus, GoIp, GoUuid, IpNet, KubeNodeStatus, acts,
    go_json, harmless_json, harmless_text, number,
};

#[test]
fn prefixes_hold_what_go_says_they_hold() {
    let holds = |cidr: &str, address: &str| Cidr::parse(cidr).map(|it| it.contains(address.parse().unwrap()));
    for (cidr, address, held) in [
        ("192.168.86.200/29", "192.168.86.207", Some(true)),
        ("192.168.86.200/29", "192.168.86.208", Some(false)),
        ("0.0.0.0/0", "203.0.113.1", Some(true)),
        ("0.0.0.0/0", "::1", Some(false)),
        ("10.0.0.1/32", "::ffff:10.0.0.1", Some(true)),
        ("::/0", "fe80::1", Some(true)),
        ("fd00::/8", "fe80::1", Some(false)),
        ("10.0.0.1/33", "10.0.0.1", None),
        ("10.0.0.1/+8", "10.0.0.1", None),
        ("10.0.0.1/", "10.0.0.1", None),
        ("10.0.0/8", "10.0.0.1", None),
    ] {
        assert_eq!(holds(cidr, address), held, "{cidr} {address}");
    }
}

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

#[test]
fn s2_a_secret_is_written_but_never_shown() {
    let status: EdgeNodeClusterStatus =
        go_json::from_slice(br#"{"EncryptedClusterToken":"s3cr3t"}"#).unwrap();
    assert_eq!(status.encrypted_cluster_token.reveal(), "s3cr3t");
    let (shown, written) = (format!("{status:?} {status:#?}"), go_json::to_vec(&status).unwrap());
    assert!(shown.contains("Secret(..)") && !shown.contains("s3cr3t"), "{shown}");
    assert!(String::from_utf8(written).unwrap().contains(r#""EncryptedClusterToken":"s3cr3t""#));
    let none: EdgeNodeClusterStatus = go_json::from_slice(br#"{"EncryptedClusterToken":null}"#).unwrap();
    assert_eq!(format!("{:?}", none.encrypted_cluster_token), "Secret(empty)");
}

#[test]
fn s2_a_secret_where_another_kind_belongs_is_named_by_its_length() {
    let wrong = go_json::from_slice::<EdgeNodeClusterConfig>(br#"{"CipherToken":"s3cr3t"}"#).unwrap_err();
    let told = wrong.to_string();
    assert!(told.contains("/CipherToken: found a text of 6 characters, expected"), "{told}");
    assert!(!told.contains("s3cr3t"), "{told}");
}

fn again<T: Serialize + serde::de::DeserializeOwned>(text: &str) -> Result<String, String> {
    let value: T = go_json::from_slice(text.as_bytes()).map_err(|error| error.to_string())?;
    Ok(String::from_utf8(go_json::to_vec(&value).unwrap()).unwrap())
}

#[test]
fn addresses_are_written_as_go_writes_them() {
    for (read, written) in [
        (r#""""#, r#""""#),
        ("null", r#""""#),
        (r#""10.244.244.2""#, r#""10.244.244.2""#),
        (r#""FE80:0::0001""#, r#""fe80::1""#),
        (r#""::ffff:10.0.0.1""#, r#""10.0.0.1""#),
    ] {
        assert_eq!(again::<GoIp>(read).unwrap(), written);
    }
    let (mapped, plain): (GoIp, GoIp) = go_json::from_slice(br#"["::ffff:10.0.0.1","10.0.0.1"]"#).unwrap();
    assert_eq!(mapped, plain);
    for wrong in [r#""10.0.0""#, r#""10.0.0.1/8""#, r#""host""#, "1"] {
        assert!(again::<GoIp>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn identities_are_written_in_lower_case() {
    let zero = r#""00000000-0000-0000-0000-000000000000""#;
    assert_eq!(again::<GoUuid>("null").unwrap(), zero);
    assert_eq!(again::<Vec<GoUuid>>("[null]").unwrap(), format!("[{zero}]"));
    let upper = r#""6BA7B810-9DAD-41D1-80B4-00C04FD430C8""#;
    assert_eq!(again::<GoUuid>(upper).unwrap(), upper.to_lowercase());
    for wrong in [r#""""#, r#""6ba7b810""#, "0"] {
        assert!(again::<GoUuid>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn bytes_are_base64_with_padding() {
    assert_eq!(again::<Base64>(r#""AAECA/r7/P3+/w==""#).unwrap(), r#""AAECA/r7/P3+/w==""#);
    // As Go reads it, and writes it back.
    assert_eq!(again::<Base64>(r#""AAECA/r7\r\n/P3+/x==""#).unwrap(), r#""AAECA/r7/P3+/w==""#);
    assert_eq!(again::<Option<Base64>>("null").unwrap(), "null");
    assert_eq!(again::<Option<Base64>>(r#""""#).unwrap(), r#""""#);
    for wrong in [r#""AA""#, r#""A-==""#, "[1,2]"] {
        assert!(again::<Base64>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn host_bits_of_a_prefix_are_kept() {
    let text = r#"{"IP":"10.244.244.2","Mask":"////8A=="}"#;
    assert_eq!(again::<IpNet>(text).unwrap(), text);
}
