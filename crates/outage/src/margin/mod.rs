//! Whether etcd can spare this node.
//!
//! `facts` is what is known, with etcd's text and files, `rule` decides, `calls` asks our own etcd, `words` the agents
//! of its other members. Not here: whose turn it is, what Kubernetes says (the caller brings it), setting names.

pub mod calls;
pub mod facts;
pub mod rule;
pub mod words;

#[cfg(test)]
mod tests;
