//! Malicious device configs, and fuzzing's corpus: refused or read, in bounded time and memory. `fuzz/` looks deeper.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::time::Duration;

use zedagent::device_config::{MOST_FAULTS, parse};

/// A sixteenth of the largest file, so that a debug build is quick; costs grow with the length.
const BYTES: usize = 1 << 20;
/// Limit of memory per byte read.
const FACTOR: usize = 80;

/// Peak memory of this process since [`forget_peak`], in bytes.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|it| it.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

fn forget_peak() {
    File::options().write(true).open("/proc/self/clear_refs").unwrap().write_all(b"5").unwrap();
}

/// About [`BYTES`]: `head`, many times `piece` with its number for `#`, and `tail`.
fn filled(head: &str, piece: &str, tail: &str) -> String {
    let mut text = head.to_owned();
    let mut nth = 0_u32;
    while text.len() < BYTES {
        write!(text, "{}", piece.replace('#', &nth.to_string())).unwrap();
        nth += 1;
    }
    text + tail
}

/// One test, because it measures the whole process.
#[test]
fn s4_no_device_config_ends_the_agent_or_takes_time_or_memory_without_bound() {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/config");
    let mut read = 0;
    for path in fs::read_dir(kept).unwrap().map(|it| it.unwrap().path()) {
        read += usize::from(parse(&fs::read(&path).unwrap()).is_ok());
    }
    assert!(read > 8, "{read} kept configs were read");

    let harmful = [
        ("deep arrays", filled("", "[", "")),
        ("deep objects", filled("", r#"{"cluster":"#, "")),
        ("one long name", filled(r#"{"deviceName":""#, "x", r#""}"#)),
        ("one long key", filled(r#"{""#, "k", r#"":1}"#)),
        ("one long number", filled(r#"{"reboot":{"counter":1"#, "0", "}}")),
        ("many zeros", filled(r#"{"x":[0"#, ",0", "]}")),
        ("many members", filled(r#"{"a":0"#, r#","k#":0"#, "}")),
        ("many items that are wrong", filled(r#"{"configItems":[7"#, ",null,8", "]}")),
        ("many items without a key", filled(r#"{"configItems":[{}"#, r#",{"value":[#]}"#, "]}")),
        ("many items of one key", filled(r#"{"configItems":[{}"#, r#",{"key":"k#","value":"v"}"#, "]}")),
        ("many masters", filled(r#"{"cluster":{"masterNodeUuids":["x""#, r#","m#""#, "]}}")),
        ("an escape in each place", filled(r#"{"deviceName":""#, r"\u0041", r#""}"#)),
    ];
    let clock = agent::Clock::new();
    for (what, text) in harmful {
        forget_peak();
        let (before, began) = (peak(), clock.now());
        let faults = parse(text.as_bytes()).map_or(1, |it| it.faults.len());
        let (took, more) = (clock.now().since(began), peak() - before);
        println!("{what}: {took:?}, {more} bytes for {}", text.len());
        assert!(faults <= MOST_FAULTS + 1, "{what}: {faults} faults");
        assert!(took < Duration::from_secs(60), "{what}: {took:?}");
        assert!(more < FACTOR * text.len(), "{what}: {more} bytes for {}", text.len());
    }
}
