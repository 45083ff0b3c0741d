//! The rules of the house as tests: arrows between crates, pure files, headers, file sizes; words, links and names of
//! the documents.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Which crates of the house each one may call. Nothing else, in no build.
const ARROWS: [(&str, &[&str]); 17] = [
    ("step", &[]),
    ("topics", &[]),
    ("pubsub", &[]),
    ("agent", &["pubsub", "step", "topics"]),
    ("kubeapi", &["step"]),
    ("kubenodeop", &["kubeapi", "step"]),
    ("clusterview", &["agent", "kubeapi", "pubsub", "step", "topics"]),
    ("nodestatus", &["agent", "kubeapi", "pubsub", "step", "topics"]),
    ("requester", &["agent", "pubsub", "step", "topics"]),
    ("zedagent", &["agent", "pubsub", "requester", "step", "topics"]),
    ("baseosmgr", &["agent", "pubsub", "requester", "step", "topics"]),
    ("nodeagent", &["agent", "pubsub", "requester", "step", "topics"]),
    ("zedkube", &["agent", "clusterview", "kubeapi", "kubenodeop", "nodestatus", "pubsub", "step", "topics"]),
    ("kubesim", &[]),
    (
        "zedbox",
        &[
            "agent",
            "baseosmgr",
            "kubeapi",
            "kubenodeop",
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
    // Nothing but tests, of the four cores.
    ("model", &[]),
    // The stage of the whole-system tests; nothing but tests may reach it.
    (
        "scenarios",
        &[
            "agent",
            "baseosmgr",
            "clusterview",
            "kubeapi",
            "kubenodeop",
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
const KUBE_CALLERS: [&str; 5] = ["clusterview", "kubeapi", "kubenodeop", "kubesim", "scenarios"];
/// A file that is longer has more than one subject.
const LONGEST_FILE_LINES: usize = 480;
/// The sentence that makes a file pure.
const PURE: &str = "Pure: no clock, no I/O, no task.";
/// A folder with more files has more than one subject.
const FULLEST_FOLDER_FILES: usize = 16;
/// A stranger reads no more.
const LONGEST_README_LINES: usize = 150;
/// Words that a reader has to decode, and plain ones. In code spans and blocks they may be names.
const UNCLEAR: [(&str, &str); 19] = [
    ("anew", "again"),
    ("mend", "fix"),
    ("mends", "fixes"),
    ("mended", "fixed"),
    ("foretell", "predict"),
    ("foretold", "predicted"),
    ("reckon", "compute"),
    ("told", "shown"),
    ("tells", "reports"),
    ("stands", "exists, is"),
    ("given back", "removed, uncordoned, released"),
    ("gives back", "removes, uncordons, releases"),
    ("taken back", "withdrawn"),
    ("takes back", "withdraws"),
    ("goes on", "continues"),
    ("go on", "continue"),
    ("let pass", "skipped by rule, left in place by policy"),
    ("on and on", "again and again"),
    ("came to nothing", "failed"),
];
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

/// All files under `folders` whose names end in `ext`, by their paths from the top.
fn files(folders: &[&str], ext: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = folders.iter().map(|it| top().join(it)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == ext) {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(top()).unwrap().to_owned(), text));
            }
        }
    }
    found.sort();
    found
}

fn sources() -> Vec<(PathBuf, String)> {
    let found = files(&["crates", "tests"], "rs");
    assert!(found.len() > 30, "the walk found {} sources only", found.len());
    found
}

fn documents() -> Vec<(PathBuf, String)> {
    let names = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];
    let at_top = names.map(|it| (PathBuf::from(it), fs::read_to_string(top().join(it)).unwrap()));
    let found: Vec<_> = at_top.into_iter().chain(files(&["docs", "crates", "tests"], "md")).collect();
    assert!(found.len() > 15, "the walk found {} documents only", found.len());
    found
}

/// The lines of a document with their numbers, without code blocks and spans.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut code = false;
    let plain = |(nth, line): (usize, &str)| {
        code ^= line.starts_with("```");
        (!code).then(|| (nth + 1, line.split('`').step_by(2).collect()))
    };
    text.lines().enumerate().filter_map(plain).collect()
}

/// The parts of a document that are in code spans.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
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
fn folders_have_one_subject() {
    let mut folders: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for (path, _) in sources() {
        *folders.entry(path.parent().unwrap().to_owned()).or_default() += 1;
    }
    folders.retain(|_, files| *files > FULLEST_FOLDER_FILES);
    assert!(folders.is_empty(), "over {FULLEST_FOLDER_FILES} files: {folders:?}");
}

#[test]
fn a_file_of_tests_has_a_name_that_says_so() {
    let is_test =
        |path: &Path| path.components().any(|part| part.as_os_str().to_string_lossy().contains("test"));
    for (path, text) in sources().into_iter().filter(|(path, _)| !is_test(path)) {
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        let tests = ["#[test]", "#[tokio::test"].into_iter().any(|mark| product.contains(mark));
        assert!(!tests, "{}: move its tests into a folder tests", path.display());
    }
}

#[test]
fn messages_use_plain_words() {
    for (path, text) in files(&["crates"], "rs") {
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        if path.components().any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs"))) {
            continue;
        }
        for message in literals(product) {
            let unclear = unclear(&message);
            assert!(unclear.is_none(), "{}: {message:?}: not {:?}", path.display(), unclear.unwrap());
        }
    }
}

/// The string literals of a source.
fn literals(text: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find(['"', '/', '\'']) {
        let (_, here) = rest.split_at(at);
        rest = if here.starts_with("//") {
            here.split_once('\n').map_or("", |(_, after)| after)
        } else if here.starts_with("'\"'") || here.starts_with("'\\") {
            &here[3..]
        } else if let Some(inner) = here.strip_prefix('"') {
            let mut escaped = false;
            let end = inner.find(|it| {
                let ends = it == '"' && !escaped;
                escaped = it == '\\' && !escaped;
                ends
            });
            let end = end.unwrap_or(inner.len());
            found.push(inner[..end].to_owned());
            inner.get(end + 1..).unwrap_or_default()
        } else {
            &here[1..]
        };
    }
    found
}

/// A word of `line` that a reader has to decode, and a plain one.
fn unclear(line: &str) -> Option<(&'static str, &'static str)> {
    let words: Vec<&str> =
        line.split(|it: char| !it.is_alphabetic() && it != '-').filter(|it| !it.is_empty()).collect();
    let line = format!(" {} ", words.join(" ").to_lowercase());
    UNCLEAR.into_iter().find(|(word, _)| line.contains(&format!(" {word} ")))
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

#[test]
fn every_test_that_holds_a_promise_is_there() {
    let page = fs::read_to_string(top().join("docs/tests.md")).unwrap();
    let sources = sources();
    let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let known: BTreeSet<&str> = sources.iter().flat_map(|(_, text)| text.split(|it| !is_name(it))).collect();
    let named: Vec<&str> =
        spans(&page).filter(|it| it.contains('_') && it.chars().all(|it| is_name(it) || it == '…')).collect();
    assert!(named.len() > 50, "docs/tests.md names {} tests only", named.len());
    for name in named {
        let (begins, ends) = name.split_once('…').unwrap_or((name, name));
        let is = |it: &&str| {
            if name.contains('…') { it.starts_with(begins) && it.ends_with(ends) } else { *it == name }
        };
        assert!(known.iter().any(is), "docs/tests.md names {name}, which is no test");
    }
}

#[test]
fn the_readme_is_short() {
    let lines = fs::read_to_string(top().join("README.md")).unwrap().lines().count();
    assert!(lines <= LONGEST_README_LINES, "README.md has {lines} lines; move what few need into docs");
}

#[test]
fn documents_use_plain_words() {
    for (path, text) in documents() {
        for (nth, line) in prose(&text) {
            let unclear = unclear(&line);
            assert!(unclear.is_none(), "{}, line {nth}: not {:?}", path.display(), unclear.unwrap());
        }
    }
}

/// What a link to a heading of `text` is made of.
fn anchors(text: &str) -> Vec<String> {
    let slug = |heading: &str| -> String {
        let kept = heading.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
        kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
    };
    text.lines().filter(|it| it.starts_with('#')).map(|it| slug(it.trim_start_matches('#'))).collect()
}

#[test]
fn files_folders_and_headings_that_documents_link_to_exist() {
    for (document, text) in documents() {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.starts_with("http") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = top().join(&document);
            let file = if file.is_empty() { path } else { path.parent().unwrap().join(file) };
            let document = document.display();
            assert!(file.exists(), "{document} links to {target}, which does not exist");
            let there = heading.is_empty()
                || anchors(&fs::read_to_string(&file).unwrap()).iter().any(|it| it == heading);
            assert!(there, "{document} links to {target}, where there is no such heading");
        }
    }
}

#[test]
fn every_code_of_a_blocker_has_an_entry_for_a_person() {
    let page = fs::read_to_string(top().join("docs/operate.md")).unwrap();
    let sources = sources();
    let mut rooms =
        sources.iter().filter_map(|(_, text)| text.split_once("\nimpl BlockCode {")?.1.split_once("\n}\n"));
    let words =
        rooms.next().unwrap().0.split("fn text(self)").nth(1).unwrap().split("\n    }\n").next().unwrap();
    let codes: Vec<&str> = words.split('"').skip(1).step_by(2).collect();
    assert!(codes.len() > 10, "found the codes {codes:?} only");
    for code in &codes {
        let entry = page.split(&format!("\n### `{code}`\n")).nth(1).unwrap_or_default();
        let entry = entry.split("\n#").next().unwrap();
        for part in ["- Looks like: ", "- Type: "] {
            assert!(
                entry.contains(part),
                "docs/operate.md has no `{}` for the blocker code {code}",
                part.trim()
            );
        }
    }
    let entries = page.lines().filter(|it| it.starts_with("### `")).count();
    assert_eq!(entries, codes.len(), "docs/operate.md has entries for codes that are gone");
}

#[test]
fn every_phase_and_every_layer_of_the_gate_is_explained_to_a_person() {
    let page = fs::read_to_string(top().join("docs/operate.md")).unwrap();
    let known: BTreeSet<&str> = spans(&page).collect();
    let schemas: [Value; 2] = ["NodeDrainProgress", "NodeLeave"].map(|topic| {
        let file = top().join(format!("schemas/{topic}.schema.json"));
        serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
    });
    let [drain, leave] = schemas.each_ref().map(|it| &it["$defs"]);
    let phases = [&drain["DrainPhase"], &leave["LeavePhase"]].map(|it| it["oneOf"].as_array().unwrap());
    let phases = phases.into_iter().flatten().map(|it| it["const"].as_str().unwrap());
    let layers = spans(drain["BootGate"]["properties"]["Layer"]["description"].as_str().unwrap());
    let words: Vec<&str> = phases.chain(layers).collect();
    assert!(words.len() > 30, "found {words:?} only");
    for word in words {
        assert!(known.contains(word), "docs/operate.md does not explain `{word}`");
    }
}
