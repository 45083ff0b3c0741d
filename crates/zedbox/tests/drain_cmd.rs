//! `zedbox drain`, `zedbox lock` and `zedbox site` as a person and a script call them, on copies of the trees in `run-fixtures`.

#![expect(clippy::explicit_write, reason = "a test that passes must not swallow why it did nothing")]
#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

#[path = "drain_cmd/orders/confirm.rs"]
mod confirm;
#[path = "drain_cmd/orders/device_order.rs"]
mod device_order;
#[path = "drain_cmd/force.rs"]
mod force;
#[path = "drain_cmd/orders/force_log.rs"]
mod force_log;
#[path = "drain_cmd/history.rs"]
mod history;
#[path = "drain_cmd/lock.rs"]
mod lock;
#[path = "drain_cmd/lock_writes.rs"]
mod lock_writes;
#[path = "drain_cmd/machines.rs"]
mod machines;
#[path = "drain_cmd/node.rs"]
mod node;
#[path = "drain_cmd/orders/pause.rs"]
mod pause;
#[path = "drain_cmd/place.rs"]
mod place;
#[path = "drain_cmd/plan.rs"]
mod plan;
#[path = "drain_cmd/readme.rs"]
mod readme;
#[path = "drain_cmd/request.rs"]
mod request;
#[path = "drain_cmd/site.rs"]
mod site;
#[path = "drain_cmd/status.rs"]
mod status;
#[path = "drain_cmd/terminal.rs"]
mod terminal;
#[path = "drain_cmd/verify.rs"]
mod verify;
#[path = "drain_cmd/watch.rs"]
mod watch;
#[path = "drain_cmd/whole.rs"]
mod whole;
