//! Output and exit codes of `zedbox check`.

use std::process::Command;

use crate::drain_cmd::node::{Ended, top};

fn check(path: &str) -> Ended {
    Ended::of(Command::new(env!("CARGO_BIN_EXE_zedbox")).args(["check", path]).current_dir(top()))
}

#[test]
fn a_tree_ends_with_0_or_1_and_prints_what_its_page_shows_and_a_path_where_nothing_is_is_named() {
    check("run-fixtures/cluster-idle").ends(0);
    let page = std::fs::read_to_string(top().join("docs/operate/troubleshooting.md")).unwrap();
    let printed = check("run-fixtures/malformed").ends(1).out;
    assert!(page.contains(&printed), "docs/operate shows something else than\n{printed}");
    let missing = "check run-fixtures/nothing: give a topic file or a directory";
    check("run-fixtures/nothing").ends(1).warns(&[missing]);
}
