//! What a drain would meet in the storage: volumes whose last healthy copy is on the node.
//!
//! Not here: finding them (`storage`). Sources: goals D14, O5. Pure: no clock, no I/O, no task.

use crate::plan::forecast::Foreseen;
use crate::storage::{Cause, Look, VolumeState};

/// Volumes that would keep the node, and what a person should know of others.
pub(super) fn foreseen(look: &Look) -> (Vec<Foreseen>, Vec<String>) {
    let (mut blockers, mut notes) = (Vec::new(), Vec::new());
    for it in look.findings.iter().filter(|it| it.is_over_number()) {
        let (healthy, wanted) = (it.healthy, it.wanted);
        notes.push(format!(
            "volume {it}: {healthy} healthy copies, {wanted} wanted; Longhorn keeps them all: where nobody needs the room, \
             delete one that is not on the node of its workload: `kubectl -n longhorn-system get replicas -l \
             longhornvolume={}`",
            it.volume
        ));
    }
    for it in look.findings.iter().filter(|it| it.state != VolumeState::Safe) {
        let text = it.sentence(&look.policy);
        let code = match &it.state {
            VolumeState::Safe | VolumeState::Faulted | VolumeState::LastCopy(Cause::Enough) => None,
            // The cordon has it copied.
            VolumeState::LastCopy(Cause::Detached) if look.policy.copies_by_cordon() => None,
            VolumeState::LastCopy(cause) => cause.code(),
        };
        match code {
            Some(code) => blockers.push(Foreseen { subject: it.subject(), code, reason: text }),
            None if it.state == VolumeState::LastCopy(Cause::Enough) => {
                notes.push(format!("{text}; the drain waits for another, which it has made first"));
            }
            None if it.is_last() => notes.push(format!("{text}; the drain waits for it")),
            None => notes.push(text),
        }
    }
    (blockers, notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::BlockCode;
    use crate::storage::{Finding, Policy};

    #[test]
    fn o5_d14_what_no_wait_copies_is_foreseen_by_its_code_and_what_is_copied_is_a_note() {
        let said = |state: VolumeState, policy: &str, healthy: u32| {
            let finding = Finding {
                volume: "pvc-1".to_owned(),
                claim: ("shop".to_owned(), "data".to_owned()),
                attached: String::new(),
                elsewhere: vec![],
                percent: None,
                failed: String::new(),
                wanted: 1,
                healthy,
                asked: false,
                state,
            };
            let look = Look { policy: Policy::parse(policy), findings: vec![finding], ..Look::default() };
            let (blockers, notes) = foreseen(&look);
            (blockers.first().map(|it| it.code), notes.len())
        };
        let last = VolumeState::LastCopy;
        let table = [
            (said(VolumeState::Safe, "", 1), (None, 0)),
            (said(VolumeState::Safe, "", 2), (None, 1)),
            (said(VolumeState::Faulted, "", 1), (None, 1)),
            (said(last(Cause::Enough), "", 1), (None, 1)),
            (said(last(Cause::Rebuilding), "", 1), (None, 1)),
            (said(last(Cause::StrictLocal), "", 1), (Some(BlockCode::StrictLocal), 0)),
            (said(last(Cause::AllCordoned), "", 1), (Some(BlockCode::AllCordoned), 0)),
            (said(last(Cause::NoPlace("full".to_owned())), "", 1), (Some(BlockCode::NoRoom), 0)),
            (said(last(Cause::NoOtherNode), "", 1), (Some(BlockCode::LastCopy), 0)),
            (said(last(Cause::Detached), "always-allow", 1), (Some(BlockCode::LastCopy), 0)),
            (said(last(Cause::Detached), "block-for-eviction", 1), (None, 1)),
        ];
        for (number, (said, expected)) in table.into_iter().enumerate() {
            assert_eq!(said, expected, "row {number}");
        }
    }
}
