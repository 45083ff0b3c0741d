//! A publisher is killed with SIGKILL, at least 2,000 times, at any point of its work, on a real kernel.
//!
//! No harness: this program is the test and, started by itself, the publisher. It prints its seed; `-- --seed N`
//! repeats the lengths of its lives, `-- --kills N` another number of them.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]
#![expect(
    clippy::print_stdout,
    reason = "what a harness would do: it says what it tries and how to repeat it"
)]

use std::collections::BTreeMap;
use std::env;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pubsub::{Codec, FILE_LIMIT_BYTES, Name, Publication, TopicRoot, store};

const KILLS: u64 = 2_000;
const LONGEST_LIFE: u64 = 12;
const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// A number with so much behind it that a torn or mixed file shows.
type Value = u64;

fn form(value: Value) -> Vec<u8> {
    let digit = char::from_digit(u32::try_from(value % 10).unwrap(), 10).unwrap();
    let fill = usize::try_from(value * 37 % 9_000).unwrap();
    format!("{value}:{}.", String::from(digit).repeat(fill)).into_bytes()
}

fn codec() -> Codec<Value> {
    Codec {
        encode: |value| Ok(form(*value)),
        decode: |bytes| {
            let text = std::str::from_utf8(bytes)?;
            let value = text.split(':').next().unwrap_or_default().parse()?;
            if form(value) == bytes {
                Ok(value)
            } else {
                Err(format!("torn at {} bytes", bytes.len()).into())
            }
        },
    }
}

fn names() -> [Name; 2] {
    [Name::persistent("killed", "Topic"), Name::volatile("killed", "Topic")]
}

fn open(topic_root: &TopicRoot, name: &Name) -> Publication<Value> {
    topic_root.publication(name.clone(), codec()).unwrap()
}

/// Publishes for ever, and says each change once the call has returned: `<topic> <key> <value or ->`.
fn publish(root: &Path) {
    let topic_root = TopicRoot::open(root).unwrap();
    let mut publications = names().map(|name| open(&topic_root, &name));
    let mut out = std::io::stdout().lock();
    let newest = publications.iter().flat_map(|it| it.iter().map(|(_, value)| *value)).max();
    for value in newest.unwrap_or_default() + 1.. {
        let key = KEYS[usize::try_from(value).unwrap() % KEYS.len()];
        for (topic, publication) in publications.iter_mut().enumerate() {
            let said = if key == "d" && publication.get(key).is_some() {
                publication.unpublish(key).unwrap();
                format!("{topic} {key} -\n")
            } else {
                publication.publish(key, &value).unwrap();
                format!("{topic} {key} {value}\n")
            };
            out.write_all(said.as_bytes()).unwrap();
        }
    }
}

/// Pseudo-random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// What the publisher acknowledged last for each topic and key; `None` when it took the key back.
type Said = BTreeMap<(usize, String), Option<Value>>;

fn live_and_die(root: &Path, dice: &mut Dice, said: &mut Said) -> u64 {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--publish".as_ref(), root.as_os_str()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut spoken = 0;
    let mut hear = |line: String| {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap().to_owned();
        let place = (word().parse().unwrap(), word());
        said.insert(place, word().parse().ok());
        spoken += 1;
    };
    for _ in 0..dice.below(LONGEST_LIFE) {
        hear(lines.next().unwrap().unwrap());
    }
    for _ in 0..dice.below(50_000) {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    // What it said before it died counts. A line is one write, so each is whole.
    lines.map_while(Result::ok).for_each(hear);
    spoken
}

/// Each file is what was acknowledged last, or the one change after it.
fn check(root: &Path, topic_root: &TopicRoot, said: &mut Said) {
    for (topic, name) in names().into_iter().enumerate() {
        let dir = name.dir(root);
        let mut found = BTreeMap::new();
        let mut ahead = 0;
        for key in KEYS {
            let bytes = store::read(&dir.join(format!("{key}.json")), FILE_LIMIT_BYTES).unwrap();
            let value = bytes.map(|bytes| (codec().decode)(&bytes).unwrap());
            let last = said.get(&(topic, key.to_owned())).copied().flatten();
            if value != last {
                ahead += 1;
                let newer = value.is_none_or(|value| last.is_none_or(|last| value > last));
                assert!(
                    newer && (value.is_some() || key == "d"),
                    "{name} {key}: {value:?}, said was {last:?}"
                );
            }
            said.insert((topic, key.to_owned()), value);
            found.extend(value.map(|value| (key.to_owned(), value)));
        }
        assert!(ahead <= 1, "{name}: {ahead} changes ahead of what was said");
        // The successor finds the same and removes the litter.
        let mut next = open(topic_root, &name);
        assert_eq!(next.take_findings(), []);
        assert_eq!(
            next.iter().map(|(key, value)| (key.to_owned(), *value)).collect::<BTreeMap<_, _>>(),
            found
        );
        let strangers: Vec<_> = dir
            .read_dir()
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .filter(|file| file.starts_with("tmp"))
            .collect();
        assert!(strangers.is_empty(), "{name}: {strangers:?}");
    }
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let after = |flag: &str| arguments.iter().skip_while(|it| *it != flag).nth(1);
    if let Some(root) = after("--publish") {
        return publish(Path::new(root));
    }
    if arguments.iter().any(|it| it == "--list") {
        return println!("kills: test");
    }
    let number = |flag| after(flag).map(|it| it.parse::<u64>().unwrap());
    let seed = number("--seed").unwrap_or_else(|| RandomState::new().hash_one(0) | 1);
    let kills = number("--kills").unwrap_or(KILLS);
    println!("killing a publisher {kills} times, --seed {seed}");
    let (mut dice, mut spoken) = (Dice(seed), 0);
    // On disk, and in memory where writing is so quick that other points are hit.
    let places: Vec<PathBuf> =
        [env::temp_dir(), "/dev/shm".into()].into_iter().filter(|place| place.is_dir()).collect();
    for place in &places {
        let root = tempfile::tempdir_in(place).unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let mut said = Said::new();
        for _ in 0..kills.div_ceil(places.len() as u64) {
            spoken += live_and_die(root.path(), &mut dice, &mut said);
            check(root.path(), &topic_root, &mut said);
        }
    }
    println!("{spoken} acknowledged changes, none lost, none torn");
    assert!(spoken > kills, "the publisher hardly lived");
}
