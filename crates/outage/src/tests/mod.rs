//! Tests of the calls, against the stand-in cluster.

mod findings;
mod operator;
mod spare;
