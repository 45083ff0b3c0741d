//! Virtual machines in a whole-site operation: what the record of the operation holds of them.
//!
//! What a machine had is in the record of the operation before it is stopped, besides what is written on it. Not here: how
//! one is stopped and started (`kubeapi::machines`). Source: spec/vm-storage.md A8 and A9, spec/cluster-lock.md 6.3. Pure: no
//! clock, no I/O, no task.

use kubeapi::machines;
pub use kubeapi::machines::{MachineAction, MachineSeen, MachineWork, RunStrategy};
use serde::{Deserialize, Serialize};

/// A machine in the record of the operation; their order is that in which they are started.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VmRecord {
    /// `virtualmachines` or `virtualmachineinstancereplicasets`.
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// What it had before.
    pub was: RunStrategy,
}

/// All there is of virtual machines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machines {
    /// Machines and replica sets of machines.
    pub all: Vec<MachineSeen>,
    /// Guests that run, and launchers that are there without one, by name.
    pub guests: Vec<String>,
    /// Of these guests the ones that nothing stops and starts.
    pub loose: Vec<String>,
    /// How many guests are on their way up.
    pub starting: usize,
}

/// The record with all of `work`, if it lacks one or has another word of it. The oldest comes first.
pub fn noted(record: &[VmRecord], work: &[MachineWork]) -> Option<Vec<VmRecord>> {
    let mut all = record.to_vec();
    let mut work: Vec<&MachineSeen> = work.iter().map(|it| &it.machine).collect();
    work.sort_by_key(|it| (&it.created, &it.namespace, &it.name));
    for it in work {
        let machine = VmRecord {
            kind: it.kind.to_owned(),
            namespace: it.namespace.clone(),
            name: it.name.clone(),
            uid: it.uid.clone(),
            was: it.strategy.clone(),
        };
        match all.iter_mut().find(|held| held.uid == it.uid) {
            Some(held) => *held = machine,
            None => all.push(machine),
        }
    }
    (all != record).then_some(all)
}

/// Those that the operation `id` has stopped, in the order of its record: what brings each back.
pub fn starts(id: &str, record: &[VmRecord], machines: &[MachineSeen]) -> Vec<MachineWork> {
    let order: Vec<String> = record.iter().map(|it| it.uid.clone()).collect();
    machines::starts(|mark| mark.id == id, &order, machines)
}
