//! Config properties, checked by zedagent and read by every agent.
//!
//! Not here: their names, defaults and ranges.
//! Source: lf-edge/eve pkg/pillar/types/global.go. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::numbers::numbers;
use crate::topic;

numbers! {
    /// Which member of a value counts.
    ConfigItemType: u8 { Invalid = 0, Int = 1, Bool = 2, String = 3, TriState = 4 }

    /// A switch that may be left alone.
    TriState: u8 { None = 0, Disabled = 1, Enabled = 2 }
}

/// One property.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ConfigItemValue {
    /// Its name.
    pub key: String,
    /// Which of the members below counts.
    pub item_type: ConfigItemType,
    /// A number.
    pub int_value: u32,
    /// A text.
    pub str_value: String,
    /// A switch.
    pub bool_value: bool,
    /// A switch that may be left alone.
    pub tri_state_value: TriState,
}

impl ConfigItemValue {
    pub fn text(key: &str, text: &str) -> Self {
        let (key, str_value) = (key.to_owned(), text.to_owned());
        Self { key, item_type: ConfigItemType::String, str_value, ..Self::default() }
    }

    pub fn number(key: &str, int_value: u32) -> Self {
        Self { key: key.to_owned(), item_type: ConfigItemType::Int, int_value, ..Self::default() }
    }
}

/// Properties of the device and of single agents. A missing one has its default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ConfigItemValueMap {
    /// By name.
    pub global_settings: Option<BTreeMap<String, ConfigItemValue>>,
    /// By agent and name.
    pub agent_settings: Option<BTreeMap<String, BTreeMap<String, ConfigItemValue>>>,
}

topic!(ConfigItemValueMap: Volatile);

impl ConfigItemValueMap {
    pub fn of<const N: usize>(items: [ConfigItemValue; N]) -> Self {
        let items = items.map(|it| (it.key.clone(), it));
        Self { global_settings: Some(items.into()), agent_settings: None }
    }
}
