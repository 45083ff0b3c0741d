//! `zedbox kubeconfig`, `zedbox role` and `zedbox notify` as typed: files written, their readers, and places without a token.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use kubeapi::ApiClient;
use kubeapi::connect::account;
use pubsub::store;
use scenarios::{Cluster, SKIPPED, World};
use serde_json::{Value, json};
use tempfile::TempDir;
use topics::DrainStatus;

use crate::drain_cmd::node::{Ended, has};
use crate::{serve, skipped};

const TOKEN: &str = "eyJhbGciOi.tok3n.c2ln";

fn zedbox(dir: &TempDir, line: &str) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zedbox"));
    Ended::of(command.args(line.split(' ')).current_dir(dir).env_remove("KUBECONFIG"))
}

fn authority() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::new(vec!["ca".to_owned()]).unwrap().self_signed(&key).unwrap().pem()
}

/// An API server with this answer to one request, and its administrator's kubeconfig.
fn place(code: u16, answer: Value) -> TempDir {
    use base64::Engine as _;
    let server = format!("http://{}", serve(move |nth, _| (nth == 0).then(|| (code, answer.to_string()))));
    let dir = tempfile::tempdir().unwrap();
    let ca = base64::engine::general_purpose::STANDARD.encode(authority());
    let admin = json!({
        "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
        "clusters": [{ "name": "k", "cluster": { "server": server, "certificate-authority-data": ca } }],
        "users": [{ "name": "u", "user": { "token": "of-the-admin" } }],
    });
    store::replace(&dir.path().join("admin"), admin.to_string().as_bytes()).unwrap();
    dir
}

/// The file at `path`, readable by its owner only.
fn made(path: &Path) -> Value {
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn x4_a_kubeconfig_is_made_of_a_service_account_and_its_token_is_in_the_file_alone() {
    let granted = json!({ "status": { "token": TOKEN, "expirationTimestamp": "2027-03-14T09:41:00Z" } });
    let dir = place(201, granted);
    let told =
        zedbox(&dir, "kubeconfig --kubeconfig admin --to agents --server https://10.0.0.1:6443 --log trace")
            .ends(0);
    let said = format!("{}{}", told.out, told.err);
    assert!(!said.contains("tok3n") && !said.contains("of-the-admin"), "{said}");
    let of = "agents: system:serviceaccount:kube-system:pillar-rs at https://10.0.0.1:6443";
    has(&said, &[of, "until 2027-03-14 09:41:00 UTC"]);
    let file = made(&dir.path().join("agents"));
    assert_eq!(file["users"][0]["user"], json!({ "token": TOKEN }));
    assert_eq!(file["clusters"][0]["cluster"]["server"], "https://10.0.0.1:6443");
    let admin: Value = serde_json::from_str(&fs::read_to_string(dir.path().join("admin")).unwrap()).unwrap();
    let ca = "/clusters/0/cluster/certificate-authority-data";
    assert_eq!(file.pointer(ca), admin.pointer(ca));
}

#[test]
fn x4_what_keeps_a_kubeconfig_from_being_made_is_named_with_what_to_type() {
    let missing =
        json!({ "kind": "Status", "code": 404, "reason": "NotFound", "message": "no such account" });
    let dir = place(404, missing);
    let make = "kubeconfig --kubeconfig admin --to agents";
    zedbox(&dir, make)
        .ends(1)
        .warns(&["`zedbox role --service-account kube-system/pillar-rs | kubectl apply -f -`"]);
    assert!(!dir.path().join("agents").exists());
    // This test's server has no TLS.
    let granted = json!({ "status": { "token": TOKEN } });
    let needed = "an address as https://10.0.0.1:6443 is needed (--server)";
    zedbox(&place(201, granted), make).warns(&[needed]);
    zedbox(&dir, "kubeconfig --kubeconfig nobody --to agents").warns(&["check that nobody exists"]);
    zedbox(&dir, "kubeconfig --to agents --token-file t").ends(2);
}

#[test]
fn x4_a_kubeconfig_is_made_of_files_and_printed_when_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| store::replace(&dir.path().join(name), text.as_bytes()).unwrap();
    put("token", &format!("{TOKEN}\n"));
    put("ca", &authority());
    put("agents", "older");
    let make = |to: &str| {
        zedbox(&dir, &format!("kubeconfig --to {to} --token-file token --ca ca --server https://k:6443"))
    };
    make("agents").ends(0).lacks(&["tok3n"]);
    let file = made(&dir.path().join("agents"));
    assert_eq!(file["users"][0]["user"]["token"], TOKEN);
    assert_eq!(make("-").json(), file);
    put("token", "-----BEGIN PRIVATE KEY-----\nsecret\n");
    let told = make("agents").warns(&["token: it holds no token in one line"]);
    assert!(!told.err.contains("secret"), "{told:?}");
    put("token", TOKEN);
    put("ca", "none");
    make("agents").warns(&["ca: it holds no certificate"]);
}

#[test]
fn x3_a_test_message_is_posted_and_the_address_is_not_shown() {
    let dir = place(200, json!({}));
    let admin: Value = serde_json::from_str(&fs::read_to_string(dir.path().join("admin")).unwrap()).unwrap();
    let gateway = admin.pointer("/clusters/0/cluster/server").unwrap().as_str().unwrap();
    let settings = format!("notify = \"{gateway}/s3cr3t\"\n");
    store::replace(&dir.path().join("etc/zedbox/zedbox.toml"), settings.as_bytes()).unwrap();
    let words = "notify test --root . --log trace";
    // The gateway answers once.
    for (code, words_of) in [(0, "Posted a test message to 127.0.0.1."), (1, "post to 127.0.0.1: ")] {
        let told = zedbox(&dir, words).ends(code);
        let said = format!("{}{}", told.out, told.err);
        assert!(said.contains(words_of) && !said.contains("s3cr3t"), "{said}");
    }
    fs::remove_file(dir.path().join("etc/zedbox/zedbox.toml")).unwrap();
    zedbox(&dir, words).warns(&["zedbox.toml names none, as notify = "]);
}

/// By `zedbox setup`, on a server started for this: another one may have roles of these names.
#[tokio::test]
async fn x4_a_kubeconfig_of_zedbox_and_its_roles_are_enough_for_a_whole_drained_reboot_on_a_real_server() {
    let Some(cluster) = Cluster::of_environment().await else {
        return skipped(SKIPPED);
    };
    let Some(admin) = cluster.admin() else {
        cluster.tear_down().await;
        return skipped("the server of KUBECONFIG may have these roles already");
    };
    let dir = tempfile::tempdir().unwrap();
    store::replace(&dir.path().join("admin"), admin.as_bytes()).unwrap();
    let words = format!(
        "setup --root . --admin admin --kubeconfig agents --cluster-id 6ba7b810-9dad-11d1-80b4-00c04fd430c8 --address \
         127.0.0.1/8 --device record --node {}",
        cluster.device_name()
    );
    zedbox(&dir, &words).ends(0);

    // The file renews its own token, for the whole reboot below, and no other.
    let file = dir.path().join("agents");
    let agents = ApiClient::from_kubeconfig(&file);
    let old = fs::read_to_string(&file).unwrap();
    let now = agent::Clock::new().wall().to_timestamp();
    let late = now + std::time::Duration::from_hours(364 * 24);
    let new = account::renewed(&agents, late).await.unwrap().unwrap();
    assert!(new.text != old && new.expires.is_some());
    store::replace(&file, new.text.as_bytes()).unwrap();
    assert!(account::renewed(&agents, now).await.unwrap().is_none());
    let other = account::token(&agents, &"kube-system/default".parse().unwrap(), 600).await;
    assert!(other.err().unwrap().line().contains("cannot create resource \"serviceaccounts/token\""));

    let mut world = World::on(cluster.entered_by(file));
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
    world.ask_reboot(7);
    world.recorded_count(1).await;
    assert!(world.cluster.cordoned().await);
    assert_eq!(world.cluster.pods_to_leave().await, [""; 0]);
    world.cluster.until_shown("DrainComplete", "Drained", "True").await;
    world.reboot().await;
    world.start_all();
    world.executed(7).await;
    world.cluster.until_schedulable().await;
    world.cluster.until_shown("Uncordoned", "InService", "False").await;
    world.kill_all().await;
    world.cluster.tear_down().await;
}
