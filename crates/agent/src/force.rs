//! The force file, with which a person overrides NodeDrainStatus: read here for all agents.
//!
//! Refused here: an order of an earlier boot. Not here: who may write one (`pubsub`, `watch::file`), what it may say
//! (`topics::read_force`), what an order means to an agent.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use pubsub::{FileRule, FileState, FileWatch, TopicRoot, store};
use topics::{FORCE_FILE, ForceFile, GoTime, NodeDrainStatus, read_force};
use tracing::warn;

use crate::{AgentContext, Error, Tasks};

/// Of [`FORCE_FILE`].
const FOLDER: &str = "persist/kube-status";
/// Used when /persist cannot be written: the reboot may be the cure. It counts where there is none under
/// /persist, by the same rules, and is lost at a reboot.
pub const FALLBACK: &str = "run/zedbox/force-NodeDrainStatus-global.json";
/// The first existing file counts.
pub const PLACES: [&str; 2] = [FORCE_FILE, FALLBACK];
/// Boot identity at the last check for orders of an earlier boot.
const LOOKED_IN: &str = "run/force-NodeDrainStatus-boot";
pub const LIMIT_BYTES: u64 = 4096;
const USERS_BYTES: u64 = 1 << 20;

/// Removes an order that was given in an earlier boot: it was meant for that boot. Every agent that reads
/// orders calls this first, so that none acts on an old one, whichever agent starts first. An order given
/// after the first of these calls stays. While it fails, [`Orders`] refuses what is under /persist.
///
/// Makes the folder of orders where it is missing, for root alone: a person writes there by hand.
pub fn forget_earlier_boot(context: &AgentContext) {
    if let Err(cause) = forgotten(context) {
        warn!(error = %step::chain(&cause), "cannot see to force files of an earlier boot; one under /persist is refused meanwhile");
    }
    let folder = context.topic_root.path(FOLDER);
    if let Err(error) = DirBuilder::new().recursive(true).mode(0o700).create(&folder) {
        warn!(path = %folder.display(), %error, "cannot make the folder of force files");
    }
}

fn forgotten(context: &AgentContext) -> Result<(), Error> {
    let (topic_root, boot) = (&context.topic_root, context.boot_id.as_bytes());
    let looked_in = topic_root.path(LOOKED_IN);
    let held = |path| store::read(path, LIMIT_BYTES);
    let note = |text: &[u8]| store::replace(&looked_in, text).map_err(Error::pubsub(LOOKED_IN));
    let away = |place| store::remove(&topic_root.path(place)).map_err(Error::pubsub(place));
    let half = [boot, b" but for /persist"].concat();
    match held(&looked_in).map_err(Error::pubsub(LOOKED_IN))? {
        Some(it) if it == boot => return Ok(()),
        Some(it) if it == half => {}
        Some(_) | None => {
            // Where `/run` survives a boot.
            away(FALLBACK)?;
            note(&half)?;
        }
    }
    // For the log only: a link or an overlong file is removed as well.
    let order = held(&topic_root.path(FORCE_FILE)).ok().flatten().unwrap_or_default();
    if away(FORCE_FILE)? {
        warn!(path = FORCE_FILE, content = %String::from_utf8_lossy(&order), "removed a force file of an earlier boot");
    }
    note(boot)
}

/// `None` before an agent has started under this root.
pub fn boot_of_agents(topic_root: &TopicRoot) -> Result<Option<String>, Error> {
    let note = store::read(&topic_root.path(LOOKED_IN), LIMIT_BYTES).map_err(Error::pubsub(LOOKED_IN))?;
    let id = |it: Vec<u8>| String::from_utf8_lossy(&it).split(' ').next().map(str::to_owned);
    Ok(note.and_then(id).filter(|it| !it.is_empty()))
}

/// Removes an order, for example one that was carried out; false when there was none.
pub fn remove(topic_root: &TopicRoot) -> Result<bool, Error> {
    let [first, second] =
        PLACES.map(|place| store::remove(&topic_root.path(place)).map_err(Error::pubsub(place)));
    Ok(first? | second?)
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OrderedBy {
    /// Owner of the file.
    pub uid: u32,
    pub name: String,
    /// Modification time of the file.
    pub written: GoTime,
    /// The order's `By`, such as the caller of `sudo`; may be empty.
    pub by: String,
    pub reason: String,
}

/// Follows the force file.
pub struct Orders {
    context: AgentContext,
    /// For each of [`PLACES`] its present state.
    watches: [(FileWatch, Option<FileState>); 2],
}

impl Orders {
    /// Needs a runtime.
    pub fn open(context: &AgentContext) -> Self {
        let rule = FileRule { limit_bytes: LIMIT_BYTES, order: true };
        let watch = |place| (context.topic_root.file(context.topic_root.path(place), rule), None);
        Self { watches: PLACES.map(watch), context: context.clone() }
    }

    /// The present order at the first call, then each new one: the ordered status, `None` without a file, or
    /// why the file does not count; with its author if known. Dropping it loses nothing.
    pub async fn next(&mut self) -> (Result<Option<NodeDrainStatus>, String>, Option<OrderedBy>) {
        let [(first, at_first), (second, at_second)] = &mut self.watches;
        loop {
            tokio::select! {
                file = first.next() => *at_first = Some(file),
                file = second.next() => *at_second = Some(file),
            }
            if at_first.is_some() && at_second.is_some() {
                break;
            }
        }
        let (watch, file) = match &at_first {
            None | Some(FileState::Absent) => (second, &at_second),
            Some(FileState::Present(_) | FileState::Bad(_)) => (first, &at_first),
        };
        let note = match file {
            Some(FileState::Present(bytes)) => ForceFile::read(bytes),
            None | Some(FileState::Absent | FileState::Bad(_)) => ForceFile::default(),
        };
        let by = watch.author().map(|it| OrderedBy {
            uid: it.uid,
            name: user_name(&self.context.topic_root, it.uid).unwrap_or_default(),
            written: jiff::Timestamp::try_from(it.written).map(GoTime::from).unwrap_or_default(),
            by: note.by,
            reason: note.reason,
        });
        let file = (*file).clone().unwrap_or(FileState::Absent);
        if matches!(at_first, Some(FileState::Present(_)))
            && let Err(cause) = forgotten(&self.context)
        {
            let why = format!(
                "it may be of an earlier boot and cannot be removed ({}); while /persist cannot be written, `zedbox \
                 drain force` puts an order of this boot at /{FALLBACK}",
                step::chain(&cause)
            );
            return (Err(why), by);
        }
        (order(file), by)
    }
}

/// From the user list under the root, or the machine's.
fn user_name(topic_root: &TopicRoot, uid: u32) -> Option<String> {
    [topic_root.path("etc/passwd"), PathBuf::from("/etc/passwd")].iter().find_map(|path| {
        let bytes = store::read(path, USERS_BYTES).ok().flatten()?;
        name_in(&String::from_utf8_lossy(&bytes), uid)
    })
}

/// The name beside `uid` in lines such as `root:x:0:0:root:/root:/bin/sh`.
fn name_in(users: &str, uid: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut members = line.split(':');
        let (name, number) = (members.next()?, members.nth(1)?);
        (number.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

impl<E: Send + 'static> Tasks<E> {
    /// Follows the force file: the ordered status, `None` without a file, or why the file does not count.
    /// Only root, or the user of this program, can give an order.
    pub fn follow_force(
        &mut self,
        context: &AgentContext,
        mut to_event: impl FnMut(Result<Option<NodeDrainStatus>, String>) -> E + Send + 'static,
    ) {
        let mut orders = Orders::open(context);
        self.events(format!("follow {FORCE_FILE}"), move |outbox| async move {
            loop {
                let (order, _) = orders.next().await;
                if !outbox.send(to_event(order)).await {
                    return;
                }
            }
        });
    }
}

fn order(file: FileState) -> Result<Option<NodeDrainStatus>, String> {
    match file {
        FileState::Absent => Ok(None),
        FileState::Present(bytes) => read_force(&bytes).map(Some).map_err(|cause| cause.to_string()),
        FileState::Bad(finding) => Err(finding.reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_context;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    #[tokio::test]
    async fn an_order_of_an_earlier_boot_is_removed_by_the_first_agent_and_one_of_this_boot_stays() {
        let root = tempfile::tempdir().unwrap();
        let there = || root.path().join(FORCE_FILE).exists();
        let give =
            || store::replace(&root.path().join(FORCE_FILE), br#"{"Status":9,"RequestedBy":2}"#).unwrap();
        give();
        forget_earlier_boot(&test_context(root.path(), "boot-1").1);
        assert!(!there());
        give();
        // Another agent of the same boot, or the same one started again.
        forget_earlier_boot(&test_context(root.path(), "boot-1").1);
        assert!(there());
        // `/run` goes with a boot; where it does not, the identity shows it.
        forget_earlier_boot(&test_context(root.path(), "boot-2").1);
        assert!(!there());
    }

    #[tokio::test]
    async fn c2_the_three_orders_of_the_manual_count_as_typed_on_a_machine_where_nobody_made_their_folder() {
        for (status, requester) in [(1, 1), (9, 2), (9, 3)] {
            let root = tempfile::tempdir().unwrap();
            let (_stopper, here) = test_context(root.path(), "boot-1");
            forget_earlier_boot(&here);
            let mode = std::fs::metadata(root.path().join(FOLDER)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
            let line = format!(r#"echo '{{"Status":{status},"RequestedBy":{requester}}}' > {FORCE_FILE}"#);
            let typed = ["-c", &format!("umask 022; {line}")];
            let ended = Command::new("sh").args(typed).current_dir(root.path()).status().unwrap();
            assert!(ended.success());
            let order = Orders::open(&here).next().await.0.unwrap().unwrap();
            assert_eq!((order.status.number(), order.requested_by.number()), (status, requester));
        }
    }

    #[tokio::test]
    async fn s6_an_order_says_who_gives_it_and_why_and_one_that_does_not_is_as_good() {
        let root = tempfile::tempdir().unwrap();
        let (_stopper, here) = test_context(root.path(), "boot-1");
        forget_earlier_boot(&here);
        for (more, by, reason) in [
            (r#","Reason":"server is lost","By":"field""#, "field", "server is lost"),
            ("", "", ""),
            // Text is optional: an invalid one is ignored.
            (r#","Reason":7,"By":["field"]"#, "", ""),
        ] {
            let text = format!(r#"{{"Status":9,"RequestedBy":2{more}}}"#);
            store::replace(&here.topic_root.path(FORCE_FILE), text.as_bytes()).unwrap();
            let (order, author) = Orders::open(&here).next().await;
            assert_eq!(order.unwrap().unwrap().to_string(), "{Complete 2}", "{text}");
            let author = author.unwrap();
            assert_eq!((author.by.as_str(), author.reason.as_str()), (by, reason), "{text}");
        }
    }

    #[tokio::test]
    async fn an_order_under_run_counts_where_there_is_none_under_persist_and_goes_with_its_boot() {
        let root = tempfile::tempdir().unwrap();
        let (_stopper, here) = test_context(root.path(), "boot-1");
        forget_earlier_boot(&here);
        let give = |place, text: &str| store::replace(&root.path().join(place), text.as_bytes()).unwrap();
        let mut orders = Orders::open(&here);
        assert_eq!(orders.next().await.0, Ok(None));
        give(FALLBACK, r#"{"Status":9,"RequestedBy":2}"#);
        let order = orders.next().await.0.unwrap().unwrap();
        assert_eq!((order.status.number(), order.requested_by.number()), (9, 2));
        // The one under /persist comes first.
        give(FORCE_FILE, r#"{"Status":8,"RequestedBy":2}"#);
        assert_eq!(orders.next().await.0.unwrap().unwrap().status.number(), 8);
        assert!(remove(&here.topic_root).unwrap());
        assert!(!root.path().join(FALLBACK).exists() && !root.path().join(FORCE_FILE).exists());
        give(FALLBACK, r#"{"Status":9,"RequestedBy":2}"#);
        forget_earlier_boot(&test_context(root.path(), "boot-2").1);
        assert!(!root.path().join(FALLBACK).exists());
    }
}
