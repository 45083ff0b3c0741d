//! Who made a node unschedulable, and what follows from it.
//!
//! Not here: reading or writing the Node object. Sources: goals D17, R4; spec/agents.md 4.3 steps 3, 4, 6 and
//! 4.6.
//! Pure: no clock, no I/O, no task.

use kubeapi::names::NodeName;
use kubeapi::nodes::CordonAnnotation;
use topics::CordonOwner;

/// The cordon of a node as a watch shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CordonSeen {
    #[default]
    None,
    Ours,
    /// Somebody else's, or a tie-breaker's, which stays.
    Foreign,
    /// None of ours, and our annotation is there: somebody has left it, or made it up.
    Marked,
}

/// The facts about a node that decisions need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    pub name: NodeName,
    /// Condition Ready is True.
    pub ready: bool,
    /// What condition Ready says where nobody reports for the kubelet (status Unknown); empty otherwise.
    pub silent: String,
    /// The flag `spec.unschedulable`. The taint is not looked at: it follows the flag late.
    pub unschedulable: bool,
    /// Ours where our annotation is there and the server knows of nobody else who wrote the flag; foreign without our
    /// annotation, with one that does not parse, or by another hand since: that is never undone.
    pub cordon: CordonOwner,
    /// Our annotation, also when somebody has uncordoned the node, or cordoned it again, and left it behind.
    pub annotation: Option<CordonAnnotation>,
    /// Label `tie-breaker-node=true`: the node carries no workloads.
    pub tie_breaker: bool,
    /// The version that a write must name.
    pub resource_version: String,
}

/// What [`crate::node::cordon`] has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CordonStep {
    Write,
    /// Nothing: flag and annotation are as wanted.
    Keep,
    /// Nothing: somebody else holds it.
    LeaveForeign,
}

impl NodeFacts {
    /// Its cordon, for whoever watches it.
    pub fn seen(&self) -> CordonSeen {
        match self.cordon {
            CordonOwner::Ours if !self.tie_breaker => CordonSeen::Ours,
            CordonOwner::None | CordonOwner::Foreign if self.annotation.is_some() => CordonSeen::Marked,
            CordonOwner::None => CordonSeen::None,
            CordonOwner::Ours | CordonOwner::Foreign => CordonSeen::Foreign,
        }
    }

    /// How to come to a cordon in the name of `owner`.
    pub fn cordon_step(&self, owner: &CordonAnnotation) -> CordonStep {
        match self.cordon {
            CordonOwner::None => CordonStep::Write,
            // A cordon of ours from a former request or boot changes its owner, so that the cleaning after a
            // boot does not take it for a leftover.
            CordonOwner::Ours if self.annotation.as_ref() != Some(owner) => CordonStep::Write,
            CordonOwner::Ours => CordonStep::Keep,
            CordonOwner::Foreign => CordonStep::LeaveForeign,
        }
    }

    /// Whether our cordon goes once nobody needs it: one of this boot at once, one of an earlier boot when the gate
    /// after the boot is open and the node Ready.
    pub fn our_cordon_goes(&self, boot_id: &str, gate_open: bool) -> bool {
        let of_this_boot = self.annotation.as_ref().is_some_and(|owner| owner.boot_id == boot_id);
        of_this_boot || (gate_open && self.ready)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A Ready node with this cordon.
    pub(crate) fn node(cordon: CordonOwner) -> NodeFacts {
        NodeFacts {
            name: NodeName::parse("n1").unwrap(),
            ready: true,
            silent: String::new(),
            unschedulable: cordon != CordonOwner::None,
            annotation: (cordon == CordonOwner::Ours).then(CordonAnnotation::default),
            cordon,
            tie_breaker: false,
            resource_version: "1".to_owned(),
        }
    }

    fn owner(boot: &str) -> CordonAnnotation {
        CordonAnnotation {
            boot_id: boot.to_owned(),
            requested_by: 2,
            requested_at: "t".to_owned(),
            ..CordonAnnotation::default()
        }
    }

    #[test]
    fn a_foreign_cordon_is_left_and_an_older_one_of_ours_is_taken_over() {
        let table = [
            (CordonOwner::None, None, CordonStep::Write),
            (CordonOwner::Ours, Some(owner("now")), CordonStep::Keep),
            (CordonOwner::Ours, Some(owner("before")), CordonStep::Write),
            (CordonOwner::Foreign, None, CordonStep::LeaveForeign),
        ];
        for (cordon, annotation, step) in table {
            let facts = NodeFacts { annotation, ..node(cordon) };
            assert_eq!(facts.cordon_step(&owner("now")), step, "{facts:?}");
        }
    }

    #[test]
    fn our_cordon_of_an_earlier_boot_goes_once_the_gate_is_open_and_the_node_ready() {
        for (boot, gate_open, ready, goes) in [
            ("b1", false, false, true),
            ("b2", true, true, true),
            ("b2", true, false, false),
            ("b2", false, true, false),
        ] {
            let facts = NodeFacts { ready, annotation: Some(owner("b1")), ..node(CordonOwner::Ours) };
            assert_eq!(facts.our_cordon_goes(boot, gate_open), goes, "{boot} {gate_open} {ready}");
        }
    }
}
