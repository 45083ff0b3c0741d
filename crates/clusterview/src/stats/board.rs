//! The two topics of the statistics. Dropped, they are withdrawn: a task that is cancelled publishes nothing more.

use agent::{Error, Outlet, Troubles};
use topics::{KubeClusterInfo, KubeStatsState};
use tracing::error;

use crate::GLOBAL;

/// Publishes `KubeClusterInfo` and `KubeStatsState`.
pub struct StatsPublisher {
    info: Outlet<KubeClusterInfo>,
    state: Outlet<KubeStatsState>,
}

impl StatsPublisher {
    /// Becomes the publisher of both, with what an earlier run left.
    /// Errors: another process publishes them, or their directories cannot be used.
    pub fn open(troubles: &Troubles) -> Result<Self, Error> {
        Ok(Self { info: Outlet::open(troubles)?, state: Outlet::open(troubles)? })
    }

    /// Publishes the cluster, if it is another; whether that succeeded. The next round tries again.
    pub(super) fn publish(&mut self, info: &KubeClusterInfo) -> bool {
        self.info.put(GLOBAL, info)
    }

    /// Takes the cluster back; whether nobody sees it any more.
    pub(super) fn withdraw(&mut self) -> bool {
        self.info.take(GLOBAL)
    }

    /// Says how it is going.
    pub(super) fn publish_state(&mut self, state: &KubeStatsState) {
        self.state.put(GLOBAL, state);
    }
}

impl Drop for StatsPublisher {
    fn drop(&mut self) {
        if !self.withdraw() {
            error!(
                "KubeClusterInfo stays published by a node that no longer leads; remove its file under run/zedkube"
            );
        }
        self.publish_state(&KubeStatsState::default());
    }
}
