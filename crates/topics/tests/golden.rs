//! The reference's own bytes: each is read and written back unchanged, and fits its schema.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use topics::{DeviceOpsCmd, Topic, go_json, parse_force, read_force};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn golden(path: &str) -> String {
    fs::read_to_string(top().join("tests/golden").join(path)).unwrap()
}

/// Disk samples of a topic.
fn samples(topic: &str) -> Vec<(String, String)> {
    let Ok(entries) = fs::read_dir(top().join("tests/golden").join(topic)) else { return Vec::new() };
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    files.sort();
    files.into_iter().map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap())).collect()
}

fn round_trip<T: Topic>(seen: &mut BTreeSet<&'static str>) {
    for (path, text) in samples(T::NAME) {
        let value: T = go_json::from_slice(text.as_bytes()).unwrap_or_else(|error| panic!("{path}: {error}"));
        let written = String::from_utf8(go_json::to_vec(&value).unwrap()).unwrap();
        assert_eq!(written, text, "{path}");
        seen.insert(T::NAME);
    }
}

#[test]
fn every_sample_is_read_and_written_back_byte_for_byte() {
    let mut seen = BTreeSet::new();
    macro_rules! each {
        ($($topic:ident),+ $(,)?) => { $(round_trip::<topics::$topic>(&mut seen);)+ };
    }
    each![
        AppInstanceConfig,
        BaseOSMgrStatus,
        BaseOsConfig,
        BaseOsStatus,
        ConfigItemValueMap,
        ContentTreeStatus,
        DeviceNetworkStatus,
        DomainStatus,
        ENClusterAppStatus,
        EdgeNodeClusterConfig,
        EdgeNodeClusterStatus,
        EdgeNodeInfo,
        KubeClusterInfo,
        KubeClusterUpdateStatus,
        KubeConfig,
        KubeLeaderElectInfo,
        KubeUserServices,
        NodeAgentStatus,
        NodeDrainRequest,
        NodeDrainStatus,
        OnboardingStatus,
        TpmSanityStatus,
        VaultStatus,
        VolumeMgrStatus,
        ZbootConfig,
        ZbootStatus,
        ZedAgentStatus,
    ];
    // No sample is left out: every folder but those of plain files was visited.
    let plain = ["DeviceOpsCmd", "EdgeDevConfig", "vmiVNC.run"];
    let folders: BTreeSet<String> = fs::read_dir(top().join("tests/golden"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| !plain.contains(&name.as_str()))
        .collect();
    assert_eq!(folders.iter().map(String::as_str).collect::<BTreeSet<_>>(), seen);
}

#[test]
fn the_counter_file_is_the_references() {
    let text = golden("DeviceOpsCmd/rebootConfig.json");
    let value: DeviceOpsCmd = go_json::from_slice(text.as_bytes()).unwrap();
    assert_eq!((value.counter, value.desired_state), (4, true));
    assert_eq!(String::from_utf8(go_json::to_vec(&value).unwrap()).unwrap(), text);
}

#[test]
fn the_wire_form_in_another_order_is_the_same_value() {
    for (path, text) in samples("NodeDrainStatus") {
        let wire =
            Path::new(&path).parent().unwrap().join("wire").join(Path::new(&path).file_name().unwrap());
        let wire = fs::read(wire).unwrap();
        let one: topics::NodeDrainStatus = go_json::from_slice(text.as_bytes()).unwrap();
        assert_eq!(one, go_json::from_slice(&wire).unwrap(), "{path}");
    }
    for (path, text) in samples("NodeAgentStatus") {
        let wire =
            Path::new(&path).parent().unwrap().join("wire").join(Path::new(&path).file_name().unwrap());
        let one: topics::NodeAgentStatus = go_json::from_slice(text.as_bytes()).unwrap();
        assert_eq!(one, go_json::from_slice(&fs::read(wire).unwrap()).unwrap(), "{path}");
    }
}

#[test]
fn force_files_are_read_as_the_reference_reads_them() {
    let rows: Vec<Value> = serde_json::from_str(&golden("override-parse.json")).unwrap();
    assert!(rows.len() > 20);
    for row in rows {
        let input = row["Input"].as_str().unwrap();
        match (row["OK"].as_bool().unwrap(), parse_force(input.as_bytes())) {
            (true, Ok(status)) => {
                assert_eq!(u64::from(status.status.number()), row["Status"].as_u64().unwrap(), "{input}");
                assert_eq!(
                    u64::from(status.requested_by.number()),
                    row["RequestedBy"].as_u64().unwrap(),
                    "{input}"
                );
                assert_eq!(status.status.text(), row["StatusText"].as_str().unwrap(), "{input}");
            }
            (false, Err(_)) => {}
            (expected, found) => panic!("{input}: expected {expected}, found {found:?}"),
        }
    }
}

#[test]
fn d_k13_unclear_force_files_are_refused_with_the_next_step() {
    for (input, word) in [
        ("{}", "from 1 to 9"),
        ("null", "from 1 to 9"),
        (r#"{"Status":0,"RequestedBy":2}"#, "from 1 to 9"),
        (r#"{"Status":255,"RequestedBy":2}"#, "255"),
        (r#"{"Status":9}"#, "RequestedBy 2"),
        (r#"{"Status":9,"RequestedBy":1}"#, "RequestedBy 2"),
        (r#"{"Status":5,"RequestedBy":9}"#, "requester 9"),
        ("9", "for example"),
    ] {
        let refused = read_force(input.as_bytes()).unwrap_err().to_string();
        assert!(refused.contains(word), "{input}: {refused}");
    }
    for input in [
        r#"{"Status":9,"RequestedBy":2}"#,
        r#"{"Status":9,"RequestedBy":3}"#,
        r#"{"Status":1,"RequestedBy":1}"#,
    ] {
        assert!(read_force(input.as_bytes()).is_ok(), "{input}");
    }
}

#[test]
fn the_schemas_on_disk_are_those_of_the_types() {
    let mut expected = BTreeSet::new();
    for (topic, schema) in topics::schema::all() {
        let file = format!("{topic}.schema.json");
        let text = fs::read_to_string(top().join("schemas").join(&file)).unwrap_or_default();
        assert_eq!(
            text,
            format!("{schema:#}\n"),
            "schemas/{file} has drifted: `cargo run -p topics --example write_schemas` writes it anew"
        );
        expected.insert(file);
    }
    let present: BTreeSet<String> = fs::read_dir(top().join("schemas"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(present, expected);
}

#[test]
fn every_sample_fits_its_schema_and_a_wrong_one_does_not() {
    let mut tried = 0;
    for (topic, schema) in topics::schema::all() {
        let validator = jsonschema::validator_for(&schema).unwrap();
        for (path, text) in samples(topic) {
            let value: Value = serde_json::from_str(&text).unwrap();
            let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{path}: {errors:?}");
            tried += 1;
        }
    }
    assert!(tried > 60, "{tried} samples");
    let (_, schema) =
        topics::schema::all().into_iter().find(|(topic, _)| *topic == "NodeDrainStatus").unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for wrong in [
        r#"{"Status":"9","RequestedBy":2}"#,
        r#"{"Status":256,"RequestedBy":2}"#,
        r#"{"Status":-1,"RequestedBy":2}"#,
    ] {
        assert!(!validator.is_valid(&serde_json::from_str(wrong).unwrap()), "{wrong}");
    }
}
