//! The two topics of the statistics. Dropping them withdraws them, so a cancelled task leaves no value.

use agent::{Error, Outlet, Troubles};
use topics::{KubeClusterInfo, KubeStatsState};
use tracing::error;

use crate::GLOBAL;

pub struct StatsPublisher {
    info: Outlet<KubeClusterInfo>,
    state: Outlet<KubeStatsState>,
}

impl StatsPublisher {
    /// Publishes both, with the values of an earlier run.
    ///
    /// Errors: another process publishes them, or their directories cannot be used.
    pub fn open(troubles: &Troubles) -> Result<Self, Error> {
        Ok(Self { info: Outlet::open(troubles)?, state: Outlet::open(troubles)? })
    }

    /// Publishes a changed value; returns whether that succeeded. The next round retries.
    pub(super) fn publish(&mut self, info: &KubeClusterInfo) -> bool {
        self.info.put(GLOBAL, info)
    }

    /// Returns whether that succeeded.
    pub(super) fn withdraw(&mut self) -> bool {
        self.info.take(GLOBAL)
    }

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
