//! A drain and what belongs to it, against the embedded cluster and scripted servers.

mod boot;
mod drain;
mod forecast;
mod machines;
mod many;
mod pages;
mod preflight;
mod replies;
mod rules;
mod runtime;
mod stage;
mod wire;
