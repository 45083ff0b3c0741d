//! Tests of the calls, against the stand-in cluster.

mod corpus;
mod findings;
mod operator;
mod spare;
