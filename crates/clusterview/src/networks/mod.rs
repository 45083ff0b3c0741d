//! Network attachments `host-<interface>`, by which native applications get an ethernet port of their node.
//!
//! One object serves all applications and nodes. Each node notes in an annotation of its own that it needs it; a node that
//! needs it no more takes its note away, and deletes an object of ours on which no note is left (D-V7, D-V8). Objects that
//! somebody else made are left as they are. Pure: `attachment`; `task` calls. Sources: spec/eve-rest.md 3.5, goal E8.

mod attachment;
mod task;

pub use task::run;
