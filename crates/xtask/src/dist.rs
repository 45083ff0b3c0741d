//! Makes the folder of release files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

use crate::archive::{Entry, digest};
use crate::facts::{BuildTarget, Workspace};
use crate::{deb, notices, oci, program, sbom, texts};

/// Checksums for `sha256sum --check`. Its presence shows that a folder was made here.
const SUMS: &str = "SHA256SUMS";

/// What is made, and where.
#[derive(Debug, clap::Args)]
pub struct DistOptions {
    /// Machine that it is for, by its name at the compiler.
    #[arg(long, value_name = "TRIPLE", default_value = "x86_64-unknown-linux-gnu")]
    pub target: String,
    /// Folder, which is made again [default: dist/TRIPLE in cargo's target directory].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Program to pack as it is, in place of building one.
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Version of the package, as 0.1.0+site2 [default: that of the workspace].
    #[arg(long, value_name = "VERSION")]
    pub package_version: Option<String>,
}

/// Makes the folder. Returns its files with their lengths.
///
/// Errors: the step that failed. The folder is then unchanged.
pub fn run(options: &DistOptions) -> anyhow::Result<Vec<(PathBuf, u64)>> {
    let target = BuildTarget::named(&options.target)?;
    let workspace = Workspace::read(&target)?;
    let out = options.out.clone().unwrap_or_else(|| workspace.target.join("dist").join(&options.target));
    check_place(&out)?;
    let version = options.package_version.as_deref().unwrap_or(&workspace.version);
    let built = program::get(options.program.as_deref(), &workspace, &target)?;
    let notices = notices::of(&workspace, &built)?;
    let command = texts::visible(&zedbox::command());
    let package = deb::make(&deb::Package {
        workspace: &workspace,
        target: &target,
        version,
        program: &built.bytes,
        notices: &notices,
        texts: texts::all(command)?,
    })?;
    let mut files = oci::layout(&workspace, &target, &built.bytes, &notices)?;
    files.push(Entry::file(&format!("zedbox_{version}_{}.deb", target.debian), 0o644, package));
    files.push(Entry::file("zedbox.cdx.json", 0o644, sbom::of(&workspace, &built)?));
    files.push(Entry::file("zedbox", 0o755, built.bytes));
    files.sort_by(|one, other| one.path.cmp(&other.path));
    let sum = |it: &Entry| format!("{}  {}\n", digest(&it.bytes), it.path);
    let sums: String = files.iter().map(sum).collect();
    files.push(Entry::file(SUMS, 0o644, sums.into_bytes()));
    put(&out, &files).with_context(|| format!("write {}", out.display()))?;
    Ok(files.into_iter().map(|it| (out.join(&it.path), it.bytes.len() as u64)).collect())
}

/// Refuses to replace a folder that was not made here.
fn check_place(out: &Path) -> anyhow::Result<()> {
    let Ok(mut entries) = fs::read_dir(out) else { return Ok(()) };
    let is_ours = out.join(SUMS).is_file() || entries.next().is_none();
    ensure!(is_ours, "use {}: it holds other files; name another folder with --out", out.display());
    Ok(())
}

/// Writes everything beside the folder, then swaps.
#[expect(clippy::disallowed_methods, reason = "a new folder that nobody reads before it is renamed")]
fn put(out: &Path, files: &[Entry]) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(name) = out.file_name().and_then(|it| it.to_str()) else { bail!("use a folder with a name") };
    let beside = out.with_file_name(format!(".{name}.new"));
    remove(&beside)?;
    for file in files {
        let path = beside.join(&file.path);
        fs::create_dir_all(path.parent().unwrap_or(&beside))?;
        fs::write(&path, &file.bytes)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
    }
    remove(out)?;
    fs::rename(&beside, out)?;
    Ok(())
}

fn remove(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
