//! Limits of a drain, requests, and second copies of pods.

mod limit;
mod requests;
mod surge;

pub(crate) use limit::*;
pub(crate) use requests::*;
