//! A panic of agents: the process leaves a reason and its stack in the files of the machine's tools, and ends
//! at once. Half an agent is worse than a restart; the state is on disk.
//!
//! Not here: the files (`agent::reasons`).

use std::backtrace::Backtrace;
use std::env;
use std::ffi::OsString;
use std::io::{Write as _, stderr};
use std::os::unix::process::CommandExt as _;
use std::panic::{self, PanicHookInfo};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use agent::{Clock, reasons};
use pubsub::TopicRoot;
use tracing::warn;

use crate::log;

/// How long the end of the process waits for these files.
const LONGEST: Duration = Duration::from_secs(5);

/// Whether the program has unwind tables. Without them the unwinder of a statically linked program ends the
/// process when it is asked for a stack.
const HAS_STACKS: bool = cfg!(not(no_unwind_tables));
/// Variables that request the stack of each error.
const ASKS: [&str; 2] = ["RUST_BACKTRACE", "RUST_LIB_BACKTRACE"];

/// The same program and arguments without these variables, which a program without tables cannot honour: each
/// error would end it without a message. `None` where none is set.
pub(crate) fn without_stacks(words: &[OsString]) -> Option<Command> {
    let asks = |it: &&str| env::var_os(it).is_some_and(|value| value != "0");
    if HAS_STACKS || !ASKS.iter().any(asks) {
        return None;
    }
    let (name, words) = words.split_first()?;
    let mut again = Command::new(env::current_exe().ok()?);
    for variable in ASKS {
        again.env_remove(variable);
    }
    again.arg0(name).args(words);
    Some(again)
}

/// From now on a panic of this process, which runs `agent`, is a reason for the machine to restart; that of
/// an earlier process of the same agent in this boot no longer is.
pub(crate) fn leave_traces(topic_root: &TopicRoot, agent: &'static str, clock: Clock) {
    match reasons::survived(topic_root, agent) {
        Ok(None) => {}
        Ok(Some(line)) => warn!(
            line,
            "runs again after a panic, which is no reason of a restart of the machine; the stack is in {} and \
             persist/agentdebug/{agent}",
            reasons::STACK_LOG
        ),
        Err(cause) => {
            warn!(error = %step::chain(&cause), "cannot remove the reason of a panic that is over");
        }
    }
    let topic_root = Arc::new(topic_root.clone());
    panic::set_hook(Box::new(move |info| {
        let (topic_root, text) = (Arc::clone(&topic_root), text(info));
        let stack = HAS_STACKS.then(Backtrace::force_capture);
        let traces = Arc::new(move || {
            let stack = shown(&stack.as_ref().map_or_else(String::new, ToString::to_string));
            let stored = reasons::fatal(&topic_root, agent, &text, &stack, clock.wall());
            log::flush();
            // Not through the log: its lock may be held by the panicking thread. newlogd keeps lines from
            // `panic:` on as a stack. A failure of this cannot be reported.
            drop(writeln!(stderr(), "panic: {text}\n\n{agent} [running]:\n{}", stack.trim_end()));
            if let Err(cause) = stored {
                drop(writeln!(stderr(), "cannot store the reason: {}", step::chain(&cause)));
            }
        });
        // The panicking thread may hold a lock that this takes, a disk or a reader of the log may hang: the
        // process ends all the same.
        let (says, done) = mpsc::channel();
        let beside = Arc::clone(&traces);
        let started = thread::Builder::new().spawn(move || {
            beside();
            says.send(())
        });
        match started {
            Ok(_) => drop(done.recv_timeout(LONGEST)),
            // Without a free thread it runs here.
            Err(_) => traces(),
        }
        std::process::abort();
    }));
}

/// Message and place.
fn text(info: &PanicHookInfo<'_>) -> String {
    let said = info.payload_as_str().unwrap_or("no text");
    info.location().map_or(said.to_owned(), |at| format!("{said}, {}:{}", at.file(), at.line()))
}

/// The stack, or why there is none.
fn shown(stack: &str) -> String {
    let is_known = |line: &str| !line.trim().is_empty() && !line.trim_end().ends_with("<unknown>");
    if stack.lines().any(is_known) {
        return stack.to_owned();
    }
    "no stack: this program was built without tables for unwinding, or without names; the profile `field` has both".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Stdio;

    /// Set in the panicking process.
    const ROOT: &str = "PANICS_ON_ROOT";

    #[test]
    fn e2_a_process_that_panics_ends_with_a_reason_and_a_stack_and_its_next_start_is_no_reason() {
        if let Some(root) = env::var_os(ROOT) {
            leave_traces(&TopicRoot::open(root).unwrap(), "zedkube", Clock::new());
            // Also in a joined thread, whose owner would continue.
            drop(thread::spawn(|| panic!("{} of the test", "made up")).join());
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let name = "panic::tests::e2_a_process_that_panics_ends_with_a_reason_and_a_stack_and_its_next_start_is_no_reason";
        let mut process = Command::new(env::current_exe().unwrap());
        let ended = process.args([name, "--exact", "--nocapture"]).env(ROOT, root.path()).output().unwrap();
        assert_eq!(ended.status.signal(), Some(6));
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(said.lines().any(|line| line.starts_with("panic: made up of the test, ")), "{said}");
        let text = |file: &str| std::fs::read_to_string(topic_root.path(file)).unwrap_or_default();
        let line = text(reasons::REASON);
        assert!(
            line.starts_with("Reboot from agent zedkube[") && line.contains(": made up of the test, "),
            "{line}"
        );
        assert_eq!(text(reasons::NUMBER), "BootReasonFatal");
        for file in [reasons::STACK, "persist/agentdebug/zedkube/fatal-stack"] {
            assert!(text(file).contains("tests::e2_a_process_that_panics"), "{}", text(file));
        }
        assert_eq!(reasons::survived(&topic_root, "zedkube").unwrap().as_deref(), Some(line.trim_end()));
        assert_eq!((text(reasons::REASON), text(reasons::LOG)), (String::new(), line));
    }

    /// As in the profiles `image` and `field`.
    #[test]
    fn e2_a_stack_of_which_nothing_is_known_says_so() {
        for none in ["", "   0: <unknown>\n", "   0: <unknown>\n   1: <unknown>\n"] {
            assert!(shown(none).starts_with("no stack: ") && shown(none).contains("`field`"), "{none}");
        }
        let some = "   0: zedbox::main\n             at ./src/main.rs:5:15\n   1: <unknown>\n";
        assert_eq!(shown(some), some);
    }

    #[test]
    fn e2_a_process_ends_with_a_reason_though_nobody_reads_what_it_says() {
        if let Some(root) = env::var_os(ROOT) {
            leave_traces(&TopicRoot::open(root).unwrap(), "zedkube", Clock::new());
            panic!("{}", "more than a pipe holds".repeat(1 << 16));
        }
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let name = "panic::tests::e2_a_process_ends_with_a_reason_though_nobody_reads_what_it_says";
        let mut process = Command::new(env::current_exe().unwrap());
        process.args([name, "--exact", "--nocapture"]).env(ROOT, root.path()).stderr(Stdio::piped());
        let mut process = process.stdout(Stdio::null()).spawn().unwrap();
        let unread = process.stderr.take();
        assert_eq!(process.wait().unwrap().signal(), Some(6));
        drop(unread);
        assert_eq!(std::fs::read_to_string(topic_root.path(reasons::NUMBER)).unwrap(), "BootReasonFatal");
    }
}
