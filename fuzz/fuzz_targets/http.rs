//! Any bytes at the status server. The first says what the rest is: a whole connection, served by the server's own code
//! without a socket; or what peers send for `/cluster-app`, one after the other with a zero byte between.
//!
//! A connection is answered or refused in time, and no answer tells the secret that lies beside what may be told. The
//! frame of `/cluster-app` holds whatever peers send.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::runtime::{Builder, Runtime};
use nodestatus::trial;

const SECRET: &[u8] = b"s3cr3t-token";
/// As much of a connection fits into the stream before anybody reads.
const STREAM: usize = 64 << 10;

/// Files of a device, with a secret in one that is read.
static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    let root = std::env::temp_dir().join(format!("fuzz-http-{}", std::process::id()));
    for (topic, value) in [
        ("run/zedagent/EdgeNodeInfo", r#"{"DeviceName":"n1","ProjectName":"p","EnterpriseName":"e"}"#),
        ("run/zedkube/EdgeNodeClusterStatus", include_str!("../../crates/nodestatus/tests/served/token.json")),
    ] {
        std::fs::create_dir_all(root.join(topic)).unwrap();
        std::fs::write(root.join(topic).join("global.json"), value).unwrap();
    }
    root
});

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_all().build().unwrap());

fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else { return };
    if which % 2 == 0 { connection(rest) } else { peers(rest) }
});

fn connection(bytes: &[u8]) {
    let bytes = bytes.get(..STREAM).unwrap_or(bytes);
    let answer = RUNTIME.block_on(async {
        let (mut client, server) = duplex(STREAM);
        client.write_all(bytes).await.unwrap();
        client.shutdown().await.unwrap();
        assert!(trial::serve(&ROOT, server).await.unwrap(), "not in time");
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        answer
    });
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."));
    assert!(!answer.windows(SECRET.len()).any(|it| it == SECRET));
}

fn peers(bytes: &[u8]) {
    let whole = trial::merge(bytes.split(|byte| *byte == 0));
    let read: Value = serde_json::from_str(&whole).unwrap();
    let all = read["value"].as_array().unwrap();
    assert!(all.iter().all(Value::is_object));
    assert!(whole.ends_with("]\n}\n") && read.as_object().unwrap().len() == 2);
}
