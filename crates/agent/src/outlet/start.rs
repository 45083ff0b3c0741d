//! The start of an agent: opens what it needs, and retries until that succeeds.

use tracing::info;

use super::{RetryPause, Troubles};
use crate::watchdog::Watchdog;
use crate::{AgentContext, Error};

/// Opens what an agent cannot begin without: its topics and the records of an earlier run. A disk that cannot
/// be read or written is reported and retried: a restarted agent would meet the same disk, and without its
/// records it would take them for absent. `None` when `context` says stop meanwhile.
///
/// Errors: another process is this agent, or a value cannot be encoded: retrying cannot help.
pub async fn started<T>(
    context: &AgentContext,
    troubles: &Troubles,
    mut open: impl FnMut() -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    let agent = troubles.agent();
    let what = format!("start of {agent}");
    let mut watchdog = Watchdog::new(agent, &context.topic_root, context.clock);
    let mut pause = RetryPause::default();
    let mut stop = context.stop.clone();
    loop {
        match open() {
            Ok(all) => {
                if pause.failed > 0 {
                    info!(agent, "starts after all");
                }
                troubles.over(&what);
                return Ok(Some(all));
            }
            Err(cause) if may_pass(&cause) => {
                troubles.note(&what, &cause);
                troubles.holds(&what, vec![format!("all that {agent} does")]);
                troubles.publish();
                pause.failed(context.clock.now());
            }
            Err(cause) => return Err(cause),
        }
        watchdog.touch();
        tokio::select! {
            () = stop.stopped() => return Ok(None),
            () = context.clock.sleep_until(pause.next) => {}
        }
    }
}

fn may_pass(cause: &Error) -> bool {
    match cause {
        Error::Pubsub { source, .. } => {
            matches!(source, pubsub::Error::Io { .. } | pubsub::Error::Refused { .. })
        }
        Error::Read { .. } | Error::Device { .. } | Error::Effect { .. } => true,
        Error::Already { .. } | Error::Encode { .. } => false,
    }
}
