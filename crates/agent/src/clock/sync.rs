//! Whether the wall clock of this machine follows a time server.
//!
//! systemd-timesyncd leaves a file once it has set the clock. Everything else that keeps the time (chrony, ntpd, busybox)
//! clears `STA_UNSYNC` in the kernel, which the program `adjtimex` of busybox prints: the system call itself is in no
//! crate without unsafe code. Not here: what follows from it.

use std::path::Path;
use std::time::Duration;

use pubsub::Bus;

use crate::device::program;

/// systemd-timesyncd's, systemd-timesyncd.service(8).
const SYNCHRONIZED: &str = "run/systemd/timesync/synchronized";
/// Where busybox has its links.
const PROGRAMS: [&str; 4] = ["sbin/adjtimex", "usr/sbin/adjtimex", "bin/adjtimex", "usr/bin/adjtimex"];
/// The call reads one record of the kernel.
const LIMIT: Duration = Duration::from_secs(5);
/// adjtimex(2).
const STA_UNSYNC: u32 = 0x40;

/// Whether systemd-timesyncd has set the clock in this boot.
pub fn by_timesyncd(bus: &Bus) -> bool {
    bus.path(SYNCHRONIZED).exists()
}

/// Why the wall clock cannot be believed, in words with the next step; `None` when it follows a time server.
pub async fn trouble(bus: &Bus) -> Option<String> {
    if by_timesyncd(bus) {
        return None;
    }
    let Some(program) = PROGRAMS.map(|it| bus.path(it)).into_iter().find(|it| it.exists()) else {
        return Some(format!(
            "whether it follows a time server cannot be read, as there is neither /{SYNCHRONIZED} nor the program \
             adjtimex; add busybox's to the image"
        ));
    };
    match program::call(&program, &[], LIMIT).await {
        Ok(said) => judge(&program, &said),
        Err(why) => Some(format!("whether it follows a time server cannot be read: {why}")),
    }
}

fn judge(program: &Path, said: &str) -> Option<String> {
    let word = said.lines().find_map(|line| line.trim().strip_prefix("status:"));
    match word.and_then(|it| it.split_ascii_whitespace().next()).map(str::parse::<u32>) {
        Some(Ok(status)) if status & STA_UNSYNC == 0 => None,
        Some(Ok(_)) => {
            Some("it follows no time server; look at the time service and at the network".to_owned())
        }
        Some(Err(_)) | None => Some(format!(
            "whether it follows a time server cannot be read: {} prints no \"status:\" with a number",
            program.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pubsub::store;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    /// A machine whose adjtimex is this script.
    fn machine(script: Option<&str>) -> (tempfile::TempDir, Bus) {
        let root = tempfile::tempdir().unwrap();
        if let Some(script) = script {
            let path = root.path().join("sbin/adjtimex");
            fs::create_dir(root.path().join("sbin")).unwrap();
            store::replace(&path, format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let bus = Bus::open(root.path()).unwrap();
        (root, bus)
    }

    #[tokio::test]
    async fn u9_the_kernels_word_counts_and_one_that_cannot_be_read_is_no_yes() {
        for (script, trouble_with) in [
            (Some("echo '    maxerror:     1'; echo '    status:       8193 (PLL | NANO)'"), None),
            (Some("echo '    status:       64 (UNSYNC)'"), Some("follows no time server")),
            (Some("echo '    status:       8257 (PLL | UNSYNC | NANO)'"), Some("follows no time server")),
            (Some("echo nothing"), Some("prints no \"status:\"")),
            (Some("echo broken >&2; exit 3"), Some("broken")),
            (None, Some("nor the program adjtimex")),
        ] {
            let (_root, bus) = machine(script);
            let found = trouble(&bus).await;
            match trouble_with {
                None => assert_eq!(found, None, "{script:?}"),
                Some(words) => {
                    assert!(found.as_ref().is_some_and(|it| it.contains(words)), "{script:?}: {found:?}");
                }
            }
        }
    }

    #[tokio::test]
    async fn u9_systemds_file_is_enough() {
        let (root, bus) = machine(Some("echo 'status: 64'"));
        fs::create_dir_all(root.path().join("run/systemd/timesync")).unwrap();
        store::replace(&root.path().join(SYNCHRONIZED), b"").unwrap();
        assert_eq!(trouble(&bus).await, None);
    }
}
