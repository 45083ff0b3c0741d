//! The core, fact by fact.

mod faults;
mod rules;

use super::*;
