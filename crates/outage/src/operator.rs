//! What an operator reads and writes: the Lease and marks on nodes, outside of any turn.
//!
//! Not here: words for a person, and what may be written (`turn::rule`). Every write names the version that was read;
//! when another writer was faster, it is made again from a fresh reading.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kubeapi::names::APP_NAMESPACE;
use kubeapi::{ApiClient, NodeName};
use tokio::time::sleep;

use crate::calls::{self, NodeItem};
use crate::site::record::OperatorStatement;
use crate::turn::event::{ReadError, RecordWritten};
use crate::turn::rebuild::{LeaseMemory, rebuild};
use crate::turn::record::{BadRecord, LEASE, RecordSnapshot, RecordWrite, TurnRecord};
use crate::turn::rule::{self, OperatorRefusal, TurnNode};

/// How often a write is made that others are faster than.
const TRIES: u32 = 5;
/// Pause before the next one.
const AGAIN: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    #[error(transparent)]
    Refused(#[from] OperatorRefusal),
    #[error(transparent)]
    BadRecord(BadRecord),
    /// A call without a usable answer, with the next step.
    #[error("{0}")]
    NoAnswer(String),
    #[error("{0}; whether it was written: zedbox lock status")]
    InDoubt(String),
    #[error("write {0}: somebody else wrote it first, {TRIES} times; type the command again")]
    Outrun(String),
}

impl From<ReadError> for Failed {
    fn from(trouble: ReadError) -> Self {
        match trouble {
            ReadError::NoAnswer(why) | ReadError::Refused(why) => Self::NoAnswer(why),
            ReadError::BadRecord(why) => Self::BadRecord(why),
        }
    }
}

/// The Lease, and the nodes after it.
#[derive(Debug, Clone, Default)]
pub struct TurnView {
    /// The Lease; `None` when there is none.
    pub held: Option<Box<RecordSnapshot>>,
    /// All nodes; no kubelet counts as silent, as that takes 40 s to see.
    pub nodes: Vec<TurnNode>,
    /// What [`rule::IGNORE_ANNOTATION`] says, by node.
    pub away: BTreeMap<String, String>,
}

impl TurnView {
    /// The record as it was read.
    pub fn record(&self) -> TurnRecord {
        self.held.as_ref().map(|it| it.record.clone()).unwrap_or_default()
    }
}

/// Reads all that there is to show.
/// Errors: [`Failed::NoAnswer`], [`Failed::BadRecord`].
pub async fn view(cluster: &ApiClient) -> Result<TurnView, Failed> {
    let held = calls::read(cluster).await?;
    let mut view = TurnView { held, ..TurnView::default() };
    for (node, away) in calls::glance(cluster).await? {
        view.away.extend(away.map(|text| (node.name.clone(), text)));
        view.nodes.push(node);
    }
    Ok(view)
}

/// Writes `edit` of the record; the record before and after it. Nothing is written when both are the same.
/// Errors: [`Failed`]. Dropping it leaves open whether it was written.
pub async fn change(
    cluster: &ApiClient,
    wall: Timestamp,
    edit: impl Fn(&TurnRecord) -> Result<TurnRecord, OperatorRefusal>,
) -> Result<(TurnRecord, TurnRecord), Failed> {
    for _ in 0..TRIES {
        let (on, before) = if let Some(held) = calls::read(cluster).await? {
            (Some((held.uid, held.resource_version)), held.record)
        } else {
            // Whoever makes the Lease brings in the nodes that are cordoned in a turn of an earlier one.
            let nodes: Vec<TurnNode> = calls::glance(cluster).await?.into_iter().map(|it| it.0).collect();
            (None, rebuild(None, &nodes, &LeaseMemory::default(), None).unwrap_or_default())
        };
        let after = edit(&before)?;
        if after == before {
            return Ok((before, after));
        }
        match calls::write(cluster, RecordWrite { on, record: after }, wall).await {
            RecordWritten::Done(held) => return Ok((before, held.record)),
            RecordWritten::Outdated => sleep(AGAIN).await,
            RecordWritten::Unknown(why) => return Err(Failed::InDoubt(why)),
        }
    }
    Err(Failed::Outrun(format!("lease {APP_NAMESPACE}/{LEASE}")))
}

/// Marks a node as away, so that it does not count as down; `None` removes the mark. The node as it was before.
/// Errors: [`Failed`]; [`OperatorRefusal::Member`] for a member of etcd. Dropping it leaves open whether it was written.
pub async fn mark(
    cluster: &ApiClient,
    name: &NodeName,
    away: Option<&OperatorStatement>,
) -> Result<NodeItem, Failed> {
    for _ in 0..TRIES {
        let node = calls::named(cluster, name).await?;
        if away.is_some() {
            rule::may_ignore(&node.seen)?;
        } else if node.away.is_none() {
            return Ok(node);
        }
        let text = away.map(serde_json::to_string).transpose();
        let text = text.map_err(|why| Failed::NoAnswer(format!("write the mark as JSON: {why}")))?;
        match calls::mark(cluster, &node, text.as_deref()).await {
            Ok(true) => return Ok(node),
            Ok(false) => sleep(AGAIN).await,
            Err(ReadError::NoAnswer(why) | ReadError::Refused(why)) => return Err(Failed::InDoubt(why)),
            Err(ReadError::BadRecord(why)) => return Err(Failed::BadRecord(why)),
        }
    }
    Err(Failed::Outrun(format!("node {name}")))
}
