//! A person's drain request: its place and the rule for reading it, shared by the command that writes it and
//! the agent that serves it. And a person's pause, which several agents obey.
//!
//! Not here: the contents. Both are orders, which any program of that person may write: so the rule for
//! orders applies (owner, mode, no link), unlike for topics of agents.

use std::time::Duration;

use pubsub::{FileRule, FileState, FileWatch, TopicRoot, store};
use step::Mono;
use topics::{GoTime, OperationPause, PAUSE_FILE, PAUSE_LEFT_FILE, go_json};
use tracing::warn;

use crate::device::kernel_boot_id;
use crate::{AgentContext, Clock, Tasks};

/// The topic `NodeDrainRequest` of `zedbox drain`.
pub const FILE: &str = "run/zedbox/NodeDrainRequest/global.json";
pub const RULE: FileRule = FileRule { limit_bytes: 64 << 10, order: true };

/// Rule for a person's short orders: let findings pass, start a drain now.
pub const WORD: FileRule = FileRule { limit_bytes: 4096, order: true };

/// Needs a runtime.
pub fn request(topic_root: &TopicRoot) -> FileWatch {
    topic_root.file(topic_root.path(FILE), RULE)
}

/// How often the rest of a pause is written down: after a power cut it may last longer by this.
const KEEP_EVERY: Duration = Duration::from_mins(5);

#[derive(Debug, Clone)]
struct ReadPause {
    pause: OperationPause,
    /// Monotonic, in the boot that wrote it; otherwise `Until` counts, by the wall clock.
    end: Option<Mono>,
}

impl ReadPause {
    /// A pause from its file, and its rest from an earlier boot.
    fn new(pause: OperationPause, topic_root: &TopicRoot, clock: Clock) -> Self {
        let boot_id = boot_id();
        let kept = store::read(&topic_root.path(PAUSE_LEFT_FILE), WORD.limit_bytes);
        let kept = kept.ok().flatten().and_then(|bytes| go_json::from_slice::<OperationPause>(&bytes).ok());
        let counted = kept.filter(|kept| kept.is_same(&pause) && kept.lasts_secs <= pause.lasts_secs);
        let now = clock.now();
        let left = counted.as_ref().unwrap_or(&pause).left_secs(&boot_id, now.since_start().as_secs());
        Self { end: left.map(|secs| now + Duration::from_secs(secs)), pause }
    }

    /// The pause with its end by the present wall clock, unless it is over.
    fn counts(&self, clock: Clock, booted_at: GoTime) -> Option<OperationPause> {
        let until = self.end.map_or(self.pause.until, |end| booted_at.plus(end.since_start()));
        let is_over = match self.end {
            Some(end) => end <= clock.now(),
            None => !until.is_zero() && until <= clock.wall(),
        };
        let shown =
            OperationPause { until, lasts_secs: 0, boot_id: String::new(), at_secs: 0, ..self.pause.clone() };
        (!is_over).then_some(shown)
    }

    fn next_look(&self, clock: Clock) -> Option<Mono> {
        let until = Some(self.pause.until).filter(|until| !until.is_zero());
        self.end.or_else(|| until.map(|until| clock.now() + until.apart(clock.wall())))
    }
}

/// The boot of this monotonic clock; empty where the kernel does not name it.
fn boot_id() -> String {
    kernel_boot_id().unwrap_or_else(|error| {
        warn!(error = %step::chain(&error), "a pause that passes a boot lasts from its start on");
        String::new()
    })
}

/// A pause of this length from now, or without an end.
pub fn lasting(pause: OperationPause, lasts: Option<Duration>, clock: Clock) -> OperationPause {
    let Some(lasts) = lasts else { return pause };
    OperationPause {
        until: clock.wall().plus(lasts),
        lasts_secs: lasts.as_secs(),
        boot_id: boot_id(),
        at_secs: clock.now().since_start().as_secs(),
        ..pause
    }
}

/// The pause in force, from the content of its file.
pub fn counting_pause(
    bytes: &[u8],
    topic_root: &TopicRoot,
    clock: Clock,
) -> Result<Option<OperationPause>, String> {
    let pause: OperationPause = go_json::from_slice(bytes).map_err(|cause| step::chain(&cause))?;
    let read = pause.is_set().then(|| ReadPause::new(pause, topic_root, clock));
    Ok(read.and_then(|it| it.counts(clock, clock.booted_at())))
}

/// Follows the pause in force.
pub struct Pauses {
    topic_root: TopicRoot,
    clock: Clock,
    watch: FileWatch,
    /// When to write down the rest; `None` for agents that do not.
    keep: Option<Mono>,
    /// `None` before the first reading.
    #[expect(clippy::option_option, reason = "not read yet, and none, differ")]
    read: Option<Option<ReadPause>>,
    #[expect(clippy::option_option, reason = "not passed on yet, and none, differ")]
    told: Option<Option<OperationPause>>,
}

impl Pauses {
    /// Needs a runtime.
    pub fn open(topic_root: &TopicRoot, clock: Clock) -> Self {
        let watch = topic_root.file(topic_root.path(PAUSE_FILE), WORD);
        Self { topic_root: topic_root.clone(), clock, watch, keep: None, read: None, told: None }
    }

    /// Also writes down the rest for later boots; one agent does.
    #[must_use]
    pub fn keeping(self) -> Self {
        Self { keep: Some(self.clock.now() + KEEP_EVERY), ..self }
    }

    /// The present pause at the first call, then each other one; none once its time is over. A refused file
    /// changes nothing. Dropping it loses nothing.
    pub async fn next(&mut self) -> Option<OperationPause> {
        let mut boots = self.clock.boots();
        loop {
            let booted_at = *boots.borrow_and_update();
            let held = self.read.as_ref().and_then(Option::as_ref);
            let counts = held.and_then(|it| it.counts(self.clock, booted_at));
            if self.read.is_some() && self.told.as_ref() != Some(&counts) {
                self.told = Some(counts.clone());
                return counts;
            }
            let lasts = held.filter(|_| counts.is_some());
            let ends = lasts.and_then(|it| it.next_look(self.clock));
            let keeps = lasts.filter(|it| it.end.is_some()).and(self.keep);
            tokio::select! {
                file = self.watch.next() => match file {
                    FileState::Absent => self.read = Some(None),
                    FileState::Present(bytes) => match go_json::from_slice::<OperationPause>(&bytes) {
                        Ok(it) if it.is_set() => {
                            self.read = Some(Some(ReadPause::new(it, &self.topic_root, self.clock)));
                            // At the start of this boot less is left than before.
                            self.keep = self.keep.map(|_| self.clock.now());
                        }
                        Ok(_) => self.refused("it names nobody"),
                        Err(cause) => self.refused(&step::chain(&cause)),
                    },
                    FileState::Bad(finding) => self.refused(&finding.reason),
                },
                () = self.clock.sleep_until(ends) => {}
                () = self.clock.sleep_until(keeps) => self.write_down(),
                // The wall clock was set: the end may have passed.
                changed = boots.changed() => if changed.is_err() { std::future::pending().await },
            }
        }
    }

    fn write_down(&mut self) {
        self.keep = Some(self.clock.now() + KEEP_EVERY);
        let Some(Some(ReadPause { pause, end: Some(end) })) = &self.read else { return };
        let now = self.clock.now();
        let left = OperationPause {
            lasts_secs: end.since(now).as_secs().max(1),
            boot_id: boot_id(),
            at_secs: now.since_start().as_secs(),
            ..pause.clone()
        };
        let written = go_json::to_vec(&left).map_err(|cause| step::chain(&cause)).and_then(|bytes| {
            store::replace(&self.topic_root.path(PAUSE_LEFT_FILE), &bytes).map_err(|it| step::chain(&it))
        });
        if let Err(error) = written {
            warn!(
                path = PAUSE_LEFT_FILE,
                error, "after a power cut the pause lasts longer than it was meant to"
            );
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

impl<E: Send + 'static> Tasks<E> {
    /// Passes on each pause after the last one that `pauses` returned.
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
    pub fn pauses(&self) -> Pauses {
        Pauses::open(&self.topic_root, self.clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
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
        // A later follower gets it too, as after a boot.
        assert_eq!(Pauses::open(&topic_root, clock).next().await, Some(said("")));
        store::remove(&topic_root.path(PAUSE_FILE)).unwrap();
        assert_eq!(pauses.next().await, None);
        // One with an end ends by itself, followed or not.
        put(
            &topic_root,
            &OperationPause { until: clock.wall().plus(Duration::from_millis(300)), ..said("") },
        );
        assert!(pauses.next().await.is_some());
        assert_eq!(pauses.next().await, None);
        put(&topic_root, &said("2020-01-01T00:00:00Z"));
        assert_eq!(Pauses::open(&topic_root, clock).next().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn t9_a_length_holds_whatever_the_wall_clock_is_set_to_and_less_is_left_after_a_boot() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let clock = Clock::new().off_by(-3600);
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        put(&topic_root, &lasting(said(""), Some(hours(2)), clock));
        let mut pauses = Pauses::open(&topic_root, clock).keeping();
        let first = pauses.next().await.unwrap();
        assert!((first.lasts_secs, first.at_secs, first.boot_id.as_str()) == (0, 0, ""), "{first:?}");
        // Years ahead and back: it does not end, and its end is shown by the clock as it is.
        let began = clock.now();
        for off_by in [10, -10] {
            clock.jump_to_off_by(off_by * 31_557_600);
            let now = pauses.next().await.unwrap();
            assert!(now.until.apart(clock.wall().plus(hours(2))) < Duration::from_secs(5), "{now:?}");
        }
        assert_eq!(tokio::time::timeout(hours(3), pauses.next()).await, Ok(None));
        let lasted = clock.now().since(began);
        assert!(lasted.abs_diff(hours(2)) < Duration::from_secs(5), "{lasted:?}");
        // What was left is on disk, for a boot whose clock begins again.
        let kept = store::read(&topic_root.path(PAUSE_LEFT_FILE), 4096).unwrap().unwrap();
        let kept: OperationPause = go_json::from_slice(&kept).unwrap();
        assert!((1..=300).contains(&kept.lasts_secs), "{kept:?}");
        let other_boot = OperationPause { boot_id: "another".into(), lasts_secs: 7200, ..kept.clone() };
        let of_file = go_json::from_slice(&store::read(&topic_root.path(PAUSE_FILE), 4096).unwrap().unwrap());
        let of_file: OperationPause = of_file.unwrap();
        for (left, ends_in) in [(other_boot.clone(), other_boot.left_secs("this", 60)), (kept, Some(0))] {
            assert!(left.is_same(&of_file));
            assert_eq!(ends_in.is_some_and(|it| it > 0), left.boot_id == "another");
        }
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
