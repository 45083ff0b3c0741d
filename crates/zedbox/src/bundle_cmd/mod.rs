//! `zedbox bundle`: one archive for remote support. Missing parts are named in it, and do not stop it.
//!
//! Its parts are chosen by name (`files`, `cluster`), members with secrets are left out, and before a byte is
//! written everything is searched for the secrets of this node. Nothing of the node or the cluster is
//! changed.

mod cluster;
mod files;
mod secrets;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use kubeapi::ApiClient;
use pubsub::store;
use serde::Serialize;
use serde_json::json;
use tokio::time::timeout;
use topics::{GoTime, number};

use crate::Exit;
use crate::args::{BundleCommand, Output, kubeconfig_of};
use crate::drain_cmd::Shell;
use crate::drain_cmd::voice::Voice;

/// Limit of each command and of the log.
const TIME: Duration = Duration::from_secs(30);
/// Of a program's output, the last bytes.
const SAID_BYTES: usize = 4 << 20;
const TOP: &str = "zedbox-bundle";
/// Commands of this program, by the file for their output.
const COMMANDS: [(&str, &[&str]); 9] = [
    ("drain-status", &["status"]),
    ("drain-status.json", &["status", "-o", "json"]),
    ("drain-history", &["history"]),
    ("drain-plan", &["plan"]),
    ("lock-status", &["lock", "status"]),
    ("site-status", &["site", "status"]),
    ("machines", &["machines", "list"]),
    ("verify", &["verify"]),
    ("verify.json", &["verify", "-o", "json"]),
];
/// The log of the agents and of the machine's last two days, from systemd.
const JOURNAL: [&str; 8] = ["-u", "zedbox*", "--since", "-2days", "-n", "20000", "-o", "short-iso-precise"];

/// Paths below its folder, and contents.
#[derive(Default)]
struct Contents(Vec<(String, Vec<u8>)>);

impl Contents {
    fn add(&mut self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.0.push((path.into(), bytes.into()));
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct BundleWritten<'a> {
    file: &'a Path,
    files: usize,
    bytes: usize,
}

pub(crate) async fn run(command: &BundleCommand) -> anyhow::Result<Exit> {
    let shell = &Shell::open(&command.place.at)?;
    let (root, now) = (&command.place.at.root, shell.clock.wall());
    let file = command.to.clone().unwrap_or_else(|| PathBuf::from(name(now)));
    if let Some(dir) = file.parent().filter(|it| !it.as_os_str().is_empty() && !it.is_dir()) {
        bail!(
            "write {}: there is no directory {}; make it, or name another one",
            file.display(),
            dir.display()
        );
    }
    let mut contents = Contents::default();
    contents.add("about.json", serde_json::to_vec_pretty(&about(now))?);
    files::collect(root, &mut contents);
    for (name, words) in COMMANDS {
        let mut words: Vec<&str> = words.to_vec();
        let root = root.to_string_lossy();
        words.extend(["--root", &root]);
        let kubeconfig = command.place.kubeconfig.as_deref().map(Path::to_string_lossy);
        let takes = !matches!(words[0], "status" | "history");
        if let Some(kubeconfig) = kubeconfig.as_deref().filter(|_| takes) {
            words.extend(["--kubeconfig", kubeconfig]);
        }
        let program = std::env::current_exe().context("find this program")?;
        contents.add(format!("commands/{name}"), said(&program, &words).await);
    }
    contents.add("journal", said(Path::new("journalctl"), &JOURNAL).await);
    // Support has to know what hides the cluster; the rest is collected all the same.
    let kubeconfig = match kubeconfig_of(command.place.kubeconfig.as_deref(), root) {
        Ok(kubeconfig) => Some(kubeconfig),
        Err(error) => {
            contents.add("cluster/not-found", format!("{error:#}\n"));
            None
        }
    };
    if let Some(kubeconfig) = &kubeconfig {
        cluster::collect(&ApiClient::from_kubeconfig(kubeconfig), &mut contents).await;
    }

    let secrets = secrets::of_node(root, kubeconfig.as_deref());
    if let Some((path, _)) = contents.0.iter().find(|(_, bytes)| secrets.are_in(bytes)) {
        bail!(
            "write the archive: {path} would hold a secret of this node, so nothing was written; report that name, and send what \
             `zedbox verify`, `zedbox status` and `zedbox lock status` print"
        );
    }
    let archive = packed(&contents, now).context("pack the archive")?;
    store::replace(&file, &archive).with_context(|| format!("write {}", file.display()))?;
    let (files, bytes) = (contents.0.len(), archive.len());
    let note =
        if rustix::process::geteuid().is_root() { "" } else { " Without root much is missing: use sudo." };
    match shell.voice.output {
        Output::Json => Voice::json(&BundleWritten { file: &file, files, bytes }, false)?,
        Output::Text => shell.voice.paragraph(&format!(
            "{}: {}, {} kB. Kubeconfigs, tokens, keys and the device config are left out; names and \
             addresses of pods, nodes and machines and the agents' log are in it.{}",
            file.display(),
            number(files, "file"),
            bytes.div_ceil(1000),
            note
        ))?,
    };
    Ok(Exit::Done)
}

fn about(now: GoTime) -> serde_json::Value {
    let machine = rustix::system::uname();
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let release = release.lines().find_map(|it| it.strip_prefix("PRETTY_NAME=")).unwrap_or_default();
    json!({
        "Zedbox": env!("CARGO_PKG_VERSION"),
        "At": now,
        "BootID": agent::device::kernel_boot_id().unwrap_or_default(),
        "Machine": machine.nodename().to_string_lossy(),
        "Kernel": machine.release().to_string_lossy(),
        "System": release.trim_matches('"'),
    })
}

/// Without colons, which some file systems refuse.
fn name(now: GoTime) -> String {
    let time: String = now.rfc3339().chars().take(19).filter(char::is_ascii_alphanumeric).collect();
    format!("{TOP}-{time}.tar.gz")
}

/// A program's output and exit status.
async fn said(program: &Path, words: &[&str]) -> Vec<u8> {
    let mut command = tokio::process::Command::new(program);
    command.args(words).env("LC_ALL", "C").stdin(Stdio::null()).kill_on_drop(true);
    let ended = match timeout(TIME, command.output()).await {
        Ok(ended) => ended.map_err(|error| error.to_string()),
        Err(_) => Err(format!("it did not end within {} s", TIME.as_secs())),
    };
    let mut text = format!("$ {} {}\n", program.display(), words.join(" ")).into_bytes();
    match ended {
        Err(why) => text.extend(format!("cannot be had: {why}\n").bytes()),
        Ok(output) => {
            for part in [&output.stdout, &output.stderr] {
                text.extend(&part[part.len().saturating_sub(SAID_BYTES)..]);
            }
            text.extend(format!("{}\n", output.status).bytes());
        }
    }
    text
}

fn packed(contents: &Contents, now: GoTime) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (path, bytes) in &contents.0 {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(now.to_timestamp().as_second().try_into().unwrap_or_default());
        archive.append_data(&mut header, format!("{TOP}/{path}"), bytes.as_slice())?;
    }
    let mut packed = archive.into_inner()?;
    packed.flush()?;
    packed.finish()
}
