//! The controller's config properties, checked against the table of known ones.
//!
//! The table is the reference's publication with nothing set. Source: lf-edge/eve pkg/pillar/types/global.go.
//! Pure: no clock, no I/O, no task.

use agent::settings::NUMERIC;
use topics::{ConfigItemType, ConfigItemValue, ConfigItemValueMap, TriState, by_length, cut_text, go_json};

use crate::device_config::MOST_FAULTS;

/// As the reference writes them.
const DEFAULTS: &str = include_str!("config_items_defaults.json");
/// As `agent.<agent>.<setting>`.
const AGENT_SETTINGS: [&str; 2] = ["debug.loglevel", "debug.remote.loglevel"];

/// Shown of an unknown property's name.
const NAME_BYTES: usize = 60;

pub fn defaults() -> Result<ConfigItemValueMap, topics::Error> {
    go_json::from_slice(DEFAULTS.as_bytes())
}

/// `defaults` with the controller's values. An invalid value leaves the one in `last`, and is reported with
/// its name, length and the kept value; so is an unknown name. The value itself is never shown: it may be a
/// secret given to the wrong property.
pub fn apply(
    defaults: &ConfigItemValueMap,
    last: &ConfigItemValueMap,
    items: &[(String, String)],
) -> (ConfigItemValueMap, Vec<String>) {
    let mut map = defaults.clone();
    let mut told = Vec::new();
    for (key, text) in items {
        if let Some((agent, setting)) = agent_setting(key) {
            let value = ConfigItemValue::text(setting, text);
            let all = map.agent_settings.get_or_insert_default();
            all.entry(agent.to_owned()).or_default().insert(setting.to_owned(), value);
            continue;
        }
        let all = map.global_settings.get_or_insert_default();
        let Some(slot) = all.get_mut(key) else {
            told.push(format!("{}: no such property, ignored", cut_text(key, NAME_BYTES)));
            continue;
        };
        match read(key, text, slot) {
            Ok(value) => *slot = value,
            Err(expected) => {
                let kept = last.global_settings.as_ref().and_then(|all| all.get(key));
                if let Some(kept) = kept {
                    slot.clone_from(kept);
                }
                told.push(format!(
                    "{key}: found {}, expected {expected}; {} stays in force",
                    by_length(text),
                    shown(slot)
                ));
            }
        }
    }
    if told.len() > MOST_FAULTS {
        let more = told.len() - MOST_FAULTS;
        told.truncate(MOST_FAULTS);
        told.push(format!("{more} more are not listed; fix these first"));
    }
    (map, told)
}

fn agent_setting(key: &str) -> Option<(&str, &str)> {
    let rest = key.strip_prefix("agent.")?;
    let (agent, setting) = rest.split_once('.')?;
    AGENT_SETTINGS.contains(&setting).then_some((agent, setting))
}

fn read(key: &str, text: &str, slot: &ConfigItemValue) -> Result<ConfigItemValue, String> {
    let mut value = slot.clone();
    match slot.item_type {
        ConfigItemType::Int => {
            let range = NUMERIC.iter().find(|it| it.name == key);
            let (min, max) = range.map_or((0, u32::MAX), |it| (it.min, it.max));
            let number = text.trim().parse().ok().filter(|number| (min..=max).contains(number));
            value.int_value = number.ok_or_else(|| format!("{min} to {max}"))?;
        }
        ConfigItemType::Bool => {
            value.bool_value = switch(text).ok_or_else(|| "true or false".to_owned())?;
        }
        ConfigItemType::String => text.clone_into(&mut value.str_value),
        ConfigItemType::TriState => {
            value.tri_state_value = match text.trim().to_ascii_lowercase().as_str() {
                "none" => TriState::None,
                "enabled" | "enable" | "on" | "true" => TriState::Enabled,
                "disabled" | "disable" | "off" | "false" => TriState::Disabled,
                _ => return Err("none, enabled or disabled".to_owned()),
            };
        }
        ConfigItemType::Invalid | ConfigItemType::Stranger(_) => return Err("nothing".to_owned()),
    }
    Ok(value)
}

fn switch(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "t" => Some(true),
        "false" | "0" | "f" => Some(false),
        _ => None,
    }
}

fn shown(value: &ConfigItemValue) -> String {
    match value.item_type {
        ConfigItemType::Int => value.int_value.to_string(),
        ConfigItemType::Bool => value.bool_value.to_string(),
        ConfigItemType::String => format!("`{}`", value.str_value),
        ConfigItemType::TriState => format!("{:?}", value.tri_state_value).to_lowercase(),
        ConfigItemType::Invalid | ConfigItemType::Stranger(_) => "nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(items: &[(&str, &str)]) -> (ConfigItemValueMap, Vec<String>) {
        let items: Vec<_> =
            items.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let defaults = defaults().unwrap();
        apply(&defaults, &defaults, &items)
    }

    #[test]
    fn every_property_that_an_agent_reads_is_in_the_table_with_its_default() {
        let all = defaults().unwrap().global_settings.unwrap();
        for property in NUMERIC {
            let item = &all[property.name];
            assert_eq!(
                (item.item_type, item.int_value),
                (ConfigItemType::Int, property.default),
                "{}",
                property.name
            );
        }
    }

    #[test]
    fn the_drain_overrides_of_the_reference_come_out_as_it_publishes_them() {
        let golden: ConfigItemValueMap = go_json::from_slice(
            include_str!("../../../tests/golden/ConfigItemValueMap/drain-overrides.json").as_bytes(),
        )
        .unwrap();
        let defaults = defaults().unwrap().global_settings.unwrap();
        let mut items: Vec<(String, String)> = Vec::new();
        for (key, value) in golden.global_settings.as_ref().unwrap() {
            if defaults.get(key) != Some(value) {
                let text = match value.item_type {
                    ConfigItemType::Int => value.int_value.to_string(),
                    ConfigItemType::TriState => format!("{:?}", value.tri_state_value),
                    ConfigItemType::Bool => value.bool_value.to_string(),
                    ConfigItemType::Invalid | ConfigItemType::String | ConfigItemType::Stranger(_) => {
                        value.str_value.clone()
                    }
                };
                items.push((key.clone(), text));
            }
        }
        assert!(items.len() > 1);
        items.push(("agent.zedkube.debug.loglevel".into(), "debug".into()));
        let defaults = super::defaults().unwrap();
        assert_eq!(apply(&defaults, &defaults, &items), (golden, vec![]));
    }

    #[test]
    fn unknown_names_and_values_out_of_range_are_told_and_the_old_value_stays() {
        let (_, told) =
            set(&[("no.such.key", "x"), ("timer.config.interval", "4"), ("maintenance.mode", "maybe")]);
        assert_eq!(
            told,
            [
                "no.such.key: no such property, ignored",
                "timer.config.interval: found a text of 1 character, expected 5 to 86400; 60 stays in force",
                "maintenance.mode: found a text of 5 characters, expected none, enabled or disabled; none stays in \
                 force",
            ]
        );
    }

    #[test]
    fn s2_no_value_of_a_property_is_shown_and_what_is_told_is_bounded() {
        let (_, told) = set(&[("timer.config.interval", "s3cret"), ("maintenance.mode", "s3cret")]);
        assert_eq!(told.len(), 2);
        assert!(
            told.iter().all(|it| it.contains("a text of 6 characters") && !it.contains("s3cret")),
            "{told:?}"
        );
        let long = "k".repeat(200_000);
        let many: Vec<(&str, &str)> = std::iter::repeat_n((long.as_str(), ""), 1000).collect();
        let (_, told) = set(&many);
        assert_eq!(
            (told.len(), told.last().unwrap().as_str()),
            (101, "900 more are not listed; fix these first")
        );
        assert!(told.iter().all(|it| it.len() < 120), "{}", told[0].len());
    }
}
