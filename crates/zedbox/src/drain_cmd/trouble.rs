//! What the agents cannot write or read at present, for the sheet.

use std::collections::{BTreeMap, BTreeSet};

use agent::wire::{self, GLOBAL};
use pubsub::{Change, Subscription, TopicRoot};
use step::Inserted as _;
use topics::{AgentTrouble, GoTime, Trouble};

use super::text::moment;
use super::view::DrainView;
use crate::args::NAMES;

/// Follows the troubles of all agents.
pub(super) struct TroubleFollower([Subscription<AgentTrouble>; 4]);

impl TroubleFollower {
    /// To be called within a runtime.
    pub(super) fn open(topic_root: &TopicRoot) -> Self {
        let topic = |agent| wire::subscription::<AgentTrouble>(topic_root, agent);
        Self(NAMES.map(topic))
    }

    /// The next change, and whose it is. Dropping it loses nothing.
    pub(super) async fn next(&mut self) -> (&'static str, Change<AgentTrouble>) {
        let [zedagent, baseosmgr, nodeagent, zedkube] = &mut self.0;
        tokio::select! {
            change = zedagent.next() => ("zedagent", change),
            change = baseosmgr.next() => ("baseosmgr", change),
            change = nodeagent.next() => ("nodeagent", change),
            change = zedkube.next() => ("zedkube", change),
        }
    }

    /// Whether those of each agent were read, or are known not to be readable now.
    pub(super) fn were_tried(&self) -> bool {
        self.0.iter().all(Subscription::was_tried)
    }

    pub(super) fn all(&self) -> BTreeMap<&'static str, AgentTrouble> {
        let known = NAMES.iter().zip(&self.0);
        known.filter_map(|(agent, topic)| Some((*agent, topic.get(GLOBAL)?.clone()))).into_map()
    }
}

impl DrainView {
    /// Whether something that is wanted waits for a file.
    pub(super) fn is_held(&self) -> bool {
        self.troubles.values().any(AgentTrouble::holds_something)
    }

    /// Whether something that this agent wants to do waits for a file.
    pub(super) fn holds(&self, agent: &str) -> bool {
        self.troubles.get(agent).is_some_and(AgentTrouble::holds_something)
    }

    fn each_trouble(&self) -> impl Iterator<Item = (&'static str, &Trouble)> {
        let mut known = BTreeSet::new();
        let each = self.troubles.iter().flat_map(|(agent, all)| all.troubles.iter().map(|it| (*agent, it)));
        // Agents that share a disk say the same of it.
        let each = each.filter(move |(_, it)| known.insert((&it.what, &it.path, &it.error)));
        let (held, rest): (Vec<_>, Vec<_>) = each.partition(|(_, it)| !it.holds.is_empty());
        held.into_iter().chain(rest)
    }

    /// What to do about the first trouble that holds something up.
    pub(super) fn trouble_step(&self) -> Option<&str> {
        self.each_trouble().find(|(_, it)| !it.holds.is_empty()).map(|(_, it)| it.next_step.as_str())
    }
}

/// A row for each trouble: whose, what, where, why, since when, and what waits for it.
pub(super) fn rows(seen: &DrainView, now: GoTime) -> Vec<String> {
    let since = |it: &Trouble| format!("; since {}", moment(it.since, now));
    let rows = seen.each_trouble().map(|(agent, it)| format!("{}{}", words(agent, it), since(it)));
    rows.chain(more(seen)).collect()
}

/// The same in lines that stay as they are while time passes.
pub(super) fn lines(seen: &DrainView) -> Vec<String> {
    seen.each_trouble().map(|(agent, it)| words(agent, it)).chain(more(seen)).collect()
}

fn more(seen: &DrainView) -> Option<String> {
    let more: u32 = seen.troubles.values().map(|it| it.more).sum();
    (more > 0).then(|| format!("and {more} more, see run/<agent>/AgentTrouble/global.json"))
}

fn words(agent: &str, it: &Trouble) -> String {
    let Trouble { what, path, error, since: _, holds, next_step } = it;
    let then = if holds.is_empty() { next_step.clone() } else { format!("waits: {}", holds.join(", ")) };
    format!("{agent}: {what}: {error} ({path}); {then}")
}
