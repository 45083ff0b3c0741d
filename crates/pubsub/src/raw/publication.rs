//! A topic by its publisher: it owns the directory, and what is in memory is what is on disk.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::disk::{Disk, HostDisk};
use crate::files::{self, DirKeeper, Files, SharedFiles};
use crate::folder::{DirChange, Folder, Former};
use crate::lock::Lock;
use crate::name::{BACKUP, Name, RESTARTED, SUFFIX};
use crate::raw::{AnyValue, Decode, Encode, Published};
use crate::server::{SocketServer, refuse_live};
use crate::watch::WatchHub;
use crate::{BadFile, CodecError, Error, FILE_LIMIT_BYTES, ToWire, store};

/// What [`crate::Publication`] is without the type of its values.
pub(crate) struct RawPublication {
    name: Name,
    files: SharedFiles,
    decode: Decode,
    /// Each is read out of its bytes only when somebody asks for it.
    values: BTreeMap<String, OnceLock<AnyValue>>,
    /// Keys whose last write failed: what readers see of them is not known.
    doubtful: BTreeSet<String>,
    restarted: u32,
    findings: Vec<BadFile>,
    /// Dropped before the lock: who gets the lock next must not meet our socket alive.
    server: Option<SocketServer>,
    /// The same: it writes no file then.
    keeper: Option<DirKeeper>,
    _lock: Lock,
}

impl RawPublication {
    pub(crate) fn open(hub: &Arc<WatchHub>, root: &Path, name: Name, decode: Decode) -> Result<Self, Error> {
        let lock = Lock::take(&name.to_string(), &name.dir(root))?;
        refuse_live(&name, root)?;
        let mut publication = Self::open_on(Arc::new(HostDisk), root, name, decode, lock)?;
        // What a person removes from a persistent topic stays away until it is published again: it may be meant.
        if !publication.name.is_persistent() {
            publication.keeper = DirKeeper::start(Arc::clone(hub), &publication.files);
        }
        Ok(publication)
    }

    pub(crate) fn open_on(
        disk: Arc<dyn Disk>,
        root: &Path,
        name: Name,
        decode: Decode,
        lock: Lock,
    ) -> Result<Self, Error> {
        let folder = Folder::open(disk, root, name.dir(root))?;
        let mut publication = Self {
            name,
            files: Arc::new(Mutex::new(Files::new(folder))),
            decode,
            values: BTreeMap::new(),
            doubtful: BTreeSet::new(),
            restarted: 0,
            findings: Vec::new(),
            server: None,
            keeper: None,
            _lock: lock,
        };
        publication.load()?;
        Ok(publication)
    }

    pub(crate) fn serve(&mut self, root: &Path, to_wire: ToWire, encode: &Encode<'_>) -> Result<(), Error> {
        let Some(server) = SocketServer::open(&self.name, root, to_wire)? else { return Ok(()) };
        let mut findings = Vec::new();
        for (key, value) in self.iter() {
            if let Err(reason) = server.put_anew(key, encode(value)) {
                let path = self.files().path(&self.name.file(key)?);
                findings.push(BadFile { path, reason });
            }
        }
        self.findings.append(&mut findings);
        server.count(self.restarted);
        self.server = Some(server);
        Ok(())
    }

    pub(crate) fn publish(
        &mut self,
        key: &str,
        encoded: Result<Vec<u8>, CodecError>,
    ) -> Result<Published, Error> {
        let file = self.name.file(key)?;
        let bytes = encoded.map_err(|source| self.no_form(key, source))?;
        if u64::try_from(bytes.len()).is_ok_and(|length| length > FILE_LIMIT_BYTES) {
            let (topic, key) = (self.name.to_string(), key.to_owned());
            return Err(Error::TooLong { topic, key, bytes: bytes.len(), limit: FILE_LIMIT_BYTES });
        }
        if !self.doubtful.contains(key) && self.files().is_there(&file, &bytes) {
            self.files().catch_up(DirChange::Same)?;
            return Ok(Published::Unchanged);
        }
        if let Some(server) = &self.server {
            server.check(key, &bytes)?;
        }
        let bytes: Arc<[u8]> = bytes.into();
        let replaced = self.files().replace(&file, &bytes, self.former());
        let place = match replaced {
            Ok(place) => place,
            Err(error) => {
                self.doubtful.insert(key.to_owned());
                return Err(error);
            }
        };
        self.doubtful.remove(key);
        self.values.insert(key.to_owned(), OnceLock::new());
        if let Some(server) = &self.server {
            server.put(key, bytes);
        }
        self.files().catch_up(place)?;
        Ok(Published::Written)
    }

    pub(crate) fn unpublish(&mut self, key: &str) -> Result<(), Error> {
        if !self.values.contains_key(key) && !self.doubtful.contains(key) {
            return Err(Error::UnknownKey { topic: self.name.to_string(), key: key.to_owned() });
        }
        let file = self.name.file(key)?;
        self.doubtful.insert(key.to_owned());
        // First: after a crash between the two, the list must have the key.
        if let Some(server) = &mut self.server {
            server.note_removed(std::iter::once(key));
        }
        if self.name.is_persistent()
            && let Some(backup) = store::backup(&file)
        {
            // First, and on disk: a cut in between must not bring an older value back.
            let mut files = self.files();
            let place = files.remove(&[backup.as_str()])?;
            files.note(place);
        }
        let place = self.files().remove(&[file.as_str()])?;
        self.doubtful.remove(key);
        self.values.remove(key);
        if let Some(server) = &self.server {
            server.take(key);
        }
        self.files().catch_up(place)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&dyn Any> {
        self.values.get(key).and_then(|value| self.read(key, value))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &dyn Any)> {
        self.values.iter().filter_map(|(key, value)| Some((key.as_str(), self.read(key, value)?)))
    }

    /// What readers see of a key. A codec that cannot read its own bytes leaves them without a value, as here.
    fn read<'a>(&self, key: &str, value: &'a OnceLock<AnyValue>) -> Option<&'a dyn Any> {
        if value.get().is_none() {
            let bytes = self.files().held(&self.name.file(key).ok()?)?;
            let seen = (self.decode)(&bytes).ok()?;
            value.get_or_init(|| seen);
        }
        value.get().map(|seen| &**seen as &dyn Any)
    }

    pub(crate) const fn restarted(&self) -> u32 {
        self.restarted
    }

    pub(crate) fn signal_restarted(&mut self) -> Result<(), Error> {
        let count = self.restarted.saturating_add(1);
        let place =
            self.files().replace(RESTARTED, &count.to_string().into_bytes().into(), Former::Dropped)?;
        self.count(count);
        self.files().catch_up(place)
    }

    pub(crate) fn clear_restarted(&mut self) -> Result<(), Error> {
        let place = self.files().remove(&[RESTARTED])?;
        self.count(0);
        self.files().catch_up(place)
    }

    fn count(&mut self, restarted: u32) {
        self.restarted = restarted;
        if let Some(server) = &self.server {
            server.count(restarted);
        }
    }

    pub(crate) fn take_findings(&mut self) -> Vec<BadFile> {
        std::mem::take(&mut self.findings)
    }

    pub(crate) fn close(mut self) -> Result<(), Error> {
        let keys: Vec<&String> =
            if self.name.is_persistent() { Vec::new() } else { self.values.keys().collect() };
        let files = keys.into_iter().map(|key| self.name.file(key)).collect::<Result<Vec<_>, _>>()?;
        if !self.name.is_persistent()
            && let Some(server) = &mut self.server
        {
            server.note_removed(self.values.keys().map(String::as_str));
        }
        let names: Vec<&str> = files.iter().map(String::as_str).chain([RESTARTED]).collect();
        self.files().remove(&names).map(drop)?;
        let Some(server) = self.server.take() else { return Ok(()) };
        if !self.name.is_persistent() {
            self.values.keys().for_each(|key| server.take(key));
        }
        server.count(0);
        server.close()
    }

    fn no_form(&self, key: &str, source: CodecError) -> Error {
        Error::Encode { topic: self.name.to_string(), key: key.to_owned(), source }
    }

    fn former(&self) -> Former {
        if self.name.is_persistent() { Former::Kept } else { Former::Dropped }
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        files::lock(&self.files)
    }

    fn load(&mut self) -> Result<(), Error> {
        let mut keys = BTreeMap::new();
        let names = self.files().names()?;
        for name in names {
            let Some(name) = name.to_str() else { continue };
            let file =
                if self.name.is_persistent() { name.strip_suffix(BACKUP).unwrap_or(name) } else { name };
            if let Some(key) = file.strip_suffix(SUFFIX) {
                keys.insert(key.to_owned(), file.to_owned());
            }
        }
        for (key, file) in keys {
            self.load_key(key, &file)?;
        }
        let counted = self.files().load(RESTARTED);
        self.restarted = match counted {
            // A text that is no number counts as one start, as in the reference.
            Ok(Some(bytes)) => String::from_utf8_lossy(&bytes).trim().parse().unwrap_or(1),
            Ok(None) => 0,
            Err(error) if error.is_refusal() => {
                let path = self.files().path(RESTARTED);
                self.findings.push(BadFile { path, reason: error.to_string() });
                0
            }
            Err(error) => return Err(error),
        };
        Ok(())
    }

    fn load_key(&mut self, key: String, file: &str) -> Result<(), Error> {
        let reason = match self.value_of(file)? {
            Ok(value) => {
                self.values.insert(key, value.into());
                return Ok(());
            }
            Err(reason) => reason,
        };
        let path = self.files().path(file);
        if self.name.is_persistent()
            && let Some(backup) = store::backup(file)
            && let Ok(value) = self.value_of(&backup)?
        {
            self.files().disown(&backup);
            let mut files = self.files();
            if let Some(bytes) = files.load(&backup)? {
                let place = files.replace(file, &bytes, Former::Dropped)?;
                files.note(place);
                files.disown(&backup);
            }
            drop(files);
            self.values.insert(key, value.into());
            self.findings.push(BadFile { path, reason: format!("{reason}; its backup was used") });
            return Ok(());
        }
        self.files().disown(file);
        self.findings.push(BadFile { path, reason });
        Ok(())
    }

    /// The value in a file, or why there is none in it.
    ///
    /// # Errors
    /// The file cannot be read. Nothing is known of it then: its backup must not take its place.
    fn value_of(&self, file: &str) -> Result<Result<AnyValue, String>, Error> {
        let read = self.files().load(file);
        Ok(match read {
            Ok(Some(bytes)) if bytes.is_empty() => Err("it is empty".to_owned()),
            Ok(Some(bytes)) => (self.decode)(&bytes).map_err(|error| error.to_string()),
            Ok(None) => Err("it is missing".to_owned()),
            Err(error) if error.is_refusal() => Err(error.to_string()),
            Err(error) => return Err(error),
        })
    }
}
