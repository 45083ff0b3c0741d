//! Places that let a publisher down: full, read-only, gone, taken over, with long names, many keys, odd clocks.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime};

use pubsub::{Change, Name, Publication, Published, TopicRoot, store};

use crate::files::{PATIENCE, text, until};
use crate::quoted::codec;

fn names() -> [Name; 2] {
    [Name::volatile("tester", "Topic"), Name::persistent("tester", "Topic")]
}

fn publication(topic_root: &TopicRoot, name: &Name) -> Publication<String> {
    for _ in 0..1_000_000 {
        match topic_root.publication(name.clone(), codec()) {
            // The shell that another test is starting has a copy of each lock of this process until it is a shell.
            Err(pubsub::Error::Taken { .. }) => std::thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
    panic!("somebody else holds {name}")
}

/// A file system of 64 KiB of its own, in a namespace that ends with the shell that holds it.
struct SmallDisk {
    shell: Child,
    answers: BufReader<ChildStdout>,
    dir: tempfile::TempDir,
}

impl SmallDisk {
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let spawned = Command::new("unshare")
            .args(["--mount", "--map-root-user", "sh"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut shell) = spawned else {
            writeln!(std::io::stderr(), "skipped: there is no program `unshare` here").unwrap();
            return None;
        };
        let answers = BufReader::new(shell.stdout.take().unwrap());
        let mut disk = Self { shell, answers, dir };
        let mounted = disk.does("mount -t tmpfs -o size=64k none");
        if !mounted {
            writeln!(std::io::stderr(), "skipped: this machine lets nobody mount in a namespace of his own")
                .unwrap();
        }
        mounted.then_some(disk)
    }

    /// Whether the shell succeeds with the command and the directory behind it.
    fn does(&mut self, command: &str) -> bool {
        let line = format!("{command} {} && echo yes || echo no\n", self.dir.path().display());
        let asked = self.shell.stdin.as_mut().unwrap().write_all(line.as_bytes());
        let mut answer = String::new();
        asked.is_ok() && self.answers.read_line(&mut answer).is_ok() && answer == "yes\n"
    }

    fn root(&self) -> PathBuf {
        let inside = self.dir.path().strip_prefix("/").unwrap();
        Path::new("/proc").join(self.shell.id().to_string()).join("root").join(inside)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        drop(self.shell.wait());
    }
}

#[tokio::test]
async fn r2_a_full_disk_keeps_every_value_and_takes_new_ones_once_there_is_room() {
    for name in names() {
        let Some(disk) = SmallDisk::new() else { return };
        let topic_root = TopicRoot::open(disk.root()).unwrap();
        let mut publication = publication(&topic_root, &name);
        let mut subscription = topic_root.subscription(&name, codec());
        let large = |letter: &str| letter.repeat(9_000);
        let mut put = Vec::new();
        let refused = loop {
            let key = put.len().to_string();
            match publication.publish(&key, &large("x")) {
                Ok(_) => put.push(key),
                Err(error) => break error,
            }
        };
        assert!(refused.to_string().starts_with("write ") && !put.is_empty(), "{refused}");
        publication.publish("0", &large("y")).unwrap_err();
        assert_eq!((publication.get("0"), publication.iter().count()), (Some(&large("x")), put.len()));
        let kept = large("x");
        let wanted: Vec<_> = put.iter().map(|key| (key.as_str(), kept.as_str())).collect();
        until(&mut subscription, &wanted).await;
        let litter = fs::read_dir(name.dir(&disk.root())).unwrap().flatten();
        assert!(litter.map(|it| it.file_name()).all(|file| !file.to_str().unwrap().starts_with("tmp")));
        for key in &put[1..] {
            publication.unpublish(key).unwrap();
        }
        assert_eq!(publication.publish("0", &large("y")).unwrap(), Published::Written);
        until(&mut subscription, &[("0", &large("y"))]).await;
    }
}

#[tokio::test]
async fn r2_a_disk_that_turns_read_only_keeps_every_value_and_names_the_step() {
    for name in names() {
        let Some(mut disk) = SmallDisk::new() else { return };
        let topic_root = TopicRoot::open(disk.root()).unwrap();
        let mut first = publication(&topic_root, &name);
        first.publish("a", &text("1")).unwrap();
        assert!(disk.does("mount -o remount,ro"));
        let refused = first.publish("a", &text("2")).unwrap_err().to_string();
        assert!(refused.starts_with("create ") && refused.contains("Topic"), "{refused}");
        first.publish("b", &text("2")).unwrap_err();
        first.unpublish("a").unwrap_err();
        first.signal_restarted().unwrap_err();
        assert_eq!((first.get("a"), first.iter().count(), first.restarted()), (Some(&text("1")), 1, 0));
        until(&mut topic_root.subscription(&name, codec()), &[("a", "1")]).await;
        let Err(refused) = topic_root.publication(Name::volatile("other", "T"), codec()) else {
            panic!("published")
        };
        assert!(refused.to_string().starts_with("make "), "{refused}");
        assert!(disk.does("mount -o remount,rw"));
        first.publish("a", &text("2")).unwrap();
        until(&mut topic_root.subscription(&name, codec()), &[("a", "2")]).await;
    }
}

#[tokio::test]
async fn r2_a_directory_that_somebody_removes_or_swaps_is_filled_again_by_the_next_publish() {
    for name in names() {
        let root = tempfile::tempdir().unwrap();
        let (topic_root, dir) = (TopicRoot::open(root.path()).unwrap(), name.dir(root.path()));
        let mut publication = publication(&topic_root, &name);
        let mut subscription = topic_root.subscription(&name, codec());
        publication.publish("a", &text("1")).unwrap();
        publication.publish("b", &text("1")).unwrap();
        publication.signal_restarted().unwrap();
        until(&mut subscription, &[("a", "1"), ("b", "1")]).await;
        let away = root.path().join("away");
        let remove = || fs::remove_dir_all(&dir).unwrap();
        let swaps: [&dyn Fn(); 4] = [
            &remove,
            &|| fs::remove_dir_all(dir.parent().unwrap()).unwrap(),
            // Made again at once, so it may have the same number.
            &|| (remove(), fs::create_dir(&dir).unwrap()).1,
            &|| (fs::rename(&dir, &away).unwrap(), fs::create_dir(&dir).unwrap()).1,
        ];
        for (round, swap) in swaps.into_iter().enumerate() {
            swap();
            let value = format!("after {round}");
            publication.publish("a", &value).unwrap();
            assert_eq!(store::read(&dir.join("restarted"), 9).unwrap().unwrap(), b"1");
            until(&mut subscription, &[("a", &value), ("b", "1")]).await;
            drop(fs::remove_dir_all(&away));
            swap();
            // An equal value is enough.
            publication.publish("b", &text("1")).unwrap();
            until(&mut subscription, &[("a", &value), ("b", "1")]).await;
            drop(fs::remove_dir_all(&away));
        }
        fs::remove_dir_all(&dir).unwrap();
        publication.unpublish("a").unwrap();
        until(&mut subscription, &[("b", "1")]).await;
    }
}

#[tokio::test]
async fn a_key_of_250_bytes_comes_changes_and_goes() {
    for name in names() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        // One for which the backup's name fits as well, and two for which it does not.
        for length in [246, 247, 250] {
            let key = "k".repeat(length);
            let mut first = publication(&topic_root, &name);
            let mut subscription = topic_root.subscription(&name, codec());
            for value in ["1", "2"] {
                first.publish(&key, &text(value)).unwrap();
                until(&mut subscription, &[(&key, value)]).await;
            }
            drop(first);
            let mut next = publication(&topic_root, &name);
            assert_eq!(next.take_findings(), []);
            assert_eq!(next.get(&key), Some(&text("2")));
            next.unpublish(&key).unwrap();
            assert!(next.unpublish(&key).unwrap_err().to_string().contains("not published"));
            until(&mut subscription, &[]).await;
            assert_eq!(fs::read_dir(name.dir(root.path())).unwrap().count(), 0);
        }
    }
}

#[tokio::test]
async fn ten_thousand_keys_are_published_read_taken_over_and_closed() {
    // In memory where that is possible: bringing 20,000 changes to disk is not what is tried.
    let place =
        Some(Path::new("/dev/shm")).filter(|it| it.is_dir()).map_or_else(std::env::temp_dir, Path::to_owned);
    for name in names() {
        let root = tempfile::tempdir_in(&place).unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let mut early = topic_root.subscription(&name, codec());
        assert_eq!(early.next().await, Change::Synced);
        let mut first = publication(&topic_root, &name);
        for number in 0..10_000 {
            first.publish(&number.to_string(), &format!("value {number}")).unwrap();
        }
        let mut late = topic_root.subscription(&name, codec());
        for subscription in [&mut early, &mut late] {
            while subscription.iter().count() < 10_000 {
                tokio::time::timeout(PATIENCE, subscription.next()).await.unwrap();
            }
            assert!(subscription.iter().all(|(key, value)| *value == format!("value {key}")));
        }
        drop(first);
        let mut next = publication(&topic_root, &name);
        assert_eq!(next.iter().count(), 10_000);
        next.signal_restarted().unwrap();
        next.close().unwrap();
        let left = if name.is_persistent() { 10_000 } else { 0 };
        assert_eq!(fs::read_dir(name.dir(root.path())).unwrap().count(), left);
    }
}

#[tokio::test]
async fn a_clock_that_is_set_back_hides_no_change() {
    let root = tempfile::tempdir().unwrap();
    let (topic_root, [name, _]) = (TopicRoot::open(root.path()).unwrap(), names());
    let mut subscription = topic_root.subscription(&name, codec());
    let dir = name.dir(root.path());
    // Times of a clock that jumps about; of the same length, so that only the content differs.
    let day = Duration::from_secs(86_400);
    let times = [30_000, 1, 20_000, 20_000, 0].map(|days| SystemTime::UNIX_EPOCH + day * days);
    for (number, time) in times.into_iter().enumerate() {
        let beside = root.path().join("beside");
        store::replace(&beside, format!("\"{number}\"").as_bytes()).unwrap();
        let times = fs::FileTimes::new().set_modified(time).set_accessed(time);
        File::options().write(true).open(&beside).unwrap().set_times(times).unwrap();
        fs::create_dir_all(&dir).unwrap();
        fs::rename(&beside, dir.join("a.json")).unwrap();
        until(&mut subscription, &[("a", &number.to_string())]).await;
        let mut next = publication(&topic_root, &name);
        assert_eq!(next.get("a"), Some(&number.to_string()));
        next.publish("a", &format!("mine {number}")).unwrap();
        until(&mut subscription, &[("a", &format!("mine {number}"))]).await;
    }
}

#[tokio::test]
async fn t7_what_is_mounted_over_a_directory_in_use_gets_files_socket_and_lock_and_is_read() {
    let Some(mut disk) = SmallDisk::new() else { return };
    let (topic_root, name) = (TopicRoot::open(disk.root()).unwrap(), Name::volatile("tester", "Topic"));
    let mut publication = publication(&topic_root, &name);
    topic_root.serve(&mut publication, |disk, _| Ok(disk.to_vec())).unwrap();
    publication.publish("a", &text("1")).unwrap();
    let mut subscription = topic_root.subscription(&name, codec());
    until(&mut subscription, &[("a", "1")]).await;
    assert!(disk.does("mount -t tmpfs -o size=64k none"));
    let file = name.dir(&disk.root()).join("a.json");
    assert!(!file.exists());
    topic_root.look_again();
    // By the eyes of another process.
    let rule = pubsub::FileRule { limit_bytes: 99, order: false };
    let others = TopicRoot::open(disk.root()).unwrap();
    let mut seen = others.file(file, rule);
    let back = async { while !matches!(seen.next().await, pubsub::FileState::Present(_)) {} };
    tokio::time::timeout(PATIENCE, back).await.unwrap();
    let mut feed = others.socket_feed(&name).unwrap();
    let heard = tokio::time::timeout(PATIENCE, feed.next()).await.unwrap();
    assert_eq!(heard, (text("a"), Some(b"\"1\"".to_vec())));
    assert_eq!(others.is_published(&name).unwrap(), Some(true));
    // What others put there is read, too.
    store::replace(&name.dir(&disk.root()).join("b.json"), b"\"2\"").unwrap();
    until(&mut subscription, &[("a", "1"), ("b", "2")]).await;
}

#[tokio::test]
async fn t7_a_socket_or_a_pipe_among_the_files_of_a_topic_is_one_bad_file_and_no_fault_of_the_disk() {
    for name in names() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        fs::create_dir_all(name.dir(root.path())).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(name.dir(root.path()).join("x.json")).unwrap();
        let pipe = name.dir(root.path()).join("y.json");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        store::replace(&name.dir(root.path()).join("a.json"), b"\"1\"").unwrap();
        let mut subscription = topic_root.subscription(&name, codec());
        let mut bad = Vec::new();
        loop {
            match tokio::time::timeout(PATIENCE, subscription.next()).await.unwrap() {
                Change::Bad(finding) => bad.push(finding.reason),
                Change::Synced => break,
                Change::Put { key, .. } => assert_eq!(key, "a"),
                other @ (Change::Gone { .. } | Change::Restarted(_)) => panic!("{other:?}"),
            }
        }
        assert!(bad.len() == 2 && bad.iter().all(|it| it.contains("no regular file")), "{bad:?}");
        let mut opened = publication(&topic_root, &name);
        assert_eq!((opened.take_findings().len(), opened.get("a")), (2, Some(&text("1"))));
    }
}
