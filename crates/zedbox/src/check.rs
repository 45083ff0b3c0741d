//! `zedbox check`: reads topic files as the agents do, and reports where they expect something else.
//!
//! The command line judges a settings file. A file's topic is the name of its directory, as on a device.
//! Other files are skipped and counted. What the agents refuse is a finding, and so is a missing member that
//! a publisher writes: agents read zero for it.

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pubsub::{FILE_LIMIT_BYTES, store};
use serde_json::Value;
use step::{Inserted as _, LiteMap, SmallSort as _};
use topics::{FORCE_FILE, Reread, go_json, number, read_force};

use crate::Exit;
use crate::args::settings;
use crate::limits::Limits;

/// Name of a limits file without a settings file that names it.
const LIMITS: &str = "limits.json";

/// Shown of a long value.
const SHOWN_CHARS: usize = 60;

#[derive(Debug, PartialEq, Eq)]
struct FileFinding {
    path: PathBuf,
    /// JSON pointer, or a settings file's line; empty for the whole file.
    pointer: String,
    expected: String,
    found: String,
}

impl fmt::Display for FileFinding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, pointer, expected, found } = self;
        let at = if pointer.is_empty() { "whole file" } else { pointer };
        write!(out, "{}: {at}: expected {expected}, found {found}", path.display())
    }
}

/// Checks all of `paths`, prints each finding and a last line with the counts.
///
/// Errors: a path does not exist, a directory cannot be listed, or the output fails.
pub(crate) fn run(paths: &[PathBuf]) -> anyhow::Result<Exit> {
    let mut check = FileCheck::new();
    for path in paths {
        let seen = fs::symlink_metadata(path)
            .with_context(|| format!("check {}: give a topic file or a directory", path.display()))?;
        if seen.is_dir() {
            check.tree(path)?;
        } else {
            check.named(path);
        }
    }
    let mut out = std::io::stdout().lock();
    for finding in &check.findings {
        writeln!(out, "{finding}").context("print the findings")?;
    }
    let (files, passed, findings) = (check.files, check.passed_over, check.findings.len());
    writeln!(
        out,
        "{} checked, {} passed over, {}",
        number(files, "topic file"),
        number(passed, "other file"),
        number(findings, "finding")
    )
    .context("print the findings")?;
    Ok(if check.findings.is_empty() { Exit::Done } else { Exit::Failed })
}

struct FileCheck {
    topics: LiteMap<&'static str, Reread>,
    files: usize,
    passed_over: usize,
    findings: Vec<FileFinding>,
}

impl FileCheck {
    fn new() -> Self {
        Self {
            topics: topics::readers().into_iter().into_lite(),
            files: 0,
            passed_over: 0,
            findings: Vec::new(),
        }
    }

    /// All files below `dir`, sorted by name.
    fn tree(&mut self, dir: &Path) -> anyhow::Result<()> {
        let list = || format!("list {}", dir.display());
        let entries: Result<Vec<_>, _> = fs::read_dir(dir).with_context(list)?.collect();
        let mut entries = entries.with_context(list)?;
        entries.order_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            if entry.file_type().with_context(list)?.is_dir() {
                self.tree(&path)?;
            } else if !self.known(&path) {
                self.passed_over += 1;
            }
        }
        Ok(())
    }

    /// A file given as argument: without a topic it is a finding.
    fn named(&mut self, path: &Path) {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        if !self.known(&absolute) {
            let names: Vec<&str> = self.topics.keys().copied().collect();
            let expected =
                format!("{}, or a file <Topic>/<key>.json with one of {}", settings::NAME, names.join(", "));
            self.find(path, "", expected, format!("one in {}", topic_of(&absolute)));
        }
    }

    /// Checks `path` if it is a file of a topic, a force file or a settings file.
    fn known(&mut self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.ends_with(FORCE_FILE) {
            self.files += 1;
            self.force(path);
            return true;
        }
        if name == settings::NAME {
            self.files += 1;
            for fault in settings::faults(path) {
                self.find(path, &fault.place(), fault.expected, fault.found);
            }
            if let Some(limits) = settings::limits(path) {
                self.limits(&limits);
            }
            return true;
        }
        if name == LIMITS {
            self.limits(path);
            return true;
        }
        let Some(reread) = self.topics.get(topic_of(path)).copied() else { return false };
        match name.strip_suffix(".bak").unwrap_or(name) {
            "restarted" => self.restarted(path),
            file if Path::new(file).extension() == Some("json".as_ref()) => self.value(path, reread),
            _ => return false,
        }
        self.files += 1;
        true
    }

    fn value(&mut self, path: &Path, reread: Reread) {
        let Some(bytes) = self.bytes(path) else { return };
        match reread(&bytes) {
            Ok(written) => {
                // It was parsed, so it is JSON; invalid UTF-8 is replaced, as in reading.
                let given = serde_json::from_str(&String::from_utf8_lossy(&bytes)).unwrap_or_default();
                self.lacks(path, "", &written, &given);
            }
            Err(go_json::Error::Member { pointer, text }) => {
                // `found <found>, expected <expected>`.
                let (found, expected) = text.split_once(", expected ").unwrap_or((&text, "another value"));
                let found = found.strip_prefix("found ").unwrap_or(found);
                self.find(path, &pointer, expected.to_owned(), shown(found));
            }
            Err(_) if bytes.is_empty() => self.find(path, "", "one JSON value".to_owned(), shown("")),
            Err(cause) => self.find(path, "", "one JSON value".to_owned(), cause.to_string()),
        }
    }

    /// Missing members that a publisher writes.
    fn lacks(&mut self, path: &Path, pointer: &str, written: &Value, given: &Value) {
        match (written, given) {
            (Value::Object(written), Value::Object(given)) => {
                for (name, value) in written {
                    if let Some(given) = given.get(name) {
                        self.lacks(path, &format!("{pointer}{}", go_json::pointer_step(name)), value, given);
                    } else {
                        let other = given.keys().find(|it| it.eq_ignore_ascii_case(name));
                        let found = other.map_or("none".to_owned(), |it| format!("member {it:?}"));
                        self.find(path, pointer, format!("member {name:?}"), found);
                    }
                }
            }
            (Value::Array(written), Value::Array(given)) => {
                for (at, (value, given)) in written.iter().zip(given).enumerate() {
                    self.lacks(path, &format!("{pointer}/{at}"), value, given);
                }
            }
            // A parsed scalar is right.
            _ => {}
        }
    }

    /// As the agents read it at their start.
    fn limits(&mut self, path: &Path) {
        if self.findings.iter().any(|it| it.path == path) {
            return;
        }
        self.files += 1;
        let Err(cause) = Limits::read(Some(path)) else { return };
        let Some(fault) = cause.downcast_ref::<serde_json::Error>() else {
            return self.find(path, "", "limits that the agents start with".to_owned(), format!("{cause:#}"));
        };
        // serde's form: `<found>, expected <expected> at line <n> column <m>`.
        let text = fault.to_string();
        let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
        let (found, expected) =
            text.split_once(", expected ").unwrap_or((text, "limits that the agents start with"));
        let expected = format!("{} (docs/reference/limits.md)", go_json::kind(expected));
        let line = if fault.line() == 0 { String::new() } else { format!("line {}", fault.line()) };
        self.find(path, &line, expected, found.to_owned());
    }

    fn force(&mut self, path: &Path) {
        let Some(bytes) = self.bytes(path) else { return };
        if let Err(cause) = read_force(&bytes) {
            let expected = r#"an order such as {"Status":9,"RequestedBy":2}"#.to_owned();
            self.find(path, "", expected, format!("{} ({cause})", shown(&String::from_utf8_lossy(&bytes))));
        }
    }

    fn restarted(&mut self, path: &Path) {
        let Some(bytes) = self.bytes(path) else { return };
        let text = String::from_utf8_lossy(&bytes);
        if text.parse::<u32>().is_err() {
            self.find(path, "", "a count of starts, as 1".to_owned(), shown(&text));
        }
    }

    /// As an agent reads it.
    fn bytes(&mut self, path: &Path) -> Option<Vec<u8>> {
        match store::read(path, FILE_LIMIT_BYTES) {
            Ok(bytes) => bytes,
            Err(cause) => {
                self.find(path, "", "a file that agents read".to_owned(), cause.to_string());
                None
            }
        }
    }

    fn find(&mut self, path: &Path, pointer: &str, expected: String, found: String) {
        let (path, pointer) = (path.to_owned(), pointer.to_owned());
        self.findings.push(FileFinding { path, pointer, expected, found });
    }
}

fn topic_of(path: &Path) -> &str {
    path.parent().and_then(Path::file_name).and_then(|dir| dir.to_str()).unwrap_or_default()
}

fn shown(text: &str) -> String {
    let text = text.trim_end();
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None if text.is_empty() => "nothing".to_owned(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(files: &[(&str, &str)]) -> (FileCheck, tempfile::TempDir) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            store::replace(&root.path().join(path), text.as_bytes()).unwrap();
        }
        let mut check = FileCheck::new();
        check.tree(root.path()).unwrap();
        (check, root)
    }

    fn lines(check: &FileCheck, root: &Path) -> Vec<String> {
        let cut = format!("{}/", root.display());
        check.findings.iter().map(|it| it.to_string().replace(&cut, "")).collect()
    }

    #[test]
    fn u9_windows_that_make_no_sense_are_found_in_the_limits_that_the_settings_name() {
        let window = |start: &str, zone: &str| {
            format!(r#"{{"zedkube":{{"windows":[{{"start":"{start}","zone":"{zone}","minutes":60}}]}}}}"#)
        };
        for (text, word) in
            [(window("0 25 * * *", "UTC"), "windows.start"), (window("0 2 * * *", "X/Y"), "windows.zone")]
        {
            let (check, root) = checked(&[("etc/zedbox/limits.json", &text)]);
            let found = lines(&check, root.path());
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(
                found[0].starts_with("etc/zedbox/limits.json: line 1: expected") && found[0].contains(word),
                "{found:?}"
            );
            let named = [
                ("etc/zedbox/zedbox.toml", "limits = \"/etc/zedbox/rules.txt\"\n"),
                ("etc/zedbox/rules.txt", text.as_str()),
            ];
            let (check, root) = checked(&named);
            let found = lines(&check, root.path());
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with("etc/zedbox/rules.txt") && found[0].contains(word), "{found:?}");
        }
        let unknown = "{\"zedkube\":{\n\"windows\":[{\"cron\":\"0 2 * * *\"}]}}";
        let (check, root) = checked(&[("etc/zedbox/limits.json", unknown)]);
        let found = lines(&check, root.path());
        assert!(
            found[0].starts_with("etc/zedbox/limits.json: line 2: expected ")
                && found[0].contains("docs/reference/limits.md")
                && found[0].ends_with("found unknown field `cron`"),
            "{found:?}"
        );
        let (check, _root) = checked(&[("etc/zedbox/limits.json", &window("0 2 * * *", "UTC"))]);
        assert!(check.findings.is_empty() && check.files == 1);
    }

    #[test]
    fn the_fixtures_are_without_a_finding_but_the_malformed_ones() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../run-fixtures");
        for entry in fs::read_dir(fixtures).unwrap() {
            let tree = entry.unwrap().path();
            let mut check = FileCheck::new();
            check.tree(&tree).unwrap();
            let malformed = tree.ends_with("malformed");
            assert!(check.files > 0, "{}", tree.display());
            assert_eq!(malformed, !check.findings.is_empty(), "{}: {:#?}", tree.display(), check.findings);
        }
    }

    #[test]
    fn a_finding_names_path_pointer_expected_and_found() {
        let status = "run/zedkube/NodeDrainStatus";
        let (check, root) = checked(&[
            (&format!("{status}/global.json"), r#"{"Status":"nine","RequestedBy":2}"#),
            (&format!("{status}/a.json"), r#"{"Status":9}"#),
            (&format!("{status}/b.json"), r#"{"Status":9,"#),
            (&format!("{status}/c.json"), ""),
            (&format!("{status}/d.json"), r#"{"Status":999,"RequestedBy":2}"#),
            (&format!("{status}/restarted"), "x"),
            (
                "run/zedagent/NodeDrainRequest/global.json",
                r#"{"RequestedAt":"now","RequestedBy":2,"Context":"c"}"#,
            ),
            ("persist/kube-status/force-NodeDrainStatus-global.json", "{}"),
            ("persist/config/edge-dev-config.json", "{}"),
            (&format!("{status}/tmp123"), "{"),
        ]);
        let lines = lines(&check, root.path());
        let has = |path: &str, rest: &str| {
            assert!(
                lines.iter().any(|it| it.starts_with(path) && it.contains(rest)),
                "{path} {rest}: {lines:#?}"
            );
        };
        has(&format!("{status}/global.json: /Status: "), "found a text of 4 characters");
        has(&format!("{status}/a.json: whole file: "), "expected member \"RequestedBy\", found none");
        has(
            &format!("{status}/b.json: whole file: "),
            "expected one JSON value, found the JSON text is cut off in line 1",
        );
        has(&format!("{status}/c.json: whole file: "), "found nothing");
        has(&format!("{status}/d.json: /Status: "), "expected a whole number from 0 to 255, found 999");
        has(&format!("{status}/restarted: "), "found x");
        has(
            "run/zedagent/NodeDrainRequest/global.json: /RequestedAt: ",
            "expected an RFC 3339 time such as 2026-03-14T09:26:53Z, found `now`",
        );
        has("persist/kube-status/force-NodeDrainStatus-global.json: ", "found {}");
        assert_eq!((check.files, check.passed_over, lines.len()), (8, 2, 8), "{lines:#?}");
    }

    #[test]
    fn a_settings_file_is_judged_with_its_lines() {
        let bad = "etc/zedbox/zedbox.toml";
        let (check, root) = checked(&[(bad, "log = \"info\"\ndevise = \"record\"\n")]);
        assert_eq!(lines(&check, root.path()), [format!("{bad}: line 2: expected device, found devise")]);
        let (check, _root) = checked(&[(bad, "device = \"systemd\"\n")]);
        assert!(check.findings.is_empty() && check.files == 1);
    }

    #[test]
    fn a_file_of_no_topic_that_is_named_is_a_finding_with_the_topics() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("NodeDrainState/global.json");
        store::replace(&path, b"{}").unwrap();
        let mut check = FileCheck::new();
        check.named(&path);
        let line = check.findings[0].to_string();
        assert!(line.contains("NodeDrainStatus") && line.ends_with("found one in NodeDrainState"), "{line}");
    }
}
