//! inotify, without the events that reading causes.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// Events taken at once, so that other tasks of the thread run in a storm.
const MOST_EVENTS: usize = 1_024;
/// Room for some thirty events with names as long as they may be.
const BUFFER_BYTES: usize = 8_192;

/// Each with the watch that it is of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KernelEvent<'a> {
    Name(i32, &'a OsStr),
    /// The directory itself was removed, moved, or changed its owner or mode.
    Dir(i32),
    /// The same, and it is watched no more.
    Ended(i32),
    /// Events were lost.
    Everything,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchPurpose {
    Files,
    /// On the way to a followed directory: only names matter, not writes to files. Every agent touches its
    /// watchdog file in `/run`.
    Way,
}

impl WatchPurpose {
    fn flags(self) -> WatchFlags {
        // Added to an existing watch: a directory can be followed and on the way to another one.
        let way = WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::MASK_ADD
            | WatchFlags::CREATE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO;
        match self {
            Self::Way => way,
            // A file that is written in place is worth reading once its writer closes it.
            Self::Files => way | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Kernel(OwnedFd);

impl Kernel {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?))
    }

    /// Watches the directory that is at `dir` now. A directory has one watch, by whichever path.
    pub(crate) fn watch(&self, dir: &Path, why: WatchPurpose) -> Result<i32, Errno> {
        inotify::add_watch(&self.0, dir, why.flags())
    }

    pub(crate) fn unwatch(&self, watch: i32) {
        if let Err(error) = inotify::remove_watch(&self.0, watch) {
            // The kernel dropped it with its directory.
            tracing::trace!(watch, %error, "nothing to watch any more");
        }
    }

    /// Passes waiting events on, the oldest first.
    ///
    /// Errors: [`io::ErrorKind::WouldBlock`] once there is none left.
    pub(crate) fn drain(&self, mut tell: impl FnMut(KernelEvent<'_>)) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(self.0.as_fd(), &mut buffer);
        let mut taken = 0;
        // What was read is told to its end.
        while taken < MOST_EVENTS || !reader.is_buffer_empty() {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            taken += 1;
            let (watch, flags) = (event.wd(), event.events());
            match event.file_name() {
                _ if flags.contains(ReadFlags::QUEUE_OVERFLOW) => tell(KernelEvent::Everything),
                Some(name) => tell(KernelEvent::Name(watch, OsStr::from_bytes(name.to_bytes()))),
                None if flags.contains(ReadFlags::IGNORED) => tell(KernelEvent::Ended(watch)),
                None => tell(KernelEvent::Dir(watch)),
            }
        }
        Ok(())
    }
}

impl AsRawFd for Kernel {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store;
    use std::fs::{self, File};

    fn changed_paths(kernel: &Kernel) -> Vec<String> {
        let mut all = Vec::new();
        let mut tell = |heard: KernelEvent<'_>| match heard {
            KernelEvent::Name(_, name) => all.push(name.to_str().unwrap().to_owned()),
            KernelEvent::Dir(_) | KernelEvent::Ended(_) => all.push(".".to_owned()),
            KernelEvent::Everything => all.push("everything".to_owned()),
        };
        while kernel.drain(&mut tell).is_ok() {}
        all
    }

    #[test]
    fn our_own_reading_causes_no_event_at_all() {
        let root = tempfile::tempdir().unwrap();
        let (file, dir) = (root.path().join("a.json"), root.path());
        store::replace(&file, b"1").unwrap();
        let kernel = Kernel::open().unwrap();
        kernel.watch(dir, WatchPurpose::Files).unwrap();
        for _ in 0..100 {
            assert_eq!(store::read(&file, 9).unwrap().unwrap(), b"1");
            assert_eq!(fs::read_dir(dir).unwrap().count(), 1);
            File::open(dir).unwrap().sync_all().unwrap();
            assert!(file.exists());
            kernel.watch(dir, WatchPurpose::Files).unwrap();
        }
        assert_eq!(changed_paths(&kernel), [""; 0]);
        fs::rename(&file, dir.join("b.json")).unwrap();
        assert_eq!(changed_paths(&kernel), ["a.json", "b.json"]);
    }

    #[test]
    fn what_is_written_on_the_way_is_not_heard_and_what_comes_and_goes_is() {
        let root = tempfile::tempdir().unwrap();
        let kernel = Kernel::open().unwrap();
        let touched = root.path().join("zedkube.touch");
        let touch = || {
            let file = File::options().create(true).truncate(false).write(true).open(&touched).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        };
        touch();
        kernel.watch(root.path(), WatchPurpose::Way).unwrap();
        touch();
        assert_eq!(changed_paths(&kernel), [""; 0]);
        fs::create_dir(root.path().join("agent")).unwrap();
        fs::remove_dir(root.path().join("agent")).unwrap();
        assert_eq!(changed_paths(&kernel), ["agent", "agent"]);
        // Followed as well, by whoever asks first.
        for why in [WatchPurpose::Files, WatchPurpose::Way] {
            kernel.watch(root.path(), why).unwrap();
            touch();
            assert!(!changed_paths(&kernel).is_empty(), "{why:?}");
        }
    }

    #[test]
    fn a_file_written_in_place_is_heard_when_it_is_new_and_when_it_is_whole() {
        let root = tempfile::tempdir().unwrap();
        let kernel = Kernel::open().unwrap();
        kernel.watch(root.path(), WatchPurpose::Files).unwrap();
        let mut file = File::create(root.path().join("a.json")).unwrap();
        assert_eq!(changed_paths(&kernel), ["a.json"]);
        io::Write::write_all(&mut file, b"half").unwrap();
        assert_eq!(changed_paths(&kernel), [""; 0]);
        drop(file);
        assert_eq!(changed_paths(&kernel), ["a.json"]);
    }

    #[test]
    fn more_events_than_the_kernel_keeps_are_told_as_everything() {
        let root = tempfile::tempdir().unwrap();
        let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let kernel = Kernel::open().unwrap();
        kernel.watch(root.path(), WatchPurpose::Files).unwrap();
        let names = ["a", "b"].map(|name| root.path().join(name));
        File::create(&names[0]).unwrap();
        for round in 0..most.trim().parse::<usize>().unwrap() {
            fs::rename(&names[round % 2], &names[(round + 1) % 2]).unwrap();
        }
        assert_eq!(changed_paths(&kernel).last().unwrap(), "everything");
    }
}
