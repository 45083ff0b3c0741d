//! Tests of the core on virtual time, against a disk and a zedkube in memory.

mod any_order;
mod change;
mod crash;
mod faults;
mod stages;
mod way;
mod world;
