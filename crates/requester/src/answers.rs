//! What was requested, and what zedkube has said about drains.
//!
//! zedkube's topics as facts: its status never without the answers that belong to it.

use agent::Outbox;
use agent::wire::{self, GLOBAL, ZEDKUBE};
use pubsub::{Change, TopicRoot};
use topics::{
    Answer, DrainStatus, NodeDrainProgress, NodeDrainRequest, NodeDrainStatus, RequestId, SkipKind,
};
use tracing::warn;

#[derive(Debug, Clone, PartialEq)]
pub struct OwnRequest {
    /// `None` until it is known when it was made.
    pub id: Option<RequestId>,
    /// What it is for.
    pub context: String,
    /// It was made by an earlier run of this agent.
    pub(crate) survived: bool,
    /// A final status that was there already when it was made. Without an id in it, it answers an older request until
    /// another one is seen.
    pub(crate) before: Option<NodeDrainStatus>,
    /// Its failure was counted. It stays until the next one is made: zedkube drains for it again by itself once the cause
    /// of the failure has ended.
    pub failed: bool,
}

impl OwnRequest {
    /// A request for `context` that is being made now.
    pub fn new(context: String, id: Option<RequestId>, heard: &LatestAnswers) -> Self {
        let before = heard.status.filter(|said| said.status.is_final());
        Self { id, context, survived: false, before, failed: false }
    }

    /// A request of an earlier run.
    pub fn survived(request: &NodeDrainRequest) -> Self {
        let context = request.context.clone();
        Self { id: Some(request.id()), context, survived: true, before: None, failed: false }
    }

    /// To be called after each new status: one from before the request says nothing about it until another was seen.
    pub fn hear(&mut self, heard: &LatestAnswers) {
        self.before = self.before.filter(|before| Some(*before) == heard.status);
    }
}

/// What a request was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestAnswer {
    NotYet,
    Complete {
        /// Why it was not drained; empty after a full drain.
        skip: String,
        /// A person forced it.
        forced: bool,
    },
    Failed,
}

impl RequestAnswer {
    /// What an answer means for its request.
    pub fn of(answer: &Answer) -> Self {
        if answer.status == DrainStatus::Complete {
            Self::Complete { skip: answer.skip.clone(), forced: answer.skip_kind == SkipKind::Forced }
        } else if answer.status.is_failure() {
            Self::Failed
        } else {
            Self::NotYet
        }
    }
}

/// The latest values of zedkube's two topics.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LatestAnswers {
    /// NodeDrainStatus; `None` before anything was published.
    pub status: Option<NodeDrainStatus>,
    /// NodeDrainProgress; `None` beside a zedkube that publishes none.
    pub progress: Option<Box<NodeDrainProgress>>,
    /// Whether this zedkube answers by request.
    answers: bool,
    /// Whether it is known that there is a progress, or none.
    read: bool,
}

impl LatestAnswers {
    /// A new status, or that there is none.
    pub fn status(&mut self, status: Option<NodeDrainStatus>) {
        self.status = status;
        self.forget_publisher();
    }

    /// A new progress, or that there is none.
    pub fn progress(&mut self, progress: Option<Box<NodeDrainProgress>>) {
        self.answers |= progress.is_some();
        self.progress = progress;
        self.read = true;
        self.forget_publisher();
    }

    /// Both topics were read once: what was not found is not there.
    pub const fn read(&mut self) {
        self.read = true;
    }

    /// A publisher that ends in order takes both back; the next one may be a zedkube of the reference.
    fn forget_publisher(&mut self) {
        self.answers &= self.status.is_some() || self.progress.is_some();
    }

    /// Whether answers carry the identity of their request.
    pub(crate) const fn has_answers(&self) -> bool {
        self.answers
    }

    /// Whether zedkube is known to give no answers by request, so that requester and order have to do.
    pub(crate) const fn is_without_answers(&self) -> bool {
        self.read && !self.answers
    }

    /// Whether somebody who knows the cluster has spoken: anything but "unknown" and "in no cluster".
    pub const fn is_clustered(&self) -> bool {
        match self.status {
            None => false,
            Some(it) => !matches!(it.status, DrainStatus::Unknown | DrainStatus::NotSupported),
        }
    }

    /// Whether zedkube has answered this very request with COMPLETE as a person forces it.
    pub fn has_forced(&self, own: &OwnRequest) -> bool {
        self.answer(own)
            .is_some_and(|it| matches!(RequestAnswer::of(it), RequestAnswer::Complete { forced: true, .. }))
    }

    fn answer(&self, own: &OwnRequest) -> Option<&Answer> {
        self.progress.as_ref()?.answer(own.id?)
    }

    /// What the request waits for, for a person.
    pub fn words(&self, own: &OwnRequest) -> String {
        // Not how many pods are left: this goes to a file on disk, and NodeDrainProgress shows it.
        let of_ours = self.status.filter(|it| own.id.is_some_and(|id| id.by == it.requested_by));
        let of_ours = of_ours.filter(|_| self.progress.is_none()).map(|it| it.status);
        match self.answer(own).map(|answer| answer.status).or(of_ours) {
            Some(status) => format!("drain of this node: {}", status.text()),
            None => "zedkube to accept the drain request".to_owned(),
        }
    }
}

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
