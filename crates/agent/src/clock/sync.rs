//! Whether the wall clock of this machine follows a time server.
//!
//! systemd-timesyncd leaves a file once it has set the clock. Other programs (chrony with `rtcsync`, ntpd,
//! busybox) clear `STA_UNSYNC` in the kernel, which the program `adjtimex` of busybox prints: no crate
//! without unsafe code has the system call. chrony without `rtcsync` leaves it set and is asked with
//! `chronyc`. Not here: what follows from it. Source of chrony's columns: chronyc(1), `-c` and `tracking`.

use std::path::Path;
use std::time::Duration;

use pubsub::TopicRoot;

use crate::device::program;

const SYNCHRONIZED: &str = "run/systemd/timesync/synchronized";
const PROGRAMS: [&str; 4] = ["sbin/adjtimex", "usr/sbin/adjtimex", "bin/adjtimex", "usr/bin/adjtimex"];
const CHRONYC: [&str; 2] = ["usr/bin/chronyc", "usr/sbin/chronyc"];
/// Columns: the reference's number and its address; the stratum, 0 when unknown; last, the leap status.
const STRATUM: usize = 2;
const LEAPS: [&str; 3] = ["Normal", "Insert second", "Delete second"];
/// Reference numbers of no source, of chrony itself, and of a local clock.
const NOBODY: [&str; 3] = ["00000000", "7F7F0101", ""];
const ITSELF: &str = "127.127.1.";
const LIMIT: Duration = Duration::from_secs(5);
/// adjtimex(2).
const STA_UNSYNC: u32 = 0x40;

pub fn by_timesyncd(topic_root: &TopicRoot) -> bool {
    topic_root.path(SYNCHRONIZED).exists()
}

/// Why the wall clock cannot be trusted, with the next step; `None` when it follows a time server.
pub async fn trouble(topic_root: &TopicRoot) -> Option<String> {
    if by_timesyncd(topic_root) {
        return None;
    }
    let why = by_kernel(topic_root).await?;
    let Some(program) = CHRONYC.map(|it| topic_root.path(it)).into_iter().find(|it| it.exists()) else {
        return Some(why);
    };
    match program::call(&program, &["-c", "-n", "tracking"], LIMIT).await {
        Ok(said) if follows(&said) => None,
        Ok(_) => Some(
            "the wall clock follows no time server: chrony is not synchronised; `chronyc sources` shows whom it asks"
                .to_owned(),
        ),
        Err(error) => Some(format!("{why}; chrony does not answer: {error}")),
    }
}

/// Whether chrony follows a server, by one line of `chronyc -c tracking`.
fn follows(said: &str) -> bool {
    let columns: Vec<&str> = said.trim().split(',').collect();
    let stratum = columns.get(STRATUM).and_then(|it| it.parse::<u8>().ok());
    let leap = columns.last().is_some_and(|it| LEAPS.contains(it));
    let somebody = columns.first().is_some_and(|it| !NOBODY.contains(it))
        && columns.get(1).is_some_and(|it| !it.starts_with(ITSELF));
    columns.len() > STRATUM + 1 && somebody && leap && stratum.is_some_and(|it| (1..16).contains(&it))
}

async fn by_kernel(topic_root: &TopicRoot) -> Option<String> {
    let Some(program) = PROGRAMS.map(|it| topic_root.path(it)).into_iter().find(|it| it.exists()) else {
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
    fn machine(script: Option<&str>) -> (tempfile::TempDir, TopicRoot) {
        with_programs(&[("sbin/adjtimex", script)])
    }

    fn with_programs(all: &[(&str, Option<&str>)]) -> (tempfile::TempDir, TopicRoot) {
        let root = tempfile::tempdir().unwrap();
        for (path, script) in all.iter().filter_map(|(path, script)| Some((path, (*script)?))) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            store::replace(&path, format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let topic_root = TopicRoot::open(root.path()).unwrap();
        (root, topic_root)
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
            let (_root, topic_root) = machine(script);
            let found = trouble(&topic_root).await;
            match trouble_with {
                None => assert_eq!(found, None, "{script:?}"),
                Some(words) => {
                    assert!(found.as_ref().is_some_and(|it| it.contains(words)), "{script:?}: {found:?}");
                }
            }
        }
    }

    #[tokio::test]
    async fn u9_chrony_without_rtcsync_is_asked_itself_and_what_it_does_not_say_is_no_yes() {
        let (unsync, not) = (Some("echo 'status: 64 (UNSYNC)'"), Some("chrony is not synchronised"));
        let of = |stratum: &str, leap: &str| {
            format!(
                "C0A80101,192.168.1.1,{stratum},1773480600.1,0.0001,0.0002,0.0003,-1.2,0.0,0.1,0.01,0.002,64.5,{leap}"
            )
        };
        for (kernel, chrony, trouble_with) in [
            (unsync, format!("echo '{}'", of("3", "Normal")), None),
            (unsync, format!("echo '{}'", of("3", "Insert second")), None),
            (None, format!("echo '{}'", of("3", "Normal")), None),
            (unsync, format!("echo '{}'", of("3", "Delete second")), None),
            // It follows itself, as with `local stratum 10` and no source.
            (unsync, "echo '7F7F0101,,10,1773480600.1,0,0,0,0,0,0,1,1,64.5,Normal'".to_owned(), not),
            (
                unsync,
                "echo '7F7F0101,127.127.1.1,10,1773480600.1,0,0,0,0,0,0,1,1,64.5,Normal'".to_owned(),
                not,
            ),
            (
                unsync,
                "echo '0A000001,127.127.1.0,10,1773480600.1,0,0,0,0,0,0,1,1,64.5,Normal'".to_owned(),
                not,
            ),
            (unsync, format!("echo '{}'", of("3", "Some later word")), not),
            // Its state after a start, and with a server that is gone for good.
            (unsync, format!("echo '{}'", of("0", "Not synchronised")), not),
            (unsync, format!("echo '{}'", of("16", "Normal")), not),
            (None, format!("echo '{}'", of("0", "Not synchronised")), not),
            (unsync, "echo Normal".to_owned(), not),
            (unsync, "echo ,,3,".to_owned(), not),
            (unsync, "echo '506 Cannot talk to daemon'; exit 1".to_owned(), Some("506 Cannot talk")),
        ] {
            let (_root, topic_root) =
                with_programs(&[("sbin/adjtimex", kernel), ("usr/bin/chronyc", Some(chrony.as_str()))]);
            let found = trouble(&topic_root).await;
            assert_eq!(found.is_some(), trouble_with.is_some(), "{chrony}: {found:?}");
            let words = trouble_with.unwrap_or_default();
            assert!(found.unwrap_or_default().contains(words), "{chrony}");
        }
    }

    #[tokio::test]
    async fn u9_systemds_file_is_enough() {
        let (root, topic_root) = machine(Some("echo 'status: 64'"));
        fs::create_dir_all(root.path().join("run/systemd/timesync")).unwrap();
        store::replace(&root.path().join(SYNCHRONIZED), b"").unwrap();
        assert_eq!(trouble(&topic_root).await, None);
    }
}
