//! What a drain would do with the virtual machines of a node, by the rules of the drain itself, and what it would meet in the
//! storage: volumes whose last healthy copy is on the node.
//!
//! Not here: finding them (`survey`, `storage`), pods (`forecast`). Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;
use std::time::Duration;

use kubeapi::slim::longhorn::named;
use serde::Serialize;
use step::{Inserted as _, SmallSort as _};
use topics::Blocker;

use crate::calls::volumes::AttachmentFacts;
use crate::machines::rules::{DrainIdentity, decide};
use crate::machines::{MachinesView, Migratable, MigrationSettings, VirtualMachine, rules};
use crate::node::cordon::NodeFacts;
use crate::plan::held;
use crate::progress::{BlockCode, MachineState, Subject};
use crate::storage::{Cause, StorageView, VolumeFinding, VolumeState};

/// Volumes that would keep the node, and what a person should know of others.
pub(super) fn foreseen(look: &StorageView) -> (Vec<Blocker>, Vec<String>) {
    let (mut blockers, mut notes) = (Vec::new(), Vec::new());
    for it in look.findings.iter().filter(|it| !it.full.is_empty()) {
        let (code, on) = (BlockCode::VolumeFull, it.full.join(", "));
        let what = format!("the disk with a copy of volume {it} is full on node {on}");
        notes.push(format!("{}: {what}: {}", code.text(), code.next_step("", "")));
    }
    notes.extend(at_risk(look));
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
            VolumeState::Safe
            | VolumeState::Faulted
            | VolumeState::Unknown
            | VolumeState::LastCopy(Cause::Enough) => None,
            VolumeState::LastCopy(_) if !it.passed.is_empty() => None,
            // The cordon has it copied.
            VolumeState::LastCopy(Cause::Detached) if look.policy.copies_by_cordon() => None,
            VolumeState::LastCopy(cause) => cause.code(),
        };
        match code {
            None if it.is_last() && !it.passed.is_empty() => {
                notes.push(format!("{text}; allowed to go down by a person: {}", it.passed));
            }
            Some(code) => blockers.push(held::foreseen(&it.subject(), code, text)),
            None if it.state == VolumeState::LastCopy(Cause::Enough) => {
                notes.push(format!("{text}; the drain waits for another, which it has made first"));
            }
            None if it.is_last() => notes.push(format!("{text}; the drain waits for it")),
            None => notes.push(text),
        }
    }
    (blockers, notes)
}

/// Volumes that are attached here, and not for a pod: nothing of a drain detaches them.
pub(super) fn attached_by_hand(look: &StorageView, for_pods: &[AttachmentFacts]) -> Vec<Blocker> {
    let by_hand = look.attached.iter().filter(|(_, claim)| !for_pods.iter().any(|it| it.claim == **claim));
    let of = |(volume, (namespace, claim)): (&String, &(String, String))| {
        let (namespace, claim, volume) = (namespace.clone(), claim.clone(), volume.clone());
        let reason = format!(
            "volume {} is attached here, and no VolumeAttachment says that a pod needs it: until it is detached in Longhorn, \
             the budget of its instance manager stays closed",
            named(&namespace, &claim, &volume)
        );
        let subject = Subject::Volume { namespace, claim, volume };
        held::foreseen(&subject, BlockCode::StorageManager, reason)
    };
    by_hand.map(of).collect()
}

/// Virtual machines that run with degraded volumes, and with one of which a single copy is healthy.
fn at_risk(look: &StorageView) -> Vec<String> {
    let machines: BTreeSet<&String> = look.findings.iter().flat_map(|it| &it.machines).into_set();
    let of = |machine: &String| {
        let used: Vec<&VolumeFinding> =
            look.findings.iter().filter(|it| it.machines.contains(machine)).collect();
        let degraded = used.iter().filter(|it| !it.is_whole() && it.state != VolumeState::Faulted);
        let degraded: Vec<String> =
            degraded.map(|it| format!("{it}: {} of {} copies healthy", it.healthy, it.wanted)).collect();
        let single: Vec<String> = used.iter().filter(|it| it.healthy == 1).map(ToString::to_string).collect();
        (!degraded.is_empty() && !single.is_empty()).then(|| {
            format!(
                "virtual machine {machine} runs with degraded volumes ({}), and a single healthy copy has {}: wait until \
                 they are rebuilt, `kubectl -n longhorn-system get volumes`",
                degraded.join(", "),
                single.join(", ")
            )
        })
    };
    machines.into_iter().filter_map(of).collect()
}

/// One virtual machine in a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct PlannedMachine {
    /// As `shop/db`.
    pub name: String,
    /// Its eviction strategy, in KubeVirt's word.
    pub strategy: &'static str,
    /// Empty when KubeVirt can migrate it, else its reason and its sentence.
    pub not_migratable: String,
    /// What becomes of it where it cannot be migrated.
    pub policy: &'static str,
    /// A node that can take it, or empty.
    pub target: String,
    /// What the drain would do with it, and why.
    pub fate: String,
}

/// What a drain would do with each machine, which ones hold it up, and how long those that migrate are estimated to take.
pub(super) fn foreseen_machines(
    node: &NodeFacts,
    view: &MachinesView,
) -> (Vec<PlannedMachine>, Vec<Blocker>, Vec<String>) {
    let drain = DrainIdentity { node: node.name.to_string(), request: String::new() };
    let (mut held, mut copies) = (Vec::new(), Vec::new());
    let planned = |it: &VirtualMachine| {
        // The others have left by then.
        let alone = it.crowded.clone().filter(|_| it.target.is_ok());
        let alone = alone.map(|why| VirtualMachine { target: Err(why), ..it.clone() });
        let found = decide(&drain, alone.as_ref().unwrap_or(it), Duration::ZERO, view.running);
        if let Some(code) = found.code {
            let reason = format!("virtual machine {} {}", it.guest, found.text);
            held.push(held::foreseen(&Subject::Machine(it.guest.clone()), code, reason));
        }
        if matches!(found.state, MachineState::Waiting | MachineState::Asked | MachineState::Moving) {
            copies.push(rules::estimate(it));
        }
        PlannedMachine {
            name: it.guest.to_string(),
            strategy: it.strategy.text(),
            not_migratable: match &it.migratable {
                Migratable::Yes => String::new(),
                Migratable::No(reason, text) => format!("{reason}: {text}"),
                Migratable::Unknown => "KubeVirt has not reported yet".to_owned(),
            },
            policy: it.policy.text(),
            target: it.target.clone().unwrap_or_default(),
            fate: if found.left.is_empty() { found.text } else { found.left },
        }
    };
    let mut all: Vec<PlannedMachine> = view.machines.iter().map(planned).collect();
    all.order_by(|one, other| one.name.cmp(&other.name));
    let mut words: Vec<String> = estimate(&view.settings, &copies).into_iter().collect();
    // Of a node without machines nothing is told.
    words.extend(view.unusual.iter().filter(|_| !all.is_empty()).cloned());
    (all, held, words)
}

/// For all that migrate; none of them, no sentence.
fn estimate(settings: &MigrationSettings, copies: &[Option<Duration>]) -> Option<String> {
    let known: Vec<Duration> = copies.iter().copied().flatten().collect();
    let places = settings.at_once.min(settings.from_node);
    let what = format!("virtual machines to migrate: {}, at most {places} at the same time", copies.len());
    if copies.is_empty() {
        None
    } else if known.len() < copies.len() {
        Some(format!("{what}; no estimate, as their bandwidth has no limit (bandwidthPerMigration)"))
    } else {
        let secs = rules::together(settings, &known).as_secs();
        Some(format!("{what}: estimated {secs} s, by memory, disks and bandwidth"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage;
    use crate::storage::NodeDrainPolicy;

    fn finding(volume: &str, state: VolumeState) -> VolumeFinding {
        let (attached, here) = (String::new(), false);
        VolumeFinding { volume: volume.to_owned(), attached, here, ..storage::finding(state, None) }
    }

    #[test]
    fn u6_a_machine_on_degraded_volumes_of_which_one_has_a_single_copy_is_named_with_them_and_a_full_disk_too()
     {
        let volume = |name: &str, healthy, wanted| VolumeFinding {
            healthy,
            wanted,
            machines: vec!["shop/db".to_owned()],
            ..finding(name, VolumeState::Safe)
        };
        let notes = |all: &[VolumeFinding]| {
            foreseen(&StorageView { findings: all.to_vec(), ..StorageView::default() }).1.join("; ")
        };
        let table = [
            (vec![volume("a", 1, 2)], true),
            (vec![volume("a", 2, 3), volume("b", 1, 1)], true),
            (vec![volume("a", 2, 3)], false),
            (vec![volume("a", 1, 1)], false),
            (vec![VolumeFinding { machines: vec![], ..volume("a", 1, 2) }], false),
        ];
        for (number, (all, named)) in table.into_iter().enumerate() {
            let said = notes(&all);
            assert_eq!(said.contains("virtual machine shop/db"), named, "row {number}: {said}");
            assert!(
                !named || all.iter().all(|it| said.contains(&format!("shop/data ({})", it.volume))),
                "{said}"
            );
        }
        let full = VolumeFinding { full: vec!["n2".to_owned()], ..finding("a", VolumeState::Safe) };
        let expected =
            "volume-full: the disk with a copy of volume shop/data (a) is full on node n2: make room";
        assert!(notes(&[full]).starts_with(expected));
    }

    #[test]
    fn o5_d7_a_volume_that_is_attached_for_no_pod_is_foreseen_by_its_code_and_one_for_a_pod_is_not() {
        let claim = |name: &str| ("shop".to_owned(), name.to_owned());
        let attached = [("pvc-1", claim("data")), ("pvc-2", claim("logs"))];
        let attached = attached.map(|(name, claim)| (name.to_owned(), claim)).into_iter().collect();
        let look = StorageView { attached, ..StorageView::default() };
        let for_pod = AttachmentFacts {
            name: "csi-1".to_owned(),
            volume: "pvc-1".to_owned(),
            claim: claim("data"),
            kept_by: vec![],
        };
        let found = attached_by_hand(&look, &[for_pod]);
        let said: Vec<(&str, &str)> = found.iter().map(|it| (it.pod.as_str(), it.code.as_str())).collect();
        assert_eq!(said, [("volume shop/logs (pvc-2)", "storage-manager")]);
        assert!(found[0].reason.starts_with("volume shop/logs (pvc-2) is attached here"), "{found:?}");
    }

    #[test]
    fn o5_d14_what_a_person_lets_pass_is_no_blocker_and_is_named() {
        let last = VolumeState::LastCopy(Cause::StrictLocal);
        let passed = VolumeFinding { passed: "its disk is dead".to_owned(), ..finding("a", last) };
        let (blockers, notes) = foreseen(&StorageView { findings: vec![passed], ..StorageView::default() });
        assert_eq!(blockers, []);
        assert!(notes[0].ends_with("allowed to go down by a person: its disk is dead"), "{notes:?}");
    }

    #[test]
    fn o5_d14_what_no_wait_copies_is_foreseen_by_its_code_and_what_is_copied_is_a_note() {
        let said = |state: VolumeState, policy: &str, healthy: u32| {
            let finding = VolumeFinding { healthy, ..finding("pvc-1", state) };
            let look = StorageView {
                policy: NodeDrainPolicy::parse(policy),
                findings: vec![finding],
                ..StorageView::default()
            };
            let (blockers, notes) = foreseen(&look);
            (blockers.first().map(|it| it.code.clone()), notes.len())
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
            (said(last(Cause::Full(vec![])), "", 1), (Some(BlockCode::VolumeFull), 0)),
            (said(last(Cause::NoOtherNode), "", 1), (Some(BlockCode::LastCopy), 0)),
            (said(last(Cause::Detached), "always-allow", 1), (Some(BlockCode::LastCopy), 0)),
            (said(last(Cause::Detached), "block-for-eviction", 1), (None, 1)),
        ];
        for (number, (said, expected)) in table.into_iter().enumerate() {
            let expected = (expected.0.map(|it: BlockCode| it.text().to_owned()), expected.1);
            assert_eq!(said, expected, "row {number}");
        }
    }
}
