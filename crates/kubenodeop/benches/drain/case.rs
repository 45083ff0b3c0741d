//! What is measured.

use std::time::Duration;

/// The node that is emptied.
pub(crate) const NODE: &str = "pillar-bench-1";
/// The node that takes what comes back.
pub(crate) const OTHER: &str = "pillar-bench-2";
/// Where the pods are.
pub(crate) const NAMESPACE: &str = "pillar-bench";
/// The device of the node.
pub(crate) const DEVICE: &str = "0e6f8a52-8f5e-4cf0-9b51-1d0f6b6f0a11";
/// From being asked to end to being gone.
pub(crate) const STOP: Duration = Duration::from_millis(500);
/// From being on a node to being Ready.
pub(crate) const START: Duration = Duration::from_millis(300);

/// Who empties the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Floor,
    Ours,
}

/// A node with pods.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) pods: usize,
    /// Whether they belong to one workload behind a budget that spares one.
    pub(crate) guarded: bool,
    pub(crate) rounds: usize,
    /// Why it needs the embedded cluster, if it does.
    pub(crate) not_on_a_real_server: Option<&'static str>,
}

pub(crate) const CASES: [Case; 3] = [
    Case {
        name: "plain",
        what: "200 pods, no budget",
        pods: 200,
        guarded: false,
        rounds: 5,
        not_on_a_real_server: None,
    },
    Case {
        name: "budget",
        what: "10 pods behind maxUnavailable 1",
        pods: 10,
        guarded: true,
        rounds: 5,
        not_on_a_real_server: Some(
            "the copies of evicted pods would be put on nodes with a machine, whose start and stop times are not \
             those of the case",
        ),
    },
    Case {
        name: "many",
        what: "2000 pods, no budget",
        pods: 2_000,
        guarded: false,
        rounds: 3,
        not_on_a_real_server: None,
    },
];

impl Case {
    pub(crate) fn named(name: &str) -> Self {
        CASES.into_iter().find(|it| it.name == name).unwrap()
    }

    /// Requests that a drain may make: pods and a twentieth, and fifteen. With a budget there is no such target.
    pub(crate) fn requests(self) -> Option<usize> {
        (!self.guarded).then_some(self.pods + self.pods / 20 + 15)
    }
}
