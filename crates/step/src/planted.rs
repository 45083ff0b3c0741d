//! Faults that a core can be given on purpose, so that a check of it can be seen to fail.
//!
//! Off in every build but those of the model checker: without the feature `planted-faults` the question is answered
//! at compile time and no code of a fault is left. With it, no fault is there until a test plants one in its thread.
//! Pure: no clock, no I/O, no task.

/// A fault of the reference (`D-…`), or of this project before its rule was there, each in the one place where a core
/// would have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    A1,
    A3,
    A4Lost,
    A4NotAgain,
    A5,
    N1,
    N3,
    B1,
    B2,
    B3,
    X1,
    K1,
    K2,
    K3,
    K5,
    K6,
    K7,
    K8,
    K9,
    K13,
    K14,
    K29,
    /// nodeagent asks the device without a last look at the drain.
    LastLook,
    /// baseosmgr withdraws a switch's request without asking nodeagent.
    WithdrawUnasked,
    /// A failed drain of a commanded operation is not asked for again.
    CommandedOnce,
    /// A pod that comes to the drained node voids nothing.
    NewPods,
    /// The record of leaving holds back no operation of a node with a config that says that it is in no cluster.
    Leaving,
    /// COMPLETE of before a start ages while the requesters are not known yet.
    Aging,
    /// A person's pause keeps nothing from starting.
    Pause,
    /// k3s is replaced although the drain for it failed.
    K3sUndrained,
    /// A turn that somebody else holds ends by its age.
    TurnExpiry,
    /// A turn is asked for before the preflight of the drain is clean.
    TurnPreflight,
    /// A turn is released after the boot without waiting for the gate.
    TurnGate,
    /// A holder does not look at the record again before it acts.
    TurnLastLook,
    /// A record with a fence below that of a cordon is not rebuilt.
    TurnFence,
    /// A kubelet counts as one that renews its lease when that was read once.
    FirstReading,
    /// A Lease that is older than the one that was seen makes a node forget who held a turn.
    OlderLease,
}

#[cfg(feature = "planted-faults")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault in the cores of this thread, or takes the last one away.
#[cfg(feature = "planted-faults")]
pub fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

/// Whether this fault is planted.
#[cfg(feature = "planted-faults")]
pub fn planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Whether this fault is planted: never.
#[cfg(not(feature = "planted-faults"))]
pub const fn planted(_fault: Fault) -> bool {
    false
}

#[cfg(not(feature = "planted-faults"))]
const _: () = assert!(!planted(Fault::A1), "a build that ships has no planted faults");
