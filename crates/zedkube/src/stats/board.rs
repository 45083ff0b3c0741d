//! The two topics of the statistics. Dropped, they are taken back: a task that is cancelled publishes nothing more.

use agent::{Error, publication};
use pubsub::{Bus, Publication};
use topics::{KubeClusterInfo, KubeStatsState};
use tracing::{error, warn};

use crate::{GLOBAL, NAME};

/// Publishes `KubeClusterInfo` and `KubeStatsState`.
pub struct Board {
    info: Publication<KubeClusterInfo>,
    state: Publication<KubeStatsState>,
    /// The last failure, so that it is told once.
    failure: String,
}

impl Board {
    /// Becomes the publisher of both, with what an earlier run left.
    ///
    /// # Errors
    /// Another process publishes them, or their directories cannot be used.
    pub fn open(bus: &Bus) -> Result<Self, Error> {
        Ok(Self { info: publication(bus, NAME)?, state: publication(bus, NAME)?, failure: String::new() })
    }

    /// Publishes the cluster, if it is another; whether that succeeded. The next round tries again.
    pub(super) fn publish(&mut self, info: &KubeClusterInfo) -> bool {
        let result = self.info.publish(GLOBAL, info).map(drop);
        self.report("publish KubeClusterInfo", result)
    }

    /// Takes the cluster back; whether nobody sees it any more.
    pub(super) fn withdraw(&mut self) -> bool {
        if self.info.get(GLOBAL).is_none() {
            return true;
        }
        let result = self.info.unpublish(GLOBAL);
        self.report("withdraw KubeClusterInfo", result)
    }

    /// Says how it is going.
    pub(super) fn tell(&mut self, state: &KubeStatsState) {
        let result = self.state.publish(GLOBAL, state).map(drop);
        self.report("publish KubeStatsState", result);
    }

    fn report(&mut self, doing: &str, result: Result<(), pubsub::Error>) -> bool {
        let Err(cause) = result else {
            self.failure.clear();
            return true;
        };
        let told = format!("{doing}: {}", agent::report::chain(&cause));
        if told != self.failure {
            warn!(error = told, "the statistics of the cluster cannot be written");
            self.failure = told;
        }
        false
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        if !self.withdraw() {
            error!(
                "KubeClusterInfo stays published by a node that no longer leads; remove its file under run/zedkube"
            );
        }
        self.tell(&KubeStatsState::default());
    }
}
