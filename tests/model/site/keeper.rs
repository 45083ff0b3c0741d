//! The keeper of one node's turn, as `outage::keeper` runs it: the real `Turn` with one call at a time,
//! questions and answers.

use std::collections::{BTreeMap, VecDeque};

use outage::keeper::{Ask, TurnLevels};
use outage::turn::Turn;
use outage::turn::event::{Effect, Event, ReadError, RecordWritten, TurnState, TurnWait, Unconfirmed};
use outage::turn::pulses::Pulses;
use outage::turn::record::{Class, RecordSnapshot};
use outage::turn::rule::{Me, TurnRule};
use step::{Core as _, Mono};
use zedkube::core::Event as KeeperReport;

/// From the first question of its zedkube to the end of that.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keeper {
    /// `None` before its own node was read.
    pub(crate) turn: Option<Turn>,
    since: Mono,
    /// The reading of its own node failed, and is repeated.
    failed: bool,
    levels: TurnLevels,
    waits: Vec<Ask>,
    pub(crate) call: Option<Effect>,
    /// Its answer under way.
    pub(crate) carried: Option<Event>,
    pub(crate) told: VecDeque<KeeperReport>,
    /// Its peers are answered that it neither has nor wants a turn.
    pub(crate) idle: bool,
    /// The watch's last version; `None` before the first.
    #[expect(clippy::option_option, reason = "not said yet, and nothing, differ")]
    pub(crate) shown: Option<Option<String>>,
    servers_out: Option<Vec<String>>,
    /// Leases of kubelets as read, with alternating versions.
    pub(crate) pulses: Pulses,
    beats: BTreeMap<String, bool>,
}

impl Keeper {
    pub(crate) fn new(now: Mono) -> Self {
        Self { since: now, ..Self::default() }
    }

    pub(crate) fn ask(&mut self, now: Mono, ask: Ask) {
        self.levels.take(&ask);
        if self.turn.is_some() {
            self.hear(now, ask.into());
        } else if matches!(ask, Ask::Confirm | Ask::LastLook(_)) {
            self.waits.push(ask);
            if self.failed {
                self.unread();
            }
        } else if self.failed {
            self.unread();
        }
    }

    pub(crate) fn known(&mut self, now: Mono, me: Me, class: Class, chance: u64) {
        self.told.push_back(KeeperReport::Server(me.server));
        self.turn = Some(Turn::new(me, class, chance));
        let levels = self.levels.asks().map(Event::from).chain([Event::Tick]);
        let waits = std::mem::take(&mut self.waits);
        levels.chain(waits.into_iter().map(Event::from)).for_each(|event| self.hear(now, event));
    }

    fn unread(&mut self) {
        self.failed = true;
        let why = "no answer".to_owned();
        if self.levels.wants_turn() {
            let waiting = TurnWait {
                nodes: Vec::new(),
                rule: TurnRule::Api,
                why: why.clone(),
                since: self.since,
                place: None,
                next: String::new(),
            };
            let told = KeeperReport::Turn(Box::new(TurnState::Waiting(Box::new(waiting))));
            // LogEvent again it is no news.
            if !self.told.contains(&told) {
                self.told.push_back(told);
            }
        }
        for ask in std::mem::take(&mut self.waits) {
            self.told.push_back(match ask {
                Ask::LastLook(number) => {
                    let margin = Err("whether this node is a server is not known".to_owned());
                    KeeperReport::LookedLast(
                        number,
                        Err(Unconfirmed::Unreachable { why: why.clone(), margin }),
                    )
                }
                Ask::Confirm | Ask::Want(_) | Ask::Gate(_) | Ask::Phase(_) | Ask::Look | Ask::Retry(_) => {
                    KeeperReport::TurnConfirmed(Err(Unconfirmed::Unknown(why.clone())))
                }
            });
        }
    }

    /// The turn takes an event; its calls are kept, its answers go to zedkube.
    pub(crate) fn hear(&mut self, now: Mono, event: Event) {
        let Some(turn) = &mut self.turn else { return };
        let effects = turn.step(now, event);
        let servers = turn.servers_out();
        if servers.is_some() && servers != self.servers_out {
            self.servers_out.clone_from(&servers);
            self.told.push_back(KeeperReport::ServersOut(servers.unwrap_or_default()));
        }
        for effect in effects {
            match effect {
                Effect::State(turn_state) => {
                    self.idle = turn_state == TurnState::NotWanted { idle: true };
                    self.told.push_back(KeeperReport::Turn(Box::new(turn_state)));
                }
                Effect::Confirmed(result) => self.told.push_back(KeeperReport::TurnConfirmed(result)),
                Effect::LookedLast(number, result) => {
                    self.told.push_back(KeeperReport::LookedLast(number, result));
                }
                Effect::Say(_) => {}
                Effect::Read(_) | Effect::ReadCluster(_) | Effect::ReadMargin(_) | Effect::Write(..) => {
                    assert!(self.call.is_none(), "one call at a time");
                    self.call = Some(effect);
                }
            }
        }
    }

    pub(crate) fn calls(&self) -> bool {
        self.turn.is_none() || self.call.is_some()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    pub(crate) fn due(&self) -> Option<Mono> {
        self.turn.as_ref()?.next_wake()
    }

    pub(crate) fn answer(&mut self, now: Mono, answer: Event) {
        (self.call, self.carried) = (None, None);
        self.hear(now, answer);
    }

    /// The call under way gets no answer, carried out or not.
    pub(crate) fn lose(&mut self, now: Mono) {
        let lost = "no answer".to_owned();
        let answer = match &self.call {
            None => return self.unread(),
            Some(Effect::Read(id)) => Event::Read(*id, Err(ReadError::NoAnswer(lost))),
            Some(Effect::ReadCluster(id)) => Event::Cluster(*id, Err(ReadError::NoAnswer(lost))),
            Some(Effect::ReadMargin(id)) => Event::Margin(*id, Err(lost)),
            Some(Effect::Write(id, _)) => Event::Wrote(*id, RecordWritten::Unknown(lost)),
            Some(Effect::State(_) | Effect::Confirmed(_) | Effect::LookedLast(..) | Effect::Say(_)) => return,
        };
        self.answer(now, answer);
    }

    /// Reads the leases of kubelets: each node's name, and whether its machine is on.
    pub(crate) fn read_leases(&mut self, now: Mono, nodes: &[(String, bool)]) {
        for (name, on) in nodes {
            *self.beats.entry(name.clone()).or_default() ^= *on;
        }
        let version =
            |(name, beat): (&String, &bool)| (name.clone(), if *beat { "tick" } else { "tock" }.to_owned());
        self.pulses.take(now, self.beats.iter().map(version));
    }

    pub(crate) fn watch(&mut self, now: Mono, lease: Option<&RecordSnapshot>) {
        self.shown = Some(lease.map(|it| it.resource_version.clone()));
        self.hear(now, Event::Changed(lease.cloned().map(Box::new)));
    }

    /// For the fingerprint; without numbers of calls.
    pub(crate) fn shape(&self) -> impl std::fmt::Debug + '_ {
        // Which call it is, the turn knows.
        let write = self
            .call
            .as_ref()
            .and_then(|it| if let Effect::Write(_, order) = it { Some(order) } else { None });
        let text = self.carried.as_ref().map(|it| format!("{it:?}"));
        let carried = text.and_then(|it| it.split_once(',').map(|(_, result)| result.to_owned()));
        let levels = (&self.levels, self.failed, self.idle, &self.shown);
        (&self.turn, write, carried, &self.told, &self.waits, levels, &self.pulses)
    }
}
