//! The rules of a whole-site operation: tables, and whole courses with every kind of interruption.

mod address;
mod calls;
mod course;
mod machines;
mod preflight;
mod restart;
mod rules;
mod trouble;
