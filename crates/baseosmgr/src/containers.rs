//! Container images of an OS image, pulled and removed by an integrator's program.
//!
//! | Words | When | What it does |
//! |---|---|---|
//! | `pull VERSION` | before VERSION is written, and so before the drain | returns once all that VERSION needs is on this node; else it fails and says what is missing |
//! | `clean VERSION` | once VERSION has passed its test | removes what only versions before the other partition's needed |
//!
//! Not here: which images these are.

use std::path::PathBuf;
use std::time::Duration;

use agent::device::program;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::Limits;
use crate::limits::IMAGE_PROGRAM_LIMIT;

#[derive(Debug, Clone)]
pub(crate) struct ContainerProgram {
    program: PathBuf,
    limit: Duration,
}

impl ContainerProgram {
    /// `None` without a program.
    pub(crate) fn of(limits: &Limits) -> Option<Self> {
        let program = PathBuf::from(&limits.image_program);
        (!limits.image_program.is_empty()).then_some(Self { program, limit: IMAGE_PROGRAM_LIMIT })
    }

    /// Returns once the container images of `version` are here; the error says why not.
    pub(crate) async fn pull(&self, version: &str) -> Result<(), String> {
        let began = now();
        let said = self.call("pull", version).await;
        let said = said.map_err(|why| format!("the container images of {version} are not here: {why}"))?;
        info!(version, secs = began.elapsed().as_secs(), said, "container images are here before the drain");
        Ok(())
    }

    /// Removes unneeded images; a failure blocks nothing.
    pub(crate) async fn clean(&self, version: &str) {
        match self.call("clean", version).await {
            Ok(said) => info!(version, said, "old container images are cleaned up"),
            Err(why) => warn!(version, why, "old container images are not all cleaned up"),
        }
    }

    async fn call(&self, word: &str, version: &str) -> Result<String, String> {
        if !self.program.is_absolute() {
            return Err(format!("image_program needs an absolute path, not `{}`", self.program.display()));
        }
        Ok(program::call(&self.program, &[word, version], self.limit).await?.trim().to_owned())
    }
}

#[expect(clippy::disallowed_methods, reason = "how long a call took, for the log")]
fn now() -> Instant {
    Instant::now()
}
