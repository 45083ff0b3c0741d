//! When drains may start: the windows that are set, whether the clock can be believed, and a person's word that this
//! one starts now.
//!
//! Follows the clock against the windows, and the file by which a person lets one drain start outside of them.
//!
//! Maintenance windows: times in which a drain may start, each a start in cron's notation, a time zone and a length.
//! The notation is crontab(5) by the crate `cronexpr`, zones are those of `/usr/share/zoneinfo`. No clock, no I/O but
//! the zones, which are read once.

use std::time::Duration;

use agent::clock;
use agent::operator::WORD;
use agent::{Clock, Tasks};
use cronexpr::{Crontab, MakeTimestamp};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use pubsub::{FileState, TopicRoot};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use step::Mono;
use topics::{GoTime, WINDOW_PASS, WindowPass, go_json};
use tracing::warn;

use crate::core::{ClosedWindow, Event, Pass};

#[cfg(test)]
mod tests;

/// How often the clock is looked at: no later a window is seen to open or close.
const LOOK: Duration = Duration::from_secs(10);
/// How often it is asked whether the clock follows a time server.
const SYNC: Duration = Duration::from_secs(60);

/// Follows both from now on. Returns what holds until the clock has been looked at: nothing is open before.
pub(crate) fn follow(
    tasks: &mut Tasks<Event>,
    topic_root: &TopicRoot,
    clock: Clock,
    windows: &Windows,
) -> Event {
    if windows.is_empty() {
        return Event::Window(None);
    }
    let first = windows.closed_by("it is being looked at");
    let (bus_of_clock, all) = (topic_root.clone(), windows.clone());
    let mut sent = Some(first.clone());
    tasks.events("follow the windows", move |outbox| async move {
        let mut boots = clock.boots();
        let mut trouble: Option<(Mono, Option<String>)> = None;
        loop {
            let now = clock.now();
            if trouble.as_ref().is_none_or(|(at, _)| now.since(*at) >= SYNC) {
                trouble = Some((now, clock::trouble(&bus_of_clock).await));
            }
            let believed = trouble.as_ref().and_then(|(_, it)| it.as_deref());
            let closed = closed(&all, clock, believed);
            if sent.as_ref() != Some(&closed) {
                sent = Some(closed.clone());
                if !outbox.send(Event::Window(closed)).await {
                    return;
                }
            }
            tokio::select! {
                () = clock.sleep_until(Some(clock.now() + LOOK)) => {}
                // One that was set is asked about at once.
                changed = boots.changed() => if changed.is_ok() { trouble = None } else { return },
            }
        }
    });
    tasks.follow_file(topic_root, topic_root.path(WINDOW_PASS), WORD, |file| {
        Some(Event::WindowPass(pass(file)))
    });
    Event::Window(first)
}

/// Why no drain starts now by these windows, for whoever plans one.
pub async fn shut(windows: &Windows, topic_root: &TopicRoot, clock: Clock) -> Option<ClosedWindow> {
    closed(windows, clock, clock::trouble(topic_root).await.filter(|_| !windows.is_empty()).as_deref())
}

fn closed(windows: &Windows, clock: Clock, trouble: Option<&str>) -> Option<ClosedWindow> {
    match trouble {
        Some(trouble) => windows.closed_by(trouble),
        None => windows.closed(clock.wall().to_timestamp()),
    }
}

fn pass(file: FileState) -> Option<Pass> {
    match file {
        FileState::Absent => None,
        FileState::Present(bytes) => match go_json::from_slice::<WindowPass>(&bytes) {
            Ok(it) => Some(Pass { of: it.id(), by: format!("{}: {}", it.by, it.reason) }),
            Err(cause) => {
                warn!(path = WINDOW_PASS, error = %cause, "ignored, no drain starts by it; write it with `zedbox go --past window`");
                None
            }
        },
        FileState::Bad(finding) => {
            warn!(path = WINDOW_PASS, "ignored, no drain starts by it: {}", finding.reason);
            None
        }
    }
}

/// No window is longer: what is open for longer needs none.
const LONGEST_MINUTES: u32 = 7 * 24 * 60;
/// No zone sets its clocks by more at once, but for days that some island leaves out.
const CHANGE: SignedDuration = SignedDuration::from_hours(3);
/// Fields of a start.
const FIELDS: usize = 5;
/// Wall clocks outside of these seconds of the Unix clock (2000 to 9000) are wrong, whatever else is known of them.
const CALENDAR_SECS: std::ops::Range<i64> = 946_684_800..221_845_392_000;

/// The windows of a node. Without one, drains start at any time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct Windows(Vec<Window>);

#[derive(Debug, Clone)]
struct Window {
    words: WindowText,
    zone: TimeZone,
    /// By the clock on the wall, which it takes for UTC: what a zone makes of an hour that comes twice or not at all is
    /// ours to say.
    starts: Crontab,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowText {
    /// Minute, hour, day of the month, month, day of the week.
    start: String,
    /// A name of the IANA's.
    zone: String,
    /// From each start on, by the clock on the wall or not: an hour that is skipped or repeated changes nothing.
    minutes: u32,
}

impl PartialEq for Window {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}

impl Eq for Window {}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        Self::new(WindowText::deserialize(text)?).map_err(D::Error::custom)
    }
}

impl Window {
    fn new(words: WindowText) -> Result<Self, String> {
        let WindowText { start, zone, minutes } = &words;
        if start.split_ascii_whitespace().count() != FIELDS {
            return Err(format!(
                "windows.start: found \"{start}\", expected five fields as in \"0 22 * * SAT\" (minute, hour, day of the \
                 month, month, day of the week)"
            ));
        }
        if !(1..=LONGEST_MINUTES).contains(minutes) {
            return Err(format!("windows.minutes: found {minutes}, expected 1 to {LONGEST_MINUTES}"));
        }
        let found = TimeZone::get(zone).map_err(|cause| {
            format!(
                "windows.zone: found \"{zone}\", expected a time zone as in \"Europe/Berlin\" or \"UTC\" ({cause}); zones \
                 are read from /usr/share/zoneinfo: where that is missing, add the package tzdata to the image"
            )
        })?;
        let starts = cronexpr::parse_crontab(&format!("{start} UTC")).map_err(|cause| {
            let cause = cause.to_string();
            let cause = cause.lines().last().unwrap_or_default().trim_start_matches([' ', '^']);
            format!("windows.start: found \"{start}\", expected times as crontab(5) has them: {cause}")
        })?;
        let window = Self { words, zone: found, starts };
        let since = Timestamp::from_second(CALENDAR_SECS.start).unwrap_or_default();
        if window.next(since).is_none() {
            let start = &window.words.start;
            return Err(format!(
                "windows.start: found \"{start}\", expected a day that comes at least every four years"
            ));
        }
        Ok(window)
    }

    fn length(&self) -> SignedDuration {
        SignedDuration::from_mins(self.words.minutes.into())
    }

    /// Its first start after `after`. One in an hour that the zone skips is as much later, one in an hour that comes twice
    /// is in the first.
    fn next(&self, after: Timestamp) -> Option<Zoned> {
        let wall = |at: Timestamp| TimeZone::UTC.to_timestamp(self.zone.to_datetime(at)).ok();
        // Further back than any zone sets its clocks: later starts on the wall are not always later.
        let mut from = wall(after.checked_sub(CHANGE).ok()?)?;
        loop {
            let start = self.starts.find_next(MakeTimestamp(from)).ok()?;
            let found = self.zone.to_zoned(start.datetime()).ok()?;
            if found.timestamp() > after {
                return Some(found);
            }
            from = start.timestamp();
        }
    }

    fn is_open(&self, now: Timestamp) -> bool {
        // Starts are whole minutes: one that is as long ago as the window is long is the first that counts no more.
        let since = now.checked_sub(self.length()).ok();
        since.and_then(|since| self.next(since)).is_some_and(|start| start.timestamp() <= now)
    }
}

impl Windows {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Why no drain starts at `now`, by the wall clock; `None` when one may.
    pub(crate) fn closed(&self, now: Timestamp) -> Option<ClosedWindow> {
        if self.is_empty() {
            return None;
        }
        if !CALENDAR_SECS.contains(&now.as_second()) {
            let why = format!("the windows are closed, as the clock of this node shows {now}");
            return Some(ClosedWindow { why, opens: None });
        }
        if self.0.iter().any(|it| it.is_open(now)) {
            return None;
        }
        let starts = self.0.iter().filter_map(|it| Some((it, it.next(now)?)));
        let next = starts.min_by_key(|(_, start)| start.timestamp());
        let Some((window, start)) = next else {
            let why = "no window opens in the next four years by the clock of this node; check `windows` in the limits file".to_owned();
            return Some(ClosedWindow { why, opens: None });
        };
        let WindowText { start: set, zone, minutes } = &window.words;
        let local = start.strftime("%Y-%m-%d %H:%M %:z");
        let left = start.timestamp().duration_since(now).unsigned_abs();
        let open = shown(Duration::from_mins(u64::from(*minutes)));
        let why = format!(
            "outside its windows: \"{set}\" {zone} opens next, {local} there, in {} and for {open}",
            shown(left)
        );
        Some(ClosedWindow { why, opens: Some(GoTime::from(start.timestamp())) })
    }

    /// Why no drain starts, whatever the time: this is wrong with the clock.
    pub(crate) fn closed_by(&self, trouble: &str) -> Option<ClosedWindow> {
        (!self.is_empty()).then(|| ClosedWindow {
            why: format!("the windows stay closed, as the clock of this node cannot be trusted: {trouble}"),
            opens: None,
        })
    }
}

/// A time in its two greatest units, whole minutes and never none.
fn shown(time: Duration) -> String {
    let minutes = time.as_secs().div_ceil(60).max(1);
    match (minutes / 1440, minutes / 60 % 24, minutes % 60) {
        (0, 0, min) => format!("{min} min"),
        (0, hours, 0) => format!("{hours} h"),
        (0, hours, min) => format!("{hours} h {min} min"),
        (days, 0, _) => format!("{days} d"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}
