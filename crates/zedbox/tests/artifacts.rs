//! Release files (`cargo run -p xtask -- dist`): reproducible, complete, and without traces of this machine;
//! and the Debian package on a bare system: installed, tried, upgraded, removed, purged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::process::{Pid, Signal, kill_process};
use scenarios::{Cluster, World};
use serde_json::Value;
use tempfile::TempDir;
use xtask::dist::{self, DistOptions};

use crate::drain_cmd::node::{has, top};
use crate::{KilledChild, TOO_LONG, in_time, is_here, skipped};

const ZEDBOX: &str = env!("CARGO_BIN_EXE_zedbox");
const SETTINGS: &str = "etc/zedbox/zedbox.toml";

fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn of(program: &Path, version: Option<&str>, out: &Path) -> DistOptions {
    DistOptions {
        target: "x86_64-unknown-linux-gnu".to_owned(),
        out: Some(out.to_owned()),
        program: Some(program.to_owned()),
        package_version: version.map(str::to_owned),
    }
}

/// Packs `program` into `out`; returns the path of its package.
fn pack(program: &Path, version: &str, out: &Path) -> PathBuf {
    let made = dist::run(&of(program, Some(version), out)).unwrap();
    let is_package = |it: &PathBuf| it.extension().is_some_and(|ext| ext == "deb");
    made.into_iter().map(|(path, _)| path).find(is_package).unwrap()
}

/// By paths from `folder`, with their modes.
fn files(folder: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let file = |path: PathBuf| {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        let name = path.strip_prefix(folder).unwrap().display().to_string();
        (name, (mode, fs::read(&path).unwrap()))
    };
    scenarios::files_below(folder).into_iter().map(file).collect()
}

/// An installed program; its output is shown when it fails.
fn run(command: &mut Command) -> String {
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{command:?}: {}", said(&ended));
    said(&ended)
}

fn said(ended: &Output) -> String {
    String::from_utf8_lossy(&[&ended.stdout[..], &ended.stderr].concat()).into_owned()
}

/// A program that only prints its version.
fn small(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("program");
    pubsub::store::replace(&path, b"#!/bin/sh\necho zedbox 0.0.0\n").unwrap();
    path
}

#[test]
fn x5_packed_into_two_folders_a_program_gives_the_same_bytes_and_their_sums_and_digests_are_right() {
    let dir = folder();
    let [one, two] = ["one", "a/longer/name"].map(|it| dir.path().join(it));
    fs::create_dir_all(two.parent().unwrap()).unwrap();
    pack(&small(&dir), "0.1.0", &one);
    let package = pack(&small(&dir), "0.1.0", &two);
    let (first, second) = (files(&one), files(&two));
    assert!(first == second, "{:?} {:?}", first.keys(), second.keys());
    // Again in the same place; but not over something else.
    assert_eq!(pack(&small(&dir), "0.1.0", &two), package);
    let refused = dist::run(&of(&small(&dir), None, dir.path())).unwrap_err();
    has(&format!("{refused:#}"), &["it holds other files"]);
    let sums = run(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&one));
    assert_eq!(sums.lines().filter(|it| it.ends_with(": OK")).count(), first.len() - 1, "{sums}");

    let sums = String::from_utf8(first["SHA256SUMS"].1.clone()).unwrap();
    let is_right = |digest: &str, size: &Value| {
        let path = format!("oci/blobs/sha256/{}", digest.strip_prefix("sha256:").unwrap());
        sums.contains(&format!("{}  {path}\n", path.rsplit('/').next().unwrap()))
            && *size == first[&path].1.len()
    };
    let json = |path: &str| serde_json::from_slice::<Value>(&first[path].1).unwrap();
    let blob = |of: &Value| {
        let digest = of["digest"].as_str().unwrap();
        assert!(is_right(digest, &of["size"]), "{of}");
        format!("oci/blobs/sha256/{}", digest.strip_prefix("sha256:").unwrap())
    };
    let manifest = json(&blob(&json("oci/index.json")["manifests"][0]));
    let config = json(&blob(&manifest["config"]));
    assert_eq!((config["architecture"].as_str(), config["os"].as_str()), (Some("amd64"), Some("linux")));
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!((layers.len(), config["rootfs"]["diff_ids"].as_array().unwrap().len()), (1, 1));
    let layer = &first[&blob(&layers[0])].1;
    let mut layer = tar::Archive::new(flate2::read::GzDecoder::new(&layer[..]));
    let inside: Vec<String> =
        layer.entries().unwrap().map(|it| it.unwrap().path().unwrap().display().to_string()).collect();
    assert!(inside.contains(&"usr/bin/zedbox".to_owned()), "{inside:?}");
}

/// The committed tree, built in two different places.
#[test]
#[ignore = "builds the image twice, each time with all that it is linked with"]
fn x5_the_program_itself_built_in_two_folders_has_the_same_bytes() {
    let dir = folder();
    let [one, two] = ["one", "a/longer/name"].map(|name| {
        let (sources, out) = (dir.path().join(name), dir.path().join(format!("made-{}", name.len())));
        run(Command::new("git").args(["clone", "--quiet"]).arg(top()).arg(&sources));
        let mut dist = Command::new("cargo");
        dist.args(["run", "--locked", "--package", "xtask", "--", "dist", "--out"]).arg(&out);
        run(dist.current_dir(&sources).env("CARGO_TARGET_DIR", sources.join("target")));
        files(&out)
    });
    assert!(one.contains_key("zedbox"), "{:?}", one.keys());
    let differ: Vec<&String> =
        one.keys().chain(two.keys()).filter(|it| one.get(*it) != two.get(*it)).collect();
    assert!(differ.is_empty(), "{differ:?}");
}

#[test]
fn x5_the_list_of_contents_names_what_is_linked_and_nothing_of_tests_or_of_the_demo() {
    let dir = folder();
    let out = dir.path().join("out");
    pack(&small(&dir), "0.1.0", &out);
    let list: Value = serde_json::from_slice(&files(&out)["zedbox.cdx.json"].1).unwrap();
    assert_eq!((list["bomFormat"].as_str(), list["specVersion"].as_str()), (Some("CycloneDX"), Some("1.5")));
    let all = list["components"].as_array().unwrap();
    let names: BTreeSet<&str> = all.iter().map(|it| it["name"].as_str().unwrap()).collect();
    for here in ["kube", "ring", "rustls", "tokio", "zedkube"] {
        assert!(names.contains(here), "no {here} in {names:?}");
    }
    for not_here in ["kubesim", "proptest", "tempfile", "cc", "serde_derive", "xtask", "zedbox"] {
        assert!(!names.contains(not_here), "{not_here} is in it");
    }
    let mut refs: BTreeSet<&str> = all.iter().map(|it| it["bom-ref"].as_str().unwrap()).collect();
    assert_eq!(refs.len(), all.len());
    refs.insert(list["metadata"]["component"]["bom-ref"].as_str().unwrap());
    for one in list["dependencies"].as_array().unwrap() {
        let called = one["dependsOn"].as_array().unwrap().iter().chain([&one["ref"]]);
        assert!(called.into_iter().all(|it| refs.contains(it.as_str().unwrap())), "{one}");
    }
    for of_registry in all.iter().filter(|it| !it["purl"].is_null()) {
        let terms = of_registry["licenses"][0]["expression"].as_str().unwrap_or_default();
        let sum = of_registry["hashes"][0]["content"].as_str().unwrap_or_default();
        assert!(!terms.is_empty() && sum.len() == 64, "{of_registry}");
    }
}

#[test]
fn x4_the_package_holds_all_that_a_person_needs_and_nothing_of_this_machine() {
    if !is_here("dpkg-deb") {
        return;
    }
    let dir = folder();
    let (out, at) = (dir.path().join("out"), dir.path().join("system"));
    let package = pack(&small(&dir), "0.1.0+site2", &out);
    assert!(package.ends_with("zedbox_0.1.0+site2_amd64.deb"), "{}", package.display());
    let control = run(Command::new("dpkg-deb").arg("--field").arg(&package));
    assert!(control.contains("Version: 0.1.0+site2\nArchitecture: amd64\n"), "{control}");
    let listed = run(Command::new("dpkg-deb").arg("--contents").arg(&package));
    assert!(listed.lines().all(|it| it.contains(" root/root ")), "{listed}");
    run(Command::new("dpkg-deb").arg("--raw-extract").arg(&package).arg(&at));
    let files = files(&at);
    let mode = |path: &str| files.get(path).unwrap_or_else(|| panic!("no {path} in {:?}", files.keys())).0;
    assert_eq!(mode("usr/bin/zedbox"), 0o755);
    let places = [
        ("DEBIAN", "control"),
        ("etc/zedbox", "zedbox.toml"),
        ("usr/lib/systemd/system", "zedbox.service zedbox-drain-at-shutdown.service"),
        ("usr/lib/tmpfiles.d", "zedbox.conf"),
        ("usr/share/bash-completion/completions", "zedbox"),
        ("usr/share/doc/zedbox", "copyright CHANGELOG.md.gz drill.sh examples/edge-dev-config.json"),
        ("usr/share/doc/zedbox", "operate.md operate/blockers.md night.md reference/dashboard.json"),
        ("usr/share/fish/vendor_completions.d", "zedbox.fish"),
        ("usr/share/man/man1", "zedbox.1.gz zedbox-status.1.gz zedbox-role.1.gz"),
        ("usr/share/zedbox", "role-bindings-apps.yaml role.yaml"),
        ("usr/share/zsh/vendor-completions", "_zedbox"),
    ];
    for (folder, name) in places.iter().flat_map(|it| it.1.split(' ').map(|name| (it.0, name))) {
        assert_eq!(mode(&format!("{folder}/{name}")), 0o644, "{name}");
    }
    let text = |path: &str| String::from_utf8(files[path].1.clone()).unwrap();
    assert_eq!(text("DEBIAN/conffiles"), format!("/{SETTINGS}\n"));
    if is_here("lintian") {
        assert_eq!(run(Command::new("lintian").arg("--allow-root").arg(&package)), "");
    }
    let overrides = text("usr/share/lintian/overrides/zedbox");
    let reasons = overrides.lines().step_by(2).all(|it| it.starts_with("# ") && it.ends_with('.'));
    let are_ours = overrides.lines().skip(1).step_by(2).all(|it| it.starts_with("zedbox: "));
    assert!(reasons && are_ours, "{overrides}");
    let copyright = text("usr/share/doc/zedbox/copyright");
    assert!(!copyright.contains("Grant of Copyright License"), "Debian has the Apache License");
    for (path, (_, bytes)) in &files {
        // XFL of RFC 1952: the slowest, which packs best.
        let ends = |it: &str| Path::new(path).extension().is_some_and(|ext| ext == it);
        assert!(!ends("gz") || bytes[8] == 2, "{path}");
        let is_told = || String::from_utf8_lossy(bytes).contains("\nDocumentation=man:zedbox(1)\n");
        assert!(!ends("service") || is_told(), "{path}");
    }
    for script in ["DEBIAN/postinst", "DEBIAN/prerm", "DEBIAN/postrm"] {
        assert_eq!(mode(script), 0o755);
        run(Command::new("sh").arg("-n").arg(at.join(script)));
    }
    // Only a person may take the machine down.
    assert!(!text("usr/lib/systemd/system/zedbox.service").contains("--device"));
    assert!(text(SETTINGS).lines().all(|it| it.is_empty() || it.starts_with('#')));
    run(Command::new(ZEDBOX).arg("check").arg(at.join(SETTINGS)));
    // The program accepts each line that a person may uncomment.
    let lines = text(SETTINGS).replace("#device", "device").replace("#kube", "kube").replace("#part", "part");
    pubsub::store::replace(&at.join(SETTINGS), lines.as_bytes()).unwrap();
    run(Command::new(ZEDBOX).arg("check").arg(at.join(SETTINGS)));

    let bash = text("usr/share/bash-completion/completions/zedbox");
    assert!(bash.contains("--if-blocked") && bash.contains("kubeconfig"));
    let here = top().canonicalize().unwrap().display().to_string();
    let home = std::env::home_dir().unwrap().join(".cargo").display().to_string();
    let of_demo = "demo-agent".to_owned();
    for (path, (_, bytes)) in &files {
        let mut plain = Vec::new();
        let unpacked = std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut plain);
        let bytes = if unpacked.is_ok() { &plain } else { bytes };
        for word in [&here, &home, &of_demo] {
            assert!(!bytes.windows(word.len()).any(|it| it == word.as_bytes()), "{path} names {word}");
        }
        let is_usage = path.starts_with("usr/share/man/") || path.contains("completions");
        let hidden = ["pubKube", "zedbox demo", "zedbox-demo"];
        let names = |word: &&&str| bytes.windows(word.len()).any(|it| it == word.as_bytes());
        assert!(!is_usage || hidden.iter().find(names).is_none(), "{path} shows a hidden command");
    }
}

#[test]
fn x4_whoever_removes_the_package_hears_that_the_node_stays_cordoned() {
    let prerm = top().join("crates/xtask/package/prerm");
    let dir = folder();
    let put = |name: &str, text: &str| {
        scenarios::script(&dir.path().join(name), &format!("#!/bin/sh\n{text}\n"));
    };
    put("deb-systemd-helper", "exit 0");
    put("deb-systemd-invoke", "exit 0");
    for (tree, stays) in [("drain-9-complete", true), ("drain-5-cordoned", true), ("cluster-idle", false)] {
        put(
            "zedbox",
            &format!("exec {ZEDBOX} \"$@\" --root {}", top().join("run-fixtures").join(tree).display()),
        );
        let path = format!("{}:/usr/bin:/bin", dir.path().display());
        let ended = Command::new("sh").arg(&prerm).arg("remove").env("PATH", path).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.success(), "{tree}: {said}");
        assert_eq!(said.contains("stays cordoned: `kubectl uncordon "), stays, "{tree}: {said}");
    }
}

/// The machine's Debian release, whose libraries this test's program uses.
fn release() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let is_debian = text.lines().any(|it| it == "ID=debian");
    let name = text.lines().find_map(|it| it.strip_prefix("VERSION_CODENAME="))?;
    is_debian.then(|| name.trim_matches('"').to_owned())
}

/// In memory, where programs and devices work there: thousands of files are made and removed.
fn place() -> TempDir {
    let refused = StatVfsMountFlags::NOEXEC | StatVfsMountFlags::NODEV | StatVfsMountFlags::NOSUID;
    let fits = statvfs("/dev/shm").is_ok_and(|it| !it.f_flag.intersects(refused));
    let in_memory = fits.then(|| tempfile::tempdir_in("/dev/shm").ok());
    in_memory.flatten().unwrap_or_else(folder)
}

/// A bare Debian system, and a process in it, killed at the end.
struct Bare {
    process: Option<KilledChild>,
    root: TempDir,
}

impl Bare {
    /// Of this machine's release; or why there is none.
    fn make() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("a bare system needs root".to_owned());
        }
        let release = release().ok_or("this machine is no Debian")?;
        let root = place();
        let mut debootstrap = Command::new("debootstrap");
        debootstrap.args(["--variant=minbase", &release]).arg(root.path()).env("DPKG_FORCE", "unsafe-io");
        let ended = debootstrap.output();
        let ended = ended.map_err(|why| format!("there is no debootstrap: {why}"))?;
        let last = said(&ended).lines().last().unwrap_or_default().to_owned();
        if ended.status.success() {
            Ok(Self { root, process: None })
        } else {
            Err(format!("debootstrap: {last}"))
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("chroot");
        command
            .arg(self.root.path())
            .args(words)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("ZEDBOX_SHORT_WAITS", "1")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> String {
        run(&mut self.command(words))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }
}

/// From a bare system to a drained node with a recorded reboot: a person types one command.
#[tokio::test]
async fn x4_the_package_is_installed_drains_its_node_is_upgraded_removed_and_purged_on_a_bare_system() {
    let mut bare = match Bare::make() {
        Ok(bare) => bare,
        Err(why) => return skipped(&why),
    };
    let dir = folder();
    let program = dir.path().join("zedbox");
    // A test program is mostly debug information.
    run(Command::new("strip").args(["-s", "-o"]).arg(&program).arg(ZEDBOX));
    for (version, program) in [("0.1.0", program), ("0.1.1", small(&dir))] {
        let package = pack(&program, version, &dir.path().join("out"));
        fs::copy(package, bare.path(&format!("tmp/{version}.deb"))).unwrap();
    }

    let installed = bare.run(&["dpkg", "--install", "/tmp/0.1.0.deb"]);
    assert!(installed.contains("not started. `zedbox setup` makes this machine a node"), "{installed}");
    assert_eq!(bare.run(&["dpkg", "--verify", "zedbox"]), "");
    let orders = fs::metadata(bare.path("persist/kube-status")).unwrap();
    assert_eq!(orders.permissions().mode() & 0o777, 0o700);
    assert!(!bare.path("etc/systemd/system/multi-user.target.wants/zedbox.service").exists());
    assert!(bare.run(&["zedbox", "--version"]).starts_with("zedbox "));
    bare.run(&["zedbox", "check", "/etc/zedbox/zedbox.toml"]);

    // The kubeconfig of the cluster, the one command, and for this test shorter waits.
    let cluster = Cluster::embedded().await;
    let api = cluster.sim().serve_to(cluster.device_name()).await.unwrap();
    let given = World::on(cluster);
    for (file, text) in [
        ("etc/zedbox/kubeconfig", api.kubeconfig()),
        ("etc/zedbox/limits.json", r#"{"nodeagent":{"min_reboot_delay_ms":20}}"#.to_owned()),
    ] {
        pubsub::store::replace(&bare.path(file), text.as_bytes()).unwrap();
    }
    let mut setup = bare.command(&["zedbox", "setup", "--node", "edge-node-1", "--device", "record"]);
    setup.args(["--cluster-id", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "--address", "127.0.0.1/8"]);
    let said = tokio::task::spawn_blocking(move || run(&mut setup)).await.unwrap();
    assert!(said.contains("edge-node-1 is set up in cluster 6ba7b810-"), "{said}");
    let edited = fs::read_to_string(bare.path(SETTINGS)).unwrap().replace("#limits", "limits");
    pubsub::store::replace(&bare.path(SETTINGS), edited.as_bytes()).unwrap();
    bare.run(&["zedbox", "check", "/etc/zedbox/zedbox.toml"]);
    let log = dir.path().join("log");
    let mut agents = bare.command(&["zedbox", "run", "--root", "/"]);
    let child = agents.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    bare.process = Some(KilledChild(child));
    let until = async |file: &str, words: &str| {
        let is = || fs::read_to_string(bare.path(file)).is_ok_and(|it| it.contains(words));
        let in_time = in_time(TOO_LONG, is).await;
        assert!(in_time, "{file} has no {words}: {}", fs::read_to_string(&log).unwrap());
    };
    until("run/zedkube/NodeDrainStatus/global.json", "\"Status\":2").await;
    bare.run(&["zedbox", "check", "/run"]);
    let mut order = bare.command(&["zedbox", "reboot", "--reason", "fan"]);
    tokio::task::spawn_blocking(move || run(&mut order)).await.unwrap();
    until("persist/device/recorded.jsonl", "\"reboot\"").await;
    assert!(given.cluster.cordoned().await);
    let history = bare.run(&["zedbox", "drain", "history"]);
    assert!(history.contains("drained, verified"), "{history}");
    kill_process(pid, Signal::TERM).unwrap();
    assert!(bare.process.take().unwrap().wait().unwrap().success());

    // A person's changes stay.
    let mut settings = fs::OpenOptions::new().append(true).open(bare.path(SETTINGS)).unwrap();
    settings.write_all(b"log = \"warn\"\n").unwrap();
    let upgraded = bare.run(&["dpkg", "--install", "/tmp/0.1.1.deb"]);
    assert!(!upgraded.contains("not started"), "{upgraded}");
    let version =
        bare.run(&["dpkg-query", "--show", "--showformat=${Version} ${db:Status-Status}", "zedbox"]);
    assert_eq!(version, "0.1.1 installed");
    assert!(fs::read_to_string(bare.path(SETTINGS)).unwrap().ends_with("log = \"warn\"\n"));
    // And back again.
    bare.run(&["dpkg", "--install", "/tmp/0.1.0.deb"]);

    bare.run(&["dpkg", "--remove", "zedbox"]);
    for gone in ["usr/bin/zedbox", "usr/share/man/man1/zedbox.1.gz", "usr/lib/systemd/system/zedbox.service"]
    {
        assert!(!bare.path(gone).exists(), "{gone} stayed");
    }
    assert!(bare.path(SETTINGS).exists());
    let purged = bare.run(&["dpkg", "--purge", "zedbox"]);
    assert!(purged.contains("/persist stays"), "{purged}");
    assert!(!bare.path("etc/zedbox").exists() && bare.path("persist").exists());
}
