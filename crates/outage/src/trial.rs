//! What fuzzing and its kept texts try: what others can write or answer, without anything behind it.

use k8s_openapi::api::coordination::v1::Lease;
use kubeapi::nodes::CordonAnnotation;
use topics::NodeOutage;

use crate::calls;
use crate::margin::{calls as etcd, facts, words};
use crate::turn::record::{FENCE_MOST, Holder, Op, Phase, TurnRecord};
use crate::turn::rule::{CordonMark, down, order};

/// Reads these bytes as the Lease of turns, writes it again, and grants a turn in it. Whether it is a record.
/// Errors: the promise that was broken: another record is read again, or a number is given twice or never ends.
pub fn lease(bytes: &[u8]) -> Result<bool, String> {
    let Ok(lease) = serde_json::from_slice::<Lease>(bytes) else { return Ok(false) };
    let record = match calls::held(lease) {
        Ok(held) => held.record,
        Err(refused) if refused.to_string().is_empty() => return Err("refused without a reason".to_owned()),
        Err(_) => return Ok(false),
    };
    let annotations = record.annotations().map_err(|why| format!("it cannot be written: {why}"))?;
    let again = TurnRecord::parse(annotations, Some(record.transitions()));
    if again.as_ref() != Ok(&record) {
        return Err(format!("written again it says {again:?}, and was {record:?}"));
    }
    drop((order(&record), down(None, &record, &[])));
    let mut granted = record.clone();
    let mine = Holder {
        node: "n1".to_owned(),
        node_uid: "u1".to_owned(),
        boot_id: "b1".to_owned(),
        op: Op::Reboot,
        counter: 7,
        phase: Phase::Granted,
        ..Holder::default()
    };
    let fence = granted.grant(mine);
    let listed = record.holders.iter().map(|it| it.fence).max().unwrap_or_default();
    let is_next = fence > record.fence && fence > listed && fence <= FENCE_MOST + 1;
    if is_next { Ok(true) } else { Err(format!("number {fence} after {} and {listed}", record.fence)) }
}

/// Reads these bytes as the annotation of a cordon of ours. Whether a Lease of ours can have made it.
/// Errors: the promise that was broken: a number that no Lease of ours has.
pub fn mark(bytes: &[u8]) -> Result<bool, String> {
    let cordon = std::str::from_utf8(bytes).ok().and_then(CordonAnnotation::parse);
    match cordon.and_then(CordonMark::of) {
        Some(mark) if mark.fence == 0 || mark.fence > FENCE_MOST => Err(format!("number {}", mark.fence)),
        mark => Ok(mark.is_some()),
    }
}

/// Reads these bytes as the metrics of a member of etcd; its id.
pub fn metrics(bytes: &[u8]) -> Result<u64, String> {
    facts::parse(&String::from_utf8_lossy(bytes)).map(|it| it.id).map_err(|why| why.to_string())
}

/// Reads these bytes as etcd's list of members; how many there are.
pub fn members(bytes: &[u8]) -> Result<usize, String> {
    let reply = serde_json::from_slice(bytes).map_err(|why| why.to_string())?;
    etcd::members(reply).map(|it| it.members.len())
}

/// Reads these bytes as what the agent of another member answers to `/outage`; whether that member is healthy.
pub fn peer(bytes: &[u8]) -> Result<bool, String> {
    let answer = serde_json::from_slice::<NodeOutage>(bytes).map_err(|why| why.to_string())?;
    Ok(words::word(answer.node.clone(), Ok(answer)).health.is_ok())
}
