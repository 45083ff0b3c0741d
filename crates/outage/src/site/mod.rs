//! The whole site down and up again: one record for all nodes, kept in the Lease of turns.
//!
//! `record` is what is written and read for it, `operator` what a person may do to it, `coordinate` what the one node
//! does that works for all, `member` what each node does for itself, `calls` what they read and write. Who may call: `zedkube` and `zedbox site`. Not here: drains and turns.

pub mod calls;
pub mod coordinate;
pub mod member;
pub mod operator;
pub mod record;
#[cfg(test)]
mod tests;
