//! Whether etcd can spare this node.
//!
//! `metrics` reads etcd's text, `facts` is what is known, `rule` decides, `paths` knows the files, `calls` asks our own
//! etcd, `words` the agents of its other members. Not here: whose turn it is, what Kubernetes says (the caller brings it),
//! setting names. Source:
//! spec/cluster-lock.md 4 and 5, goals U3 and U4.

pub mod calls;
pub mod facts;
pub mod metrics;
pub mod paths;
pub mod rule;
pub mod words;

#[cfg(test)]
mod tests;
