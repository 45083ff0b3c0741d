//! `/run/<agent>.pid`: the process of an agent, for the machine's watchdog and its scripts.
//!
//! The topics' locks prevent two publishers; one of them is checked here for an earlier and clearer error.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process;

use pubsub::{TopicRoot, store};
use topics::Topic;

use crate::{AgentContext, Error, wire};

/// Readable for scripts of any user.
const MODE: u32 = 0o644;
const LIMIT_BYTES: u64 = 64;

/// Writes this process's number to the file of `agent`, which does not publish `T` yet. The file stays when
/// the process ends, as in the reference.
///
/// Errors: a live process, in any PID namespace, publishes that topic, or the file cannot be written. An old
/// number in the file is ignored.
pub fn write<T: Topic>(context: &AgentContext, agent: &str) -> Result<(), Error> {
    let path = path(&context.topic_root, agent);
    let failed = || Error::pubsub(path.display().to_string());
    if context.topic_root.is_published(&wire::name::<T>(agent)).map_err(failed())? == Some(true) {
        let held = store::read(&path, LIMIT_BYTES).map_err(failed())?.unwrap_or_default();
        return Err(Error::Already { pid: String::from_utf8_lossy(&held).trim().to_owned(), path });
    }
    put(&path)
}

/// Writes the file of `agent` again where it went with its directory; an existing one stays.
pub(crate) fn keep(topic_root: &TopicRoot, agent: &str) -> Result<(), Error> {
    let path = path(topic_root, agent);
    if path.exists() { Ok(()) } else { put(&path) }
}

fn path(topic_root: &TopicRoot, agent: &str) -> PathBuf {
    topic_root.path(&format!("run/{agent}.pid"))
}

fn put(path: &Path) -> Result<(), Error> {
    let written = store::replace(path, process::id().to_string().as_bytes());
    written.map_err(Error::pubsub(path.display().to_string()))?;
    fs::set_permissions(path, Permissions::from_mode(MODE)).map_err(|cause| Error::Effect {
        doing: "make the pid file readable",
        reason: format!("{}: {cause}", path.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_context;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};
    use topics::NodeDrainStatus;

    #[test]
    fn the_file_holds_the_bare_number_for_all_to_read() {
        let root = tempfile::tempdir().unwrap();
        // Twice: a failed agent is restarted in the same process.
        for _ in 0..2 {
            write::<NodeDrainStatus>(&test_context(root.path(), "").1, "zedkube").unwrap();
            let file = root.path().join("run/zedkube.pid");
            assert_eq!(fs::read_to_string(&file).unwrap(), process::id().to_string());
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
        }
    }

    #[test]
    fn t7_a_file_that_went_with_its_directory_is_written_again_and_one_that_is_there_stays() {
        let root = tempfile::tempdir().unwrap();
        let (_stopper, context) = test_context(root.path(), "");
        let file = root.path().join("run/zedkube.pid");
        write::<NodeDrainStatus>(&context, "zedkube").unwrap();
        fs::rename(root.path().join("run"), root.path().join("former")).unwrap();
        keep(&context.topic_root, "zedkube").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), process::id().to_string());
        store::replace(&file, b"1").unwrap();
        keep(&context.topic_root, "zedkube").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "1");
    }

    #[test]
    fn k8_whoever_publishes_is_respected_by_its_lock_and_a_number_or_name_means_nothing() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("run/zedkube.pid");
        let (_stopper, context) = test_context(root.path(), "");
        let mut named = Command::new("cat")
            .arg0("/usr/bin/zedkube")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        store::replace(&file, named.id().to_string().as_bytes()).unwrap();
        write::<NodeDrainStatus>(&context, "zedkube").unwrap();
        // A number of another PID namespace.
        store::replace(&file, b"4000000000").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let other = crate::publication::<NodeDrainStatus>(&context.topic_root, "zedkube").unwrap();
        let refused = write::<NodeDrainStatus>(&context, "zedkube").unwrap_err();
        assert!(refused.to_string().contains("4000000000"), "{refused}");
        drop(other);
        write::<NodeDrainStatus>(&context, "zedkube").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), process::id().to_string());
        named.kill().unwrap();
        named.wait().unwrap();
    }
}
