//! What is said about a pod that does not leave: one code and one sentence, with names and numbers.
//!
//! Not here: deciding anything. Sources: goals D7, O2.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;

use super::namespace_budgets::NamespaceBudgets;
use super::storage::StorageNeeds;
use super::track::{PodRefusal, PodState, PodTrack, SecondCopy};
use super::words::AttemptRules;
use crate::plan::budget::BudgetFacts;
use crate::plan::held;
use crate::plan::unhealthy::UnhealthyPod;
use crate::progress::{AttemptBlocker, BlockCode};
use kubeapi::names::listed;

/// What holds the pod, when something does.
pub(super) fn blocker(
    now: Mono,
    track: &PodTrack,
    (spaces, needs, silent): (&NamespaceBudgets, &StorageNeeds, Option<&(Mono, String)>),
    returns: u32,
    (rules, (given_up, by)): (&AttemptRules, &(Mono, String)),
) -> Option<AttemptBlocker> {
    let pod = &track.facts.pod;
    let named =
        |code, reason, since| Some(AttemptBlocker { subject: pod.clone().into(), code, reason, since });
    if let (PodState::Going { since }, Some((silent, words))) = (&track.state, silent) {
        let reason = format!("the kubelet of this node is silent ({words}), so pod {pod} does not end");
        return named(BlockCode::KubeletSilent, reason, *since.max(silent));
    }
    let (code, reason, since) = match (&track.state, &track.refusal) {
        (PodState::Gone | PodState::ObjectOnly | PodState::Left, _) => return None,
        (PodState::Waiting { .. } | PodState::Asking { .. }, _) if track.sticky => {
            let workload = &track.facts.workload;
            let reason =
                format!("pod {pod} is not asked any more: its {workload} has come back here {returns} times");
            return named(BlockCode::Sticky, reason, track.asked.unwrap_or(now));
        }
        (PodState::Waiting { .. } | PodState::Asking { .. }, _)
            if let SecondCopy::Awaited(deployment) = &track.copy =>
        {
            let secs = rules.surge_limit.as_secs();
            let reason = format!(
                "pod {pod} is not evicted yet: Deployment {deployment} makes a second copy on another node first, for {secs} s \
                 at most"
            );
            return named(BlockCode::Surge, reason, track.asked.unwrap_or(now));
        }
        (PodState::Waiting { .. } | PodState::Ended, _) if track.kept.is_some() => {
            let (code, why) = needs.why(&track.facts)?;
            return named(code, format!("pod {pod} is not evicted yet: {why}"), track.kept.unwrap_or(now));
        }
        (PodState::Waiting { .. } | PodState::Asking { .. } | PodState::Ended, Some(refusal))
            if track.told =>
        {
            let (code, reason) = match needs.budget(&track.facts) {
                Some(why) if track.is_held_by_budget() => {
                    (BlockCode::StorageManager, format!("pod {pod}: {why}"))
                }
                Some(_) | None => refused(track, refusal, spaces),
            };
            (code, reason, refusal.since)
        }
        (PodState::Going { since }, _) if track.overdue_at().is_some_and(|at| at <= now) => {
            let reason = match track.facts.finalizers.as_slice() {
                [] => {
                    let grace = track.facts.grace.as_secs();
                    let runs = if track.lives { "; its containers still run" } else { "" };
                    format!("pod {pod} was asked to end and is still there after its {grace} s{runs}")
                }
                held => format!(
                    "pod {pod} was asked to end; its object stays for finalizer {}",
                    listed(held, ", ")
                ),
            };
            (BlockCode::SlowToEnd, reason, *since)
        }
        (PodState::Going { since }, _) if *since + track.facts.grace > *given_up => {
            let reason = format!(
                "pod {pod} was asked to end and may take its grace period of {} s, which passes the limit {by}",
                track.facts.grace.as_secs()
            );
            (BlockCode::LongGrace, reason, *since)
        }
        (PodState::Going { since }, _) if track.over => {
            (BlockCode::OverTime, format!("pod {pod} was asked to end and is still there"), *since)
        }
        (_, _) if track.over => {
            (BlockCode::OverTime, format!("pod {pod} is being asked to leave"), track.asked.unwrap_or(now))
        }
        (_, _) => return None,
    };
    if !track.over || track.state == PodState::Ended {
        return named(code, reason, since);
    }
    let code = if code == BlockCode::LongGrace { code } else { BlockCode::OverTime };
    let limit = limit(rules.pod.after.unwrap_or_default(), "a pod");
    named(code, format!("{reason}; it is over the limit {limit}"), since)
}

/// A limit in words: `of 300 s for a pod`.
pub(super) fn limit(after: Duration, of: &str) -> String {
    format!("of {} s for {of}", after.as_secs())
}

fn refused(track: &PodTrack, refusal: &PodRefusal, spaces: &NamespaceBudgets) -> (BlockCode, String) {
    let (pod, text) = (&track.facts.pod, refusal.reply.text());
    let reason = match refusal.code {
        BlockCode::Budget | BlockCode::ManyBudgets => return by_budget(track, refusal, spaces),
        BlockCode::Moving => format!("pod {pod} leaves with its virtual machine: {text}"),
        BlockCode::CannotMove => format!("pod {pod} stays with its virtual machine: {text}"),
        BlockCode::NamespaceEnding => held::by_namespace(pod, text),
        BlockCode::Throttled => format!("pod {pod} is retried: the API server is throttling (429): {text}"),
        BlockCode::ApiTrouble => format!("pod {pod} is retried: its eviction failed: {text}"),
        BlockCode::Webhook | BlockCode::Admission => {
            format!("pod {pod} is not admitted to leave yet, and asked again: {text}")
        }
        BlockCode::Refused | BlockCode::Unauthorized => format!("pod {pod} cannot be evicted: {text}"),
        BlockCode::SlowToEnd
        | BlockCode::LongGrace
        | BlockCode::KubeletSilent
        | BlockCode::BudgetStuck
        | BlockCode::StorageManager
        | BlockCode::Copying
        | BlockCode::LastCopy
        | BlockCode::StrictLocal
        | BlockCode::AllCordoned
        | BlockCode::NoRoom
        | BlockCode::VolumeFull
        | BlockCode::Sticky
        | BlockCode::OverTime
        | BlockCode::Surge
        | BlockCode::NoOtherNode
        | BlockCode::Rebuilding
        | BlockCode::Unreadable => format!("pod {pod} is held ({}): {text}", refusal.code.text()),
    };
    (refusal.code, reason)
}

fn by_budget(track: &PodTrack, refusal: &PodRefusal, spaces: &NamespaceBudgets) -> (BlockCode, String) {
    let (pod, text) = (&track.facts.pod, refusal.reply.text());
    let guards = spaces.guards(&track.facts);
    if guards.is_empty() {
        let many = refusal.code == BlockCode::ManyBudgets;
        let why = if many { "has more than one budget" } else { "is held by a disruption budget" };
        return (refusal.code, format!("pod {pod} {why}: {text}"));
    }
    let full = guards.iter().filter(|budget| !budget.admits(track.facts.ready));
    let hindrances: Vec<&UnhealthyPod> = full.flat_map(|budget| spaces.hindrances(budget)).collect();
    let (code, reason) = held::by_budgets(&track.facts, &guards, &hindrances, refusal.code);
    let behind = guards.iter().filter_map(|budget| Some((budget, spaces.ready(budget)?)));
    let behind: Vec<String> = behind
        .map(|(BudgetFacts { namespace, name, healthy, .. }, ready)| {
            format!(
                "the numbers of budget {namespace}/{name} are behind: {ready} of its pods are Ready, not {healthy}; \
                 Kubernetes was made to count them again"
            )
        })
        .collect();
    if behind.is_empty() {
        (code, reason)
    } else {
        (refusal.code, format!("{reason}; {}", behind.join("; ")))
    }
}
