//! What the device config says of k3s. Pure: no clock, no I/O, no task.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use topics::{ConfigItemType, ConfigItemValueMap};

/// The version of k3s that is wanted; empty for the one of the image.
const VERSION: &str = "k3s.version";
/// What is wanted of the override file, in base64; empty for none.
const OVERRIDE: &str = "k3s.config.override";
/// When virtual machines are moved back to their designated node: a list with commas.
const DESCHEDULE: &str = "kubernetes.vmi.deschedule.events";
/// The word for when that node has started.
const BOOT: &str = "boot";
/// No version is longer.
const VERSION_BYTES: usize = 128;
/// No override file is longer.
pub(super) const OVERRIDE_BYTES: usize = 256 * 1024;

/// The override file, which may hold passwords and tokens: its `Debug` shows its length alone.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Override(pub Vec<u8>);

impl fmt::Debug for Override {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Override({} bytes)", self.0.len())
    }
}

/// What is wanted; an invalid member is `None`, and what is in force stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DesiredK3s {
    pub version: Option<String>,
    /// The override file; empty for none.
    pub file: Option<Override>,
    /// Whether virtual machines are moved back when this node has started.
    pub on_boot: Option<bool>,
}

/// Reads what is wanted, and a line for each invalid value.
pub(super) fn wanted(map: &ConfigItemValueMap) -> (DesiredK3s, Vec<String>) {
    let mut refused = Vec::new();
    let mut text = |name: &str, read: fn(&str) -> Result<Vec<u8>, String>| {
        let item = map.global_settings.as_ref()?.get(name)?;
        let value = if item.item_type == ConfigItemType::String {
            read(&item.str_value)
        } else {
            Err(format!("a value of type {:?}", item.item_type))
        };
        value.map_err(|found| refused.push(format!("{name}: found {found}; what is in force stays"))).ok()
    };
    let version = text(VERSION, version).and_then(|it| String::from_utf8(it).ok());
    let file = text(OVERRIDE, file).map(Override);
    let events = text(DESCHEDULE, |it| Ok(it.as_bytes().to_vec()));
    let on_boot =
        events.map(|it| it.split(|byte| *byte == b',').any(|word| word.trim_ascii() == BOOT.as_bytes()));
    (DesiredK3s { version, file, on_boot }, refused)
}

/// It ends in a path of a download, so it is no free text.
fn version(text: &str) -> Result<Vec<u8>, String> {
    let text = text.trim();
    let known = |it: char| it.is_ascii_alphanumeric() || "+-._".contains(it);
    if text.len() <= VERSION_BYTES && text.chars().all(known) {
        Ok(text.as_bytes().to_vec())
    } else {
        Err(format!("no version such as v1.32.1+k3s1 but {} bytes of other text", text.len()))
    }
}

fn file(text: &str) -> Result<Vec<u8>, String> {
    let bytes = STANDARD.decode(text.trim()).map_err(|cause| format!("no base64: {cause}"))?;
    if bytes.len() > OVERRIDE_BYTES {
        return Err(format!("{} bytes, more than {OVERRIDE_BYTES}", bytes.len()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use topics::ConfigItemValue;

    fn map(version: &str, file: &str) -> ConfigItemValueMap {
        ConfigItemValueMap::of([
            ConfigItemValue::text(VERSION, version),
            ConfigItemValue::text(OVERRIDE, file),
        ])
    }

    #[test]
    fn what_makes_no_sense_is_told_and_changes_nothing_and_what_is_not_there_wants_nothing() {
        let (read, refused) = wanted(&map(" v1.32.1+k3s1\n", "ZGVidWc6IHRydWUK"));
        assert_eq!(
            (read.version.as_deref(), read.file),
            (Some("v1.32.1+k3s1"), Some(Override(b"debug: true\n".into())))
        );
        assert_eq!(refused, [""; 0]);
        let (read, refused) = wanted(&map("v1/../x y", "not base64"));
        assert_eq!(read, DesiredK3s::default());
        assert!(refused[0].starts_with("k3s.version: found no version"), "{refused:?}");
        assert!(refused[1].starts_with("k3s.config.override: found no base64"), "{refused:?}");
        assert_eq!(wanted(&ConfigItemValueMap::default()), (DesiredK3s::default(), Vec::new()));
        let none =
            DesiredK3s { version: Some(String::new()), file: Some(Override::default()), on_boot: None };
        assert_eq!(wanted(&map("", "")).0, none);
    }

    #[test]
    fn machines_are_moved_back_at_boot_when_the_list_says_boot() {
        for (list, on_boot) in [
            ("", false),
            ("boot", true),
            (" other , boot ", true),
            ("reboot", false),
            ("Boot", false),
            (",", false),
        ] {
            let mut map = map("", "");
            let item = ConfigItemValue::text(DESCHEDULE, list);
            map.global_settings.as_mut().unwrap().insert(DESCHEDULE.to_owned(), item);
            assert_eq!(wanted(&map).0.on_boot, Some(on_boot), "{list}");
        }
    }

    #[test]
    fn no_level_of_the_log_shows_what_is_in_the_override_file() {
        use crate::k3s::rules::{Effect, Event};
        let wanted = wanted(&map("v1", "dG9rZW46IHNlY3JldA==")).0;
        let file = wanted.file.clone().unwrap();
        assert_eq!(file.0, b"token: secret");
        let shown = format!("{:?} {:?}", Event::File(Some(file.clone())), Effect::File(file.clone()));
        assert_eq!(shown, "File(Some(Override(13 bytes))) File(Override(13 bytes))");
        assert!(format!("{:?}", Event::Wanted(wanted)).contains("Override(13 bytes)"));
    }
}
