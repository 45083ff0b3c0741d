//! What zedkube says, as facts: its status never without the answers that belong to it.
//!
//! Not here: what follows from it.

use agent::{Outbox, wire};
use pubsub::{Bus, Change};
use topics::{LeavePhase, NodeDrainProgress, NodeDrainStatus, NodeLeave};

use crate::core::Event;

const ZEDKUBE: &str = "zedkube";
/// The one key of zedkube's topics.
const GLOBAL: &str = "global";

/// Follows both topics of zedkube. zedkube writes the progress before the status, and here it is read after the
/// status: a COMPLETE that was heard alone would be taken for that of a zedkube that gives no answers, whoever it
/// is for and whatever was skipped.
pub(crate) async fn zedkube(bus: Bus, outbox: Outbox<Event>) {
    let mut statuses = bus.subscription(&wire::name::<NodeDrainStatus>(ZEDKUBE), wire::codec());
    let mut reports = bus.subscription(&wire::name::<NodeDrainProgress>(ZEDKUBE), wire::codec());
    let mut told = false;
    loop {
        let events = tokio::select! {
            biased;
            change = reports.next() => [progress(change, told), None],
            change = statuses.next() => {
                let before = match change {
                    Change::Put { .. } => wire::look::<NodeDrainProgress>(&bus, ZEDKUBE, GLOBAL).await,
                    Change::Gone { .. } | Change::Synced | Change::Restarted(_) | Change::Bad(_) => None,
                };
                [before.map(|it| Event::Progress(Some(Box::new(it)))), status(&change)]
            }
        };
        for event in events.into_iter().flatten() {
            told |= matches!(event, Event::Progress(Some(_)));
            if !outbox.send(event).await {
                return;
            }
        }
    }
}

fn status(change: &Change<NodeDrainStatus>) -> Option<Event> {
    match change {
        Change::Put { value, .. } => Some(Event::Drain(Some(*value))),
        Change::Gone { .. } => Some(Event::Drain(None)),
        Change::Synced | Change::Restarted(_) | Change::Bad(_) => None,
    }
}

fn progress(change: Change<NodeDrainProgress>, told: bool) -> Option<Event> {
    match change {
        Change::Put { value, .. } => Some(Event::Progress(Some(Box::new(value)))),
        Change::Gone { .. } => Some(Event::Progress(None)),
        // That there is none is worth a word: a zedkube of the reference never gives one.
        Change::Synced => (!told).then_some(Event::Progress(None)),
        Change::Restarted(_) | Change::Bad(_) => None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use agent::{Tasks, turn};
    use topics::DrainStatus;

    #[tokio::test]
    async fn the_record_of_leaving_is_told_at_the_start_and_that_there_is_none_as_well() {
        for (kept, expected) in
            [(None, false), (Some(LeavePhase::Member), true), (Some(LeavePhase::Left), false)]
        {
            let root = tempfile::tempdir().unwrap();
            let bus = Bus::open(root.path()).unwrap();
            let mut record = agent::publication::<NodeLeave>(&bus, ZEDKUBE).unwrap();
            let in_phase = |phase| NodeLeave { phase, ..NodeLeave::default() };
            if let Some(phase) = kept {
                record.publish(GLOBAL, &in_phase(phase)).unwrap();
            }
            let (outbox, mut inbox) = turn::inbox();
            let (mut tasks, mut told) = (Tasks::new(outbox), false);
            tasks.follow::<NodeLeave>(&bus, ZEDKUBE, move |change| leave(&change, &mut told));
            assert_eq!(inbox.recv().await, Some(Event::HasToLeave(expected)), "{kept:?}");
            record.publish(GLOBAL, &in_phase(LeavePhase::Draining)).unwrap();
            assert_eq!(inbox.recv().await, Some(Event::HasToLeave(true)), "{kept:?}");
        }
    }

    #[tokio::test]
    async fn a_status_is_told_right_after_the_progress_of_its_moment() {
        let root = tempfile::tempdir().unwrap();
        let bus = Bus::open(root.path()).unwrap();
        let (outbox, mut inbox) = turn::inbox();
        let mut tasks = Tasks::new(outbox);
        tasks.events("follow zedkube", |outbox| zedkube(bus.clone(), outbox));
        assert_eq!(inbox.recv().await, Some(Event::Progress(None)), "there is none yet");
        let mut reports = agent::publication::<NodeDrainProgress>(&bus, ZEDKUBE).unwrap();
        let mut statuses = agent::publication::<NodeDrainStatus>(&bus, ZEDKUBE).unwrap();
        let mut heard = Vec::new();
        for (attempt, number) in [(1, DrainStatus::Cordoned), (2, DrainStatus::Complete)] {
            let report = NodeDrainProgress { attempt, ..NodeDrainProgress::default() };
            let status = NodeDrainStatus { status: number, ..NodeDrainStatus::default() };
            reports.publish(GLOBAL, &report).unwrap();
            statuses.publish(GLOBAL, &status).unwrap();
            while heard.last() != Some(&Event::Drain(Some(status))) {
                heard.extend(inbox.recv().await);
            }
            assert_eq!(heard[heard.len() - 2], Event::Progress(Some(Box::new(report))));
        }
    }
}
