//! Lines of `jq` over a file of a node: each works on the fixture trees, or, where none has the file, on its
//! topic's samples.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Shown, shown};
use crate::drain_cmd::node::{Ended, top};
use crate::is_here;

fn folders(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(top().join(folder)).unwrap();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// Stand-ins for `path` on a node: from every intact tree that has it, else the samples.
fn samples(path: &Path) -> Vec<PathBuf> {
    let below = path.strip_prefix("/").unwrap();
    let trees = folders("run-fixtures").into_iter().filter(|it| it.is_dir() && !it.ends_with("malformed"));
    let found: Vec<PathBuf> = trees.map(|it| it.join(below)).filter(|it| it.exists()).collect();
    if !found.is_empty() {
        return found;
    }
    let topic = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let sample = top().join(format!("crates/topics/tests/filled/{topic}.json"));
    if sample.exists() { vec![sample] } else { Vec::new() }
}

#[test]
fn every_jq_line_of_the_documents_answers_on_the_fixture_trees_or_the_samples() {
    if !is_here("jq") {
        return;
    }
    // A reader of a pipe belongs to the line before it.
    let of_file = |it: Shown| {
        let file =
            it.words().into_iter().find(|it| it.starts_with("/run/") || it.starts_with("/persist/"))?;
        Some((it, file))
    };
    let lines: Vec<(Shown, String)> =
        shown().into_iter().filter(|it| it.is_of("jq")).filter_map(of_file).collect();
    assert!(lines.len() >= 12, "the documents show {} jq lines", lines.len());
    for (it, file) in lines {
        let samples = samples(Path::new(&file));
        assert!(!samples.is_empty(), "{it}: neither a fixture tree nor a sample has {file}");
        for sample in samples {
            let here = it.text.replace(&file, &sample.display().to_string());
            let told = Ended::of(Command::new("sh").args(["-c", &here]));
            assert!(told.code == 0 && !told.out.is_empty(), "{it}\non {}: {told:?}", sample.display());
        }
    }
}
