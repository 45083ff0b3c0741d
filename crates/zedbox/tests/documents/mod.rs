//! Every command in a document is checked against its program, or is on the list of those that cannot be run
//! here, with the reason.
//!
//! | A line of | Is |
//! |---|---|
//! | `zedbox` | parsed by the command line of the program: names, flags and values |
//! | `jq` | run over the fixture trees, else over the samples of its topic |
//! | `cargo` | compared with the packages, targets, profiles and flags of this workspace |
//! | `kubectl` | run by `kubectl` on an embedded cluster, where it is installed |
//! | anything else | on the list |
//!
//! What `zedbox` prints in the documents is compared in `drain_cmd/readme.rs`.

mod cargo;
mod jq;
mod kubectl;
mod zedbox;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::drain_cmd::node::top;

/// Beginnings of commands that no test runs, and why.
const NOT_RUN: [(&str, &str); 31] = [
    ("apt ", "changes the system; `artifacts.rs` installs, upgrades, removes and purges by dpkg"),
    (
        "cargo +nightly fuzz ",
        "needs a nightly compiler; its target is compared, and the corpus is read by `cargo test`",
    ),
    ("chronyc ", "asks the time service of a machine"),
    ("crictl ", "asks the container runtime of a node"),
    ("cut ", "the last part of the line of zgrep"),
    ("date -s ", "sets the clock of a machine"),
    ("docs/drill.sh ", "asks a person at the power switch"),
    ("grep ", "takes lines out of the journal of a machine"),
    ("journalctl ", "reads the journal of a machine"),
    ("k3s ", "needs a server of k3s"),
    ("kubectl apply", "named after a pipe, which hands it what `zedbox role` prints: `access.rs` has that"),
    ("kubectl auth ", "the embedded cluster has no users"),
    ("kubectl delete -f -", "named after a pipe, which hands it what `zedbox role` prints"),
    ("kubectl edit ", "asks a person in an editor"),
    ("kubectl explain", "named as what the embedded cluster does not do"),
    ("kubectl get --show-managed-fields", "names an option alone"),
    ("kubectl logs ", "the embedded cluster has only the logs that a test writes"),
    ("kubectl rollout ", "the embedded cluster keeps no revisions of a Deployment"),
    ("mknod ", "makes a device"),
    ("mv ", "a part of a file that is written by hand: `check.rs` has what it orders"),
    ("echo ", "the same"),
    ("umask ", "the same"),
    ("rm ", "removes a file of a machine"),
    ("systemctl ", "needs a machine that systemd runs"),
    ("systemd-analyze ", "`tests/house/units.rs` asks it about the unit"),
    ("timedatectl", "asks the time service of a machine"),
    ("vgchange ", "changes volume groups of a machine"),
    ("virtctl ", "needs KubeVirt; what it calls is tried in `crates/kubesim/tests/machines`"),
    ("zgrep ", "`o6_every_agent_logs_the_words_of_the_reference_and_its_command_reads_the_seconds` runs it"),
    ("zedbox drian", "named as a word that nobody knows"),
    ("zedkube has said nothing", "a message, no command"),
];

#[derive(Debug, Clone)]
struct Shown {
    document: PathBuf,
    line: usize,
    text: String,
    /// To be typed unchanged; otherwise it may name a command without its arguments.
    whole: bool,
}

impl fmt::Display for Shown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, line {}: `{}`", self.document.display(), self.line, self.text)
    }
}

impl Shown {
    fn words(&self) -> Vec<String> {
        words(&self.text)
    }

    fn is_of(&self, program: &str) -> bool {
        self.text == program || self.text.starts_with(&format!("{program} "))
    }

    /// Its entry in the list. The namespace does not matter.
    fn not_run(&self) -> Option<(&'static str, &'static str)> {
        let of = self.text.strip_prefix("kubectl -n ").and_then(|it| it.split_once(' '));
        let text = of.map_or_else(|| self.text.clone(), |(_, verb)| format!("kubectl {verb}"));
        NOT_RUN.into_iter().find(|(begins, _)| text.starts_with(begins))
    }
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = scenarios::files_below(folder);
    found.retain(|it| it.extension().is_some_and(|it| it == extension));
    found
}

pub(crate) fn documents() -> Vec<(PathBuf, String)> {
    let names = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];
    let below = ["docs", "crates", "tests"].into_iter().flat_map(|it| files(&top().join(it), "md"));
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path.strip_prefix(top()).unwrap().to_owned(), text)
    };
    let mut found: Vec<_> = names.map(|it| top().join(it)).into_iter().chain(below).map(read).collect();
    found.sort();
    assert!(found.len() > 15, "the walk found {} documents only", found.len());
    found
}

fn shown() -> Vec<Shown> {
    documents().iter().flat_map(|(document, text)| shown_in(document, text)).collect()
}

/// In shell blocks, behind a prompt, in blocks of commands only, and in code spans.
fn shown_in(document: &Path, text: &str) -> Vec<Shown> {
    let mut found = Vec::new();
    let mut add = |line: usize, text: &str, whole: bool| {
        for text in parts(text) {
            found.push(Shown { document: document.to_owned(), line, text, whole });
        }
    };
    let lines: Vec<&str> = text.lines().collect();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        let Some(kind) = line.strip_prefix("```") else {
            // A pipe in a table is escaped.
            for span in line.split('`').skip(1).step_by(2).map(|it| it.replace("\\|", "|")) {
                if is_command(&span) {
                    add(at, &span, false);
                }
            }
            continue;
        };
        let length = lines[at..].iter().take_while(|it| **it != "```").count();
        let block = &lines[at..at + length];
        let commands = kind == "text" && block.iter().all(|it| is_command(it));
        for (nth, line) in block.iter().enumerate() {
            let prompt = line.strip_prefix("$ ").filter(|_| kind == "text");
            if let Some(line) = prompt.or((kind == "sh" || commands).then_some(*line)) {
                add(at + nth + 1, line, true);
            }
        }
        at += length + 1;
    }
    found
}

/// Whether this begins with a program and an argument.
fn is_command(text: &str) -> bool {
    let text = text.trim();
    let text = text.strip_prefix("sudo ").unwrap_or(text);
    let programs = ["zedbox ", "jq ", "cargo ", "kubectl ", "zedkube pub"];
    // A program without arguments is as often a word of a sentence.
    let others = NOT_RUN.iter().map(|(begins, _)| *begins);
    programs.into_iter().chain(others).any(|begins| text.starts_with(begins))
}

/// The commands of a pipeline, without prompt, variables and comment.
fn parts(line: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (None, '#') => break,
            (None, '|') => parts.push(String::new()),
            (None, '\'' | '"') => {
                quote = Some(letter);
                parts.last_mut().unwrap().push(letter);
            }
            (open, letter) => {
                if open == Some(letter) {
                    quote = None;
                }
                parts.last_mut().unwrap().push(letter);
            }
        }
    }
    let bare = |part: &String| {
        let part = part.trim();
        let part = part.strip_prefix("sudo ").unwrap_or(part);
        let is_variable = |it: &str| it.split_once('=').is_some_and(|(name, _)| name == "KUBECONFIG");
        match part.split_once(' ') {
            Some((first, rest)) if is_variable(first) => rest.trim().to_owned(),
            _ => part.to_owned(),
        }
    };
    parts.iter().map(bare).filter(|it| !it.is_empty()).collect()
}

fn words(text: &str) -> Vec<String> {
    shlex::split(text).unwrap_or_else(|| panic!("`{text}`: a quote is not closed"))
}

/// A placeholder for a value that the person knows.
fn is_placeholder(word: &str) -> bool {
    word.len() > 1 && word.chars().all(|it| it.is_ascii_uppercase()) || ["N", "F", "S"].contains(&word)
}

#[test]
fn every_command_of_the_documents_is_checked_or_on_the_list_of_those_that_cannot_be() {
    let shown = shown();
    assert!(shown.len() > 300, "the documents show {} commands only", shown.len());
    let checked = ["zedbox", "zedkube", "jq", "cargo", "kubectl"];
    for it in &shown {
        let known = it.not_run().is_some() || checked.iter().any(|program| it.is_of(program));
        assert!(known, "{it}: no test runs it, and NOT_RUN does not say why");
    }
    let used: BTreeSet<&str> = shown.iter().filter_map(|it| Some(it.not_run()?.0)).collect();
    let of_no_use: Vec<&str> = NOT_RUN.iter().map(|it| it.0).filter(|it| !used.contains(it)).collect();
    assert!(of_no_use.is_empty(), "no document shows {of_no_use:?}");
}

#[test]
fn commands_are_found_in_blocks_behind_prompts_and_in_spans() {
    let text = "Type `sudo zedbox status` or `zedbox`, see `a b`.\n\n```sh\njq . x | jq -r '.a | .b' # why\n```\n\n\
        ```text\n$ zedbox check x\nzedbox said something else\n```\n\n```text\nzedbox verify\nKUBECONFIG=x cargo bench\n```\n\
        | `kubectl get nodes \\| jq .` |\n";
    let found = shown_in(Path::new("x"), text);
    let found: Vec<_> = found.iter().map(|it| (it.line, it.text.as_str(), it.whole)).collect();
    let expected = [
        (1, "zedbox status", false),
        (4, "jq . x", true),
        (4, "jq -r '.a | .b'", true),
        (8, "zedbox check x", true),
        (16, "kubectl get nodes", false),
        (16, "jq .", false),
    ];
    assert_eq!(found, expected);
    assert_eq!(words("a 'b c' \"d\"e ''"), ["a", "b c", "de", ""]);
    let (are, are_none) = (["NODE", "N", "F"], ["Node", "-N", "X"]);
    assert!(are.into_iter().all(is_placeholder) && !are_none.into_iter().any(is_placeholder));
    let files: BTreeSet<PathBuf> = documents().into_iter().map(|it| it.0).collect();
    assert!(["crates/kubesim/README.md", "tests/soak.md"].iter().all(|it| files.contains(Path::new(it))));
}
