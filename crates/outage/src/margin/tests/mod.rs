//! The margin: text, rule, calls.

mod calls;
mod facts;
mod metrics;
mod recorded;
mod rule;
mod stand_in;
