//! After every single system call of a publisher the power is cut, or the call fails, and each file is
//! the old or the new one, never torn, never lost once it was published.

mod model;
pub(super) mod planted;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::Disk as _;
use crate::lock::Lock;
use crate::name::{BACKUP, RESTARTED};
use crate::quoted::codec;
use crate::store::{is_temp, remove_on, replace_on};
use crate::{Error, Name, Publication};
use model::{DiskFault, Model};

#[derive(Debug, Clone, Copy)]
enum Step {
    Publish(&'static str, &'static str),
    Unpublish(&'static str),
    Signal,
    Clear,
    Restart,
    RemoveDir,
}

use Step::{Clear, Publish, RemoveDir, Restart, Signal, Unpublish};

const STEPS: [Step; 17] = [
    Publish("a", "one"),
    Publish("a", "two"),
    Publish("b", "other"),
    Signal,
    Publish("a", "three"),
    Publish("a", "three"),
    Unpublish("b"),
    Restart,
    Publish("a", "four"),
    Publish("b", "again"),
    RemoveDir,
    Publish("a", "five"),
    Signal,
    Clear,
    Publish("a", "a longer one"),
    Unpublish("a"),
    Publish("a", "six"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Stop,
    GoOn,
}

/// What may be found of each file: the name in the folder, and its contents that are right.
#[derive(Debug, Default, Clone)]
struct Ledger {
    /// What was acknowledged; keys that are not here were withdrawn or never published.
    sure: BTreeMap<String, String>,
    /// Failed changes since: readers may see each of them.
    open: BTreeMap<String, Vec<Option<String>>>,
    may_be_gone: bool,
}

impl Ledger {
    fn note(&mut self, file: String, content: Option<String>, done: bool) {
        if !done {
            return self.open.entry(file).or_default().push(content);
        }
        self.open.remove(&file);
        self.may_be_gone = false;
        match content {
            Some(content) => drop(self.sure.insert(file, content)),
            None => drop(self.sure.remove(&file)),
        }
    }

    fn tried(&self, file: &str, content: Option<&String>) -> bool {
        self.open.get(file).is_some_and(|tried| tried.iter().any(|it| it.as_ref() == content))
    }

    /// The fault in the files of a reader, if there is one.
    fn fault(&self, found: &BTreeMap<String, Vec<u8>>) -> Option<String> {
        for (file, content) in found {
            let text = String::from_utf8_lossy(content).into_owned();
            if is_backup(file) {
                if (codec().decode)(content).is_err() {
                    return Some(format!("{file} is torn: {text:?}"));
                }
                continue;
            }
            if self.sure.get(file) != Some(&text) && !self.tried(file, Some(&text)) {
                return Some(format!("{file} is {text:?}"));
            }
        }
        let lost =
            |file: &&String| !found.contains_key(*file) && !self.may_be_gone && !self.tried(file, None);
        self.sure.keys().find(lost).map(|file| format!("{file} is lost"))
    }
}

fn is_backup(file: &str) -> bool {
    file.strip_suffix(BACKUP).is_some()
}

struct Trial {
    model: Model,
    name: Name,
    locks: tempfile::TempDir,
    opened: Cell<u32>,
    ledger: Ledger,
}

const ROOT: &str = "/device";

impl Trial {
    fn new(name: &Name) -> Self {
        let locks = tempfile::tempdir().unwrap();
        Self {
            model: Model::new(),
            name: name.clone(),
            locks,
            opened: Cell::new(0),
            ledger: Ledger::default(),
        }
    }

    fn open(&self, model: &Model) -> Result<Publication<String>, Error> {
        // One of its own: the disks are many, the machine is one.
        let number = self.opened.replace(self.opened.get() + 1);
        let lock = Lock::take("topic", &self.locks.path().join(number.to_string())).unwrap();
        Publication::open_on(Arc::new(model.clone()), Path::new(ROOT), self.name.clone(), codec(), lock)
    }

    fn found(&self, model: &Model) -> BTreeMap<String, Vec<u8>> {
        let mut found = model.contents(&self.name.dir(Path::new(ROOT)));
        found.retain(|name, _| !is_temp(name.as_ref()));
        found
    }

    fn run(&mut self, upon_failure: Then) -> bool {
        let Ok(mut publication) = self.open(&self.model) else { return false };
        for step in STEPS {
            let (file, content) = match step {
                Publish(key, value) => (format!("{key}.json"), Some(format!("\"{value}\""))),
                Unpublish(key) => (format!("{key}.json"), None),
                Signal => (RESTARTED.to_owned(), Some((publication.restarted() + 1).to_string())),
                Clear => (RESTARTED.to_owned(), None),
                Restart => {
                    let Ok(next) = self.open(&self.model) else { return false };
                    publication = next;
                    continue;
                }
                RemoveDir => {
                    self.ledger.may_be_gone = true;
                    self.model.remove_dir_all(&self.name.dir(Path::new(ROOT)));
                    continue;
                }
            };
            let done = match step {
                Publish(key, value) => publication.publish(key, &value.to_owned()).map(drop),
                Unpublish(key) => publication.unpublish(key),
                Signal => publication.signal_restarted(),
                Clear => publication.clear_restarted(),
                Restart | RemoveDir => Ok(()),
            };
            self.ledger.note(file, content, done.is_ok());
            if done.is_err() && upon_failure == Then::Stop {
                return false;
            }
        }
        true
    }

    /// Readers and the next publisher find only what is right on `model`.
    fn check(&self, model: &Model, ledger: &Ledger, when: &str) {
        let fail = |fault: &str| panic!("{} {when}: {fault}; calls: {}", self.name, self.model.log());
        let found = self.found(model);
        if let Some(fault) = ledger.fault(&found) {
            fail(&fault);
        }
        let mut next = self.open(model).unwrap();
        let findings = next.take_findings();
        if !findings.is_empty() {
            fail(&format!("{findings:?}"));
        }
        let mut loaded: BTreeMap<_, _> = next
            .iter()
            .map(|(key, value)| (format!("{key}.json"), format!("\"{value}\"").into_bytes()))
            .collect();
        if next.restarted() > 0 {
            loaded.insert(RESTARTED.to_owned(), next.restarted().to_string().into_bytes());
        }
        let mut found = found;
        found.retain(|name, _| !is_backup(name));
        if loaded != found {
            fail(&format!("the next publisher has {loaded:?}, readers {found:?}"));
        }
        let dir = self.name.dir(Path::new(ROOT));
        assert!(!model.contents(&dir).keys().any(|name| is_temp(name.as_ref())), "{when}: litter");
    }
}

fn names() -> [Name; 2] {
    [Name::volatile("agent", "Topic"), Name::persistent("agent", "Topic")]
}

fn calls_of(name: &Name, most_bytes: usize) -> usize {
    let mut trial = Trial::new(name);
    trial.model.set_most_bytes(most_bytes);
    assert!(trial.run(Then::Stop));
    assert_eq!(trial.ledger.open, BTreeMap::new());
    trial.check(&trial.model.killed(), &trial.ledger, "in the end");
    trial.model.calls()
}

#[test]
fn r2_a_power_cut_after_any_call_leaves_every_file_old_or_new() {
    for name in names() {
        for most_bytes in [usize::MAX, 4] {
            let calls = calls_of(&name, most_bytes);
            let mut disks = 0;
            for cut in 0..=calls {
                let mut trial = Trial::new(&name);
                trial.model.set_most_bytes(most_bytes);
                trial.model.set_fault(DiskFault::Cut(cut));
                trial.run(Then::Stop);
                trial.check(&trial.model.killed(), &trial.ledger, &format!("killed after call {cut}"));
                for left in trial.model.power_cuts() {
                    disks += 1;
                    trial.check(&left, &trial.ledger, &format!("power cut after call {cut}"));
                }
            }
            println!("{name}: {calls} calls, {disks} disks");
            assert!(calls > 100 && disks > 2 * calls, "{calls} calls, {disks} disks");
        }
    }
}

#[test]
fn r2_what_a_publisher_finds_after_a_kill_stays_when_the_power_is_cut_later() {
    for name in names() {
        for cut in 0..=calls_of(&name, usize::MAX) {
            let mut trial = Trial::new(&name);
            trial.model.set_fault(DiskFault::Cut(cut));
            trial.run(Then::Stop);
            let disk = trial.model.killed();
            let mut next = trial.open(&disk).unwrap();
            next.publish("z", &"new".to_owned()).unwrap();
            let mut kept = trial.found(&disk);
            kept.retain(|name, _| !is_backup(name));
            let sure =
                kept.into_iter().map(|(name, bytes)| (name, String::from_utf8(bytes).unwrap())).collect();
            let ledger = Ledger { sure, ..Ledger::default() };
            assert_eq!(ledger.sure["z.json"], "\"new\"");
            for left in disk.power_cuts() {
                trial.check(&left, &ledger, &format!("killed after call {cut}, cut later"));
            }
        }
    }
}

#[test]
fn r2_a_call_that_fails_leaves_old_or_new_and_the_next_publish_puts_an_end_to_it() {
    for name in names() {
        for kind in [ErrorKind::StorageFull, ErrorKind::ReadOnlyFilesystem] {
            for at in 0..=calls_of(&name, 4) {
                for fault in [DiskFault::Once(at, kind), DiskFault::From(at, kind)] {
                    let mut trial = Trial::new(&name);
                    trial.model.set_most_bytes(4);
                    trial.model.set_fault(fault);
                    trial.run(Then::GoOn);
                    trial.model.set_fault(DiskFault::None);
                    trial.check(&trial.model.killed(), &trial.ledger, &format!("{fault:?}"));
                    for left in trial.model.power_cuts() {
                        trial.check(&left, &trial.ledger, &format!("power cut after {fault:?}"));
                    }
                }
            }
        }
    }
}

#[test]
fn r2_a_value_whose_writing_failed_is_written_at_the_next_call_whatever_readers_saw_of_it() {
    for name in names() {
        let first = |trial: &Trial| {
            let mut publication = trial.open(&trial.model).unwrap();
            publication.publish("a", &"old".to_owned()).unwrap();
            trial.model.set_fault(DiskFault::None);
            publication
        };
        let trial = Trial::new(&name);
        first(&trial).publish("a", &"new".to_owned()).unwrap();
        for at in 0..trial.model.calls() {
            for back in ["old", "new"] {
                let trial = Trial::new(&name);
                let mut publication = first(&trial);
                trial.model.set_fault(DiskFault::Once(at, ErrorKind::StorageFull));
                let failed = publication.publish("a", &"new".to_owned()).is_err();
                assert_eq!(publication.get("a").unwrap(), if failed { "old" } else { "new" });
                trial.model.set_fault(DiskFault::None);
                publication.publish("a", &back.to_owned()).unwrap();
                let sure = BTreeMap::from([("a.json".to_owned(), format!("\"{back}\""))]);
                let ledger = Ledger { sure, ..Ledger::default() };
                for left in trial.model.power_cuts() {
                    trial.check(&left, &ledger, &format!("call {at} failed, then {back}"));
                }
            }
        }
    }
}

#[test]
fn r2_a_plain_file_is_old_or_new_as_well() {
    let path = Path::new("/device/persist/counter");
    let steps = [Some("one"), Some("two"), None, Some("three")];
    // Each process has a mark of its own for where it has written.
    let run = |model: &Model, go_on: bool| {
        let (mut right, settled) = (vec![None], Mutex::default());
        for (number, step) in steps.iter().enumerate() {
            if number == 2 && go_on {
                model.remove_dir_all(Path::new("/device/persist"));
                right = vec![None];
            }
            let done = match step {
                Some(text) => replace_on(model, &settled, path, text.as_bytes()),
                None => remove_on(model, path).map(drop),
            };
            let content = step.map(str::to_owned);
            if done.is_ok() {
                right = vec![content];
            } else {
                right.push(content);
                if !go_on {
                    break;
                }
            }
        }
        right
    };
    let check = |left: &Model, right: &[Option<String>], when: &str| {
        let found = left.read(path, 99).unwrap().map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(right.contains(&found), "{when}: {found:?}, not of {right:?}");
    };
    let whole = Model::new();
    run(&whole, false);
    for at in 0..=whole.calls() {
        let model = Model::new();
        model.set_fault(DiskFault::Cut(at));
        let right = run(&model, false);
        for left in model.power_cuts() {
            check(&left, &right, &format!("cut after call {at}"));
        }
        let disk = model.killed();
        replace_on(&disk, &Mutex::default(), path, b"next").unwrap();
        for left in disk.power_cuts() {
            check(&left, &[Some("next".to_owned())], &format!("killed after call {at}, cut later"));
        }
        let model = Model::new();
        model.set_fault(DiskFault::Once(at, ErrorKind::StorageFull));
        let right = run(&model, true);
        for left in model.power_cuts() {
            check(&left, &right, &format!("cut after call {at} failed"));
        }
    }
}

#[test]
fn k3_a_start_that_cannot_read_what_is_there_fails_and_the_next_one_has_it_all() {
    for name in names() {
        let trial = Trial::new(&name);
        let mut publication = trial.open(&trial.model).unwrap();
        for value in ["old", "new"] {
            publication.publish("a", &value.to_owned()).unwrap();
        }
        publication.signal_restarted().unwrap();
        let before = trial.found(&trial.model);
        drop(publication);
        let calls = {
            let model = trial.model.killed();
            trial.open(&model).unwrap();
            model.calls()
        };
        let mut failed = 0;
        // The kinds of EIO and EMFILE have no name of their own.
        for kind in [ErrorKind::Other, ErrorKind::OutOfMemory, ErrorKind::PermissionDenied] {
            for at in 0..calls {
                let model = trial.model.killed();
                model.set_fault(DiskFault::Once(at, kind));
                match trial.open(&model) {
                    Ok(opened) => {
                        assert_eq!(
                            opened.get("a").map(String::as_str),
                            Some("new"),
                            "{kind:?} at {}",
                            model.log()
                        );
                        assert_eq!(opened.restarted(), 1, "{kind:?} at {}", model.log());
                    }
                    Err(_) => failed += 1,
                }
                assert_eq!(trial.found(&model), before, "{kind:?} at {}", model.log());
                model.set_fault(DiskFault::None);
                let mut next = trial.open(&model).unwrap();
                assert_eq!((next.get("a").map(String::as_str), next.restarted()), (Some("new"), 1));
                assert_eq!(next.take_findings(), []);
            }
        }
        assert!(failed > 0, "no call failed");
    }
}
