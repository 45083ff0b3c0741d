//! The page at `/`: whether it is safe to work on this node, what blocks its drain and what to do, and the cluster's
//! nodes, for a person, on a phone too. It loads nothing and runs nothing, and asks for itself again.
//!
//! The templates escape every text, and no letter in it acts on a terminal or turns a line. Not here: what it tells (`report`). Pure: no clock,
//! no I/O, no task.

mod lists;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use sheet::Row;
use sheet::text::away;
use topics::{GoTime, NodeState, NodeStatus, harmless_text};

use super::metrics::word;

pub(super) use lists::{WAIT, report};

/// Between two loads of the page.
const AGAIN_SECS: u32 = 5;
/// No list is shown longer.
const SHOWN: usize = 100;
const STYLE: &str = include_str!("page.css");

/// The page that shows `status` and what else there is to know; `open` unfolds it, which its address keeps.
pub(super) fn page((status, rows): &(NodeStatus, Vec<Row>), open: bool) -> String {
    let node = if status.node.is_empty() { "this node" } else { &status.node };
    let now = status.at;
    let (words, rest) = status.headline.parts();
    let leads = !status.leader.is_empty() && status.leader == status.node;
    let look = StateStyle::of(status.headline.state);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                meta name="referrer" content="no-referrer";
                meta http-equiv="refresh" content=(AGAIN_SECS);
                link rel="icon" href="data:,";
                title { (look.letter) " " (words) " \u{b7} " (node) " \u{b7} " (rest) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                p.top { b id="node" { (node) } span { "as of " (now.shown()) } }
                div.head.(look.colour) id="headline" data-state=(word(&status.headline.state)) {
                    svg viewBox="0 0 48 48" role="img" aria-label=(look.letter) { (PreEscaped(look.shape)) }
                    div { h1 { (words) } p { (rest) } }
                }
                @if !status.next_step.is_empty() {
                    p.first id="first" {
                        @if status.headline.state != NodeState::InService { b { "Do first: " } }
                        (step(&status.next_step))
                    }
                }
                @if let Some(progress) = &status.progress { (lists::bar(progress.counts)) }
                @if leads { (lists::cluster(status)) }
                (lists::rows(rows))
                @if !leads { (lists::cluster(status)) }
                (lists::history(status, open))
                footer {
                    p { "Read-only; refreshes every " (AGAIN_SECS) " s. For programs: /status.json, /metrics." }
                    p id="versions" { (lists::versions(status)) }
                }
            }
        }
    };
    harmless_text(&page.into_string())
}

/// How a state is shown: a colour, and a shape and a letter that say the same without it.
struct StateStyle {
    colour: &'static str,
    letter: &'static str,
    shape: &'static str,
}

impl StateStyle {
    const fn of(state: NodeState) -> Self {
        /// White on the colour, 48 by 48.
        const CHECK: &str = r##"<circle cx="24" cy="24" r="22" fill="#fff"/><path d="M13 25l8 8 14-17" fill="none" stroke="#14662b" stroke-width="6"/>"##;
        const STOP: &str = r##"<path d="M15 2h18l13 13v18L33 46H15L2 33V15z" fill="#fff"/><path d="M15 15l18 18M33 15L15 33" stroke="#9c1720" stroke-width="6"/>"##;
        const CARE: &str = r##"<path d="M24 3l22 41H2z" fill="#fff"/><path d="M24 17v13M24 34v5" stroke="#854400" stroke-width="5"/>"##;
        const CLOCK: &str = r##"<circle cx="24" cy="24" r="20" fill="none" stroke="#fff" stroke-width="5"/><path d="M24 12v13l9 6" fill="none" stroke="#fff" stroke-width="5"/>"##;
        const RUNS: &str = r##"<path d="M12 6l28 18-28 18z" fill="#fff"/>"##;
        const DOWN: &str =
            r##"<path d="M24 4v30M11 22l13 14 13-14M8 44h32" fill="none" stroke="#fff" stroke-width="5"/>"##;
        const ASKS: &str = r##"<rect x="4" y="4" width="40" height="40" rx="6" fill="#fff"/><path d="M16 18a8 8 0 1 1 12 7c-3 2-4 3-4 7M24 35v5" fill="none" stroke="#3a4650" stroke-width="5"/>"##;
        let (colour, letter, shape) = match state {
            NodeState::Safe => ("good", "\u{2714}", CHECK),
            NodeState::Blocked | NodeState::Cordoned => ("warn", "\u{25b2}", CARE),
            NodeState::Failed | NodeState::Unproved | NodeState::Drained => ("bad", "\u{2716}", STOP),
            NodeState::UnderWay | NodeState::Leaving => ("work", "\u{2193}", DOWN),
            NodeState::Requested
            | NodeState::WaitingForTurn
            | NodeState::WaitingForWindow
            | NodeState::WaitingForApi
            | NodeState::Paused
            | NodeState::AfterBoot
            | NodeState::Withdrawn
            | NodeState::WholeSite => ("work", "\u{25f7}", CLOCK),
            NodeState::InService | NodeState::NoCluster => ("calm", "\u{25b6}", RUNS),
            NodeState::Unknown => ("calm", "?", ASKS),
        };
        Self { colour, letter, shape }
    }
}

/// A time as a distance, with the exact time behind it.
fn moment(at: GoTime, now: GoTime) -> Markup {
    html! { time datetime=(at.rfc3339()) title=(at.shown()) { (away(at, now)) } }
}

/// A text whose commands, between back quotes, can be told from its words.
fn commands(text: &str) -> Markup {
    html! {
        @for (nth, part) in text.split('`').enumerate() {
            @if nth % 2 == 0 { (part) } @else { code { (part) } }
        }
    }
}

/// What a person can do: each command on a line of its own, which one touch marks.
fn step(text: &str) -> Markup {
    html! {
        @for (nth, part) in text.split('`').enumerate() {
            @let words = part.trim_start_matches([';', ',', '.', ' ']);
            @if nth % 2 == 1 {
                code.line { @for word in part.split_inclusive(' ') { span { (word) } } }
            } @else if nth == 0 { (part) } @else { (words) }
        }
    }
}

#[cfg(test)]
mod tests;
