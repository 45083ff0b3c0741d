//! What baseosmgr does where there are no partitions to be had: it refuses every image, and says so in its status.
//!
//! Nothing is written, no drain is requested and nothing restarts. `INSTALLED` is never said, not even of the version
//! that runs: nobody here has seen the machine boot it. Pure: no clock, no I/O, no task.

use std::collections::{BTreeMap, BTreeSet};

use step::{Core, Mono};
use topics::{BaseOsConfig, BaseOsStatus, ErrorSeverity, SwState};

use super::drain::{kept, withdrawn};
use super::event::{Effect, Event, RequiredTopic, SavedUpdates};

/// What helps where none are named, and where they cannot be read.
const RETRY_NAMED: &str = "a device config without this image, or baseosmgr started with --partitions";
const RETRY_READ: &str = "partitions that can be read; tried again every few seconds";

#[derive(Debug, Clone)]
pub struct UpdateRefuser {
    heard: BTreeSet<RequiredTopic>,
    configs: BTreeMap<String, BaseOsConfig>,
    /// How far the content of each tree is.
    trees: BTreeMap<String, SwState>,
    published: BTreeMap<String, BaseOsStatus>,
    /// What a drain request of an earlier run, which had partitions, asked for.
    request: Option<String>,
    /// Why the partitions that are named cannot be read; `None` where none are named.
    unreadable: Option<String>,
    /// Published at the first step.
    opening: Vec<Effect>,
}

impl UpdateRefuser {
    /// Continues from what an earlier run left on disk. `unreadable` says why the partitions that are named cannot be
    /// read: until they can, nothing is concluded, and what an earlier run asked for stays.
    pub fn new(found: SavedUpdates, unreadable: Option<String>) -> Self {
        let request = found.request.map(|it| it.context).filter(|_| unreadable.is_none());
        let mut opening = vec![Effect::ZbootReady, Effect::Manager(found.counters.current_retry)];
        if request.is_some() {
            // It may be taking the machine down for an image that the earlier run switched to: then the node stays
            // drained for that.
            opening.push(Effect::AskNodeagent);
        }
        Self {
            heard: BTreeSet::new(),
            configs: BTreeMap::new(),
            trees: BTreeMap::new(),
            published: found.statuses.into_iter().collect(),
            request,
            unreadable,
            opening,
        }
    }

    fn publish(&mut self, out: &mut Vec<Effect>) {
        if !self.heard.contains(&RequiredTopic::Configs) || !self.heard.contains(&RequiredTopic::Trees) {
            return;
        }
        let gone: Vec<String> =
            self.published.keys().filter(|key| !self.configs.contains_key(*key)).cloned().collect();
        for key in gone {
            self.published.remove(&key);
            out.push(Effect::Unpublish { key });
        }
        for (key, config) in &self.configs {
            let fetched = self.trees.get(&config.content_tree_uuid).copied();
            let status =
                refused(config, fetched.unwrap_or_else(|| SwState::from(0)), self.unreadable.as_deref());
            let before = self.published.get(key);
            // This boot has seen it run.
            let runs = before.is_some_and(|it| it.activated && it.base_os_version == status.base_os_version);
            if self.unreadable.is_some() && runs {
                continue;
            }
            if before != Some(&status) {
                self.published.insert(key.clone(), status.clone());
                out.push(Effect::Status { key: key.clone(), status: Box::new(status) });
            }
        }
    }
}

/// As the reference shows an image that it refuses: the state follows the content, no partition is named.
fn refused(config: &BaseOsConfig, fetched: SwState, unreadable: Option<&str>) -> BaseOsStatus {
    let version = &config.base_os_version;
    let (error, retry) = match unreadable {
        None => (
            format!(
                "update to {version} refused: this device has no image partitions (--partitions none); nothing was \
                 written, and no drain or reboot follows"
            ),
            RETRY_NAMED,
        ),
        Some(why) => {
            (format!("update to {version} refused: the image partitions cannot be read: {why}"), RETRY_READ)
        }
    };
    BaseOsStatus {
        base_os_version: config.base_os_version.clone(),
        content_tree_uuid: config.content_tree_uuid.clone(),
        state: fetched,
        error,
        error_severity: ErrorSeverity::Error,
        error_retry_condition: retry.to_owned(),
        ..BaseOsStatus::default()
    }
}

impl Core for UpdateRefuser {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, _now: Mono, event: Event) -> Vec<Effect> {
        let mut out = std::mem::take(&mut self.opening);
        match event {
            Event::Config { key, value: Some(config) } => drop(self.configs.insert(key, config)),
            Event::Config { key, value: None } => drop(self.configs.remove(&key)),
            Event::Tree { key, value: Some(tree) } => drop(self.trees.insert(key, tree.state)),
            Event::Tree { key, value: None } => drop(self.trees.remove(&key)),
            Event::Heard(source) => drop(self.heard.insert(source)),
            Event::GoingDown(going_down) => {
                if let Some(context) = self.request.take() {
                    if going_down {
                        kept(&context, &mut out);
                    } else {
                        withdrawn(&context, &mut out);
                    }
                }
            }
            Event::Drain(_)
            | Event::Progress(_)
            | Event::Cluster(_)
            | Event::HasToLeave(_)
            | Event::Forced(_)
            | Event::Pause(_)
            | Event::TestComplete { .. }
            | Event::LastBoot(_)
            | Event::FallbackCounter(_)
            | Event::Asked { .. }
            | Event::Stored { .. }
            | Event::Writing { .. }
            | Event::Written { .. }
            | Event::Refused { .. }
            | Event::Tick => {}
        }
        self.publish(&mut out);
        out
    }

    fn next_wake(&self) -> Option<Mono> {
        (!self.opening.is_empty()).then_some(Mono::START)
    }

    fn tick() -> Event {
        Event::Tick
    }
}
