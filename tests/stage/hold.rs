//! Every state of a drained reboot, and how the system is held in it.

use kubesim::ScriptedFault;
use topics::{DrainStatus, NodeAgentStatus, NodeDrainRequest, ZedAgentStatus};

use crate::World;

const WITHOUT_END: u32 = 1_000_000;

/// A state of a drained reboot, as the topics show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Idle,
    Asked,
    Status(DrainStatus),
    Commanded,
    DeviceReboot,
}

/// In the order of a reboot with every trouble.
pub const ALL_STATES: [At; 10] = [
    At::Idle,
    At::Asked,
    At::Status(DrainStatus::Starting),
    At::Status(DrainStatus::FailedCordon),
    At::Status(DrainStatus::Cordoned),
    At::Status(DrainStatus::DrainRetrying),
    At::Status(DrainStatus::FailedDrain),
    At::Status(DrainStatus::Complete),
    At::Commanded,
    At::DeviceReboot,
];

impl World {
    /// Sets limits and cluster so that a reboot reaches `at`; before agents start.
    pub async fn prepare(&mut self, at: At) {
        match at {
            At::Status(DrainStatus::Starting) => {
                self.limits["zedkube"]["cordon_tries"] = 1_000_000.into();
                self.limits["zedkube"]["preflight"] = false.into();
                self.refuse("PATCH", "/nodes/", 503, "Busy");
            }
            At::Status(DrainStatus::FailedCordon) => {
                self.limits["zedkube"]["cordon_tries"] = 2.into();
                self.limits["zedkube"]["preflight"] = false.into();
                self.refuse("PATCH", "/nodes/", 503, "Busy");
            }
            At::Status(DrainStatus::DrainRetrying) => {
                self.limits["zedkube"]["preflight"] = false.into();
                self.refuse("POST", "/eviction", 403, "Forbidden");
            }
            At::Status(DrainStatus::FailedDrain) => {
                self.limits["zedkube"]["preflight"] = false.into();
                self.limits["zedkube"]["drain_tries"] = 1.into();
                self.refuse("POST", "/eviction", 403, "Forbidden");
            }
            At::Asked | At::Status(DrainStatus::Cordoned) => self.cluster.block().await,
            At::Idle | At::Status(DrainStatus::Complete) | At::Commanded | At::DeviceReboot => {}
            At::Status(status) => panic!("nothing holds a reboot at {status:?}"),
        }
    }

    /// Waits until the ordered reboot is at `at`. Transient states may have passed on return.
    pub async fn arrive(&self, at: At) {
        match at {
            At::Idle => {}
            At::Asked => {
                self.until::<NodeDrainRequest>("zedagent", "a drain request", |it| it.is_some()).await;
            }
            At::Status(status) => {
                self.status(status).await;
            }
            At::Commanded => {
                self.has::<ZedAgentStatus>("zedagent", "RebootCmd", |it| it.reboot_cmd).await;
            }
            At::DeviceReboot => {
                self.has::<NodeAgentStatus>("nodeagent", "DeviceReboot", |it| it.device_reboot).await;
            }
        }
    }

    /// Removes the obstacles of [`World::prepare`].
    pub async fn release(&self) {
        self.cluster.sim().faults().clear();
        self.cluster.unblock().await;
    }

    fn refuse(&self, method: &str, path: &str, code: u16, reason: &str) {
        self.cluster.sim().faults().script(method, path, WITHOUT_END, ScriptedFault::status(code, reason));
    }
}
