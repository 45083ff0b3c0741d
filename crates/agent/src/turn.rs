//! The one loop that all agents run in: receive a fact, decide, perform the effects in order.
//!
//! Not here: any decision. Long work runs in [`crate::Tasks`] and comes back as an event; a turn waits for no
//! network.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use pubsub::reach;
use step::Core;
use tokio::sync::watch::Receiver;
use tracing::{trace, warn};

use crate::clock::ClockSet;
use crate::outlet::{Effects, Hands, Troubles};
use crate::tasks::Inbox;
use crate::watchdog::Watchdog;
use crate::{AgentContext, Error, pid};

/// How often, at the next turn, directories are checked for a mount over them.
const LOOK_EVERY: Duration = Duration::from_secs(20);

/// Which of the cores of an agent: the watchdog file of the first, and its word on what hangs, cover all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentCore {
    First,
    Second,
}

/// Runs `core` until `context` says stop, or until a non-retryable effect fails. The effects of its start
/// come `first`.
///
/// Dropping this between turns loses nothing: facts are on disk, and journal effects come before the effects
/// that they describe.
pub async fn run<C, H>(
    of: AgentCore,
    (mut core, first): (C, Vec<C::Effect>),
    mut hands: H,
    mut inbox: Inbox<C::Event>,
    context: &AgentContext,
    troubles: &Troubles,
) -> Result<(), Error>
where
    C: Core,
    C::Event: Debug,
    C::Effect: Clone + Send,
    H: Hands<Effect = C::Effect> + Send,
{
    let clock = context.clock;
    let watchdog = || Watchdog::new(troubles.agent(), &context.topic_root, clock);
    let mut watchdog = (of == AgentCore::First).then(watchdog);
    let mut stop = context.stop.clone();
    let mut wall = ClockSet::new(clock);
    let boots = clock.boots();
    let mut booted_at = *boots.borrow();
    let mut effects = Effects::new(troubles.clone(), clock);
    // Reported once per agent, not per core.
    let mut looked = clock.now();
    let mut hanging = watchdog.as_ref().and_then(|_| reach::hanging());
    effects.perform(&mut hands, first).await?;
    loop {
        if let Some(hanging) = &mut hanging {
            let places = hanging.borrow_and_update().clone();
            troubles.hanging(&places);
        }
        if watchdog.is_some() && clock.now().since(looked) >= LOOK_EVERY {
            looked = clock.now();
            context.topic_root.look_again();
            if let Err(error) = pid::keep(&context.topic_root, troubles.agent()) {
                let error = step::chain(&error);
                warn!(agent = troubles.agent(), error, "cannot write the file of the process number again");
            }
        }
        // Beside the kernel's report: it costs nothing, and not every kernel reports.
        clock.look();
        let now = *boots.borrow();
        if now != booted_at {
            match hands.clock_set(now) {
                Ok(()) => booted_at = now,
                Err(error) => {
                    let error = step::chain(&error);
                    warn!(
                        agent = troubles.agent(),
                        error, "times of the clock before it was set are still shown"
                    );
                }
            }
        }
        if effects.next_try().is_some_and(|at| at <= clock.now()) {
            effects.try_again(&mut hands).await;
        }
        if let Some(watchdog) = &mut watchdog {
            watchdog.touch();
        }
        let due = core.next_wake();
        let event = if due.is_some_and(|at| at <= clock.now()) {
            // A core that is due is served, but never starves its inbox.
            if stop.is_stopped() {
                return Ok(());
            }
            inbox.waiting().unwrap_or_else(C::tick)
        } else {
            tokio::select! {
                biased;
                () = stop.stopped() => return Ok(()),
                heard = inbox.recv() => match heard {
                    Some(event) => event,
                    None => return Ok(()),
                },
                () = clock.sleep_until(due) => C::tick(),
                () = due_for(watchdog.as_ref()) => continue,
                () = change_of(hanging.as_mut()) => continue,
                () = clock.sleep_until(effects.next_try()) => continue,
                // Followers are notified; here the watchdog file gets a time of the new clock.
                () = wall.set() => continue,
            }
        };
        trace!(?event, "heard");
        effects.perform(&mut hands, core.step(clock.now(), event)).await?;
        // One turn at a time: a busy agent lets the others of its process run.
        tokio::task::yield_now().await;
    }
}

async fn due_for(watchdog: Option<&Watchdog>) {
    match watchdog {
        Some(watchdog) => watchdog.due().await,
        None => std::future::pending().await,
    }
}

/// Returns when a disk hangs, or answers again.
async fn change_of(hanging: Option<&mut Receiver<BTreeSet<PathBuf>>>) {
    let Some(hanging) = hanging else { return std::future::pending().await };
    if hanging.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outlet::Weight;
    use crate::{inbox, test_context};
    use step::Mono;

    /// A core that is always due.
    struct Restless;

    impl Core for Restless {
        type Event = ();
        type Effect = ();

        fn step(&mut self, _now: Mono, _event: ()) -> Vec<()> {
            vec![()]
        }

        fn next_wake(&self) -> Option<Mono> {
            Some(Mono::START)
        }

        fn tick() {}
    }

    /// Calls the stop at its third effect.
    struct Third(u8, Option<crate::Stopper>);

    impl Hands for Third {
        type Effect = ();

        fn weight(&self, (): &()) -> Weight {
            Weight::plain()
        }

        async fn perform(&mut self, (): ()) -> Result<(), Error> {
            self.0 += 1;
            if self.0 == 3
                && let Some(stopper) = &self.1
            {
                stopper.stop();
            }
            assert!(self.0 < 100, "it went on after the stop");
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_core_that_is_always_due_leaves_when_it_is_told_to() {
        let root = tempfile::tempdir().unwrap();
        let (stopper, context) = test_context(root.path(), "");
        let (_outbox, inbox) = inbox();
        let troubles = Troubles::open(&context.topic_root, context.clock, "restless");
        let (core, hands) = ((Restless, vec![]), Third(0, Some(stopper)));
        run(AgentCore::First, core, hands, inbox, &context, &troubles).await.unwrap();
    }
}
