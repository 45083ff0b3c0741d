//! JSON Schemas of all topics, out of the types that read and write them.
//!
//! They describe what is written: every member, but those that Go leaves out when they are zero. Unknown
//! members are allowed, as readers ignore them. Pure: no clock, no I/O, no task.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::Value;

use crate::{Topic, go_json};

/// One topic as data, for what is said about all of them.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Name of the topic.
    pub name: &'static str,
    /// Its JSON Schema 2020-12.
    pub schema: fn() -> Value,
    /// Reads a value as agents read it, and gives it back as they would write it.
    pub reread: fn(&[u8]) -> Result<Value, go_json::Error>,
}

/// Every topic, in the order of the names.
#[must_use]
pub fn shapes() -> Vec<Shape> {
    macro_rules! topics {
        ($($topic:ident),+ $(,)?) => { vec![$(shape::<crate::$topic>()),+] };
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

/// Every topic by name with its schema, in the order of the names.
#[must_use]
pub fn all() -> Vec<(&'static str, Value)> {
    shapes().into_iter().map(|shape| (shape.name, (shape.schema)())).collect()
}

fn shape<T: Topic>() -> Shape {
    let reread = |bytes: &[u8]| {
        let value: T = go_json::from_slice(bytes)?;
        serde_json::to_value(&value).map_err(go_json::Error::Write)
    };
    Shape { name: T::NAME, schema: schema::<T>, reread }
}

fn schema<T: Topic>() -> Value {
    SchemaSettings::draft2020_12()
        .for_serialize()
        .with_transform(RecursiveTransform(plain))
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

/// Says ranges in words that every validator knows, and leaves out defaults: each is Go's zero value.
fn plain(schema: &mut Schema) {
    schema.remove("default");
    let range: Option<(Value, Value)> = match schema.get("format").and_then(Value::as_str) {
        Some("uint8") => Some((u8::MIN.into(), u8::MAX.into())),
        Some("uint16") => Some((u16::MIN.into(), u16::MAX.into())),
        Some("uint32") => Some((u32::MIN.into(), u32::MAX.into())),
        Some("uint64") => Some((u64::MIN.into(), u64::MAX.into())),
        Some("int32") => Some((i32::MIN.into(), i32::MAX.into())),
        Some("int64") => Some((i64::MIN.into(), i64::MAX.into())),
        _ => None,
    };
    if let Some((least, most)) = range {
        schema.remove("format");
        schema.insert("minimum".to_owned(), least);
        schema.insert("maximum".to_owned(), most);
    }
}
