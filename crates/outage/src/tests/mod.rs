//! Tests of the calls, against the stand-in cluster.

mod corpus;
mod findings;
pub(crate) mod http;
mod operator;
mod spare;
