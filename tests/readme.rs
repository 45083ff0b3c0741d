//! The README told the truth: its jq lines run against the trees in `run-fixtures`, its commands exist, its
//! demo output is one that the demo prints.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn readme() -> String {
    fs::read_to_string(top().join("README.md")).unwrap()
}

/// Lines of the README's shell blocks.
fn shell_lines() -> Vec<String> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in readme().lines() {
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
fn every_jq_line_of_the_readme_answers_on_the_fixture_trees() {
    if Command::new("jq").arg("--version").stdout(Stdio::null()).status().is_err() {
        writeln!(std::io::stderr(), "skipped: jq is not installed; `apt-get install jq` brings it").unwrap();
        return;
    }
    let lines: Vec<String> = shell_lines().into_iter().filter(|line| line.starts_with("jq ")).collect();
    assert!(lines.len() >= 5, "the README shows {} jq lines", lines.len());
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
    let lines = shell_lines();
    for command in ["cargo run --release -- demo", "cargo test --workspace"] {
        assert!(lines.iter().any(|line| line == command), "the README lacks `{command}`");
    }
}

#[test]
fn files_and_folders_that_the_documents_link_to_exist() {
    for document in ["README.md", "docs/architecture.md", "docs/decisions.md"] {
        let text = fs::read_to_string(top().join(document)).unwrap();
        let folder = top().join(document).parent().unwrap().to_owned();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if !target.starts_with("http") && !target.starts_with('#') {
                let file = target.split('#').next().unwrap();
                assert!(folder.join(file).exists(), "{document} links to {target}, which does not exist");
            }
        }
    }
}
