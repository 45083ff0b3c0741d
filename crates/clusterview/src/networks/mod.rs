//! Network attachments `host-<interface>`, which give native applications an ethernet port of their node.
//!
//! One object serves all applications and nodes. A node that needs it has an annotation on it; the last one
//! to remove its annotation deletes the object (D-V7, D-V8). Foreign objects are left unchanged. Pure:
//! `attachment`; `task` calls. Sources: spec/eve-rest.md 3.5, goal E8.

mod attachment;
mod task;

pub use task::run;
