//! A whole report on files as the reference's agents write them, held to the text that the reference makes of them;
//! and files that nobody should have written.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;

use pubsub::{TopicRoot, store};
use serde_json::{Value, json};
use tempfile::TempDir;
use topics::go_json;
use uuid::Uuid;

use super::collect;

const APP: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const VOLUME: &str = "bbbbbbbb-0000-4000-8000-000000000002";
/// In members beside those that are told.
const SECRET: &str = "s3cr3t-in-a-file";
/// Under /run, and what is told of them.
const FILES: &str = include_str!("../../../tests/served/device.json");
const GOLDEN: &str = include_str!("../../../tests/served/app.json");

struct Device {
    root: TempDir,
    topic_root: TopicRoot,
}

impl Device {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        Self { root, topic_root }
    }

    fn write(&self, file: &str, value: &Value) {
        store::replace(&self.root.path().join(file), value.to_string().as_bytes()).unwrap();
    }

    fn report(&self, app: Option<&str>) -> String {
        let app = app.map(|it| Uuid::try_parse(it).unwrap());
        let report = collect(&self.topic_root, app, "2026-03-14T10:30:00.25+01:00".parse().unwrap());
        String::from_utf8(go_json::to_vec_indented(&report).unwrap()).unwrap()
    }

    fn items(&self, app: Option<&str>) -> Vec<Value> {
        let report: Value = serde_json::from_str(&self.report(app)).unwrap();
        report["appInfo"].as_array().unwrap().clone()
    }

    fn keys(&self, app: Option<&str>) -> Vec<String> {
        self.items(app).iter().map(|it| it["key"].as_str().unwrap().to_owned()).collect()
    }

    fn error(&self, app: Option<&str>, key: &str) -> String {
        let item = self.items(app).into_iter().find(|it| it["key"] == key).unwrap();
        assert_eq!(item["value"]["Exist"], false);
        item["value"]["Errors"].as_str().unwrap().to_owned()
    }

    /// A whole application, with secrets beside what is told.
    fn whole() -> Self {
        let device = Self::new();
        let files: BTreeMap<String, Value> = serde_json::from_str(FILES).unwrap();
        for (file, value) in files {
            device.write(&format!("run/{file}.json"), &value);
        }
        let log: Vec<String> = (1..=12).map(|nth| format!("step {nth}\n")).collect();
        let file = device.root.path().join("persist/kubelog/k3s-install.log");
        store::replace(&file, log.concat().as_bytes()).unwrap();
        device
    }
}

#[test]
fn a_whole_application_is_told_byte_for_byte_as_the_reference_tells_it() {
    let told = Device::whole().report(Some(APP));
    assert_eq!(told, GOLDEN.trim_end(), "{told}");
    assert!(FILES.contains(SECRET) && !told.contains(SECRET));
}

#[test]
fn without_an_application_only_the_node_is_told_and_without_a_name_only_that() {
    let device = Device::new();
    assert_eq!(device.keys(None), ["zedagent-EdgeNodeInfo"]);
    assert!(device.report(Some(APP)).contains("\"hostname\": \"unknown\""));
    assert_eq!(
        device.error(None, "zedagent-EdgeNodeInfo"),
        "zedagent-EdgeNodeInfo: Not found for: global, there is no file"
    );
    let device = Device::whole();
    let node = [
        "zedagent-EdgeNodeInfo",
        "zedkube-EdgeNodeClusterStatus",
        "zedkube-KubeLeaderElectInfo",
        "k3s-install.log",
    ];
    assert_eq!(device.keys(None), node);
    let stranger = "eeeeeeee-0000-4000-8000-000000000005";
    assert_eq!(device.keys(Some(stranger)), [&node[..], &["zedagent-AppInstanceConfig"]].concat());
}

#[test]
fn a_broken_file_is_an_item_that_says_why_without_path_or_content() {
    let device = Device::whole();
    let file = device.root.path().join(format!("run/domainmgr/DomainStatus/{APP}.json"));
    let key = "domainmgr-DomainStatus";
    let put = |text: &str| store::replace(&file, text.as_bytes()).unwrap();
    let all = device.keys(Some(APP)).len();
    for (text, why) in [
        (format!("{{\"State\":\"{SECRET}\"}}"), "member /State is of a wrong kind"),
        (format!("{{\"State\":{SECRET}"), "no JSON in line 1"),
        ("[]".to_owned(), "member  is of a wrong kind"),
        ("x".repeat(5 << 20), "it is longer than 4194304 bytes"),
    ] {
        put(&text);
        let error = device.error(Some(APP), key);
        assert_eq!(error, format!("{key}: Not found for: {APP}, {why}"));
    }
    std::fs::remove_file(&file).unwrap();
    symlink("/etc/hostname", &file).unwrap();
    let error = device.error(Some(APP), key);
    assert!(error.ends_with("it is a link; put a regular file there"), "{error}");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let error = device.error(Some(APP), key);
    assert!(error.contains("no regular file"), "{error}");
    assert_eq!(device.keys(Some(APP)).len(), all);
    let root = device.root.path().to_str().unwrap();
    assert!(!device.report(Some(APP)).contains(root));
}

#[test]
fn a_file_of_another_object_whose_name_begins_alike_is_not_taken() {
    let device = Device::whole();
    let dir = "run/zedkube/ENClusterAppStatus";
    std::fs::remove_file(device.root.path().join(dir).join(format!("{APP}.json"))).unwrap();
    for name in [format!("{APP}0.json"), format!("{APP}.json.bak"), APP.to_owned(), "tmp0001.json".to_owned()]
    {
        device.write(&format!("{dir}/{name}"), &json!({ "IsDNidNode": true }));
    }
    let error = device.error(Some(APP), "zedkube-ENClusterAppStatus");
    assert!(error.ends_with("there is no file"), "{error}");
}

#[test]
fn many_files_and_many_volumes_are_bounded() {
    let device = Device::whole();
    let dir = device.root.path().join("run/zedkube/ENClusterAppStatus");
    for nth in 0..4200 {
        std::fs::File::create(dir.join(format!("{nth}.json"))).unwrap();
    }
    let error = device.error(Some(APP), "zedkube-ENClusterAppStatus");
    assert!(error.ends_with("it has more than 4096 names"), "{error}");
    device.write(
        &format!("run/zedagent/AppInstanceConfig/{APP}.json"),
        &json!({ "VolumeRefConfigList": vec![json!({ "VolumeID": VOLUME }); 1000] }),
    );
    assert!(device.report(Some(APP)).contains("Volume Counts 64, Network Counts 0"));
    assert!(Path::new(&dir).exists());
}
