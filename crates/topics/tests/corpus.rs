//! What fuzzing kept as values of topics, of the wire and as force files: refused, or read as what is written back the same.
//! `fuzz/` looks deeper.

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

#[test]
fn s4_any_force_file_is_refused_with_a_reason_or_read_as_it_is_written() {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/force");
    let mut texts: Vec<Vec<u8>> =
        fs::read_dir(kept).unwrap().map(|it| fs::read(it.unwrap().path()).unwrap()).collect();
    // What agents read of it at the most.
    let most = 4096;
    for (head, piece) in [
        ("", "["),
        ("", "{\"Status\":"),
        ("{\"Status\":9", "0"),
        ("{\"Status\":0.", "0"),
        ("{\"Status\":9,\"x\":\"", "y"),
        ("{\"Status\":9", ",\"Status\":9"),
    ] {
        let open = head.to_owned() + &piece.repeat((most - head.len()) / piece.len());
        texts.extend([open.clone(), format!("{open}}}"), format!("{open}\"}}")].map(String::into_bytes));
    }
    let mut orders = 0;
    for text in texts {
        match topics::read_force(&text) {
            Ok(order) => {
                let again = topics::go_json::to_vec(&order).unwrap();
                assert_eq!(topics::read_force(&again).unwrap(), order);
                orders += 1;
            }
            Err(refused) => {
                let reason = refused.to_string();
                assert!(!reason.is_empty() && reason.len() < 400, "{reason}");
            }
        }
    }
    assert!(orders > 3, "{orders} orders");
}

#[test]
fn s4_what_fuzzing_kept_has_a_wire_form_that_stays_as_it_is_or_is_refused() {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/wire");
    let (mut written, mut refused) = (0, 0);
    for path in fs::read_dir(kept).unwrap().map(|it| it.unwrap().path()) {
        let mut large = false;
        let mut store = |_: &str, content: &[u8]| {
            large = true;
            serde_json::from_slice::<serde_json::Value>(content)?;
            Ok("path".to_owned())
        };
        let Ok(wire) = topics::go_json::to_wire(&fs::read(&path).unwrap(), &mut store) else {
            refused += 1;
            continue;
        };
        // The place of a large member is refused in a value.
        if !large {
            let again = topics::go_json::to_wire(&wire, &mut |_, _| Err("nothing is stored".into()));
            assert_eq!(again.ok().as_ref(), Some(&wire), "{}", path.display());
            written += 1;
        }
    }
    assert!(written > 100 && refused > 100, "{written} written, {refused} refused");
}
