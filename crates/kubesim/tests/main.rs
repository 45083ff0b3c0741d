//! The embedded cluster as its clients see it.

mod cluster;
mod controllers;
mod kubectl;
mod leases;
mod logs;
mod longhorn;
mod machines;
mod nodes;
mod requests;
mod watches;
