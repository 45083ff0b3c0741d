//! Outside of the windows nothing starts, and what has started ends.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use super::super::bench::booted_at;
use super::super::stories::tell;
use super::super::{ClosedWindow, Event};
use super::Bench;

/// Outside of the windows; the next one opens in so many hours.
pub(in crate::core::tests) fn closed(hours: u64) -> Event {
    let opens = Some(booted_at().plus(Duration::from_hours(hours)));
    Event::Window(Some(ClosedWindow { why: format!("opens next in {hours} h"), opens }))
}

/// A member of a cluster, started outside of the windows.
pub(in crate::core::tests) fn outside() -> Bench {
    tell("new in turns, window shut 5, join, look Open")
}

#[test]
fn u9_outside_of_the_windows_nothing_begins_and_the_words_say_when_one_opens_and_what_to_type() {
    for who in ["DeviceOp", "Update", "K3sUpdate"] {
        // What is shown follows the clock.
        tell(&format!(
            "outside, ask {who}, phase OutsideWindow, not begin, shown Requested, reason is opens next in 5 h
            next has zedbox go --past window --reason, deadline hour 5, due never
            window shut 4, reason is opens next in 4 h, not begin
            window open, does begin, phase not OutsideWindow"
        ));
    }
}

#[test]
fn u9_a_window_that_closes_before_the_cordon_sends_the_drain_back_and_out_of_the_queue() {
    // A turn that was on its way to us starts nothing, and is released.
    tell(
        "outside, window open, ask DeviceOp, preflight clean, waits Holder, window shut 23, phase OutsideWindow
        does want-none, held 7, not cordon, phase OutsideWindow, window open, phase not OutsideWindow",
    );
}

#[test]
fn u9_a_window_that_closed_on_the_way_to_a_cordon_for_which_the_turn_is_missing_keeps_it_out() {
    tell(
        "cordoning in turns, cordon fails, window shut 5, waits Reading, wait, held 8, phase OutsideWindow
        not cordon",
    );
}

#[test]
fn u9_what_has_started_ends_whatever_the_window_and_over_a_restart() {
    tell("draining in turns, window shut 5, phase Draining, done, status 9 2");
    tell(
        "draining in turns, window shut 5, crash, window shut 5, ask DeviceOp, join, phase not OutsideWindow, held 7
        cordoned, confirmed, does drain",
    );
    // One that had not started waits, and keeps no cordon.
    tell(
        "outside, window open, ask DeviceOp, preflight clean, waits Holder, crash, window shut 5, ask DeviceOp, join
        phase OutsideWindow, not begin",
    );
}

#[test]
fn u9_complete_holds_outside_of_the_window_and_a_lost_turn_waits_for_it() {
    tell("complete in turns, window shut 5, status 9 2");
    tell("draining in turns, window shut 5, lost, phase OutsideWindow, does uncordon");
}

#[test]
fn u9_complete_that_is_void_outside_of_the_window_keeps_neither_cordon_nor_turn() {
    tell(
        "complete in turns, look Ours, window shut 100, activity, look pods Ours late-0, phase OutsideWindow
        does uncordon, look Open, does want-none",
    );
}

#[test]
fn u9_who_waits_for_a_window_is_not_busy_hooks_after_the_boot_are_called() {
    tell(
        "new in turns, window shut 5, join, hooks after boot, ask DeviceOp, look Open, phase OutsideWindow, gate open
        does hooks-after-boot",
    );
}

#[test]
fn u9_a_persons_word_lets_this_request_alone_start_and_is_kept_in_the_history() {
    // Taken from it, it has not started yet: it waits again.
    tell(
        "outside, ask DeviceOp, word DeviceOp 2, phase OutsideWindow, word DeviceOp 1, does begin
        phase not OutsideWindow, kept WindowPassed is root: the pump is dry, word gone, phase OutsideWindow",
    );
}

#[test]
fn u9_a_persons_own_drain_and_a_force_file_wait_for_no_window() {
    tell("outside, ask Operator, does begin, phase not OutsideWindow");
    tell("outside, ask DeviceOp, force Complete DeviceOp, status 9 2, skipped Forced");
}

#[test]
fn u9_whoever_may_start_now_starts_though_somebody_else_waits_and_goes_with_their_request() {
    for (who, lets) in [("Operator", "tick"), ("Update", "word Update 3")] {
        // It has not started: once they ask no more, the others wait again.
        tell(&format!(
            "outside, ask DeviceOp, phase OutsideWindow, ask {who} 3, {lets}, phase not OutsideWindow, for {who}
            withdraw {who}, phase OutsideWindow, for DeviceOp"
        ));
    }
}

#[test]
fn u9_a_request_that_is_withdrawn_outside_of_the_windows_is_answered_at_once() {
    tell("outside, ask DeviceOp, withdraw DeviceOp, status 2, not begin");
}

#[test]
fn u9_a_clock_that_jumps_to_and_fro_opens_and_closes_it_and_nothing_sticks() {
    let jumps =
        "window open, phase not OutsideWindow, wall 9000, window shut 1, phase OutsideWindow, wall 0, ";
    let jumps = jumps.repeat(20);
    tell(&format!("outside, ask DeviceOp, {jumps} window open, preflight clean, held 7, does cordon"));
}
