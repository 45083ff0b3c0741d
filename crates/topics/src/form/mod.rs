//! How values are written: Go's JSON, times, numbers, secrets, schemas, and what makes a value fit its message.
//!
//! Not here: any topic.

pub(crate) mod cidr;
pub mod fit;
pub mod go_json;
pub(crate) mod numbers;
pub(crate) mod reread;
pub mod schema;
pub(crate) mod secret;
pub(crate) mod shared;
pub(crate) mod time;
