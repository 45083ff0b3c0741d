//! Virtual machines that an attempt has left on the node, and waiting until the drain would do something else about one.
//!
//! They are looked at when something that counts has changed, and never polled. Not here: what is done about a machine
//! (`machines::rules`).

use std::time::Duration;

use futures::FutureExt;
use futures::stream::{self, StreamExt};
use tokio::time::sleep;
use tracing::debug;

use crate::machines::kubevirt::MachineReader;
use crate::machines::kubevirt::{changes, copies, room};
use crate::machines::rules::{DrainIdentity, Fate, fate};
use crate::machines::{MachinePolicy, MachinesView};
use crate::progress::MachineState;
use kubeapi::ApiClient;
use kubeapi::found;
use kubeapi::names::{NodeName, PodRef};
use kubeapi::pace::Pace;
use kubeapi::watch::jitter_seed;

/// Least time between two looks.
const LOOKS_APART: Duration = Duration::from_secs(1);

/// Virtual machines that an attempt has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedMachines {
    /// The policy of those that name none.
    policy: MachinePolicy,
    drain: DrainIdentity,
    /// What would have been done about each.
    fates: Vec<(PodRef, Fate)>,
}

impl WatchedMachines {
    /// `None` where none is left.
    pub(crate) fn new(
        policy: MachinePolicy,
        (drain, fates): (DrainIdentity, Vec<(PodRef, Fate)>),
    ) -> Option<Self> {
        (!fates.is_empty()).then_some(Self { policy, drain, fates })
    }

    fn now(&self, view: &MachinesView) -> Option<String> {
        self.fates.iter().find_map(|(guest, known)| {
            let Some(machine) = view.machines.iter().find(|it| it.guest.uid == guest.uid) else {
                return Some(format!("virtual machine {guest} is gone"));
            };
            let now = fate(&self.drain, machine);
            if now == *known {
                None
            } else if now.state == MachineState::Gone {
                Some(format!("virtual machine {guest} is gone"))
            } else {
                Some(format!("virtual machine {guest} has changed: {}", now.text))
            }
        })
    }

    /// Ends when the drain would do something else about one of them, and says so. Dropping it loses nothing.
    pub(crate) async fn until_changed(&self, cluster: &ApiClient, node: &NodeName) -> String {
        let mut changes = changes(cluster, node, jitter_seed());
        if self.fates.iter().any(|(_, fate)| fate.rebuilds) {
            changes = stream::select(changes, copies(cluster, jitter_seed())).boxed();
        }
        if self.fates.iter().any(|(_, fate)| fate.lacks_room) {
            changes = stream::select(changes, room(cluster, jitter_seed())).boxed();
        }
        let (mut pace, mut tries) = (Pace::new(jitter_seed()), 0);
        loop {
            if tries == 0 {
                changes.next().await;
                while changes.next().now_or_never().is_some() {}
            }
            let mut reader = MachineReader::new(node.clone(), self.policy);
            let pause = match found(reader.look(cluster).await) {
                Ok(view) => {
                    tries = 0;
                    let what = match &view {
                        Some(view) => self.now(view),
                        None => Some("there is no KubeVirt any more".to_owned()),
                    };
                    if let Some(what) = what {
                        return what;
                    }
                    LOOKS_APART
                }
                Err(error) => {
                    debug!(error = error.line(), "trouble while waiting for a change of virtual machines");
                    tries += 1;
                    pace.pause(tries, error.reply().retry_after())
                }
            };
            sleep(pause).await;
        }
    }
}
