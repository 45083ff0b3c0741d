//! `KubeUserServices`: which ports of services and paths of ingresses of users nim opens at the uplinks, on every node.
//!
//! Not here: the firewall. Pure: `facts` (objects), `fold` (what is published); `follow` reads, `task` waits.
//! Sources: spec/agents.md 4.11, spec/eve-rest.md 3.3, goal E5.

mod facts;
mod fold;
mod task;

pub use task::run;
