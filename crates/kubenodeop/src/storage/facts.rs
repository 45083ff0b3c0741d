//! What is known of the volumes of a cluster: what Longhorn's policy does about a cordoned node, and what a drain and persons
//! have written on a volume.
//!
//! Not here: reading it (`longhorn`), writing it (`copies`), what follows (`guard`). Pure: no clock, no I/O, no task.

use kubeapi::names::{COPY_ANNOTATION, PASS_ANNOTATION};
use kubeapi::slim::longhorn::{Attachment, Engine, Manager, Replica, StorageNode, Volume, condition};
use kubeapi::slim::longhorn::{Shard, ShardGroup};
use serde::{Deserialize, Serialize};
use step::LiteMap;

/// The ticket of who moves copies away.
const EVICTION: &str = "volume-eviction-controller";

/// Longhorn's setting `node-drain-policy`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NodeDrainPolicy {
    /// The budget of an instance manager stays while it has a last copy.
    #[default]
    BlockLast,
    /// Last copies are made elsewhere once the node is cordoned.
    EvictLast,
    /// All copies are moved once the node is cordoned.
    EvictAll,
    /// Like the first, but stopped copies do not count.
    AllowStopped,
    /// The budget goes once all volumes are detached.
    AlwaysAllow,
    /// A word that is not known: nothing is expected of it.
    Other(String),
}

impl NodeDrainPolicy {
    /// All values of the setting that are known, Longhorn's default first.
    pub const WORDS: [&str; 5] = [
        "block-if-contains-last-replica",
        "block-for-eviction-if-contains-last-replica",
        "block-for-eviction",
        "allow-if-replica-is-stopped",
        "always-allow",
    ];

    /// The setting's value; empty is Longhorn's default.
    pub fn parse(value: &str) -> Self {
        match value {
            "" | "block-if-contains-last-replica" => Self::BlockLast,
            "block-for-eviction-if-contains-last-replica" => Self::EvictLast,
            "block-for-eviction" => Self::EvictAll,
            "allow-if-replica-is-stopped" => Self::AllowStopped,
            "always-allow" => Self::AlwaysAllow,
            other => Self::Other(other.to_owned()),
        }
    }

    pub fn text(&self) -> &str {
        match self {
            Self::BlockLast => "block-if-contains-last-replica",
            Self::EvictLast => "block-for-eviction-if-contains-last-replica",
            Self::EvictAll => "block-for-eviction",
            Self::AllowStopped => "allow-if-replica-is-stopped",
            Self::AlwaysAllow => "always-allow",
            Self::Other(other) => other,
        }
    }

    /// Whether Longhorn itself makes another copy of a last one because its node is cordoned.
    pub const fn copies_by_cordon(&self) -> bool {
        matches!(self, Self::EvictLast | Self::EvictAll)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeReadiness {
    /// Its kubelet is well.
    pub ready: bool,
    pub cordoned: bool,
}

/// All that the guard judges by, each kind by name.
#[derive(Debug, Clone, Default)]
pub struct StorageFacts {
    pub policy: NodeDrainPolicy,
    pub volumes: LiteMap<String, Volume>,
    pub replicas: LiteMap<String, Replica>,
    /// Of volumes without replicas.
    pub shards: LiteMap<String, Shard>,
    /// By the name of the volume.
    pub shard_groups: LiteMap<String, ShardGroup>,
    /// What serves the attached ones.
    pub engines: LiteMap<String, Engine>,
    /// Who needs them attached.
    pub attachments: LiteMap<String, Attachment>,
    pub managers: LiteMap<String, Manager>,
    /// Nodes as Longhorn knows them.
    pub storage_nodes: LiteMap<String, StorageNode>,
    /// Nodes as Kubernetes knows them.
    pub nodes: LiteMap<String, NodeReadiness>,
}

impl StorageFacts {
    /// Why a copy on `node` does not count as one that survives; `None` when it does.
    pub(super) fn unusable(&self, node: &str) -> Option<&'static str> {
        let Some(state) = self.nodes.get(node) else { return Some("is not in the cluster") };
        let ready = self.storage_nodes.get(node).and_then(|it| condition(&it.status.conditions, "Ready"));
        let runs = |it: &Manager| it.spec.node == node && it.status.current_state == "running";
        if !state.ready {
            Some("is not Ready")
        } else if state.cordoned {
            Some("is cordoned")
        } else if ready.is_none_or(|it| it.status != "True") {
            Some("is not Ready for Longhorn")
        } else if !self.managers.values().any(runs) {
            Some("has no running instance manager")
        } else {
            None
        }
    }

    /// The volumes that Longhorn keeps attached on `node` for the move of a copy, also a while after that is done.
    pub(super) fn kept_for_moves<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a str> {
        let keeps = move |it: &Attachment| {
            it.spec.attachment_tickets.values().any(|it| it.kind == EVICTION && it.node == node)
        };
        self.attachments.iter().filter(move |(_, it)| keeps(it)).map(|(name, _)| name.as_str())
    }

    /// Whether the disk with this copy is full.
    pub(super) fn is_on_full_disk(&self, copy: &str, node: &str) -> bool {
        let disks = self.storage_nodes.get(node).into_iter().flat_map(|it| it.status.disk_status.values());
        disks.into_iter().any(|it| it.scheduled_replica.0.contains(copy) && it.is_full())
    }

    /// Nodes besides `own` that Longhorn may place copies on.
    pub(super) fn others<'a>(&'a self, own: &'a str) -> impl Iterator<Item = &'a str> {
        let takes =
            move |(name, it): &(&'a String, &StorageNode)| name.as_str() != own && it.spec.allow_scheduling;
        self.storage_nodes.iter().filter(takes).map(|(name, _)| name.as_str())
    }

    /// Whether each other node that could hold a copy is cordoned, and there is one.
    pub(super) fn all_others_cordoned(&self, own: &str) -> bool {
        let cordoned = |name: &str| self.nodes.get(name).is_some_and(|it| it.cordoned);
        self.others(own).next().is_some() && self.others(own).all(cordoned)
    }
}

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
    fn each_word_of_the_setting_is_read_and_only_two_copy_by_the_cordon() {
        for (text, copies) in [
            ("block-if-contains-last-replica", false),
            ("block-for-eviction-if-contains-last-replica", true),
            ("block-for-eviction", true),
            ("allow-if-replica-is-stopped", false),
            ("always-allow", false),
            ("something-new", false),
        ] {
            let policy = NodeDrainPolicy::parse(text);
            assert_eq!((policy.text(), policy.copies_by_cordon()), (text, copies));
        }
        assert!(
            NodeDrainPolicy::WORDS
                .iter()
                .all(|it| !matches!(NodeDrainPolicy::parse(it), NodeDrainPolicy::Other(_)))
        );
        assert_eq!(NodeDrainPolicy::parse(""), NodeDrainPolicy::parse(NodeDrainPolicy::WORDS[0]));
    }

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
