//! The files about the drain of this node, followed by their events: read whole again whenever one of them changes.
//!
//! Not here: what they say together (`sheet`).

use std::future::{Future as _, poll_fn};
use std::task::Poll;
use std::time::Duration;

use agent::{Clock, wire};
use pubsub::{FileWatch, Subscription, TopicRoot};
use sheet::{DrainView, Watched, watched};
use topics::BaseOsStatus;

/// zedkube writes progress and status one after the other; longer than this they differ only when it died between.
pub(super) const SETTLING: Duration = Duration::from_millis(300);

/// Follows the files for good: before zedkube runs, and while it restarts.
pub(super) struct Follow {
    topic_root: TopicRoot,
    clock: Clock,
    seen: DrainView,
    files: Vec<FileWatch>,
    images: Subscription<BaseOsStatus>,
}

impl Follow {
    /// Reads all files once and follows them from then on. To be called within a runtime.
    pub(super) fn open(topic_root: &TopicRoot, clock: Clock) -> Self {
        let follow = |Watched { path, rule }| topic_root.file(path, rule);
        Self {
            seen: DrainView::read(topic_root, clock),
            files: watched(topic_root).into_iter().map(follow).collect(),
            images: wire::subscription(topic_root, "baseosmgr"),
            topic_root: topic_root.clone(),
            clock,
        }
    }

    /// Waits for the second file of a change that zedkube is in the middle of, but not for long.
    pub(super) async fn settle(&mut self, clock: Clock) {
        let until = clock.now() + SETTLING;
        while !self.seen.settled() && clock.now() < until {
            tokio::select! {
                () = self.changed() => {}
                () = clock.sleep_until(Some(until)) => {}
            }
        }
    }

    pub(super) const fn view(&self) -> &DrainView {
        &self.seen
    }

    /// Returns once something that is known is another thing. Dropping it loses nothing.
    pub(super) async fn changed(&mut self) {
        let before = self.seen.clone();
        while self.seen == before {
            self.any().await;
            self.look();
        }
    }

    /// Reads all again: that zedkube lives, and that a pause is over, causes no event.
    pub(super) fn look(&mut self) {
        self.seen = DrainView::read(&self.topic_root, self.clock);
    }

    /// Returns once a file is another one.
    async fn any(&mut self) {
        let mut files: Vec<_> = self.files.iter_mut().map(|it| Box::pin(it.next())).collect();
        let any = poll_fn(move |context| {
            // Each is asked: all that have changed until now are read at once.
            let changed =
                files.iter_mut().filter_map(|it| it.as_mut().poll(context).is_ready().then_some(()));
            if changed.count() > 0 { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::select! {
            () = any => {}
            _ = self.images.next() => {}
        }
    }
}
