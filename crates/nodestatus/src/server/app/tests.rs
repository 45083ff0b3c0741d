//! A whole report on files as the reference's agents write them, held to the text that the reference makes of them;
//! and files that nobody should have written.

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
const CONTENT: &str = "cccccccc-0000-4000-8000-000000000003";
const NETWORK: &str = "dddddddd-0000-4000-8000-000000000004";
/// In members beside those that are told.
const SECRET: &str = "s3cr3t-in-a-file";
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

    fn keys(&self, app: Option<&str>) -> Vec<String> {
        let report: Value = serde_json::from_str(&self.report(app)).unwrap();
        report["appInfo"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["key"].as_str().unwrap().to_owned())
            .collect()
    }

    fn error(&self, app: Option<&str>, key: &str) -> String {
        let report: Value = serde_json::from_str(&self.report(app)).unwrap();
        let item = report["appInfo"].as_array().unwrap().iter().find(|it| it["key"] == key).unwrap().clone();
        assert_eq!(item["value"]["Exist"], false);
        item["value"]["Errors"].as_str().unwrap().to_owned()
    }

    fn node(&self) {
        self.write(
            "run/zedagent/EdgeNodeInfo/global.json",
            &json!({
                "DeviceName": "N_1", "DeviceID": "11111111-1111-4111-8111-111111111111",
                "ProjectName": "p", "EnterpriseName": "e & co",
            }),
        );
    }

    /// A whole application, with secrets beside what is told.
    fn whole() -> Self {
        let device = Self::new();
        device.node();
        device.write(
            "run/zedkube/EdgeNodeClusterStatus/global.json",
            &json!({
                "ClusterInterface": "eth0", "ClusterIPIsReady": true, "JoinServerIP": "10.244.244.1",
                "ClusterIPPrefix": { "IP": "10.244.244.2", "Mask": "////AA==" }, "BootstrapNode": false,
                "EncryptedClusterToken": SECRET,
            }),
        );
        device.write(
            "run/zedkube/KubeLeaderElectInfo/global.json",
            &json!({
                "InLeaderElection": true, "IsStatsLeader": false, "LeaderIdentity": "n-2",
                "LatestChange": "2026-03-14T09:29:58.123456789Z",
            }),
        );
        let log: Vec<String> = (1..=12).map(|nth| format!("step {nth}\n")).collect();
        store::replace(&device.root.path().join("persist/kubelog/k3s-install.log"), log.concat().as_bytes())
            .unwrap();
        let adapter =
            json!({ "Name": "eth0", "Network": NETWORK, "AppMacAddr": "AhY+AAAB", "AppIPAddr": "" });
        device.write(
            &format!("run/zedagent/AppInstanceConfig/{APP}.json"),
            &json!({
                "DisplayName": "web", "Activate": true, "IsDesignatedNodeID": true,
                "VolumeRefConfigList": [{ "VolumeID": VOLUME }], "AppNetAdapterList": [adapter],
                "pubsub-large-CloudInitUserData": SECRET, "CipherData": SECRET,
            }),
        );
        device.write(
            &format!("run/zedagent/VolumeConfig/{VOLUME}#0.json"),
            &json!({ "VolumeID": VOLUME, "ContentID": CONTENT, "DisplayName": "data", "IsReplicated": true }),
        );
        let addresses =
            json!({ "IPv4Addrs": [{ "Address": "10.1.0.2", "AssignedBy": 4 }], "IPv6Addrs": null });
        device.write(
            &format!("run/zedrouter/NetworkInstanceStatus/{NETWORK}.json"),
            &json!({
                "DisplayName": "net", "Activated": true, "Activate": 1,
                "IPAssignments": { "02:16:3e:00:00:01": addresses },
            }),
        );
        device.write(
            &format!("run/zedkube/ENClusterAppStatus/{APP}.json"),
            &json!({ "AppUUID": APP, "IsDNidNode": true, "ScheduledOnThisNode": true, "AppKubeStatus": 4 }),
        );
        device.write(
            &format!("run/zedmanager/AppNetworkConfig/{APP}.json"),
            &json!({
                "DisplayName": "web", "Activate": true, "AppNetAdapterList": [adapter],
                "pubsub-large-CloudInitUserData": SECRET,
            }),
        );
        device.write(
            &format!("run/zedrouter/AppNetworkStatus/{APP}.json"),
            &json!({
                "DisplayName": "web", "Activated": true, "AppNum": 1,
                "AppNetAdapterList": [{ "AssignedAddresses": addresses }],
            }),
        );
        device.write(
            &format!("run/volumemgr/VolumeStatus/{VOLUME}#0.json"),
            &json!({
                "ReferenceName": "eve-kube-app/pvc-data", "State": 110, "IsReplicated": true, "TotalSize": 1_048_576,
                "CurrentSize": 1_048_576,
            }),
        );
        device.write(
            &format!("run/volumemgr/ContentTreeStatus/{CONTENT}.json"),
            &json!({
                "DisplayName": "image", "State": 125, "RelativeURL": "web:1", "TotalSize": 7, "CurrentSize": 7,
            }),
        );
        device.domain();
        device.write(
            &format!("run/volumemgr/AppDiskMetric/{VOLUME}-pvc-0.json"),
            &json!({
                "DiskPath": "pvc-data", "DiskType": "PVC", "ProvisionedBytes": 1_048_576, "UsedBytes": 4096,
                "Dirty": false,
            }),
        );
        device
    }

    fn domain(&self) {
        self.write(
            &format!("run/zedmanager/AppInstanceStatus/{APP}.json"),
            &json!({ "DomainName": "web.1.1", "Activated": true, "State": 115, "IsDesignatedNodeID": true }),
        );
        self.write(
            &format!("run/zedmanager/DomainConfig/{APP}.json"),
            &json!({
                "DisplayName": "web", "Activate": true, "AppNum": 1, "KubeImageName": "", "IsDNidNode": true,
                "CipherData": SECRET,
            }),
        );
        self.write(
            &format!("run/domainmgr/DomainStatus/{APP}.json"),
            &json!({
                "DisplayName": "web", "State": 115, "Activated": true, "AppNum": 1, "IsDNidNode": true,
                "NodeName": "n-1", "EnvVariables": { "PASSWORD": SECRET },
            }),
        );
        self.write(
            &format!("run/domainmgr/DomainMetric/{APP}.json"),
            &json!({
                "AllocatedMB": 512, "UsedMemoryPercent": 12.5, "Activated": true,
                "LastHeard": "2026-03-14T09:29:59.9Z",
            }),
        );
    }
}

#[test]
fn a_whole_application_is_told_byte_for_byte_as_the_reference_tells_it() {
    let told = Device::whole().report(Some(APP));
    assert_eq!(told, GOLDEN.trim_end(), "{told}");
    assert!(!told.contains(SECRET));
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
