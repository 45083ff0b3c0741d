//! Performs the effects of a core, keeps failed ones, or drops them.

use step::Mono;
use topics::GoTime;

use super::queue::{EffectQueue, QueuedEffect, Rank};
use super::{RetryPause, Troubles, Weight};
use crate::{Clock, Error};

pub trait Hands {
    type Effect: Clone + Send;

    /// How an effect relates to later ones: the table in [`super`].
    fn weight(&self, effect: &Self::Effect) -> Weight;

    /// Whether a person ordered it, so that it waits for no record.
    fn is_ordered(&self, _effect: &Self::Effect) -> bool {
        false
    }

    /// The wall clock was set, [`crate::Clock::booted_at`] is `now`: everything published with a wall-clock
    /// time is written again. The implementation notes which clock each time was made by, because the clock
    /// is set before any task knows. A failure is tried again at the next turn.
    fn clock_set(&mut self, _now: GoTime) -> Result<(), Error> {
        Ok(())
    }

    /// Performs one effect. Long work is started as a task, not awaited. A failed one is tried again, except
    /// an effect of no weight: its error ends the agent.
    ///
    /// Dropping the future may leave the effect undone; the next start decides it again from disk.
    fn perform(&mut self, effect: Self::Effect) -> impl Future<Output = Result<(), Error>> + Send;
}

pub(crate) struct Effects<E> {
    queue: EffectQueue<E>,
    pause: RetryPause,
    troubles: Troubles,
    clock: Clock,
    /// The record that others wait for and the waiting effects, as last reported.
    told: Option<(String, Vec<String>)>,
}

impl<E: Clone + Send> Effects<E> {
    pub(crate) fn new(troubles: Troubles, clock: Clock) -> Self {
        Self { queue: EffectQueue::default(), pause: RetryPause::default(), troubles, clock, told: None }
    }

    pub(crate) fn next_try(&self) -> Option<Mono> {
        self.pause.next
    }

    /// In their order. Dropping it may leave the rest undone.
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
                self.queue.keep(QueuedEffect { weight, effect });
            } else {
                self.attempt(hands, QueuedEffect { weight, effect }).await;
            }
        }
        self.let_ordered_go(hands).await;
        self.report_waiting();
        Ok(())
    }

    /// In order.
    pub(crate) async fn try_again(&mut self, hands: &mut (impl Hands<Effect = E> + Send)) {
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
        self.report_waiting();
    }

    /// Lets a person's order go ahead of the records that it would wait for.
    async fn let_ordered_go(&mut self, hands: &mut (impl Hands<Effect = E> + Send)) {
        let ordered = |it: &QueuedEffect<E>| it.weight.rank == Rank::Promise && hands.is_ordered(&it.effect);
        if !self.queue.ordered.iter().any(ordered) {
            return;
        }
        let (go, stay): (Vec<_>, Vec<_>) = self.queue.ordered.drain(..).partition(ordered);
        self.queue.ordered.extend(stay);
        for held in go {
            self.attempt(hands, held).await;
        }
    }

    async fn attempt(&mut self, hands: &mut (impl Hands<Effect = E> + Send), held: QueuedEffect<E>) {
        if let Err(held) = self.done(hands, held).await {
            self.queue.keep(held);
            // Another failure does not postpone the next try.
            if self.pause.next.is_none() {
                self.pause.failed(self.clock.now());
            }
        }
    }

    async fn done<H>(&mut self, hands: &mut H, held: QueuedEffect<E>) -> Result<(), QueuedEffect<E>>
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

    fn report_waiting(&mut self) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Weight, test_context};
    use std::time::Duration;
    use topics::{AgentTrouble, go_json};

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Do {
        Journal(u8),
        Request,
        Withdraw,
        Status(u8),
        Command,
        Leave,
    }

    /// A disk that takes nothing while it is full; it keeps what was done.
    #[derive(Default)]
    struct FakeDisk {
        full: bool,
        run_full: bool,
        ordered: bool,
        tried: u32,
        done: Vec<Do>,
    }

    impl Hands for FakeDisk {
        type Effect = Do;

        fn weight(&self, effect: &Do) -> Weight {
            match effect {
                Do::Journal(_) => Weight::record("journal"),
                Do::Request => Weight::promise("request", "the request"),
                Do::Withdraw => Weight::status("request"),
                Do::Status(_) => Weight::status("status"),
                Do::Command => Weight::promise("command", "the command"),
                Do::Leave => Weight::plain(),
            }
        }

        fn is_ordered(&self, effect: &Do) -> bool {
            self.ordered && *effect == Do::Command
        }

        async fn perform(&mut self, effect: Do) -> Result<(), Error> {
            let fails = match effect {
                Do::Journal(_) => self.full,
                Do::Request | Do::Status(_) => self.run_full,
                Do::Withdraw | Do::Command => false,
                Do::Leave => return Err(Error::Effect { doing: "stay", reason: "told to leave".to_owned() }),
            };
            self.tried += 1;
            if fails {
                let source = std::io::Error::from_raw_os_error(28);
                let path = "/persist/status/x/tmp1".into();
                return Err(Error::pubsub("x")(pubsub::Error::Io { step: "write", path, source }));
            }
            self.done.push(effect);
            Ok(())
        }
    }

    struct Bench {
        effects: Effects<Do>,
        hands: FakeDisk,
        root: tempfile::TempDir,
        clock: Clock,
    }

    impl Bench {
        fn new(hands: FakeDisk) -> Self {
            let root = tempfile::tempdir().unwrap();
            let (_stopper, context) = test_context(root.path(), "");
            let clock = context.clock;
            let troubles = Troubles::open(&context.topic_root, clock, "zedagent");
            Self { effects: Effects::new(troubles, clock), hands, root, clock }
        }

        async fn step(&mut self, effects: &[Do]) {
            self.effects.perform(&mut self.hands, effects.to_vec()).await.unwrap();
        }

        /// Returns the pause before it.
        async fn again(&mut self) -> Duration {
            let began = self.clock.now();
            self.clock.sleep_until(self.effects.next_try()).await;
            self.effects.try_again(&mut self.hands).await;
            self.clock.now().since(began)
        }

        fn published_trouble(&self) -> Option<AgentTrouble> {
            let file = self.root.path().join("run/zedagent/AgentTrouble/global.json");
            std::fs::read(file).ok().map(|bytes| go_json::from_slice(&bytes).unwrap())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn k2_no_promise_goes_out_before_its_record_and_statuses_do_and_all_in_order_once_the_disk_is_back()
    {
        let mut bench = Bench::new(FakeDisk { full: true, ..FakeDisk::default() });
        bench.step(&[Do::Journal(1), Do::Request, Do::Status(1)]).await;
        assert_eq!(bench.hands.done, [Do::Status(1)]);
        bench.step(&[Do::Journal(2), Do::Command, Do::Status(2)]).await;
        assert_eq!(bench.hands.done, [Do::Status(1), Do::Status(2)]);
        let told = bench.published_trouble().unwrap().troubles.remove(0);
        assert_eq!((told.what.as_str(), told.path.as_str()), ("journal", "/persist/status/x"));
        assert_eq!(told.holds, ["the request", "the command"]);
        // The pause grows, and stays short enough for five seconds after the recovery.
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            longest = longest.max(bench.again().await);
        }
        assert!((Duration::from_secs(3)..Duration::from_secs(5)).contains(&longest), "{longest:?}");
        bench.hands.full = false;
        bench.again().await;
        let all = [Do::Journal(1), Do::Request, Do::Journal(2), Do::Command];
        assert_eq!(bench.hands.done[2..], all, "in their order, each once");
        assert_eq!((bench.published_trouble(), bench.effects.next_try()), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn k2_what_was_withdrawn_while_it_waited_is_never_asked_for() {
        let mut bench = Bench::new(FakeDisk { full: true, ..FakeDisk::default() });
        bench.step(&[Do::Journal(1), Do::Request]).await;
        bench.step(&[Do::Withdraw, Do::Journal(2)]).await;
        bench.hands.full = false;
        bench.again().await;
        assert_eq!(bench.hands.done, [Do::Withdraw, Do::Journal(2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn k2_a_command_that_a_person_orders_goes_ahead_of_its_record_also_when_the_order_comes_later() {
        let mut bench = Bench::new(FakeDisk { full: true, ..FakeDisk::default() });
        bench.step(&[Do::Journal(1), Do::Request, Do::Command]).await;
        assert_eq!(bench.hands.done, []);
        bench.hands.ordered = true;
        bench.step(&[]).await;
        assert_eq!(bench.hands.done, [Do::Command]);
        bench.hands.full = false;
        bench.again().await;
        assert_eq!(bench.hands.done, [Do::Command, Do::Journal(1), Do::Request]);
    }

    #[tokio::test(start_paused = true)]
    async fn k2_of_a_status_that_cannot_be_written_the_newest_is_tried_again() {
        let mut bench = Bench::new(FakeDisk { run_full: true, ..FakeDisk::default() });
        bench.step(&[Do::Status(1)]).await;
        bench.step(&[Do::Status(2)]).await;
        bench.hands.run_full = false;
        bench.again().await;
        assert_eq!(bench.hands.done, [Do::Status(2)]);
        assert_eq!(bench.hands.tried, 3);
    }

    #[tokio::test]
    async fn an_effect_of_no_weight_that_fails_ends_the_agent() {
        let mut bench = Bench::new(FakeDisk::default());
        let ended = bench.effects.perform(&mut bench.hands, vec![Do::Leave]).await;
        assert!(ended.unwrap_err().to_string().contains("told to leave"));
    }
}
