//! Pods that the boot before this one has left on our node: Terminating or Unknown, while no container of them lives. Their
//! objects keep names, volumes and replacements from coming back, so they are deleted once the node is Ready.
//!
//! Never while a container lives, never without a believed answer of the container runtime, never the launcher of a
//! virtual machine. "Before this boot" goes by the clock of the API server: its time now, less the time since our boot.
//! A wrong one delays this, or brings forward what the kubelet would do next; it ends no container. Not here: the gate
//! (`gate`), what a drain has asked of machines and volumes (zedkube).

use std::collections::BTreeSet;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use kube::core::{ObjectList, Request};
use step::{Inserted as _, Mono};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use super::boot::{BootWatch, GateReport, LeftoverPods};
use crate::calls::pods::{self, pod_ref};
use crate::calls::remove;
use crate::engine::containers::{self, RuntimeQuery};
use crate::node;
use crate::plan::{PodOwner, tier};
use kubeapi::names::{PodRef, PodUid, listed};
use kubeapi::reply::Reply;
use kubeapi::slim::Pod;
use kubeapi::{ApiClient, Error};

/// From one look to the next.
const LOOK: Duration = Duration::from_secs(15);
/// How long the node has to be Ready before anything is deleted: most of them its kubelet clears by itself.
const KUBELETS_TIME: Duration = Duration::from_secs(60);
/// What is not cleared so long after the node is Ready is a person's, and looked at as seldom.
const GIVE_UP: Duration = Duration::from_mins(10);
/// Deletions at the same time.
const AT_ONCE: usize = 8;

/// One pod that the former boot has left.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LeftPod {
    pod: PodRef,
    /// It belongs to a virtual machine.
    of_machine: bool,
    finalizers: Vec<String>,
}

/// Clears them, for as long as the future is kept; it never ends. What comes of it goes to `report`. Dropping it loses no
/// more than what was seen of them.
pub async fn clear(
    cluster: &ApiClient,
    boot: &BootWatch,
    runtime: &RuntimeQuery,
    clock: impl Fn() -> Mono,
    report: &watch::Sender<GateReport>,
) {
    let (mut cleared, mut said, mut ready_since) = (0, String::new(), None::<Mono>);
    // Those of which the last answer of the runtime has shown no container, and those whose deletion was accepted.
    let (mut without, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    send_report(report, LeftoverPods { pending: true, ..LeftoverPods::default() });
    loop {
        let (mut words, mut next_step) = (String::new(), String::new());
        let looked = look(cluster, boot, clock(), &deleted).await;
        let mut nothing_ends = false;
        match looked {
            Err(error) => {
                without.clear();
                words = format!("pods of the former boot cannot be looked for: {}", error.line());
                next_step = error.next_step();
            }
            Ok(LeftoverCheck { ready: false, .. }) => {
                ready_since = None;
                without.clear();
            }
            Ok(LeftoverCheck { left, any_ending, pods, .. }) => {
                let since = *ready_since.get_or_insert(clock());
                nothing_ends = !any_ending;
                if !left.is_empty() && clock().since(since) >= KUBELETS_TIME {
                    let known = containers::among(pods, runtime).await;
                    let known = known.map(|all| all.iter().map(|it| pod_ref(it).uid).into_set());
                    let go = known.as_ref().map(|now| to_delete(&left, now, &without, &deleted));
                    let mut refused = None;
                    for (pod, reply) in delete(cluster, go.unwrap_or_default()).await {
                        if reply == Reply::Done {
                            cleared += 1;
                            warn!(node = %boot.node, %pod, uid = %pod.uid, "deleted a pod that the former boot has left: no container of it runs");
                            deleted.insert(pod.uid);
                        } else if !matches!(reply, Reply::NotFound { .. } | Reply::UidChanged) {
                            warn!(node = %boot.node, %pod, error = reply.text(), "cannot delete a pod that the former boot has left");
                            refused = Some((pod, reply));
                        }
                    }
                    (words, next_step) = match refused {
                        Some((pod, reply)) => (
                            format!("a pod of the former boot cannot be deleted: {pod}: {}", reply.text()),
                            "look at the role pillar-rs and at the API server's webhooks".to_owned(),
                        ),
                        None => left_in_words(&left, &known, &deleted),
                    };
                    without = known.unwrap_or_default();
                }
            }
        }
        let given_up = ready_since.is_some_and(|since| clock().since(since) >= GIVE_UP);
        let done = nothing_ends || given_up;
        if words != said {
            if words.is_empty() {
                info!(node = %boot.node, "no pod of the former boot is left");
            } else {
                warn!(node = %boot.node, next_step, "{words}");
            }
            said.clone_from(&words);
        }
        send_report(report, LeftoverPods { pending: !done, cleared, words, next_step });
        if nothing_ends {
            return std::future::pending().await;
        }
        sleep(if given_up { GIVE_UP } else { LOOK }).await;
    }
}

fn send_report(report: &watch::Sender<GateReport>, newest: LeftoverPods) {
    report.send_if_modified(|held| step::update(&mut held.leftovers, newest));
}

struct LeftoverCheck {
    ready: bool,
    /// What the former boot has left.
    left: Vec<LeftPod>,
    /// Any pod at all is Terminating or Unknown: with another time of the server it might be one of those.
    any_ending: bool,
    pods: Vec<Pod>,
}

async fn look(
    cluster: &ApiClient,
    boot: &BootWatch,
    since_boot: Mono,
    deleted: &BTreeSet<PodUid>,
) -> Result<LeftoverCheck, Error> {
    let ready = node::read(cluster, &boot.node, &boot.device_uuid).await?.ready;
    let of_node = ListParams::default().fields(&format!("spec.nodeName={}", boot.node));
    let list = Request::new(Pod::url_path(None)).list(&of_node);
    let what = format!("list pods of node {}", boot.node);
    let (pods, now): (ObjectList<Pod>, _) = cluster.ask_dated(&what, list).await?;
    let since_boot = SignedDuration::try_from(since_boot.since_start()).unwrap_or(SignedDuration::MAX);
    let booted = now.checked_sub(since_boot).unwrap_or(Timestamp::MIN);
    // The end of what we have deleted begins with that.
    let before = |it: &Pod| if deleted.contains(&pod_ref(it).uid) { Timestamp::MAX } else { booted };
    let left = pods.items.iter().filter_map(|it| left_by(it, before(it))).collect();
    let any_ending = pods.items.iter().any(|it| left_by(it, Timestamp::MAX).is_some());
    Ok(LeftoverCheck { ready, left, any_ending, pods: pods.items })
}

/// The pod, if its end began before the boot at `booted`, or nothing is known of it since then.
fn left_by(pod: &Pod, booted: Timestamp) -> Option<LeftPod> {
    let (meta, facts) = (&pod.metadata, pods::facts(pod));
    let began = match &meta.deletion_timestamp {
        Some(ends) => {
            let grace = SignedDuration::from_secs(meta.deletion_grace_period_seconds.unwrap_or_default());
            ends.0.checked_sub(grace).unwrap_or(Timestamp::MIN)
        }
        None if pod.status.as_ref().and_then(|it| it.phase.as_deref()) == Some("Unknown") => {
            meta.creation_timestamp.as_ref()?.0
        }
        None => return None,
    };
    // What a static pod's mirror shows is the kubelet's own.
    (began < booted && facts.owner != PodOwner::Kubelet).then(|| LeftPod {
        of_machine: tier::is_machine(&facts.labels) || facts.is_hotplug(),
        pod: facts.pod,
        finalizers: meta.finalizers.clone().unwrap_or_default(),
    })
}

/// Those that go now: two answers in a row show no container of them.
fn to_delete(
    left: &[LeftPod],
    now: &BTreeSet<PodUid>,
    before: &BTreeSet<PodUid>,
    deleted: &BTreeSet<PodUid>,
) -> Vec<PodRef> {
    let goes = |it: &&LeftPod| {
        let uid = &it.pod.uid;
        !it.of_machine && now.contains(uid) && before.contains(uid) && !deleted.contains(uid)
    };
    left.iter().filter(goes).map(|it| it.pod.clone()).collect()
}

async fn delete(cluster: &ApiClient, pods: Vec<PodRef>) -> Vec<(PodRef, Reply)> {
    let calls = pods.into_iter().map(|pod| async move {
        let reply = remove::delete_now(cluster, &pod).await;
        (pod, reply)
    });
    stream::iter(calls).buffer_unordered(AT_ONCE).collect().await
}

/// What is left, and what a person can do about it.
fn left_in_words(
    left: &[LeftPod],
    known: &Result<BTreeSet<PodUid>, String>,
    deleted: &BTreeSet<PodUid>,
) -> (String, String) {
    let names = |of: &dyn Fn(&LeftPod) -> bool| {
        let all: Vec<String> = left.iter().filter(|it| of(it)).map(|it| it.pod.to_string()).collect();
        (!all.is_empty()).then(|| (listed(&all, ", "), all[0].clone()))
    };
    let known = match known {
        Ok(known) => known,
        Err(why) => {
            let all = names(&|_| true).map(|it| it.0).unwrap_or_default();
            let next = "compare `crictl ps` with these pods; delete those without a container: `kubectl delete pod \
                        --force --grace-period=0`";
            return (
                format!("pods of the former boot are left, and whether they run is not known: {all}; {why}"),
                next.to_owned(),
            );
        }
    };
    let lives = |it: &LeftPod| !known.contains(&it.pod.uid);
    let held = |it: &LeftPod| deleted.contains(&it.pod.uid) && !it.finalizers.is_empty();
    let describe = |name: &str| {
        let (namespace, name) = name.split_once('/').unwrap_or_default();
        format!("`kubectl -n {namespace} describe pod {name}`")
    };
    if let Some((all, first)) = names(&held) {
        let which = left.iter().find(|it| held(it)).map(|it| it.finalizers.join(", ")).unwrap_or_default();
        let words = format!(
            "pods of the former boot are deleted, but finalizers keep their objects: {all} ({which})"
        );
        return (words, format!("find out who has to remove the finalizer: {}", describe(&first)));
    }
    if let Some((all, first)) = names(&|it| it.of_machine && !lives(it)) {
        let words =
            format!("launchers of virtual machines are left by the former boot, without containers: {all}");
        let next = format!(
            "nothing deletes them by force; see that its machine is nowhere else: {}",
            describe(&first)
        );
        return (words, next);
    }
    if let Some((all, first)) = names(&lives) {
        let words = format!("pods of the former boot are still ending, and their containers run: {all}");
        return (words, format!("wait, or see what holds them: {}", describe(&first)));
    }
    (String::new(), String::new())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const BOOTED: &str = "2026-03-14T09:00:00Z";

    fn pod(edit: impl FnOnce(&mut Value)) -> Pod {
        let mut pod = json!({
            "metadata": { "namespace": "shop", "name": "web", "uid": "uid-web",
                "creationTimestamp": "2026-03-10T00:00:00Z", "labels": {} },
            "status": { "phase": "Running" },
        });
        edit(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn r8_a_leftover_is_what_began_to_end_before_the_boot_or_is_unknown_since() {
        let ends = |at: &'static str, grace: i64| {
            move |it: &mut Value| {
                it["metadata"]["deletionTimestamp"] = at.into();
                it["metadata"]["deletionGracePeriodSeconds"] = grace.into();
            }
        };
        let unknown = |it: &mut Value| it["status"]["phase"] = "Unknown".into();
        let mirror = |it: &mut Value| {
            unknown(it);
            it["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "h" });
        };
        let new = |it: &mut Value| {
            unknown(it);
            it["metadata"]["creationTimestamp"] = "2026-03-14T09:00:01Z".into();
        };
        let table = [
            (pod(|_| ()), false, "it runs"),
            (pod(ends("2026-03-14T08:59:00Z", 30)), true, "its end began before the boot"),
            (pod(ends("2026-03-14T09:00:20Z", 30)), true, "the same, its grace ended after it"),
            (pod(ends("2026-03-14T09:00:40Z", 30)), false, "deleted in this boot"),
            (pod(unknown), true, "nobody has known anything of it since"),
            (pod(new), false, "Unknown, and of this boot"),
            (pod(mirror), false, "a static pod's mirror is the kubelet's own"),
        ];
        let booted: Timestamp = BOOTED.parse().unwrap();
        for (pod, left, why) in table {
            assert_eq!(left_by(&pod, booted).is_some(), left, "{why}");
        }
    }

    type Uids<'a> = &'a [&'a str];

    #[test]
    fn r8_two_answers_in_a_row_and_no_launcher() {
        let left = |name: &str, of_machine| LeftPod {
            pod: PodRef { namespace: "shop".into(), name: name.into(), uid: PodUid::new(name) },
            of_machine,
            finalizers: vec![],
        };
        let all = [left("a", false), left("vm", true)];
        let uids = |all: &[&str]| all.iter().map(|it| PodUid::new(*it)).collect::<BTreeSet<_>>();
        let table: [(Uids<'_>, Uids<'_>, Uids<'_>, Uids<'_>, &str); 5] = [
            (&["a", "vm"], &["a", "vm"], &[], &["a"], "a launcher is never deleted by force"),
            (&["a"], &[], &[], &[], "one answer is none"),
            (&[], &["a"], &[], &[], "a container of it lives"),
            (&["a"], &["a"], &["a"], &[], "once"),
            (&["a", "x"], &["a", "x"], &[], &["a"], "what is no leftover is left alone"),
        ];
        for (now, before, deleted, goes, why) in table {
            let found = to_delete(&all, &uids(now), &uids(before), &uids(deleted));
            let found: Vec<String> = found.into_iter().map(|it| it.name).collect();
            assert_eq!(found, goes, "{why}");
        }
        // Each state has words of its own, and a next step.
        let (words, next) = left_in_words(&all, &Err("no socket".to_owned()), &uids(&[]));
        assert!(
            words.ends_with("shop/a, shop/vm; no socket") && next.contains("`crictl ps`"),
            "{words} {next}"
        );
        let (words, next) = left_in_words(&all, &Ok(uids(&["a", "vm"])), &uids(&["a"]));
        assert!(words.starts_with("launchers") && next.contains("describe pod vm"), "{words} {next}");
        let held = [LeftPod { finalizers: vec!["x.io/f".to_owned()], ..left("a", false) }];
        let (words, _) = left_in_words(&held, &Ok(uids(&["a"])), &uids(&["a"]));
        assert!(words.ends_with("shop/a (x.io/f)"), "{words}");
        let (words, _) = left_in_words(&held, &Ok(uids(&[])), &uids(&[]));
        assert!(words.contains("their containers run: shop/a"), "{words}");
    }
}
