//! What fuzzing starts from and has kept: disks with a partition table, documents and heads of images. `fuzz/` looks
//! deeper.

use super::*;

fn kept(of: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(of);
    let files = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    files.map(|path| (path.display().to_string(), std::fs::read(path).unwrap())).collect()
}

#[test]
fn t8_no_kept_disk_is_written_where_a_partition_is_or_left_without_a_table_by_a_cut() {
    let mut written = 0;
    for (name, disk) in kept("table") {
        let tried = trial::table(&disk).unwrap_or_else(|broken| panic!("{name}: {broken}"));
        // Their names begin with what becomes of them.
        assert_eq!(tried, !name.contains("/no-"), "{name}");
        written += usize::from(tried);
    }
    assert!(written > 4, "{written}");
}

#[test]
fn t8_any_head_and_document_of_an_image_is_refused_with_a_reason_or_names_one_layer() {
    let mut chosen = 0;
    for (name, bytes) in kept("image") {
        let wanted = "a".repeat(64);
        for outcome in [trial::document(&bytes, ""), trial::document(&bytes, &wanted)] {
            match outcome {
                Ok(digest) => {
                    chosen += 1;
                    assert!(!digest.is_empty(), "{name}");
                }
                Err(why) => assert!(!why.is_empty(), "{name}"),
            }
        }
        assert!(trial::root(&bytes).is_ok_and(|length| length >= 96) == name.contains("/root-"), "{name}");
    }
    assert!(chosen > 6, "{chosen}");
}
