//! Facts from cargo and git: versions, the time of the commit, and the crates in the program.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, anyhow, ensure};
use serde_json::Value;

#[derive(Debug)]
pub(crate) struct BuildTarget {
    pub(crate) triple: String,
    pub(crate) debian: &'static str,
    /// For an OCI image, with an optional variant.
    pub(crate) oci: (&'static str, Option<&'static str>),
}

impl BuildTarget {
    pub(crate) fn named(triple: &str) -> anyhow::Result<Self> {
        let (debian, oci) = match triple.split('-').next().unwrap_or_default() {
            "x86_64" => ("amd64", ("amd64", None)),
            "aarch64" => ("arm64", ("arm64", None)),
            "armv7" => ("armhf", ("arm", Some("v7"))),
            "riscv64gc" => ("riscv64", ("riscv64", None)),
            "powerpc64le" => ("ppc64el", ("ppc64le", None)),
            "s390x" => ("s390x", ("s390x", None)),
            "i686" => ("i386", ("386", None)),
            other => {
                return Err(anyhow!("name the packages for {other}: add it to crates/xtask/src/facts.rs"));
            }
        };
        Ok(Self { triple: triple.to_owned(), debian, oci })
    }
}

#[derive(Debug)]
pub(crate) struct BundledCrate {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: String,
    pub(crate) folder: PathBuf,
    /// SHA-256 of its archive; none for crates of the workspace.
    pub(crate) checksum: Option<String>,
    /// Its dependencies among the others, as `name version`.
    pub(crate) calls: BTreeSet<String>,
}

#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) version: String,
    /// Seconds since 1970 of the commit, or `SOURCE_DATE_EPOCH`.
    pub(crate) epoch: u64,
    /// By `name version`.
    pub(crate) parts: BTreeMap<String, BundledCrate>,
}

pub(crate) fn output(program: &str, words: &[&str], folder: &Path) -> anyhow::Result<String> {
    let ended = Command::new(program).args(words).current_dir(folder).output();
    let ended = ended.with_context(|| format!("start {program}"))?;
    let line = || format!("{program} {}", words.join(" "));
    ensure!(ended.status.success(), "{}: {}", line(), String::from_utf8_lossy(&ended.stderr).trim());
    String::from_utf8(ended.stdout).with_context(line)
}

pub(crate) fn cargo() -> String {
    env::var_os("CARGO").and_then(|it| it.into_string().ok()).unwrap_or_else(|| "cargo".to_owned())
}

impl Workspace {
    pub(crate) fn read(target: &BuildTarget) -> anyhow::Result<Self> {
        // As cargo sets it; else where it was built.
        let here = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let here = Path::new(&here);
        let (cargo, triple) = (cargo(), target.triple.as_str());
        let words = ["metadata", "--format-version", "1", "--locked", "--filter-platform", triple];
        let facts: Value =
            serde_json::from_str(&output(&cargo, &words, here)?).context("read cargo's facts")?;
        let place = |member: &str| facts[member].as_str().map(PathBuf::from).context("find the workspace");
        let root = place("workspace_root")?;
        // Linked crates only: no build scripts, no macros, nothing of tests or the demo.
        let edges = "normal,no-proc-macro";
        let tree = ["tree", "--locked", "-p", "zedbox", "--no-default-features", "--target", triple];
        let shape = ["--edges", edges, "--prefix", "none", "--format", "{p}"];
        let tree = output(&cargo, &[&tree[..], &shape[..]].concat(), &root)?;
        let is_in: BTreeSet<String> = tree.lines().filter_map(key_of_line).collect();
        let parts = parts(&facts, &is_in, &checksums(&root)?);
        ensure!(parts.len() == is_in.len(), "find {} crates, found {}", is_in.len(), parts.len());
        let zedbox = parts.values().find(|it| it.name == "zedbox").context("find the program's crate")?;
        let version = zedbox.version.clone();
        Ok(Self { target: place("target_directory")?, epoch: epoch(&root)?, root, version, parts })
    }
}

/// `name version` of a line `name v1.2.3 (…)`.
fn key_of_line(line: &str) -> Option<String> {
    let (name, rest) = line.trim().split_once(" v")?;
    Some(format!("{name} {}", rest.split(' ').next()?))
}

fn key(package: &Value) -> String {
    format!("{} {}", text(&package["name"]), text(&package["version"]))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn parts(
    facts: &Value,
    is_in: &BTreeSet<String>,
    sums: &BTreeMap<String, String>,
) -> BTreeMap<String, BundledCrate> {
    let packages = items(&facts["packages"]);
    let keys: BTreeMap<&str, String> =
        packages.iter().filter_map(|it| Some((it["id"].as_str()?, key(it)))).collect();
    let calls = |id: &str| {
        let node = items(&facts["resolve"]["nodes"]).iter().find(|it| it["id"] == id);
        let all = node.map(|it| items(&it["deps"])).unwrap_or_default().iter();
        all.filter_map(|it| keys.get(it["pkg"].as_str()?)).filter(|it| is_in.contains(*it)).cloned().collect()
    };
    let part = |it: &Value| {
        let key = key(it);
        let manifest = PathBuf::from(text(&it["manifest_path"]));
        BundledCrate {
            name: text(&it["name"]),
            version: text(&it["version"]),
            license: text(&it["license"]).replace('/', " OR "),
            folder: manifest.parent().map(Path::to_owned).unwrap_or_default(),
            checksum: sums.get(&key).cloned(),
            calls: calls(&text(&it["id"])),
        }
    };
    packages
        .iter()
        .map(|it| (key(it), it))
        .filter(|(key, _)| is_in.contains(key))
        .map(|(key, it)| (key, part(it)))
        .collect()
}

/// Of each crate with an archive.
fn checksums(root: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("read Cargo.lock")?;
    let lock: toml::Table = toml::from_str(&lock).context("read Cargo.lock")?;
    let packages =
        lock.get("package").and_then(toml::Value::as_array).context("find crates in Cargo.lock")?;
    let text = |it: &toml::Value, member| it.get(member).and_then(toml::Value::as_str).map(str::to_owned);
    let sum = |it| Some((format!("{} {}", text(it, "name")?, text(it, "version")?), text(it, "checksum")?));
    Ok(packages.iter().filter_map(sum).collect())
}

fn epoch(root: &Path) -> anyhow::Result<u64> {
    const NAME: &str = "SOURCE_DATE_EPOCH";
    let number = |text: &str| text.trim().parse().with_context(|| format!("read {NAME}: {text:?}"));
    match env::var_os(NAME).and_then(|it| it.into_string().ok()) {
        Some(text) => number(&text),
        None => number(&output("git", &["log", "-1", "--format=%ct"], root).context(format!(
            "learn the time of the commit (without git set {NAME} to seconds since 1970)"
        ))?),
    }
}
