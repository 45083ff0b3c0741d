//! The core, fact by fact.

mod faults;
mod older;
mod paused;
mod rules;
mod site;

use super::*;
