//! Limits of a drain, and what its pods get before they leave.

mod limit;
mod requests;
mod surge;

pub(crate) use limit::*;
pub(crate) use requests::*;
