//! Why the machine goes down, in the files that the reference's tools read: the reason, the name of its
//! number, the image, the stack of a crashed process.
//!
//! Not here: what an operation writes, and how the next boot uses it (nodeagent).

use pubsub::{TopicRoot, store};
use topics::GoTime;

/// The reason: lines of text, of which nodeagent writes one.
pub const REASON: &str = "persist/reboot-reason";
/// The reason as the name of a number.
pub const NUMBER: &str = "persist/boot-reason";
/// The partition that ran.
pub const IMAGE: &str = "persist/reboot-image";
/// Stack of a crashed process.
pub const STACK: &str = "persist/reboot-stack";
/// All of them, for people.
pub const LOG: &str = "persist/log/reboot-reason.log";
pub const STACK_LOG: &str = "persist/log/reboot-stack.log";
/// For a crashed process.
const FATAL: &str = "BootReasonFatal";
/// A longer log is cut before the next line.
pub const LOG_LIMIT_BYTES: u64 = 1 << 20;
/// Kept of its end then.
const LOG_KEPT_BYTES: u64 = 512 << 10;
const WORD_LIMIT_BYTES: u64 = 256;
/// The byte in blocks that were never written, as after a power cut on some file systems.
pub const UNWRITTEN: u8 = 0;
const UNKNOWN: &str = "Unknown";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningImage {
    pub version: String,
    /// Its partition's label, if known.
    pub label: Option<String>,
}

impl RunningImage {
    /// From the image's files under `/run`.
    pub fn running(topic_root: &TopicRoot) -> Self {
        let word = |file: &str| {
            let bytes = store::read_start(&topic_root.path(file), WORD_LIMIT_BYTES).ok().flatten()?;
            let text = String::from_utf8_lossy(&bytes).trim().to_owned();
            (!text.is_empty()).then_some(text)
        };
        Self {
            version: word("run/eve-release").unwrap_or_else(|| UNKNOWN.to_owned()),
            label: word("run/eve.id"),
        }
    }
}

/// Appends `text` to a log that the reference's agents write as well. A very long one is first cut to its
/// last whole lines.
pub fn append(topic_root: &TopicRoot, log: &str, text: &str) -> Result<(), pubsub::Error> {
    store::append(&topic_root.path(log), text.as_bytes(), LOG_LIMIT_BYTES, LOG_KEPT_BYTES)
}

/// Whether a reason is stored: the first one is the cause, later ones follow from it (D-N4).
pub fn is_stored(topic_root: &TopicRoot) -> Result<bool, pubsub::Error> {
    let held = store::read_start(&topic_root.path(NUMBER), WORD_LIMIT_BYTES)?;
    Ok(held.is_some_and(|bytes| bytes.iter().any(|it| !it.is_ascii_whitespace() && *it != UNWRITTEN)))
}

/// Records that this process, which runs `agent`, ends by a panic: `text` is the reason, `stack` the place.
/// One that is not restarted is a reason for the machine's watchdog.
pub fn fatal(
    topic_root: &TopicRoot,
    agent: &str,
    text: &str,
    stack: &str,
    now: GoTime,
) -> Result<(), pubsub::Error> {
    let RunningImage { version, label } = RunningImage::running(topic_root);
    let (label, pid) = (label.unwrap_or_else(|| UNKNOWN.to_owned()), std::process::id());
    let text = text.lines().collect::<Vec<_>>().join(" ");
    let line = format!(
        "Reboot from agent {agent}[{pid}] in partition {label} at EVE version {version} at {}: {text}\n",
        now.rfc3339()
    );
    let stack = format!("{}\n", stack.trim_end());
    let own = |file: &str| format!("persist/agentdebug/{agent}/{file}");
    let mut files = vec![(own("fatal-reason"), line.as_str()), (own("fatal-stack"), stack.as_str())];
    let stored = is_stored(topic_root);
    if matches!(stored, Ok(false)) {
        let first = [(mark(agent), line.as_str()), (REASON.into(), &line), (STACK.into(), &stack)];
        files.extend(first);
        // The file whose time stamp counts for all comes last.
        files.extend([(IMAGE.into(), label.as_str()), (NUMBER.into(), FATAL)]);
    }
    let written = files.iter().map(|(file, text)| store::replace(&topic_root.path(file), text.as_bytes()));
    let logged = [append(topic_root, LOG, &line), append(topic_root, STACK_LOG, &stack)];
    // All of them, even if one fails.
    let outcomes: Vec<_> = written.chain(logged).collect();
    outcomes.into_iter().chain([stored.map(drop)]).collect()
}

/// Removes a reason that only names a panic of `agent`, once `agent` runs again in the same boot: the machine
/// does not go down for that (D-V29). The logs and `agentdebug` keep it. Returns the removed line.
pub fn survived(topic_root: &TopicRoot, agent: &str) -> Result<Option<String>, pubsub::Error> {
    let marked = topic_root.path(&mark(agent));
    let Some(line) = store::read_start(&marked, LOG_LIMIT_BYTES)? else { return Ok(None) };
    let alone =
        store::read_start(&topic_root.path(REASON), LOG_LIMIT_BYTES)?.is_some_and(|held| held == line);
    if alone {
        for file in [IMAGE, STACK, REASON, NUMBER] {
            store::remove(&topic_root.path(file))?;
        }
    }
    store::remove(&marked)?;
    Ok(alone.then(|| String::from_utf8_lossy(&line).trim_end().to_owned()))
}

/// Marks that `agent` has written the reason; lost at a reboot.
fn mark(agent: &str) -> String {
    format!("run/{agent}.panic")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> (tempfile::TempDir, TopicRoot) {
        let dir = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(dir.path()).unwrap();
        for (file, text) in [("run/eve-release", "14.5.0-k-amd64\n"), ("run/eve.id", "IMGB\n")] {
            store::replace(&topic_root.path(file), text.as_bytes()).unwrap();
        }
        (dir, topic_root)
    }

    fn text(topic_root: &TopicRoot, file: &str) -> Option<String> {
        let bytes = store::read(&topic_root.path(file), 2 << 20).unwrap()?;
        Some(String::from_utf8(bytes).unwrap())
    }

    fn line(why: &str) -> String {
        let pid = std::process::id();
        format!(
            "Reboot from agent zedkube[{pid}] in partition IMGB at EVE version 14.5.0-k-amd64 at \
             2026-03-14T09:26:53Z: {why}\n"
        )
    }

    fn now() -> GoTime {
        "2026-03-14T09:26:53Z".parse().unwrap()
    }

    #[test]
    fn e2_a_panic_is_in_every_file_in_which_the_references_tools_look() {
        let (_dir, topic_root) = root();
        fatal(&topic_root, "zedkube", "index out of bounds,\nsrc/a.rs:7", "0: a\n1: b", now()).unwrap();
        let (line, stack) = (line("index out of bounds, src/a.rs:7"), "0: a\n1: b\n".to_owned());
        for (file, expected) in [
            (REASON, &line),
            (LOG, &line),
            ("persist/agentdebug/zedkube/fatal-reason", &line),
            (STACK, &stack),
            (STACK_LOG, &stack),
            ("persist/agentdebug/zedkube/fatal-stack", &stack),
            (NUMBER, &"BootReasonFatal".to_owned()),
            (IMAGE, &"IMGB".to_owned()),
        ] {
            assert_eq!(text(&topic_root, file).as_ref(), Some(expected), "{file}");
        }
    }

    #[test]
    fn d_n4_a_panic_leaves_the_reason_that_is_stored_and_is_in_the_logs() {
        let (_dir, topic_root) = root();
        store::replace(&topic_root.path(NUMBER), b"BootReasonRebootCmd").unwrap();
        store::replace(&topic_root.path(REASON), b"first\n").unwrap();
        fatal(&topic_root, "zedkube", "second", "0: a", now()).unwrap();
        assert_eq!(text(&topic_root, REASON).as_deref(), Some("first\n"));
        assert_eq!(text(&topic_root, NUMBER).as_deref(), Some("BootReasonRebootCmd"));
        assert_eq!((text(&topic_root, STACK), text(&topic_root, LOG)), (None, Some(line("second"))));
        assert_eq!(survived(&topic_root, "zedkube").unwrap(), None);
        assert_eq!(text(&topic_root, REASON).as_deref(), Some("first\n"));
    }

    #[test]
    fn d_v29_an_agent_that_runs_again_after_a_panic_is_no_reason_of_the_next_boot() {
        let (_dir, topic_root) = root();
        assert_eq!(survived(&topic_root, "zedkube").unwrap(), None);
        fatal(&topic_root, "zedkube", "x", "0: a", now()).unwrap();
        assert_eq!(survived(&topic_root, "nodeagent").unwrap(), None, "not its own");
        assert_eq!(survived(&topic_root, "zedkube").unwrap(), Some(line("x").trim_end().to_owned()));
        for file in [REASON, NUMBER, IMAGE, STACK] {
            assert_eq!(text(&topic_root, file), None, "{file}");
        }
        assert_eq!(text(&topic_root, LOG), Some(line("x")));
        // What the watchdog adds makes it a reason.
        fatal(&topic_root, "zedkube", "y", "0: a", now()).unwrap();
        let more = format!("{}Watchdog report for IMGB\n", line("y"));
        store::replace(&topic_root.path(REASON), more.as_bytes()).unwrap();
        assert_eq!(survived(&topic_root, "zedkube").unwrap(), None);
        assert_eq!(text(&topic_root, REASON), Some(more));
    }

    #[test]
    fn a_log_keeps_its_end_in_whole_lines() {
        let (_dir, topic_root) = root();
        append(&topic_root, LOG, "one\n").unwrap();
        let before = "short\n".repeat(usize::try_from(LOG_LIMIT_BYTES / 6).unwrap());
        store::replace(&topic_root.path(LOG), before.as_bytes()).unwrap();
        append(&topic_root, LOG, "a stack of some lines\n").unwrap();
        assert_eq!(text(&topic_root, LOG).unwrap(), before + "a stack of some lines\n", "not yet too long");
        append(&topic_root, LOG, "last\n").unwrap();
        let log = text(&topic_root, LOG).unwrap();
        assert!(log.starts_with("short\nshort\n") && log.ends_with("\na stack of some lines\nlast\n"));
        let kept = u64::try_from(log.len()).unwrap();
        assert!(kept > LOG_KEPT_BYTES - 9 && kept < LOG_KEPT_BYTES + 9, "{kept}");
    }

    #[test]
    fn a_log_of_others_keeps_every_byte_and_a_link_in_its_place_is_refused() {
        let (dir, topic_root) = root();
        // Longer than what is left of one that is cut, and no good text.
        let mut stacks = [b"goroutine 1 [running]:\n\xff\xfe ".as_slice(), &vec![b'x'; 700 << 10]].concat();
        store::replace(&topic_root.path(STACK_LOG), &stacks).unwrap();
        fatal(&topic_root, "zedkube", "x", "0: a", now()).unwrap();
        stacks.extend(b"0: a\n");
        assert!(store::read(&topic_root.path(STACK_LOG), 1 << 20).unwrap().is_some_and(|all| all == stacks));
        let aim = dir.path().join("aim");
        store::replace(&aim, b"of somebody else").unwrap();
        std::os::unix::fs::symlink(&aim, topic_root.path(LOG).with_file_name("link")).unwrap();
        assert!(append(&topic_root, "persist/log/link", "x\n").is_err());
        assert_eq!(store::read(&aim, 99).unwrap().unwrap(), b"of somebody else");
    }

    #[test]
    fn an_image_that_says_nothing_of_itself_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(dir.path()).unwrap();
        assert_eq!(
            RunningImage::running(&topic_root),
            RunningImage { version: "Unknown".into(), label: None }
        );
    }
}
