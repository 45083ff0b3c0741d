//! Machines that are shut down, and the last copies of their volumes.

use super::*;
use crate::storage::{Cause, VolumeFinding, VolumeState, finding};

fn ends(policy: MachinePolicy) -> VirtualMachine {
    VirtualMachine { policy, claims: vec!["data".to_owned()], ..machine("db") }
}

fn storage(state: VolumeState) -> StorageView {
    StorageView { findings: vec![finding(state, None)], ..StorageView::default() }
}

fn is_up(bench: &Bench) -> bool {
    bench.machines.values().all(|it| it.launchers.iter().any(|it| !it.ending))
}

#[test]
fn t3_a_machine_that_is_shut_down_stays_up_until_its_volume_has_another_copy_which_is_asked_for() {
    let last = |cause| Some(storage(VolumeState::LastCopy(cause)));
    let mut bench = Bench { storage: last(Cause::Enough), ..Bench::new(vec![ends(MachinePolicy::Shutdown)]) };
    bench.begin();
    bench.pass(50);
    assert_eq!((is_up(&bench), bench.copies.as_slice()), (true, [("pvc-1".to_owned(), 1)].as_slice()));
    let text = "virtual machine shop/db is not shut down yet: volume shop/data (pvc-1): the last healthy copy is here; ";
    let blocker = bench.progress().blockers.remove(0);
    assert_eq!((blocker.code.as_str(), blocker.reason.starts_with(text)), ("copying", true), "{blocker:?}");
    bench.hear(Event::Storage(Ok(last(Cause::Rebuilding))));
    bench.pass(5000);
    assert_eq!((is_up(&bench), bench.end.clone(), bench.progress().storage.len()), (true, None, 1));
    bench.hear(Event::Storage(Ok(Some(storage(VolumeState::Safe)))));
    bench.pass(5);
    assert_eq!((bench.end.clone(), bench.copies.len()), (Some(Ok(())), 1));
    // Moved by Longhorn, or allowed to go down.
    let one = |it| Some(StorageView { findings: vec![it], ..StorageView::default() });
    let moves = one(VolumeFinding { moves: true, ..finding(VolumeState::Safe, None) });
    let mut bench = Bench { storage: moves, ..Bench::new(vec![ends(MachinePolicy::Shutdown)]) };
    bench.begin();
    bench.pass(500);
    assert_eq!((is_up(&bench), bench.end), (true, None));
    let passed = VolumeFinding { passed: "so".into(), ..finding(VolumeState::LastCopy(Cause::Enough), None) };
    let other = VirtualMachine { claims: vec!["other".to_owned()], ..ends(MachinePolicy::Shutdown) };
    let table = [
        (ends(MachinePolicy::Shutdown), one(passed)),
        (other, last(Cause::Enough)),
        (ends(MachinePolicy::Shutdown), None),
        (ends(MachinePolicy::MigrateOrShutdown), last(Cause::Enough)),
    ];
    for (machine, storage) in table {
        let mut bench = Bench { storage, ..Bench::new(vec![machine.clone()]) };
        bench.begin();
        bench.pass(20);
        assert_eq!(bench.end, Some(Ok(())), "{machine:?}");
    }
}

#[test]
fn t3_the_limit_of_last_copies_holds_for_machines_and_begins_once_nothing_else_is_waited_for() {
    for (then, up) in [(VolumeAction::Wait, true), (VolumeAction::GoOn, false), (VolumeAction::GiveUp, true)]
    {
        let last = storage(VolumeState::LastCopy(Cause::StrictLocal));
        let two = vec![ends(MachinePolicy::Shutdown), machine("a")];
        let mut bench = Bench { storage: Some(last), manner: Manner::Hang, ..Bench::new(two) };
        bench.engine = attempt(bench.now, HOUR * 24, Limit { after: Some(Duration::from_secs(60)), then });
        bench.begin();
        bench.pass(200);
        assert_eq!((bench.end.clone(), bench.progress().marks.storage_ms), (None, 0), "{then:?}");
        bench.manner = Manner::Succeed;
        for it in bench.machines.values_mut().filter(|it| it.migration.is_some()) {
            it.migration.as_mut().unwrap().phase = "Running".into();
        }
        bench.pass(60);
        let since = bench.progress().marks.storage_ms;
        assert!(bench.end.is_none() && since > 0, "{then:?}: {:?}", bench.end);
        bench.pass(10);
        let db = &bench.machines[&named("db").uid];
        assert_eq!(!db.over, up, "{then:?}");
        assert_eq!(
            bench.progress().marks.storage_ms,
            since,
            "{then:?}: the rest of the drain counts from there"
        );
        match (then, bench.end) {
            (VolumeAction::Wait, None) | (VolumeAction::GoOn, Some(Ok(()))) => {}
            (VolumeAction::GiveUp, Some(Err(why))) => assert_eq!(
                why,
                "60 s after everything else left, this node still has the last healthy copy of shop/data (pvc-1)"
            ),
            (_, end) => panic!("{then:?}: {end:?}"),
        }
    }
}
