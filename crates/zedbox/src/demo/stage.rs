//! Waits of the demo: for a state of the topics, with a limit and an error that names what is missing.

use std::cell::Cell;
use std::time::Duration;

use agent::{Clock, wire};
use anyhow::bail;
use pubsub::{Change, TopicRoot};
use serde_json::Value;
use topics::{
    BaseOsStatus, CordonOwner, DeviceOpPending, DrainPhase, DrainStatus, NodeAgentStatus, NodeDrainProgress,
    NodeDrainStatus, Topic,
};

/// A state that takes longer than this will not come.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct DemoTopics {
    topic_root: TopicRoot,
    clock: Clock,
}

impl DemoTopics {
    pub(super) fn open(topic_root: &TopicRoot, clock: Clock) -> Self {
        Self { topic_root: topic_root.clone(), clock }
    }

    /// zedkube is idle in its cluster and `counter` counts as executed.
    pub(super) async fn idle_with_counter(&self, counter: u32) -> anyhow::Result<()> {
        let is_kept =
            |it: &[u8]| serde_json::from_slice::<Value>(it).is_ok_and(|it| it["Counter"] == counter);
        self.file("persist/status/rebootConfig", "the counter in rebootConfig", is_kept).await?;
        self.status(&[DrainStatus::NotRequested]).await?;
        self.until::<DeviceOpPending>("zedagent", "no pending device operation", |pending| pending.is_none())
            .await
    }

    /// zedkube publishes one of these.
    pub(super) async fn status(&self, wanted: &[DrainStatus]) -> anyhow::Result<()> {
        self.until::<NodeDrainStatus>("zedkube", "the status of the drain", |status| {
            status.is_some_and(|it| wanted.contains(&it.status))
        })
        .await
    }

    /// zedkube has published that nothing is left to do after the boot, so that the remaining tree shows it.
    pub(super) async fn settled(&self) -> anyhow::Result<()> {
        let what = "zedkube to report the node idle, uncordoned and healthy";
        self.until::<NodeDrainProgress>("zedkube", what, |progress| {
            progress.is_some_and(|it| {
                (it.phase, it.cordon, it.gate.open) == (DrainPhase::Idle, CordonOwner::None, true)
            })
        })
        .await
    }

    /// A budget holds one pod, and no other is left; returns how far the drain is.
    pub(super) async fn blocked(&self) -> anyhow::Result<NodeDrainProgress> {
        let seen = Cell::default();
        self.until::<NodeDrainProgress>("zedkube", "a pod that its budget holds", |progress| {
            let held = progress.filter(|it| it.counts.blocked == 1 && it.counts.gone + 1 == it.counts.total);
            seen.set(held.cloned());
            held.is_some()
        })
        .await?;
        Ok(seen.take().unwrap_or_default())
    }

    /// The stand-in device got a reboot.
    pub(super) async fn recorded_reboot(&self) -> anyhow::Result<()> {
        self.file(agent::device::RECORD, "the recorded reboot", |_| true).await
    }

    /// The running OS image is under test, or no longer.
    pub(super) async fn tested(&self, is_over: bool) -> anyhow::Result<()> {
        let what = if is_over { "the end of the new image's test" } else { "the test of the new image" };
        self.until::<NodeAgentStatus>("nodeagent", what, |it| {
            it.is_some_and(|it| it.update_inprogress != is_over)
        })
        .await
    }

    pub(super) async fn updated(&self, version: &str) -> anyhow::Result<()> {
        self.until::<BaseOsStatus>("baseosmgr", "the new image to run", |it| {
            it.is_some_and(|it| it.activated && it.base_os_version == version)
        })
        .await
    }

    /// The file is there, as wanted.
    async fn file(&self, path: &str, what: &str, wanted: impl Fn(&[u8]) -> bool) -> anyhow::Result<()> {
        let mut watch = self
            .topic_root
            .file(self.topic_root.path(path), pubsub::FileRule { limit_bytes: 1 << 20, order: false });
        let seen = async {
            loop {
                if let pubsub::FileState::Present(bytes) = watch.next().await
                    && wanted(&bytes)
                {
                    return;
                }
            }
        };
        self.patiently(what, seen).await
    }

    /// `agent`'s only value of `T`, or its absence, is as wanted.
    async fn until<T: Topic>(
        &self,
        agent: &str,
        what: &str,
        wanted: impl Fn(Option<&T>) -> bool,
    ) -> anyhow::Result<()> {
        let mut subscription = self.topic_root.subscription(&wire::name::<T>(agent), wire::codec::<T>());
        let seen = async {
            loop {
                let change = subscription.next().await;
                // Before the first scan has ended, absence means nothing.
                let synced = matches!(change, Change::Synced | Change::Gone { .. } | Change::Put { .. });
                let holds = wanted(subscription.iter().next().map(|(_, value)| value));
                if synced && holds {
                    return;
                }
            }
        };
        self.patiently(what, seen).await
    }

    async fn patiently(&self, what: &str, wait: impl Future<Output = ()>) -> anyhow::Result<()> {
        tokio::select! {
            () = wait => Ok(()),
            () = self.clock.sleep_until(Some(self.clock.now() + PATIENCE)) => {
                bail!(
                    "finish the demo: waited {} s for {what}; see {} with jq, and the log above",
                    PATIENCE.as_secs(),
                    self.topic_root.path("run/zedkube/NodeDrainProgress/global.json").display()
                )
            }
        }
    }
}
