//! What a node does for services, consoles, networks and places of applications: an embedded cluster and real files, on
//! a paused clock.

mod consoles;
mod networks;
mod places;
mod services;
mod stage;
