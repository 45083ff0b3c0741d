//! Configs of the reference, and what a person may type wrong.

use super::*;

fn golden(name: &str) -> String {
    let path = format!("{}/../../tests/golden/EdgeDevConfig/{name}.json", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

fn good<T>(section: Option<T>) -> T {
    match section {
        Some(content) => content,
        None => panic!("a bad section"),
    }
}

#[test]
fn the_references_configs_are_read_whole() {
    let config = parse(golden("cluster-reboot").as_bytes()).unwrap();
    assert_eq!(config.faults, []);
    assert_eq!(good(config.reboot).unwrap().counter, 7);
    assert_eq!(good(config.shutdown), None);
    assert_eq!(good(config.node).device_name, "Edge_Node-1");
    let cluster = good(config.cluster);
    assert!(cluster.valid && !cluster.bootstrap_node);
    assert_eq!(cluster.cluster_type, ClusterType::Ha);
    assert_eq!(cluster.master_node_ids.unwrap().len(), 3);
    assert_eq!(cluster.cluster_ip_prefix.unwrap().mask.unwrap().0, [255, 255, 255, 240]);
    let example = parse(golden("../../../docs/examples/edge-dev-config").as_bytes()).unwrap();
    assert!(example.faults.is_empty() && good(example.cluster).valid);
    let config = parse(golden("cluster-baseos-activate").as_bytes()).unwrap();
    assert!(good(config.base_os).unwrap().activate);
    let config = parse(golden("single-node").as_bytes()).unwrap();
    let cluster = good(config.cluster);
    assert!(cluster.initialized && !cluster.valid);
    let config = parse(golden("cluster-config-items").as_bytes()).unwrap();
    assert_eq!(good(config.items).len(), 4);
}

#[test]
fn d_a12_a_bad_prefix_is_a_fault_with_line_and_member_and_no_membership() {
    let config = parse(golden("cluster-bad-prefix").as_bytes()).unwrap();
    assert_eq!(config.cluster, None);
    let told = config.faults[0].to_string();
    assert!(told.starts_with("line 11, member cluster.clusterIpPrefix: found \"10.244.244.2\""), "{told}");
    // The rest of the config is good.
    assert_eq!(good(config.node).device_name, "Edge_Node-1");
}

#[test]
fn all_faults_come_in_one_report() {
    let text = br#"{
        "deviceName": 5,
        "reboot": {"counter": -1},
        "configItems": {},
        "baseos": {"contentTreeUuid": "x"},
        "cluster": {"clusterIpPrefix": "10.0.0.1/33", "clusterType": "BIG", "joinServerIp": "here"}
    }"#;
    let config = parse(text).unwrap();
    let told: Vec<String> = config.faults.iter().map(|it| format!("{} {}", it.line, it.member)).collect();
    assert_eq!(
        told,
        [
            "2 deviceName",
            "3 reboot.counter",
            "4 configItems",
            "5 baseos.contentTreeUuid",
            "6 cluster.clusterIpPrefix",
            "6 cluster.joinServerIp",
            "6 cluster.clusterType",
        ]
    );
    assert_eq!(good(config.shutdown), None);
}

#[test]
fn snake_case_numbers_as_texts_and_enums_as_numbers_are_read() {
    let text = br#"{"device_name":"n","reboot":{"counter":"9","desired_state":true,"unknown":1},
        "cluster":{"cluster_ip_prefix":"fd00::1/64","cluster_type":2}}"#;
    let config = parse(text).unwrap();
    assert_eq!(config.faults, []);
    assert_eq!(good(config.reboot).unwrap().counter, 9);
    let cluster = good(config.cluster);
    assert_eq!(cluster.cluster_type, ClusterType::ReplicatedStorage);
    assert_eq!(
        cluster.cluster_ip_prefix.unwrap().mask.unwrap().0[..9],
        [255, 255, 255, 255, 255, 255, 255, 255, 0]
    );
}

#[test]
fn one_bad_master_makes_the_list_unknown_and_keeps_the_rest() {
    let text = br#"{"cluster":{"clusterIpPrefix":"10.0.0.1/24","masterNodeUuids":["x"]}}"#;
    let config = parse(text).unwrap();
    assert_eq!(config.faults, []);
    assert_eq!(good(config.cluster).master_node_ids, None);
}

#[test]
fn a_text_that_is_no_json_is_told_with_its_line() {
    for (text, line) in [("", 1), ("[]", 1), ("{\n\"id\":", 2), ("{}\nx", 2)] {
        assert_eq!(parse(text.as_bytes()).unwrap_err().line, line, "{text}");
    }
}

#[test]
fn s2_of_a_config_property_or_a_token_no_fault_shows_more_than_kind_and_length() {
    let rows = [
        (
            r#"{"configItems":[{"key":"k3s.config.override","value":{"token":"s3cret-password"}}]}"#,
            "line 1, member configItems[0].value: found an object of length 1, expected a text",
        ),
        (
            r#"{"configItems":["s3cret-password"]}"#,
            "line 1, member configItems[0]: found a text of 15 characters, expected an object",
        ),
        (
            r#"{"configItems":"s3cret-password"}"#,
            "line 1, member configItems: found a text of 15 characters, expected a list",
        ),
        (
            r#"{"configItems":[[["s3cret-password"]]]}"#,
            "line 1, member configItems[0]: found a list of length 1, expected an object",
        ),
        (
            r#"{"configItems":[{"key":"a","value":31337}]}"#,
            "line 1, member configItems[0].value: found a number of 5 characters, expected a text",
        ),
        (
            r#"{"configItems":[{"key":["s3cret-password"]}]}"#,
            "line 1, member configItems[0].key: found a list of length 1, expected a text",
        ),
        (
            r#"{"cluster":[{"encryptedClusterToken":"s3cret-password"}]}"#,
            "line 1, member cluster: found a list of length 1, expected an object",
        ),
        (
            r#"{"cluster":{"clusterIpPrefix":"10.0.0.1/24","encrypted_cluster_token":"s3cret-password"}}"#,
            "line 1, member cluster.encryptedClusterToken: found a text of 15 characters, expected an object",
        ),
    ];
    for (text, expected) in rows {
        let told: Vec<String> =
            parse(text.as_bytes()).unwrap().faults.iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|it| it == expected), "{text}: {told:?}");
        assert!(told.iter().all(|it| !it.contains("s3cret") && !it.contains("31337")), "{text}: {told:?}");
    }
    let long = "x".repeat(200_000);
    for text in [
        format!(r#"{{"configItems":["{long}"]}}"#),
        format!(r#"{{"deviceName":["{long}"]}}"#),
        format!(r#"{{"projectId":"{long}"}}"#),
        format!(r#"{{"deviceName":{}}}"#, "1".repeat(200)),
    ] {
        let faults = parse(text.as_bytes()).unwrap().faults;
        assert!(!faults.is_empty() && faults.iter().all(|it| it.to_string().len() < 200), "{text:.60}");
    }
}
