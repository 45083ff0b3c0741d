//! Fuzzing's corpus as connections and as answers of peers: each is answered or refused, and the frame stays
//! valid. `fuzz/` looks deeper.

mod peers;

use std::fs;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use super::trial;

const SECRET: &str = "s3cr3t-token";

#[tokio::test]
async fn s4_what_fuzzing_kept_is_answered_or_refused_and_breaks_no_frame() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("run/zedkube/EdgeNodeClusterStatus");
    fs::create_dir_all(&dir).unwrap();
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/served/token.json"), dir.join("global.json"))
        .unwrap();
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/http");
    let (mut answered, mut merged) = (0, 0);
    for path in fs::read_dir(kept).unwrap().map(|it| it.unwrap().path()) {
        let bytes = fs::read(&path).unwrap();
        // The first byte says what it is, as in `fuzz/fuzz_targets/http.rs`.
        let Some((which, rest)) = bytes.split_first() else { continue };
        if which % 2 == 0 {
            let (mut client, server) = duplex(64 << 10);
            client.write_all(rest.get(..60_000).unwrap_or(rest)).await.unwrap();
            client.shutdown().await.unwrap();
            assert!(trial::serve(root.path(), server).await.unwrap(), "{}", path.display());
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            let text = String::from_utf8(answer).unwrap();
            assert!(text.is_empty() || text.starts_with("HTTP/1."), "{}: {text}", path.display());
            assert!(!text.contains(SECRET), "{}: {text}", path.display());
            answered += usize::from(text.contains(" 200 OK"));
        } else {
            let whole = trial::merge(rest.split(|byte| *byte == 0));
            let read: Value = serde_json::from_str(&whole).unwrap();
            let all = read["value"].as_array().unwrap();
            assert!(all.iter().all(Value::is_object), "{}: {whole}", path.display());
            assert_eq!(read.as_object().unwrap().len(), 2);
            merged += all.len() - 1;
        }
    }
    assert!(answered > 5 && merged > 3, "{answered} {merged}");
}
