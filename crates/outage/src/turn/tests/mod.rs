//! Tests of turns.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test names what it waits for; anything else fails it")]

mod arbitrary;
mod life;
mod look;
mod model;
mod rebuild;
mod records;
pub(crate) mod rules;
mod simulation;
mod stage;
mod ways;
mod world;
