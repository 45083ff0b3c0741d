//! Calls to a file system that may hang: a thread of the place makes them, and the caller waits for [`LIMIT`]
//! at most. A slower call is an error; until it has ended its place is not called again, and its late result
//! answers the same call made once more.
//!
//! Places are `persist` and the directories of files outside of the root. What is in memory (`run`, `/proc`,
//! `/sys`) is called directly. In a process that has not called [`begin`], as that of a command for a person,
//! calls have no limit. Not here: which call is made (`store`, `watch`, `raw`).

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use crate::Error;

pub const LIMIT: Duration = Duration::from_secs(2);
const IDLE: Duration = Duration::from_secs(30);
const MOST_LATE: usize = 64;
/// File systems without a disk.
const IN_MEMORY: [&str; 3] = ["/run", "/proc", "/sys"];

static OF_THIS_PROCESS: OnceLock<DiskPlaces> = OnceLock::new();

/// From now on no call of this process to `root/persist` or to files outside of `root` takes longer than
/// [`LIMIT`].
pub fn begin(root: &Path) {
    OF_THIS_PROCESS.get_or_init(|| DiskPlaces::new(root, LIMIT));
}

/// The places that do not answer, as they change; `None` before [`begin`].
pub fn hanging() -> Option<watch::Receiver<BTreeSet<PathBuf>>> {
    OF_THIS_PROCESS.get().map(|reach| reach.hanging.subscribe())
}

/// Makes a call on `path` that reads, or that may be made twice.
/// Errors: that of the call, or that the place of `path` does not answer.
pub(crate) fn at<T: Send + 'static>(
    path: &Path,
    call: impl FnOnce(&Path) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match OF_THIS_PROCESS.get() {
        Some(reach) => reach.call(path, None, move |path, _| call(path)),
        None => call(path),
    }
}

/// Runs `look` with the limit of the place of `path`: for callers outside of topics and the store.
pub fn look<T: Send + 'static>(path: &Path, look: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    at(path, move |_| Ok(look()))
}

/// Writes `bytes` at `path` by `call`. When an earlier such write was too slow and the bytes are the same,
/// returns its late result.
pub(crate) fn write<T: Send + 'static>(
    path: &Path,
    bytes: &[u8],
    call: impl FnOnce(&Path, &[u8]) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match OF_THIS_PROCESS.get() {
        Some(reach) => reach.call(path, Some(bytes), call),
        None => call(path, bytes),
    }
}

pub(crate) fn is_elsewhere(path: &Path) -> bool {
    OF_THIS_PROCESS.get().is_some_and(|reach| reach.place_of(path).is_some())
}

struct DiskPlaces {
    in_memory: Vec<PathBuf>,
    persist: PathBuf,
    limit: Duration,
    places: Mutex<BTreeMap<PathBuf, Arc<DiskPlace>>>,
    hanging: Arc<watch::Sender<BTreeSet<PathBuf>>>,
}

/// A file system, or a directory on an unknown one.
struct DiskPlace {
    path: PathBuf,
    work: Mutex<Work>,
    more: Condvar,
    hanging: Arc<watch::Sender<BTreeSet<PathBuf>>>,
}

#[derive(Default)]
struct Work {
    calls: VecDeque<Box<dyn FnOnce() + Send>>,
    served: bool,
    busy: bool,
    /// That call has taken longer than [`LIMIT`].
    hangs: bool,
    /// Results of writes that were too slow, with what they wrote.
    late: BTreeMap<PathBuf, (Vec<u8>, Box<dyn Any + Send>)>,
}

enum Outcome<T> {
    Awaited,
    Here(T),
    /// The caller has given up.
    Late,
}

impl DiskPlaces {
    fn new(root: &Path, limit: Duration) -> Self {
        let mut in_memory = vec![root.join("run")];
        in_memory.extend(IN_MEMORY.map(PathBuf::from));
        let hanging = Arc::new(watch::Sender::default());
        Self { in_memory, persist: root.join("persist"), limit, places: Mutex::default(), hanging }
    }

    /// `None` for what is in memory.
    fn place_of<'a>(&'a self, path: &'a Path) -> Option<&'a Path> {
        if path.starts_with(&self.persist) {
            return Some(&self.persist);
        }
        (!self.in_memory.iter().any(|it| path.starts_with(it))).then(|| path.parent().unwrap_or(path))
    }

    fn call<T: Send + 'static>(
        &self,
        path: &Path,
        bytes: Option<&[u8]>,
        call: impl FnOnce(&Path, &[u8]) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let Some(place) = self.place_of(path) else { return call(path, bytes.unwrap_or_default()) };
        let place = {
            let new = || Arc::new(DiskPlace::new(place.to_owned(), Arc::clone(&self.hanging)));
            Arc::clone(lock(&self.places).entry(place.to_owned()).or_insert_with(new))
        };
        place.call(path, bytes, self.limit, call)
    }
}

impl DiskPlace {
    fn new(path: PathBuf, hanging: Arc<watch::Sender<BTreeSet<PathBuf>>>) -> Self {
        Self { path, work: Mutex::default(), more: Condvar::new(), hanging }
    }

    fn call<T: Send + 'static>(
        self: &Arc<Self>,
        path: &Path,
        bytes: Option<&[u8]>,
        limit: Duration,
        call: impl FnOnce(&Path, &[u8]) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let outcome = Arc::new((Mutex::new(Outcome::Awaited), Condvar::new()));
        {
            let mut work = lock(&self.work);
            if work.hangs {
                return Err(self.no_answer(path));
            }
            if let Some(bytes) = bytes
                && let Some((written, late)) = work.late.remove(path)
                && written == bytes
                && let Ok(late) = late.downcast::<Result<T, Error>>()
            {
                return *late;
            }
            if !work.served {
                let served = Arc::clone(self);
                let name = "disk".to_owned();
                if thread::Builder::new().name(name).spawn(move || served.serve()).is_err() {
                    // It may take long then, but it is done.
                    drop(work);
                    return call(path, bytes.unwrap_or_default());
                }
                work.served = true;
            }
            let (place, outcome) = (Arc::clone(self), Arc::clone(&outcome));
            let (path, bytes) = (path.to_owned(), bytes.map(<[u8]>::to_vec));
            work.calls.push_back(Box::new(move || place.make(call, &outcome, path, bytes)));
            self.more.notify_one();
        }
        let awaited = |it: &mut Outcome<_>| matches!(it, Outcome::Awaited);
        let waited = outcome.1.wait_timeout_while(lock(&outcome.0), limit, awaited);
        let mut held = waited.unwrap_or_else(PoisonError::into_inner).0;
        match std::mem::replace(&mut *held, Outcome::Late) {
            Outcome::Here(result) => result,
            Outcome::Awaited | Outcome::Late => {
                drop(held);
                let mut work = lock(&self.work);
                if work.busy && !work.hangs {
                    work.hangs = true;
                    self.hanging.send_if_modified(|all| all.insert(self.path.clone()));
                }
                Err(self.no_answer(path))
            }
        }
    }

    fn make<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Path, &[u8]) -> Result<T, Error>,
        outcome: &(Mutex<Outcome<Result<T, Error>>>, Condvar),
        path: PathBuf,
        bytes: Option<Vec<u8>>,
    ) {
        if matches!(*lock(&outcome.0), Outcome::Late) {
            return;
        }
        let result = call(&path, bytes.as_deref().unwrap_or_default());
        let mut held = lock(&outcome.0);
        match (&*held, bytes) {
            (Outcome::Late, Some(bytes)) => {
                let late = &mut lock(&self.work).late;
                if late.len() < MOST_LATE {
                    late.insert(path, (bytes, Box::new(result)));
                }
            }
            (Outcome::Late, None) => {}
            (Outcome::Awaited | Outcome::Here(_), _) => {
                *held = Outcome::Here(result);
                outcome.1.notify_one();
            }
        }
    }

    /// Makes calls until none has come for [`IDLE`].
    fn serve(&self) {
        let mut work = lock(&self.work);
        loop {
            let idle = |it: &mut Work| it.calls.is_empty();
            let waited = self.more.wait_timeout_while(work, IDLE, idle);
            work = waited.unwrap_or_else(PoisonError::into_inner).0;
            let Some(call) = work.calls.pop_front() else {
                work.served = false;
                return;
            };
            work.busy = true;
            drop(work);
            call();
            work = lock(&self.work);
            work.busy = false;
            if std::mem::take(&mut work.hangs) {
                self.hanging.send_if_modified(|all| all.remove(&self.path));
            }
        }
    }

    fn no_answer(&self, path: &Path) -> Error {
        let why = format!("{} does not answer", self.path.display());
        Error::io("reach", path)(io::Error::new(io::ErrorKind::TimedOut, why))
    }
}

/// Whoever panicked with it left nothing half done.
pub(crate) fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const SOON: Duration = Duration::from_secs(1);
    const SURELY: Duration = Duration::from_secs(60);

    fn no_answer(result: Result<u8, Error>) -> String {
        let error = result.unwrap_err();
        assert!(!error.is_refusal());
        crate::error::chain(&error)
    }

    #[test]
    fn t7_a_call_that_hangs_is_an_error_and_what_it_came_to_is_the_answer_to_the_same_write() {
        let reach = DiskPlaces::new(Path::new("/r"), SOON);
        let mut hanging = reach.hanging.subscribe();
        let file = Path::new("/r/persist/status/a");
        let (go, gate) = mpsc::channel::<()>();
        let hung = reach.call(file, Some(b"1"), move |_, _| {
            gate.recv().unwrap();
            Ok(7_u8)
        });
        assert_eq!(no_answer(hung), "reach /r/persist/status/a: /r/persist does not answer");
        assert_eq!(*hanging.borrow_and_update(), BTreeSet::from(["/r/persist".into()]));
        // Late results are bounded, and calls in memory or for other places continue.
        for _ in 0..100 {
            no_answer(reach.call(Path::new("/r/persist/b"), None, |_, _| unreachable!()));
        }
        assert_eq!(reach.call(Path::new("/r/run/a"), None, |_, _| Ok(1)).unwrap(), 1);
        assert_eq!(reach.call(Path::new("/etc/a"), None, |_, _| Ok(2)).unwrap(), 2);
        go.send(()).unwrap();
        let ends = async { tokio::time::timeout(SURELY, hanging.wait_for(BTreeSet::is_empty)).await.is_ok() };
        assert!(tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(ends));
        // Written already, so it is not written twice; other bytes are.
        let again = |bytes: &[u8]| reach.call(file, Some(bytes), |_, _| Ok(8_u8)).unwrap();
        assert_eq!([again(b"1"), again(b"1")], [7, 8]);
    }

    #[test]
    fn t7_other_bytes_are_written_whatever_a_late_write_came_to_and_one_that_never_began_is_not_made_later() {
        let reach = DiskPlaces::new(Path::new("/r"), SOON);
        let mut hanging = reach.hanging.subscribe();
        let file = Path::new("/r/persist/a");
        let (go, gate) = mpsc::channel::<()>();
        let (began, begins) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let reach = &reach;
            let first = scope.spawn(move || {
                no_answer(reach.call(file, Some(b"1"), move |_, _| {
                    began.send(()).unwrap();
                    gate.recv().unwrap();
                    Ok(1_u8)
                }))
            });
            begins.recv().unwrap();
            // It waits behind the first one, and times out as well.
            no_answer(reach.call(file, Some(b"2"), |_, _| unreachable!()));
            first.join().unwrap();
        });
        go.send(()).unwrap();
        let ends = async { tokio::time::timeout(SURELY, hanging.wait_for(BTreeSet::is_empty)).await.is_ok() };
        assert!(tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(ends));
        assert_eq!(reach.call(file, Some(b"2"), |_, _| Ok(2_u8)).unwrap(), 2);
        assert_eq!(
            reach.call(file, Some(b"1"), |_, _| Ok(3_u8)).unwrap(),
            3,
            "the first result was of another time"
        );
    }
}
