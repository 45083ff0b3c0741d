//! Brings a declared node one step on. Any node may do it at any time, also where another one was killed in the middle: each
//! write names the version that it was decided on.

use jiff::Timestamp;
use kubeapi::{ApiClient, NodeName};

use super::calls;
use super::record::edited;
use crate::calls::named;
use crate::operator::{Failed, change};
use crate::turn::pulses::Pulse;
use crate::turn::record::{DeclaredNode, FailoverState, TurnRecord};
use crate::turn::rule::TurnNode;

/// What becomes of `entry` by one reading of `nodes`, where that needs no write of the Node; `None`: it stays, and one
/// that is [`FailoverState::Declared`] gets its taint. `is_heard`: it answers somebody.
pub fn seen(entry: &DeclaredNode, nodes: &[TurnNode], is_heard: bool) -> Option<FailoverState> {
    let Some(node) = nodes.iter().find(|it| it.is_of(entry)) else { return Some(FailoverState::Gone) };
    let has_taint = node.out_of_service.is_some();
    let lives = is_heard || node.ready || node.pulse == Pulse::Moving || !node.is_in_dead_boot(entry);
    match entry.state {
        FailoverState::Declared if has_taint => Some(FailoverState::Tainted),
        FailoverState::Withdrawn if node.is_tainted_by(entry) => Some(FailoverState::Tainted),
        FailoverState::Declared if lives => Some(FailoverState::Withdrawn),
        FailoverState::Tainted | FailoverState::Moved if has_taint => None,
        FailoverState::Tainted | FailoverState::Moved if node.is_in_dead_boot(entry) => {
            Some(FailoverState::Lifted)
        }
        FailoverState::Tainted | FailoverState::Moved if entry.stays() && node.unschedulable => None,
        FailoverState::Tainted | FailoverState::Moved => Some(FailoverState::Returned),
        FailoverState::Declared
        | FailoverState::Returned
        | FailoverState::Lifted
        | FailoverState::Withdrawn
        | FailoverState::Gone
        | FailoverState::Stranger(_) => None,
    }
}

/// Takes the next step of `entry`, by `nodes` as they are now: the taint, or what is seen. Its new state, `None` when it stays.
/// Errors: [`Failed`]. Dropping it leaves open whether it was written; the next call finds out.
pub async fn advance(
    cluster: &ApiClient,
    wall: Timestamp,
    entry: &DeclaredNode,
    nodes: &[TurnNode],
    is_heard: bool,
) -> Result<Option<FailoverState>, Failed> {
    let state = match seen(entry, nodes, is_heard) {
        Some(state) => state,
        None if entry.state == FailoverState::Declared => {
            // One that was renewed, and not for long enough, is no silence.
            if !nodes.iter().any(|it| it.is_of(entry) && it.pulse == Pulse::Still) {
                return Ok(None);
            }
            let Ok(name) = NodeName::parse(&entry.node) else { return Ok(None) };
            let node = named(cluster, &name).await?;
            // It may have come back since `nodes` were read.
            match seen(entry, std::slice::from_ref(&node.seen), false) {
                Some(state) => state,
                None => match calls::taint(cluster, &node, entry).await {
                    Ok(()) => FailoverState::Tainted,
                    Err(error) if error.is_conflict() => return Ok(None),
                    Err(error) => return Err(Failed::NoAnswer(error.advice())),
                },
            }
        }
        None => return Ok(None),
    };
    // Where another one has withdrawn it meanwhile, that is seen by the taint.
    let edit = |record: &TurnRecord| Ok(edited(record, entry, |it| it.state = state.clone()));
    change(cluster, wall, edit).await?;
    Ok(Some(state))
}
