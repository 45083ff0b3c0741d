//! Whether the kubelets of the nodes renew their leases, on the reader's own clock.
//!
//! One reading says nothing of the age of a lease. Nor does one that is older than the reading before it: etcd was
//! restored. Not here: the calls. Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::{Fault, LiteMap, Mono, planted};

/// A kubelet whose lease has not moved for so long is away: four of its renewals.
const UNMOVED: Duration = Duration::from_secs(40);

/// What is known of the kubelet of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Pulse {
    /// Its lease was not seen to move yet, and not for long enough.
    #[default]
    Unknown,
    /// Its lease was renewed within the last 40 s. A node without a lease counts as that after 40 s: its condition Ready
    /// says then whether it is there.
    Moving,
    /// Its lease has not moved for 40 s.
    Still,
}

/// The lease of one kubelet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Beat {
    /// Its resource version; empty where there is none.
    version: String,
    /// When it was read with that first, and last.
    since: Mono,
    read: Mono,
    /// It was renewed after this.
    moved: Option<Mono>,
}

/// The leases of all kubelets as they were read by one reader.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Pulses(LiteMap<String, Beat>);

impl Pulses {
    /// Takes one reading: of each node its name and the resource version of its lease, empty where it has none.
    pub fn take(&mut self, now: Mono, leases: impl IntoIterator<Item = (String, String)>) {
        let mut before = std::mem::take(&mut self.0);
        for (node, version) in leases {
            let old = before.remove(&node);
            let beat = match old {
                Some(old) if old.version == version => Beat { read: now, ..old },
                old => {
                    let moved = old.filter(|it| is_renewed(&it.version, &version)).map(|it| it.read);
                    Beat { version, since: now, read: now, moved }
                }
            };
            self.0.insert(node, beat);
        }
    }

    /// Whether a kubelet is silent.
    pub fn any_still(&self, now: Mono) -> bool {
        self.0.keys().any(|it| self.of(now, it) == Pulse::Still)
    }

    /// What is known of the kubelet of `node` now.
    pub fn of(&self, now: Mono, node: &str) -> Pulse {
        let is_old = |at: Mono| now.since(at) >= UNMOVED;
        match self.0.get(node) {
            Some(beat) if is_old(beat.since) && beat.version.is_empty() => Pulse::Moving,
            Some(beat) if is_old(beat.since) => Pulse::Still,
            _ if planted(Fault::FirstReading) => Pulse::Moving,
            Some(beat) if beat.moved.is_some_and(|at| !is_old(at)) => Pulse::Moving,
            Some(_) | None => Pulse::Unknown,
        }
    }
}

/// Whether a lease that was `old` and is `new` was renewed in between. Where both are numbers, as those of etcd, a lower one
/// is of before a restore.
fn is_renewed(old: &str, new: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    let is_older = number(old).zip(number(new)).is_some_and(|(old, new)| new < old);
    !old.is_empty() && !new.is_empty() && !is_older
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What it is, each reading with its time, and what is known when.
    type Row = (&'static str, &'static [(u64, &'static str)], u64, Pulse);

    fn at(secs: u64) -> Mono {
        Mono::from_start(Duration::from_secs(secs))
    }

    #[test]
    fn t6_only_a_lease_that_was_seen_to_move_lately_moves_and_one_that_stays_for_40_s_is_still() {
        let table: [Row; 11] = [
            ("never read", &[], 0, Pulse::Unknown),
            ("one reading", &[(0, "7")], 0, Pulse::Unknown),
            ("the same again", &[(0, "7"), (39, "7")], 39, Pulse::Unknown),
            ("still", &[(0, "7"), (40, "7")], 40, Pulse::Still),
            ("renewed", &[(0, "7"), (10, "9")], 10, Pulse::Moving),
            ("renewed at some time within ten minutes", &[(0, "7"), (600, "9")], 600, Pulse::Unknown),
            ("and lately", &[(0, "7"), (600, "9"), (604, "11")], 604, Pulse::Moving),
            ("renewed once and silent since", &[(0, "7"), (10, "9"), (45, "9")], 45, Pulse::Unknown),
            ("of before a restore", &[(0, "70"), (10, "9")], 10, Pulse::Unknown),
            ("no lease yet", &[(0, ""), (10, "")], 10, Pulse::Unknown),
            ("no lease", &[(0, ""), (40, "")], 40, Pulse::Moving),
        ];
        for (what, readings, now, expected) in table {
            let mut pulses = Pulses::default();
            for (when, version) in readings {
                pulses.take(at(*when), [("b".to_owned(), (*version).to_owned())]);
            }
            assert_eq!(pulses.of(at(now), "b"), expected, "{what}");
        }
    }
}
