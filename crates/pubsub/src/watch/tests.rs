//! Followers, watches and what wakes them.

use super::*;
use crate::{Change, FileRule, FileState, FileWatch, Subscription, plain_codec, store};
use std::fs;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

fn follower(hub: &WatchHub, dir: &Path, follows: Follows) -> Arc<DirNotifier> {
    let notifier = DirNotifier::new(dir, follows);
    hub.attend(&notifier).unwrap();
    assert_eq!(notifier.take(), Pending::All);
    notifier
}

impl WatchHub {
    /// Hands on what the kernel has to say; returns the directories that it watches.
    fn watched(&self) -> BTreeSet<PathBuf> {
        while self.kernel.get().unwrap().drain(|heard| self.dirs.hear(&heard)).is_ok() {}
        let dirs = lock(&self.dirs.0);
        dirs.iter().filter(|(_, it)| it.watch.is_some()).map(|(dir, _)| dir.clone()).collect()
    }
}

fn names(names: &[&str]) -> Pending {
    Pending::Names(names.iter().map(OsString::from).collect())
}

#[test]
fn an_overflow_makes_everyone_read_again() {
    let (hub, root) = (WatchHub::open(), tempfile::tempdir().unwrap());
    let notifier = follower(&hub, root.path(), Follows::Topic);
    assert_eq!(notifier.take(), Pending::None);
    hub.dirs.hear(&KernelEvent::Everything);
    assert_eq!(notifier.take(), Pending::All);
}

#[test]
fn files_that_nobody_follows_wake_nobody() {
    let (hub, root) = (WatchHub::open(), tempfile::tempdir().unwrap());
    let topic = follower(&hub, root.path(), Follows::Topic);
    let single = follower(&hub, root.path(), Follows::File("b.json".into()));
    let below = follower(&hub, &root.path().join("c"), Follows::Topic);
    let heard = |name: &str| hub.dirs.ring(root.path(), Some(name.as_ref()));
    for name in ["tmp00000000010000000001", "a.json.bak", "a.lock"] {
        heard(name);
    }
    assert_eq!((topic.take(), single.take()), (Pending::None, Pending::None));
    heard("a.json");
    assert_eq!((topic.take(), single.take()), (names(&["a.json"]), Pending::None));
    heard("b.json");
    assert_eq!((topic.take(), single.take()), (names(&["b.json"]), names(&["b.json"])));
    assert_eq!(below.take(), Pending::None);
    heard("c");
    assert_eq!((topic.take(), single.take(), below.take()), (Pending::None, Pending::None, Pending::All));
}

#[test]
fn a_directory_that_is_made_while_watches_are_placed_is_watched() {
    let hub = WatchHub::open();
    for _ in 0..300 {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("run/agent/Topic");
        let notifier = DirNotifier::new(&dir, Follows::Topic);
        assert_eq!(notifier.take(), Pending::All);
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                fs::create_dir_all(&dir).unwrap();
            });
            start.wait();
            hub.attend(&notifier).unwrap();
        });
        // Either it is watched itself, or the kernel has an event on the way to it.
        assert!(hub.watched().contains(&dir) || notifier.take() == Pending::All, "nobody will hear of it");
    }
}

#[test]
fn very_many_names_become_one_full_read() {
    let notifier = DirNotifier::new(Path::new("/x"), Follows::Topic);
    notifier.take();
    for number in 0..=MOST_NAMES {
        notifier.ring(Path::new("/x"), Some(format!("{number}.json").as_ref()));
    }
    assert_eq!(notifier.take(), Pending::All);
}

#[test]
fn directories_that_nobody_follows_any_more_are_watched_no_more() {
    let (hub, root) = (WatchHub::open(), tempfile::tempdir().unwrap());
    let [first, second] = ["a", "b"].map(|name| root.path().join(name));
    fs::create_dir(&first).unwrap();
    fs::create_dir(&second).unwrap();
    drop(follower(&hub, &first, Follows::Topic));
    let _kept = follower(&hub, &second, Follows::Topic);
    assert_eq!(hub.watched(), BTreeSet::from([root.path().to_owned(), second]));
    let queue = format!("/proc/self/fdinfo/{}", hub.kernel.get().unwrap().as_raw_fd());
    assert_eq!(fs::read_to_string(queue).unwrap().matches("inotify wd:").count(), 2);
}

#[test]
fn a_directory_is_watched_by_each_of_its_paths_until_the_last_is_forgotten() {
    let (hub, root) = (WatchHub::open(), tempfile::tempdir().unwrap());
    let [dir, link, away] = ["dir", "link", "away"].map(|name| root.path().join(name));
    fs::create_dir(&dir).unwrap();
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    let [by_path, by_link] = [&dir, &link].map(|path| follower(&hub, path, Follows::Topic));
    fs::File::create(dir.join("a.json")).unwrap();
    hub.watched();
    assert_eq!([by_path.take(), by_link.take()], [names(&["a.json"]), names(&["a.json"])]);
    // What nobody follows any more is forgotten when another follower comes.
    drop(by_link);
    drop(follower(&hub, root.path(), Follows::Topic));
    let heard = || (hub.watched().contains(&dir), by_path.take());
    fs::remove_file(dir.join("a.json")).unwrap();
    assert_eq!(heard(), (true, names(&["a.json"])));
    // Another directory takes its place: the former one is heard no more.
    fs::rename(&dir, &away).unwrap();
    fs::create_dir(&dir).unwrap();
    hub.attend(&by_path).unwrap();
    assert_eq!(heard(), (true, Pending::All));
    fs::File::create(away.join("a.json")).unwrap();
    assert_eq!(heard(), (true, Pending::None));
    fs::remove_dir(&dir).unwrap();
    assert_eq!(heard(), (false, Pending::All));
}

#[test]
fn a_bus_outlives_the_runtime_in_which_it_was_followed() {
    let (hub, root) = (WatchHub::open(), tempfile::tempdir().unwrap());
    let mut topic = Subscription::new(hub, root.path(), plain_codec());
    for round in [b"1", b"2"] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            // Waits in vain once, so that the events are this runtime's.
            while let Some(change) = tokio::select! {
                biased;
                change = topic.next() => Some(change),
                () = std::future::ready(()) => None,
            } {
                drop(change);
            }
            store::replace(&root.path().join("a.json"), round).unwrap();
            while topic.get("a") != Some(&round.to_vec()) {
                tokio::time::timeout(Duration::from_secs(60), topic.next()).await.unwrap();
            }
        });
    }
}

#[tokio::test]
async fn k3_a_queue_of_events_that_could_not_be_opened_is_opened_later_and_files_are_watched_by_it() {
    static DESCRIPTORS: AtomicBool = AtomicBool::new(false);
    let open = || if DESCRIPTORS.load(Ordering::Relaxed) { Kernel::open() } else { Err(Errno::MFILE.into()) };
    // A look would come too late.
    let (hub, root) = (WatchHub::of(open, Duration::from_secs(3_600)), tempfile::tempdir().unwrap());
    let mut topic = Subscription::new(Arc::clone(&hub), root.path(), plain_codec());
    assert_eq!(topic.next().await, Change::Synced);
    let write = || store::replace(&root.path().join("a.json"), b"1").unwrap();
    let read = tokio::time::timeout(Duration::from_secs(60), topic.next());
    let (change, ()) = tokio::join!(read, async {
        write();
        DESCRIPTORS.store(true, Ordering::Relaxed);
    });
    assert_eq!(change.unwrap(), Change::Put { key: "a".to_owned(), value: b"1".to_vec(), old: None });
    assert_eq!(hub.watched().last().unwrap(), root.path());
}

#[tokio::test]
async fn where_the_kernel_watches_nothing_changes_are_found_by_looking() {
    let (hub, root) =
        (WatchHub::of(|| Err(Errno::MFILE.into()), Duration::from_millis(5)), tempfile::tempdir().unwrap());
    let dir = root.path().join("run/agent/Topic");
    let mut topic = Subscription::new(Arc::clone(&hub), &dir, plain_codec());
    let rule = FileRule { limit_bytes: 9, order: false };
    let mut file = FileWatch::new(hub, dir.join("a.json"), rule);
    assert_eq!((topic.next().await, file.next().await), (Change::Synced, FileState::Absent));
    for round in [b"1", b"2"] {
        // Of the same length, within the same second, by a rename.
        store::replace(&dir.join("a.json"), round).unwrap();
        while topic.get("a") != Some(&round.to_vec()) {
            topic.next().await;
        }
        while file.next().await != FileState::Present(round.to_vec()) {}
    }
    fs::remove_dir_all(root.path().join("run")).unwrap();
    while topic.get("a").is_some() {
        topic.next().await;
    }
    while file.next().await != FileState::Absent {}
    store::replace(&dir.join("a.json"), b"3").unwrap();
    while topic.get("a") != Some(&b"3".to_vec()) {
        topic.next().await;
    }
}

#[tokio::test]
async fn a_look_reads_followed_files_and_no_others_and_does_not_mind_links_that_lead_nowhere() {
    let (hub, root) =
        (WatchHub::of(|| Err(Errno::MFILE.into()), Duration::from_millis(5)), tempfile::tempdir().unwrap());
    let dir = root.path().join("Topic");
    let [image, value] = [root.path().join("image"), dir.join("a.json")];
    fs::create_dir(&dir).unwrap();
    for file in [&image, &value] {
        let long_ago = fs::FileTimes::new().set_accessed(std::time::UNIX_EPOCH);
        let mut file = fs::File::create(file).unwrap();
        file.write_all(b"0").unwrap();
        file.set_times(long_ago).unwrap();
    }
    std::os::unix::fs::symlink("/nowhere/at/all", root.path().join("initctl")).unwrap();
    let notifier = follower(&hub, &dir, Follows::Topic);
    for round in [b"1", b"2", b"3"] {
        fs::File::create(&value).unwrap().write_all(round).unwrap();
        tokio::time::timeout(Duration::from_secs(60), notifier.wait()).await.unwrap();
        assert_eq!(notifier.take(), names(&["a.json"]));
    }
    let accessed = |file: &Path| fs::metadata(file).unwrap().accessed().unwrap();
    if accessed(&value) == std::time::UNIX_EPOCH {
        writeln!(io::stderr(), "skipped: {} keeps no access times", root.path().display()).unwrap();
        return;
    }
    assert_eq!(accessed(&image), std::time::UNIX_EPOCH, "the look read a file that nobody follows");
}
