//! The effects of a core on their way out: each is performed, kept, or let go.

use step::Mono;

use super::queue::{Held, Queue, Rank};
use super::{Pause, Troubles};
use crate::turn::Hands;
use crate::{Clock, Error};

/// The effects of one core.
pub(crate) struct Effects<E> {
    queue: Queue<E>,
    pause: Pause,
    troubles: Troubles,
    clock: Clock,
    /// The record that the others wait for, as it was told last, with what waits.
    told: Option<(String, Vec<String>)>,
}

impl<E: Clone + Send> Effects<E> {
    pub(crate) fn new(troubles: Troubles, clock: Clock) -> Self {
        Self { queue: Queue::default(), pause: Pause::default(), troubles, clock, told: None }
    }

    /// When something is to be tried again.
    pub(crate) fn next_try(&self) -> Option<Mono> {
        self.pause.next
    }

    /// Performs the effects of one step in their order. Dropping it may leave the rest undone.
    ///
    /// # Errors
    /// That of an effect that writes nothing.
    pub(crate) async fn perform<H>(&mut self, hands: &mut H, effects: Vec<E>) -> Result<(), Error>
    where
        H: Hands<Effect = E> + Send,
    {
        for effect in effects {
            let weight = hands.weight(&effect);
            if weight.rank == Rank::Plain {
                self.queue.waits(&weight, false);
                hands.perform(effect).await?;
            } else if self.queue.waits(&weight, hands.is_ordered(&effect)) {
                self.queue.keep(Held { weight, effect });
            } else {
                self.attempt(hands, Held { weight, effect }).await;
            }
        }
        self.let_ordered_go(hands).await;
        self.tell();
        Ok(())
    }

    /// Tries again what has failed, in its order.
    pub(crate) async fn try_again<H>(&mut self, hands: &mut H)
    where
        H: Hands<Effect = E> + Send,
    {
        let mut failed = false;
        while let Some(held) = self.queue.ordered.pop_front() {
            if let Err(held) = self.done(hands, held).await {
                self.queue.ordered.push_front(held);
                failed = true;
                break;
            }
        }
        for held in std::mem::take(&mut self.queue.late) {
            if let Err(held) = self.done(hands, held).await {
                self.queue.late.push(held);
                failed = true;
            }
        }
        if failed {
            self.pause.failed(self.clock.now());
        } else {
            self.pause.over();
        }
        self.tell();
    }

    /// What a person has ordered goes ahead of the records that it would wait for.
    async fn let_ordered_go<H>(&mut self, hands: &mut H)
    where
        H: Hands<Effect = E> + Send,
    {
        let ordered = |it: &Held<E>| it.weight.rank == Rank::Promise && hands.is_ordered(&it.effect);
        if !self.queue.ordered.iter().any(ordered) {
            return;
        }
        let (go, stay): (Vec<_>, Vec<_>) = self.queue.ordered.drain(..).partition(ordered);
        self.queue.ordered.extend(stay);
        for held in go {
            self.attempt(hands, held).await;
        }
    }

    async fn attempt<H>(&mut self, hands: &mut H, held: Held<E>)
    where
        H: Hands<Effect = E> + Send,
    {
        if let Err(held) = self.done(hands, held).await {
            self.queue.keep(held);
            // One more failure does not put off what is to be tried already.
            if self.pause.next.is_none() {
                self.pause.failed(self.clock.now());
            }
        }
    }

    async fn done<H>(&mut self, hands: &mut H, held: Held<E>) -> Result<(), Held<E>>
    where
        H: Hands<Effect = E> + Send,
    {
        match hands.perform(held.effect.clone()).await {
            Ok(()) => {
                self.troubles.over(&held.weight.key);
                Ok(())
            }
            Err(cause) => {
                self.troubles.note(&held.weight.key, &cause);
                Err(held)
            }
        }
    }

    /// Says what waits for the first in the queue.
    fn tell(&mut self) {
        if self.queue.is_empty() {
            self.pause.over();
        }
        let now = self.queue.ordered.front().map(|it| (it.weight.key.to_string(), self.queue.waiting()));
        if self.told != now {
            if let Some((before, _)) = self.told.take()
                && now.as_ref().is_none_or(|(key, _)| *key != before)
            {
                self.troubles.holds(&before, Vec::new());
            }
            if let Some((key, waiting)) = &now {
                self.troubles.holds(key, waiting.clone());
            }
            self.told = now;
        }
        self.troubles.publish();
    }
}
