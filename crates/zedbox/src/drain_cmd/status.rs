//! `zedbox status`: the state of the drain as a sheet for a person or one object for a program.
//!
//! Not here: what it says (`sheet`).

use std::collections::BTreeSet;

use agent::operator;
use pubsub::TopicRoot;
use sheet::text::bar;
use sheet::{DrainOutcome, DrainView, Row, RowWeight, rows};
use topics::{GoTime, PAUSE_FILE};

use super::Shell;
use super::follow::Follow;
use super::person::user;
use super::text::{Sheet, paragraph, row};
use super::voice::Voice;
use crate::Exit;
use crate::args::{Output, StatusOptions};

/// Of the sheet at rest, and when something is going on.
const RESTING_LINES: usize = 10;
const LINES: usize = 12;

/// Prints how far the drain is.
pub(super) async fn run(shell: &Shell, options: &StatusOptions) -> anyhow::Result<Exit> {
    let Shell { topic_root, clock, voice, .. } = shell;
    let clock = *clock;
    let mut follow = Follow::open(topic_root, clock);
    follow.settle(clock).await;
    let seen = follow.view().clone();
    let (now, seen, by_clock) = match options.as_of {
        // Of a tree from elsewhere: everything by its own clock.
        Some(as_of) => (as_of, seen.clone().as_copy(), seen.as_copy()),
        None => (clock.wall(), seen.clone(), seen.by_clock(clock)),
    };
    match voice.output {
        Output::Json => Voice::json(&seen, false)?,
        Output::Text => {
            let whole = sheet(&by_clock, now, voice.columns());
            let shown =
                if options.all { whole } else { whole.brief(lines(&by_clock, now) + 1, voice.columns()) };
            Voice::print(&shown.text(voice.colours))?
        }
    };
    for line in warnings(topic_root, &seen) {
        Voice::warn(&line);
    }
    Ok(Exit::of(by_clock.judge(now).outcome))
}

/// What cannot be used, with the next step, for standard error; all that this user may not read is one line.
pub(super) fn warnings(topic_root: &TopicRoot, seen: &DrainView) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    if !seen.denied.is_empty() {
        let paths: Vec<String> = seen.denied.iter().map(|it| it.display().to_string()).collect();
        lines.push(format!("user {} may not read {}; run this as root, with sudo", user(), paths.join(", ")));
    }
    for (path, reason) in &seen.broken {
        let shown = path.display();
        let next = if path.ends_with(operator::FILE) {
            "`zedbox undrain` removes it".to_owned()
        } else if path.ends_with(PAUSE_FILE) {
            "`zedbox resume` removes it".to_owned()
        } else {
            format!("its agent writes it again when it restarts; `zedbox check {shown}` shows more")
        };
        lines.push(format!("{shown} cannot be used: {reason}; {next}"));
    }
    if lines.is_empty() && seen.status.is_none() && seen.progress.is_none() {
        let file = topic_root.path("run/zedkube/NodeDrainStatus/global.json");
        lines.push(format!(
            "zedkube has published nothing: there is no {}; check that it runs, and that --root is right",
            file.display()
        ));
    }
    lines
}

/// The whole sheet: the headline, then rows, the next step last but one.
pub(super) fn sheet(seen: &DrainView, now: GoTime, columns: usize) -> Sheet {
    let judged = seen.judge(now);
    let mut out = Sheet::new(&paragraph("", &judged.headline.text, columns), colour(judged.outcome));
    let counts = seen.agreed().map(|it| it.counts).unwrap_or_default();
    let mut causes = BTreeSet::new();
    let mut add = |Row { weight, label, text, step }: Row| {
        // Of each cause the first has its row before others have two.
        let again = !causes.insert(label) && weight == RowWeight::Cause;
        let weight = if again { RowWeight::Course } else { weight };
        let text = match label {
            "pods" => format!("{} {text}", bar(counts.gone, counts.total)),
            // The next step of all is that of the first one.
            "blocked" => text,
            _ if step.is_empty() => text,
            _ => format!("{text}; {step}"),
        };
        out.add(weight, label, &row(label, &text, columns));
    };
    rows(seen, &judged, now).into_iter().for_each(&mut add);
    let step = seen.next_step(&judged, now);
    let step = if step.is_empty() { "nothing".to_owned() } else { step };
    add(Row::new(RowWeight::Essential, "next step", step));
    let rests = matches!(judged.outcome, DrainOutcome::Idle | DrainOutcome::Unknown);
    if !rests || seen.live.running.is_some() || !seen.live.last_turn.is_zero() {
        add(seen.live_row(now));
    }
    out
}

/// How many lines the sheet has at most without `--all`.
fn lines(seen: &DrainView, now: GoTime) -> usize {
    let rests = matches!(seen.judge(now).outcome, DrainOutcome::Idle | DrainOutcome::Complete);
    if rests { RESTING_LINES } else { LINES }
}

const fn colour(outcome: DrainOutcome) -> Option<&'static str> {
    match outcome {
        DrainOutcome::Unknown | DrainOutcome::Idle => None,
        DrainOutcome::UnderWay => Some("36"),
        DrainOutcome::Blocked | DrainOutcome::Unproved => Some("33"),
        DrainOutcome::Complete => Some("32"),
        DrainOutcome::Skipped | DrainOutcome::Forced | DrainOutcome::Failed => Some("31"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use agent::Clock;

    use super::*;

    /// Of every tree, at each width.
    #[test]
    fn the_brief_sheet_has_ten_or_twelve_lines_with_the_whole_headline_or_its_beginning_and_the_whole_next_step()
     {
        let trees = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../run-fixtures"));
        let now: GoTime = "2026-03-14T09:41:00Z".parse().unwrap();
        let mut seen_trees = 0;
        for tree in std::fs::read_dir(trees).unwrap().map(|it| it.unwrap().path()).filter(|it| it.is_dir()) {
            let seen = DrainView::read(&TopicRoot::open(&tree).unwrap(), Clock::new()).as_copy();
            let judged = seen.judge(now);
            for columns in [46, 80, 200] {
                let most = lines(&seen, now);
                let text = sheet(&seen, now, columns).brief(most + 1, columns).text(false);
                assert!(text.lines().count() <= most, "{}, {columns}:\n{text}", tree.display());
                assert!(text.lines().all(|it| it.chars().count() <= columns), "{text}");
                let first = text.lines().next().unwrap();
                assert!(judged.headline.text.starts_with(first), "{text}");
                let goes_on = matches!(judged.outcome, DrainOutcome::UnderWay | DrainOutcome::Blocked)
                    && seen.last_look.is_none();
                assert_eq!(text.contains("\nnext       "), goes_on, "{}, {columns}:\n{text}", tree.display());
                assert!(!text.contains("\nstatus     "), "{text}");
                let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
                let step = flat(&seen.next_step(&judged, now));
                let columns_of_step = columns - 11;
                if step.len() < columns_of_step * 4 {
                    assert!(flat(&text).contains(&step), "{}, {columns}: {step}\n{text}", tree.display());
                }
            }
            seen_trees += 1;
        }
        assert!(seen_trees >= 15, "{seen_trees}");
    }
}
