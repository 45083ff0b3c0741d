//! Any bytes as a value of any topic, the first byte says which: refused, or read as what is written back the same.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, text)) = bytes.split_first() else { return };
    let readers = topics::readers();
    let (topic, reread) = readers[usize::from(*which) % readers.len()];
    let Ok(value) = reread(text) else { return };
    let again = reread(&serde_json::to_vec(&value).unwrap());
    assert_eq!(again.ok().as_ref(), Some(&value), "{topic}");
});
