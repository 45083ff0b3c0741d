//! The core, fact by fact.

mod faults;
mod rules;
mod site;

use super::*;
