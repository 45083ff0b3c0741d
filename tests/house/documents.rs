//! Rules of the documents: plain words, links that lead somewhere, names that exist, an entry for each code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

const MOST_GLOSSARY_WORDS: usize = 30;
/// The most words of a page, and of each page of a folder.
const MOST_WORDS: [(&str, usize); 3] =
    [("README.md", 1_300), ("docs/night.md", 600), ("docs/operate", 2_500)];

/// The parts of docs/operate.md, one after another.
fn operate() -> String {
    files(&["docs/operate"], "md").into_iter().map(|(_, text)| text).collect()
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

/// `name_…` in `file.rs`: a test of that name is in a file that ends so.
#[test]
fn a_test_that_the_page_places_in_a_file_is_in_it() {
    let page = fs::read_to_string(top().join("docs/tests.md")).unwrap();
    let (sources, mut placed) = (sources(), 0);
    for row in page.lines().filter(|it| it.starts_with("| ")) {
        let parts: Vec<&str> = row.split('`').collect();
        // Text and code in turn; a name of a test, ` in `, a file.
        for three in parts.windows(3).skip(1).step_by(2) {
            let [name, between, file] = three else { continue };
            let is_file = Path::new(file).extension().is_some_and(|it| it == "rs");
            let Some((begins, ends)) = name.split_once('…').filter(|_| *between == " in " && is_file)
            else {
                continue;
            };
            placed += 1;
            let mut here = sources.iter().filter(|(path, _)| path.ends_with(file)).peekable();
            assert!(here.peek().is_some(), "docs/tests.md names {file}, which is no file");
            let is = |line: &str| {
                let name = line.trim().trim_start_matches("pub(crate) ").trim_start_matches("async ");
                let name = name.strip_prefix("fn ").and_then(|it| it.split('(').next());
                name.is_some_and(|it| it.starts_with(begins) && it.ends_with(ends))
            };
            let holds = here.any(|(_, text)| text.lines().any(is));
            assert!(holds, "docs/tests.md says that {name} is in {file}; it is not");
        }
    }
    assert!(placed > 50, "docs/tests.md places {placed} tests only");
}

#[test]
fn pages_are_as_short_as_a_person_reads_and_the_guide_names_its_parts() {
    let index = fs::read_to_string(top().join("docs/operate.md")).unwrap();
    for (path, text) in documents() {
        let (words, name) = (text.split_whitespace().count(), path.display());
        let most = MOST_WORDS.into_iter().find(|(of, _)| path.starts_with(of));
        assert!(most.is_none_or(|(_, most)| words <= most), "{name} has {words} words; split it");
        let part = path.strip_prefix("docs").ok().filter(|it| it.starts_with("operate"));
        assert!(part.is_none_or(|it| index.contains(&format!("({})", it.display()))), "no link to {name}");
    }
}

#[test]
fn the_glossary_is_short_and_in_order() {
    let page = fs::read_to_string(top().join("docs/glossary.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")).skip(1);
    let words: Vec<&str> = rows.filter_map(|row| row.split(" | ").next()).collect();
    assert!(words.is_sorted(), "docs/glossary.md is not in order: {words:?}");
    assert!((20..=MOST_GLOSSARY_WORDS).contains(&words.len()), "docs/glossary.md has {} words", words.len());
}

#[test]
fn every_source_that_a_document_names_is_there() {
    let sources = sources();
    for (path, text) in documents() {
        let is_source = |it: &&str| {
            Path::new(it).extension().is_some_and(|ext| ext == "rs")
                && it.contains('/')
                && !it.contains(['*', ' '])
        };
        for span in spans(&text).filter(is_source) {
            let is_end = |(source, _): &(PathBuf, String)| source.ends_with(span);
            assert!(sources.iter().any(is_end), "{}: there is no {span}", path.display());
        }
    }
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
    let page = operate();
    let sources = sources();
    let declared = |(_, text): &(PathBuf, String)| {
        let variants = text.split_once("pub enum BlockCode {\n")?.1.split_once("\n    }\n")?.0;
        let word = |line: &str| Some(line.split_once(" = \"")?.1.trim_end_matches("\",").to_owned());
        Some(variants.lines().filter_map(word).collect())
    };
    let codes: Vec<String> = sources.iter().find_map(declared).unwrap();
    assert!(codes.len() > 10, "found the codes {codes:?} only");
    for code in &codes {
        let entry = page.split(&format!("\n## `{code}`\n")).nth(1).unwrap_or_default();
        let entry = entry.split("\n#").next().unwrap();
        for part in ["- Looks like: ", "- Type: "] {
            assert!(entry.contains(part), "docs/operate has no `{part}` for the blocker code {code}");
        }
    }
    let entries = page.lines().filter(|it| it.starts_with("## `")).count();
    assert_eq!(entries, codes.len(), "docs/operate has entries for codes that are gone");
}

#[test]
fn every_phase_and_every_layer_of_the_gate_is_explained_to_a_person() {
    let page = operate();
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
        assert!(known.contains(word), "docs/operate does not explain `{word}`");
    }
}
