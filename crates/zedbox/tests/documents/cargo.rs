//! Lines of `cargo`: packages, targets, profiles and the arguments behind `--` are those of this workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use clap::Parser;
use serde_json::Value;

use super::{files, is_placeholder, shown, words};
use crate::drain_cmd::node::top;

const OF_TESTS: [&str; 3] = ["--ignored", "--nocapture", "--test-threads=1"];

#[derive(Parser)]
#[command(name = "xtask")]
enum Task {
    Dist(xtask::dist::DistOptions),
}

/// Targets of each package, by kind and name, with their sources.
type Packages = BTreeMap<String, BTreeMap<(String, String), String>>;

fn packages() -> Packages {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(top())
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let targets = |package: &Value| {
        let targets = package["targets"].as_array().unwrap().iter();
        targets.map(|it| ((text(&it["kind"][0]), text(&it["name"])), text(&it["src_path"]))).collect()
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.map(|it| (text(&it["name"]), targets(it))).collect()
}

/// What the line names and does not exist, if anything.
fn missing(text: &str, packages: &Packages) -> Option<String> {
    let words = words(text);
    let (before, after) = match words.iter().position(|it| it == "--") {
        Some(at) => (&words[..at], &words[at + 1..]),
        None => (&words[..], &[][..]),
    };
    let mut before = before[1..].iter().map(String::as_str).peekable();
    let verb = before.next().unwrap_or_default();
    if verb == "+nightly" {
        let target = words.last().unwrap();
        let manifest = std::fs::read_to_string(top().join("fuzz/Cargo.toml")).unwrap();
        let known = manifest.contains(&format!("name = \"{target}\""));
        return (!known).then(|| format!("no fuzz target {target}"));
    }
    if !["build", "rustc", "test", "run", "bench"].contains(&verb) {
        return Some(format!("no command {verb}"));
    }
    let manifest = std::fs::read_to_string(top().join("Cargo.toml")).unwrap();
    let (mut package, mut target, mut filter) = (None, None, None);
    while let Some(word) = before.next() {
        match word {
            "--release" | "--workspace" | "--locked" | "--no-default-features" => {}
            "--profile" => {
                let profile = before.next()?;
                if !manifest.contains(&format!("[profile.{profile}]")) {
                    return Some(format!("no profile {profile}"));
                }
            }
            "-p" => package = Some(before.next().unwrap_or_default()),
            "--bin" | "--test" | "--bench" | "--example" => {
                target = Some((&word[2..], before.next().unwrap_or_default()));
            }
            word if word.starts_with('-') => return Some(format!("no option {word}")),
            word => filter = Some(word),
        }
    }
    let targets = match package.map(|it| packages.get(it)) {
        Some(None) => return Some(format!("no package {}", package?)),
        Some(Some(targets)) => targets,
        None => &packages["zedbox"],
    };
    let (source, modules) = match target {
        Some((kind, name)) => match targets.get(&(kind.to_owned(), name.to_owned())) {
            Some(path) => (Some(std::fs::read_to_string(path).unwrap()), modules_beside(Path::new(path))),
            None => return Some(format!("no {kind} {name}")),
        },
        None => (None, BTreeSet::new()),
    };
    // cargo passes arguments to one compiler call only.
    if verb == "rustc" && target.is_none() {
        return Some("no --bin or another target, which cargo rustc wants".to_owned());
    }
    let is_module = |it: &str| {
        modules.contains(it) || source.as_ref().is_some_and(|text| text.contains(&format!("mod {it}")))
    };
    if let Some(filter) = filter.filter(|it| !is_module(it)) {
        return Some(format!("no test {filter}"));
    }
    let own = || [package.unwrap_or("zedbox").to_owned()].into_iter().chain(after.iter().cloned());
    match (verb, package) {
        ("run", None) => zedbox::command().try_get_matches_from(own()).err().map(|it| it.to_string()),
        ("run", Some("xtask")) => Task::try_parse_from(own()).err().map(|it| it.to_string()),
        _ => {
            let known = |it: &String| {
                !it.starts_with('-')
                    || verb == "rustc" && it.starts_with("-C")
                    || OF_TESTS.contains(&it.as_str())
                    || source.as_ref().is_some_and(|text| text.contains(&format!("\"{it}\"")))
            };
            let stranger = after.iter().find(|it| !known(it) && !is_placeholder(it));
            stranger.map(|it| format!("nothing takes {it}"))
        }
    }
}

/// Names of modules: of a file, or of the folder of a `mod.rs`.
fn modules_beside(main: &Path) -> BTreeSet<String> {
    let found = files(main.parent().unwrap(), "rs");
    let names = found.iter().flat_map(|it| [it.file_stem(), it.parent().unwrap().file_name()]);
    names.map(|it| it.unwrap().to_string_lossy().into_owned()).collect()
}

#[test]
fn every_cargo_line_of_the_documents_names_what_is_in_the_workspace() {
    let packages = packages();
    let lines: Vec<_> = shown().into_iter().filter(|it| it.is_of("cargo")).collect();
    assert!(lines.len() > 30, "the documents show {} lines of cargo", lines.len());
    let wrong = lines.iter().filter_map(|it| Some(format!("{it}: {}", missing(&it.text, &packages)?)));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_not_in_the_workspace_is_found_missing() {
    let packages = packages();
    for wrong in [
        "cargo tset",
        "cargo test -p pupsub",
        "cargo test -p pubsub --test kill",
        "cargo bench -p pubsub --bench kills",
        "cargo run -p nodestatus --example page -- DIR",
        "cargo run --release -- demo --keeps",
        "cargo run -p xtask -- dist --to x",
        "cargo rustc -p zedbox --profile image -- -Cllvm-args=-x",
        "cargo build --profile imagine",
        "cargo +nightly fuzz run records",
        "cargo test -p zedbox --test soak -- --every",
        "cargo test -p zedbox --test whole failling -- --ignored",
    ] {
        assert!(missing(wrong, &packages).is_some(), "{wrong}");
    }
}
