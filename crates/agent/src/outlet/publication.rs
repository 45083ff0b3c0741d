//! A topic whose failed writes are kept and retried, for code beside a core.
//!
//! The start of an agent: opens what it needs, and retries until that succeeds.

use std::collections::BTreeSet;

use pubsub::Publication;
use step::Mono;
use topics::Topic;
use tracing::info;

use super::{RetryPause, Troubles};
use crate::watchdog::Watchdog;
use crate::{AgentContext, Clock, Error, wire};

/// Retries of writes, and their reports.
pub struct Tries {
    troubles: Troubles,
    clock: Clock,
    failing: BTreeSet<String>,
    pause: RetryPause,
}

impl Tries {
    pub fn new(troubles: &Troubles) -> Self {
        Self {
            clock: troubles.clock(),
            troubles: troubles.clone(),
            failing: BTreeSet::new(),
            pause: RetryPause::default(),
        }
    }

    /// Notes how the write of `what` ended; returns whether it succeeded.
    pub fn ended(&mut self, what: &str, result: Result<(), Error>) -> bool {
        let Err(cause) = result else {
            self.troubles.over(what);
            if self.failing.remove(what) && self.failing.is_empty() {
                self.pause.over();
            }
            return true;
        };
        self.failing.insert(what.to_owned());
        self.troubles.note(what, &cause);
        self.troubles.publish();
        self.pause.failed(self.clock.now());
        false
    }

    pub fn next_try(&self) -> Option<Mono> {
        self.pause.next
    }
}

/// The publisher of a topic. The caller publishes again what failed, at [`Outlet::next_try`].
pub struct Outlet<T> {
    topic: Publication<T>,
    tries: Tries,
}

impl<T: Topic> Outlet<T> {
    /// Publishes the agent's topic, with the values of an earlier run. Needs a runtime.
    ///
    /// Errors: as [`crate::publication`].
    pub fn open(troubles: &Troubles) -> Result<Self, Error> {
        let topic = wire::publication(&troubles.topic_root(), troubles.agent())?;
        Ok(Self { topic, tries: Tries::new(troubles) })
    }

    /// Returns whether `value` is on disk.
    pub fn put(&mut self, key: &str, value: &T) -> bool {
        let result = wire::publish(&mut self.topic, key, value);
        self.tries.ended(&what::<T>(key), result)
    }

    /// Removes `key`; returns whether that succeeded.
    pub fn take(&mut self, key: &str) -> bool {
        let result = wire::withdraw(&mut self.topic, key);
        self.tries.ended(&what::<T>(key), result)
    }

    pub fn next_try(&self) -> Option<Mono> {
        self.tries.next_try()
    }

    pub fn get(&self, key: &str) -> Option<&T> {
        self.topic.get(key)
    }

    /// In the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.topic.iter()
    }
}

fn what<T: Topic>(key: &str) -> String {
    format!("{} {key}", T::NAME)
}

/// One value of an agent that has to be known at its start: whoever acts by it must be found acting after a power cut.
pub struct KeptRecord<T> {
    key: &'static str,
    /// `None` while it cannot be had; each write tries again, and reports that.
    topic: Option<Publication<T>>,
    value: Option<T>,
    tries: Tries,
}

impl<T: Topic> KeptRecord<T> {
    /// Publishes the agent's topic, if that can be, with what an earlier run left. Needs a runtime.
    ///
    /// Errors: it cannot be read, so it may exist.
    pub fn open(troubles: &Troubles, key: &'static str) -> Result<Self, Error> {
        let (topic_root, agent) = (troubles.topic_root(), troubles.agent());
        let topic = wire::publication::<T>(&topic_root, agent).ok();
        // A publication has the backup of a damaged record.
        let value = match &topic {
            Some(topic) => topic.get(key).cloned(),
            None => wire::peek(&topic_root, agent, key).map_err(Error::pubsub(T::NAME))?,
        };
        Ok(Self { key, topic, value, tries: Tries::new(troubles) })
    }

    pub fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// Writes it, or removes it; returns whether that is on disk.
    pub fn put(&mut self, value: Option<&T>) -> bool {
        let written = self.write(value);
        let done = self.tries.ended(&what::<T>(self.key), written);
        if done {
            self.value = value.cloned();
        }
        done
    }

    fn write(&mut self, value: Option<&T>) -> Result<(), Error> {
        let topic = match &mut self.topic {
            Some(topic) => topic,
            None if value.is_none() && self.value.is_none() => return Ok(()),
            none => none
                .insert(wire::publication(&self.tries.troubles.topic_root(), self.tries.troubles.agent())?),
        };
        match value {
            Some(value) => wire::publish(topic, self.key, value),
            None => wire::withdraw(topic, self.key),
        }
    }

    pub fn next_try(&self) -> Option<Mono> {
        self.tries.next_try()
    }
}

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
