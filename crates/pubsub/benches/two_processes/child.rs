//! The second process: what it does is its first argument.

use std::io::stdin;
use std::path::Path;

use pubsub::{Change, TopicRoot};

use crate::process::said;
use crate::sample::{Sample, codec, kept_name, name, now_nanos};
use crate::{ROOT_OF_FLOOR, floor};

/// Says how long the sample was on its way, if it is one to be answered.
fn answer(sample: &Sample) {
    let nanos = now_nanos() - sample.at_nanos;
    if sample.answer {
        said(format_args!("{} {nanos}", sample.number));
    }
}

async fn listen(root: &Path, name: &pubsub::Name) {
    let topic_root = TopicRoot::open(root).unwrap();
    let mut subscription = topic_root.subscription(name, codec());
    loop {
        match subscription.next().await {
            Change::Put { value, .. } => answer(&value),
            Change::Synced => said("ready"),
            Change::Gone { .. } | Change::Restarted(_) | Change::Bad(_) => {}
        }
    }
}

/// Joins late, again and again, beside a reader without the library: `<nanoseconds of it> <ours>`.
async fn join(root: &Path, rounds: usize) {
    let dir = name().dir(root);
    for round in 0..rounds {
        let floor = || {
            let begin = now_nanos();
            (floor::list_and_read(&dir), now_nanos() - begin)
        };
        let ours = async || {
            let begin = now_nanos();
            let topic_root = TopicRoot::open(root).unwrap();
            let mut subscription = topic_root.subscription(&name(), codec());
            while subscription.next().await != Change::Synced {}
            (subscription.iter().count(), now_nanos() - begin)
        };
        // Each goes first in turn.
        let (floor, ours) = if round % 2 == 0 {
            let floor = floor();
            (floor, ours().await)
        } else {
            let ours = ours().await;
            (floor(), ours)
        };
        assert_eq!(floor.0, ours.0);
        said(format_args!("{} {}", floor.1, ours.1));
    }
}

/// Takes the topic over, publishes once, and stays until it is killed.
fn serve(root: &Path, number: u64) {
    let topic_root = TopicRoot::open(root).unwrap();
    let mut publication = topic_root.publication(name(), codec()).unwrap();
    publication.publish("global", &Sample::new(number, true)).unwrap();
    stdin().read_line(&mut String::new()).unwrap();
}

/// A small agent: one publication, one subscription, nothing to do.
async fn idle(root: &Path) {
    let topic_root = TopicRoot::open(root).unwrap();
    let _publication = topic_root.publication(name(), codec()).unwrap();
    listen(root, &name()).await;
}

pub(crate) fn run(part: &str, root: &Path, number: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match part {
        "--listen" => runtime.block_on(listen(root, &name())),
        "--listen-kept" => runtime.block_on(listen(root, &kept_name())),
        "--listen-floor" => {
            let told = |sample: Sample| answer(&sample);
            runtime.block_on(floor::listen(&root.join(ROOT_OF_FLOOR), || said("ready"), told));
        }
        "--join" => runtime.block_on(join(root, usize::try_from(number).unwrap())),
        "--serve" => serve(root, number),
        _ => {
            assert_eq!(part, "--idle", "there is no such part");
            runtime.block_on(idle(root));
        }
    }
}
