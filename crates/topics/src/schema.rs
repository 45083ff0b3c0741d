//! JSON Schemas of all topics, out of the types that read and write them.
//!
//! Unknown members are allowed, as readers ignore them. Pure: no clock, no I/O, no task.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::Topic;

/// Every topic by name with its schema, JSON Schema 2020-12.
#[must_use]
pub fn all() -> Vec<(&'static str, Value)> {
    macro_rules! topics {
        ($($topic:ident),+ $(,)?) => { vec![$(of::<crate::$topic>()),+] };
    }
    topics![
        AppInstanceConfig,
        BaseOSMgrStatus,
        BaseOsConfig,
        BaseOsStatus,
        ConfigItemValueMap,
        ContentTreeStatus,
        DeviceNetworkStatus,
        DeviceOpPending,
        DomainStatus,
        DrainJournal,
        ENClusterAppStatus,
        EdgeNodeClusterConfig,
        EdgeNodeClusterStatus,
        EdgeNodeInfo,
        KubeClusterInfo,
        KubeClusterUpdateStatus,
        KubeConfig,
        KubeLeaderElectInfo,
        KubeUserServices,
        NodeAgentStatus,
        NodeDrainProgress,
        NodeDrainRequest,
        NodeDrainStatus,
        OnboardingStatus,
        TpmSanityStatus,
        VaultStatus,
        VolumeMgrStatus,
        ZbootConfig,
        ZbootStatus,
        ZedAgentStatus,
    ]
}

fn of<T: Topic>() -> (&'static str, Value) {
    let schema = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>();
    (T::NAME, schema.to_value())
}
