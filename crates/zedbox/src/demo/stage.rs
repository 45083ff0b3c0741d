//! Waits of the demo: for a state of the topics, with a limit and an error that names what is missing.

use std::time::Duration;

use agent::{Clock, wire};
use anyhow::bail;
use pubsub::{Change, TopicRoot};
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
        let mut watch = self.topic_root.file(
            self.topic_root.path("persist/status/rebootConfig"),
            pubsub::FileRule { limit_bytes: 4096, order: false },
        );
        let wanted = format!("\"Counter\":{counter},");
        let file = async {
            loop {
                if let pubsub::FileState::Present(bytes) = watch.next().await
                    && String::from_utf8_lossy(&bytes).contains(&wanted)
                {
                    return;
                }
            }
        };
        self.patiently("persist/status/rebootConfig to record the counter", file).await?;
        self.until::<NodeDrainStatus>("zedkube", "zedkube to be idle (NodeDrainStatus 2)", |status| {
            status.is_some_and(|status| status.status == DrainStatus::NotRequested)
        })
        .await?;
        self.until::<DeviceOpPending>("zedagent", "no pending device operation", |pending| pending.is_none())
            .await
    }

    /// zedkube publishes this status.
    pub(super) async fn status(&self, wanted: DrainStatus) -> anyhow::Result<()> {
        self.until::<NodeDrainStatus>("zedkube", "the status of the drain", |status| {
            status.is_some_and(|it| it.status == wanted)
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

    /// A budget blocks the drain.
    pub(super) async fn blocked(&self) -> anyhow::Result<()> {
        self.until::<NodeDrainProgress>("zedkube", "a pod that its budget holds", |progress| {
            progress.is_some_and(|progress| !progress.blockers.is_empty() && progress.counts.going == 0)
        })
        .await
    }

    /// The stand-in device got a reboot.
    pub(super) async fn recorded_reboot(&self) -> anyhow::Result<()> {
        let mut watch = self.topic_root.file(
            self.topic_root.path(agent::device::RECORD),
            pubsub::FileRule { limit_bytes: 1 << 20, order: false },
        );
        let file = async {
            loop {
                if let pubsub::FileState::Present(_) = watch.next().await {
                    return;
                }
            }
        };
        self.patiently("the recorded reboot", file).await
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
