//! Manual pages and completions, out of the command line's own table. Hidden commands stay hidden, and the demo is not in
//! an image.

use anyhow::Context as _;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::archive::{Entry, gzip};

const DEMO: &str = "demo";

/// The visible part of `command`. The library cannot remove a command, and completions contain hidden ones.
pub(crate) fn visible(command: &Command) -> Command {
    let shown = |it: &&Command| !it.is_hide_set() && it.get_name() != DEMO;
    // Leaked: the library wants static texts, and this runs once.
    let kept = |text: &str| -> &'static str { text.to_owned().leak() };
    let mut seen = Command::new(kept(command.get_name()))
        .arg_required_else_help(command.is_arg_required_else_help_set())
        .subcommand_required(command.is_subcommand_required_set())
        .args(command.get_arguments().filter(|it| !it.is_hide_set()))
        .subcommands(command.get_subcommands().filter(shown).map(visible));
    for (text, set) in [
        (command.get_about(), Command::about as fn(Command, clap::builder::StyledStr) -> Command),
        (command.get_long_about(), Command::long_about),
        (command.get_after_help(), Command::after_help),
    ] {
        if let Some(text) = text {
            seen = set(seen, text.clone());
        }
    }
    match command.get_version() {
        Some(version) => seen.version(kept(version)),
        None => seen,
    }
}

/// Pages and completions at their places in a system.
pub(crate) fn all(command: Command) -> anyhow::Result<Vec<Entry>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut all = Vec::new();
    pages(&command, &mut all).context("make the manual pages")?;
    for (shell, path) in [
        (Shell::Bash, "usr/share/bash-completion/completions/zedbox"),
        (Shell::Zsh, "usr/share/zsh/vendor-completions/_zedbox"),
        (Shell::Fish, "usr/share/fish/vendor_completions.d/zedbox.fish"),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, "zedbox", &mut text);
        all.push(Entry::file(path, 0o644, text));
    }
    Ok(all)
}

/// The page of `command`, and of each of those below.
fn pages(command: &Command, all: &mut Vec<Entry>) -> anyhow::Result<()> {
    for below in command.get_subcommands() {
        pages(below, all)?;
    }
    let page = Man::new(command.clone()).manual("pillar-rs");
    let mut text = Vec::new();
    page.render(&mut text)?;
    let path = format!("usr/share/man/man1/{}.gz", page.get_filename());
    all.push(Entry::file(&path, 0o644, gzip(&text)?));
    Ok(())
}
