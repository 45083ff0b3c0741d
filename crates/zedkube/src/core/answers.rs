//! Who asks for a drain, what the force file orders, what each requester is answered, and which status is shown to whom.
//!
//! COMPLETE ends with its request, when the drained node changes, and with age. Not here: the drain itself, and the
//! Node object. Pure: no clock, no I/O, no task.

use step::{Fault, LiteMap, Mono, SmallSort as _, planted};
use topics::{
    Answer, Asked, DrainStatus, FORCE_FILE, GoTime, NodeDrainRequest, NodeDrainStatus, RequestId, Requester,
    Skip, SkipKind,
};

use super::context::NodeContext;
use super::facts::Force;
use crate::limits::{ANSWER_DWELL, COMPLETE_AGE};

/// What a person does on a node that was drained for them.
pub(super) const WORK: &str = "work on the node; it takes pods again after `zedbox undrain`";

/// Requests, force file and answers.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Answers {
    pub(super) requests: LiteMap<Requester, NodeDrainRequest>,
    /// Whose topics have been read.
    pub(super) read: Vec<Requester>,
    /// When each request was made.
    pub(super) asked: Vec<Asked>,
    pub(super) force: Force,
    pub(super) given: Vec<Answer>,
    /// When COMPLETE was given last; after a start in the same boot, that start.
    complete_at: Option<Mono>,
    /// When the second of two answered requesters is named.
    second_from: Option<Mono>,
    pub(super) second: bool,
}

/// COMPLETE after a drain, not after a skip.
pub(crate) fn is_drained(answer: &Answer) -> bool {
    answer.status == DrainStatus::Complete && answer.skip.is_empty()
}

/// An operation that acts on COMPLETE; a person, and an update of k3s, have the node for as long as it takes.
pub(crate) fn is_operation(answer: &Answer) -> bool {
    Answers::OPERATIONS.contains(&answer.requested_by)
}

pub(super) fn is_complete(answer: &Answer) -> bool {
    answer.status == DrainStatus::Complete
}

impl Answers {
    /// Who may ask, in the order in which they are named.
    pub(super) const REQUESTERS: [Requester; 5] = [
        Requester::DeviceOp,
        Requester::Update,
        Requester::Operator,
        Requester::K3sUpdate,
        Requester::NodeMaintenance,
    ];
    /// Those of them that take the machine down, and that agents of the reference know.
    pub(super) const OPERATIONS: [Requester; 2] = [Requester::DeviceOp, Requester::Update];

    /// After a start: with what an earlier run in the same boot was asked and had answered, if there was one.
    pub(crate) fn new(now: Mono, same_boot: Option<(Vec<Answer>, Vec<Asked>)>) -> Self {
        let second = same_boot.is_some();
        let (given, asked) = same_boot.unwrap_or_default();
        Self { asked, given, complete_at: second.then_some(now), second, ..Self::default() }
    }

    /// Hears a request, or that there is none.
    pub(crate) fn request(
        &mut self,
        now: Mono,
        from: Requester,
        request: Option<NodeDrainRequest>,
        node: &NodeContext,
    ) {
        match request {
            Some(request) => {
                self.keep_asked(now, &request, node);
                self.requests.insert(from, request);
            }
            None if planted(Fault::K6) => {}
            None => {
                self.requests.remove(&from);
            }
        }
    }

    /// Keeps when a request was made: as it says itself where that can be, else when it was first heard of.
    fn keep_asked(&mut self, now: Mono, request: &NodeDrainRequest, node: &NodeContext) {
        if self.asked.iter().any(|it| it.id() == request.id()) {
            return;
        }
        let heard = node.wall(now);
        let said = request.requested_at;
        let at = if (node.booted_at..=heard).contains(&said) { said } else { heard };
        let (requested_by, requested_at) = (request.requested_by, said);
        self.asked.push(Asked { requested_by, requested_at, at });
        self.asked.order_by_key(Asked::id);
    }

    /// The topic of this requester has been read once.
    pub(crate) fn topic_read(&mut self, from: Requester) {
        if !self.read.contains(&from) {
            self.read.push(from);
        }
    }

    /// A person has this node count as one in no cluster.
    pub(crate) fn forced_out(&self) -> bool {
        matches!(self.force, Force::Order(order) if order.status == DrainStatus::NotSupported)
    }

    /// The wall clock was set: what was written by the one before moves with it.
    pub(crate) fn set_clock(&mut self, before: GoTime, booted_at: GoTime) {
        let given = self.given.iter_mut().map(|it| &mut it.at);
        for at in self.asked.iter_mut().map(|it| &mut it.at).chain(given) {
            *at = at.moved(before, booted_at);
        }
    }

    pub(crate) fn knows_requests(&self) -> bool {
        self.read.len() == Self::REQUESTERS.len()
    }

    /// The requests that exist, in the order of [`Self::REQUESTERS`].
    pub(crate) fn requests(&self) -> impl Iterator<Item = &NodeDrainRequest> {
        self.requests.values()
    }

    pub(crate) fn request_of(&self, who: Requester) -> Option<&NodeDrainRequest> {
        self.requests.get(&who)
    }

    /// It is known that nobody asks.
    pub(crate) fn all_withdrawn(&self) -> bool {
        self.knows_requests() && self.requests.is_empty()
    }

    /// The requests that have no final answer yet.
    pub(crate) fn open(&self) -> impl Iterator<Item = &NodeDrainRequest> {
        self.requests().filter(|it| self.final_answer(it.id()).is_none())
    }

    /// Whether somebody goes ahead without a drain at last. A NodeMaintenance waits for its drain alone.
    pub(crate) fn may_go_without(&self) -> bool {
        self.open().any(|it| it.requested_by != Requester::NodeMaintenance)
    }

    pub(crate) fn final_answer(&self, id: RequestId) -> Option<&Answer> {
        self.given.iter().find(|answer| answer.id() == id && answer.status.is_final())
    }

    fn finals(&self) -> impl Iterator<Item = DrainStatus> {
        self.requests().filter_map(|it| self.final_answer(it.id())).map(|it| it.status)
    }

    /// The best final answer to a request that exists.
    pub(crate) fn best_final(&self) -> Option<DrainStatus> {
        self.finals().max_by_key(|status| *status == DrainStatus::Complete)
    }

    /// Whether this is the final answer to a request that exists.
    pub(crate) fn holds(&self, status: DrainStatus) -> bool {
        self.finals().any(|it| it == status)
    }

    pub(crate) fn any_complete(&self) -> bool {
        self.given.iter().any(is_complete)
    }

    /// Gives every request without a final answer this one.
    pub(crate) fn give(&mut self, now: Mono, status: DrainStatus, skip: &Skip, node: &NodeContext) {
        let mut open: Vec<NodeDrainRequest> = self.open().cloned().collect();
        if planted(Fault::X1) {
            // Whoever comes first, even when that one has its answer.
            open.retain(|it| self.requests.values().next() == Some(it));
        }
        for request in open {
            self.give_one(now, &request, status, skip, node);
        }
    }

    fn give_one(
        &mut self,
        now: Mono,
        request: &NodeDrainRequest,
        status: DrainStatus,
        skip: &Skip,
        node: &NodeContext,
    ) {
        let known = self.given.iter().find(|it| it.id() == request.id());
        if known.is_some_and(|it| it.status == status && it.skip == skip.text) {
            return;
        }
        self.given.retain(|it| it.id() != request.id());
        if status == DrainStatus::Complete {
            self.complete_at = Some(now);
        }
        self.given.push(Answer {
            requested_by: request.requested_by,
            requested_at: request.requested_at,
            context: request.context.clone(),
            status,
            skip: skip.text.clone(),
            skip_kind: skip.kind,
            at: node.wall(now),
        });
        self.given.order_by_key(Answer::id);
    }

    /// Answers the open request of `who` alone with COMPLETE without a drain, for this reason; says whether there was one.
    pub(crate) fn skip_for(&mut self, now: Mono, who: Requester, skip: &str, node: &NodeContext) -> bool {
        let Some(request) = self.open().find(|it| it.requested_by == who).cloned() else { return false };
        self.give_one(now, &request, DrainStatus::Complete, &Skip::other(skip), node);
        true
    }

    /// A forced COMPLETE answers the request that it names. Returns the order and the words of its answer, if it does.
    pub(crate) fn give_forced(&mut self, now: Mono, node: &NodeContext) -> Option<(NodeDrainStatus, Skip)> {
        let Force::Order(order) = self.force else { return None };
        let request = self.request_of(order.requested_by)?.clone();
        let forced = self.final_answer(request.id()).is_some_and(|it| is_complete(it) && !is_drained(it));
        if order.status != DrainStatus::Complete || forced {
            return None;
        }
        let skip = Skip { kind: SkipKind::Forced, text: format!("forced {order} by the force file") };
        self.give_one(now, &request, DrainStatus::Complete, &skip, node);
        Some((order, skip))
    }

    /// A drain begins for whoever has no final answer.
    pub(crate) fn drain_begins(&mut self) {
        self.forget_under_way();
        self.second = false;
        self.second_from = None;
    }

    /// Keeps final answers alone.
    pub(crate) fn forget_under_way(&mut self) {
        self.given.retain(|it| it.status.is_final());
    }

    /// Forgets answers to requests that no longer exist, and when they were made.
    pub(crate) fn forget_withdrawn(&mut self) {
        if self.knows_requests() {
            let exists = |id: RequestId| self.requests.values().any(|it| it.id() == id);
            self.asked.retain(|asked| exists(asked.id()));
            self.given.retain(|answer| exists(answer.id()));
        }
    }

    /// Forgets these answers: what they say is no longer so.
    pub(crate) fn void(&mut self, which: impl Fn(&Answer) -> bool) {
        self.given.retain(|it| !which(it));
    }

    /// With both requests complete, each requester is named for a while: a Go reader looks for its own number.
    pub(crate) fn name_second(&mut self, now: Mono, drain: DrainStatus) {
        let complete = drain == DrainStatus::Complete
            && self.completed(Requester::DeviceOp)
            && self.completed(Requester::Update);
        if !complete {
            self.second_from = None;
        } else if !self.second {
            let from = *self.second_from.get_or_insert(now + ANSWER_DWELL);
            if now >= from {
                self.second = true;
                self.second_from = None;
            }
        }
    }

    /// When the second of two answered requesters is named.
    pub(crate) fn due(&self) -> Option<Mono> {
        self.second_from
    }

    /// When COMPLETE of operations that have not acted on it is too old.
    pub(crate) fn expires(&self) -> Option<Mono> {
        let aging = |it: &Answer| is_complete(it) && is_operation(it);
        self.complete_at.filter(|_| self.given.iter().any(aging)).map(|at| at + COMPLETE_AGE)
    }
}

/// Which status is shown, and to which requester it belongs.
impl Answers {
    /// Whether this requester waits for an answer. Until its topic is read, it does if it did before this agent
    /// restarted.
    fn asks(&self, who: Requester) -> bool {
        let answered = || self.given.iter().any(|it| it.requested_by == who);
        self.requests.contains_key(&who) || (!self.read.contains(&who) && answered())
    }

    /// Whether this requester's own answer is COMPLETE: no other requester is shown that.
    pub(crate) fn completed(&self, who: Requester) -> bool {
        self.asks(who) && self.given.iter().any(|it| it.requested_by == who && is_complete(it))
    }

    fn is_answered(&self, who: Requester) -> bool {
        self.given.iter().any(|it| it.requested_by == who && it.status.is_final())
    }

    /// The status of the drain, for the requester that comes first.
    fn own_status(&self, status: DrainStatus) -> NodeDrainStatus {
        let first_that = |is: &dyn Fn(Requester) -> bool| Self::REQUESTERS.into_iter().find(|who| is(*who));
        let first = first_that(&|who| self.asks(who)).unwrap_or(Requester::None);
        // Who has its answer is not named as waiting.
        let open = first_that(&|who| self.asks(who) && !self.is_answered(who)).unwrap_or(first);
        if let Some(failed) = self.failed_beside_a_person(status) {
            return failed;
        }
        let requested_by = match status {
            DrainStatus::NotSupported | DrainStatus::NotRequested => Requester::None,
            DrainStatus::Complete if self.second && self.completed(Requester::Update) => Requester::Update,
            DrainStatus::Complete => first_that(&|who| self.completed(who)).unwrap_or(first),
            DrainStatus::Requested
            | DrainStatus::Starting
            | DrainStatus::Cordoned
            | DrainStatus::DrainRetrying => open,
            DrainStatus::Unknown
            | DrainStatus::FailedCordon
            | DrainStatus::FailedDrain
            | DrainStatus::Stranger(_) => first,
        };
        NodeDrainStatus { status, requested_by }
    }

    /// An agent of the reference reads nothing but the status: while COMPLETE is that of a person or of an update of
    /// k3s alone, the failure of an operation that waits is what has to be seen. The others read it in the answers.
    fn failed_beside_a_person(&self, status: DrainStatus) -> Option<NodeDrainStatus> {
        let operations = Self::OPERATIONS;
        if status != DrainStatus::Complete || operations.into_iter().any(|who| self.completed(who)) {
            return None;
        }
        let failed = |who: Requester| {
            let said = self.given.iter().find(|it| it.requested_by == who && it.status.is_failure())?;
            self.asks(who).then_some(NodeDrainStatus { status: said.status, requested_by: who })
        };
        operations.into_iter().find_map(failed)
    }

    /// The status that is shown: the forced one, or that of the drain.
    pub(crate) fn status(&self, drain: DrainStatus) -> NodeDrainStatus {
        match self.force {
            Force::Order(_) if planted(Fault::K14) => self.own_status(drain),
            // COMPLETE is shown for the requester that it names, if that one waits.
            Force::Order(order) if order.status == DrainStatus::Complete => {
                if self.requests.contains_key(&order.requested_by) { order } else { self.own_status(drain) }
            }
            Force::Order(order) => order,
            Force::Absent | Force::Refused(_) => self.own_status(drain),
        }
    }
}

/// What a person reads of requests, answers and the force file.
impl Answers {
    /// The request that is shown: the one that is served while it exists, else another one that does.
    pub(crate) fn shown(&self, served: Option<&NodeDrainRequest>) -> NodeDrainRequest {
        let exists = |it: &&NodeDrainRequest| {
            !self.knows_requests() || self.requests().any(|known| known.id() == it.id())
        };
        served
            .filter(exists)
            .or_else(|| self.open().next())
            .or_else(|| self.requests().next())
            .cloned()
            .unwrap_or_default()
    }

    /// Nobody waits but people, with a shell or by an object of the API: the first of them.
    fn only_people_wait(&self) -> Option<Requester> {
        self.requests.keys().next().copied().filter(|_| self.requests.keys().all(|who| who.only_drains()))
    }

    /// What comes after COMPLETE, under our cordon.
    pub(crate) fn after_complete(&self) -> &'static str {
        match (self.only_people_wait(), self.given.iter().any(|it| !it.skip.is_empty())) {
            (None, _) => "",
            (Some(Requester::NodeMaintenance), false) => {
                "work on the node; it takes pods again once its NodeMaintenance is deleted: `kubectl get nodemaintenances`"
            }
            (Some(Requester::NodeMaintenance), true) => {
                "NOT drained, pods may still run here: remove the cause, then delete its NodeMaintenance and create it again"
            }
            (Some(_), true) => {
                "NOT drained, pods may still run here: remove the cause, then `zedbox undrain` and \
                 `zedbox drain --reason TEXT` again"
            }
            (Some(_), false) => WORK,
        }
    }

    pub(crate) fn after_failure(&self) -> &'static str {
        match self.only_people_wait() {
            Some(Requester::NodeMaintenance) => {
                "then delete its NodeMaintenance, and create it again to try again"
            }
            Some(_) => "then ask again with `zedbox drain --reason TEXT`, or give up with `zedbox undrain`",
            None => "then it is tried again; without a drain: `zedbox go --past drain --reason '...'`",
        }
    }

    /// Why the force file does nothing, and what to do about it; empty when it does what it says.
    pub(crate) fn force_trouble(&self) -> String {
        match &self.force {
            Force::Refused(why) => format!("force file refused: {why}; correct or remove {FORCE_FILE}"),
            Force::Order(order)
                if order.status == DrainStatus::Complete && self.request_of(order.requested_by).is_none() =>
            {
                let update = order.requested_by == Requester::Update;
                let who = if update { "no update" } else { "no reboot or shutdown" };
                format!("the force file says {order}, but {who} waits; correct or remove {FORCE_FILE}")
            }
            Force::Order(_) | Force::Absent => String::new(),
        }
    }

    /// What comes of the force file as things are, in words for the history.
    pub(crate) fn effect_of_force(&self) -> String {
        match &self.force {
            Force::Absent => String::new(),
            Force::Refused(why) => format!("refused: {why}"),
            Force::Order(order) if order.status == DrainStatus::Complete => {
                match self.request_of(order.requested_by).map(|it| self.final_answer(it.id())) {
                    None => "no effect: no such request is pending".to_owned(),
                    Some(Some(answer)) if answer.status == DrainStatus::Complete => {
                        "released nothing: that request was answered already".to_owned()
                    }
                    Some(_) => "waits for this node to be known as a member of a cluster".to_owned(),
                }
            }
            Force::Order(order) if order.status == DrainStatus::NotSupported => {
                "drains are skipped while the file exists, as on a node in no cluster".to_owned()
            }
            Force::Order(order) => format!("{order} is shown while the file exists"),
        }
    }
}

/// What the turn of this node has to know of them.
impl Answers {
    /// Only an update of k3s waits, and it needs a turn alone.
    pub(super) fn needs_turn_alone(&self) -> bool {
        self.open().next().is_some() && self.open().all(NodeDrainRequest::is_turn_alone)
    }

    /// The update of k3s that was let go ahead: the turn is its own until it takes its request back.
    pub(super) fn keeps_turn(&self) -> Option<&NodeDrainRequest> {
        let given = |it: &&NodeDrainRequest| {
            self.final_answer(it.id()).is_some_and(|it| it.status == DrainStatus::Complete)
        };
        self.request_of(Requester::K3sUpdate).filter(given)
    }
}
