//! `zedbox demo`.

use std::path::PathBuf;

use clap::Args as Group;

/// Where the demo works.
#[derive(Debug, Clone, Group)]
pub(crate) struct DemoOptions {
    /// Directory that is made again and left behind for a look.
    #[arg(long, value_name = "DIR", default_value = "./run/demo")]
    pub(crate) dir: PathBuf,
}
