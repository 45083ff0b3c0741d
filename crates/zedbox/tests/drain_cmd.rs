//! `zedbox drain`, `zedbox lock` and `zedbox site` as a person and a script use them, on copies of the trees
//! in `run-fixtures`.

#[path = "drain_cmd/orders/confirm.rs"]
mod confirm;
#[path = "drain_cmd/orders/device_order.rs"]
mod device_order;
mod failover;
mod force;
#[path = "drain_cmd/orders/force_log.rs"]
mod force_log;
mod history;
mod lock;
mod lock_writes;
mod machines;
pub(crate) mod node;
#[path = "drain_cmd/orders/pause.rs"]
mod pause;
pub(crate) mod place;
mod plan;
mod readme;
mod request;
mod site;
mod status;
pub(crate) mod terminal;
mod verify;
mod watch;
mod whole;
