//! Every topic, for what looks at all of them: `zedbox check`, bundles, the schemas, tests and fuzzing.

use crate::{Topic, go_json};
use serde_json::Value;

/// `$of::<T>()` for every topic `T`, in the order that the corpus of fuzzing counts on.
#[macro_export]
macro_rules! every_topic {
    ($of:ident) => {
        $crate::every_topic!($of:
            AgentTrouble AppInstanceConfig AppLogMarks BaseOSMgrStatus BaseOsConfig BaseOsStatus
            ClusterDecision ConfigItemValueMap ContentTreeStatus ControllerCert DeviceNetworkStatus
            DeviceOpPending DomainStatus DrainHistory DrainJournal DrainPreflight ENClusterAppStatus
            EdgeNodeCert EdgeNodeClusterConfig EdgeNodeClusterStatus EdgeNodeInfo ImageWrite
            KubeClusterInfo KubeClusterUpdateStatus KubeConfig KubeLeaderElectInfo KubeStatsState
            KubeUserServices NodeAgentStatus NodeDrainProgress NodeDrainRequest NodeDrainStatus
            NodeLeave NodeOutage OperationPause SiteOperation K3sUpdate OutageAnswer
            OutageQuestion VaultStatus VolumeMgrStatus ZbootConfig ZbootStatus ZedAgentStatus)
    };
    ($of:ident: $($topic:ident)+) => { vec![$($of::<$crate::$topic>()),+] };
}

/// Reads a value of any topic as agents do, and returns it as they would write it.
pub type Reread = fn(&[u8]) -> Result<Value, go_json::Error>;

/// By the topic's name.
pub fn readers() -> Vec<(&'static str, Reread)> {
    every_topic!(reader)
}

fn reader<T: Topic>() -> (&'static str, Reread) {
    let reread = |bytes: &[u8]| {
        let value: T = go_json::from_slice(bytes)?;
        serde_json::from_slice(&go_json::to_vec(&value)?).map_err(go_json::Error::Write)
    };
    (T::NAME, reread)
}
