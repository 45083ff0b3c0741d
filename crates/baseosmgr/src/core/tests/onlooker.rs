//! An observer: derives from other agents' values whether a switch is released, without the gate.

use topics::{DrainStatus, NodeDrainStatus, Requester};

use super::world::{Level, World};
use crate::core::Event;
use requester::{DeviceClustering, UNKNOWN_WAIT};

impl World {
    pub(super) fn status(&self) -> Option<NodeDrainStatus> {
        if let Some(Event::Drain(status)) = self.levels.get(&Level::Drain) { *status } else { None }
    }

    pub(super) fn unsaid(&self) -> bool {
        self.status().is_none_or(|it| matches!(it.status, DrainStatus::Unknown | DrainStatus::NotSupported))
    }

    /// What may release a switch to the spare partition now.
    pub(super) fn release(&self) -> Option<&'static str> {
        if let Some(Event::Forced(Some(forced))) = self.levels.get(&Level::Forced) {
            let complete = forced.status == DrainStatus::Complete;
            if forced.status == DrainStatus::NotSupported
                || (complete && forced.requested_by == Requester::Update)
            {
                return Some("forced");
            }
            // COMPLETE for the other requester does not count; any other status counts for all.
            if !complete {
                return None;
            }
        }
        let spare = self.partitions.spare();
        let named = self.request.as_ref().filter(|request| {
            let config = self.configs.get(&request.context);
            let fallback = request.context.strip_prefix("fallback ");
            fallback == Some(&spare.short_version)
                || config
                    .is_some_and(|config| config.activate && config.base_os_version == spare.short_version)
        });
        if let Some(request) = named {
            if let Some(Event::Progress(Some(progress))) = self.levels.get(&Level::Progress)
                && progress.answer(request.id()).is_some_and(|answer| answer.status == DrainStatus::Complete)
            {
                return Some("answered");
            }
            let complete = NodeDrainStatus { status: DrainStatus::Complete, requested_by: Requester::Update };
            if !self.levels.contains_key(&Level::Progress) && self.status() == Some(complete) && self.moved_on
            {
                return Some("complete of a reference zedkube");
            }
        }
        let single = self.levels.get(&Level::Cluster) == Some(&Event::Cluster(DeviceClustering::Single));
        let out = self.levels.get(&Level::HasToLeave) != Some(&Event::HasToLeave(true));
        if single && out && self.unsaid() {
            return Some("in no cluster");
        }
        let silent = self.unsaid_since.is_some_and(|since| self.now.since(since) >= UNKNOWN_WAIT);
        silent.then_some("silent for the whole wait")
    }
}
