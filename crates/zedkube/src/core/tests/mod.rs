//! The core, fact by fact, and in any order of facts.

mod any_order;
mod bench;
mod clock;
mod gated;
mod log_events;
mod membership;
mod operator;
mod records;
mod restarted;
mod rules;
mod site;
mod sizes;
mod stories;
mod turns;
mod voided;
mod world;

use super::*;
