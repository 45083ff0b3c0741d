//! The Kubernetes API is away before a drain has begun: whether and when the drain is skipped. In the middle of one the drain
//! waits for it, and says since when it is silent.
//!
//! Nobody can be asked for a turn then. So a node waits a time by chance, that not all go together, a server goes only
//! if etcd can spare it, and nobody goes where what is known of the cluster speaks against it. Sources: goals U1, U3, U8; spec/cluster-lock.md 3.4.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use agent::settings;
use kubeapi::listed;
use step::{Dice, Fault, Mono, planted, say};
use topics::{ClusterKnown, PodCounts, Requester, Skip, SkipKind};

use super::life::{Drain, DrainStepOutcome};
use super::run::{ApiAbsence, DrainRun, Silence};
use crate::core::answers::Answers;
use crate::core::context::NodeContext;
use crate::core::facts::{Effect, UnansweredCall};
use crate::limits::{PROBE_PAUSE, SKIP_SPREAD};

/// What is known not to be there.
const NONE: &str = "none";
/// The role of a node without control plane and etcd.
const WORKER: &str = "worker";

/// Whether the drain may be skipped, as far as this node knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum May {
    /// There is nobody to wait for.
    Now,
    /// After the time by chance.
    Later,
    /// The same, if etcd can spare this node then; `lacks_etcd`: one without etcd has no quorum to keep.
    WithMargin { lacks_etcd: bool },
    /// Not, for this reason.
    No(String),
}

pub(super) fn may_skip(known: &ClusterKnown) -> May {
    let ClusterKnown { role, alone, servers, servers_out, volume, addresses: _ } = known;
    if role.is_empty() {
        // It has never seen its cluster: whether it is a server is in its own files.
        return May::WithMargin { lacks_etcd: true };
    }
    if *alone {
        return May::Now;
    }
    if !servers_out.is_empty() && servers.iter().all(|it| servers_out.contains(it)) {
        return May::No(format!(
            "the API is away because of a turn: the Lease was last seen held by server {}, and no other server is \
             known",
            listed(servers_out, ", ")
        ));
    }
    match volume.as_str() {
        NONE => {}
        "" => {
            return May::No("it is not known whether last replicas of Longhorn volumes are here".to_owned());
        }
        name => return May::No(format!("the last healthy replica of Longhorn volume {name} is here")),
    }
    if role == WORKER { May::Later } else { May::WithMargin { lacks_etcd: servers.is_empty() } }
}

/// A time up to `longest` that differs from node to node, and stays the same over a restart in the same boot.
fn by_chance(boot_id: &str, longest: Duration) -> Duration {
    let seed = boot_id.bytes().fold(0_u64, |seed, it| seed.wrapping_mul(31).wrapping_add(it.into()));
    let longest = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(Dice::new(seed).draw() % longest.saturating_add(1).max(1))
}

impl Drain {
    /// Hears whether the API can be reached.
    pub(crate) fn probed(
        &mut self,
        now: Mono,
        result: Result<(), String>,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<DrainStepOutcome> {
        let DrainRun::Probing { again: None, tried, away } = &mut self.run else { return None };
        let Err(trouble) = result else {
            let tried = *tried;
            return self.reached(now, tried, node, out);
        };
        away.trouble = trouble;
        let limit = self.properties.time(settings::DRAIN_SKIP);
        let pause = now + PROBE_PAUSE;
        // A drain that was under way holds: an API that is away for one cause would release every draining node.
        let under_way = self.resume.is_some();
        if now.since(away.since) < limit || under_way || planted(Fault::K2) {
            let at = if under_way { pause } else { pause.min(away.since + limit) };
            self.probe_again(at);
            return None;
        }
        if !node.limits.take_turns {
            return self.skip_away(now, "", out);
        }
        let may = may_skip(&node.known);
        let at = match &may {
            May::Now => return self.skip_away(now, "no other node is known", out),
            May::No(why) => {
                self.refuse_skip(why.clone(), pause, out);
                return None;
            }
            May::Later | May::WithMargin { .. } => *away.skip_at.get_or_insert_with(|| {
                let later = by_chance(&node.boot_id, SKIP_SPREAD);
                say!(
                    out,
                    warn,
                    "isExtendedKubeAPIUnreachable the Kubernetes API is away: the drain is skipped in {} s, a time by chance",
                    later.as_secs()
                );
                now + later
            }),
        };
        if now < at {
            self.probe_again(pause.min(at));
        } else if let May::WithMargin { lacks_etcd } = may {
            out.push(Effect::Margin { run: self.run_id, lacks_etcd, trouble: away.trouble.clone() });
        } else {
            return self.skip_away(now, "", out);
        }
        None
    }

    /// Hears whether etcd can spare this node, and why, when the API is away.
    pub(crate) fn spared(
        &mut self,
        now: Mono,
        result: Result<String, String>,
        out: &mut Vec<Effect>,
    ) -> Option<DrainStepOutcome> {
        let DrainRun::Probing { again: None, .. } = &self.run else { return None };
        match result {
            Ok(why) => self.skip_away(now, &why, out),
            Err(why) => {
                self.refuse_skip(why, now + PROBE_PAUSE, out);
                None
            }
        }
    }

    fn probe_again(&mut self, at: Mono) {
        if let DrainRun::Probing { again, .. } = &mut self.run {
            *again = Some(at);
        }
    }

    fn refuse_skip(&mut self, why: String, at: Mono, out: &mut Vec<Effect>) {
        if let DrainRun::Probing { away, .. } = &mut self.run
            && away.refused.as_ref() != Some(&why)
        {
            say!(
                out,
                warn,
                "isExtendedKubeAPIUnreachable the Kubernetes API is away, and the drain is not skipped: {why}"
            );
            away.refused = Some(why);
        }
        self.probe_again(at);
    }

    /// The documented skip; `why` it may be, where that is not plain.
    fn skip_away(&mut self, now: Mono, why: &str, out: &mut Vec<Effect>) -> Option<DrainStepOutcome> {
        let DrainRun::Probing { away: ApiAbsence { since, trouble, skip_at, .. }, .. } = &self.run else {
            return None;
        };
        let limit = self.properties.time(settings::DRAIN_SKIP);
        let later = now.since(*since).saturating_sub(limit).as_secs();
        let mut parts =
            vec![format!("the Kubernetes API was not reachable for {} s: {trouble}", limit.as_secs())];
        if skip_at.is_some() {
            parts.push(format!("skipped {later} s later, so that nodes do not go together"));
        }
        if !why.is_empty() {
            parts.push(why.to_owned());
        }
        let skip = Skip { kind: SkipKind::ApiUnreachable, text: parts.join("; ") };
        Some(self.skip(skip, out))
    }

    /// Hears whether the API has answered in the middle of a drain, in this run of the agent or in the one before it.
    pub(crate) fn api_silent(&mut self, now: Mono, away: Option<Box<UnansweredCall>>) {
        let amid = matches!(self.run, DrainRun::Draining { .. }) || self.resume.is_some();
        self.silence = away.filter(|_| amid).map(|last| match self.silence.take() {
            Some(before) => Silence { until: now, tries: before.tries.saturating_add(1), last, ..before },
            None => Silence { since: last.asked, until: now, tries: 1, last },
        });
    }

    /// What a person reads: why it waits, and what can be done.
    pub(super) fn silence_words(
        &self,
        silence: &Silence,
        answers: &Answers,
        node: &NodeContext,
    ) -> (String, String) {
        let Silence { since, until, tries, last } = silence;
        let PodCounts { total, gone, .. } = self.counts();
        let force = self.force_words(answers);
        let UnansweredCall { address, why, .. } = &**last;
        let reason = format!(
            "no answer from the Kubernetes API at {address} since {}, for {} s, tried {tries} times: {why}; {gone} of \
             {total} pods were gone then",
            node.wall(*since).shown(),
            until.since(*since).as_secs(),
        );
        let next_step = format!(
            "check the network and the cluster software of this node: `systemctl status k3s`; the drain continues \
             by itself once the API answers, until Deadline; {force}"
        );
        (reason, next_step)
    }

    /// What a person can type who does not want to wait.
    pub(super) fn force_words(&self, answers: &Answers) -> &'static str {
        match answers.shown(self.serves.as_ref()).requested_by {
            Requester::Operator => "`zedbox drain cancel` withdraws your request",
            Requester::K3sUpdate => {
                "k3s.version and k3s.config.override as before in the device config withdraw it"
            }
            Requester::Update => {
                "`zedbox drain force complete --for update --reason '...'` lets the update go ahead without the rest of the drain"
            }
            Requester::DeviceOp | Requester::Unset | Requester::None | Requester::Stranger(_) => {
                "`zedbox drain force complete --for reboot --reason '...'` lets the operation go ahead without the rest of the drain"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u8_what_is_known_of_the_cluster_decides_who_may_be_skipped() {
        let known = |role: &str, servers: &[&str], out: &[&str], volume: &str| ClusterKnown {
            role: role.to_owned(),
            alone: false,
            servers: servers.iter().map(|it| (*it).to_owned()).collect(),
            servers_out: out.iter().map(|it| (*it).to_owned()).collect(),
            volume: volume.to_owned(),
            addresses: Vec::new(),
        };
        let alone = ClusterKnown { alone: true, ..known("server", &[], &[], "pvc-1") };
        let table = [
            (known("worker", &["s1"], &[], "none"), "Later"),
            (known("worker", &["s1"], &["s1"], "none"), "held by server s1"),
            (known("worker", &["s1", "s2"], &["s1"], "none"), "Later"),
            (known("worker", &[], &["s1"], "none"), "held by server s1"),
            (known("worker", &["s1"], &[], "pvc-1"), "volume pvc-1 is here"),
            (known("worker", &["s1"], &[], ""), "not known whether last replicas"),
            (known("server", &["s2"], &[], "none"), "WithMargin { lacks_etcd: false }"),
            (known("server", &["s2"], &["s2"], "none"), "held by server s2"),
            (known("server", &["s2"], &[], ""), "not known whether last replicas"),
            (known("server", &[], &[], "none"), "WithMargin { lacks_etcd: true }"),
            (alone, "Now"),
            (ClusterKnown::default(), "WithMargin { lacks_etcd: true }"),
        ];
        for (known, expected) in table {
            let may = format!("{:?}", may_skip(&known));
            assert!(may.contains(expected), "{known:?}: {may}");
        }
    }

    #[test]
    fn the_time_by_chance_is_within_its_limit_the_same_in_a_boot_and_another_on_another_node() {
        let longest = Duration::from_mins(10);
        let drawn: Vec<Duration> = (0..50).map(|nth| by_chance(&format!("boot-{nth}"), longest)).collect();
        assert!(drawn.iter().all(|it| *it <= longest));
        assert!(drawn.iter().min() < Some(&Duration::from_mins(2)));
        assert!(drawn.iter().max() > Some(&Duration::from_mins(8)));
        assert_eq!(by_chance("boot-7", longest), drawn[7]);
        assert_eq!(by_chance("boot-7", Duration::ZERO), Duration::ZERO);
    }
}
