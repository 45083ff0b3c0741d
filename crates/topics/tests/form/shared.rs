use serde::Serialize;
use topics::{Base64, GoIp, GoUuid, IpNet, go_json};

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
