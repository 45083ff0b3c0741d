//! Limits of a drain, and what its pods get before they leave.

mod limit;
mod surge;

pub(crate) use limit::*;
