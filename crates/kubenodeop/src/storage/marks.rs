//! What a drain and persons have written on a volume: that another copy was asked for, and that its last one may go down.
//!
//! Not here: writing it (`copies`), what follows from it (`guard`). Source: goals D14.
//! Pure: no clock, no I/O, no task.

use kubeapi::names::{COPY_ANNOTATION, PASS_ANNOTATION};
use kubeapi::slim::longhorn::Volume;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CopyMark {
    /// Copies that were wanted before.
    pub(super) was: u32,
    pub(super) node: String,
}

impl CopyMark {
    /// The mark of a volume. One that cannot be read is a foreign change.
    pub(super) fn of(volume: &Volume) -> Option<Self> {
        let text = volume.metadata.annotations.as_ref()?.get(COPY_ANNOTATION)?;
        serde_json::from_str(text).ok()
    }
}

/// The node with which the last copy of a volume may go down, and why, as a person has written there.
pub(super) fn passed(volume: &Volume) -> Option<(&str, &str)> {
    let text = volume.metadata.annotations.as_ref()?.get(PASS_ANNOTATION)?;
    let (node, why) = text.trim().split_once(char::is_whitespace)?;
    Some((node, why.trim()))
}

/// Why the last copy of a volume may go down with `node`; empty where no person says so.
pub(super) fn pass_of(volume: &Volume, node: &str) -> String {
    passed(volume).filter(|(of, _)| *of == node).map(|(_, why)| why.to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn d14_a_volume_passes_with_the_node_that_a_person_has_named_and_with_a_reason_only() {
        for (text, why) in [
            ("n1 the disk is dead", "the disk is dead"),
            (" n1\tdead ", "dead"),
            ("n1", ""),
            ("n1 ", ""),
            ("n2 the disk is dead", ""),
            ("the disk is dead", ""),
            ("", ""),
        ] {
            let volume: Volume =
                serde_json::from_value(json!({ "metadata": { "annotations": { PASS_ANNOTATION: text } } }))
                    .unwrap();
            assert_eq!(pass_of(&volume, "n1"), why, "{text}");
        }
    }
}
