//! API servers that are away, lost or overloaded; drains that fail; too much of everything.

mod away;
mod crowd;
mod failures;
mod flapping;
mod lost;
mod restarts;
mod writes;
