//! The core, fact by fact.

mod faults;
mod paused;
mod rules;
mod site;

use super::*;
