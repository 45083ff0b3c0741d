//! The rules of the house as tests: arrows between crates, pure files, headers, file sizes.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Which crates of the house each one may call. Nothing else, in no build.
const ARROWS: [(&str, &[&str]); 13] = [
    ("step", &[]),
    ("topics", &[]),
    ("pubsub", &[]),
    ("agent", &["pubsub", "step", "topics"]),
    ("kubeops", &["step"]),
    ("requester", &["agent", "pubsub", "step", "topics"]),
    ("zedagent", &["agent", "pubsub", "requester", "step", "topics"]),
    ("baseosmgr", &["agent", "pubsub", "requester", "step", "topics"]),
    ("nodeagent", &["agent", "pubsub", "step", "topics"]),
    ("zedkube", &["agent", "kubeops", "pubsub", "step", "topics"]),
    ("kubesim", &[]),
    (
        "zedbox",
        &[
            "agent",
            "baseosmgr",
            "kubeops",
            "kubesim",
            "nodeagent",
            "pubsub",
            "requester",
            "step",
            "topics",
            "zedagent",
            "zedkube",
        ],
    ),
    // The stage of the whole-system tests; nothing but tests may reach it.
    (
        "scenarios",
        &[
            "agent",
            "baseosmgr",
            "kubeops",
            "kubesim",
            "nodeagent",
            "pubsub",
            "requester",
            "topics",
            "zedagent",
            "zedkube",
        ],
    ),
];

/// Crates that may reach the Kubernetes client.
const KUBE_CALLERS: [&str; 3] = ["kubeops", "kubesim", "scenarios"];
/// A file that is longer has more than one subject.
const LONGEST_FILE_LINES: usize = 480;
/// The sentence that makes a file pure.
const PURE: &str = "Pure: no clock, no I/O, no task.";
/// What a pure file must not name.
const IMPURE: [&str; 14] = [
    "tokio::",
    "tracing::",
    "std::fs",
    "std::net",
    "std::io",
    "std::thread",
    "std::process",
    "std::env",
    "SystemTime",
    "Instant",
    "pubsub::",
    "agent::Clock",
    "rustix::",
    "Timestamp::now",
];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![top().join("crates"), top().join("tests")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(top()).unwrap().to_owned(), text));
            }
        }
    }
    assert!(found.len() > 30, "the walk found {} sources only", found.len());
    found.sort();
    found
}

/// Dependencies of each workspace member: name → (normal, development).
fn members() -> BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(top())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let member = |package: &Value| {
        let (mut normal, mut development) = (BTreeSet::new(), BTreeSet::new());
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap().to_owned();
            if dependency["kind"].as_str() == Some("dev") { &mut development } else { &mut normal }
                .insert(name);
        }
        (package["name"].as_str().unwrap().to_owned(), (normal, development))
    };
    metadata["packages"].as_array().unwrap().iter().map(member).collect()
}

#[test]
fn arrows_between_crates_are_the_ones_of_the_plan() {
    let members = members();
    let house: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    assert_eq!(members.keys().map(String::as_str).collect::<BTreeSet<_>>(), house);
    for (name, allowed) in ARROWS {
        let used: BTreeSet<&str> =
            members[name].0.iter().map(String::as_str).filter(|it| house.contains(it)).collect();
        let allowed: BTreeSet<&str> = allowed.iter().copied().collect();
        assert!(used.is_subset(&allowed), "{name} calls {:?}", used.difference(&allowed).collect::<Vec<_>>());
    }
}

#[test]
fn only_the_cluster_crates_reach_the_kubernetes_client() {
    for (name, (normal, _)) in members() {
        let reaches = normal.contains("kube") || normal.contains("k8s-openapi");
        assert!(!reaches || KUBE_CALLERS.contains(&name.as_str()), "{name} reaches kube");
    }
}

#[test]
fn pure_files_name_no_clock_no_io_and_no_task() {
    let sources = sources();
    let pure: Vec<_> =
        sources.iter().filter(|(path, text)| text.contains(PURE) && !path.ends_with("house.rs")).collect();
    assert!(pure.len() > 10, "only {} pure files", pure.len());
    for (path, text) in pure {
        // Tests at the end of a pure file may use what they need.
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let named = IMPURE.iter().find(|word| line.contains(**word));
            assert!(named.is_none(), "{}: pure, but says `{}`", path.display(), line.trim());
        }
    }
}

#[test]
fn every_decision_core_is_pure() {
    let sources = sources();
    let cores: Vec<_> = sources
        .iter()
        .filter(|(path, _)| {
            path.components().any(|part| matches!(part.as_os_str().to_str(), Some("core" | "core.rs")))
        })
        .filter(|(path, _)| !path.to_string_lossy().contains("test"))
        .collect();
    assert!(cores.len() >= 4, "the four agents have {} core files", cores.len());
    for (path, text) in cores {
        assert!(text.contains(PURE), "{} lacks its pure mark", path.display());
    }
}

#[test]
fn every_file_opens_by_saying_what_it_is() {
    for (path, text) in sources() {
        assert!(text.starts_with("//!"), "{} has no header", path.display());
    }
}

#[test]
fn files_have_one_subject() {
    let long: Vec<_> = sources()
        .into_iter()
        .map(|(path, text)| (text.lines().count(), path))
        .filter(|(lines, _)| *lines > LONGEST_FILE_LINES)
        .collect();
    assert!(long.is_empty(), "over {LONGEST_FILE_LINES} lines: {long:?}");
}

#[test]
fn a_test_that_is_skipped_says_so_past_its_own_output_which_nobody_sees_when_it_passes() {
    // Benches have no output of that kind.
    let tests = sources().into_iter().filter(|(path, _)| !path.to_string_lossy().contains("/benches/"));
    for (path, text) in tests {
        let mut prints = text.split("println!(").skip(1).map(str::trim_start);
        let hidden = prints.find(|words| words.starts_with("\"skipped"));
        assert!(hidden.is_none(), "{}: use writeln!(std::io::stderr(), …) for {hidden:.60?}", path.display());
    }
}

#[test]
fn every_fault_on_its_page_is_kept_out_by_a_test_that_is_there() {
    let page = fs::read_to_string(top().join("docs/faults.md")).unwrap();
    let words = |text: &str| -> BTreeSet<String> {
        let word = |it: char| !it.is_ascii_alphanumeric() && it != '_' && it != '-';
        text.split(word).filter(|it| !it.is_empty()).map(str::to_owned).collect()
    };
    let quoted = page.split('`').skip(1).step_by(2).filter(|it| it.contains('_') && !it.contains(['/', ':']));
    let sources = sources();
    let tests: BTreeSet<&str> = sources
        .iter()
        .flat_map(|(_, text)| text.split("fn ").skip(1))
        .filter_map(|rest| rest.split('(').next())
        .collect();
    for name in quoted {
        assert!(tests.contains(name), "docs/faults.md names {name}, which is no test");
    }
    let rows = words(&page);
    let known = [("D-A", 12), ("D-N", 4), ("D-B", 4), ("D-X", 1), ("D-K", 29), ("D-P", 6)];
    for (family, last) in known {
        for nth in 1..=last {
            assert!(rows.contains(&format!("{family}{nth}")), "{family}{nth} is not on the page");
        }
    }
    // What can be planted is on the page, each with its row.
    let (_, planted) = sources.iter().find(|(path, _)| path.ends_with("step/src/planted.rs")).unwrap();
    let all = planted.split("pub enum Fault {").nth(1).unwrap().split('}').next().unwrap();
    for fault in all.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with("//")) {
        let fault = fault.trim_end_matches(',');
        assert!(rows.contains(fault), "the planted fault {fault} is not on the page");
    }
}
