//! `zedbox help CODE`: what the documents say of a code, without a network.
//!
//! Not here: the help of commands, which is clap's.

use std::ffi::OsString;

use clap::error::ErrorKind;
use step::SmallSort as _;

use crate::Exit;
use crate::args::{ALIKE, Output, Surroundings};
use crate::drain_cmd::text::paragraph;
use crate::drain_cmd::voice::Voice;

/// Where a package puts the documents.
const FOLDER: &str = "/usr/share/doc/zedbox/operate";
/// Those that explain codes, in a section or in a row of a table.
const DOCUMENTS: [(&str, &str); 6] = [
    ("blockers.md", include_str!("../../../docs/operate/blockers.md")),
    ("blockers-storage.md", include_str!("../../../docs/operate/blockers-storage.md")),
    ("before-a-drain.md", include_str!("../../../docs/operate/before-a-drain.md")),
    ("turns.md", include_str!("../../../docs/operate/turns.md")),
    ("after-boot.md", include_str!("../../../docs/operate/after-boot.md")),
    ("status.md", include_str!("../../../docs/operate/status.md")),
];

/// What a document says of one or more codes.
struct CodeEntry {
    codes: Vec<&'static str>,
    title: String,
    /// Each with its column, or the mark of a list.
    lines: Vec<(String, &'static str)>,
}

/// Answers `zedbox help CODE`, which clap has `refused` or taken for a command; `None` for other words.
pub(crate) fn answer(words: &[OsString], refused: &clap::Error) -> Option<Exit> {
    let [_, help, code] = words else { return None };
    let code = (help == "help").then(|| code.to_str())??;
    let known = told(code, Voice::new(Output::Text, &Surroundings::of_this_process()).columns());
    let text = match (refused.kind(), known.is_empty()) {
        (ErrorKind::DisplayHelp, true) => return None,
        (ErrorKind::DisplayHelp, false) => format!("{}\n{known}", refused.render()),
        (_, false) => known,
        (_, true) => {
            let near = near(code).join(", ");
            let near = if near.is_empty() { String::new() } else { format!("; near it: {near}") };
            Voice::warn(&format!("no command and no code is named {code}{near}; all codes: {FOLDER}"));
            return Some(Exit::Usage);
        }
    };
    Some(Voice::exit("help", Voice::print(&text).map(|_| Exit::Done)))
}

/// All that is said of `code`, in lines of so many columns.
fn told(code: &str, columns: usize) -> String {
    let of_entry = |it: CodeEntry| {
        let head = paragraph("", &format!("{code}: {}", it.title), columns);
        it.lines.iter().fold(head, |text, (label, line)| {
            text + &paragraph(&format!("  {}", plain(label)), &plain(line), columns)
        })
    };
    let entries = entries().into_iter().filter(|it| it.codes.contains(&code));
    entries.map(of_entry).collect::<Vec<_>>().join("\n")
}

/// Codes and commands that `typed` may mean.
fn near(typed: &str) -> Vec<String> {
    let codes = entries().into_iter().flat_map(|it| it.codes).map(str::to_owned);
    let command = crate::command();
    let commands = command.get_subcommands().map(|it| it.get_name().to_owned());
    let mut near: Vec<String> =
        codes.chain(commands).filter(|it| strsim::jaro_winkler(it, typed) > ALIKE).collect();
    near.order();
    near.dedup();
    near
}

fn entries() -> Vec<CodeEntry> {
    let mut all: Vec<CodeEntry> = Vec::new();
    for (file, text) in DOCUMENTS {
        let (mut title, mut columns, mut in_section) = (String::new(), Vec::new(), false);
        for line in text.lines() {
            let cells = line.strip_prefix("| ").and_then(|it| it.strip_suffix(" |"));
            if let Some(heading) = line.strip_prefix('#') {
                let codes = codes(heading.trim_start_matches('#').trim());
                in_section = !codes.is_empty();
                if in_section {
                    all.push(CodeEntry { codes, title: title.clone(), lines: Vec::new() });
                } else {
                    title = format!("{} ({FOLDER}/{file})", heading.trim_start_matches('#').trim());
                }
            } else if let Some(cells) = cells {
                let cells: Vec<&str> = cells.split(" | ").collect();
                if columns.is_empty() {
                    columns = cells;
                } else {
                    let lines =
                        columns.iter().zip(&cells).skip(1).map(|(it, text)| (format!("{it}: "), *text));
                    all.push(CodeEntry {
                        codes: codes(cells[0]),
                        title: title.clone(),
                        lines: lines.collect(),
                    });
                }
            } else if let Some(entry) = all.last_mut().filter(|_| in_section && !line.is_empty()) {
                let item = line.strip_prefix("- ");
                entry.lines.push((if item.is_some() { "- " } else { "" }.to_owned(), item.unwrap_or(line)));
            }
            if !line.starts_with('|') {
                columns.clear();
            }
        }
    }
    all
}

/// The words of a heading or a cell that holds nothing else.
fn codes(cell: &'static str) -> Vec<&'static str> {
    let code = |it: &'static str| match it.split('`').collect::<Vec<_>>()[..] {
        ["", code, ""] => Some(code),
        _ => None,
    };
    cell.split(", ").filter_map(code).collect()
}

/// Markdown for a terminal: of a link its words, and no marks.
fn plain(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((head, tail)) = rest.split_once("](") {
        let (before, words) = head.rsplit_once('[').unwrap_or(("", head));
        out.extend([before, words]);
        rest = tail.split_once(')').map_or("", |it| it.1);
    }
    (out + rest).replace("\\|", "|").replace("**", "").replace('`', "")
}

#[cfg(test)]
mod tests {
    use kubenodeop::BlockCode;
    use kubenodeop::node::gate::Layer;
    use outage::turn::rule::TurnRule;

    use super::*;

    #[test]
    fn each_code_of_the_agents_is_explained_in_plain_lines() {
        let schema = include_str!("../../../schemas/NodeDrainProgress.schema.json");
        let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
        let phases = schema["$defs"]["DrainPhase"]["oneOf"].as_array().unwrap();
        let phases: Vec<&str> = phases.iter().map(|it| it["const"].as_str().unwrap()).collect();
        let lists = [BlockCode::WORDS, &checks::DRAIN_CODES, Layer::WORDS, TurnRule::WORDS, &phases];
        for code in lists.into_iter().chain([&checks::verify::LAYERS[..]]).flatten() {
            let text = told(code, 80);
            let lines: Vec<&str> = text.lines().collect();
            assert!(lines.len() > 1 && text.starts_with(&format!("{code}: ")), "{code}: {text}");
            assert!(lines.iter().all(|it| it.chars().count() <= 80 && !it.starts_with('|')), "{text}");
            assert!(["`", "**", "]("].iter().all(|it| !text.contains(it)), "{text}");
        }
        let text = told("backups", 900);
        assert!(
            text.contains("\n  Severity: blocks;") && text.contains("zedbox go --past preflight:backups")
        );
        let text = told("webhook", 900);
        assert!(text.contains("\n  - Type: kubectl get validatingwebhookconfigurations"), "{text}");
        assert_eq!((told("bakups", 80).as_str(), near("bakups").join(" ").as_str()), ("", "backups"));
    }
}
