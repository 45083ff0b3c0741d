//! What is published and in which order (`publish`): DrainJournal, NodeDrainProgress, NodeDrainStatus.
//!
//! Pure: no clock, no I/O, no task. Not here: what waits until another is on disk (`weight` in the shell).

use clusterview::leader::Candidacy;
use kubenodeop::node::START_THE_API;
use nodestatus::Membership;
use step::Mono;
use topics::{
    CordonOwner, DrainJournal, DrainPhase, DrainStatus, FORCE_FILE, NodeDrainProgress, NodeDrainStatus, Skip,
};

use super::answers::WORK;
use super::cleanup::cordoned;
use super::drain::{StateWords, words};
use super::facts::{Effect, Force};
use super::machine::Zedkube;
use super::records::kept_short;

impl Zedkube {
    /// The status of the run itself, whoever it is for.
    pub(super) fn run_status(&self) -> DrainStatus {
        match self.node.member {
            Membership::Undecided => self.drain.resumed().unwrap_or(DrainStatus::NotSupported),
            // Whoever asks is heard, and waits.
            Membership::Leaving
                if self.is_member() && self.drain.is_idle() && self.answers.open().next().is_some() =>
            {
                DrainStatus::Requested
            }
            Membership::Member | Membership::Leaving if self.is_member() => self.drain.status(),
            Membership::Member | Membership::Leaving | Membership::Outside => DrainStatus::NotSupported,
        }
    }

    fn status(&self) -> NodeDrainStatus {
        self.answers.status(self.run_status())
    }

    /// Publishes what differs from what was published: journal, candidacy, history, progress, status, in this order,
    /// before what is done.
    pub(super) fn publish(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let under_way = self.drain.status();
        if self.drain.is_active() && self.is_member() {
            self.answers.give(now, under_way, &Skip::default(), &self.node);
        }
        let mut first = Vec::new();
        self.published.journal(now, self.journal(), self.node.limits.marks_gap(), &mut first);
        self.published.candidacy(self.candidacy(), &mut first);
        let drain = (&self.drain, self.cleanup.cordon);
        let kept = self.history.keep(now, drain, &self.answers, &self.node);
        first.extend(kept.map(|it| Effect::History(Box::new(it))));
        let (progress, status) = (self.progress(), self.status());
        self.published.progress_and_status(
            now,
            progress,
            status,
            self.node.limits.progress_gap(),
            &mut first,
        );
        first.append(out);
        *out = first;
    }

    /// `None` while it is not known: then nobody is a candidate, and nothing is released either.
    fn candidacy(&self) -> Option<Candidacy> {
        let complete = |status| status == DrainStatus::Complete;
        if self.node.member == Membership::Leaving {
            return Some(Candidacy::Closed);
        }
        if complete(self.status().status) || complete(self.run_status()) || self.answers.any_complete() {
            return Some(Candidacy::Closed);
        }
        if self.drain.is_active() || self.cleanup.cordon == CordonOwner::Ours {
            return Some(Candidacy::Kept);
        }
        self.cleanup.knows_cordon().then_some(Candidacy::Open)
    }

    pub(super) fn progress(&self) -> NodeDrainProgress {
        let StateWords { phase, reason, next_step } = self.words();
        let drain = self.drain.progress(&self.answers, &self.node);
        let at_rest = || self.cleanup.after_boot.api_silent_since(&self.node);
        NodeDrainProgress {
            api_silent_since: if phase == DrainPhase::Idle { at_rest() } else { drain.api_silent_since },
            phase,
            status: self.status().status,
            max_attempts: self.node.limits.drain_tries,
            cordon: self.cleanup.cordon,
            reason,
            next_step,
            gate: self.cleanup.after_boot.shown(&self.node),
            repairs: self.cleanup.after_boot.repairs.counts(),
            pause: self.node.window.pause.clone().unwrap_or_default(),
            answers: self.answers.given.clone(),
            asked: self.answers.asked.clone(),
            boot_id: self.node.boot_id.clone(),
            booted_at: self.node.booted_at,
            ..drain
        }
    }

    /// Where we are, for the next start: not what a person has forced, which is in its own file.
    pub(super) fn journal(&self) -> DrainJournal {
        kept_short(DrainJournal {
            boot_id: self.node.boot_id.clone(),
            status: self.run_status(),
            known: self.node.known.clone(),
            cordon: self.cleanup.cordon,
            answers: self.answers.given.clone(),
            asked: self.answers.asked.clone(),
            booted_at: self.node.booted_at,
            repairs: self.cleanup.after_boot.repairs.counted(&self.node),
            ..self.drain.journal()
        })
    }

    fn words(&self) -> StateWords {
        let drain = self.drain.words(&self.answers, &self.node);
        let mut words = drain.unwrap_or_else(|| self.idle_words());
        if words.phase == DrainPhase::Complete
            && self.cleanup.cordon == CordonOwner::Foreign
            && words.next_step == WORK
        {
            let first = "work on the node; whoever has cordoned it ends that afterwards";
            words.next_step = format!("{first}: `kubectl uncordon {}`", self.node.name);
        }
        if words.phase == DrainPhase::WaitingForTurn && self.node.turn.is_back() {
            let gate = self.cleanup.after_boot.shown(&self.node);
            let warned = gate.warnings.into_iter().find(|it| !it.failed).map(|it| (it.words, it.next_step));
            let (what, next) = warned.unwrap_or((gate.words, gate.next_step));
            let reason = format!("its turn of before the boot ends once the node is well: {what}");
            (words.reason, words.next_step) = (reason, next);
        }
        let k3s = &self.node.k3s;
        if k3s.holds() {
            let failed = if k3s.failed { "has failed and " } else { "" };
            words.reason = format!("{}; the update of k3s {failed}{}", words.reason, k3s.what);
            words.next_step.clone_from(&k3s.next_step);
        }
        let is_idle = matches!(words.phase, DrainPhase::Idle | DrainPhase::Undecided);
        if let Some(pause) = self.node.window.pause.as_ref().filter(|_| is_idle) {
            pause.next_step().clone_into(&mut words.next_step);
        }
        match &self.answers.force {
            Force::Order(order) if order.status != DrainStatus::Complete => {
                words.phase = DrainPhase::Forced;
                words.reason =
                    format!("a person has forced {order} with the force file; without it: {}", words.reason);
                words.next_step = format!("remove {FORCE_FILE} to show the real status again");
            }
            Force::Absent | Force::Refused(_) | Force::Order(_) => {
                let trouble = self.answers.force_trouble();
                if !trouble.is_empty() {
                    words.next_step = trouble;
                }
            }
        }
        words
    }

    /// What a person reads while a whole-site operation holds it.
    fn site_words(&self) -> Option<StateWords> {
        let what = self.node.site.holds()?;
        Some(words(
            DrainPhase::WholeSite,
            format!("{what} holds this node: no drain begins, and its cordon stays"),
            "`zedbox site status` shows how far it is",
        ))
    }

    fn idle_words(&self) -> StateWords {
        let idle = |more: &str, next_step: &str| {
            words(DrainPhase::Idle, format!("no drain requested{more}"), next_step)
        };
        match self.node.member {
            // Whatever else is known: a cordon of ours that stays is shown with its cause.
            _ if self.cleanup.after_boot.earlier_cordon() == Some(true) => words(
                DrainPhase::AfterBoot,
                "the node is healthy after the boot; removing our cordon of the earlier boot",
                "",
            ),
            _ if self.cleanup.after_boot.earlier_cordon().is_some() => {
                let gate = self.cleanup.after_boot.shown(&self.node);
                let seen = if gate.words.is_empty() { "the first check is under way" } else { &gate.words };
                words(
                    DrainPhase::AfterBoot,
                    format!("keeps its own cordon of an earlier boot: {seen}"),
                    gate.next_step,
                )
            }
            Membership::Leaving if let Some(words) = self.site_words() => words,
            Membership::Leaving => words(
                DrainPhase::Leaving,
                "this node is leaving its cluster; requested drains wait until it has left",
                "read NodeLeave: it says how far that is, and what blocks it",
            ),
            Membership::Undecided => words(
                DrainPhase::Undecided,
                "whether this node is in a cluster is not known yet: zedagent has read no device config",
                "`zedbox setup` writes it; where a controller does, `journalctl -u zedbox -n 30` says what zedagent waits for",
            ),
            Membership::Member | Membership::Outside if self.cleanup.cordon == CordonOwner::Ours => words(
                DrainPhase::Withdrawing,
                format!("removing its own cordon: {}", self.cleanup.trouble),
                "if this stays: look at `kubectl describe node` of this node",
            ),
            Membership::Member if !self.cleanup.after_boot.api_silent_since(&self.node).is_zero() => {
                idle("", START_THE_API)
            }
            Membership::Member if !self.cleanup.trouble.is_empty() => {
                idle(&format!("; the node cannot be read: {}", self.cleanup.trouble), START_THE_API)
            }
            Membership::Member if let Some((why, next)) = self.cleanup.leftovers_trouble() => idle(
                &format!("; not all is as it was before this node went down or was drained: {why}"),
                next,
            ),
            Membership::Member | Membership::Outside if cordoned(self.cleanup.cordon) => {
                idle("", &format!("if that cordon is yours: `kubectl uncordon {}`", self.node.name))
            }
            Membership::Member if let Some(order) = self.node.site.queue() => idle(
                &format!("; the site restarts, {order}: this node goes when its place comes"),
                "`zedbox site status` shows how far it is",
            ),
            Membership::Member if let Some(failed) = self.history.failed_before(&self.node.boot_id) => idle(
                &format!(" now; {failed}"),
                "an operation that still waits for its drain requests it again by itself; `zedbox history` shows what \
                 failed",
            ),
            Membership::Member => match self.cleanup.after_boot.warning() {
                Some(it) => idle(&format!("; since the boot: {}", it.words), &it.next_step),
                None => idle("", ""),
            },
            Membership::Outside => words(
                DrainPhase::Idle,
                "the device config names no cluster, so there is nothing to drain; for a node in a cluster its cluster section \
                 is missing in persist/config/edge-dev-config.json",
                "",
            ),
        }
    }
}
