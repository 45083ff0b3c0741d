//! What is said about the pods of an attempt as a whole, and when time alone changes it.
//!
//! Not here: the sentence about one pod (`sentence`). Sources: goals D13, D15, O1, O2.
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;
use std::time::Duration;

use step::{Inserted as _, Mono};

use super::pod_table::PodTable;
use super::sentence;
use super::track::{PodState, PodTrack, RemovalCall, SecondCopy};
use crate::calls::volumes::ClaimName;
use crate::changes::watched::{PermanentRefusal, RefusedCall};
use crate::plan::PodFacts;
use crate::progress::{AttemptBlocker, Left, Marks};
use kubeapi::names::{PodUid, listed};
use kubeapi::reply::Reply;

/// From then on a pod that is still there is worth a mark.
const MARKED_AFTER: Duration = Duration::from_secs(30);
const MARKED: usize = 64;

impl PodTable {
    /// When [`PodTable::ask_due`] or [`PodTable::inspect`] has something to do, as far as time decides it.
    pub(super) fn next_due(&self, now: Mono) -> Option<Mono> {
        let due = self.book.next_due().filter(|_| self.book.asking < self.rules.at_once);
        let more = self.marked(now).count() < MARKED;
        let mark = self.book.next_asked_for(now, MARKED_AFTER).filter(|_| more);
        let all = [due, mark, self.spaces.next_due(), self.next_limit(now)];
        all.into_iter().flatten().min()
    }

    /// What holds the pods: the worst first, then by their names.
    pub(super) fn blockers(&self, now: Mono) -> Vec<AttemptBlocker> {
        let of = |track: &PodTrack| {
            let returns = self.returns.count(&track.facts);
            let silent = self.silent.as_ref();
            sentence::blocker(
                now,
                track,
                (&self.spaces, &self.needs, silent),
                returns,
                (&self.rules, &self.given_up_at),
            )
        };
        let mut all: Vec<AttemptBlocker> = self.book.all().filter_map(|(_, it)| of(it)).collect();
        all.sort_by(|one, other| (one.code.rank(), &one.subject).cmp(&(other.code.rank(), &other.subject)));
        all
    }

    /// Why the attempt fails on pods that are still there, if it does.
    pub(super) fn failure(&self) -> Option<String> {
        if self.book.only_refused() {
            let mut names: Vec<String> =
                self.book.in_state(&PodState::Ended).map(|it| it.facts.pod.to_string()).collect();
            names.sort_unstable();
            return Some(format!("the API server refuses to evict {}", listed(&names, ", ")));
        }
        self.given_up.clone()
    }

    /// The calls that the server refused for good.
    pub(super) fn refused_calls(&self) -> Vec<PermanentRefusal> {
        let of = |track: &PodTrack| {
            let refusal = track.refusal.as_ref()?;
            let Reply::Permanent { by, .. } = refusal.reply else { return None };
            let pod = track.facts.pod.clone();
            let call = match refusal.way {
                RemovalCall::Evict => RefusedCall::Evict(pod),
                RemovalCall::Remove => RefusedCall::Remove(track.facts.guarded()),
                RemovalCall::Delete => RefusedCall::Delete(pod),
            };
            Some(PermanentRefusal { call, by })
        };
        self.book.in_state(&PodState::Ended).filter_map(of).collect()
    }

    /// The facts about a pod that is known.
    pub(super) fn facts(&self, uid: &PodUid) -> Option<&PodFacts> {
        self.book.get(uid).map(|track| &track.facts)
    }

    /// Names of the pods that are to leave and are not gone.
    pub(super) fn left_names(&self) -> Vec<String> {
        let here = self.book.all().filter(|(_, track)| track.is_here());
        let mut names: Vec<String> = here.map(|(_, track)| track.facts.pod.to_string()).collect();
        names.sort_unstable();
        names
    }

    /// What a rule lets stay, or had deleted.
    pub(super) fn left(&self) -> Vec<Left> {
        let stay = self.book.in_state(&PodState::Left).map(|track| Left {
            what: track.facts.pod.to_string(),
            why: format!("it stays: {}", self.why_left(track)),
        });
        let objects = self.book.in_state(&PodState::ObjectOnly).map(|track| Left {
            what: track.facts.pod.to_string(),
            why: "no container of it runs, by the container runtime; its object is still there, past its grace period"
                .to_owned(),
        });
        let gone = self.book.all().filter(|(_, track)| !track.is_on_node());
        let without = gone.filter_map(|(_, track)| {
            let SecondCopy::Without(why) = &track.copy else { return None };
            let why = format!("it left without a second copy elsewhere: {why}");
            Some(Left { what: track.facts.pod.to_string(), why })
        });
        let deleted = self.deleted.iter().cloned();
        let mut all: Vec<Left> = deleted.chain(stay).chain(objects).chain(without).collect();
        all.sort_unstable();
        all
    }

    /// The claims of pods that are gone, without those that a pod uses which stays.
    pub(super) fn owed(&self) -> BTreeSet<ClaimName> {
        if self.book.claims.is_empty() {
            return BTreeSet::new();
        }
        let mut owed = self.book.claims.clone();
        for claim in self.stays.values().flatten() {
            owed.remove(claim);
        }
        for track in self.book.in_state(&PodState::Left) {
            for claim in &track.facts.claims {
                owed.remove(&(track.facts.pod.namespace.clone(), claim.clone()));
            }
        }
        owed
    }

    /// The pods that are worth a mark, with the time since when they are being asked to leave.
    fn marked(&self, now: Mono) -> impl Iterator<Item = &(Mono, PodUid)> {
        let before = Mono::from_start(now.since_start().saturating_sub(MARKED_AFTER));
        self.book.asked_before(before).take(MARKED)
    }

    /// What a restart must not forget about the pods.
    pub(super) fn marks(&self, now: Mono) -> Marks {
        Marks {
            pods: self.marked(now).map(|(asked, uid)| (uid.clone(), *asked)).into_map(),
            returns: self.returns.marks(),
            claims: self.book.all_claims(),
            surged: self.surged.clone(),
            ..Marks::default()
        }
    }
}
