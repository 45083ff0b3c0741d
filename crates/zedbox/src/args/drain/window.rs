//! `zedbox drain start-now`: the words of a person who waits for no window.

use clap::Args as Group;

/// What a person lets start.
#[derive(Debug, Clone, Group)]
pub(crate) struct StartOptions {
    /// Why, in at most 200 bytes; history and log show it with your name.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}
