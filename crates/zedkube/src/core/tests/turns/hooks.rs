//! Hooks before a drain: in the turn, before the cordon, tried as a drain is, undone without a boot.
//!
//! Pure: no clock, no I/O, no task.

use topics::StepWord;

use super::super::stories::{go, tell};
use super::Bench;

/// The cordon is asked for, and a hook is called instead.
pub(in crate::core::tests) fn hooking() -> Bench {
    tell("requested in turns, preflight clean, held 7, does cordon, hook runs")
}

#[test]
fn u9_after_the_hooks_the_turn_is_looked_at_again_and_then_comes_the_cordon() {
    // A hook has a limit of its own. At the second cordon none is left to be called.
    tell(
        "hooking in turns, phase RunningHooks, shown Starting, reason is hook 10-a is running, due never, hooks done
        does confirm, not cordon, confirmed, does cordon, cordoned, confirmed, does drain, not undo-hooks",
    );
}

#[test]
fn u9_hooks_that_fail_are_tried_again_after_the_pause_of_a_drain_and_end_it_like_one() {
    let mut bench = hooking();
    for tried in 1..5 {
        // Who is to cordon calls them again.
        go(
            &mut bench,
            &format!(
                "hook fails, phase RunningHooks, reason has try {tried} of 5, reason ends no backup, deadline some
                not undo-hooks, wait 300, does confirm, confirmed, does cordon, hook runs"
            ),
        );
    }
    go(&mut bench, "hook fails, status 8 2, reason has no backup, does undo-hooks uncordon");
    let steps = &bench.core.history.kept.drains[0].steps;
    // The last one is the end of the drain.
    assert_eq!(steps.iter().filter(|it| it.step == StepWord::HookFailed).count(), 4);
    let end = steps.last().unwrap();
    assert_eq!((end.step, end.text.as_str()), (StepWord::Failed, "hook 10-a: no backup"));
}

#[test]
fn u9_hooks_are_undone_once_when_the_drain_is_withdrawn_fails_or_loses_its_turn() {
    for end in ["withdraw DeviceOp", "lost"] {
        let once = "does undo-hooks, tick, not undo-hooks, hooks undone, not undo-hooks";
        tell(&format!("hooking in turns, {end}, {once}"));
    }
    // Also a drain that is under way; one that is complete keeps them until its request goes.
    tell(
        "draining in turns, hooks in place, not undo-hooks, done, not undo-hooks, withdraw DeviceOp, does undo-hooks",
    );
    tell("complete in turns, not undo-hooks");
}

#[test]
fn u9_hooks_are_undone_when_the_node_leaves_its_cluster_also_while_zedkube_was_down() {
    tell("hooking in turns, member Leaving, does undo-hooks, hooks undone, member Outside, not undo-hooks");
    for member in ["Leaving", "Outside"] {
        tell(&format!("new in turns, hooks in place, not undo-hooks, member {member}, does undo-hooks"));
    }
}

#[test]
fn u9_after_a_restart_hooks_stay_with_a_drain_that_continues_and_are_undone_without_one() {
    tell("draining in turns, crash, hooks in place, ask DeviceOp, not undo-hooks, join, not undo-hooks");
    tell("draining in turns, crash, hooks in place, not undo-hooks, join, does undo-hooks");
}

#[test]
fn u9_hooks_after_the_boot_come_once_the_gate_is_open_and_once() {
    tell(
        "new in turns, hooks after boot, join, look NotReady, gate Storage, not hooks-after-boot, gate open
        does hooks-after-boot, gate open, not hooks-after-boot",
    );
}
