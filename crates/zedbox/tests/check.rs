//! Output and exit codes of `zedbox check`.

use std::process::{Command, Output};

use crate::drain_cmd::node::top;

fn check(path: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zedbox")).args(["check", path]).current_dir(top()).output().unwrap()
}

#[test]
fn a_good_tree_ends_with_0_and_a_bad_one_with_1_and_prints_what_its_page_shows() {
    let good = check("run-fixtures/cluster-idle");
    assert_eq!(good.status.code(), Some(0), "{good:?}");
    let bad = check("run-fixtures/malformed");
    assert_eq!(bad.status.code(), Some(1), "{bad:?}");
    let page = std::fs::read_to_string(top().join("docs/operate/troubleshooting.md")).unwrap();
    let printed = String::from_utf8(bad.stdout).unwrap();
    assert!(page.contains(&printed), "docs/operate shows something else than\n{printed}");
}

#[test]
fn a_path_where_nothing_is_is_named_with_the_next_step() {
    let missing = check("run-fixtures/nothing");
    assert_eq!(missing.status.code(), Some(1));
    let said = String::from_utf8(missing.stderr).unwrap();
    assert!(said.contains("check run-fixtures/nothing: give a topic file or a directory"), "{said}");
}
