//! Topics about the device: its config, certificates, images, what it is asked to do, and what other agents say of its
//! vault, volumes and domains.
//!
//! Not here: draining (`drain`), clusters (`cluster`).

mod base_os;
mod certs;
mod config_items;
mod device_ops;
mod domain;
mod inputs;
mod zboot;

pub use base_os::*;
pub use certs::*;
pub use config_items::*;
pub use device_ops::*;
pub use domain::*;
pub use inputs::*;
pub use zboot::*;
