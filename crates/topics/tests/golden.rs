//! The reference's own bytes: each is read, fits its schema and, unless only other agents publish it, is written back
//! unchanged.
//!
//! `tests/golden` holds what the reference writes. `tests/filled` beside this file holds what those samples leave
//! empty, lists and members that Go omits when they are zero, and a sample of each topic of our own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use topics::{DeviceOpsCmd, Kind, NodeDrainStatus, Topic, VmiVnc, go_json, read_force};

/// Calls a function for every topic that has samples.
macro_rules! each_sampled_topic {
    ($call:ident($($argument:expr),*)) => {
        each_sampled_topic!($call($($argument),*):
            AppInstanceConfig BaseOSMgrStatus BaseOsConfig BaseOsStatus ConfigItemValueMap ContentTreeStatus
            DeviceNetworkStatus DomainStatus ENClusterAppStatus EdgeNodeClusterConfig EdgeNodeClusterStatus
            EdgeNodeInfo KubeClusterInfo KubeClusterUpdateStatus KubeConfig KubeLeaderElectInfo KubeUserServices
            NodeAgentStatus NodeDrainRequest NodeDrainStatus VaultStatus VolumeMgrStatus ZbootConfig ZbootStatus
            ZedAgentStatus)
    };
    ($call:ident $arguments:tt: $($topic:ident)+) => { $($call::<topics::$topic> $arguments;)+ };
}

const PLAIN: [&str; 5] = ["DeviceOpsCmd", "EdgeDevConfig", "etcd", "kubesim", "vmiVNC.run"];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn golden() -> PathBuf {
    here().join("../../tests/golden")
}

/// Files of a folder by path; none when there is no such folder.
fn texts(folder: &Path) -> Vec<(PathBuf, String)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths: BTreeSet<PathBuf> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// Disk samples of a topic, filled ones included.
fn samples(topic: &str) -> Vec<(PathBuf, String)> {
    let mut found = texts(&golden().join(topic));
    found.extend(
        texts(&here().join("tests/filled"))
            .into_iter()
            .filter(|(path, _)| path.file_stem().is_some_and(|stem| stem == topic)),
    );
    found
}

fn read<T: DeserializeOwned>(path: &Path, text: &str) -> T {
    go_json::from_slice(text.as_bytes()).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn unchanged<T: Serialize + DeserializeOwned>(path: &Path, text: &str) {
    let written = String::from_utf8(go_json::to_vec(&read::<T>(path, text)).unwrap()).unwrap();
    assert_eq!(written, text, "{}", path.display());
}

/// Whether all of `kept` is in `sample`, as it is there.
fn is_part(kept: &Value, sample: &Value) -> bool {
    match (kept, sample) {
        (Value::Object(kept), Value::Object(sample)) => {
            kept.iter().all(|(name, value)| sample.get(name).is_some_and(|it| is_part(value, it)))
        }
        (Value::Array(kept), Value::Array(sample)) => {
            kept.len() == sample.len() && kept.iter().zip(sample).all(|(one, other)| is_part(one, other))
        }
        (kept, sample) => kept == sample,
    }
}

fn kept<T: Topic>(path: &Path, text: &str) {
    let kept = serde_json::to_value(read::<T>(path, text)).unwrap();
    let sample = serde_json::from_str(text).unwrap();
    assert!(is_part(&kept, &sample), "{}: {kept:#} is no part of it", path.display());
}

fn round_trip<T: Topic>(seen: &mut BTreeMap<&'static str, usize>) {
    let samples = samples(T::NAME);
    for (path, text) in &samples {
        let is_of_others = include_str!("../src/others.rs").contains(&format!("topic!({}: ", T::NAME));
        if is_of_others {
            kept::<T>(path, text);
        } else {
            unchanged::<T>(path, text);
        }
    }
    seen.insert(T::NAME, samples.len());
}

#[test]
fn every_sample_is_read_and_what_is_ours_is_written_back_byte_for_byte() {
    let mut seen = BTreeMap::new();
    each_sampled_topic!(round_trip(&mut seen));
    // The reference has left no sample of these.
    for (path, text) in samples("ControllerCert") {
        kept::<topics::ControllerCert>(&path, &text);
    }
    for (path, text) in samples("EdgeNodeCert") {
        kept::<topics::EdgeNodeCert>(&path, &text);
    }
    // No sample is left out: every folder but those of plain files was visited.
    let folders: BTreeSet<String> = fs::read_dir(golden())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| !PLAIN.contains(&name.as_str()))
        .collect();
    assert_eq!(folders.iter().map(String::as_str).collect::<BTreeSet<_>>(), seen.keys().copied().collect());
    assert!(seen.values().all(|samples| *samples > 0), "{seen:?}");
}

#[test]
fn our_own_topics_are_written_back_byte_for_byte() {
    fn one<T: Topic>() {
        let samples = samples(T::NAME);
        assert_eq!(samples.len(), 1, "{}", T::NAME);
        for (path, text) in samples {
            unchanged::<T>(&path, &text);
        }
        let zero: T = read(Path::new("{}"), "{}");
        unchanged::<T>(Path::new("zero"), &String::from_utf8(go_json::to_vec(&zero).unwrap()).unwrap());
    }
    each_sampled_topic!(one():
        DrainPreflight NodeDrainProgress DrainHistory DrainJournal DeviceOpPending KubeStatsState
        NodeLeave NodeOutage SiteOperation K3sUpdate ClusterDecision OutageAnswer
        OutageQuestion AppLogMarks AgentTrouble ImageWrite);
}

#[test]
fn plain_files_are_written_back_byte_for_byte() {
    for (path, text) in texts(&golden().join("DeviceOpsCmd")) {
        unchanged::<DeviceOpsCmd>(&path, &text);
    }
    let consoles = texts(&golden().join("vmiVNC.run"));
    assert_eq!(consoles.len(), 3);
    for (path, text) in consoles {
        unchanged::<VmiVnc>(&path, &text);
    }
    let saved: DeviceOpsCmd = read(
        Path::new("rebootConfig"),
        &fs::read_to_string(golden().join("DeviceOpsCmd/rebootConfig.json")).unwrap(),
    );
    assert_eq!((saved.counter, saved.desired_state), (4, true));
}

/// Files that the reference made of the large members of a sample: path on the device and content, in the order
/// in which the wire form names them.
fn large_files(wire: &Path, carried: &str) -> Vec<(String, String)> {
    let mut found: Vec<(usize, String, String)> = texts(&wire.with_extension("large"))
        .into_iter()
        .map(|(path, content)| {
            let name = path.file_name().unwrap().to_str().unwrap();
            let at = carried.find(name).unwrap();
            let start = carried[..at].rfind("/persist/").unwrap();
            (at, carried[start..at + name.len()].to_owned(), content)
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, path, content)| (path, content)).collect()
}

/// D-P3: what the reference's doubles make of the two numbers of the samples that they damage.
fn damaged(content: &str) -> String {
    content
        .replace("9007199254740993", "9007199254740992")
        .replace(&u64::MAX.to_string(), "18446744073709552000")
}

/// What a socket carries: each sample becomes the reference's bytes.
fn wire<T: Topic>(tried: &mut usize, large: &mut usize, repaired: &mut usize) {
    for (path, text) in texts(&golden().join(T::NAME)) {
        let wire = path.parent().unwrap().join("wire").join(path.file_name().unwrap());
        let carried = fs::read_to_string(&wire).unwrap();
        let files = large_files(&wire, &carried);
        let mut left = files.clone();
        let mut store = |rest: &str, content: &[u8]| {
            let content = std::str::from_utf8(content)?;
            let fits = |(path, carried): &(String, String)| {
                path.contains(&format!("/pubsub-file-{rest}")) && *carried == damaged(content)
            };
            let at =
                left.iter().position(fits).ok_or_else(|| format!("{rest} has another file: {content}"))?;
            *repaired += usize::from(damaged(content) != content);
            Ok(left.remove(at).0)
        };
        let sent = go_json::to_wire(text.as_bytes(), &mut store).unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(String::from_utf8(sent).unwrap(), carried, "{}", wire.display());
        assert_eq!(left, [], "{}", wire.display());

        *large += usize::from(!files.is_empty());
        *tried += usize::from(files.is_empty());
    }
}

#[test]
fn d_p3_what_a_socket_carries_is_the_reference_byte_for_byte_but_for_damaged_numbers() {
    let (mut tried, mut large, mut repaired) = (0, 0, 0);
    each_sampled_topic!(wire(&mut tried, &mut large, &mut repaired));
    assert_eq!((tried, large), (78, 11), "samples without and with members in files of their own");
    assert_eq!(repaired, 1, "members whose numbers the reference damages");
}

fn kind<T: Topic>(rows: &[Value]) {
    for row in rows.iter().filter(|row| row["Topic"] == T::NAME) {
        assert_eq!(row["Persistent"], T::KIND == Kind::Persistent, "{}", T::NAME);
        assert!(T::KEY.is_none_or(|key| row["Key"] == key), "{}: {} is its key", T::NAME, row["Key"]);
    }
    assert!(rows.iter().any(|row| row["Topic"] == T::NAME), "{} is in no row", T::NAME);
}

#[test]
fn topics_live_as_long_as_in_the_reference() {
    let rows: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(golden().join("manifest.json")).unwrap()).unwrap();
    assert!(rows.len() >= 86, "{} rows", rows.len());
    each_sampled_topic!(kind(&rows));
}

/// What a hostile or torn file may hold: never a panic, and never a value out of a syntax error.
fn survives<T: Topic>() {
    for (path, text) in samples(T::NAME) {
        for end in (0..text.len()).step_by(1 + text.len() / 200) {
            let torn = go_json::from_slice::<T>(&text.as_bytes()[..end]);
            assert!(torn.is_err(), "{} cut to {end} bytes", path.display());
        }
        for at in (0..text.len()).step_by(1 + text.len() / 20) {
            for other in *b"\"{}[]:,0-9.en\\\0\xff" {
                let mut bytes = text.clone().into_bytes();
                bytes[at] = other;
                if let Ok(value) = go_json::from_slice::<T>(&bytes) {
                    go_json::to_vec(&value).unwrap();
                }
            }
        }
        let value: T = read(&path, &text);
        for wrong in ["[]", "9", "\"text\"", "true", "{}{}", "\u{feff}{}"] {
            assert!(go_json::from_slice::<T>(wrong.as_bytes()).is_err(), "{} from {wrong}", T::NAME);
        }
        let more = text.replacen('{', "{\"noSuchMember\":{\"a\":[1,{}]},", 1).replacen(",}", "}", 1);
        assert_eq!(read::<T>(&path, &more), value);
        let spaced = format!("\n {text}\t\r\n ");
        assert_eq!(read::<T>(&path, &spaced), value);
    }
}

#[test]
fn d_p4_a_torn_or_foreign_file_is_an_error_and_no_panic() {
    each_sampled_topic!(survives());
}

#[test]
fn force_files_are_read_as_the_reference_reads_them() {
    let rows: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(golden().join("override-parse.json")).unwrap()).unwrap();
    assert_eq!(rows.len(), 27);
    for row in rows {
        let input = row["Input"].as_str().unwrap();
        match (row["OK"].as_bool().unwrap(), go_json::from_slice::<NodeDrainStatus>(input.as_bytes())) {
            (true, Ok(forced)) => {
                assert_eq!(row["Status"], forced.status.number(), "{input}");
                assert_eq!(row["RequestedBy"], forced.requested_by.number(), "{input}");
                assert_eq!(row["StatusText"], forced.status.text(), "{input}");
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
        (r#"{"RequestedBy":2}"#, "from 1 to 9"),
        (r#"{"Status":null,"RequestedBy":2}"#, "from 1 to 9"),
        (r#"{"Status":0,"RequestedBy":2}"#, "from 1 to 9"),
        (r#"{"Status":10,"RequestedBy":2}"#, "10"),
        (r#"{"Status":255,"RequestedBy":2}"#, "255"),
        (r#"{"Status":9}"#, "RequestedBy 2"),
        (r#"{"Status":9,"RequestedBy":0}"#, "RequestedBy 2"),
        (r#"{"Status":9,"RequestedBy":1}"#, "RequestedBy 2"),
        (r#"{"Status":9,"RequestedBy":4}"#, "requester 4"),
        (r#"{"Status":5,"RequestedBy":9}"#, "requester 9"),
        (r#"{"Status":"9","RequestedBy":2}"#, "/Status"),
        (r#"{"Status":9.0,"RequestedBy":2}"#, "/Status"),
        ("9", "for example"),
        ("", "for example"),
    ] {
        let refused = read_force(input.as_bytes()).unwrap_err().to_string();
        assert!(refused.contains(word), "{input}: {refused}");
    }
    for (status, by) in (1..=8).flat_map(|status| [0, 1, 2, 3].map(|by| (status, by))).chain([(9, 2), (9, 3)])
    {
        let forced = read_force(format!(r#"{{"status":{status},"requestedby":{by}}}"#).as_bytes()).unwrap();
        assert_eq!((forced.status.number(), forced.requested_by.number()), (status, by));
    }
}

#[test]
fn the_schemas_on_disk_are_those_of_the_types() {
    let all = [
        ("schemas", crate::schema::all()),
        ("schemas/commands", crate::schema::commands()),
        ("schemas/served", crate::schema::served()),
    ];
    for (folder, schemas) in all {
        let held = here().join("../..").join(folder);
        let mut expected = BTreeSet::new();
        for (topic, schema) in schemas {
            let file = format!("{topic}.schema.json");
            let text = fs::read_to_string(held.join(&file)).unwrap_or_default();
            assert_eq!(
                text,
                format!("{schema:#}\n"),
                "{folder}/{file} is missing or has drifted: `cargo run -p topics --example write_schemas` writes it"
            );
            expected.insert(file);
        }
        let present: BTreeSet<String> = texts(&held)
            .into_iter()
            .map(|(path, _)| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(present, expected, "{folder} holds a file of no topic");
    }
}

fn validator(schema: &Value) -> jsonschema::Validator {
    jsonschema::options().should_validate_formats(true).build(schema).unwrap()
}

/// How many samples fit; all must.
fn fit(schema: &Value, samples: Vec<(PathBuf, String)>) -> usize {
    let validator = validator(schema);
    let tried = samples.len();
    for (path, text) in samples {
        let value: Value = serde_json::from_str(&text).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{}: {errors:?}", path.display());
    }
    tried
}

#[test]
fn every_sample_fits_its_schema() {
    let disk: usize = crate::schema::all().iter().map(|(topic, schema)| fit(schema, samples(topic))).sum();
    assert_eq!(disk, 108, "samples of the form on disk");
    let carried = |topic: &str| texts(&golden().join(topic).join("wire"));
    let wire: usize = crate::wire::schemas().iter().map(|(topic, schema)| fit(schema, carried(topic))).sum();
    assert_eq!(wire, 89, "samples of the form on a socket");
}

#[test]
fn the_two_forms_of_a_value_do_not_fit_each_others_schemas() {
    let schema =
        |all: Vec<(&str, Value)>| all.into_iter().find(|(topic, _)| *topic == "KubeClusterInfo").unwrap().1;
    let (disk, wire) = (schema(crate::schema::all()), schema(crate::wire::schemas()));
    let text = |path: &str| serde_json::from_str(&fs::read_to_string(golden().join(path)).unwrap()).unwrap();
    let (on_disk, carried): (Value, Value) =
        (text("KubeClusterInfo/full.json"), text("KubeClusterInfo/wire/full.json"));
    assert!(validator(&disk).is_valid(&on_disk) && validator(&wire).is_valid(&carried));
    assert!(!validator(&disk).is_valid(&carried) && !validator(&wire).is_valid(&on_disk));
    let mut empty = carried;
    empty["Nodes"] = serde_json::json!([]);
    assert!(!validator(&wire).is_valid(&empty), "an empty list is null on a socket");
}

#[test]
fn a_wrong_value_does_not_fit_its_schema() {
    let schemas: BTreeMap<&str, Value> = crate::schema::all().into_iter().collect();
    for (topic, member, wrong) in [
        ("NodeDrainStatus", "/Status", r#""9""#),
        ("NodeDrainStatus", "/Status", "256"),
        ("NodeDrainStatus", "/Status", "-1"),
        ("NodeDrainStatus", "/Status", "9.5"),
        ("NodeDrainRequest", "/RequestedAt", r#""yesterday""#),
        ("EdgeNodeInfo", "/DeviceID", r#""node-1""#),
        ("EdgeNodeClusterConfig", "/JoinServerIP", r#""10.0.0""#),
        ("EdgeNodeClusterConfig", "/ClusterIPPrefix", r#"{"IP":"10.0.0.1","Mask":"////8A"}"#),
        ("KubeLeaderElectInfo", "/IsStatsLeader", "null"),
        ("VolumeMgrStatus", "/RemainingSpace", "1e20"),
        ("ZedAgentStatus", "/RadioSilence", "null"),
    ] {
        let (path, text) = samples(topic).remove(0);
        let mut value: Value = serde_json::from_str(&text).unwrap();
        let validator = validator(&schemas[topic]);
        assert!(validator.is_valid(&value), "{}", path.display());
        *value.pointer_mut(member).unwrap() = serde_json::from_str(wrong).unwrap();
        assert!(!validator.is_valid(&value), "{topic}: {member} may be {wrong}");
    }
}

#[test]
fn every_topic_and_every_member_is_described() {
    fn undescribed(schema: &Value, at: &str, found: &mut Vec<String>) {
        for (name, part) in schema["properties"].as_object().into_iter().flatten() {
            if part["description"].as_str().is_none_or(str::is_empty) {
                found.push(format!("{at}.{name}"));
            }
        }
    }
    for (topic, schema) in crate::schema::all() {
        assert_eq!(schema["title"], topic);
        let mut found = Vec::new();
        undescribed(&schema, topic, &mut found);
        for (name, part) in schema["$defs"].as_object().into_iter().flatten() {
            assert!(part["description"].is_string() || name == "Base64", "{topic}: {name} is not described");
            undescribed(part, name, &mut found);
        }
        assert!(found.is_empty(), "{topic}: {found:?}");
    }
}
