//! Every file put in place or removed under a root, in order and complete, from the kernel.
//!
//! Directories are made before they are watched, and stay: so no file appears in an unwatched one.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use pubsub::store;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::sync::Notify;

/// A quiet time of this length is reported, too.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
const NOTES: &str = "stage-notes";
const OFF: &str = "off";
const ON: &str = "on";
const MARK: &str = "mark";
const END: &str = "end";

pub(crate) fn folders(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![root.to_owned()]);
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                found.push(entry.path().strip_prefix(root).unwrap().to_owned());
                open.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// The watching thread; it ends with this.
pub(crate) struct Writes {
    root: PathBuf,
    marked: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Writes {
    /// Makes `folders` under `root` and calls `hear` for each file put in place or removed there, by its path relative
    /// to `root`; with `None` after a quiet time. On a thread of its own, as fast as the kernel reports.
    pub(crate) fn follow(
        root: &Path,
        folders: &[PathBuf],
        mut hear: impl FnMut(Option<&str>) + Send + 'static,
    ) -> Self {
        let kernel = inotify::init(CreateFlags::CLOEXEC).unwrap();
        let mut dirs = HashMap::new();
        for dir in folders.iter().map(PathBuf::as_path).chain([Path::new(NOTES)]) {
            std::fs::create_dir_all(root.join(dir)).unwrap();
            let flags = WatchFlags::MOVED_TO | WatchFlags::DELETE;
            dirs.insert(inotify::add_watch(&kernel, root.join(dir), flags).unwrap(), dir.to_owned());
        }
        let marked = Arc::new(Notify::new());
        let told = marked.clone();
        let thread = std::thread::spawn(move || listen(&kernel, &dirs, &told, &mut hear));
        Self { root: root.to_owned(), marked, thread: Some(thread) }
    }

    /// Whether writes count: those of the machine itself are not an agent's.
    pub(crate) fn counts(&self, on: bool) {
        self.note(if on { ON } else { OFF });
    }

    /// Returns when all writes so far were passed on, as the kernel reports in order.
    pub(crate) async fn heard_all(&self) {
        self.note(MARK);
        self.marked.notified().await;
    }

    /// Ends the thread, and fails where it has failed.
    pub(crate) fn end(mut self) {
        self.note(END);
        self.thread.take().unwrap().join().unwrap();
    }

    fn note(&self, name: &str) {
        store::replace(&self.root.join(NOTES).join(name), b"").unwrap();
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.note(END);
            drop(thread.join());
        }
    }
}

fn listen(
    kernel: &OwnedFd,
    dirs: &HashMap<i32, PathBuf>,
    marked: &Notify,
    hear: &mut impl FnMut(Option<&str>),
) {
    let mut room = vec![MaybeUninit::uninit(); 64 << 10];
    let mut events = inotify::Reader::new(kernel, &mut room);
    let mut counts = true;
    loop {
        let mut ready = [PollFd::new(kernel, PollFlags::IN)];
        if events.is_buffer_empty() && poll(&mut ready, Some(&QUIET)) == Ok(0) {
            hear(None);
            continue;
        }
        let event = match events.next() {
            Ok(event) => event,
            Err(rustix::io::Errno::INTR) => continue,
            Err(cause) => panic!("the kernel tells no more of files: {cause}"),
        };
        assert!(!event.events().contains(ReadFlags::QUEUE_OVERFLOW), "more writes than the kernel keeps");
        let (Some(dir), Some(name)) = (dirs.get(&event.wd()), event.file_name()) else { continue };
        let name = name.to_str().unwrap();
        match (dir.to_str().unwrap(), name) {
            (NOTES, OFF) => counts = false,
            (NOTES, ON) => counts = true,
            (NOTES, MARK) => marked.notify_one(),
            (NOTES, END) => return,
            (dir, name) if counts && dir != NOTES && !name.starts_with("tmp") => {
                hear(Some(&format!("{dir}/{name}")));
            }
            _ => {}
        }
    }
}
