//! The shipped unit files: systemd accepts them and finds the agents' secure, it follows the cluster's services, and the
//! one that comes before these works.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::process::Command;

const UNIT: &str = include_str!("../../docs/units/zedbox.service");
const KMSG: &str = include_str!("../../docs/units/zedbox-kmsg.service");

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

#[test]
fn the_service_starts_all_agents_on_the_real_machine_and_comes_back() {
    // The device is in the settings file, which arguments would override.
    assert_eq!(commands("ExecStart"), ["/usr/bin/zedbox run --root / --log-format journald"]);
    assert_eq!(commands("Restart"), ["always"]);
    assert!(lines().contains(&("Unit", "StartLimitIntervalSec", "0")));
    assert!(lines().contains(&("Install", "WantedBy", "multi-user.target")));
}

/// What the step makes of `/dev/kmsg`, here a name in a folder of this test, behind `words`; and what it says.
fn kmsg(words: &[&str], at_first: impl FnOnce(&Path)) -> (std::io::Result<std::fs::Metadata>, String) {
    let dir = tempfile::tempdir().unwrap();
    let node = dir.path().join("kmsg");
    at_first(&node);
    let step =
        KMSG.lines().find_map(|it| it.strip_prefix("ExecStart=/bin/sh -c '")?.strip_suffix('\'')).unwrap();
    let step = step.replace("/dev/kmsg", node.to_str().unwrap()).replace("/dev/console", "/dev/null");
    let words = [words, &["/bin/sh", "-c", &step]].concat();
    let said = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let text = String::from_utf8([said.stdout, said.stderr].concat()).unwrap();
    (node.symlink_metadata(), text.replace(node.to_str().unwrap(), "/dev/kmsg"))
}

#[test]
fn seed_1_01_before_the_kubelet_a_missing_kmsg_is_made_or_linked_where_no_device_may_be_made_and_the_log_says_which()
 {
    let before = KMSG.lines().find_map(|it| it.strip_prefix("Before=")).unwrap();
    assert_eq!(before, "k3s.service k3s-agent.service rke2-server.service rke2-agent.service");
    assert!(lines().contains(&("Unit", "Wants", "zedbox-kmsg.service")));

    let (found, said) = kmsg(&["env"], |node| write(node, "as it was"));
    assert_eq!((found.unwrap().len(), said.as_str()), (9, "/dev/kmsg is there\n"));
    // As in an unprivileged container: the kernel itself refuses the device there.
    match Command::new("unshare").args(["-r", "true"]).status() {
        Ok(ended) if ended.success() => {
            for dangles in [false, true] {
                let (found, said) = kmsg(&["unshare", "-r"], |node| {
                    if dangles {
                        std::os::unix::fs::symlink("nowhere", node).unwrap();
                    }
                });
                assert!(found.unwrap().is_symlink() && said.contains("mknod: "), "{said}");
                assert!(said.starts_with("made /dev/kmsg a link to /dev/null\n"), "{said}");
            }
        }
        no => writeln!(std::io::stderr(), "skipped: no user namespace here: {no:?}").unwrap(),
    }
    let (found, said) = kmsg(&["env"], |_| {});
    let found = found.unwrap();
    if found.is_symlink() {
        writeln!(std::io::stderr(), "skipped: this user may make no device: {said}").unwrap();
    } else {
        let is_it = found.file_type().is_char_device() && found.rdev() == rustix::fs::makedev(1, 11);
        assert!(is_it && said == "made the device /dev/kmsg\n", "{said}");
        assert_eq!(found.mode() & 0o777, 0o600);
    }
}

/// The unit in a folder of its own, with an existing program; `None` without systemd-analyze.
fn analyzed(words: &[&str]) -> Option<(bool, String)> {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("zedbox-kmsg.service"), KMSG);
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
        (vec!["strict"], vec!["/run /persist -/etc/zedbox"])
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
