//! Whether etcd can spare this node.
//!
//! `metrics` reads etcd's text, `facts` is what is known, `rule` decides, `paths` knows the files, `calls` asks. Not
//! here: whose turn it is, what Kubernetes and the peers say (the caller brings it), setting names. Source:
//! spec/cluster-lock.md 4 and 5, goals U3 and U4.

pub mod calls;
pub mod facts;
pub mod metrics;
pub mod paths;
pub mod rule;

#[cfg(test)]
mod tests;
