//! The way out of the cluster.

mod leaving;
mod leaving_words;
