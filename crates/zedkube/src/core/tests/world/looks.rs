//! What the small world answers to a look at its node, and how its gate after a boot is.
//!
//! Pure: no clock, no I/O, no task.

use kubenodeop::node::gate::Layer;
use topics::{CordonOwner, DrainStatus};

use super::{Task, World};
use crate::core::tests::bench::gate;
use crate::core::{Event, NodeLook};

impl World {
    /// Nobody is at work on the cluster: what a failed drain waits for is only watched.
    pub(super) fn is_at_rest(&self) -> bool {
        let failed = self.core.drain.own_status() == DrainStatus::FailedDrain;
        self.task.is_none() || failed && matches!(self.task, Some(Task::Await(_)))
    }

    pub(in crate::core::tests) fn looked(&mut self, well: bool) {
        let Some((nth, uncordon, gate_open)) = self.look.take() else { return };
        if !well {
            return self.hear(&Event::Looked(nth, Err("500".into())));
        }
        let shut = self.written_in != self.boot && !gate_open;
        if uncordon && self.node == CordonOwner::Ours && !shut {
            self.write(CordonOwner::None);
        }
        let seen = match self.node {
            CordonOwner::Ours if uncordon => NodeLook::NotReady,
            CordonOwner::None => NodeLook::Open,
            owner if self.has_new_pods && !uncordon => {
                self.drained.clear();
                NodeLook::HasPods(owner, vec![crate::core::tests::voided::pod("late-0")])
            }
            CordonOwner::Ours => NodeLook::Ours,
            CordonOwner::Foreign => NodeLook::Foreign,
        };
        if !uncordon && seen == NodeLook::Open {
            // Somebody uncordoned; what was skipped or forced needs no cordon.
            self.drained.clear();
        }
        self.hear(&Event::Looked(nth, Ok(seen)));
    }

    /// The gate after the boot is reported open or shut, if it is watched.
    pub(in crate::core::tests) fn gate(&mut self, open: bool) {
        if self.watching {
            self.gate = Some(open);
            let layer = (!open).then_some(Layer::Storage);
            self.hear(&Event::Gate(Box::new(gate(layer, self.now))));
        }
    }

    /// A pod comes to the node, whatever its cordon says.
    pub(in crate::core::tests) fn come(&mut self) {
        self.has_new_pods = true;
        self.stir();
    }

    pub(in crate::core::tests) fn stir(&mut self) {
        if std::mem::take(&mut self.guard) {
            self.hear(&Event::NodeActivity("a change".into()));
        }
    }
}
