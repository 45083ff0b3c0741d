//! Fingerprints of values by their Debug form, without irrelevant history.
//!
//! | In the text | In the fingerprint |
//! |---|---|
//! | a point of the monotonic clock | seconds ahead of its agent's clock; past ones are equal |
//! | the identity of a request | its rank among the identities in the state |
//! | any other wall time | nothing |
//! | the number of a last question | its rank among those identities |
//! | numbers of runs, looks, asks and writes | nothing: the state itself shows whether a result is stale |

use std::cell::RefCell;
use std::fmt::{Debug, Write as _};
use std::hash::{DefaultHasher, Hasher as _};
use std::time::Duration;

use step::Mono;
use topics::GoTime;

/// Members of a journal with monotonic times.
const MILLIS: [&str; 3] = ["pause_end_ms: ", "attempt_ms: ", "applied_ms: "];
/// Prefixes of the number of a question, and of a request that a turn serves; all equally long.
const NUMBERS: [&str; 6] = ["number: ", "counter: ", "look: Some(", "Look(", "LastLook(", "LookedLast("];
const LONG: usize = 9;
const COUNTS: [&str; 7] = ["run_id: ", "looks: ", "asks: ", "nth: ", "writes: ", "attempts: ", "calls: "];

/// The fingerprint of one part of a state: its text, and its requests by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Print {
    shape: u64,
    ids: Vec<usize>,
}

/// Kept between fingerprints, as there are millions.
#[derive(Default)]
struct Kept {
    text: String,
    plain: String,
    /// Identities of requests, with their text.
    asked: (Vec<GoTime>, Vec<String>),
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

impl Print {
    /// `value` belongs to an agent with the clock `now`.
    pub(crate) fn of(value: &impl Debug, now: Mono, asked: &[GoTime]) -> Self {
        KEPT.with_borrow_mut(|Kept { text, plain, asked: (known, written) }| {
            text.clear();
            plain.clear();
            write!(text, "{value:?}").expect("a String takes all");
            if known != asked {
                *known = asked.to_vec();
                *written = asked.iter().map(|it| it.rfc3339()).collect();
            }
            let ids = normalize(text, now, written, plain);
            let mut hasher = DefaultHasher::new();
            hasher.write(plain.as_bytes());
            Self { shape: hasher.finish(), ids }
        })
    }

    /// The hashed text, for a person.
    pub(crate) fn text(value: &impl Debug, now: Mono, asked: &[GoTime]) -> String {
        let mut plain = String::new();
        let asked: Vec<String> = asked.iter().map(|it| it.rfc3339()).collect();
        normalize(&format!("{value:?}"), now, &asked, &mut plain);
        plain
    }

    /// Requests are numbered in their order in the parts.
    pub(crate) fn all<'a>(parts: impl IntoIterator<Item = &'a Self>) -> u64 {
        let mut seen: Vec<usize> = Vec::new();
        let mut hasher = DefaultHasher::new();
        for part in parts {
            hasher.write_u64(part.shape);
            for id in &part.ids {
                let place = seen.iter().position(|it| it == id).unwrap_or_else(|| {
                    seen.push(*id);
                    seen.len() - 1
                });
                hasher.write_usize(place);
            }
            hasher.write_u8(0xff);
        }
        hasher.finish()
    }
}

/// First bytes of what is not hashed unchanged.
const STARTS: [bool; 256] = {
    let mut starts = [false; 256];
    let (bytes, mut at) = (b"M 0123456789", 0);
    while at < bytes.len() {
        starts[bytes[at] as usize] = true;
        at += 1;
    }
    starts
};

fn normalize(text: &str, now: Mono, asked: &[String], out: &mut String) -> Vec<usize> {
    let mut ids = Vec::new();
    let bytes = text.as_bytes();
    let (mut at, mut from) = (0, 0);
    while let Some(next) = bytes[at..].iter().position(|byte| STARTS[usize::from(*byte)]) {
        at += next;
        let rest = &bytes[at..];
        match rest[0] {
            b'M' if rest.starts_with(b"Mono(") => {
                let end = at + text[at..].find(')').expect("it is closed");
                out.push_str(&text[from..at]);
                let point = duration(&text[at + 5..end]);
                let ahead = point.saturating_sub(now.since_start()).as_millis().saturating_add(500) / 1000;
                write!(out, "+{}", ahead.min(1 << 40)).expect("a String takes all");
                at = end + 1;
                from = at;
            }
            b'2' if is_time(rest) => {
                let length = rest.iter().position(|byte| *byte == b'Z').map_or(rest.len(), |it| it + 1);
                out.push_str(&text[from..at]);
                let written = &text[at..at + length];
                match asked.iter().position(|it| it == written) {
                    Some(id) => name(&mut ids, id, out),
                    None => out.push('T'),
                }
                at += length;
                from = at;
            }
            // A struct member in Debug form.
            b' ' => {
                at += 1;
                let word = &bytes[at..];
                let is_point = MILLIS.iter().find(|it| word.starts_with(it.as_bytes()));
                let counts = || COUNTS.iter().find(|it| word.starts_with(it.as_bytes()));
                let Some(member) = is_point.or_else(counts) else { continue };
                let digits = at + member.len();
                out.push_str(&text[from..digits]);
                at = digits;
                while bytes.get(at).is_some_and(u8::is_ascii_digit) {
                    at += 1;
                }
                if is_point.is_some() {
                    let point = Duration::from_millis(text[digits..at].parse().expect("a number"));
                    let ahead =
                        point.saturating_sub(now.since_start()).as_millis().saturating_add(500) / 1000;
                    write!(out, "+{ahead}").expect("a String takes all");
                }
                from = at;
            }
            b'0'..=b'9' => {
                let length = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
                if length >= LONG && NUMBERS.iter().any(|word| text[..at].ends_with(word)) {
                    out.push_str(&text[from..at]);
                    let number: usize = text[at..at + length].parse().expect("a number");
                    // Apart from ranks of requests.
                    name(&mut ids, number | 1 << 63, out);
                    from = at + length;
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    out.push_str(&text[from..]);
    ids
}

/// Writes the rank of `id` in this text.
fn name(ids: &mut Vec<usize>, id: usize, out: &mut String) {
    let place = ids.iter().position(|it| *it == id).unwrap_or_else(|| {
        ids.push(id);
        ids.len() - 1
    });
    write!(out, "#{place}").expect("a String takes all");
}

fn is_time(bytes: &[u8]) -> bool {
    bytes.len() > 19 && bytes[1] == b'0' && bytes[4] == b'-' && bytes[7] == b'-' && bytes[10] == b'T'
}

/// Parses the Debug form of a [`Duration`].
fn duration(text: &str) -> Duration {
    let digits = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().expect("a number");
    let secs = match unit {
        "s" => number,
        "ms" => number / 1e3,
        "µs" => number / 1e6,
        "ns" => number / 1e9,
        _ => panic!("an unknown unit in {text}"),
    };
    Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX)
}

#[test]
fn what_matters_to_nobody_does_not_show() {
    let now = Mono::from_start(Duration::from_secs(100));
    let request: GoTime = "2026-01-01T00:00:03Z".parse().unwrap();
    let other: GoTime = "2026-01-01T00:00:04.5Z".parse().unwrap();
    let text = |value: &dyn Debug| Print::text(&value, now, &[request]);
    assert_eq!(text(&(now + Duration::from_millis(29_999))), "+30");
    assert_eq!(text(&Mono::START), "+0");
    assert_eq!(text(&(request, other, request)), "(#0, T, #0)");
    assert_eq!(text(&Mono::from_start(Duration::MAX)), format!("+{}", 1_u64 << 40));
    // Equal requests are equal over several parts too.
    let print = |value: &[GoTime]| Print::of(&value, now, &[request, other]);
    let (one, two) = (print(&[request, other]), print(&[other, request]));
    assert_eq!(Print::all([&one]), Print::all([&two]));
    assert_ne!(Print::all([&one, &one]), Print::all([&one, &two]));
}
