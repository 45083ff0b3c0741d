//! The program as a person, an image and a machine use it.
//!
//! Tests start in the order of their names: the longest ones are in modules of the first half of the alphabet.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]
#![expect(clippy::explicit_write, reason = "a test that passes must not swallow why it did nothing")]

use std::ops::{Deref, DerefMut};
use std::process::Child;

mod access;
mod artifacts;
mod calls;
mod check;
mod demo;
mod documents;
mod drain_cmd;
mod image;
mod page;
mod processes;
mod setup;
mod update_status;

/// Killed at the end, before what is declared behind it is dropped.
struct KilledChild(Child);

impl Drop for KilledChild {
    fn drop(&mut self) {
        drop(self.kill());
        drop(self.wait());
    }
}

impl Deref for KilledChild {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KilledChild {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}
