//! The task on files: late certificates, changing tokens and manifests, a hanging TPM; and what must never appear.

use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use agent::{AgentContext, Clock, Inbox, Stopper};
use p256::SecretKey;
use pubsub::{TopicRoot, store};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;
use topics::{Base64, CipherBlockStatus, Secret, Topic, go_json};
use tracing::subscriber::DefaultGuard;
use zeroize::Zeroizing;

use super::super::keys::{TokenKeys, Tpm};
use super::super::manifest;
use super::super::tests::samples::*;
use super::follow;
use crate::token::fault::{BlockAnswer, ClusterToken, Sealed};

const KEY_FILE: &str = "persist/certs/ecdh.key.pem";
const TEXT: &str = "K10s3cr3t::server:0123456789";

struct Site {
    root: TempDir,
    context: AgentContext,
    asked: watch::Sender<Option<Sealed>>,
    answers: Inbox<BlockAnswer>,
    controller: SecretKey,
    device: SecretKey,
    /// While it lives, the task runs and its log is heard.
    _held: (Stopper, JoinSet<()>, DefaultGuard),
}

/// A TPM that answers when the test says so.
struct Slow(mpsc::Receiver<Vec<u8>>);

impl Tpm for Slow {
    fn ask(&mut self, _: &[u8]) -> io::Result<Zeroizing<Vec<u8>>> {
        Ok(Zeroizing::new(self.0.recv().unwrap()))
    }
}

impl Site {
    fn new() -> Self {
        Self::with(TokenKeys::new)
    }

    fn with(keys: impl FnOnce(&TopicRoot) -> TokenKeys) -> Self {
        let root = tempfile::tempdir().unwrap();
        let ear = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
        let ear = ear.with_writer(std::fs::File::create(root.path().join("log")).unwrap()).finish();
        let ear = tracing::subscriber::set_default(ear);
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let (stopper, context) = AgentContext::alone(&topic_root, Clock::new(), "");
        let (asked, wanted) = watch::channel(None);
        let (outbox, answers) = agent::inbox();
        let mut task = JoinSet::new();
        task.spawn(follow(context.clone(), keys(&topic_root), wanted, outbox));
        let (controller, device) = (secret_key("controller"), secret_key("device"));
        let held = (stopper, task, ear);
        let site = Self { root, context, asked, answers, controller, device, _held: held };
        site.put(KEY_FILE, &key_file(&site.device));
        site
    }

    fn put(&self, file: &str, bytes: &[u8]) {
        store::replace(&self.root.path().join(file), bytes).unwrap();
    }

    fn publish<T: Topic>(&self, agent: &str, (key, value): (String, T)) {
        let path = agent::wire::path::<T>(&self.context.topic_root, agent, &key);
        store::replace(&path, &go_json::to_vec(&value).unwrap()).unwrap();
    }

    fn publish_controller(&self) {
        self.publish("zedagent", controller_cert(&cert(&self.controller.public_key())));
    }

    fn publish_device(&self) {
        self.publish("tpmmgr", device_cert(&cert(&self.device.public_key()), false));
    }

    /// With both certificates published, and the vault open.
    fn ready() -> Self {
        let site = Self::new();
        site.publish_controller();
        site.publish_device();
        std::fs::create_dir_all(site.root.path().join("persist/vault")).unwrap();
        site
    }

    /// A token with a manifest is asked for and told.
    async fn opens(&mut self, token: &str, manifest: &[u8], bootstrap: bool) {
        self.ask(self.seal(&message(token, manifest)), bootstrap);
        assert_eq!(self.answer().await, clear(token));
    }

    fn seal(&self, clear: &[u8]) -> CipherBlockStatus {
        seal(&self.controller, &self.device.public_key(), clear)
    }

    fn ask(&self, block: CipherBlockStatus, bootstrap: bool) {
        self.asked.send_replace(Some(Sealed { block, bootstrap }));
    }

    async fn answer(&mut self) -> ClusterToken {
        self.answers.recv().await.unwrap().token
    }

    async fn fault(&mut self) -> String {
        match self.answer().await {
            ClusterToken::Failed(why) => why,
            other @ (ClusterToken::None | ClusterToken::Pending | ClusterToken::Clear(_)) => {
                panic!("{other:?}")
            }
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.root.path().join("log")).unwrap()
    }

    fn manifest(&self) -> std::path::PathBuf {
        self.root.path().join(manifest::FILE)
    }
}

fn clear(text: &str) -> ClusterToken {
    ClusterToken::Clear(Secret::new(text.to_owned()))
}

pub(in crate::token) fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.is_file() {
            found.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
}

#[tokio::test]
async fn certificates_may_come_late_and_go_and_a_token_may_change() {
    let mut site = Site::new();
    let block = site.seal(&message(TEXT, b""));
    site.ask(block.clone(), false);
    let fault = site.fault().await;
    let begins = "decryptClusterTokenAndManifest: failed to decrypt cluster token: no such cert";
    assert!(fault.starts_with(begins) && fault.contains("ControllerCert"), "{fault}");
    site.publish_controller();
    let fault = site.fault().await;
    assert!(fault.starts_with(begins) && fault.contains("EdgeNodeCert"), "{fault}");
    site.publish_device();
    assert_eq!(site.answer().await, clear(TEXT));
    // A clear token stays clear without certificates: the next answer is for the next token.
    store::remove(&agent::wire::path::<topics::ControllerCert>(
        &site.context.topic_root,
        "zedagent",
        &controller_cert(&cert(&site.controller.public_key())).0,
    ))
    .unwrap();
    let other = secret_key("another controller");
    site.publish("zedagent", controller_cert(&cert(&other.public_key())));
    site.ask(seal(&other, &site.device.public_key(), &message("another", b"")), false);
    // The block may arrive before its certificate.
    while site.answer().await != clear("another") {}
    // The first one again, without its certificate.
    site.ask(block, false);
    assert!(site.fault().await.contains("no such cert: ControllerCert"));
}

#[tokio::test]
async fn a_token_for_another_key_is_told_by_its_hash() {
    let mut site = Site::ready();
    let mut block = site.seal(&message(TEXT, b""));
    block.clear_text_hash.as_mut().unwrap().0[0] ^= 1;
    site.ask(block, false);
    assert!(site.fault().await.contains("hash mismatch"));
    site.ask(site.seal(b"\x42\x7fshort"), false);
    assert!(site.fault().await.contains("cannot be read: it ends within a field"));
    // A message without a token is an empty token, as in the reference.
    site.opens("", b"", false).await;
}

#[tokio::test]
async fn the_manifest_is_written_on_the_bootstrap_node_alone_once_and_for_its_owner_alone() {
    let mut site = Site::ready();
    let (first, second) = (gzip(b"kind: A\n"), gzip(b"kind: B\n"));
    site.opens(TEXT, &first, false).await;
    assert!(!site.manifest().exists());
    site.opens(TEXT, &first, true).await;
    let file = site.manifest();
    let written = || {
        let meta = std::fs::metadata(&file).unwrap();
        (std::fs::read_to_string(&file).unwrap(), meta.permissions().mode() & 0o777, meta.ino())
    };
    let (text, mode, inode) = written();
    assert_eq!((text.as_str(), mode), ("kind: A\n", 0o600));
    // Opened again, the file stays; another manifest replaces it.
    site.opens("no manifest", b"", true).await;
    site.opens(TEXT, &first, true).await;
    assert_eq!(written().2, inode, "written again");
    site.opens(TEXT, &second, true).await;
    assert_eq!(written().0, "kind: B\n");
    // None removes none.
    site.opens("no manifest", b"", true).await;
    assert_eq!(written().0, "kind: B\n");
}

#[tokio::test]
async fn a_manifest_that_cannot_be_unpacked_or_is_too_long_is_refused_and_the_token_told() {
    let mut site = Site::ready();
    let most = vec![b'a'; 1 << 20];
    let longer = [most.as_slice(), b"a"].concat();
    let mut torn = gzip(b"kind: A\n");
    torn.truncate(torn.len() - 4);
    for (packed, why) in [
        (gzip(&longer), "it has more than 1048576 bytes"),
        // A few kilobytes that would be a gigabyte.
        (gzip(&vec![0; 8 << 20]), "it has more than 1048576 bytes"),
        (torn, "the manifest cannot be unpacked"),
        (b"kind: A\n".to_vec(), "the manifest cannot be unpacked"),
    ] {
        site.opens(why, &packed, true).await;
        assert!(!site.manifest().exists(), "{why}");
        // The next answer shows that the last block is done.
        site.opens("x", b"", true).await;
        assert!(site.log().contains(why), "{}", site.log());
    }
    site.opens("longest", &gzip(&most), true).await;
    assert_eq!(std::fs::metadata(site.manifest()).unwrap().len(), 1 << 20);
}

#[tokio::test(start_paused = true)]
async fn without_the_vault_no_manifest_is_written_beside_it_and_it_is_tried_again() {
    let mut site = Site::ready();
    let vault = site.root.path().join("persist/vault");
    std::fs::remove_dir(&vault).unwrap();
    site.opens(TEXT, &gzip(b"kind: A\n"), true).await;
    assert!(!vault.exists());
    // A minute later it is tried again, and nothing new is said.
    assert_eq!(site.answer().await, clear(TEXT));
    std::fs::create_dir(&vault).unwrap();
    assert_eq!(site.answer().await, clear(TEXT));
    assert_eq!(std::fs::read_to_string(site.manifest()).unwrap(), "kind: A\n");
    let log = site.log();
    assert_eq!(log.matches("check that the vault is unlocked").count(), 1, "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_tpm_that_hangs_is_given_up_in_time_and_its_answer_used_when_it_is_asked_again() {
    let (tell, told) = mpsc::channel();
    let mut site = Site::with(|topic_root| TokenKeys::with(topic_root, Slow(told)));
    site.put("config/device.cert.pem", b"");
    site.publish("zedagent", controller_cert(CONTROLLER_CERT.as_bytes()));
    site.publish("tpmmgr", device_cert(DEVICE_CERT.as_bytes(), true));
    // A thread that waits for the TPM holds the paused clock; it is moved by hand.
    site.ask(fixed(), false);
    let mut waited = 0;
    let fault = loop {
        waited += 1;
        assert!(waited < 4000, "not given up after 40 s");
        tokio::task::yield_now().await;
        tokio::time::advance(Duration::from_millis(10)).await;
        tokio::select! {
            biased;
            token = site.answers.recv() => break token.unwrap().token,
            () = std::future::ready(()) => {}
        }
    };
    let ClusterToken::Failed(fault) = fault else { panic!("{fault:?}") };
    assert!(fault.contains("has not answered within 30 s"), "{fault}");
    tell.send(bytes(RESPONSE)).unwrap();
    tell.send(bytes(RESPONSE)).unwrap();
    let token = site.answer().await;
    assert_eq!(token, clear(TOKEN));
}

#[tokio::test]
async fn s2_no_log_and_no_file_tells_the_token_the_manifest_or_the_key() {
    let mut site = Site::ready();
    std::fs::remove_dir(site.root.path().join("persist/vault")).unwrap();
    let yaml = "kind: Registration\npassword: hunter2hunter2\n";
    for (text, bootstrap) in [(TEXT, true), ("another", true), (TEXT, false)] {
        site.opens(text, &gzip(yaml.as_bytes()), bootstrap).await;
    }
    std::fs::create_dir_all(site.root.path().join("persist/vault")).unwrap();
    let mut wrong = site.seal(&message(TEXT, yaml.as_bytes()));
    site.ask(wrong.clone(), true);
    assert_eq!(site.answer().await, clear(TEXT));
    wrong.clear_text_hash.as_mut().unwrap().0[0] ^= 1;
    site.ask(wrong, true);
    let fault = site.fault().await;
    let (log, mut found) = (site.log(), Vec::new());
    assert!(log.contains("hash mismatch") && log.contains("is decrypted"), "the log is not heard: {log}");
    files(site.root.path(), &mut found);
    assert!(found.len() >= 3, "{found:?}");
    found.retain(|(path, _)| !path.ends_with(KEY_FILE));
    found.push(("the log".to_owned(), log.into_bytes()));
    found.push(("the error".to_owned(), fault.into_bytes()));
    let key = site.device.to_bytes();
    let hex = crate::token::block::key(Some(&Base64(key.to_vec())));
    for secret in [TEXT.as_bytes(), b"hunter2", key.as_slice(), hex.as_bytes()] {
        for (place, content) in &found {
            let at = content.windows(secret.len()).position(|it| it == secret);
            assert_eq!(at, None, "{place} tells a secret");
        }
    }
    // Whatever is shown of an answer by mistake is not the token either.
    let shown = format!("{:?}", clear(TEXT));
    assert!(!shown.contains(TEXT), "{shown}");
}
