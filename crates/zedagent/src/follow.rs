//! zedkube's topics and a person's order as events.
//!
//! Not here: their consequences.

use agent::Troubles;
use pubsub::{Change, FileState};
use requester::DrainTopicUpdate;
use topics::{DEVICE_ORDER, DeviceOp, DeviceOrder, LeavePhase, NodeLeave, SiteOperation, Trouble, go_json};
use tracing::warn;

use crate::core::{Event, SiteOrder};

/// Name of the trouble with an invalid order of a person.
const ORDER: &str = "an order of a person";

pub(crate) fn of_zedkube(word: DrainTopicUpdate) -> Option<Event> {
    match word {
        DrainTopicUpdate::Status(status) => Some(Event::Drain(status)),
        DrainTopicUpdate::Progress(progress) => Some(Event::Progress(progress)),
        DrainTopicUpdate::Read => None,
    }
}

/// Whether the node has yet to leave its cluster. A missing record is logged: a zedkube of the reference has
/// none.
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

/// zedkube's order for the whole site, or that the machine went. A missing order is logged.
pub(crate) fn site(change: Change<SiteOperation>, told: &mut bool) -> Option<Event> {
    let order = match change {
        Change::Put { value, .. } => {
            // A server with the order to go waits for others; a power loss meanwhile is the same.
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

/// A person's wish for this boot, with author and reason. An invalid file is a trouble.
pub(crate) fn person(file: FileState, boot_id: &str, troubles: &Troubles) -> Option<(DeviceOp, String)> {
    let order = match file {
        FileState::Absent => Ok(None),
        FileState::Present(bytes) => {
            go_json::from_slice::<DeviceOrder>(&bytes).map(Some).map_err(|cause| step::chain(&cause))
        }
        FileState::Bad(finding) => Err(finding.reason),
    };
    let refused = match order {
        Ok(order) => {
            troubles.over(ORDER);
            let order = order?;
            if order.boot_id == boot_id {
                return Some((order.op, order.words()));
            }
            "it is of an earlier boot".to_owned()
        }
        Err(error) => {
            let next_step = "`zedbox reboot` or `zedbox shutdown` writes another one".to_owned();
            let (what, path) = (ORDER.to_owned(), DEVICE_ORDER.to_owned());
            troubles.report(&Trouble { what, path, error: error.clone(), next_step, ..Trouble::default() });
            error
        }
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
    async fn an_order_that_is_refused_is_a_trouble_until_there_is_another_one_or_none() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let troubles = Troubles::open(&topic_root, agent::Clock::new(), "zedagent");
        let told = || {
            let file = agent::wire::path::<topics::AgentTrouble>(&topic_root, "zedagent", GLOBAL);
            let bytes = pubsub::store::read(&file, 1 << 20).unwrap()?;
            Some(go_json::from_slice::<topics::AgentTrouble>(&bytes).unwrap().troubles.remove(0))
        };
        let bad =
            FileState::Bad(pubsub::BadFile { path: DEVICE_ORDER.into(), reason: "it is a link".into() });
        for (refused, why) in [(bad, "it is a link"), (FileState::Present(b"{".to_vec()), "EOF")] {
            assert_eq!(person(refused, "b", &troubles), None);
            let trouble = told().unwrap();
            assert!(trouble.error.contains(why) && trouble.path == DEVICE_ORDER, "{trouble:?}");
            assert!(trouble.next_step.contains("zedbox reboot"), "{trouble:?}");
            assert_eq!((person(FileState::Absent, "b", &troubles), told()), (None, None));
        }
    }

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
