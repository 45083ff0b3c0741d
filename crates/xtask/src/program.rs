//! Builds the program as for an image, with no library beside it and no path of this machine in it; or takes
//! a given one.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::facts::{BuildTarget, Workspace, cargo, output};

/// The program, and what the compiler added beside crates.
pub(crate) struct Built {
    pub(crate) bytes: Vec<u8>,
    pub(crate) libraries: Vec<(&'static str, String, &'static str)>,
}

pub(crate) fn get(
    given: Option<&Path>,
    workspace: &Workspace,
    target: &BuildTarget,
) -> anyhow::Result<Built> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("read the program {}", path.display()));
    if let Some(path) = given {
        return Ok(Built { bytes: read(path)?, libraries: Vec::new() });
    }
    let words =
        ["build", "--locked", "--profile", "image", "--no-default-features", "-p", "zedbox", "--target"];
    let ended = Command::new(cargo())
        .args(words)
        .arg(&target.triple)
        .current_dir(&workspace.root)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(workspace)?.join("\x1f"))
        .status()
        .context("start cargo")?;
    ensure!(ended.success(), "build the program: cargo ended with {ended}");
    let path = workspace.target.join(&target.triple).join("image/zedbox");
    let bytes = read(&path)?;
    for (folder, _) in folders(workspace)? {
        let folder = folder.display().to_string();
        if bytes.windows(folder.len()).any(|it| it == folder.as_bytes()) {
            bail!("keep this machine out of the program: {} names {folder}", path.display());
        }
    }
    let compiler = output("rustc", &["-vV"], &workspace.root)?;
    let says = |what: &str| compiler.lines().find_map(|it| it.strip_prefix(what)).unwrap_or_default();
    let is_this_machine = says("host: ") == target.triple;
    if is_this_machine {
        tried(&path)?;
    }
    let mut libraries = vec![("rust-std", says("release: ").to_owned(), "MIT OR Apache-2.0")];
    if target.triple.ends_with("-gnu") {
        // For another machine it is the linker's.
        let asks = || output("getconf", &["GNU_LIBC_VERSION"], &workspace.root);
        let version = is_this_machine.then(asks).transpose()?;
        let version = version.unwrap_or_default().trim().trim_start_matches("glibc ").to_owned();
        libraries.push(("glibc", version, "LGPL-2.1-or-later"));
    }
    Ok(Built { bytes, libraries })
}

/// Lets LLVM share code between functions: 5 % of the program. No profile of cargo can set it.
const OUTLINER: &str = "-Cllvm-args=-enable-machine-outliner=always";

/// An error must end with its text and exit code 1, also when backtraces are requested, for which the program
/// has no tables.
fn tried(path: &Path) -> anyhow::Result<()> {
    let mut failing = Command::new(path);
    failing.args(["check", "/nonexistent"]).env("RUST_BACKTRACE", "1");
    let ended = failing.output().with_context(|| format!("start {}", path.display()))?;
    let said = String::from_utf8_lossy(&ended.stderr);
    ensure!(
        ended.status.code() == Some(1) && said.contains("/nonexistent"),
        "try the program: of a path that is not there it ended with {}: {said}",
        ended.status
    );
    Ok(())
}

/// Compiler flags; the caller's variables for them are ignored.
fn flags(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let remap = |(folder, name): (PathBuf, &str)| format!("--remap-path-prefix={}={name}", folder.display());
    let remaps = folders(workspace)?.into_iter().map(remap);
    Ok(["-Ctarget-feature=+crt-static", OUTLINER].map(str::to_owned).into_iter().chain(remaps).collect())
}

/// Folders of this machine whose names a compiler may put into a program, and their replacements. Of two that
/// match, the later one counts.
fn folders(workspace: &Workspace) -> anyhow::Result<Vec<(PathBuf, &'static str)>> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::home_dir().map(|it| it.join(".cargo"))).context("find cargo's home")?;
    let sysroot = output("rustc", &["--print", "sysroot"], &workspace.root)?;
    Ok(vec![
        (home, "/cargo"),
        (PathBuf::from(sysroot.trim()), "/rustc"),
        (workspace.root.clone(), "/pillar-rs"),
        (workspace.target.clone(), "/target"),
    ])
}
