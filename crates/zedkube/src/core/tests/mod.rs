//! The core, fact by fact, and in any order of facts.

mod any_order;
mod bench;
mod clock;
mod gated;
mod losing;
mod operator;
mod records;
mod restarted;
mod rules;
mod said;
mod site;
mod sizes;
mod standing;
mod turns;
mod voided;
mod world;

use super::*;
