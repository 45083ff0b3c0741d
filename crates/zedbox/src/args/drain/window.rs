//! Arguments of `zedbox drain start-now`.

use clap::Args as Group;

/// What a person lets start.
#[derive(Debug, Clone, Group)]
pub(crate) struct StartOptions {
    /// Why, in at most 200 bytes; history and log show it with your name.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}
