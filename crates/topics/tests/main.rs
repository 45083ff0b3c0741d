//! Shapes on disk: samples of the reference, and what fuzzing kept.

mod corpus;
mod golden;
