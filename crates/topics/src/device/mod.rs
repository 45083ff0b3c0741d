//! Topics about the device: its config, images, and what it is asked to do.
//!
//! Not here: draining (`drain`), clusters (`cluster`), what other agents say (`others`).

mod base_os;
mod config_items;
mod device_ops;

pub use base_os::*;
pub use config_items::*;
pub use device_ops::*;
