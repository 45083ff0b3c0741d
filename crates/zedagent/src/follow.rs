//! What zedkube says, as facts: its status never without the answers that belong to it.
//!
//! Not here: what follows from it.

use agent::{Outbox, wire};
use pubsub::{Bus, Change};
use topics::{NodeDrainProgress, NodeDrainStatus};

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
                let now = || wire::peek::<NodeDrainProgress>(&bus, ZEDKUBE, GLOBAL);
                let before = matches!(change, Change::Put { .. }).then(now).flatten();
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

#[cfg(test)]
mod tests {
    use super::*;
    use agent::{Tasks, turn};
    use topics::DrainStatus;

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
