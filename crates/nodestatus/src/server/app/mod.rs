//! `/app` and `/app/<uuid>`: what this node's agents have published of an application, in one list.
//!
//! Not here: asking other nodes (`peers`). Items, their order and their texts are the reference's; an unusable
//! file is an item with the reason. Only members named in `items` are shown, and none of these holds a secret.
//! Source: lf-edge/eve pkg/pillar/agentbase.

mod items;
mod print;
mod shelf;
#[cfg(test)]
mod tests;

use pubsub::TopicRoot;
use serde::Serialize;
use sheet::text::seconds;
use topics::GoTime;
use uuid::Uuid;

/// One node's report. Members in this order.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AppReport {
    hostname: String,
    /// UTC, to the second.
    collect_time: String,
    app_info: Vec<AppItem>,
}

#[derive(Debug, Serialize)]
struct AppItem {
    /// `<agent>-<Topic>`, and the first five characters of a UUID where the value is that of one object.
    key: String,
    value: AppFacts,
}

/// Facts from a topic. Members in this order.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct AppFacts {
    #[serde(rename = "UUID")]
    uuid: String,
    name: String,
    exist: bool,
    activated: TriState,
    state: String,
    content: String,
    #[serde(rename = "DNidNode")]
    dnid_node: TriState,
    errors: String,
}

/// Yes, no, or absent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum TriState {
    #[default]
    None,
    Disabled,
    Enabled,
}

/// The report at `now`, of this node alone or of an application besides. Reads files, so it is not for an
/// async task.
pub(super) fn collect(topic_root: &TopicRoot, app: Option<Uuid>, now: GoTime) -> AppReport {
    let (hostname, app_info) = items::all(topic_root, app);
    AppReport { hostname, collect_time: seconds(now), app_info }
}
