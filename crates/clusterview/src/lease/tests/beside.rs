//! Our candidates beside one that runs client-go, on a network that delays, cuts and refuses, with clocks
//! that jump and drift, and suspended processes of ours: never two leaders at one instant.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use step::{Core as _, Mono, WriteOutcome};

use super::super::{Effect, Election, ElectionTimes, Event};
use super::rival::{Reply, Request, Rival};

const STEPS: u32 = 10_000;
type At = u64;
const SECOND: At = 1_000_000;
const CALL_LIMIT: [At; 2] = [10 * SECOND, 30 * SECOND];
/// Parts in a million by which a monotonic clock may be fast or slow.
const DRIFT: i64 = 500;

/// Random numbers from a seed.
struct Dice(step::Dice);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0.draw() % below
    }

    fn one_in(&mut self, all: u64) -> bool {
        self.roll(all) == 0
    }
}

#[expect(clippy::large_enum_variant, reason = "three of them in a test")]
enum Kind {
    Ours(Election),
    Rival(Rival),
}

struct Candidate {
    kind: Kind,
    /// Its monotonic clock at the start, and its drift.
    mono: (At, i64),
    wall_off_secs: i64,
    stopped: At,
    cut: At,
    wanted: bool,
    calls: u64,
    /// The call under way, and whether it is a write.
    waits: Option<(u64, bool)>,
}

impl Candidate {
    fn now(&self, at: At) -> Mono {
        let (offset, drift) = self.mono;
        let rate = u64::try_from(1_000_000 + drift).unwrap();
        Mono::from_start(Duration::from_micros(
            offset + at / 1_000_000 * rate + at % 1_000_000 * rate / 1_000_000,
        ))
    }

    fn wall(&self, at: At) -> Timestamp {
        let true_secs = 1_773_480_000 + i64::try_from(at / SECOND).unwrap();
        let nanos = i32::try_from(at % SECOND * 1_000).unwrap();
        Timestamp::new(true_secs + self.wall_off_secs, nanos).unwrap()
    }

    fn leads(&self, at: At) -> bool {
        match &self.kind {
            Kind::Ours(election) => election.leads(self.now(at)),
            Kind::Rival(rival) => rival.leads(),
        }
    }

    fn wake(&self, at: At) -> Option<At> {
        let due = match &self.kind {
            Kind::Ours(election) => election.next_wake(),
            Kind::Rival(rival) => rival.next_wake(),
        }?;
        let wait = u64::try_from(due.since(self.now(at)).as_nanos().div_ceil(1_000)).unwrap();
        Some((at + wait).max(self.stopped))
    }
}

enum Occurrence {
    Arrives(usize, u64, Request),
    /// Or the call has come to its limit.
    Answers(usize, u64, Reply),
    Mischief,
}

struct World {
    seed: u64,
    dice: Dice,
    at: At,
    lease: Option<Lease>,
    version: u64,
    candidates: Vec<Candidate>,
    /// By time, and in the order in which they were put in.
    queue: BTreeMap<(At, u64), Occurrence>,
    nth: u64,
    calm: bool,
    /// How often each became the leader, and true time with a leader.
    reigns: Vec<u32>,
    led: Vec<bool>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(step::Dice::new(seed));
        let kinds = [
            Kind::Ours(Election::new(ElectionTimes::default(), "n1", dice.roll(u64::MAX))),
            Kind::Ours(Election::new(ElectionTimes::default(), "n2", dice.roll(u64::MAX))),
            Kind::Rival(Rival::new("go", dice.roll(u64::MAX))),
        ];
        let candidates = kinds.map(|kind| Candidate {
            kind,
            mono: (dice.roll(1_000_000 * SECOND), i64::try_from(dice.roll(2 * 500)).unwrap() - DRIFT),
            wall_off_secs: 0,
            stopped: 0,
            cut: 0,
            wanted: true,
            calls: 0,
            waits: None,
        });
        let mut world = Self {
            seed,
            dice,
            at: 0,
            lease: None,
            version: 0,
            candidates: candidates.into(),
            queue: BTreeMap::new(),
            nth: 0,
            calm: false,
            reigns: vec![0; 3],
            led: vec![false; 3],
        };
        for who in 0..3 {
            world.want(who, true);
        }
        world.put(SECOND, Occurrence::Mischief);
        world
    }

    fn put(&mut self, wait: At, what: Occurrence) {
        self.nth += 1;
        self.queue.insert((self.at + wait, self.nth), what);
    }

    fn step(&mut self) {
        let wakes = (0..3).filter_map(|who| Some((self.candidates[who].wake(self.at)?.max(self.at), who)));
        let wake = wakes.min();
        let next = self.queue.first_entry().expect("mischief goes on");
        match wake {
            Some((at, who)) if at <= next.key().0 => {
                self.at = at;
                self.hear(who, Event::Tick);
            }
            _ => {
                self.at = next.key().0;
                let what = next.remove();
                self.happen(what);
            }
        }
        let leaders: Vec<usize> = (0..3).filter(|who| self.candidates[*who].leads(self.at)).collect();
        assert!(
            leaders.len() < 2,
            "seed {}: {leaders:?} lead at {} us: {:?}",
            self.seed,
            self.at,
            self.lease
        );
        for who in 0..3 {
            let leads = leaders.contains(&who);
            self.reigns[who] += u32::from(leads && !self.led[who]);
            self.led[who] = leads;
        }
    }

    fn happen(&mut self, what: Occurrence) {
        match what {
            Occurrence::Arrives(who, call, request) => {
                let reply = self.serve(request);
                let lost = !self.calm && (self.at < self.candidates[who].cut || self.dice.one_in(20));
                if !lost {
                    let delay = self.delay();
                    self.put(delay, Occurrence::Answers(who, call, reply));
                }
            }
            Occurrence::Answers(who, ..) if self.at < self.candidates[who].stopped => {
                self.put(self.candidates[who].stopped - self.at, what);
            }
            Occurrence::Answers(who, call, reply) => self.answer(who, call, reply),
            Occurrence::Mischief => {
                let wait = self.dice.roll(120 * SECOND);
                self.put(wait, Occurrence::Mischief);
                if !self.calm {
                    self.mischief();
                }
            }
        }
    }

    fn mischief(&mut self) {
        let who = usize::try_from(self.dice.roll(3)).unwrap();
        let (long, jump) =
            (self.dice.roll(700 * SECOND), i64::try_from(self.dice.roll(7_201)).unwrap() - 3_600);
        match self.dice.roll(6) {
            0 | 1 => self.candidates[who].wall_off_secs = jump,
            2 => self.candidates[who].cut = self.at + long,
            // A process of client-go's that stood still would lead on without a look at the clock.
            3 if matches!(self.candidates[who].kind, Kind::Ours(_)) => {
                self.candidates[who].stopped = self.at + long;
            }
            4 if self.at >= self.candidates[who].stopped => {
                let wanted = !self.candidates[who].wanted;
                self.want(who, wanted);
            }
            _ => {}
        }
    }

    fn delay(&mut self) -> At {
        match self.dice.roll(if self.calm { 1 } else { 12 }) {
            0..=7 => self.dice.roll(SECOND / 10),
            8..=10 => self.dice.roll(12 * SECOND),
            _ => self.dice.roll(400 * SECOND),
        }
    }

    fn serve(&mut self, request: Request) -> Reply {
        if !self.calm && self.dice.one_in(15) {
            return if self.dice.one_in(2) { Reply::Conflict } else { Reply::Trouble };
        }
        let mut new = match (request, &self.lease) {
            (Request::Get | Request::Update(_), None) => return Reply::NotFound,
            (Request::Get, Some(lease)) => return Reply::Lease(Box::new(lease.clone())),
            (Request::Create(_), Some(_)) => return Reply::Conflict,
            (Request::Create(new), None) => new,
            (Request::Update(new), Some(old)) => {
                if new.metadata.resource_version != old.metadata.resource_version {
                    return Reply::Conflict;
                }
                new
            }
        };
        self.version += 1;
        new.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some((*new).clone());
        Reply::Lease(new)
    }

    fn want(&mut self, who: usize, wanted: bool) {
        self.candidates[who].wanted = wanted;
        let now = self.candidates[who].now(self.at);
        match &mut self.candidates[who].kind {
            Kind::Ours(_) => self.hear(who, Event::Wanted(wanted)),
            Kind::Rival(rival) => {
                let request = rival.want(now, wanted);
                self.send(who, request);
            }
        }
    }

    /// An event for our candidate; for the other only that time has passed.
    fn hear(&mut self, who: usize, event: Event) {
        let candidate = &mut self.candidates[who];
        let (now, wall) = (candidate.now(self.at), candidate.wall(self.at));
        match &mut candidate.kind {
            Kind::Ours(election) => {
                for effect in election.step(now, event) {
                    match effect {
                        Effect::Read(_) => self.send(who, Some(Request::Get)),
                        Effect::Write(_, order) => {
                            let object = Box::new(order.object(wall));
                            let create = order.on.is_none();
                            let request =
                                if create { Request::Create(object) } else { Request::Update(object) };
                            self.send(who, Some(request));
                        }
                        Effect::Say(_) => {}
                    }
                }
            }
            Kind::Rival(rival) => {
                let request = rival.wake(now, wall);
                self.send(who, request);
            }
        }
    }

    fn send(&mut self, who: usize, request: Option<Request>) {
        let Some(request) = request else { return };
        let candidate = &mut self.candidates[who];
        candidate.calls += 1;
        let call = candidate.calls;
        candidate.waits = Some((call, !matches!(request, Request::Get)));
        let limit = CALL_LIMIT[usize::from(matches!(candidate.kind, Kind::Rival(_)))];
        let lost = !self.calm && (self.at < candidate.cut || self.dice.one_in(20));
        self.put(limit, Occurrence::Answers(who, call, Reply::Trouble));
        if !lost {
            let delay = self.delay();
            self.put(delay, Occurrence::Arrives(who, call, request));
        }
    }

    fn answer(&mut self, who: usize, call: u64, reply: Reply) {
        let candidate = &mut self.candidates[who];
        let Some((_, write)) = candidate.waits.take_if(|(waited, _)| *waited == call) else { return };
        let (now, wall) = (candidate.now(self.at), candidate.wall(self.at));
        match &mut candidate.kind {
            Kind::Rival(rival) => {
                let request = rival.hear(now, wall, reply);
                self.send(who, request);
            }
            Kind::Ours(_) => {
                let event = match (write, reply) {
                    (true, Reply::Lease(lease)) => Event::Wrote(call, WriteOutcome::Done(lease)),
                    (true, Reply::Conflict | Reply::NotFound) => Event::Wrote(call, WriteOutcome::Outdated),
                    (true, Reply::Trouble) => Event::Wrote(call, WriteOutcome::Unknown("trouble".to_owned())),
                    (false, Reply::Lease(lease)) => Event::Read(call, Ok(Some(lease))),
                    (false, Reply::NotFound) => Event::Read(call, Ok(None)),
                    (false, Reply::Conflict | Reply::Trouble) => Event::Read(call, Err("trouble".to_owned())),
                };
                self.hear(who, event);
            }
        }
    }

    /// The network works, every candidate runs and wants to lead, and has the time of a lease.
    fn calm_down(&mut self) {
        self.calm = true;
        for who in 0..3 {
            self.candidates[who].stopped = 0;
            if !self.candidates[who].wanted {
                self.want(who, true);
            }
        }
        // What is under way still has its delay, then the longest lease, a pause, and a second call.
        let end = self.at + (400 + 300 + 2 * 33 + 60) * SECOND;
        while self.at < end {
            self.step();
        }
    }
}

#[test]
fn l1_l3_two_never_lead_at_once_beside_client_go_whatever_happens() {
    let mut reigns = [0; 3];
    for seed in 0..40 {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.calm_down();
        assert!(world.led.contains(&true), "seed {seed}: nobody leads although nothing is wrong");
        for (sum, count) in reigns.iter_mut().zip(&world.reigns) {
            *sum += count;
        }
    }
    assert!(
        reigns.iter().all(|count| *count > 400),
        "a candidate that never leads proves nothing: {reigns:?}"
    );
}
