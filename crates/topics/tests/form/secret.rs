use topics::{EdgeNodeClusterConfig, EdgeNodeClusterStatus, go_json};

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
