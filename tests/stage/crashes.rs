//! A story repeated with an agent killed at another write of it each time.
//!
//! An undisturbed run gives the writes. The thread that gets writes from the kernel kills as soon as that
//! write has appeared.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::{StreamExt as _, stream};

use crate::{Agent, Processes, Story, World};

/// Parallel worlds: they wait most of their time.
pub const AT_ONCE: usize = 4;

/// When to kill, and which agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crash {
    pub agent: Agent,
    /// The file put in place or removed, under the root.
    pub path: String,
    /// Which such write in this story, from 1.
    pub nth: usize,
}

impl fmt::Display for Crash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} killed at write {} of {}", self.agent.name(), self.nth, self.path)
    }
}

impl Crash {
    pub fn is_of_writer(&self) -> bool {
        self.agent == writer(&self.path)
    }
}

/// The file's writer; zedagent stands for the controller.
fn writer(path: &str) -> Agent {
    let named = Agent::ALL
        .into_iter()
        .find(|it| path.split('/').any(|part| part.strip_suffix(".pid").unwrap_or(part) == it.name()));
    let of_nodeagent = ["reboot-", "boot-reason", "restartcounter", "persist/device/", "persist/log/"];
    named.unwrap_or_else(|| match path {
        _ if path.starts_with("persist/zboot/") => Agent::Baseosmgr,
        _ if of_nodeagent.iter().any(|part| path.contains(part)) => Agent::Nodeagent,
        _ => Agent::Zedagent,
    })
}

pub struct Course {
    zedbox: PathBuf,
    story: Story,
    folders: Vec<PathBuf>,
    /// Every write of an undisturbed run, in order.
    pub written: Vec<String>,
}

#[derive(Debug, Default)]
pub struct Outcome {
    pub runs: usize,
    pub kills: usize,
    pub violations: Vec<String>,
}

impl Course {
    /// Runs `story` twice, undisturbed, with processes of `zedbox`.
    pub async fn of(story: Story, zedbox: &Path) -> Self {
        let mut world = World::of_processes(zedbox).await;
        story.play(&mut world).await;
        let mut course =
            Self { zedbox: zedbox.to_owned(), story, folders: world.folders(), written: Vec::new() };
        drop(world);
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let ear = heard.clone();
        course
            .watched(move |path, _| {
                ear.lock().unwrap_or_else(PoisonError::into_inner).extend(path.map(str::to_owned));
            })
            .await;
        course.written = std::mem::take(&mut *heard.lock().unwrap());
        course
    }

    pub fn crashes(&self) -> Vec<Crash> {
        let (mut seen, mut all) = (BTreeMap::new(), Vec::new());
        for path in &self.written {
            let nth = seen.entry(path).or_insert(0);
            *nth += 1;
            all.extend(Agent::ALL.map(|agent| Crash { agent, path: path.clone(), nth: *nth }));
        }
        all
    }

    /// Runs the story; `hear` is called at every write.
    pub async fn watched(&self, hear: impl FnMut(Option<&str>, &Processes) + Send + 'static) {
        let mut world = World::of_processes(&self.zedbox).await;
        world.follow_writes(&self.folders, hear);
        self.story.play(&mut world).await;
        world.unfollow_writes();
    }

    /// Runs the story with these crashes, in order. Returns those whose write did not come.
    async fn crashed(&self, crashes: Vec<Crash>) -> Vec<Crash> {
        let left = Arc::new(Mutex::new(crashes));
        let (told, mut seen) = (left.clone(), BTreeMap::new());
        let hear = move |written: Option<&str>, processes: &Processes| {
            let Some(path) = written else { return };
            let nth = seen.entry(path.to_owned()).or_insert(0);
            *nth += 1;
            let due = |it: &Crash| it.path == path && it.nth == *nth;
            told.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .retain(|it| !(due(it) && processes.kill(it.agent)));
        };
        self.watched(hear).await;
        let mut left = left.lock().unwrap();
        std::mem::take(&mut *left)
    }

    /// Runs a story for each of these, several at once. A missing write gets a second and a third story: some
    /// writes are skipped for lack of time.
    pub fn all_crashed(&self, stories: impl IntoIterator<Item = Vec<Crash>>) -> Outcome {
        let jobs = stories.into_iter().map(|crashes| {
            let named: Vec<String> = crashes.iter().map(Crash::to_string).collect();
            let label = format!("{:?}: {}", self.story, named.join(", "));
            let told = async move {
                let (all, mut left) = (crashes.len(), crashes);
                for _ in 0..3 {
                    left = self.crashed(left).await;
                    if left.is_empty() {
                        break;
                    }
                }
                all - left.len()
            };
            (label, move || within(told))
        });
        at_once(AT_ONCE, jobs)
    }
}

impl Course {
    /// Runs the story with up to `most` random kills of agents, after random numbers of writes; now and then
    /// one is stopped for some writes instead. Returns the number of kills.
    pub async fn hunted(&self, mut dice: Dice, most: usize) -> usize {
        let dealt = Arc::new(AtomicUsize::new(0));
        let told = dealt.clone();
        let mut next = Blow::cast(&mut dice);
        let mut held: Option<(Agent, u64)> = None;
        let hear = move |written: Option<&str>, processes: &Processes| {
            if let Some((agent, rest)) = held {
                held = if rest == 0 || written.is_none() {
                    processes.hold(agent, false);
                    None
                } else {
                    Some((agent, rest - 1))
                };
            }
            if written.is_none() || told.load(Ordering::Relaxed) == most {
                return;
            }
            if next.after > 0 {
                next.after -= 1;
                return;
            }
            let Blow { agent, hold, .. } = std::mem::replace(&mut next, Blow::cast(&mut dice));
            if hold > 0 && held.is_none() {
                processes.hold(agent, true);
                held = Some((agent, hold));
            } else if processes.kill(agent) {
                told.fetch_add(1, Ordering::Relaxed);
            }
        };
        self.watched(hear).await;
        dealt.load(Ordering::Relaxed)
    }
}

struct Blow {
    after: u64,
    agent: Agent,
    hold: u64,
}

impl Blow {
    fn cast(dice: &mut Dice) -> Self {
        let after = dice.below(14);
        let agent = *dice.one_of(&Agent::ALL);
        let hold = if dice.below(8) == 0 { 1 + dice.below(6) } else { 0 };
        Self { after, agent, hold }
    }
}

/// Pseudo-random numbers.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Near seeds give far numbers.
    pub fn new(seed: u64) -> Self {
        let mut dice = Self((seed ^ 0x5DEE_CE66_D1CE_4E5B).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        dice.below(1);
        dice.below(1);
        dice
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }

    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

pub fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// The same on a paused clock: for worlds with agents as tasks.
pub fn within_still<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(future)
}

/// Repeats `run`, so many at once, each with dice from `seed` plus its number. Prints what each returns.
#[expect(clippy::print_stdout, reason = "a person reads which runs they were")]
pub fn by_chance(
    what: &str,
    seed: u64,
    (runs, many): (u64, usize),
    run: impl Fn(Dice) -> String + Sync,
) -> Outcome {
    let jobs = (1..=runs).map(|number| {
        let (seed, run) = (seed.wrapping_add(number), &run);
        let job = move || {
            println!("run {number}: {}", run(Dice::new(seed)));
            0
        };
        (format!("{what}, run {number}, its own seed {seed}"), job)
    });
    at_once(many, jobs.collect::<Vec<_>>())
}

/// Runs all, [`AT_ONCE`] at a time: each waits most of the time. More would exceed Linux's 128 inotify
/// instances per user, of which every process takes one.
pub async fn side_by_side<F: Future<Output = ()>>(plays: impl IntoIterator<Item = F>) {
    stream::iter(plays).buffer_unordered(AT_ONCE).collect::<()>().await;
}

/// Runs `jobs`, so many at once. Each returns its number of kills; a panic is a violation.
pub fn at_once<J: FnOnce() -> usize + Send>(
    many: usize,
    jobs: impl IntoIterator<Item = (String, J)>,
) -> Outcome {
    let jobs: Mutex<VecDeque<_>> = Mutex::new(jobs.into_iter().collect());
    let outcome = Mutex::new(Outcome::default());
    let work = || {
        loop {
            let Some((label, job)) = jobs.lock().unwrap().pop_front() else { return };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            let mut outcome = outcome.lock().unwrap();
            match done {
                Ok(kills) => {
                    outcome.runs += 1;
                    outcome.kills += kills;
                }
                Err(why) => outcome.violations.push(format!("{label}: {}", words(why.as_ref()))),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..many {
            scope.spawn(work);
        }
    });
    outcome.into_inner().unwrap()
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned())).unwrap_or_default()
}
