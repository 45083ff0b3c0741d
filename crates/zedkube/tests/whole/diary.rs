//! What the agent said, with the time at which it said so, and every status that it wrote.
//!
//! The log is heard on the thread that writes it, so nothing is missed and nothing comes late. A status is
//! written after the line that announces it: at the next such line the file still holds it.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use agent::Clock;
use step::Mono;
use tokio::sync::Notify;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, subscriber::DefaultGuard};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// What comes before each status that is written.
const CHANGING: &str = "nodedrain-step:changing";
const SPEAKERS: [&str; 7] =
    ["zedkube", "clusterview", "nodestatus", "kubenodeop", "kubeapi", "agent", "pubsub"];

#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) at: Mono,
    pub(crate) text: String,
}

type Act = Box<dyn FnOnce() + Send>;

pub(crate) struct Diary {
    clock: Clock,
    status_file: PathBuf,
    lines: Mutex<Vec<Line>>,
    written: Mutex<Vec<String>>,
    act: Mutex<Option<(String, usize, Act)>>,
    said: Notify,
}

/// Hears for a diary; the log of this thread goes there as long as the guard lives.
struct Ear(Arc<Diary>);

impl Diary {
    pub(crate) fn open(clock: Clock, status_file: PathBuf) -> (Arc<Self>, DefaultGuard) {
        let diary = Arc::new(Self {
            clock,
            status_file,
            lines: Mutex::default(),
            written: Mutex::default(),
            act: Mutex::default(),
            said: Notify::new(),
        });
        let guard =
            tracing::subscriber::set_default(tracing_subscriber::registry().with(Ear(Arc::clone(&diary))));
        (diary, guard)
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        lock(&self.lines).clone()
    }

    /// How many lines hold `text`.
    pub(crate) fn count(&self, text: &str) -> usize {
        lock(&self.lines).iter().filter(|line| line.text.contains(text)).count()
    }

    /// When each line that holds `text` was said.
    pub(crate) fn times(&self, text: &str) -> Vec<Mono> {
        lock(&self.lines).iter().filter(|line| line.text.contains(text)).map(|line| line.at).collect()
    }

    /// Each status that was written so far, as the text of its file, one after another.
    pub(crate) fn written(&self) -> Vec<String> {
        self.read_status();
        lock(&self.written).clone()
    }

    /// Whether COMPLETE was ever written, for whomever.
    pub(crate) fn ever_complete(&self) -> bool {
        let complete = |text: &String| text.starts_with(r#"{"Status":9,"#);
        self.written().iter().any(complete) || self.count(" to {Complete ") > 0
    }

    /// Waits until `count` lines hold `text`.
    pub(crate) async fn until(&self, text: &str, count: usize) {
        // Each line is read once: a long failure says much.
        let (mut read, mut found) = (0, 0);
        loop {
            let said = self.said.notified();
            tokio::pin!(said);
            said.as_mut().enable();
            {
                let lines = lock(&self.lines);
                found += lines[read..].iter().filter(|line| line.text.contains(text)).count();
                read = lines.len();
            }
            if found >= count {
                return;
            }
            said.await;
        }
    }

    /// Does `act` while the line is said that is the `nth`, from 1, to hold `text`.
    pub(crate) fn at(&self, text: &str, nth: usize, act: impl FnOnce() + Send + 'static) {
        *lock(&self.act) = Some((text.to_owned(), nth, Box::new(act)));
    }

    fn read_status(&self) {
        let Ok(text) = std::fs::read_to_string(&self.status_file) else { return };
        let mut written = lock(&self.written);
        if written.last() != Some(&text) {
            written.push(text);
        }
    }

    fn hear(&self, text: String) {
        if text.contains(CHANGING) {
            self.read_status();
        }
        lock(&self.lines).push(Line { at: self.clock.now(), text });
        let due = lock(&self.act).take_if(|(text, nth, _)| self.count(text) >= *nth);
        if let Some((.., act)) = due {
            act();
        }
        self.said.notify_waiters();
    }
}

impl<S: Subscriber> Layer<S> for Ear {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        let speaker = metadata.target().split("::").next().unwrap_or_default();
        SPEAKERS.contains(&speaker) && *metadata.level() <= tracing::Level::INFO
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text(event.metadata().level().to_string());
        event.record(&mut text);
        self.0.hear(text.0);
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push(' ');
        if field.name() != "message" {
            self.0.push_str(field.name());
            self.0.push('=');
        }
        write!(self.0, "{value:?}").unwrap();
    }
}

pub(crate) fn gaps(times: &[Mono]) -> Vec<u64> {
    times.windows(2).map(|pair| pair[1].since(pair[0])).map(|gap: Duration| gap.as_secs()).collect()
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap()
}
