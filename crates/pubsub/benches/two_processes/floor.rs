//! What the same costs without our library: the system calls, and a watcher as it comes.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use notify::{RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

use crate::sample::{Sample, decode, encode};

/// Temporary file, fsync, rename, fsync.
pub(crate) struct Writer {
    dir: PathBuf,
    temps: u64,
}

impl Writer {
    pub(crate) fn new(dir: PathBuf) -> Self {
        fs::create_dir_all(&dir).unwrap();
        Self { dir, temps: 0 }
    }

    pub(crate) fn write(&mut self, key: &str, sample: &Sample) {
        self.temps += 1;
        let temp = self.dir.join(format!("tmp{}", self.temps));
        let mut file = File::create_new(&temp).unwrap();
        file.write_all(&encode(sample)).unwrap();
        file.sync_all().unwrap();
        drop(file);
        fs::rename(&temp, self.dir.join(format!("{key}.json"))).unwrap();
        File::open(&self.dir).unwrap().sync_all().unwrap();
    }
}

pub(crate) async fn listen(dir: &Path, ready: impl FnOnce(), mut told: impl FnMut(Sample)) {
    fs::create_dir_all(dir).unwrap();
    let (sender, mut events) = mpsc::unbounded_channel();
    let mut watcher = notify::recommended_watcher(move |event| drop(sender.send(event))).unwrap();
    watcher.watch(dir, RecursiveMode::NonRecursive).unwrap();
    ready();
    let mut last = 0;
    while let Some(event) = events.recv().await {
        let event = event.unwrap();
        // Reading on opening and closing would be answered by the next opening and closing.
        if event.kind.is_access() {
            continue;
        }
        for path in event.paths.iter().filter(|path| path.extension().is_some_and(|it| it == "json")) {
            if let Some(sample) = fs::read(path).ok().and_then(|bytes| decode(&bytes))
                && sample.number != last
            {
                last = sample.number;
                told(sample);
            }
        }
    }
}

/// Lists the directory, reads and decodes each file, and says how many there are.
pub(crate) fn list_and_read(dir: &Path) -> usize {
    fs::read_dir(dir)
        .unwrap()
        .filter(|it| decode(&fs::read(it.as_ref().unwrap().path()).unwrap()).is_some())
        .count()
}
