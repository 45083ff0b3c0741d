//! Arguments of `zedbox drain request` and `watch`.

use std::time::Duration;

use clap::Args as Group;

use crate::args::time::span;

/// What a person asks for.
#[derive(Debug, Clone, Group)]
pub(crate) struct RequestOptions {
    /// Why, in at most 200 bytes; status, log and report show it with your name.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Continue as `watch` until this request is answered; the exit code is that of `watch`.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait for so long at most, as 90s, 5m or 2h: then end with 3 or 4, and the request stays.
    #[arg(long, value_name = "TIME", value_parser = span, requires = "wait")]
    pub(crate) timeout: Option<Duration>,
}

/// How long a drain is watched.
#[derive(Debug, Clone, Group)]
pub(crate) struct WatchOptions {
    /// For so long at most, as 90s, 5m or 2h: then end with 3 or 4.
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(crate) timeout: Option<Duration>,
}
