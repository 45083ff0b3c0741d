//! The margin: text, rule, calls.

mod calls;
mod facts;
mod metrics;
mod rule;
