//! The program as a person, an image and a machine use it.

mod check;
mod demo;
mod drain_cmd;
mod image;
mod processes;
mod update_status;
