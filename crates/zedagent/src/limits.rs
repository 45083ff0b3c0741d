//! Waits of zedagent.

use std::path::PathBuf;
use std::time::Duration;

/// The pause before a failed drain is asked for again doubles up to this.
pub(crate) const ASK_AGAIN_MOST: Duration = Duration::from_mins(30);

agent::limits! {
    pub struct Limits;
    waits {}
    others {}
    fixed_waits {
        /// After a failed drain, the first pause before it is asked for again.
        ask_again_first, ask_again_first_ms = 30_000;
    }
    fixed {
        /// A file by which the OS asks for a reboot; of the settings file.
        #[serde(skip)]
        reboot_required: Option<PathBuf> = None;
    }
}
