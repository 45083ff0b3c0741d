//! Shapes and numbers that the agents exchange through files.
//!
//! Not here: I/O, publishing, decisions. Pure: no clock, no I/O, no task.

mod cluster;
mod device;
mod drain;
mod form;
mod node_status;
mod others;
mod report;

pub use form::{Reread, fit, go_json, readers, schema};
use form::{cidr, letters, numbers, secret, shared, time};

pub use cidr::Cidr;
pub use cluster::*;
pub use device::*;
pub use drain::*;
pub use fit::{Most, cut_text};

pub use go_json::Error;
pub use letters::{acts, harmless_json, harmless_text, number};
pub use node_status::*;
pub use others::*;
pub use report::*;
pub use secret::{Secret, by_length};
pub use shared::*;
pub use time::GoTime;

use std::fmt::Debug;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// `$of::<T>()` for every topic `T`, sorted by name.
macro_rules! every_topic {
    ($of:ident) => {
        vec![
            $of::<crate::AgentTrouble>(),
            $of::<crate::AppInstanceConfig>(),
            $of::<crate::AppLogMarks>(),
            $of::<crate::BaseOSMgrStatus>(),
            $of::<crate::BaseOsConfig>(),
            $of::<crate::BaseOsStatus>(),
            $of::<crate::ClusterDecision>(),
            $of::<crate::ConfigItemValueMap>(),
            $of::<crate::ContentTreeStatus>(),
            $of::<crate::ControllerCert>(),
            $of::<crate::DeviceNetworkStatus>(),
            $of::<crate::DeviceOpPending>(),
            $of::<crate::DomainStatus>(),
            $of::<crate::DrainHistory>(),
            $of::<crate::DrainJournal>(),
            $of::<crate::DrainPreflight>(),
            $of::<crate::ENClusterAppStatus>(),
            $of::<crate::EdgeNodeCert>(),
            $of::<crate::EdgeNodeClusterConfig>(),
            $of::<crate::EdgeNodeClusterStatus>(),
            $of::<crate::EdgeNodeInfo>(),
            $of::<crate::ImageWrite>(),
            $of::<crate::KubeClusterInfo>(),
            $of::<crate::KubeClusterUpdateStatus>(),
            $of::<crate::KubeConfig>(),
            $of::<crate::KubeLeaderElectInfo>(),
            $of::<crate::KubeStatsState>(),
            $of::<crate::KubeUserServices>(),
            $of::<crate::NodeAgentStatus>(),
            $of::<crate::NodeDrainProgress>(),
            $of::<crate::NodeDrainRequest>(),
            $of::<crate::NodeDrainStatus>(),
            $of::<crate::NodeLeave>(),
            $of::<crate::NodeOutage>(),
            $of::<crate::OperationPause>(),
            $of::<crate::SiteOperation>(),
            $of::<crate::K3sUpdate>(),
            $of::<crate::SiteStatus>(),
            $of::<crate::OutageAnswer>(),
            $of::<crate::OutageQuestion>(),
            $of::<crate::VaultStatus>(),
            $of::<crate::VolumeMgrStatus>(),
            $of::<crate::ZbootConfig>(),
            $of::<crate::ZbootStatus>(),
            $of::<crate::ZedAgentStatus>(),
        ]
    };
}
use every_topic;

/// A topic of bounded length.
macro_rules! topic {
    ($name:ident: $kind:ident) => {
        crate::topic!($name: $kind, Some("global"));
    };
    ($name:ident: $kind:ident, $key:expr) => {
        impl crate::Topic for $name {
            const NAME: &'static str = stringify!($name);
            const KIND: crate::Kind = crate::Kind::$kind;
            const KEY: Option<&'static str> = $key;
        }
    };
}
use topic;

/// A value that one agent publishes and others follow.
pub trait Topic:
    Serialize + DeserializeOwned + JsonSchema + Clone + PartialEq + Debug + Send + Sync + 'static
{
    /// The directory's name and, in the reference, the type's.
    const NAME: &'static str;
    const KIND: Kind;
    /// The key of its one value; `None` for a topic of many. Files with other keys are ignored, for example a
    /// copy beside it.
    const KEY: Option<&'static str> = Some("global");

    /// Drops what is beyond `most`, and counts it where there is a member for that: for topics of unbounded
    /// length. Each call begins with the whole value.
    fn cut(&mut self, _most: Most) {}

    /// The form on disk, cut so that it fits a message (see [`fit`]).
    ///
    /// Errors: it cannot be encoded.
    fn encode(&self) -> Result<Vec<u8>, Error> {
        fit::encode(self)
    }
}

/// How long a topic lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Until the next reboot, under `/run`.
    Volatile,
    /// Through reboots, under `/persist/status`.
    Persistent,
}
