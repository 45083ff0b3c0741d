//! The image partitions as baseosmgr publishes them.
//!
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

/// The partitions of a device.
pub const LABELS: [&str; 2] = ["IMGA", "IMGB"];

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartitionFacts {
    /// `active`, `inprogress`, `updating` or `unused`.
    pub state: String,
    /// Version of the image in it.
    pub version: String,
    /// Whether this boot runs it.
    pub current: bool,
    /// Whether baseosmgr has taken the end of its test.
    pub test_complete: bool,
}

/// What is known of them. One that is unpublished stays as it was: partitions do not go away.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownPartitions(BTreeMap<String, PartitionFacts>);

impl KnownPartitions {
    pub(super) fn hear(&mut self, label: String, value: PartitionFacts) {
        self.0.insert(label, value);
    }

    /// The one that this boot runs.
    pub(super) fn running(&self) -> Option<(&str, &PartitionFacts)> {
        self.0.iter().find(|(_, it)| it.current).map(|(label, it)| (label.as_str(), it))
    }

    /// Whether the image of this boot is still in test.
    pub(super) fn in_test(&self) -> bool {
        self.running().is_some_and(|(_, it)| it.state == "inprogress")
    }

    /// The one that the next boot is to try: label and version. Only once it is known which one runs, as the
    /// running one may still be published as it was before the boot loader had a look at it.
    pub(super) fn to_try(&self) -> Option<(&str, &str)> {
        self.running()?;
        let wanted = self.0.iter().find(|(_, it)| !it.current && it.state == "updating");
        wanted.map(|(label, it)| (label.as_str(), it.version.as_str()))
    }
}
