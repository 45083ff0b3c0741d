//! How often NodeDrainProgress is written (goals O1), counted by the kernel.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use topics::{DrainPhase, DrainStatus};

use crate::device::{Device, US};

const PODS: usize = 200;

/// Counts files that come to stand at their place in a directory: each write of a topic is a rename.
struct Renames(OwnedFd);

impl Renames {
    fn of(device: &Device, topic: &str) -> Self {
        let queue = inotify::init(CreateFlags::NONBLOCK).unwrap();
        // The kernel makes one of equal neighbours: what is written beside the place keeps them apart.
        let asked = WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM;
        inotify::add_watch(&queue, device.topic_root.path(topic), asked).unwrap();
        Self(queue)
    }

    fn count(&self) -> usize {
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut reader = Reader::new(&self.0, &mut buffer);
        let mut count = 0;
        while let Ok(event) = reader.next() {
            let placed = event.events().contains(ReadFlags::MOVED_TO);
            count +=
                usize::from(placed && event.file_name().is_some_and(|it| it.to_bytes() == b"global.json"));
        }
        count
    }
}

#[tokio::test(start_paused = true)]
async fn o1_two_hundred_pods_are_told_five_times_a_second_and_the_last_word_is_written() {
    let mut device = Device::idle().await;
    for pod in 0..PODS {
        device.sim.add_bare_pod("load", &format!("p{pod}"), "n1");
    }
    let running = PODS + 5;
    let ready = |pod: &serde_json::Value| pod["status"]["conditions"][0]["status"] == "True";
    device.sim.until("pods", |pods| pods.len() == running && pods.iter().all(ready)).await;
    device.rest().await;
    let progress = Renames::of(&device, "run/zedkube/NodeDrainProgress");
    let journal = Renames::of(&device, "persist/status/zedkube/DrainJournal");
    device.ask(US, 1).await;
    device.until(DrainStatus::Complete, US, 1).await;
    device.pass(Duration::from_secs(1)).await;
    let said = device.diary.times("nodedrain-step:changing");
    let took = said[said.len() - 1].since(said[2]);
    let evicted = device.sim.faults().count("POST", "/eviction");
    assert!(evicted >= PODS, "{evicted} {:#?}", device.diary.lines());
    // At once: the five statuses of a drain. In turn: one per 200 ms. Twice as many things have changed.
    let (written, most) = (progress.count(), 5 + usize::try_from(took.as_millis() / 200).unwrap() + 1);
    assert!(written <= most, "{written} writes in {took:?}, at most {most}");
    assert!(written > 5, "{written}");
    // The journal knows of no pod.
    assert!(journal.count() <= 6);
    let last = device.progress();
    assert_eq!((last.phase, last.status), (DrainPhase::Complete, DrainStatus::Complete));
    assert_eq!((last.counts.total, last.counts.gone), (last.counts.total, last.counts.total));
    assert!(usize::try_from(last.counts.gone).unwrap() > PODS);
}

#[tokio::test(start_paused = true)]
async fn u10_an_idle_node_follows_the_lease_of_turns_by_one_watch_that_is_renewed_every_ten_minutes() {
    let mut device = Device::idle().await;
    device.pass(Duration::from_mins(1)).await;
    let lease = "fieldSelector=metadata.name%3Dpillar-rs-outage";
    let (before, lists) = (device.sim.faults().count("GET", lease), |device: &Device| {
        let seen = device.sim.faults().requests();
        seen.iter().filter(|it| it.uri.contains(lease) && !it.uri.contains("watch=true")).count()
    });
    assert_eq!(
        (lists(&device), before),
        (1, 2),
        "one list, one watch: {:#?}",
        device.sim.faults().requests()
    );
    device.pass(Duration::from_hours(1)).await;
    let after = device.sim.faults().count("GET", lease) - before;
    assert!((6..=7).contains(&after), "{after} requests an hour");
    assert_eq!(lists(&device), 1);
}
