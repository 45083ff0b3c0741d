//! The image partitions as baseosmgr publishes them.
//!
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

/// The partitions of a device.
pub const LABELS: [&str; 2] = ["IMGA", "IMGB"];

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartitionFacts {
    pub state: String,
    pub version: String,
    pub current: bool,
    /// baseosmgr has accepted the end of its test.
    pub test_complete: bool,
}

/// An unpublished one stays: partitions do not disappear.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownPartitions(BTreeMap<String, PartitionFacts>);

impl KnownPartitions {
    pub(super) fn hear(&mut self, label: String, value: PartitionFacts) {
        self.0.insert(label, value);
    }

    pub(super) fn running(&self) -> Option<(&str, &PartitionFacts)> {
        self.0.iter().find(|(_, it)| it.current).map(|(label, it)| (label.as_str(), it))
    }

    pub(super) fn in_test(&self) -> bool {
        self.running().is_some_and(|(_, it)| it.state == "inprogress")
    }

    /// The next boot's trial: label and version. Only once the running one is known, as that one may still be
    /// published as before the boot.
    pub(super) fn to_try(&self) -> Option<(&str, &str)> {
        self.running()?;
        let wanted = self.0.iter().find(|(_, it)| !it.current && it.state == "updating");
        wanted.map(|(label, it)| (label.as_str(), it.version.as_str()))
    }
}
