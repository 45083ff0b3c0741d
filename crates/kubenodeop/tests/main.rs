//! A drain and what belongs to it, against the embedded cluster and scripted servers.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

mod boot;
mod drain;
mod forecast;
mod machines;
mod pages;
mod preflight;
mod replies;
mod rules;
mod runtime;
mod stage;
mod wire;
