//! Any bytes as a value: refused, or brought into the wire form, which stays as it is when it is written again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use topics::go_json::to_wire;

fuzz_target!(|bytes: &[u8]| {
    let mut large = false;
    let mut store = |_: &str, content: &[u8]| {
        large = true;
        serde_json::from_slice::<serde_json::Value>(content).unwrap();
        Ok("path".to_owned())
    };
    let Ok(wire) = to_wire(bytes, &mut store) else { return };
    // The place of a large member is refused in a value.
    if !large {
        let second = to_wire(&wire, &mut |_, _| Err("nothing is stored".into())).unwrap();
        assert_eq!(String::from_utf8(second), String::from_utf8(wire));
    }
});
