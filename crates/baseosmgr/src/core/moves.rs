//! Changes of partitions and counters other than a switch: roll back, count, write.
//!
//! Pure: no clock, no I/O, no task.

use agent::partitions::PartitionState;
use step::{FailurePause, Mono};
use topics::BaseOsConfig;

use super::event::{Counter, Effect, FallbackFrom, PartitionChange, PartitionWrite};
use super::machine::BaseOs;
use super::stage::{ImageStage, content_name};

impl BaseOs {
    /// Undoes a switch, or forgets a failed try, of an image that is no longer wanted; then unpublishes
    /// statuses of removed configs.
    pub(super) fn roll_back(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if self.ordered.is_some() {
            // Which withdrawals are needed depends on the partitions.
            return;
        }
        let spare = self.facts.spare();
        let (label, version) = (spare.label, spare.short_version.clone());
        let mut gone = self.said.statuses.iter().filter(|(key, _)| !self.facts.configs.contains_key(*key));
        let was_of_gone = gone.any(|(_, status)| status.base_os_version == version);
        let changed = spare.state == PartitionState::Updating
            && self
                .facts
                .configs
                .values()
                .any(|config| self.facts.holds(config, self.facts.trees.get(&config.content_tree_uuid)));
        let named = self.facts.configs.values().any(|config| config.base_os_version == version);
        let booted_or_next = matches!(spare.state, PartitionState::Updating | PartitionState::Inprogress);
        let unwanted = !version.is_empty()
            && !named
            && (was_of_gone || changed)
            && booted_or_next
            && self.facts.running().state == PartitionState::Active
            && !self.facts.falling_back();
        if unwanted {
            // The statuses go afterwards: a restarted agent needs them to know that work is left.
            self.order(now, PartitionChange::Set { label, state: PartitionState::Unused }, effects);
            return;
        }
        self.unpublish_gone(effects);
    }

    /// Stores the counters of completed work.
    pub(super) fn count(&mut self, effects: &mut Vec<Effect>) {
        self.count_fallback(effects);
        self.count_retries(effects);
    }

    fn count_fallback(&mut self, effects: &mut Vec<Effect>) {
        if let Some(begun) = self.facts.counters.fallback_from {
            let moved = begun.from != self.facts.partitions.current;
            let state = self.facts.spare().state;
            if moved || matches!(state, PartitionState::Updating | PartitionState::Inprogress) {
                self.save_fallback(begun.counter, effects);
            }
            let over = moved || state != PartitionState::Updating;
            let retried =
                !moved && state == PartitionState::Unused && self.facts.fallback_due() == Some(begun.counter);
            if over && !retried && self.ordered.is_none() {
                self.journal(None, effects);
            }
        }
        // The first counter requests nothing.
        if let (Some(first), None) = (self.facts.fallback_counter, self.facts.counters.fallback) {
            self.save_fallback(first, effects);
        }
    }

    fn save_fallback(&mut self, counter: u32, effects: &mut Vec<Effect>) {
        if step::update(&mut self.facts.counters.fallback, Some(counter)) {
            effects.push(Effect::Save(Counter::Fallback, counter));
        }
    }

    pub(super) fn journal(&mut self, journal: Option<FallbackFrom>, effects: &mut Vec<Effect>) {
        if step::update(&mut self.facts.counters.fallback_from, journal) {
            effects.push(Effect::Journal(journal));
        }
    }

    /// A retry counter is reported once no image waits for its retry; the switch itself handles one that
    /// requests another try of a failed image.
    fn count_retries(&mut self, effects: &mut Vec<Effect>) {
        let Some(config) = self.leading() else { return };
        if self.facts.running().state != PartitionState::Active {
            return;
        }
        let (wanted, version) = (config.retry_update_counter, config.base_os_version.clone());
        let failed_here = config.activate && version == self.facts.spare().short_version;
        match self.facts.spare().state {
            PartitionState::Inprogress if failed_here => {}
            PartitionState::Updating if failed_here => self.save_config_retry(wanted, effects),
            PartitionState::Updating => {}
            PartitionState::Inprogress | PartitionState::Active | PartitionState::Unused => {
                self.save_config_retry(wanted, effects);
                if step::update(&mut self.facts.counters.current_retry, wanted) {
                    effects.push(Effect::Save(Counter::CurrentRetry, wanted));
                }
            }
        }
    }

    fn save_config_retry(&mut self, wanted: u32, effects: &mut Vec<Effect>) {
        if step::update(&mut self.facts.counters.config_retry, wanted) {
            effects.push(Effect::Save(Counter::ConfigRetry, wanted));
        }
    }

    /// The config with valid counters: the only active one, else the only one.
    fn leading(&self) -> Option<&BaseOsConfig> {
        let active: Vec<_> = self.facts.configs.values().filter(|config| config.activate).collect();
        let all: Vec<_> = self.facts.configs.values().collect();
        match (active.as_slice(), all.as_slice()) {
            ([only], _) | ([], [only]) => Some(only),
            (_, _) => None,
        }
    }

    /// Writes the next image, one at a time.
    pub(super) fn write(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        let next = self.to_write();
        if let Some(under_way) = &self.writing {
            if next.as_ref().is_some_and(|next| same_work(next, under_way)) {
                return;
            }
            self.writing = None;
            effects.push(Effect::StopWriting);
        }
        let tree = next.as_ref().and_then(|next| self.facts.trees.get(&next.tree)).cloned();
        let (Some(next), Some(tree)) = (next, tree) else { return };
        if self.ordered.is_some() {
            return;
        }
        let subject = (next.content.clone(), next.version.clone());
        if let Some(until) = FailurePause::holds(self.write_trouble.as_ref(), &subject, now) {
            self.wake_at(until);
            return;
        }
        self.writes += 1;
        let write = PartitionWrite { nth: self.writes, ..next };
        self.facts.emptied(write.label);
        effects.push(Effect::Write { write: write.clone(), tree: Box::new(tree) });
        self.percent = 0;
        self.writing = Some(write);
    }

    fn to_write(&self) -> Option<PartitionWrite> {
        // A fallback needs the other partition's content.
        if self.facts.fallback_due().is_some() {
            return None;
        }
        let stages = self.facts.stages();
        let under_way = |key: &str| self.writing.as_ref().is_some_and(|write| write.key == key);
        let (key, config, _) = stages.into_iter().find(|(key, _, stage)| {
            // A short-lived rival, as when the controller changes the image, stops nothing yet.
            *stage == ImageStage::ToWrite || (*stage == ImageStage::Rival && under_way(key))
        })?;
        let tree = self.facts.trees.get(&config.content_tree_uuid)?;
        Some(PartitionWrite {
            nth: self.writes,
            key: key.clone(),
            tree: config.content_tree_uuid.clone(),
            label: self.facts.spare().label,
            version: config.base_os_version.clone(),
            content: content_name(tree, &config.content_tree_uuid),
        })
    }
}

fn same_work(one: &PartitionWrite, other: &PartitionWrite) -> bool {
    (&one.key, &one.content, &one.version) == (&other.key, &other.content, &other.version)
}
