//! What a node does for services, consoles, networks and places of applications: an embedded cluster and real files, on
//! a paused clock.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

mod consoles;
mod networks;
mod places;
mod services;
mod stage;
