//! The program as a person, an image and a machine use it.

mod access;
mod check;
mod demo;
mod drain_cmd;
mod image;
mod package;
mod processes;
mod update_status;
