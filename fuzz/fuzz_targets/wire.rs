//! Any bytes as a value: refused, or brought into the wire form and back without loss.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use topics::go_json::{from_wire, to_wire};

fuzz_target!(|bytes: &[u8]| {
    let _ = from_wire::<topics::KubeClusterInfo>(bytes, &mut |_, _| Ok(None));
    let mut files = BTreeMap::new();
    let mut store = |_: &str, content: &[u8]| {
        let path = files.len().to_string();
        files.insert(path.clone(), content.to_vec());
        Ok(path)
    };
    let Ok(wire) = to_wire(bytes, &mut store) else { return };
    let back: Value = from_wire(&wire, &mut |_, path| Ok(files.get(path).cloned())).unwrap();
    // Written again, it is the same: nothing more is lost.
    let mut next = 0;
    let mut name = |_: &str, _: &[u8]| {
        next += 1;
        Ok((next - 1).to_string())
    };
    let second = to_wire(&serde_json::to_vec(&back).unwrap(), &mut name).unwrap();
    assert_eq!(String::from_utf8(second), String::from_utf8(wire));
});
