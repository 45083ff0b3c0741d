//! Topics about the device: its config, its images, what it is told to do.

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
