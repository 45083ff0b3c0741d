//! The documents tell the truth: their jq lines run against the trees in `run-fixtures`, the commands of the README
//! are there. What `zedbox` prints in them is checked beside it, in `crates/zedbox/tests`; their words and links in
//! `tests/house`.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Lines of the shell blocks of `document`.
fn shell_lines(document: &str) -> Vec<String> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in fs::read_to_string(top().join(document)).unwrap().lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            _ if inside && !line.trim().is_empty() => lines.push(line.trim().to_owned()),
            _ => {}
        }
    }
    lines
}

fn trees() -> Vec<PathBuf> {
    let mut trees: Vec<PathBuf> = fs::read_dir(top().join("run-fixtures"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    trees.sort();
    assert!(trees.len() >= 5, "run-fixtures holds {} trees", trees.len());
    trees
}

#[test]
fn every_jq_line_of_the_documents_answers_on_the_fixture_trees() {
    if Command::new("jq").arg("--version").stdout(Stdio::null()).status().is_err() {
        writeln!(std::io::stderr(), "skipped: jq is not installed; `apt-get install jq` brings it").unwrap();
        return;
    }
    let lines = ["README.md", "docs/operate.md"].into_iter().flat_map(shell_lines);
    let lines: Vec<String> = lines.filter(|line| line.starts_with("jq ")).collect();
    assert!(lines.len() >= 5, "the documents show {} jq lines", lines.len());
    for line in lines {
        let mut answered = 0;
        for tree in trees() {
            // The same line as on a device, with the tree in place of the root.
            let tree_text = tree.display().to_string();
            let here = line
                .replace(" /run/", &format!(" {tree_text}/run/"))
                .replace(" /persist/", &format!(" {tree_text}/persist/"));
            assert_ne!(here, line, "names no file under /run or /persist: {line}");
            let file = here.split_whitespace().find(|word| word.starts_with(&tree_text)).unwrap().to_owned();
            if tree.ends_with("malformed") || !Path::new(&file).exists() {
                continue;
            }
            let output = Command::new("sh").args(["-c", &here]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{line}\non {tree_text}: {said}");
            assert!(!output.stdout.is_empty(), "{line}\non {tree_text}: no output");
            answered += 1;
        }
        assert!(answered > 0, "no fixture tree holds the file of: {line}");
    }
}

#[test]
fn the_two_commands_stand_in_the_readme() {
    let lines = shell_lines("README.md");
    for command in ["cargo run --release -- demo", "cargo test --workspace"] {
        assert!(lines.iter().any(|line| line == command), "the README lacks `{command}`");
    }
}
