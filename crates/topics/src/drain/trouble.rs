//! `AgentTrouble`: what an agent cannot write or read at present, what waits for it, and what a person can do.
//!
//! A topic of our own, one per agent. There is no value while all is well. Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{GoTime, Kind, Topic};

/// Troubles that are told in full; the rest is counted.
const MOST_TROUBLES: usize = 24;
/// Longest text of a trouble, in bytes of UTF-8.
const LONGEST_BYTES: usize = 300;
/// Room for the texts of all troubles as they are written; a message holds 49,150 bytes (crate `pubsub`, `record`).
const ROOM_BYTES: usize = 40_000;
/// Things that are named as waiting for one trouble.
const MOST_HELD: usize = 4;

/// The troubles that an agent has at present, those that hold something up first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AgentTrouble {
    /// Each of them.
    pub troubles: Vec<Trouble>,
    /// How many more there are.
    pub more: u32,
}

impl Topic for AgentTrouble {
    const NAME: &'static str = "AgentTrouble";
    const KIND: Kind = Kind::Volatile;
}

/// Something that an agent cannot write or read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct Trouble {
    /// What it is, as `DeviceOpPending reboot` or `device config, member reboot.counter`.
    pub what: String,
    /// The file or directory.
    pub path: String,
    /// Why it failed, in words.
    pub error: String,
    /// Since when.
    pub since: GoTime,
    /// What waits for it, as `the request for a drain`; empty where nothing does.
    pub holds: Vec<String>,
    /// What a person can do. It continues by itself once that is done.
    pub next_step: String,
}

impl AgentTrouble {
    /// A value that always fits its message: those that hold something up first, then the oldest; long texts are
    /// cut, and what is left out is counted.
    #[must_use]
    pub fn fit(mut all: Vec<Trouble>) -> Self {
        all.sort_by(|a, b| {
            (a.holds.is_empty(), a.since, &a.what).cmp(&(b.holds.is_empty(), b.since, &b.what))
        });
        let (found, mut room) = (all.len(), ROOM_BYTES);
        all.truncate(MOST_TROUBLES);
        let mut told = Vec::new();
        for mut it in all {
            it.holds.truncate(MOST_HELD);
            let texts = [&mut it.what, &mut it.path, &mut it.error, &mut it.next_step];
            let bytes: usize = texts.into_iter().chain(&mut it.holds).map(shorten).sum();
            if bytes > room {
                break;
            }
            room -= bytes;
            told.push(it);
        }
        let more = u32::try_from(found - told.len()).unwrap_or(u32::MAX);
        Self { troubles: told, more }
    }

    /// Whether anything waits for one of these troubles.
    #[must_use]
    pub fn holds_something(&self) -> bool {
        self.troubles.iter().any(|it| !it.holds.is_empty())
    }
}

/// Cuts a long text; returns how many bytes it takes in JSON at the most.
fn shorten(text: &mut String) -> usize {
    if text.len() > LONGEST_BYTES {
        let end = (0..=LONGEST_BYTES - 3).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    let plain = |letter: char| letter.is_ascii_alphanumeric() || " -_.,:;/()'=".contains(letter);
    text.chars().map(|letter| if plain(letter) { 1 } else { 6 }).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::go_json;

    #[test]
    fn k1_a_thousand_long_troubles_fit_the_message_and_what_waits_comes_first() {
        let long = "\u{1}".repeat(5000);
        let all = |nth: usize| Trouble {
            what: format!("{nth:04}"),
            path: long.clone(),
            error: long.clone(),
            holds: if nth == 999 { vec![long.clone(); 99] } else { Vec::new() },
            next_step: long.clone(),
            ..Trouble::default()
        };
        let told = AgentTrouble::fit((0..1000).map(all).collect());
        assert_eq!((told.troubles[0].what.as_str(), told.troubles[1].what.as_str()), ("0999", "0000"));
        assert_eq!(told.troubles.len() + usize::try_from(told.more).unwrap(), 1000);
        assert!(told.holds_something());
        let bytes = go_json::to_vec(&told).unwrap().len();
        assert!((30_000..49_150).contains(&bytes), "{bytes}");
        let short = AgentTrouble::fit(vec![Trouble::default(); 1000]);
        assert_eq!((short.troubles.len(), short.more), (24, 976));
    }

    #[test]
    fn a_text_is_cut_between_letters() {
        let mut text = "ü".repeat(200);
        shorten(&mut text);
        assert!(text.ends_with("ü…") && text.len() <= LONGEST_BYTES, "{}", text.len());
    }
}
