//! Under which name something is said, and how often: one Event for the same thing again, so many an hour.
//!
//! Pure: no clock, no I/O, no task.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use kubeapi::NodeName;
use step::Mono;
use topics::GoTime;

use super::notices::{Notice, NoticeKind};

/// Most writes of Events in an hour.
pub(crate) const HOURLY: usize = 30;
/// So many of them are kept for what ends something.
const KEPT_FOR_ENDS: usize = 10;
const HOUR: Duration = Duration::from_hours(1);
/// Events that are counted up; the oldest are forgotten, and said under their name again.
const REMEMBERED: usize = 64;
/// Longest beginning of a name: what follows makes it no longer than the API server takes.
const STEM_BYTES: usize = 230;

#[derive(Debug, Clone, Default)]
pub(crate) struct EventLog {
    said: VecDeque<(String, u32, GoTime)>,
    writes: VecDeque<Mono>,
}

impl EventLog {
    /// Whether one more write at `now` is within the bound; it counts then.
    pub(crate) fn admits(&mut self, now: Mono, kind: NoticeKind) -> bool {
        while self.writes.front().is_some_and(|at| now.since(*at) >= HOUR) {
            self.writes.pop_front();
        }
        let most = if kind.is_end() { HOURLY } else { HOURLY - KEPT_FOR_ENDS };
        let admitted = self.writes.len() < most;
        if admitted {
            self.writes.push_back(now);
        }
        admitted
    }

    /// How often it was said under this name, and when first.
    pub(crate) fn said(&self, name: &str) -> Option<(u32, GoTime)> {
        self.said.iter().find(|it| it.0 == name).map(|(_, count, first)| (*count, *first))
    }

    /// It is said so often now.
    pub(crate) fn note(&mut self, name: &str, count: u32, first: GoTime) {
        self.said.retain(|it| it.0 != name);
        self.said.push_back((name.to_owned(), count, first));
        while self.said.len() > REMEMBERED {
            self.said.pop_front();
        }
    }
}

/// The name of the Event for `notice`: the same for the same thing in the same boot, over restarts of zedkube.
pub(crate) fn name(node: &NodeName, boot_id: &str, notice: &Notice) -> String {
    let mut hash = DefaultHasher::new();
    (boot_id, notice.kind.reason(), &notice.subject).hash(&mut hash);
    (notice.id.by.number(), notice.id.at.rfc3339()).hash(&mut hash);
    let stem: String = node.as_str().chars().take(STEM_BYTES).collect();
    format!("{}.{:016x}", stem.trim_end_matches(['.', '-']), hash.finish())
}
