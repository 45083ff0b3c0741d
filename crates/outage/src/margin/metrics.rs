//! etcd's metrics of port 2381 that the margin needs.
//!
//! Only metrics of etcd 3.4, 3.5 and 3.6 alike. The members are not among them (a metric with their ids came
//! with 3.6), but in the list of port 2382. Not here: the call. Sources: spec/cluster-lock.md 5.2; the text
//! format of Prometheus; answers of real members in `tests/golden/etcd`. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use step::Inserted as _;

/// A longer text is refused. etcd's has about 170 kB.
pub const LARGEST_BYTES: usize = 16 << 20;

const HAS_LEADER: &str = "etcd_server_has_leader";
const IS_LEADER: &str = "etcd_server_is_leader";
const IS_LEARNER: &str = "etcd_server_is_learner";
const SERVER_ID: &str = "etcd_server_id";
const VERSION: &str = "etcd_server_version";
const ACTIVE_PEERS: &str = "etcd_network_active_peers";
const READ: [&str; 6] = [HAS_LEADER, IS_LEADER, IS_LEARNER, SERVER_ID, VERSION, ACTIVE_PEERS];

/// A member's metrics of itself and of its connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    pub id: u64,
    /// It knows a leader.
    pub has_leader: bool,
    pub is_leader: bool,
    /// Without a vote.
    pub is_learner: bool,
    /// As `3.5.16`; "of unknown version" without one.
    pub version: String,
    /// Members to which a stream was up since this one started, and whether one is up now. It may only speak against a
    /// member. One that was never reached is missing, one that was removed stays as false, and one that hangs or lost
    /// its power is true for minutes with etcd 3.5 and 3.6.
    pub streams: BTreeMap<u64, bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMetrics {
    /// The metric is missing.
    #[error("the metric {metric} is missing (etcd {version})")]
    Missing { metric: &'static str, version: String },
    /// A value or a label that etcd does not write.
    #[error("the metric {metric} has an unexpected line: {line:.100}")]
    Odd { metric: &'static str, line: String },
    #[error("the metric {0} has two different values")]
    Twice(&'static str),
    /// Longer than [`LARGEST_BYTES`].
    #[error("the text has {0} bytes, more than {LARGEST_BYTES}")]
    TooLong(usize),
}

struct Sample {
    labels: Vec<(String, String)>,
    value: f64,
}

/// Parses `/metrics`. Other metrics are skipped.
///
/// Errors: [`BadMetrics`]: one of the metrics is missing, odd, or there with two values.
pub fn parse(text: &str) -> Result<Metrics, BadMetrics> {
    if text.len() > LARGEST_BYTES {
        return Err(BadMetrics::TooLong(text.len()));
    }
    let mut flags: BTreeMap<&'static str, bool> = BTreeMap::new();
    let (mut ids, mut streams, mut version) = (BTreeMap::new(), BTreeMap::new(), None);
    for line in text.lines().map(str::trim) {
        let Some(metric) = name_of(line) else { continue };
        let odd = || BadMetrics::Odd { metric, line: line.chars().take(200).collect() };
        let sample = sample(&line[metric.len()..]).ok_or_else(odd)?;
        let up = match sample.value {
            0.0 => false,
            1.0 => true,
            // Others are flags.
            streams if metric == ACTIVE_PEERS && streams > 0.0 => true,
            _ => return Err(odd()),
        };
        let id = |label| sample.id(label).ok_or_else(odd);
        match metric {
            SERVER_ID => put(&mut ids, id("server_id")?, up, metric)?,
            VERSION => version = sample.label("server_version").map(str::to_owned).or(version),
            ACTIVE_PEERS => put(&mut streams, (id("Local")?, id("Remote")?), up, metric)?,
            _ => put(&mut flags, metric, up, metric)?,
        }
    }
    let version = version.unwrap_or_else(|| "of unknown version".to_owned());
    let missing = |metric| BadMetrics::Missing { metric, version: version.clone() };
    let mut own = ids.iter().filter(|(_, now)| **now).map(|(id, _)| *id);
    let id = own.next().ok_or_else(|| missing(SERVER_ID))?;
    if own.next().is_some() {
        return Err(BadMetrics::Twice(SERVER_ID));
    }
    let flag = |name: &'static str| flags.get(name).copied().ok_or_else(|| missing(name));
    Ok(Metrics {
        id,
        has_leader: flag(HAS_LEADER)?,
        is_leader: flag(IS_LEADER)?,
        is_learner: flag(IS_LEARNER)?,
        // Metrics of another member in the same process are not ours.
        streams: streams
            .into_iter()
            .filter(|((of, _), _)| *of == id)
            .map(|((_, to), up)| (to, up))
            .into_map(),
        version,
    })
}

fn put<K: Ord>(
    into: &mut BTreeMap<K, bool>,
    key: K,
    value: bool,
    metric: &'static str,
) -> Result<(), BadMetrics> {
    match into.insert(key, value) {
        Some(other) if other != value => Err(BadMetrics::Twice(metric)),
        Some(_) | None => Ok(()),
    }
}

/// The wanted metric of this line, if any.
fn name_of(line: &str) -> Option<&'static str> {
    let is_end = |rest: &str| rest.starts_with(['{', ' ', '\t']) || rest.is_empty();
    READ.into_iter().find(|name| line.strip_prefix(name).is_some_and(is_end))
}

impl Sample {
    fn label(&self, label: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == label).map(|(_, value)| value.as_str())
    }

    /// In hexadecimal digits.
    fn id(&self, label: &str) -> Option<u64> {
        u64::from_str_radix(self.label(label)?, 16).ok()
    }
}

/// A line after its name: labels, value, optional time.
fn sample(rest: &str) -> Option<Sample> {
    let rest = rest.trim_start();
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inner) => labels(inner)?,
        None => (Vec::new(), rest),
    };
    let mut words = rest.split_ascii_whitespace();
    let value = words.next()?.parse().ok()?;
    words.next().is_none_or(|time| time.parse::<i64>().is_ok()).then_some(())?;
    words.next().is_none().then_some(Sample { labels, value })
}

/// Up to the closing brace, and the rest. In values `\\`, `\"` and `\n` are escapes.
fn labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut found = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((found, after));
        }
        let (name, quoted) = rest.split_once('=')?;
        let quoted = quoted.trim_start().strip_prefix('"')?;
        let mut value = String::new();
        let mut letters = quoted.char_indices();
        let end = loop {
            match letters.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match letters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, letter) => value.push(letter),
            }
        };
        found.push((name.trim().to_owned(), value));
        rest = &quoted[end + 1..];
    }
}
