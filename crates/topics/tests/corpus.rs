//! What fuzzing kept as values of topics: refused, or read as what is written back the same. `fuzz/` looks deeper.

use std::fs;

#[test]
fn what_fuzzing_kept_is_refused_or_read_as_it_is_written() {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/topic");
    let kept: Vec<_> = fs::read_dir(kept).unwrap().map(|it| it.unwrap().path()).collect();
    let readers = topics::readers();
    let mut read = 0;
    for path in &kept {
        let bytes = fs::read(path).unwrap();
        // The first byte says which topic, as in `fuzz/fuzz_targets/topic.rs`.
        let Some((which, text)) = bytes.split_first() else { continue };
        let (topic, reread) = readers[usize::from(*which) % readers.len()];
        let Ok(value) = reread(text) else { continue };
        let again = reread(&serde_json::to_vec(&value).unwrap()).unwrap();
        assert_eq!(again, value, "{topic}: {}", path.display());
        read += 1;
    }
    assert!(read > 100, "{read} of {} kept values were read", kept.len());
}
