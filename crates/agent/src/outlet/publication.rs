//! A topic whose writes end nothing, for what runs beside a core.

use std::collections::BTreeSet;

use pubsub::Publication;
use step::Mono;
use topics::Topic;

use super::{RetryPause, Troubles};
use crate::{Clock, Error, wire};

/// Writes that are tried again by whoever wants them, with what is reported about them.
pub struct Tries {
    troubles: Troubles,
    clock: Clock,
    failing: BTreeSet<String>,
    pause: RetryPause,
}

impl Tries {
    /// None has failed yet.
    pub fn new(troubles: &Troubles) -> Self {
        Self {
            clock: troubles.clock(),
            troubles: troubles.clone(),
            failing: BTreeSet::new(),
            pause: RetryPause::default(),
        }
    }

    /// How the write of `what` has ended; whether well.
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

    /// When what has failed is to be tried again.
    pub fn next_try(&self) -> Option<Mono> {
        self.pause.next
    }
}

/// The one publisher of a topic. What could not be written is to be published again by whoever has it, at
/// [`Outlet::next_try`].
pub struct Outlet<T> {
    topic: Publication<T>,
    tries: Tries,
}

impl<T: Topic> Outlet<T> {
    /// Becomes the publisher of the agent's topic, with what an earlier run left. To be called within a runtime.
    /// Errors: as [`crate::publication`].
    pub fn open(troubles: &Troubles) -> Result<Self, Error> {
        let topic = wire::publication(&troubles.topic_root(), troubles.agent())?;
        Ok(Self { topic, tries: Tries::new(troubles) })
    }

    /// Publishes `value`; whether it is on disk.
    pub fn put(&mut self, key: &str, value: &T) -> bool {
        let result = self.topic.publish(key, value).map(drop).map_err(Error::pubsub(T::NAME));
        self.tries.ended(&what::<T>(key), result)
    }

    /// Takes `key` back; whether nobody sees it any more.
    pub fn take(&mut self, key: &str) -> bool {
        let result = wire::withdraw(&mut self.topic, key);
        self.tries.ended(&what::<T>(key), result)
    }

    /// When something that could not be written is to be tried again.
    pub fn next_try(&self) -> Option<Mono> {
        self.tries.next_try()
    }

    /// The value under `key`.
    pub fn get(&self, key: &str) -> Option<&T> {
        self.topic.get(key)
    }

    /// All keys with their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.topic.iter()
    }
}

fn what<T: Topic>(key: &str) -> String {
    format!("{} {key}", T::NAME)
}
