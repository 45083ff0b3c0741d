//! What speaks against an operation, on scripted clusters and machines.

mod findings;
mod machine;
