//! What zedkube says, as facts.
//!
//! Not here: what follows from it.

use pubsub::{Change, FileState};
use requester::DrainTopicUpdate;
use topics::{DEVICE_ORDER, DeviceOp, DeviceOrder, LeavePhase, NodeLeave, SiteOperation, go_json};
use tracing::warn;

use crate::core::{Event, SiteOrder};

/// What zedkube says about the drain.
pub(crate) fn of_zedkube(word: DrainTopicUpdate) -> Option<Event> {
    match word {
        DrainTopicUpdate::Status(status) => Some(Event::Drain(status)),
        DrainTopicUpdate::Progress(progress) => Some(Event::Progress(progress)),
        DrainTopicUpdate::Read => None,
    }
}

/// Whether the node has yet to leave its cluster. That there is no record is worth a word: a zedkube of the reference
/// never has one.
pub(crate) fn leave(change: &Change<NodeLeave>, told: &mut bool) -> Option<Event> {
    let phase = match change {
        Change::Put { value, .. } => Some(value.phase),
        Change::Gone { .. } => Some(LeavePhase::default()),
        Change::Synced => (!*told).then(LeavePhase::default),
        Change::Restarted(_) | Change::Bad(_) => None,
    };
    *told |= phase.is_some();
    phase.map(|it| Event::HasToLeave(it.has_to_leave()))
}

/// What zedkube orders for the whole site, or says that the machine did. That there is no order is worth a word.
pub(crate) fn site(change: Change<SiteOperation>, told: &mut bool) -> Option<Event> {
    let order = match change {
        Change::Put { value, .. } => {
            // A server that has the order of going waits for others; power that is lost meanwhile is the same.
            let back = value.step == "booted";
            (value.go || back || value.step == "ready").then_some(SiteOrder {
                id: value.id,
                op: value.op,
                boot_id: value.boot_id,
                go: value.go,
                back,
            })
        }
        Change::Synced if *told => return None,
        Change::Gone { .. } | Change::Synced => None,
        Change::Restarted(_) | Change::Bad(_) => return None,
    };
    *told = true;
    Some(Event::Site(order))
}

/// What a person at this node wants in this boot, with who that is and why.
pub(crate) fn person(file: FileState, boot_id: &str) -> Option<(DeviceOp, String)> {
    let refused = match file {
        FileState::Absent => return None,
        FileState::Present(bytes) => match go_json::from_slice::<DeviceOrder>(&bytes) {
            Ok(it) if it.boot_id == boot_id => return Some((it.op, it.words())),
            Ok(_) => "it is of an earlier boot".to_owned(),
            Err(cause) => agent::report::chain(&cause),
        },
        FileState::Bad(finding) => finding.reason,
    };
    warn!(
        path = DEVICE_ORDER,
        "no order is taken from this file: {refused}; `zedbox reboot` writes another one"
    );
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::Tasks;
    use agent::wire::{GLOBAL, ZEDKUBE};
    use pubsub::TopicRoot;

    #[tokio::test]
    async fn the_record_of_leaving_is_told_at_the_start_and_that_there_is_none_as_well() {
        for (kept, expected) in
            [(None, false), (Some(LeavePhase::Member), true), (Some(LeavePhase::Left), false)]
        {
            let root = tempfile::tempdir().unwrap();
            let topic_root = TopicRoot::open(root.path()).unwrap();
            let mut record = agent::publication::<NodeLeave>(&topic_root, ZEDKUBE).unwrap();
            let in_phase = |phase| NodeLeave { phase, ..NodeLeave::default() };
            if let Some(phase) = kept {
                record.publish(GLOBAL, &in_phase(phase)).unwrap();
            }
            let (outbox, mut inbox) = agent::inbox();
            let (mut tasks, mut told) = (Tasks::new(outbox), false);
            tasks.follow::<NodeLeave>(&topic_root, ZEDKUBE, move |change| leave(&change, &mut told));
            assert_eq!(inbox.recv().await, Some(Event::HasToLeave(expected)), "{kept:?}");
            record.publish(GLOBAL, &in_phase(LeavePhase::Draining)).unwrap();
            assert_eq!(inbox.recv().await, Some(Event::HasToLeave(true)), "{kept:?}");
        }
    }
}
