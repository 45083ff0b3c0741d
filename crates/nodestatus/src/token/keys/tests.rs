//! Keys and blocks beside what OpenSSL and a software TPM made.

use std::sync::mpsc;

use pubsub::store;
use tempfile::TempDir;

use super::super::block::plan;
use super::super::tests::samples::*;
use super::super::{fields, manifest};
use super::*;
use crate::token::block::Certs;

/// A TPM with one response to every command, which passes the commands on.
struct Fake(mpsc::Sender<Vec<u8>>, io::Result<Vec<u8>>);

impl Tpm for Fake {
    fn ask(&mut self, command: &[u8]) -> io::Result<Zeroizing<Vec<u8>>> {
        self.0.send(command.to_vec()).unwrap();
        self.1.as_ref().map(|it| Zeroizing::new(it.clone())).map_err(|error| error.kind().into())
    }
}

struct Site {
    root: TempDir,
    keys: TokenKeys,
    asked: mpsc::Receiver<Vec<u8>>,
}

fn site(tpm: io::Result<Vec<u8>>) -> Site {
    let root = tempfile::tempdir().unwrap();
    let (sender, asked) = mpsc::channel();
    let keys = TokenKeys::with(&TopicRoot::open(root.path()).unwrap(), Fake(sender, tpm));
    Site { root, keys, asked }
}

impl Site {
    fn write(&self, file: &str, text: &str) {
        store::replace(&self.root.path().join(file), text.as_bytes()).unwrap();
    }
}

fn certs(is_tpm: bool) -> Certs {
    let mut certs = Certs::default();
    certs.controller.extend([controller_cert(CONTROLLER_CERT.as_bytes())]);
    certs.device.extend([device_cert(DEVICE_CERT.as_bytes(), is_tpm)]);
    certs
}

fn order(is_tpm: bool) -> BlockRequest {
    plan(&fixed(), &certs(is_tpm)).unwrap()
}

fn refusal(result: Result<SharedPoint, TokenFault>) -> String {
    result.map(|_| ()).unwrap_err().status_text()
}

#[test]
fn what_openssl_encrypted_is_decrypted_with_a_key_file_of_either_form() {
    for key in [DEVICE_KEY, DEVICE_KEY_PKCS8] {
        let site = site(Ok(Vec::new()));
        site.write(KEY_FILE, key);
        let shared = site.keys.shared(&order(false)).unwrap();
        assert_eq!(shared.as_slice(), bytes(POINT));
        let clear = order(false).open(&shared).unwrap();
        let fields = fields::read(&clear).unwrap();
        assert_eq!(fields.token, TOKEN);
        std::fs::create_dir_all(site.root.path().join("persist/vault")).unwrap();
        manifest::put(&site.keys.topic_root, fields.manifest).unwrap();
        assert_eq!(std::fs::read_to_string(site.root.path().join(manifest::FILE)).unwrap(), MANIFEST);
        assert!(site.asked.try_recv().is_err(), "the TPM was asked");
    }
}

#[test]
fn what_openssl_encrypted_is_decrypted_with_what_a_tpm_says() {
    let site = site(Ok(bytes(RESPONSE)));
    site.write(DEVICE_CERT_FILE, "");
    let shared = site.keys.shared(&order(true)).unwrap();
    assert_eq!(site.asked.try_recv().unwrap(), bytes(COMMAND));
    assert!(order(true).open(&shared).is_ok());
}

#[test]
fn the_tpm_is_asked_when_the_device_has_one_and_the_certificate_says_so() {
    for (is_tpm, cert, key, asked) in [
        (true, true, false, true),
        (true, true, true, false),
        (true, false, false, false),
        (false, true, false, false),
    ] {
        let site = site(Ok(bytes(RESPONSE)));
        site.write(KEY_FILE, DEVICE_KEY);
        if cert {
            site.write(DEVICE_CERT_FILE, "");
        }
        if key {
            site.write(DEVICE_KEY_FILE, "");
        }
        assert!(site.keys.shared(&order(is_tpm)).is_ok());
        assert_eq!(site.asked.try_recv().is_ok(), asked, "{is_tpm} {cert} {key}");
    }
}

#[test]
fn a_tpm_that_refuses_or_is_not_there_is_named_with_the_next_step() {
    let said = |tpm| {
        let site = site(tpm);
        site.write(DEVICE_CERT_FILE, "");
        refusal(site.keys.shared(&order(true))).replace(&site.root.path().display().to_string(), "")
    };
    let begins = "decryptClusterTokenAndManifest: failed to decrypt cluster token: /dev/tpmrm0: ";
    assert_eq!(
        said(Ok(bytes("80010000000a0000018b"))),
        format!(
            "{begins}the TPM refuses to use key 0x81000005, rc=0x0000018b; check that tpmmgr has made that key"
        )
    );
    let next = "check that this machine's TPM is there and switched on";
    assert_eq!(said(Err(io::ErrorKind::NotFound.into())), format!("{begins}entity not found; {next}"));
    let next = "it is asked again, restart the machine if that lasts";
    assert_eq!(
        said(Ok(vec![0x80])),
        format!("{begins}the TPM's response makes no sense: it ends early; {next}")
    );
    // The kernel's own device, where there is none.
    let root = tempfile::tempdir().unwrap();
    store::replace(&root.path().join(DEVICE_CERT_FILE), b"").unwrap();
    let keys = TokenKeys::new(&TopicRoot::open(root.path()).unwrap());
    assert!(refusal(keys.shared(&order(true))).contains("No such file"));
}

#[test]
fn a_key_file_that_cannot_be_used_is_named_and_nothing_of_it_is_told() {
    let said = |make: fn(&Site)| {
        let site = site(Ok(Vec::new()));
        make(&site);
        refusal(site.keys.shared(&order(false)))
    };
    let other = secret_key("another device");
    for (why, text) in [
        ("there is none", said(|_| {})),
        ("no private key", said(|site| site.write(KEY_FILE, "s3cr3t"))),
        ("no private key", said(|site| site.write(KEY_FILE, DEVICE_CERT))),
        ("no private key", said(|site| site.write(KEY_FILE, &DEVICE_KEY.replace("MHcC", "MHcD")))),
        ("not the key of the device's certificate", {
            let site = site(Ok(Vec::new()));
            site.write(KEY_FILE, str::from_utf8(&key_file(&other)).unwrap());
            refusal(site.keys.shared(&order(false)))
        }),
        (
            "link",
            said(|site| {
                site.write("persist/certs/k", DEVICE_KEY);
                std::os::unix::fs::symlink("k", site.root.path().join(KEY_FILE)).unwrap();
            }),
        ),
    ] {
        assert!(text.contains(KEY_FILE) && text.contains(why), "{text}");
        assert!(text.contains("made by tpmmgr") && !text.contains("s3cr3t"), "{text}");
    }
}

#[test]
fn what_is_missing_or_wrong_in_a_block_or_its_certificates_is_named() {
    type Change = fn(&mut topics::CipherBlockStatus, &mut Certs);
    let changes: [(Change, &str); 14] = [
        (|block, _| block.error = "no context yet".to_owned(), "the block is not ready: no context yet;"),
        (|block, _| block.cipher_context = None, "has no cipher context;"),
        (|block, _| block.cipher_context.as_mut().unwrap().key_exchange_scheme = 0, "key exchange scheme 0"),
        (|block, _| block.cipher_context.as_mut().unwrap().encryption_scheme = 7, "encryption scheme 7"),
        (
            |block, _| block.initial_value.as_mut().unwrap().0.truncate(15),
            "has no initial value of 16 bytes;",
        ),
        (|block, _| block.cipher_data = None, "has no data;"),
        (|block, _| block.clear_text_hash.as_mut().unwrap().0.clear(), "has no hash of the clear text;"),
        (|_, certs| certs.controller.clear(), "no such cert: ControllerCert "),
        (|_, certs| certs.device.clear(), "no such cert: EdgeNodeCert a64745084c4d7cf119424746bdee6290 "),
        (
            |block, _| block.cipher_context.as_mut().unwrap().controller_cert_hash = None,
            "no such cert: ControllerCert  is",
        ),
        (|_, certs| certs.controller.iter_mut().for_each(|(_, it)| it.cert = None), "holds no X.509"),
        (
            |_, certs| certs.device.iter_mut().for_each(|(_, it)| it.cert.as_mut().unwrap().0.truncate(300)),
            "holds no X.509",
        ),
        (
            |_, certs| {
                let other = topics::Base64(OTHER_CURVE.as_bytes().to_vec());
                certs.controller.iter_mut().for_each(|(_, it)| it.cert = Some(other.clone()));
            },
            "not on the curve P-256",
        ),
        (|_, _| {}, ""),
    ];
    for (change, words) in changes {
        let (mut block, mut certs) = (fixed(), certs(false));
        change(&mut block, &mut certs);
        let told = plan(&block, &certs).err().map(|fault| fault.status_text()).unwrap_or_default();
        assert!(told.contains(words), "{words}: {told}");
        assert_eq!(told.is_empty(), words.is_empty(), "{told}");
        assert!(words.is_empty() || told.contains("; "), "no next step: {told}");
    }
}

#[test]
fn the_first_certificate_of_a_chain_that_can_be_read_counts() {
    let garbage = "-----BEGIN CERTIFICATE-----\nAAECAw==\n-----END CERTIFICATE-----\n";
    let chain = topics::Base64(format!("{garbage}{CONTROLLER_CERT}{OTHER_CURVE}").into_bytes());
    let mut certs = certs(false);
    certs.controller.iter_mut().for_each(|(_, it)| it.cert = Some(chain.clone()));
    assert!(plan(&fixed(), &certs).is_ok());
}

#[test]
fn the_wrong_key_or_data_ends_at_the_hash() {
    let site = site(Ok(Vec::new()));
    site.write(KEY_FILE, DEVICE_KEY);
    let shared = site.keys.shared(&order(false)).unwrap();
    let mut other = shared.clone();
    other[63] ^= 1;
    let told = order(false).open(&other).map(|_| ()).unwrap_err().status_text();
    assert!(
        told.starts_with("decryptClusterTokenAndManifest: failed to decrypt cluster token: hash mismatch: ")
    );
    let mut block = fixed();
    *block.cipher_data.as_mut().unwrap().0.last_mut().unwrap() ^= 1;
    let order = plan(&block, &certs(false)).unwrap();
    assert!(matches!(order.open(&shared), Err(TokenFault::Mismatch)));
}
