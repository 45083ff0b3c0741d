//! What runs beside the drain: duties, the server, and what is written.

mod apps;
mod duties;
mod k3s;
mod leader;
mod node_report;
mod server;
mod writes;
