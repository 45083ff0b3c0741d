//! Kubeconfigs that are meant to do harm, and those that fuzzing starts from: refused with a reason or understood, in
//! bounded time and memory. `fuzz/` looks deeper.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

use std::fs::{self, File};
use std::io::Write as _;
use std::time::Duration;

use kubeapi::trial;

const BYTES: usize = 1 << 20;
/// None takes more memory than this, however it unfolds: the reader counts what aliases stand for.
const MOST_MEMORY: usize = 128 << 20;

/// The most memory that this process has had since [`forget_peak`], in bytes.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|it| it.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

fn forget_peak() {
    File::options().write(true).open("/proc/self/clear_refs").unwrap().write_all(b"5").unwrap();
}

fn filled(head: &str, piece: &str, tail: &str) -> Vec<u8> {
    let room = BYTES - head.len() - tail.len();
    (head.to_owned() + &piece.repeat(room / piece.len()) + tail).into_bytes()
}

/// One test, as it measures the whole process.
#[tokio::test]
async fn s4_no_kubeconfig_ends_the_agent_or_takes_time_or_memory_without_bound() {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/kubeconfig");
    let mut texts: Vec<(String, Vec<u8>)> = vec![
        ("deep".to_owned(), filled("clusters: ", "[", "")),
        ("deep blocks".to_owned(), filled("clusters:\n", "- ", "x")),
        ("one long text".to_owned(), filled("kind: ", "x", "")),
        ("one long number".to_owned(), filled("kind: 1", "0", "")),
        ("many users".to_owned(), filled("users:\n", "- {name: u, user: {token: t}}\n", "")),
        ("many anchors".to_owned(), filled("a:\n", "- &x y\n- *x\n", "")),
        ("many documents".to_owned(), filled("", "---\nkind: Config\n", "")),
        (
            "a long certificate".to_owned(),
            filled("clusters:\n- name: c\n  cluster: {certificate-authority-data: ", "A", "}"),
        ),
        ("too long".to_owned(), vec![b'#'; BYTES + 1]),
    ];
    for path in fs::read_dir(kept).unwrap().map(|it| it.unwrap().path()) {
        texts.push((path.display().to_string(), fs::read(&path).unwrap()));
    }
    let mut understood = 0;
    for (what, text) in texts {
        forget_peak();
        let before = peak();
        let bytes = text.len();
        let reading = tokio::task::spawn_blocking(move || trial::kubeconfig(&text));
        let read = tokio::time::timeout(Duration::from_secs(60), reading).await;
        let more = peak().saturating_sub(before);
        println!("{what}: {more} bytes for {bytes}");
        assert!(more < MOST_MEMORY, "{what}: {more} bytes for {bytes}");
        match read.unwrap_or_else(|_| panic!("{what} takes too long")).unwrap() {
            Ok(()) => understood += 1,
            Err(refused) => assert!(!refused.is_empty(), "{what}"),
        }
    }
    assert!(understood >= 2, "{understood} were understood");
    assert!(trial::kubeconfig(&vec![b'#'; BYTES + 1]).unwrap_err().contains("bytes"));
}
