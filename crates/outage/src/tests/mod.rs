//! Tests of the calls, against the stand-in cluster.

mod operator;
mod spare;
