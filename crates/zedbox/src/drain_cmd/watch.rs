//! `zedbox watch`: follows a drain to its end, as a sheet that is drawn over itself on a terminal and as
//! lines elsewhere.
//!
//! The files are followed by their events. Only what causes none is looked at each second: the clock, and whether
//! zedkube lives.

use std::time::Duration;

use agent::Clock;
use anyhow::Context as _;
use sheet::text::seconds;
use sheet::{DrainOutcome, DrainView};
use step::Mono;
use tokio::signal::unix::{SignalKind, signal};

use super::Shell;
use super::course::{Goal, WatchCourse};
use super::follow::{Follow, SETTLING};
use super::status::{sheet, warnings};
use super::text::{clean, height, lines_of};
use super::voice::Voice;
use crate::Exit;
use crate::args::Output;

/// A sheet is drawn ten times a second at most.
const DRAW_PAUSE: Duration = Duration::from_millis(100);
/// The clock on the sheet moves, and zedkube's lock is looked at.
const SECOND: Duration = Duration::from_secs(1);

/// How long somebody waits for the end of a drain.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WatchPatience {
    pub(super) until: Option<Mono>,
    /// Not with something that blocks it for so long without a break.
    pub(super) blocked: Option<Duration>,
    /// Something is done at the end: it comes also when nobody reads any more.
    pub(super) acts: bool,
}

impl WatchPatience {
    /// For so long from now on; for ever without a time.
    pub(super) fn until(clock: Clock, time: Option<Duration>) -> Self {
        Self { until: time.map(|it| clock.now() + it), ..Self::default() }
    }
}

/// Follows one drain until it has ended, Ctrl-C is pressed, or nobody reads any more; without `patience`
/// it ends with 3 or 4 before that.
pub(super) async fn run(shell: &Shell, goal: Goal, patience: WatchPatience) -> anyhow::Result<Exit> {
    let Shell { topic_root, clock, voice, .. } = shell;
    let clock = *clock;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
    let mut resized = signal(SignalKind::window_change()).context("listen for the terminal's size")?;
    let mut follow = Follow::open(topic_root, clock);
    let mut course = WatchCourse::new(goal);
    let mut teller = WatchOutput { voice, clock, shown: String::new(), last: None };
    for line in warnings(topic_root, follow.view()) {
        Voice::warn(&line);
    }
    let (mut drawn, mut looked): (Option<Mono>, Mono) = (None, clock.now());
    let mut stale = true;
    let mut unsettled: Option<Mono> = None;
    let mut blocked: Option<Mono> = None;
    loop {
        let now = clock.now();
        unsettled = if follow.view().settled() { None } else { unsettled.or(Some(now + SETTLING)) };
        // In the middle of a change of zedkube nothing is told that the next file withdraws.
        let held = unsettled.filter(|until| now < *until);
        let end = if held.is_some() { None } else { course.end(follow.view(), clock.wall()) };
        let may_draw = drawn.is_none_or(|at| now.since(at) >= DRAW_PAUSE);
        if end.is_some() || (stale && may_draw && held.is_none()) {
            match teller.show(follow.view(), &mut course) {
                Ok(true) => {}
                Ok(false) | Err(_) if patience.acts => {}
                Ok(false) => return Ok(Exit::Interrupted),
                Err(error) => return Err(error),
            }
            (stale, drawn) = (false, Some(now));
        }
        if let Some(end) = end {
            teller.last_words(end.is_undrained(), &end.words)?;
            return Ok(end.exit);
        }
        let is_blocked = follow.view().judge_drain(clock.wall()).outcome == DrainOutcome::Blocked;
        blocked = if is_blocked { blocked.or(Some(now)) } else { None };
        let stuck = blocked.zip(patience.blocked).map(|(since, limit)| since + limit);
        let over = [patience.until, stuck].into_iter().flatten().min();
        if over.is_some_and(|at| at <= now) {
            if patience.acts {
                drop(teller.last_words(false, "timeout"));
            } else {
                teller.last_words(false, &left("timeout", follow.view(), clock))?;
            }
            return Ok(if is_blocked { Exit::Blocked } else { Exit::UnderWay });
        }
        let next_look = looked + SECOND;
        let may_draw_at = drawn.filter(|_| stale && held.is_none()).map(|at| at + DRAW_PAUSE);
        let due = [may_draw_at, held, over].into_iter().flatten().fold(next_look, Mono::min);
        tokio::select! {
            biased;
            _ = interrupt.recv() => {
                teller.last_words(false, &left("watching ended", follow.view(), clock))?;
                return Ok(Exit::Interrupted);
            }
            _ = resized.recv() => stale = true,
            () = follow.changed() => stale = true,
            () = clock.sleep_until(Some(due)) => if clock.now() >= next_look {
                follow.look();
                looked = clock.now();
                stale = true;
            }
        }
    }
}

/// What is true of the drain that nobody watches any more, and what to do.
fn left(what: &str, seen: &DrainView, clock: Clock) -> String {
    let now = clock.wall();
    let judged = seen.judge(now);
    if matches!(judged.outcome, DrainOutcome::UnderWay | DrainOutcome::Blocked) && seen.served().is_some() {
        return format!("{what}: {}. The drain continues; `zedbox watch` follows it", judged.headline.text);
    }
    let step = seen.next_step(&judged, now);
    let step = if step.is_empty() { step } else { format!("; next step: {step}") };
    format!("{what}: {}{step}", judged.headline.text)
}

/// Tells what is seen, in the form that suits the reader.
struct WatchOutput<'a> {
    voice: &'a Voice,
    clock: Clock,
    /// The sheet that stands on the terminal.
    shown: String,
    /// What was printed last as JSON.
    last: Option<DrainView>,
}

impl WatchOutput<'_> {
    /// False when nobody reads any more.
    fn show(&mut self, seen: &DrainView, course: &mut WatchCourse) -> anyhow::Result<bool> {
        match self.voice.output {
            Output::Json => self.object(seen),
            Output::Text if self.voice.redraws => self.draw(seen),
            Output::Text => {
                let now = self.clock.wall();
                let (time, news) = (seconds(now), course.news(seen, now));
                let lines = lines_of(news.iter().map(|it| format!("{time} {}", clean(it))), "\n");
                if lines.is_empty() { Ok(true) } else { Voice::print(&lines) }
            }
        }
    }

    fn object(&mut self, seen: &DrainView) -> anyhow::Result<bool> {
        // That zedkube had another turn is no news.
        let mut now = seen.clone();
        now.live.last_turn = self.last.as_ref().map_or(now.live.last_turn, |last| last.live.last_turn);
        if self.last.as_ref() == Some(&now) {
            return Ok(true);
        }
        self.last = Some(now);
        Voice::json(seen, true)
    }

    /// Draws the sheet over the last one.
    fn draw(&mut self, seen: &DrainView) -> anyhow::Result<bool> {
        let (columns, rows) = self.voice.size();
        let seen = seen.clone().by_clock(self.clock);
        let sheet = sheet(&seen, self.clock.wall(), columns).fit(rows, columns).text(self.voice.colours);
        let up = height(&self.shown, columns);
        let back = if up > 0 { format!("\r\x1b[{up}A") } else { String::new() };
        let lines = lines_of(sheet.lines(), "\x1b[K\r\n");
        self.shown = sheet;
        Voice::print(&format!("{back}{lines}\x1b[J"))
    }

    /// The end in words, for people.
    fn last_words(&self, undrained: bool, words: &str) -> anyhow::Result<()> {
        let words = clean(words);
        let red = self.voice.colours && matches!(self.voice.output, Output::Text);
        let head = match (undrained, red) {
            (false, _) => "",
            (true, false) => "NOT DRAINED: ",
            (true, true) => "\x1b[1;31mNOT DRAINED\x1b[0m: ",
        };
        let line = match self.voice.output {
            Output::Json => {
                Voice::warn(&format!("{head}{words}"));
                return Ok(());
            }
            Output::Text if self.voice.redraws => format!("\r{head}{words}\n"),
            Output::Text => format!("{} {head}{words}\n", seconds(self.clock.wall())),
        };
        // It is over, whether or not somebody still reads.
        Voice::print(&line).map(|_| ())
    }
}
