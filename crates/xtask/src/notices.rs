//! Whose work is in the program, and on what terms: each crate's licence, once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use anyhow::Context as _;

use crate::facts::Workspace;
use crate::program::Built;

/// Names of licence files, in capitals.
const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE"];

/// The file `copyright` of packages.
pub(crate) fn of(workspace: &Workspace, built: &Built) -> anyhow::Result<Vec<u8>> {
    let ours = fs::read_to_string(workspace.root.join("LICENSE")).context("read LICENSE")?;
    let mut text = String::from(
        "zedbox is a program of pillar-rs, under the Apache License 2.0, which follows first.\n\n\
         It contains the libraries of this list. Their licences follow behind ours, each with the libraries that came with \
         it.\n\n",
    );
    let mut terms: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let others = workspace.parts.iter().filter(|(_, part)| part.checksum.is_some());
    for (name, part) in others {
        writeln!(text, "{name}: {}", part.license)?;
        for entry in fs::read_dir(&part.folder).with_context(|| format!("read {}", part.folder.display()))? {
            let path = entry?.path();
            let file = path.file_name().map(|it| it.to_string_lossy().to_uppercase()).unwrap_or_default();
            if path.is_file() && NAMES.iter().any(|it| file.starts_with(it)) {
                let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
                let lines = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
                terms.entry(lines.trim_matches('\n').to_owned()).or_default().insert(name);
            }
        }
    }
    for (name, version, license) in &built.libraries {
        writeln!(text, "{name} {version}: {license}")?;
        if *name == "glibc" {
            text.push_str(
                "  It is linked statically. To link another version of it, build the program from its sources again: the \
                 section \"Build\" of docs/integrate.md says how. Its own sources are at https://www.gnu.org/software/libc/.\n",
            );
        }
    }
    write!(text, "\n{:=<80}\npillar-rs\n\n{}\n", "", ours.trim_end())?;
    for (terms, names) in terms {
        let names: Vec<&str> = names.into_iter().collect();
        write!(text, "\n{:=<80}\n{}\n\n{terms}\n", "", names.join(", "))?;
    }
    Ok(text.into_bytes())
}
