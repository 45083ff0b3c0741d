//! Tables of what is told of silent nodes, of what keeps one from being declared dead, and of how an entry ends; and the calls.

mod calls;
mod ends;
mod rules;
mod silent;

use super::record::declare;
use super::{DeclaredNode, FailoverState};
use crate::turn::pulses::Pulse;
use crate::turn::record::{Holder, Op, Phase, TurnRecord};
use crate::turn::rule::TurnNode;
use crate::turn::tests::rules::{holder, node};

/// One that nobody has seen for 40 s.
fn dead(name: &str) -> TurnNode {
    TurnNode { ready: false, pulse: Pulse::Still, ..node(name) }
}

/// The word of a person that the node `dead(name)` is off, in this state.
fn entry(name: &str, state: FailoverState) -> DeclaredNode {
    DeclaredNode {
        number: 1,
        node: name.to_owned(),
        node_uid: format!("{name}-uid"),
        boot_id: format!("{name}-boot"),
        state,
        who: "operator anna".to_owned(),
        why: "its supply burnt".to_owned(),
        when: "2026-03-14T09:00:00Z".to_owned(),
        ..DeclaredNode::default()
    }
}

/// A record in which a node holds a turn.
fn turn(name: &str, op: Op, phase: Phase) -> TurnRecord {
    let holder = Holder { op, phase, ..holder(name, 1) };
    TurnRecord { holders: vec![holder], ..TurnRecord::default() }
}

/// A record with this whole-site operation.
fn mode(kind: &str) -> TurnRecord {
    TurnRecord { mode: Some(crate::turn::tests::rules::mode(kind)), ..TurnRecord::default() }
}

/// A record with these entries, as it is read.
fn record(entries: &[DeclaredNode]) -> TurnRecord {
    TurnRecord { failovers: entries.to_vec(), ..TurnRecord::default() }
}

/// Its number in the record in which it is declared.
fn declared(record: &TurnRecord, entry: &DeclaredNode) -> Result<(TurnRecord, u32), String> {
    let after = declare(record, entry).map_err(|it| it.to_string())?;
    let number = after.failovers.last().unwrap().number;
    Ok((after, number))
}
