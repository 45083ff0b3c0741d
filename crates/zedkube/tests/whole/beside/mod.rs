//! What runs beside the drain and holds none up.

mod apps;
mod duties;
mod leader;
mod server;
mod statuses;
