//! Talks to the API server of a cluster: client and kubeconfig, what a reply means, watches that renew
//! themselves, pauses after failures, checked names.
//!
//! Who may call: see ARROWS in `tests/house`. Not here: which calls and why, except the few on Node objects
//! and Leases that several callers need (`nodes`, `lease`); clocks (the caller gives one).

pub mod client;
pub mod connect;
mod error;
mod kubeconfig;
pub mod lease;
pub mod machines;
#[cfg(any(test, feature = "mock"))]
pub mod mock;
pub mod names;
pub mod nodes;
pub mod objects;
pub mod own_node;
pub mod pace;
pub mod reply;
mod settling;
pub mod slim;
pub mod trial;
pub mod watch;

pub use client::ApiClient;
pub use error::{CausedBody, Error, found};
pub use names::{NodeName, PodRef, PodUid, listed};
pub use own_node::OwnNode;
pub use reply::{Reach, Reply};
