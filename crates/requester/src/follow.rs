//! zedkube's topics as facts: its status never without the answers that belong to it.
//!
//! Not here: the judgement.

use agent::wire::{GLOBAL, ZEDKUBE};
use agent::{Outbox, wire};
use pubsub::{Change, TopicRoot};
use topics::{NodeDrainProgress, NodeDrainStatus};
use tracing::warn;

#[derive(Debug, Clone, PartialEq)]
pub enum DrainTopicUpdate {
    /// NodeDrainStatus, or that it is gone.
    Status(Option<NodeDrainStatus>),
    /// NodeDrainProgress, or that it is gone: a zedkube of the reference never publishes one.
    Progress(Option<Box<NodeDrainProgress>>),
    /// Both topics were read once.
    Read,
}

/// Follows both topics of zedkube until the receiver is gone. zedkube writes the progress before the status,
/// and here it is read after the status: a COMPLETE alone would be taken for that of a zedkube without
/// answers, for any requester and with any skip.
pub async fn follow<E>(
    topic_root: TopicRoot,
    outbox: Outbox<E>,
    to_event: fn(DrainTopicUpdate) -> Option<E>,
) {
    let mut statuses = wire::subscription::<NodeDrainStatus>(&topic_root, ZEDKUBE);
    let mut reports = wire::subscription::<NodeDrainProgress>(&topic_root, ZEDKUBE);
    let (mut answers, mut unread) = (false, 2);
    loop {
        let words = tokio::select! {
            biased;
            change = reports.next() => match change {
                Change::Put { value, .. } => vec![DrainTopicUpdate::Progress(Some(Box::new(value)))],
                Change::Gone { .. } => vec![DrainTopicUpdate::Progress(None)],
                Change::Synced if !answers => vec![DrainTopicUpdate::Progress(None), DrainTopicUpdate::Read],
                other @ (Change::Synced | Change::Restarted(_) | Change::Bad(_)) => said(&other),
            },
            change = statuses.next() => match change {
                Change::Put { value, .. } => {
                    let report = wire::look::<NodeDrainProgress>(&topic_root, ZEDKUBE, GLOBAL).await;
                    let report = report.map(|it| DrainTopicUpdate::Progress(Some(Box::new(it))));
                    report.into_iter().chain([DrainTopicUpdate::Status(Some(value))]).collect()
                }
                Change::Gone { .. } => vec![DrainTopicUpdate::Status(None)],
                other @ (Change::Synced | Change::Restarted(_) | Change::Bad(_)) => said(&other),
            },
        };
        for word in words {
            answers |= matches!(word, DrainTopicUpdate::Progress(Some(_)));
            if word == DrainTopicUpdate::Read {
                unread -= 1;
                if unread > 0 {
                    continue;
                }
            }
            if let Some(event) = to_event(word)
                && !outbox.send(event).await
            {
                return;
            }
        }
    }
}

fn said<T>(change: &Change<T>) -> Vec<DrainTopicUpdate> {
    match change {
        Change::Synced => vec![DrainTopicUpdate::Read],
        Change::Bad(finding) => {
            let (path, reason) = (finding.path.display(), &finding.reason);
            warn!(%path, reason, "ignored a bad file, the last good value stays");
            Vec::new()
        }
        Change::Put { .. } | Change::Gone { .. } | Change::Restarted(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::Tasks;
    use topics::DrainStatus;

    #[tokio::test]
    async fn a_status_is_told_right_after_the_progress_of_its_moment() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let (outbox, mut inbox) = agent::inbox();
        let mut tasks = Tasks::new(outbox);
        tasks.events("follow zedkube", |outbox| follow(topic_root.clone(), outbox, Some));
        assert_eq!(inbox.recv().await, Some(DrainTopicUpdate::Progress(None)), "there is none yet");
        assert_eq!(inbox.recv().await, Some(DrainTopicUpdate::Read));
        let mut reports = agent::publication::<NodeDrainProgress>(&topic_root, ZEDKUBE).unwrap();
        let mut statuses = agent::publication::<NodeDrainStatus>(&topic_root, ZEDKUBE).unwrap();
        let mut heard = Vec::new();
        for (attempt, number) in [(1, DrainStatus::Cordoned), (2, DrainStatus::Complete)] {
            let report = NodeDrainProgress { attempt, ..NodeDrainProgress::default() };
            let status = NodeDrainStatus { status: number, ..NodeDrainStatus::default() };
            reports.publish(GLOBAL, &report).unwrap();
            statuses.publish(GLOBAL, &status).unwrap();
            while heard.last() != Some(&DrainTopicUpdate::Status(Some(status))) {
                heard.extend(inbox.recv().await);
            }
            assert_eq!(heard[heard.len() - 2], DrainTopicUpdate::Progress(Some(Box::new(report))));
        }
    }

    #[tokio::test]
    async fn what_is_there_at_the_start_is_told_before_it_counts_as_read() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let report = NodeDrainProgress { attempt: 3, ..NodeDrainProgress::default() };
        agent::publication::<NodeDrainProgress>(&topic_root, ZEDKUBE)
            .unwrap()
            .publish(GLOBAL, &report)
            .unwrap();
        let (outbox, mut inbox) = agent::inbox();
        let mut tasks = Tasks::new(outbox);
        tasks.events("follow zedkube", |outbox| follow(topic_root.clone(), outbox, Some));
        assert_eq!(inbox.recv().await, Some(DrainTopicUpdate::Progress(Some(Box::new(report)))));
        assert_eq!(inbox.recv().await, Some(DrainTopicUpdate::Read));
    }
}
