//! `zedbox join wait`: returns when a server reports this node's cluster, for scripts that join the node to it.

use std::time::Duration;

use agent::{Clock, wire};
use anyhow::Context as _;
use nodestatus::{ClusterIdentity, cluster_of};
use pubsub::TopicRoot;
use topics::EdgeNodeClusterConfig;

use crate::Exit;
use crate::args::JoinCommand;
use crate::drain_cmd::voice::Voice;

/// Doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// With [`ANSWER_LIMIT`] the right answer is noticed within 10 s.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// As in the reference.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Shown of an answer.
const SHOWN_CHARS: usize = 60;

#[derive(Debug, Clone, PartialEq, Eq)]
enum JoinCheck {
    Ready(String),
    Other(String),
    NotYet(String),
}

pub(crate) async fn wait(options: &JoinCommand) -> anyhow::Result<Exit> {
    let root = &options.root;
    let topic_root = TopicRoot::open(root).with_context(|| format!("open the root {}", root.display()))?;
    let server = &options.server;
    let look = async || {
        let cluster = match options.cluster {
            Some(cluster) => Ok(cluster.to_string()),
            None => own_cluster(&topic_root),
        };
        match cluster {
            Err(why) => JoinCheck::NotYet(why),
            Ok(cluster) => {
                // A newer server of the reference answers only nodes of its cluster.
                let identity = ClusterIdentity::read(&topic_root);
                match cluster_of(server, identity.as_ref(), ANSWER_LIMIT).await {
                    Ok(answer) => judge(&answer, &cluster),
                    Err(why) => JoinCheck::NotYet(format!("ask {server} for /status: {why}")),
                }
            }
        }
    };
    let last = until_ready(Clock::new(), options.limit, look, |line| Voice::warn_of("join", line)).await;
    let secs = options.limit.unwrap_or_default().as_secs();
    match last {
        JoinCheck::Ready(answer) => Voice::print(&format!("{answer}\n")).map(|_| Exit::Done),
        JoinCheck::Other(why) => {
            Voice::warn_of(
                "join",
                &format!("{server} is not of this cluster after {secs} s: {why}; check --server"),
            );
            Ok(Exit::Blocked)
        }
        JoinCheck::NotYet(why) => {
            Voice::warn_of("join", &format!("{server} is not ready after {secs} s: {why}"));
            Ok(Exit::UnderWay)
        }
    }
}

/// From this node's config.
fn own_cluster(topic_root: &TopicRoot) -> Result<String, String> {
    match wire::peek::<EdgeNodeClusterConfig>(topic_root, "zedagent", wire::GLOBAL) {
        Ok(Some(config)) if config.valid => Ok(config.cluster_id.uuid.to_string()),
        Ok(_) => Err("EdgeNodeClusterConfig of this node names no cluster yet".to_owned()),
        Err(cause) => Err(step::chain(&cause)),
    }
}

fn judge(answer: &[u8], cluster: &str) -> JoinCheck {
    let text = String::from_utf8_lossy(answer);
    let shown: String = text.chars().take(SHOWN_CHARS).filter(|it| !it.is_control()).collect();
    match text.strip_prefix("cluster:") {
        Some(said) if said == cluster => JoinCheck::Ready(text.into_owned()),
        Some(_) => JoinCheck::Other(format!("it says `{shown}`, this node's cluster is {cluster}")),
        None if text.is_empty() => JoinCheck::NotYet("it is no server of a cluster yet".to_owned()),
        None => JoinCheck::NotYet(format!("it says `{shown}`")),
    }
}

/// Looks until the server is ready or `limit` is over, with growing pauses, and prints changes. Returns the
/// last result.
async fn until_ready(
    clock: Clock,
    limit: Option<Duration>,
    look: impl AsyncFn() -> JoinCheck,
    say: impl Fn(&str),
) -> JoinCheck {
    let until = limit.map(|limit| clock.now() + limit);
    let (mut pause, mut last) = (FIRST_PAUSE, None);
    loop {
        let seen = look().await;
        let (JoinCheck::Other(why) | JoinCheck::NotYet(why)) = &seen else { return seen };
        if last.as_ref() != Some(&seen) {
            say(&format!("waiting: {why}"));
        }
        let next = clock.now() + pause;
        if until.is_some_and(|until| next > until) {
            clock.sleep_until(until).await;
            return match look().await {
                ready @ JoinCheck::Ready(_) => ready,
                JoinCheck::Other(_) | JoinCheck::NotYet(_) => seen,
            };
        }
        last = Some(seen);
        clock.sleep_until(Some(next)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use step::Mono;

    const CLUSTER: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";

    #[test]
    fn only_the_very_words_of_this_cluster_are_right() {
        let ready = format!("cluster:{CLUSTER}");
        assert_eq!(judge(ready.as_bytes(), CLUSTER), JoinCheck::Ready(ready.clone()));
        for other in ["cluster:", "cluster:x", "cluster:00000000-0000-0000-0000-000000000000"] {
            assert!(matches!(judge(other.as_bytes(), CLUSTER), JoinCheck::Other(_)), "{other}");
        }
        for text in ["", "cluster", " cluster:", "<html>", &format!("{ready}\n")[1..]] {
            assert!(matches!(judge(text.as_bytes(), CLUSTER), JoinCheck::NotYet(_)), "{text}");
        }
        assert!(matches!(judge(format!("{ready}\n").as_bytes(), CLUSTER), JoinCheck::Other(_)));
    }

    /// Waits for a server that is ready at this second; returns the result, the times of looks, and the
    /// output.
    async fn waited(ready_at: u64, limit: Option<u64>) -> (JoinCheck, Vec<u64>, Vec<String>) {
        let clock = Clock::new();
        let start = clock.now();
        let since = |now: Mono| now.since(start).as_secs();
        let (looks, said) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let look = async || {
            looks.borrow_mut().push(since(clock.now()));
            match since(clock.now()) {
                now if now >= ready_at => JoinCheck::Ready("cluster:x".to_owned()),
                now if now >= 20 => JoinCheck::Other("another".to_owned()),
                _ => JoinCheck::NotYet("no answer".to_owned()),
            }
        };
        let seen = until_ready(clock, limit.map(Duration::from_secs), look, |line| {
            said.borrow_mut().push(line.to_owned());
        });
        let seen = seen.await;
        (seen, looks.into_inner(), said.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn it_backs_off_and_hears_the_right_answer_within_eight_seconds_and_says_only_what_changed() {
        for ready_at in 0..100 {
            let (seen, looks, said) = waited(ready_at, None).await;
            assert_eq!(seen, JoinCheck::Ready("cluster:x".to_owned()));
            let last = looks.last().unwrap();
            assert!((ready_at..=ready_at + 8).contains(last), "{ready_at}: {looks:?}");
            assert!(said.len() <= 2, "{said:?}");
        }
        let (_, looks, said) = waited(40, None).await;
        assert_eq!(looks, [0, 1, 3, 7, 15, 23, 31, 39, 47]);
        assert_eq!(said, ["waiting: no answer", "waiting: another"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_ends_the_wait_with_what_was_seen_last_and_a_last_look() {
        let (seen, looks, _) = waited(100, Some(10)).await;
        assert_eq!((seen, looks), (JoinCheck::NotYet("no answer".to_owned()), vec![0, 1, 3, 7, 10]));
        let (seen, ..) = waited(100, Some(30)).await;
        assert_eq!(seen, JoinCheck::Other("another".to_owned()));
        let (seen, looks, _) = waited(10, Some(10)).await;
        assert_eq!((seen, looks.last()), (JoinCheck::Ready("cluster:x".to_owned()), Some(&10)));
    }
}
