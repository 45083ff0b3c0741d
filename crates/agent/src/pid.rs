//! `/run/<agent>.pid`: which process an agent is, for the machine's watchdog and its scripts.
//!
//! That two processes do not serve the same topics is held by the topics' locks; this file says so earlier and in
//! better words. Source: spec pubsub.md 10.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process;

use pubsub::store;

use crate::{Error, Station};

/// Scripts of any user may read it.
const MODE: u32 = 0o644;
/// No process number is longer.
const LIMIT_BYTES: u64 = 64;
/// The program that runs agents, this one and the reference's.
const PROGRAM: &str = "zedbox";
/// Its word for all agents; the reference's runs all without a word.
const ALL: &str = "run";

/// Writes this process's number to the file of `agent`. The file stays when the process ends, as in the reference.
///
/// # Errors
/// Another live process of a pillar is named there, or the file cannot be written. A number that meanwhile belongs
/// to some other program hinders nothing.
pub fn write(station: &Station, agent: &str) -> Result<(), Error> {
    let name = format!("run/{agent}.pid");
    let path = station.bus.path(&name);
    let failed = || Error::pubsub(name.clone());
    let other = running(&path, agent).map_err(failed())?;
    if let Some(pid) = other.filter(|pid| *pid != process::id()) {
        return Err(Error::Already { pid, path });
    }
    store::replace(&path, process::id().to_string().as_bytes()).map_err(failed())?;
    fs::set_permissions(&path, Permissions::from_mode(MODE)).map_err(|cause| Error::Effect {
        doing: "make the pid file readable",
        reason: format!("{}: {cause}", path.display()),
    })
}

/// The live process of `agent` that the file at `path` names; `None` without a file, or when that process is gone
/// or another program's.
///
/// # Errors
/// The file is a link or cannot be read.
pub fn running(path: &Path, agent: &str) -> Result<Option<u32>, pubsub::Error> {
    let held = store::read(path, LIMIT_BYTES)?.unwrap_or_default();
    let named = String::from_utf8_lossy(&held).trim().parse::<u32>().ok();
    Ok(named.filter(|pid| runs_agent(*pid, agent)))
}

/// Whether the process exists and was started in words that run `agent`: under the agent's name, or as the program
/// for all agents or for this one. One that runs another agent may have got the number of a dead one.
fn runs_agent(pid: u32, agent: &str) -> bool {
    let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let line = String::from_utf8_lossy(&line);
    let mut words = line.split('\0').filter(|word| !word.is_empty());
    let called = words.next().and_then(|word| Path::new(word).file_name()).and_then(|name| name.to_str());
    match called {
        Some(name) if name == agent => true,
        Some(PROGRAM) => {
            let words: Vec<&str> = words.collect();
            words.is_empty() || words.contains(&ALL) || words.contains(&agent)
        }
        Some(_) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::station;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    #[test]
    fn the_file_holds_the_bare_number_for_all_to_read() {
        let root = tempfile::tempdir().unwrap();
        // Twice: an agent that failed is started again in the same process.
        for _ in 0..2 {
            write(&station(root.path(), "").1, "zedkube").unwrap();
            let file = root.path().join("run/zedkube.pid");
            assert_eq!(fs::read_to_string(&file).unwrap(), process::id().to_string());
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
        }
    }

    #[test]
    fn a_live_process_of_that_agent_is_respected_and_a_stranger_with_its_number_is_not() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("run/zedkube.pid");
        for (name, word, refused) in [
            ("/usr/bin/zedkube", "-", true),
            ("zedbox", "run", true),
            ("/opt/zedbox", "zedkube", true),
            ("zedbox", "zedagent", false),
            ("sleeper", "zedkube", false),
        ] {
            // The second word is a file that `cat` reads after it has waited for the first one's end.
            let mut other = Command::new("cat")
                .arg0(name)
                .args(["-", word])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            store::replace(&file, other.id().to_string().as_bytes()).unwrap();
            let written = write(&station(root.path(), "").1, "zedkube");
            assert_eq!(written.is_err(), refused, "{name} {word}");
            if let Err(cause) = written {
                assert!(cause.to_string().contains(&other.id().to_string()), "{cause}");
            }
            other.kill().unwrap();
            other.wait().unwrap();
            write(&station(root.path(), "").1, "zedkube").unwrap();
        }
    }
}
