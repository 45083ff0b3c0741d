//! Tests of the core on virtual time, against a disk and a zedkube in memory.

mod any_order;
mod crash;
mod stories;
mod way;
mod world;
