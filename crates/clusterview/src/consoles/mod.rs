//! The console of a virtual machine at the controller: the file `vmiVNC.run`, which makes the kube container
//! run a proxy.
//!
//! There is one file, so one console at a time on a node, and edgeview writes it too. Pure: `claim`, which decides;
//! `task` reads and writes. Sources: spec/eve-rest.md 3.4, D-V1 to D-V6, goal E7.

mod claim;
mod task;

pub use task::{ConsoleFiles, run};
