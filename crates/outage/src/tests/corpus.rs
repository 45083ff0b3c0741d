//! What fuzzing starts from and has kept: Leases and marks of turns, and what etcd and other nodes answer. `fuzz/` looks deeper.

use std::path::Path;

use crate::trial;

/// By name; what is not understood is called `no-…`.
fn kept(of: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(of);
    let files = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap());
    files.map(|it| (it.file_name().into_string().unwrap(), std::fs::read(it.path()).unwrap())).collect()
}

#[test]
fn s4_any_lease_and_any_mark_is_refused_or_read_again_as_it_was_and_gives_the_next_number() {
    let mut understood = [0, 0];
    for (name, bytes) in kept("lease") {
        let (which, rest) = bytes.split_first().unwrap_or((&b'0', &[]));
        let is_mark = which % 2 == 1;
        let tried = if is_mark { trial::mark(rest) } else { trial::lease(rest) };
        let tried = tried.unwrap_or_else(|broken| panic!("{name}: {broken}"));
        assert_eq!(tried, !name.starts_with("no-"), "{name}");
        understood[usize::from(is_mark)] += usize::from(tried);
    }
    assert!(understood.iter().all(|it| *it > 0), "{understood:?}");
}

#[test]
fn s4_any_metrics_list_of_members_and_answer_of_a_peer_is_refused_with_a_reason_or_understood() {
    let mut understood = [0, 0, 0];
    for (name, bytes) in kept("etcd") {
        let (which, rest) = bytes.split_first().unwrap_or((&b'0', &[]));
        let tried = match which % 3 {
            0 => trial::metrics(rest).map(drop),
            1 => trial::members(rest).map(drop),
            _ => trial::peer(rest).map(drop),
        };
        assert_eq!(tried.is_ok(), !name.starts_with("no-"), "{name}: {tried:?}");
        assert!(tried.as_ref().err().is_none_or(|why| !why.is_empty()), "{name}");
        understood[usize::from(which % 3)] += usize::from(tried.is_ok());
    }
    assert!(understood.iter().all(|it| *it > 0), "{understood:?}");
}
