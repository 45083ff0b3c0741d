//! The margin: text, rule, calls.

mod calls;
mod recorded;
mod rule;
mod stand_in;
