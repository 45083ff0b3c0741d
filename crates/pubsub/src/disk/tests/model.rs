//! A disk in memory that loses power after any call, fails any call, and lists what a power cut can leave.
//!
//! What is not on disk yet may or may not survive, each effect by itself: names in any combination, contents
//! empty, cut, zeroed or whole. Real file systems promise more.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::Error;
use crate::disk::{Dir, Disk, Draft};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskFault {
    /// The power is cut instead of this call: it and all later ones fail without effect.
    Cut(usize),
    Once(usize, io::ErrorKind),
    /// This call and all later ones that change something fail.
    From(usize, io::ErrorKind),
    None,
}

/// Copies are the same disk.
#[derive(Debug, Clone)]
pub(crate) struct Model(Arc<Mutex<ModelState>>);

#[derive(Debug, Clone)]
struct ModelState {
    nodes: Vec<ModelNode>,
    fault: DiskFault,
    /// A write takes at most as many bytes.
    most_bytes: usize,
    calls: usize,
    log: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ModelNode {
    File { now: Vec<u8>, safe: Vec<u8> },
    Dir { now: DirNames, safe: DirNames, pending: Vec<NameChange> },
}

type DirNames = BTreeMap<OsString, usize>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum NameChange {
    Add(OsString, usize),
    Remove(OsString),
    Rename(OsString, OsString, usize),
}

impl NameChange {
    fn apply(&self, names: &mut DirNames) {
        match self {
            Self::Add(name, node) => drop(names.insert(name.clone(), *node)),
            Self::Remove(name) => drop(names.remove(name)),
            Self::Rename(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }
}

impl Model {
    pub(crate) fn new() -> Self {
        let root = ModelNode::Dir { now: DirNames::new(), safe: DirNames::new(), pending: Vec::new() };
        Self::of(vec![root])
    }

    fn of(nodes: Vec<ModelNode>) -> Self {
        let state =
            ModelState { nodes, fault: DiskFault::None, most_bytes: usize::MAX, calls: 0, log: Vec::new() };
        Self(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, ModelState> {
        self.0.lock().unwrap()
    }

    /// Counts calls from the next one, which is number 0.
    pub(crate) fn set_fault(&self, fault: DiskFault) {
        let mut state = self.lock();
        (state.fault, state.calls) = (fault, 0);
        if fault != DiskFault::None {
            state.log.clear();
        }
    }

    pub(crate) fn set_most_bytes(&self, most_bytes: usize) {
        self.lock().most_bytes = most_bytes;
    }

    pub(crate) fn calls(&self) -> usize {
        self.lock().calls
    }

    pub(crate) fn log(&self) -> String {
        self.lock().log.join(", ")
    }

    /// The disk after a kill of the process.
    pub(crate) fn killed(&self) -> Self {
        Self::of(self.lock().nodes.clone())
    }

    /// Every disk that a power cut now can leave.
    pub(crate) fn power_cuts(&self) -> Vec<Self> {
        let nodes = self.lock().nodes.clone();
        let mut left = vec![Vec::new()];
        for node in &nodes {
            let outcomes = node.outcomes();
            left = left
                .iter()
                .flat_map(|before: &Vec<ModelNode>| {
                    outcomes.iter().map(|it| [&before[..], std::slice::from_ref(it)].concat())
                })
                .collect();
        }
        left.into_iter().map(Self::of).collect()
    }

    /// All names in a directory with their contents, as a reader sees them.
    pub(crate) fn contents(&self, dir: &Path) -> BTreeMap<String, Vec<u8>> {
        let state = self.lock();
        let Ok(at) = state.find(dir) else { return BTreeMap::new() };
        let ModelNode::Dir { now, .. } = &state.nodes[at] else { panic!("{} is a file", dir.display()) };
        let content = |node: usize| match &state.nodes[node] {
            ModelNode::File { now, .. } => now.clone(),
            ModelNode::Dir { .. } => Vec::new(),
        };
        now.iter().map(|(name, node)| (name.to_str().unwrap().to_owned(), content(*node))).collect()
    }

    pub(crate) fn remove_dir_all(&self, dir: &Path) {
        let mut state = self.lock();
        let at = state.find(dir).unwrap();
        if let ModelNode::Dir { now, safe, pending } = &mut state.nodes[at] {
            now.clear();
            safe.clear();
            pending.clear();
        }
        state.change(dir.parent().unwrap(), NameChange::Remove(dir.file_name().unwrap().to_owned())).unwrap();
    }
}

impl ModelNode {
    fn outcomes(&self) -> Vec<Self> {
        match self {
            Self::File { now, safe } => {
                let file = |bytes: &[u8]| Self::File { now: bytes.to_vec(), safe: bytes.to_vec() };
                let mut all = vec![file(safe)];
                if now != safe {
                    all.extend([file(now), file(&now[..now.len() / 2]), file(&vec![0; now.len()])]);
                }
                all
            }
            Self::Dir { safe, pending, .. } => (0_u32..1 << pending.len())
                .map(|survivors| {
                    let mut names = safe.clone();
                    for (number, change) in pending.iter().enumerate() {
                        if survivors & (1 << number) != 0 {
                            change.apply(&mut names);
                        }
                    }
                    Self::Dir { now: names.clone(), safe: names, pending: Vec::new() }
                })
                .collect(),
        }
    }
}

impl ModelState {
    fn call(&mut self, what: &str, path: &Path, changes: bool) -> io::Result<()> {
        let number = self.calls;
        self.calls += 1;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.log.push(format!("{what} {name}"));
        match self.fault {
            DiskFault::Cut(at) if number >= at => Err(io::Error::other("the power is cut")),
            DiskFault::Once(at, kind) if number == at => Err(kind.into()),
            DiskFault::From(at, kind) if number >= at && changes => Err(kind.into()),
            DiskFault::Cut(_) | DiskFault::Once(..) | DiskFault::From(..) | DiskFault::None => Ok(()),
        }
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        let mut at = 0;
        for part in path.iter().skip(1) {
            let ModelNode::Dir { now, .. } = &self.nodes[at] else {
                return Err(io::ErrorKind::NotADirectory.into());
            };
            at = *now.get(part).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(at)
    }

    fn change(&mut self, dir: &Path, change: NameChange) -> io::Result<()> {
        let at = self.find(dir)?;
        let ModelNode::Dir { now, pending, .. } = &mut self.nodes[at] else {
            return Err(io::ErrorKind::NotADirectory.into());
        };
        change.apply(now);
        pending.push(change);
        Ok(())
    }

    fn add(&mut self, path: &Path, node: ModelNode) -> io::Result<usize> {
        let (dir, name) = split(path)?;
        self.find(dir)?;
        if self.find(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.nodes.push(node);
        let number = self.nodes.len() - 1;
        self.change(dir, NameChange::Add(name.to_owned(), number))?;
        Ok(number)
    }
}

impl Disk for Model {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Draft>> {
        let mut state = self.lock();
        state.call("create", path, true)?;
        let node = state.add(path, ModelNode::File { now: Vec::new(), safe: Vec::new() })?;
        Ok(Box::new(ModelFile { model: self.clone(), node, path: path.to_owned() }))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.call("link", to, true)?;
        let node = state.find(from)?;
        if state.find(to).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (dir, name) = split(to)?;
        state.change(dir, NameChange::Add(name.to_owned(), node))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.call("rename to", to, true)?;
        let node = state.find(from)?;
        let ((dir, from), (_, to)) = (split(from)?, split(to)?);
        state.change(dir, NameChange::Rename(from.to_owned(), to.to_owned(), node))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.call("remove", path, true)?;
        state.find(path)?;
        let (dir, name) = split(path)?;
        state.change(dir, NameChange::Remove(name.to_owned()))
    }

    fn remove_unclaimed(&self, path: &Path) {
        drop(self.remove(path));
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.call("make", dir, true)?;
        let node = ModelNode::Dir { now: DirNames::new(), safe: DirNames::new(), pending: Vec::new() };
        state.add(dir, node).map(drop)
    }

    fn open_dir(&self, dir: &Path) -> io::Result<Box<dyn Dir>> {
        let mut state = self.lock();
        state.call("open", dir, false)?;
        let node = state.find(dir)?;
        Ok(Box::new(ModelFile { model: self.clone(), node, path: dir.to_owned() }))
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let mut state = self.lock();
        state.call("list", dir, false)?;
        state.find(dir)?;
        drop(state);
        Ok(self.contents(dir).into_keys().map(OsString::from).collect())
    }

    fn size_bytes(&self, path: &Path) -> Option<u64> {
        let mut state = self.lock();
        state.call("look at", path, false).ok()?;
        match &state.nodes[state.find(path).ok()?] {
            ModelNode::File { now, .. } => Some(now.len() as u64),
            ModelNode::Dir { .. } => None,
        }
    }

    fn read(&self, path: &Path, _limit_bytes: u64) -> Result<Option<Vec<u8>>, Error> {
        let mut state = self.lock();
        state.call("read", path, false).map_err(Error::io("read", path))?;
        match state.find(path).map(|node| &state.nodes[node]) {
            Ok(ModelNode::File { now, .. }) => Ok(Some(now.clone())),
            Ok(ModelNode::Dir { .. }) => panic!("{} is a directory", path.display()),
            Err(_) => Ok(None),
        }
    }
}

#[derive(Debug)]
struct ModelFile {
    model: Model,
    node: usize,
    path: PathBuf,
}

impl Draft for ModelFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.model.lock();
        state.call("write", &self.path, true)?;
        let taken = &bytes[..bytes.len().min(state.most_bytes)];
        if let ModelNode::File { now, .. } = &mut state.nodes[self.node] {
            now.extend_from_slice(taken);
        }
        Ok(taken.len())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.model.lock();
        state.call("sync", &self.path, true)?;
        if let ModelNode::File { now, safe } = &mut state.nodes[self.node] {
            safe.clone_from(now);
        }
        Ok(())
    }

    fn claim(&mut self) -> io::Result<bool> {
        Ok(true)
    }
}

impl Dir for ModelFile {
    fn sync(&self) -> io::Result<()> {
        let mut state = self.model.lock();
        state.call("sync", &self.path, true)?;
        if let ModelNode::Dir { now, safe, pending } = &mut state.nodes[self.node] {
            safe.clone_from(now);
            pending.clear();
        }
        Ok(())
    }

    fn is_at(&self, path: &Path) -> bool {
        self.model.lock().find(path).is_ok_and(|node| node == self.node)
    }
}

fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    path.parent().zip(path.file_name()).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}
