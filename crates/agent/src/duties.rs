//! Keeps the side duties of this agent running, each on its own: election, statistics, applications, cluster
//! status and others beside the drain.
//!
//! Not here: the drain. It neither ends nor waits when one of these fails.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::{AgentContext, Error};
use tracing::{debug, error, info};

/// Pause before the first restart; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause. A duty that has run so long without a failure counts as recovered.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Runs `duty` until `context` says stop, and restarts it after a growing pause whenever it ends or fails. On
/// stop the duty ends by itself, after its clean-up. Dropping this drops the duty.
pub async fn keep<F>(name: &'static str, context: &AgentContext, mut duty: impl FnMut() -> F + Send)
where
    F: Future<Output = Result<(), Error>> + Send,
{
    keep_boxed(name, context, &mut || Box::pin(duty())).await;
}

type Duty<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// Not generic, so compiled once.
async fn keep_boxed<'a>(
    name: &'static str,
    context: &AgentContext,
    duty: &mut (dyn FnMut() -> Duty<'a> + Send),
) {
    let (mut stop, clock) = (context.stop.clone(), context.clock);
    let (mut pause, mut logged) = (FIRST_PAUSE, String::new());
    loop {
        let began = clock.now();
        let ended = duty().await;
        if stop.is_stopped() {
            return;
        }
        if clock.now().since(began) >= LONGEST_PAUSE {
            if !logged.is_empty() {
                info!(duty = name, "ran again without a failure");
            }
            (pause, logged) = (FIRST_PAUSE, String::new());
        }
        let why =
            ended.err().map_or_else(|| "it ended without an error".to_owned(), |cause| step::chain(&cause));
        if why == logged {
            debug!(duty = name, error = why, "failed again");
        } else {
            error!(
                duty = name,
                error = why,
                "failed and is restarted, with pauses of up to 60 s; the drain continues without it"
            );
            logged = why;
        }
        tokio::select! {
            () = stop.stopped() => return,
            () = clock.sleep_until(Some(clock.now() + pause)) => {}
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// [`keep`] for an endless duty without clean-up: it is dropped on stop.
pub async fn keep_until_stop<F>(name: &'static str, context: &AgentContext, duty: impl FnMut() -> F + Send)
where
    F: Future<Output = Result<(), Error>> + Send,
{
    let mut stop = context.stop.clone();
    tokio::select! {
        () = keep(name, context, duty) => {}
        () = stop.stopped() => {}
    }
}

/// [`keep_until_stop`] for a duty that cannot fail.
pub async fn keep_endless<F>(name: &'static str, context: &AgentContext, mut duty: impl FnMut() -> F + Send)
where
    F: Future<Output = ()> + Send,
{
    let endless = || {
        let run = duty();
        async {
            run.await;
            Ok(())
        }
    };
    keep_until_stop(name, context, endless).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_context;
    use std::sync::Mutex;
    use step::Mono;

    #[tokio::test(start_paused = true)]
    async fn k5_a_duty_that_fails_or_ends_is_started_again_with_pauses_that_grow_and_shrink_again() {
        let root = tempfile::tempdir().unwrap();
        let (stopper, context) = test_context(root.path(), "");
        let clock = context.clock;
        let starts = Mutex::new(Vec::<Mono>::new());
        let duty = || {
            let mut starts = starts.lock().unwrap();
            starts.push(clock.now());
            let nth = starts.len();
            let stopper = &stopper;
            async move {
                match nth {
                    // The ninth runs well for a while.
                    9 => clock.sleep_until(Some(clock.now() + Duration::from_secs(90))).await,
                    11 => stopper.stop(),
                    _ => {}
                }
                let failed = || Error::Encode {
                    what: "a duty",
                    source: topics::go_json::from_slice::<u8>(b"x").unwrap_err(),
                };
                if nth.is_multiple_of(2) { Err(failed()) } else { Ok(()) }
            }
        };
        keep("test", &context, duty).await;
        let starts = starts.into_inner().unwrap();
        let pauses: Vec<u64> = starts.windows(2).map(|it| (it[1].since(it[0])).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 91, 2]);
    }
}
