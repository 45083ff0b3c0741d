//! The drain request of a person with a shell: where it is and by which rule it is read, for the program that writes
//! it and the agent that serves it. And a person's pause, which several agents keep, as a level for each.
//!
//! Not here: what it says. It orders something, and may be written by any program of that person: so it is held to the
//! rule for orders (owner, mode, no link), which topics of agents are not.

use pubsub::{FileRule, FileState, FileWatch, TopicRoot};
use topics::{GoTime, OperationPause, PAUSE_FILE, go_json};
use tracing::warn;

use crate::{AgentContext, Clock, Tasks, report};

/// The topic `NodeDrainRequest` of `zedbox drain request`.
pub const FILE: &str = "run/zedbox/NodeDrainRequest/global.json";
/// No request is longer.
pub const RULE: FileRule = FileRule { limit_bytes: 64 << 10, order: true };

/// How a person's short word to an agent is read: that findings may pass, that a drain may start now.
pub const WORD: FileRule = FileRule { limit_bytes: 4096, order: true };

/// Follows the request. To be called within a runtime.
pub fn request(topic_root: &TopicRoot) -> FileWatch {
    topic_root.file(topic_root.path(FILE), RULE)
}

/// A person's pause as a level: the one that counts at this moment, or none.
pub struct Pauses {
    clock: Clock,
    watch: FileWatch,
    /// What the file says; `None` before it was read.
    #[expect(clippy::option_option, reason = "not read yet, and none, differ")]
    read: Option<Option<OperationPause>>,
    #[expect(clippy::option_option, reason = "not passed on yet, and none, differ")]
    told: Option<Option<OperationPause>>,
}

impl Pauses {
    /// Follows it from now on. To be called within a runtime.
    pub fn open(topic_root: &TopicRoot, clock: Clock) -> Self {
        Self { clock, watch: topic_root.file(topic_root.path(PAUSE_FILE), WORD), read: None, told: None }
    }

    /// The present one at the first call, then each other one; none once its time is over. A file that is refused changes
    /// nothing: what counted before counts. Dropping it loses nothing.
    pub async fn next(&mut self) -> Option<OperationPause> {
        let mut boots = self.clock.boots();
        loop {
            boots.mark_unchanged();
            if let Some(read) = &self.read {
                let counts = read.clone().filter(|it| !is_over(it, self.clock.wall()));
                if self.told.as_ref() != Some(&counts) {
                    self.told = Some(counts.clone());
                    return counts;
                }
            }
            let until = self.told.as_ref().and_then(|it| it.as_ref()).filter(|it| !it.until.is_zero());
            let ends = until.map(|it| self.clock.now() + it.until.apart(self.clock.wall()));
            tokio::select! {
                file = self.watch.next() => match file {
                    FileState::Absent => self.read = Some(None),
                    FileState::Present(bytes) => match go_json::from_slice::<OperationPause>(&bytes) {
                        Ok(it) if it.is_set() => self.read = Some(Some(it)),
                        Ok(_) => self.refused("it names nobody"),
                        Err(cause) => self.refused(&report::chain(&cause)),
                    },
                    FileState::Bad(finding) => self.refused(&finding.reason),
                },
                () = self.clock.sleep_until(ends) => {}
                // The wall clock was set: the end may be past.
                changed = boots.changed() => if changed.is_err() { std::future::pending().await },
            }
        }
    }

    fn refused(&mut self, why: &str) {
        warn!(
            path = PAUSE_FILE,
            "not taken for a pause: {why}; `zedbox pause` or `zedbox resume` replaces it"
        );
        self.read.get_or_insert(None);
    }
}

fn is_over(pause: &OperationPause, now: GoTime) -> bool {
    !pause.until.is_zero() && pause.until <= now
}

impl<E: Send + 'static> Tasks<E> {
    /// Passes each pause on that comes after the one that `pauses` has told, for good.
    pub fn follow_pause(
        &mut self,
        mut pauses: Pauses,
        to_event: impl Fn(Option<OperationPause>) -> E + Send + Sync + 'static,
    ) {
        self.events(format!("follow {PAUSE_FILE}"), move |outbox| async move {
            loop {
                let pause = pauses.next().await;
                if !outbox.send(to_event(pause)).await {
                    return;
                }
            }
        });
    }
}

impl AgentContext {
    /// A person's pause on this node.
    pub fn pauses(&self) -> Pauses {
        Pauses::open(&self.topic_root, self.clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pubsub::store;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::time::Duration;
    use topics::NodeDrainRequest;

    #[tokio::test]
    async fn the_file_is_that_of_the_topic_and_one_that_is_longer_than_a_request_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        assert_eq!(
            topic_root.path(FILE),
            crate::wire::path::<NodeDrainRequest>(&topic_root, "zedbox", "global")
        );
        std::fs::create_dir_all(topic_root.path(FILE).parent().unwrap()).unwrap();
        store::replace(&topic_root.path(FILE), &vec![b' '; 64 << 10]).unwrap();
        assert!(matches!(request(&topic_root).next().await, FileState::Present(_)));
        store::replace(&topic_root.path(FILE), &vec![b' '; (64 << 10) + 1]).unwrap();
        assert!(matches!(request(&topic_root).next().await, FileState::Bad(_)));
    }

    fn said(until: &str) -> OperationPause {
        let until = if until.is_empty() { GoTime::ZERO } else { until.parse().unwrap() };
        OperationPause { by: "field".into(), reason: "new disk".into(), until, ..OperationPause::default() }
    }

    fn put(topic_root: &TopicRoot, pause: &OperationPause) {
        store::replace(&topic_root.path(PAUSE_FILE), &go_json::to_vec(pause).unwrap()).unwrap();
    }

    #[tokio::test]
    async fn x3_a_pause_holds_until_a_person_removes_it_or_its_time_is_over() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let clock = Clock::new();
        let mut pauses = Pauses::open(&topic_root, clock);
        assert_eq!(pauses.next().await, None);
        put(&topic_root, &said(""));
        assert_eq!(pauses.next().await, Some(said("")));
        // Whoever starts later hears of it, as after a boot.
        assert_eq!(Pauses::open(&topic_root, clock).next().await, Some(said("")));
        store::remove(&topic_root.path(PAUSE_FILE)).unwrap();
        assert_eq!(pauses.next().await, None);
        // One that has an end ends by itself, whether anybody has seen it or not.
        put(
            &topic_root,
            &OperationPause { until: clock.wall().plus(Duration::from_millis(300)), ..said("") },
        );
        assert!(pauses.next().await.is_some());
        assert_eq!(pauses.next().await, None);
        put(&topic_root, &said("2020-01-01T00:00:00Z"));
        assert_eq!(Pauses::open(&topic_root, clock).next().await, None);
    }

    #[tokio::test]
    async fn x3_a_file_that_is_refused_neither_pauses_nor_ends_a_pause() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let path = topic_root.path(PAUSE_FILE);
        put(&topic_root, &said(""));
        let mut pauses = Pauses::open(&topic_root, Clock::new());
        assert_eq!(pauses.next().await, Some(said("")));
        let other = OperationPause { reason: "seen".into(), ..said("") };
        for torn in ["{", r#"{"By":""}"#, r#"{"By":7}"#] {
            store::replace(&path, torn.as_bytes()).unwrap();
            // The next one that counts is told, and nothing before it.
            put(&topic_root, &other);
            assert_eq!(pauses.next().await, Some(other.clone()), "{torn}");
            store::replace(&path, torn.as_bytes()).unwrap();
            put(&topic_root, &said(""));
            assert_eq!(pauses.next().await, Some(said("")), "{torn}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(Pauses::open(&topic_root, Clock::new()).next().await, None, "others can write it");
        store::remove(&path).unwrap();
        store::replace(&topic_root.path("elsewhere"), &go_json::to_vec(&other).unwrap()).unwrap();
        symlink(topic_root.path("elsewhere"), &path).unwrap();
        assert_eq!(Pauses::open(&topic_root, Clock::new()).next().await, None, "it is a link");
    }
}
