//! The rules of the house as tests: arrows between crates, pure files, headers, file sizes; words, links and names of
//! the documents.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

mod budget;
mod circles;
mod comments;
mod documents;
mod fixtures;
mod metrics;
mod names;
mod sentences;
mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Which crates of the house each one may call. Nothing else, in no build.
const ARROWS: [(&str, &str); 21] = [
    ("step", ""),
    ("topics", ""),
    ("pubsub", ""),
    ("agent", "pubsub step topics"),
    ("kubeapi", "step"),
    ("checks", "kubeapi step topics"),
    ("kubenodeop", "checks kubeapi step topics"),
    ("outage", "checks kubeapi step topics"),
    ("clusterview", "agent kubeapi pubsub step topics"),
    ("sheet", "agent pubsub requester step topics"),
    ("nodestatus", "agent kubeapi pubsub requester sheet step topics"),
    ("requester", "agent pubsub step topics"),
    ("zedagent", "agent pubsub requester step topics"),
    ("baseosmgr", "agent pubsub requester step topics"),
    ("nodeagent", "agent pubsub requester step topics"),
    (
        "zedkube",
        "agent checks clusterview kubeapi kubenodeop nodestatus outage pubsub requester sheet step topics",
    ),
    ("kubesim", ""),
    (
        "zedbox",
        "agent baseosmgr checks kubeapi kubenodeop kubesim nodeagent nodestatus outage pubsub requester sheet step topics \
         zedagent zedkube",
    ),
    // What is given to others; nothing of it is in an image.
    ("xtask", "zedbox"),
    // Nothing but tests, of the four cores.
    ("model", ""),
    // The stage of the whole-system tests; nothing but tests may reach it.
    (
        "scenarios",
        "agent baseosmgr checks clusterview kubeapi kubenodeop kubesim nodeagent nodestatus outage pubsub requester sheet \
         topics zedagent zedkube",
    ),
];

const KUBE_CALLERS: [&str; 7] =
    ["checks", "clusterview", "kubeapi", "kubenodeop", "kubesim", "outage", "scenarios"];
/// A file that is longer has more than one subject.
const LONGEST_FILE_LINES: usize = 800;
/// The sentence that makes a file pure.
const PURE: &str = "Pure: no clock, no I/O, no task.";
/// Words that a reader has to decode, and plain ones. In code spans and blocks they may be names.
const UNCLEAR: [(&str, &str); 24] = [
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
    ("sound", "healthy"),
    ("its like", "a replacement pod"),
    ("lets it pass", "allowed by, left in place by policy"),
    ("look whether", "check that"),
    ("loads itself", "refreshes"),
];
/// What a pure file must not name.
const IMPURE: &str = "tokio:: tracing:: std::fs std::net std::io std::thread std::process std::env SystemTime \
    Instant pubsub:: agent::Clock rustix:: Timestamp::now";

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All files under `folders` whose names end in `ext`, by their paths from the top.
fn files(folders: &[&str], ext: &str) -> Vec<(PathBuf, String)> {
    let all = folders.iter().flat_map(|it| scenarios::files_below(&top().join(it)));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path.strip_prefix(top()).unwrap().to_owned(), text)
    };
    let mut found: Vec<_> = all.filter(|it| it.extension().is_some_and(|it| it == ext)).map(read).collect();
    found.sort();
    found
}

fn sources() -> Vec<(PathBuf, String)> {
    let found = files(&["crates", "tests"], "rs");
    assert!(found.len() > 30, "the walk found {} sources only", found.len());
    found
}

/// Whether its path says that a file holds tests.
fn is_of_tests(path: &Path) -> bool {
    path.components().any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs")))
}

/// A source without the tests that are written in it, which may use and say what they need.
fn product(text: &str) -> &str {
    let is_module = |at: &usize| {
        let next = text[*at..].lines().nth(1).unwrap_or_default();
        next.contains("mod ") && next.ends_with('{')
    };
    let begins = text.match_indices("#[cfg(test)]\n").map(|(at, _)| at).find(is_module);
    &text[..begins.unwrap_or(text.len())]
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
        let allowed: BTreeSet<&str> = allowed.split_whitespace().collect();
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
        sources.iter().filter(|(path, text)| is_pure(text) && !path.starts_with("tests/house")).collect();
    assert!(pure.len() > 10, "only {} pure files", pure.len());
    for (path, text) in pure {
        for line in product(text).lines().filter(|line| !line.trim_start().starts_with("//")) {
            let named = IMPURE.split(' ').find(|word| line.contains(word));
            assert!(named.is_none(), "{}: pure, but says `{}`", path.display(), line.trim());
        }
    }
}

/// Whether its header says so, wherever the line ends.
fn is_pure(text: &str) -> bool {
    text.replace("\n//!", "").contains(PURE)
}

#[test]
fn every_decision_core_is_pure() {
    let sources = sources();
    let cores: Vec<_> = sources
        .iter()
        .filter(|(path, _)| {
            path.components().any(|part| matches!(part.as_os_str().to_str(), Some("core" | "core.rs")))
        })
        .filter(|(path, _)| !is_of_tests(path))
        .collect();
    assert!(cores.len() >= 4, "the four agents have {} core files", cores.len());
    for (path, text) in cores {
        assert!(is_pure(text), "{} lacks its pure mark", path.display());
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

/// A file that no module names is compiled by nobody, and its tests never run.
#[test]
fn every_file_is_part_of_its_crate() {
    let sources: BTreeMap<PathBuf, String> = sources().into_iter().collect();
    for path in sources.keys().filter(|it| it.components().any(|part| part.as_os_str() == "src")) {
        let (mut folder, mut name) = (path.parent().unwrap(), path.file_stem().unwrap());
        if name == "lib" || name == "main" {
            continue;
        }
        if name == "mod" {
            (folder, name) = (folder.parent().unwrap(), folder.file_name().unwrap());
        }
        let parents = ["mod.rs", "lib.rs", "main.rs"].map(|it| folder.join(it));
        let named = format!("mod {};", name.to_str().unwrap());
        let mut parents = parents.into_iter().chain([folder.with_extension("rs")]);
        let is_named = parents.any(|it| sources.get(&it).is_some_and(|text| text.contains(&named)));
        assert!(is_named, "{}: no module says `{named}`", path.display());
    }
}

#[test]
fn a_file_of_tests_has_a_name_that_says_so() {
    for (path, text) in sources().into_iter().filter(|(path, _)| !is_of_tests(path)) {
        let tests = ["#[test]", "#[tokio::test"].into_iter().any(|mark| product(&text).contains(mark));
        assert!(!tests, "{}: move its tests into a folder tests", path.display());
    }
}

#[test]
fn of_other_agents_topics_only_what_is_read_has_a_member() {
    let sources = sources();
    let (_, others) = sources.iter().find(|(path, _)| path.ends_with("topics/src/others.rs")).unwrap();
    let before_colon =
        |it: &str, mark: &str| Some(it.trim().strip_prefix(mark)?.split_once(':')?.0.to_owned());
    let members: Vec<String> = others.lines().filter_map(|it| before_colon(it, "pub ")).collect();
    let topics: Vec<&str> = others.split("topic!(").skip(1).filter_map(|it| it.split(':').next()).collect();
    assert!(members.len() > 20 && topics.len() > 5, "found {members:?} of {topics:?} only");
    let mut crates: BTreeMap<&Path, String> = BTreeMap::new();
    for (path, text) in sources.iter().filter(|(path, _)| !is_of_tests(path)) {
        let of = path.ancestors().nth(path.components().count() - 2).unwrap();
        *crates.entry(of).or_default() += product(text);
    }
    crates.retain(|of, text| !of.ends_with("topics") && topics.iter().any(|it| text.contains(it)));
    for member in members {
        let dotted = format!(".{member}");
        let is_read = |text: &String| {
            let mut uses = text.split(&dotted).skip(1);
            uses.any(|rest| !rest.starts_with(|it: char| it.is_alphanumeric() || it == '_'))
        };
        let readers = crates.keys();
        assert!(crates.values().any(is_read), "others.rs: nobody in {readers:?} reads `{member}`");
    }
}

/// Of what 1 is said otherwise than 2.
const COUNTED: &str = "pod node drain attempt migration finding file replica disruption layer warning budget time hook line event";

#[test]
fn messages_use_plain_words() {
    for (path, text) in sources().into_iter().filter(|(path, _)| !is_of_tests(path)) {
        for message in literals(product(&text)) {
            let unclear = unclear(&message);
            assert!(unclear.is_none(), "{}: {message:?}: not {:?}", path.display(), unclear.unwrap());
            let counted = |(before, after): (&str, &str)| {
                !before.rsplit('{').next().unwrap().starts_with(char::is_uppercase)
                    && COUNTED.split_whitespace().any(|it| after.starts_with(&format!(" {it}s")))
            };
            let many = message.split('}').zip(message.split('}').skip(1)).any(counted);
            let is_spoken = !path.starts_with("crates/kubesim") && !path.iter().any(|it| it == "benches");
            assert!(!many || !is_spoken, "{}: {message:?}: use `topics::number`", path.display());
        }
    }
}

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
