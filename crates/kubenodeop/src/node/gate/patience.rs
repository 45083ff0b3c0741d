//! How long layers are waited for before they are warnings.
//!
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::time::Duration;

use step::Mono;

use super::Layer;

/// How long layers have been in trouble while all below them was healthy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LayerPatience(BTreeMap<Layer, Waited>);

/// How long one layer was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waited {
    /// Since when it is in trouble.
    since: Mono,
    /// What counted before something below it was not healthy.
    before: Duration,
    /// Since when it counts again; `None` while something below it is not healthy.
    from: Option<Mono>,
}

impl Waited {
    fn ends(&self, limit: Duration) -> Option<Mono> {
        self.from.map(|from| from + limit.saturating_sub(self.before))
    }
}

impl LayerPatience {
    /// A layer is in trouble: since when, and whether its limit is over.
    pub(super) fn trouble(&mut self, now: Mono, layer: Layer, limit: Duration) -> (Mono, bool) {
        let new = Waited { since: now, before: Duration::ZERO, from: None };
        let waited = self.0.entry(layer).or_insert(new);
        waited.from.get_or_insert(now);
        (waited.since, waited.ends(limit).is_some_and(|at| now >= at))
    }

    /// It is healthy.
    pub(super) fn heal(&mut self, layer: Layer) {
        self.0.remove(&layer);
    }

    /// Something below this layer is not healthy: its time stops.
    pub(super) fn wait(&mut self, now: Mono, layer: Layer) {
        if let Some(waited) = self.0.get_mut(&layer)
            && let Some(from) = waited.from.take()
        {
            waited.before += now.since(from);
        }
    }

    /// When the limits end that do so later than now.
    pub(super) fn ends(
        &self,
        now: Mono,
        limit: impl Fn(Layer) -> Duration,
    ) -> impl Iterator<Item = (Layer, Mono)> {
        let ends = self.0.iter().filter_map(move |(layer, it)| Some((*layer, it.ends(limit(*layer))?)));
        ends.filter(move |(_, at)| *at > now)
    }
}
