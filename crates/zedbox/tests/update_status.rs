//! `zedkube pubKubeClusterUpdateStatus …` as the kube container calls it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::drain_cmd::node::{Ended, top};
use crate::image::put_program;
use crate::skipped;

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
        let mut command = Command::new(self.home.path().join("zedkube"));
        command.args(["pubKubeClusterUpdateStatus", "--root"]).arg(self.root.path()).args(words);
        command.env_clear().current_dir("/").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn run(&self, words: &[&str]) -> Ended {
        self.begin(words).wait_with_output().unwrap().into()
    }

    fn files(&self) -> Vec<PathBuf> {
        scenarios::files_below(self.root.path())
    }
}

fn golden() -> Vec<u8> {
    std::fs::read(top().join("tests/golden/KubeClusterUpdateStatus/k3s-inprogress.json")).unwrap()
}

#[test]
fn e4_the_kube_containers_command_hands_the_golden_bytes_over_from_another_root() {
    let place = Place::new();
    assert_eq!(place.run(&["node-1", "k3s", "in_progress", "5", ""]).done().out, "");
    let [file] = &place.files()[..] else { panic!("{:?}", place.files()) };
    assert_eq!(std::fs::read(file).unwrap(), golden());
    assert!(file.ends_with("persist/status/zedkube/KubeClusterUpdateReport/0000000001.json"), "{file:?}");
    // Arguments like flags, and an error of several words.
    place.run(&["node-1", "k3s", "failed", "-1", "--root is full"]).ends(0);
    let text = std::fs::read_to_string(&place.files()[1]).unwrap();
    assert!(text.contains(r#""DestinationKubeUpdateVersion":4294967295,"Error":"--root is full""#), "{text}");
}

#[test]
fn d_v29_two_at_once_both_end_with_0_and_no_command_writes_a_reason_for_a_reboot() {
    let place = Place::new();
    let all: Vec<Child> = (0..4).map(|_| place.begin(&["node-1", "cdi", "completed", "5", ""])).collect();
    for one in all {
        Ended::from(one.wait_with_output().unwrap()).ends(0);
    }
    assert_eq!(place.files().len(), 4);
    place.run(&["node-1", "cdi", "completed", "five", ""]).ends(1);
    place.run(&["node-1", "cdi", "completed"]).ends(2);
    assert_eq!(place.files().len(), 4, "nothing else is written");
}

#[test]
fn e4_of_the_root_it_is_called_in_it_needs_nothing_but_persist() {
    let root = tempfile::tempdir().unwrap();
    if !rustix::process::geteuid().is_root() {
        return skipped("only root may change the root of a process");
    }
    if let Err(why) = put_program(root.path(), "zedkube") {
        return skipped(&why);
    }
    std::fs::create_dir(root.path().join("persist")).unwrap();
    let words = ["/zedkube", "pubKubeClusterUpdateStatus", "node-1", "k3s", "in_progress", "5", ""];
    Ended::of(Command::new("chroot").arg(root.path()).args(words)).ends(0);
    let file = root.path().join("persist/status/zedkube/KubeClusterUpdateReport/0000000001.json");
    assert_eq!(std::fs::read(file).unwrap(), golden());
}
