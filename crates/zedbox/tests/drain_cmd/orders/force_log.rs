//! A refused force file is one line in the log for people, for any number of agents.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pubsub::store;

const READERS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_refused_force_file_is_logged_for_people_by_zedkube_alone() {
    let root = tempfile::tempdir().unwrap();
    let force = root.path().join(topics::FORCE_FILE);
    let limits = root.path().join("limits.json");
    store::replace(&limits, br#"{"zedkube":{"server_port":0}}"#).unwrap();
    let mut agents = Command::new(env!("CARGO_BIN_EXE_zedbox"))
        .args(["run", "--log", "debug", "--root"])
        .arg(root.path())
        .arg("--kubeconfig")
        .arg(root.path().join("none"))
        .arg("--limits")
        .arg(&limits)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = BufReader::new(agents.stderr.take().unwrap());
    let (sender, lines) = mpsc::channel();
    let reader = thread::spawn(move || {
        log.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok());
    });
    let mut refused = Vec::new();
    while refused.len() < READERS
        && let Ok(line) = lines.recv_timeout(PATIENCE)
    {
        // An existing file at the start counts as left by an earlier boot.
        if line.contains("changing publishNodeDrainStatus") || line.contains("removed a force file") {
            store::replace(&force, b"{}").unwrap();
        } else if line.contains("force file refused") {
            refused.push(line);
        }
    }
    agents.kill().unwrap();
    agents.wait().unwrap();
    drop(lines);
    reader.join().unwrap();
    let loud: Vec<&String> = refused.iter().filter(|it| !it.contains("DEBUG")).collect();
    assert_eq!((refused.len(), loud.len()), (READERS, 1), "{refused:#?}");
    assert!(loud[0].contains("ERROR") && loud[0].contains("zedkube"), "{loud:?}");
}
