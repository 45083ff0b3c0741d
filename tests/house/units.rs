//! The shipped unit file: systemd accepts it and finds it secure, it follows the cluster's services, and its
//! step before the start works.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

const UNIT: &str = include_str!("../../docs/units/zedbox.service");

/// Section, key and value of each line that is one.
fn lines() -> Vec<(&'static str, &'static str, &'static str)> {
    let mut section = "";
    let mut found = Vec::new();
    for line in UNIT.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.strip_suffix(']').unwrap();
        } else {
            let (key, value) = line.split_once('=').unwrap();
            found.push((section, key, value));
        }
    }
    found
}

fn commands(key: &str) -> Vec<&'static str> {
    lines().iter().filter(|it| (it.0, it.1) == ("Service", key)).map(|it| it.2).collect()
}

fn write(path: &Path, text: &str) {
    std::fs::File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// The shell text of the only step before the start, which must not stop the service.
fn step() -> &'static str {
    let steps = commands("ExecStartPre");
    assert_eq!(steps.len(), 1);
    let text = steps[0].strip_prefix("-+/bin/sh -c '").unwrap();
    text.strip_suffix('\'').unwrap()
}

#[test]
fn the_service_starts_all_agents_on_the_real_machine_and_comes_back() {
    // The device is in the settings file, which arguments would override.
    assert_eq!(commands("ExecStart"), ["/usr/bin/zedbox run --root / --log-format journald"]);
    assert_eq!(commands("Restart"), ["always"]);
    assert!(lines().contains(&("Unit", "StartLimitIntervalSec", "0")));
    assert!(lines().contains(&("Install", "WantedBy", "multi-user.target")));
}

#[test]
fn the_step_before_the_start_calls_mknod_for_a_missing_kmsg_and_leaves_one_that_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let node = dir.path().join("kmsg");
    // Only root may make device nodes: a stand-in records its calls.
    let calls = dir.path().join("calls");
    let mknod = dir.path().join("mknod");
    scenarios::script(&mknod, &format!("#!/bin/sh\necho \"$@\" >> {}\n: > \"$3\"\n", calls.display()));
    assert!(step().contains("/dev/kmsg"));
    let text = step().replace("/dev/kmsg", node.to_str().unwrap());
    for _ in 0..2 {
        let ended = Command::new("/bin/sh").arg("-c").arg(&text).env("PATH", dir.path()).status().unwrap();
        assert!(ended.success());
    }
    assert_eq!(std::fs::read_to_string(&calls).unwrap(), format!("-m 600 {} c 1 11\n", node.display()));
}

/// The unit in a folder of its own, with an existing program; `None` without systemd-analyze.
fn analyzed(words: &[&str]) -> Option<(bool, String)> {
    let dir = tempfile::tempdir().unwrap();
    let unit = dir.path().join("zedbox.service");
    write(&unit, &UNIT.replace("/usr/bin/zedbox run", "/bin/true run"));
    let Ok(said) = Command::new("systemd-analyze").args(words).arg(&unit).output() else {
        let why = b"skipped: there is no systemd-analyze to read the unit file\n";
        std::io::stderr().write_all(why).unwrap();
        return None;
    };
    let text = String::from_utf8([said.stdout, said.stderr].concat()).unwrap();
    Some((said.status.success(), text))
}

#[test]
fn systemd_finds_nothing_to_say_about_it() {
    if let Some((ok, text)) = analyzed(&["verify", "--man=no"]) {
        assert!(ok && !text.contains("zedbox.service"), "{text}");
    }
}

#[test]
fn x4_systemd_finds_it_tight() {
    // Tenths: 3.0 is the most.
    if let Some((ok, text)) = analyzed(&["security", "--offline=true", "--threshold=30", "--no-pager"]) {
        assert!(ok && text.contains("Overall exposure level"), "{text}");
    }
}

#[test]
fn x4_it_reports_readiness_and_life_writes_only_where_agents_write_and_follows_the_cluster() {
    assert_eq!(commands("Type"), ["notify"]);
    assert_eq!(commands("WatchdogSec"), ["3min"]);
    assert_eq!(
        (commands("ProtectSystem"), commands("ReadWritePaths")),
        (vec!["strict"], vec!["/run /persist"])
    );
    let after = lines().into_iter().find(|it| (it.0, it.1) == ("Unit", "After")).unwrap().2;
    for cluster in ["k3s", "k3s-agent", "rke2-server", "rke2-agent"] {
        assert!(after.split(' ').any(|it| it.strip_suffix(".service") == Some(cluster)), "{after}");
    }
}

#[test]
fn x3_the_unit_that_drains_a_machine_on_its_way_down_acts_only_then_ends_before_systemd_does_and_stops_before_the_agents()
 {
    const STOPS: &str = include_str!("../../docs/units/zedbox-drain-at-shutdown.service");
    let line = |key: &str| STOPS.lines().find_map(|it| it.strip_prefix(key)).unwrap();
    assert!(line("After=").split(' ').any(|it| it == "zedbox.service"), "what is after it stops before it");
    assert_eq!(line("TimeoutStopSec="), "5min");
    let step = line("ExecStop=/bin/sh -c '").strip_suffix('\'').unwrap();
    assert!(step.ends_with("zedbox drain at-shutdown --timeout 4m"), "{step}");
    let dir = tempfile::tempdir().unwrap();
    let (calls, state) = (dir.path().join("calls"), dir.path().join("state"));
    let script = |name: &str, text: String| scenarios::script(&dir.path().join(name), &text);
    script("zedbox", format!("#!/bin/sh\necho \"$@\" >> {}\n", calls.display()));
    script("systemctl", format!("#!/bin/sh\n/bin/cat {}\n", state.display()));
    let step = step.replace("/usr/bin/zedbox", dir.path().join("zedbox").to_str().unwrap());
    for (said, called) in [("running", false), ("degraded", false), ("stopping", true)] {
        write(&state, said);
        let ended = Command::new("/bin/sh").arg("-c").arg(&step).env("PATH", dir.path()).status().unwrap();
        assert!(ended.success(), "{said}");
        assert_eq!(calls.exists(), called, "{said}");
    }
}
