//! `zedkube pubKubeClusterUpdateStatus …` as the kube container calls it.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::image::put_program;

/// The program under its called name, and a root that is not its own.
struct Place {
    home: tempfile::TempDir,
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let (home, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_zedbox"), home.path().join("zedkube")).unwrap();
        Self { home, root }
    }

    fn begin(&self, words: &[&str]) -> Child {
        Command::new(self.home.path().join("zedkube"))
            .arg("pubKubeClusterUpdateStatus")
            .arg("--root")
            .arg(self.root.path())
            .args(words)
            .env_clear()
            .current_dir("/")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn run(&self, words: &[&str]) -> Output {
        self.begin(words).wait_with_output().unwrap()
    }

    fn files(&self) -> Vec<PathBuf> {
        scenarios::files_below(self.root.path())
    }
}

fn golden() -> Vec<u8> {
    let top = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    std::fs::read(top.join("tests/golden/KubeClusterUpdateStatus/k3s-inprogress.json")).unwrap()
}

#[test]
fn e4_the_kube_containers_command_hands_the_golden_bytes_over_from_another_root() {
    let place = Place::new();
    let output = place.run(&["node-1", "k3s", "in_progress", "5", ""]);
    assert_eq!(
        (output.status.code(), output.stdout.len(), output.stderr.len()),
        (Some(0), 0, 0),
        "{output:?}"
    );
    let [file] = &place.files()[..] else { panic!("{:?}", place.files()) };
    assert_eq!(std::fs::read(file).unwrap(), golden());
    assert!(file.ends_with("persist/status/zedkube/KubeClusterUpdateReport/0000000001.json"), "{file:?}");
    // Arguments like flags, and an error of several words.
    let output = place.run(&["node-1", "k3s", "failed", "-1", "--root is full"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = std::fs::read_to_string(&place.files()[1]).unwrap();
    assert!(text.contains(r#""DestinationKubeUpdateVersion":4294967295,"Error":"--root is full""#), "{text}");
}

#[test]
fn d_v29_two_at_once_both_end_with_0_and_no_command_writes_a_reason_for_a_reboot() {
    let place = Place::new();
    let all: Vec<Child> = (0..4).map(|_| place.begin(&["node-1", "cdi", "completed", "5", ""])).collect();
    for one in all {
        let output = one.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    assert_eq!(place.files().len(), 4);
    for words in [&["node-1", "cdi", "completed", "five", ""][..], &["node-1", "cdi", "completed"]] {
        let output = place.run(words);
        let code = if words.len() == 5 { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
    assert_eq!(place.files().len(), 4, "nothing else is written");
}

/// Copies the program and its libraries below an empty `root`; returns why it cannot.
fn alone_in(root: &Path) -> Result<(), String> {
    if std::fs::metadata("/proc/self").map_or(true, |it| it.uid() != 0) {
        return Err("only root may change the root of a process".to_owned());
    }
    put_program(root, "zedkube")
}

#[test]
fn e4_of_the_root_it_is_called_in_it_needs_nothing_but_persist() {
    let root = tempfile::tempdir().unwrap();
    if let Err(why) = alone_in(root.path()) {
        writeln!(std::io::stderr(), "skipped: {why}").unwrap();
        return;
    }
    std::fs::create_dir(root.path().join("persist")).unwrap();
    let words = ["/zedkube", "pubKubeClusterUpdateStatus", "node-1", "k3s", "in_progress", "5", ""];
    let output = Command::new("chroot").arg(root.path()).args(words).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let file = root.path().join("persist/status/zedkube/KubeClusterUpdateReport/0000000001.json");
    assert_eq!(std::fs::read(file).unwrap(), golden());
}
